from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edge.contract.time import Stamp
from edge.protocol import parts, view
from edge.protocol.task import Aim, Artifact, Message, State, Task
from edge.protocol.view import aun_head, aun_parts, aun_states, aun_task, iso

AT = Stamp(1, 5_000_000)
TASK = Task(id="T", dialect="aun", owner="alice", assignee="bob", made=AT, changed=Stamp(1, 6_500_000))


def when(at: Stamp) -> int:
    return 1_750_000_000_000_000 + at.mono_us


def message(ident: str, by: str, *said: Any, source: Any = None) -> Message:
    return Message(id=ident, by=by, at=AT, parts=tuple(said), source=source)


def test_times_are_iso_in_utc_with_milliseconds() -> None:
    assert iso(1_750_000_000_000_000) == "2025-06-15T15:06:40.000Z"
    assert iso(1_750_000_000_123_999) == "2025-06-15T15:06:40.123Z"


@pytest.mark.seed("S0-112")
def test_ten_states_are_seven_in_aun() -> None:
    assert set(view.AUN_STATUS) == set(State)
    assert len(set(view.AUN_STATUS.values())) == 7
    assert aun_states("submitted") == (State.QUEUED, State.ACCEPTED)
    assert aun_states("sleeping") == ()


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"type": "text", "content": "hi"}, [parts.text("hi")]),
        ({"content": "hi"}, [parts.text("hi")]),
        ({"type": "text", "text": "hi"}, [parts.text("hi")]),
        ({"type": "data", "data": {"n": 1}}, [parts.data({"n": 1})]),
        ({"type": "parts", "parts": ["hi", {"n": 1}]}, [parts.text("hi"), parts.data({"n": 1})]),
        ({"type": "image", "url": "x"}, [parts.data({"type": "image", "url": "x"})]),
        ({"skill": "lamp.power"}, [parts.data({"skill": "lamp.power"})]),
    ],
)
def test_aun_inputs_become_parts(value: dict[str, Any], read: list[Any]) -> None:
    assert list(aun_parts(value)) == read


@pytest.mark.seed("S0-110")
def test_the_task_object_has_every_field_of_the_document() -> None:
    task = msgspec.structs.replace(
        TASK,
        state=State.COMPLETED,
        reason="state_not_confirmed",
        parent="P",
        participants=("carol",),
        aim=Aim(skill="lamp.power"),
        messages=(
            message("m1", "owner", parts.text("x"), source={"type": "text", "content": "x", "extra": 1}),
            message("m2", "assignee", parts.text("which?")),
            message("m3", "node", parts.text("this"), parts.data({"n": 1})),
        ),
        artifacts=(
            Artifact(id="a", parts=(), source={"id": "a", "type": "storage"}),
            Artifact(id="b", name="reading", parts=(parts.text("21.5"),)),
            Artifact(id="c", parts=(parts.data({"n": 1}),)),
        ),
    )
    assert aun_task(task, when) == {
        "task_id": "T",
        "status": "completed",
        "owner": "alice",
        "assignee": "bob",
        "participants": ["alice", "bob", "carol"],
        "visibility": "private",
        "parent_task_id": "P",
        "created_at": "2025-06-15T15:06:45.000Z",
        "updated_at": "2025-06-15T15:06:46.500Z",
        "reason": "state_not_confirmed",
        "skill": "lamp.power",
        "input": {"type": "text", "content": "x", "extra": 1},
        "artifacts": [
            {"id": "a", "type": "storage"},
            {"id": "b", "name": "reading", "type": "text", "content": "21.5"},
            {"id": "c", "type": "parts", "content": "", "parts": (parts.data({"n": 1}),)},
        ],
        "messages": [
            {
                "type": "text",
                "content": "which?",
                "message_id": "m2",
                "from": "bob",
                "created_at": "2025-06-15T15:06:45.000Z",
            },
            {
                "type": "parts",
                "content": "this",
                "parts": (parts.text("this"), parts.data({"n": 1})),
                "message_id": "m3",
                "from": "",
                "created_at": "2025-06-15T15:06:45.000Z",
            },
        ],
        "children": [],
    }


def test_a_bare_task_has_no_reason_no_skill_and_no_input() -> None:
    head = aun_head(TASK, when)
    assert "reason" not in head
    assert "skill" not in head
    assert head["parent_task_id"] is None
    assert aun_task(TASK, when)["input"] == {}
