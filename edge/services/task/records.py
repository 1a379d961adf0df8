"""Params and results of the task operations (aun-services §1.8)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from edge.contract.op import Params

Visibility = Literal["private", "shared", "public"]
EVENTS = ("updated", "completed", "failed", "artifact", "delegated")


class Create(Params, frozen=True, kw_only=True):
    """A task for `to`: an agent, a device, or a service of the node. `idempotency_key` makes a repeat the same."""

    to: str
    input: dict[str, Any]
    visibility: Visibility = "private"
    context_id: str = ""
    idempotency_key: str = ""


class Created(msgspec.Struct, frozen=True):
    """The new task."""

    task_id: str
    status: str
    owner: str
    assignee: str
    created_at: str


class Named(Params, frozen=True, kw_only=True):
    """Which task."""

    task_id: str


class Reasoned(Params, frozen=True, kw_only=True):
    """Which task, and why."""

    task_id: str
    reason: str = ""


class Input(Params, frozen=True, kw_only=True):
    """What is said to a task."""

    task_id: str
    input: dict[str, Any]
    idempotency_key: str = ""


class Complete(Params, frozen=True, kw_only=True):
    """What came out."""

    task_id: str
    artifacts: tuple[dict[str, Any], ...] = ()


class Moved(msgspec.Struct, frozen=True):
    """Where the task is now."""

    task_id: str
    status: str


class List(Params, frozen=True, kw_only=True):
    """One page of the caller's tasks, newest first. `cursor` is the `next_cursor` of the page before."""

    status: str | None = None
    limit: int = 20
    cursor: str | None = None


class Listed(msgspec.Struct, frozen=True):
    """A page; `next_cursor` is null at the end."""

    items: list[dict[str, Any]]
    next_cursor: str | None
    has_more: bool


class Subscribe(Params, frozen=True, kw_only=True):
    """Which tasks to hear of. `events` names kinds; whoever wants some hears all."""

    task_ids: list[str]
    events: tuple[str, ...] = ()


class Subscribed(msgspec.Struct, frozen=True):
    """The tasks that are heard from now on."""

    subscribed: list[str]


class SkillCall(Params, frozen=True, kw_only=True):
    """Read a skill (`{"value": "read"}` or nothing), or act on it."""

    skill: str
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    timeout_s: int = 30


class SkillAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the call stands. `state` as in the engine; `value` is the first value that came out. As long as it has not
    ended: `kept` when it waits for a device that is offline, `until` when it ends by itself, µs since 1970 UTC."""

    task_id: str
    skill: str
    state: str
    text: str = ""
    value: Any = None
    reason: str = ""
    artifacts: list[dict[str, Any]] = []
    kept: bool = False
    until: int | None = None
