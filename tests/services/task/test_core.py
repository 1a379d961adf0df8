from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edge.contract.errors import TaskNotFound
from edge.contract.principal import GUEST, NODE, Kind, Principal
from edge.contract.time import SECOND
from edge.protocol.task import Accept, Role, Tick
from edge.services.task.core import Core, device_of, name_of, new_id
from tests.support.tasks import ALICE, BOB, CAROL, ISSUER, KNOWN, OPERATOR, World, agent, world


def core(house: World) -> Core:
    return Core(
        house.node,
        house.clock,
        house.gate,
        house.grants,
        house.hub,
        issuer=ISSUER,
        known=lambda unit, aid: aid in KNOWN,
        limits=house.limits,
    )


def test_ids_are_26_characters_that_sort_by_time() -> None:
    first, second = new_id(1_750_000_000_000, b"\xff" * 10), new_id(1_750_000_000_001, b"\x00" * 10)
    assert len(first) == 26
    assert first < second
    assert set(first + second) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
    assert new_id(0, b"\x00" * 10) == "0" * 26
    assert new_id((1 << 48) - 1, b"\xff" * 10) == "7" + "Z" * 25
    assert new_id(1 << 48, b"\x00" * 10) == "0" * 26


def test_callers_without_an_aid_are_called_by_their_kind() -> None:
    assert [name_of(who) for who in (ALICE, OPERATOR, NODE)] == [ALICE.aid, "operator", "node"]
    assert device_of("lamp.power.level") == "lamp"


@pytest.mark.seed("S0-111")
async def test_who_may_see_a_task_is_a_matter_of_its_visibility(tmp_path: Path) -> None:
    foreign = Principal(kind=Kind.AGENT, aid="eve.else.where")
    device = Principal(kind=Kind.DEVICE, aid=f"d-lamp.{ISSUER}")
    async with world(tmp_path) as house:
        inner = core(house)
        for visibility, others in (("private", False), ("shared", False), ("public", True)):
            made = await house.create(ALICE, BOB.aid, "x", visibility=visibility)
            seen = {}
            for who in (ALICE, BOB, OPERATOR, NODE, CAROL, foreign, device, GUEST):
                try:
                    seen[who] = bool(await inner.read(made["task_id"], who))
                except TaskNotFound:
                    seen[who] = False
            assert seen == {
                ALICE: True,
                BOB: True,
                OPERATOR: True,
                NODE: True,
                CAROL: others,
                foreign: False,
                device: False,
                GUEST: False,
            }


async def test_waiting_ends_with_the_change_or_with_the_time(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        inner = core(house)
        task_id = (await house.create(ALICE, BOB.aid, "x"))["task_id"]
        assert (await inner.wait(task_id, ALICE, 0)).state == "queued"
        waiting = asyncio.ensure_future(inner.wait(task_id, ALICE, 5 * SECOND))
        await house.clock.awaited(house.clock.mono_us + 5 * SECOND)
        await house.call(BOB, "task.accept", {"task_id": task_id})
        await asyncio.sleep(0.02)
        assert not waiting.done()
        house.clock.advance(5 * SECOND)
        assert (await waiting).state == "working"
        waiting = asyncio.ensure_future(inner.wait(task_id, ALICE, 5 * SECOND))
        await asyncio.sleep(0.02)
        await house.call(BOB, "task.complete", {"task_id": task_id})
        assert (await waiting).state == "completed"
        with pytest.raises(TaskNotFound):
            await inner.wait(task_id, agent("nosy"), SECOND)


async def test_a_step_that_says_nothing_new_writes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        inner = core(house)
        task_id = (await house.create(ALICE, BOB.aid, "x"))["task_id"]
        before = len(house.events)
        same = await house.node.commit(lambda unit: inner.step(unit, inner.load(unit, task_id), Tick()))
        assert same.state == "queued"
        inner.send("no such task", Tick())
        await house.rest()
        assert len(house.events) == before
        moved = await house.node.commit(
            lambda unit: inner.step(unit, inner.load(unit, task_id), Accept(role=Role.ASSIGNEE))
        )
        assert moved.state == "working"
        assert len(house.events) == before + 2
        inner.close()
