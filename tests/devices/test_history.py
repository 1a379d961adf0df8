from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from edge.contract.principal import Principal
from edge.devices import history
from edge.devices.history import DAY_US, PERIOD_US, Keeper
from edge.store import ledger
from edge.store.readings import OVERHEAD
from tests.support.house import House, house


def keeper(h: House, **more: Any) -> Keeper:
    running: set[asyncio.Task[None]] = set()

    def spawn(work: Coroutine[Any, Any, None]) -> None:
        running.add(asyncio.get_running_loop().create_task(work))

    return Keeper(h.registry, h.intake, spawn, **more)


async def device(h: House) -> Principal:
    who = await h.add("dev")
    caps = [{"name": name, "value_type": "number", "history": "every"} for name in ("a", "b")]
    await h.say(who, "aun/v1/dev/announce", {"capabilities": caps})
    return who


async def fill(h: House, who: Principal, name: str, count: int) -> None:
    for number in range(count):
        h.bus.arrive(f"aun/v1/dev/state/{name}", str(number % 10), who)
    await h.settle()


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CHUNK", 10)
    monkeypatch.setattr(history, "STEPS", (10, 2, 0))


async def test_what_is_older_than_the_policy_goes_without_a_gap(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await device(h)
        await fill(h, who, "a", 25)
        h.clock.advance(DAY_US)
        await fill(h, who, "a", 15)
        sweeper = keeper(h, keep_days=1)
        assert await sweeper.sweep() == 0
        h.clock.advance(1)
        assert await sweeper.sweep() == 25
        assert len(await h.rows()) == 15
        assert await h.hot.read(ledger.drops) == []
        h.clock.advance(DAY_US)
        await sweeper.sweep()
        assert len(await h.rows()) == 1, "the latest value is written again"


async def test_the_latest_value_outlives_the_policy(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await device(h)
        await fill(h, who, "b", 3)
        said = h.registry.skill("dev.b")
        h.clock.advance(DAY_US + 1)
        await fill(h, who, "a", 40)
        await keeper(h, keep_days=1).sweep()
        await h.settle()
        assert h.registry.skill("dev.b") == said
    async with house(tmp_path) as h:
        again = h.registry.skill("dev.b")
        assert again is not None
        assert said is not None
        assert (again.value, again.at) == (said.value, said.at)


async def test_more_than_the_bytes_that_are_allowed_is_evicted_and_declared(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await device(h)
        await fill(h, who, "a", 100)
        allowed = 50 * (OVERHEAD + 1)
        sweeper = keeper(h, keep_octets=allowed)
        gone = await sweeper.sweep()
        assert gone == 50
        assert await h.hot.read(ledger.drops) == [ledger.Drop("reading", "evicted", 50)]
        assert await sweeper.sweep() == 0


async def test_sweeping_is_done_every_ten_minutes_until_it_is_stopped(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await device(h)
        await fill(h, who, "a", 30)
        sweeper = keeper(h, keep_octets=20 * (OVERHEAD + 1))
        sweeper.start()
        h.clock.advance(PERIOD_US - 1)
        await h.settle()
        assert len(await h.rows()) == 30
        h.clock.advance(1)
        for _ in range(5):
            await h.settle()
        assert len(await h.rows()) == 20
        sweeper.stop()
        sweeper.stop()
        await fill(h, who, "a", 30)
        h.clock.advance(2 * PERIOD_US)
        await h.settle()
        assert len(await h.rows()) == 50


async def test_a_time_that_is_unsure_ages_nothing(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await device(h)
        await fill(h, who, "a", 30)
        h.clock.advance(400 * DAY_US)
        h.clock.uncertainty_us = 10**17
        assert await keeper(h, keep_days=1).sweep() == 0
