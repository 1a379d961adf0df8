from __future__ import annotations

import msgspec
import pytest

from edge.contract.time import Stamp
from edge.protocol.task import Aim, Artifact, Message, Role, State, Task

TASK = Task(id="T", dialect="aun", owner="alice", assignee="bob")


@pytest.mark.parametrize("state", State)
def test_four_states_are_final_and_two_more_wait_for_the_caller(state: State) -> None:
    task = msgspec.structs.replace(TASK, state=state)
    assert task.final == (state in ("completed", "canceled", "failed", "rejected"))
    assert task.settled == (task.final or state in ("need_input", "need_auth"))


def test_somebody_may_be_owner_and_assignee_at_once() -> None:
    assert TASK.role("alice") is Role.OWNER
    assert TASK.role("bob") is Role.ASSIGNEE
    assert TASK.role("carol") is Role.NONE
    assert msgspec.structs.replace(TASK, assignee="alice").role("alice") == Role.OWNER | Role.ASSIGNEE


def test_a_task_survives_its_way_to_disk_and_back() -> None:
    at = Stamp(3, 9)
    part = {"kind": "data", "data": {"n": 1.5, "list": [None, True]}}
    task = msgspec.structs.replace(
        TASK,
        state=State.WORKING,
        aim=Aim(skill="lamp.power", verb="set", value=True, params={"value": True}),
        due=at,
        messages=(Message(id="m", by="owner", at=at, parts=(part,), source={"type": "data"}),),
        artifacts=(Artifact(id="a", parts=(part,)),),
    )
    assert msgspec.json.decode(msgspec.json.encode(task), type=Task) == task
