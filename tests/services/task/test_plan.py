from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.contract.errors import InvalidParams, NotPermitted, TooLarge
from edge.protocol import parts
from edge.protocol.task import State, Task
from edge.services.task.plan import Planner, reference
from tests.services.task.test_core import core
from tests.support.tasks import ALICE, BOB, DIMMER, DOOR, ISSUER, LAMP, OPERATOR, THERMOMETER, World, world


@asynccontextmanager
async def planner(folder: Path, *skills: Any, default: str = "", **more: Any) -> AsyncIterator[tuple[Planner, World]]:
    async with world(folder, *skills, **more) as house:
        yield Planner(core(house), default), house


async def test_the_node_its_issuer_and_its_services_are_the_node(tmp_path: Path) -> None:
    async with planner(tmp_path, LAMP) as (plan, _):
        for aid in ("", ISSUER, f"gateway.{ISSUER}", f"storage.{ISSUER}"):
            assert plan.is_node(aid)
        for aid in (f"alice.{ISSUER}", "gateway.else.where", LAMP.aid):
            assert not plan.is_node(aid)
        said = plan.message("m", [parts.text("lamp on")], {})
        assert plan.new("", said, ALICE).to == plan.node_aid == f"gateway.{ISSUER}"
        assert plan.new(f"STORAGE.{ISSUER}", said, ALICE).to == f"storage.{ISSUER}"


async def test_a_plan_for_an_agent_has_no_aim(tmp_path: Path) -> None:
    async with planner(tmp_path, LAMP) as (plan, _):
        found = plan.new(BOB.aid, plan.message("m", [parts.text("lamp on")], {}), ALICE)
        assert (found.by_node, found.aim, found.question, found.to) == (False, None, None, BOB.aid)


async def test_the_default_skill_of_the_node_and_of_a_device_are_their_own(tmp_path: Path) -> None:
    declared = msgspec.structs.replace(DIMMER, default=True)
    async with planner(tmp_path, LAMP, declared, THERMOMETER, default=THERMOMETER.id) as (plan, _):
        hello = plan.message("m", [parts.text("how warm?")], {})
        found = plan.new("", hello, ALICE)
        assert found.aim is not None
        assert found.aim.skill == THERMOMETER.id
        bare = plan.message("m", [parts.text("30")], {})
        at_device = plan.new(DIMMER.aid, bare, ALICE)
        assert at_device.aim is not None
        assert (at_device.aim.skill, at_device.aim.value) == (DIMMER.id, 30)
        assert plan.new("", bare, ALICE).question is None
        asked = plan.new(DIMMER.aid, hello, ALICE)
        assert asked.aim is None
        assert asked.question is not None
        assert asked.question.by == "node"


async def test_the_gate_has_a_say_before_there_is_a_task(tmp_path: Path) -> None:
    async with planner(tmp_path, LAMP) as (plan, _):
        call = [parts.data({"skill": LAMP.id, "params": {"value": "nonsense"}})]
        with pytest.raises(InvalidParams, match="nonsense"):
            plan.new("", plan.message("m", call, {}), ALICE)


async def test_the_operator_needs_no_grant(tmp_path: Path) -> None:
    async with planner(tmp_path, DOOR) as (plan, _):
        said = plan.message("m", [parts.text("door unlock")], {})
        assert plan.new("", said, OPERATOR).aim is not None
        with pytest.raises(NotPermitted):
            plan.new("", said, ALICE)


async def test_more_input_names_a_skill_only_while_there_is_none(tmp_path: Path) -> None:
    async with planner(tmp_path, LAMP, DIMMER) as (plan, _):
        said = plan.message("m", [parts.text("lamp power on")], {})
        open_task = Task(id="T", dialect="aun", owner=ALICE.aid, assignee=plan.node_aid, by_node=True)
        assert plan.more(open_task, said, ALICE).aim is not None
        aimed = msgspec.structs.replace(open_task, aim=plan.more(open_task, said, ALICE).aim)
        over = msgspec.structs.replace(open_task, state=State.CANCELED)
        for task in (aimed, over, msgspec.structs.replace(open_task, by_node=False)):
            assert plan.more(task, said, ALICE).aim is None


@pytest.mark.limit("task.input")
async def test_a_message_is_as_long_as_its_protocol_wrote_it(tmp_path: Path) -> None:
    async with planner(tmp_path, limits={"task.input": 50}) as (plan, _):
        room = 50 - len(b'[[{"kind":"text","text":""}],{}]')
        assert plan.message("m", [parts.text("x" * room)], {}).parts
        with pytest.raises(TooLarge):
            plan.message("m", [parts.text("x" * (room + 1))], {})
        assert plan.message("m", [parts.text("x" * 99)], {}, source={"n": 1}).source == {"n": 1}
        assert len(plan.message("", [], {}).id) == 26


def test_references_are_printable_and_short() -> None:
    assert reference("x" * 256, "id") == "x" * 256
    for bad in ("x" * 257, "a\nb", "a\x00"):
        with pytest.raises(InvalidParams, match="id must be"):
            reference(bad, "id")
