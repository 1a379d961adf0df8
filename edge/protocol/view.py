"""What Views read requests into, and the AUN View: a task in the words of aun-services §1.8.

`Send`, `Show` and `Stop` are the dialect-neutral door of the task service: every A2A, AIP and early-A2A request about
a task becomes one of them, and its View shows the task that comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from edge.contract.op import Params
from edge.contract.time import Stamp
from edge.protocol import parts as content
from edge.protocol.task import Artifact, Message, Part, State, Task

When = Callable[[Stamp], int]
"""µs since 1970 UTC of a stamp, as well as the node knows now."""


class Send(Params, frozen=True, kw_only=True):
    """A message: it continues `task_id`, or without one makes a new task for `to` ("" is the node itself).

    dialect and verdict: see `Task`. repeat: what makes a second request the same one ("": nothing does); it is then
    answered by the same task.
    """

    to: str = ""
    task_id: str = ""
    context_id: str = ""
    message_id: str = ""
    parts: tuple[Part, ...] = ()
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    dialect: str = ""
    verdict: bool = False
    repeat: str = ""


class Sent(msgspec.Struct, frozen=True):
    """Which task took the message."""

    task_id: str


class Show(Params, frozen=True, kw_only=True):
    """Show a task; with `wait_ms`, once it is over or it is the caller's turn, or the time is up."""

    task_id: str
    wait_ms: int = 0


class Stop(Params, frozen=True, kw_only=True):
    """Cancel a task, and wait up to `wait_ms` for the device to confirm that it stopped."""

    task_id: str
    reason: str = ""
    wait_ms: int = 0


AUN_STATUS: Mapping[State, str] = {
    State.QUEUED: "submitted",
    State.ACCEPTED: "submitted",
    State.WORKING: "working",
    State.NEED_INPUT: "input_required",
    State.NEED_AUTH: "input_required",
    State.DELIVERED: "working",
    State.COMPLETED: "completed",
    State.CANCELED: "canceled",
    State.FAILED: "failed",
    State.REJECTED: "rejected",
}
"""AUN has no word for accepted and none for delivered (agent-protocols §4.1)."""


def aun_states(status: str) -> tuple[State, ...]:
    """The states that AUN shows as `status`; empty for an unknown word."""
    return tuple(state for state, word in AUN_STATUS.items() if word == status)


def iso(us: int) -> str:
    """ISO 8601 in UTC with milliseconds."""
    at = datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{at}.{us % 1_000_000 // 1000:03d}Z"


def aun_parts(value: Mapping[str, Any]) -> tuple[Part, ...]:
    """The parts of an AUN task input: text, data, a `parts` list, or any other object as data."""
    if value.get("type", "text") == "text" and isinstance(value.get("content", value.get("text")), str):
        return (content.text(value.get("content", value.get("text"))),)
    if value.get("type") == "data" and isinstance(value.get("data"), dict):
        return (content.data(value["data"]),)
    if isinstance(value.get("parts"), list):
        return content.lenient(value["parts"])
    return (content.data(dict(value)),)


def aun_content(message: Message) -> dict[str, Any]:
    """A message as AUN writes it: what an AUN caller sent as it came, everything else as text or parts."""
    if isinstance(message.source, dict):
        return message.source
    return _content(message.parts)


def _content(said: tuple[Part, ...]) -> dict[str, Any]:
    if len(said) == 1 and said[0].get("kind") == "text":
        return {"type": "text", "content": said[0]["text"]}
    return {"type": "parts", "content": content.texts(said), "parts": said}


def aun_message(task: Task, message: Message, when: When) -> dict[str, Any]:
    """A message in the task object."""
    sender = {"owner": task.owner, "assignee": task.assignee}.get(message.by, "")
    about = {"message_id": message.id, "from": sender, "created_at": iso(when(message.at))}
    return {**aun_content(message), **about}


def aun_artifact(artifact: Artifact) -> dict[str, Any]:
    """An artifact as AUN writes it."""
    if isinstance(artifact.source, dict):
        return artifact.source
    named = {"name": artifact.name} if artifact.name else {}
    return {"id": artifact.id, **named, **_content(artifact.parts)}


def aun_task(task: Task, when: When) -> dict[str, Any]:
    """The task object (aun-services §1.8). `input` is the first message, `messages` what followed it."""
    first = aun_content(task.messages[0]) if task.messages else {}
    return {
        **aun_head(task, when),
        "input": first,
        "artifacts": [aun_artifact(artifact) for artifact in task.artifacts],
        "messages": [aun_message(task, message, when) for message in task.messages[1:]],
        "children": [],
    }


def aun_head(task: Task, when: When) -> dict[str, Any]:
    """The task object without what was said and made, as `task.list` shows it."""
    head: dict[str, Any] = {
        "task_id": task.id,
        "status": AUN_STATUS[task.state],
        "owner": task.owner,
        "assignee": task.assignee,
        "participants": sorted({task.owner, task.assignee, *task.participants}),
        "visibility": task.visibility,
        "parent_task_id": task.parent or None,
        "created_at": iso(when(task.made)),
        "updated_at": iso(when(task.changed)),
    }
    if task.reason:
        head["reason"] = task.reason
    if task.aim is not None:
        head["skill"] = task.aim.skill
    return head
