"""What the node has for a foreign broker: on disk first, in order, never silently gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from edge.contract.bus import Publish
from edge.contract.limit import Limits
from edge.contract.principal import NODE
from edge.contract.time import SECOND, Stamp
from edge.store import ledger, spool
from edge.store.database import Database
from edge.transports.mqtt.outbox import SPOOL_MESSAGES, SPOOL_OCTETS, SPOOL_TRIES, Outbox
from tests.support.clock import EPOCH_US, FakeClock
from tests.support.store import database

KEEP_US = 60 * SECOND


class Desk:
    def __init__(self, clock: FakeClock, db: Database, **limits: int) -> None:
        self.clock, self.db = clock, db
        self.limits = Limits({f"mqtt.{name}": value for name, value in limits.items()})
        self.outbox = Outbox(clock, db, self.limits, lambda topic: "alarm" if topic == "a" else "state", KEEP_US)

    def put(self, payload: bytes, topic: str = "t") -> None:
        self.outbox.put(Publish(topic, payload, 1, False, NODE, self.clock.now()))

    async def stored(self) -> list[bytes]:
        await self.db.commit(lambda unit: None)
        return [one.payload for one in await self.db.read(spool.load)]

    async def drops(self) -> dict[tuple[str, str], int]:
        await self.db.commit(lambda unit: None)
        return {(gap.key, gap.reason): gap.count for gap in await self.db.read(ledger.recent)}


class Rebooted(FakeClock):
    """A second boot; what the first one called zero is still known."""

    def wall(self, at: Stamp) -> tuple[int, int]:
        return (EPOCH_US + at.mono_us, 0) if at.boot == 1 else super().wall(at)


@asynccontextmanager
async def desk(folder: Path, clock: FakeClock | None = None, **limits: int) -> AsyncIterator[Desk]:
    clock = clock or FakeClock()
    async with database(folder, "hot", clock) as db:
        made = Desk(clock, db, **limits)
        await made.outbox.load()
        yield made
        made.outbox.close()


async def test_a_message_goes_out_once_it_is_on_disk_and_is_forgotten_once_it_is_there(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        made.put(b"1")
        assert not made.outbox.quiet
        one = await made.outbox.following()
        assert await made.stored() == [b"1"]
        made.outbox.sent(one)
        assert await made.stored() == []
        assert (len(made.outbox), made.outbox.octets, made.outbox.quiet) == (0, 0, True)


async def test_what_was_on_its_way_goes_out_again_in_its_place(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        for payload in (b"1", b"2", b"3", b"4"):
            made.put(payload)
        taken = [await made.outbox.following() for _ in range(3)]
        made.outbox.sent(taken[1])
        made.outbox.back(taken[2])
        made.outbox.back(taken[0])
        assert [(await made.outbox.following()).payload for _ in range(3)] == [b"1", b"3", b"4"]


async def test_the_next_run_sends_what_this_one_could_not(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        made.put(b"1")
        made.put(b"2")
        await made.stored()
    async with desk(tmp_path) as made:
        made.put(b"3")
        assert [(await made.outbox.following()).payload for _ in range(3)] == [b"1", b"2", b"3"]


@pytest.mark.limit("mqtt.spool_messages")
async def test_above_the_number_the_oldest_is_declared_lost(tmp_path: Path) -> None:
    async with desk(tmp_path, spool_messages=3) as made:
        made.put(b"1", "a")
        for payload in (b"2", b"3"):
            made.put(payload)
        assert SPOOL_MESSAGES.name not in made.limits.hits
        made.put(b"4")
        assert await made.stored() == [b"2", b"3", b"4"]
        assert await made.drops() == {("alarm", "spool_full"): 1}
        assert made.limits.hits == {SPOOL_MESSAGES.name: 1}
        assert (await made.outbox.following()).payload == b"2"


@pytest.mark.limit("mqtt.spool_octets")
async def test_above_the_weight_the_oldest_is_declared_lost(tmp_path: Path) -> None:
    async with desk(tmp_path, spool_octets=22) as made:
        made.put(b"x" * 10)
        made.put(b"y" * 10)
        assert await made.drops() == {}
        made.put(b"z")
        assert await made.stored() == [b"y" * 10, b"z"]
        assert made.limits.hits == {SPOOL_OCTETS.name: 1}
        made.put(b"w" * 100)
        assert await made.stored() == [b"w" * 100]


async def test_what_the_broker_refuses_for_good_is_declared_lost_at_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        made.put(b"1", "a")
        made.put(b"2")
        made.outbox.refused(await made.outbox.following(), "broker_not_authorized", again=False)
        assert await made.stored() == [b"2"]
        assert await made.drops() == {("alarm", "broker_not_authorized"): 1}
        assert made.outbox.counters == {"refused": 1, "dropped.broker_not_authorized": 1}
        assert made.limits.hits == {}


@pytest.mark.limit("mqtt.spool_tries")
async def test_what_the_broker_refuses_for_the_moment_goes_out_again_so_many_times(tmp_path: Path) -> None:
    async with desk(tmp_path, spool_tries=3) as made:
        made.put(b"1")
        made.put(b"2")
        for _ in range(2):
            one = await made.outbox.following()
            assert one.payload == b"1"
            made.outbox.refused(one, "broker_quota_exceeded", again=True)
        assert (await made.drops(), made.limits.hits) == ({}, {})
        made.outbox.refused(await made.outbox.following(), "broker_quota_exceeded", again=True)
        assert await made.stored() == [b"2"]
        assert await made.drops() == {("state", "broker_quota_exceeded"): 1}
        assert made.limits.hits == {SPOOL_TRIES.name: 1}


async def test_what_was_given_up_on_its_way_is_not_lost_twice_when_it_is_refused(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        made.put(b"1")
        one = await made.outbox.following()
        made.clock.advance(KEEP_US)
        made.outbox.refused(one, "broker_not_authorized", again=False)
        assert await made.drops() == {("state", "expired"): 1}


async def test_what_is_too_old_is_declared_lost_by_the_clock(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        made.put(b"1")
        made.clock.advance(KEEP_US // 2)
        made.put(b"2")
        made.clock.advance(KEEP_US // 2)
        assert await made.stored() == [b"2"]
        made.clock.advance(KEEP_US)
        assert await made.stored() == []
        assert sum((await made.drops()).values()) == 2
        assert made.outbox.counters["dropped.expired"] == 2


async def test_age_is_counted_over_a_reboot(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        made.put(b"1")
        await made.stored()
    later = Rebooted(boot=2, wall_at_zero_us=clock.wall_at_zero_us + 2 * KEEP_US)
    async with desk(tmp_path, later) as made:
        assert await made.stored() == []
        assert made.outbox.counters == {"dropped.expired": 1}


async def test_who_waits_is_woken(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        waiting = asyncio.get_running_loop().create_task(made.outbox.following())
        await asyncio.sleep(0)
        made.put(b"1")
        assert (await waiting).payload == b"1"
