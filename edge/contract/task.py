"""Ports between the task engine and the world (design D7): what is ordered, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from edge.contract.capability import Skill


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A task on its way to a capability. JSON texts are what the caller sent: the device sees all parts and metadata.

    `verb` is `read`, `set` (then `value` is the command in the capability's own terms, JSON) or another word of
    the grammar (`on`, `off`, `toggle`, `press`, `open`, `close`, `stop`, …; then `value` is b""); "" means that
    the caller named a skill of a native device and its params and parts say the rest. `deadline_us` is wall time
    or 0.
    """

    task_id: str
    skill: str
    params: bytes = b"{}"
    verb: str = ""
    value: bytes = b""
    message_id: str = ""
    context_id: str = ""
    parts: bytes = b"[]"
    metadata: bytes = b"{}"
    deadline_us: int = 0
    again: bool = False
    """True when it is sent a second time after a crash (native devices and repeat-safe capabilities only)."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the world says about a task.

    state: `accepted working need_input delivered completed failed rejected canceled`. `seq` is the device's own
    number (0: none); a repeat is ignored. `message` is a JSON part list, `artifact` JSON
    `{id, name?, append, last, parts}`. `device` is the slug of who reported ("": the node itself): a report by
    another device than the task's is refused.
    """

    task_id: str
    state: str
    seq: int = 0
    reason: str = ""
    message: bytes = b""
    artifact: bytes = b""
    device: str = ""


class DeviceGate(Protocol):
    """The only way to act on the world. Implemented by `devices`, handed down to the task service."""

    def skills(self) -> list[Skill]:
        """Every skill there is now, by id, with latest values."""
        ...

    def skill(self, skill_id: str) -> Skill | None:
        """One skill."""
        ...

    def check(self, order: Order) -> None:
        """Whether the order makes sense for the capability. Raises `NotFound`, `InvalidParams`."""
        ...

    def deliver(self, order: Order) -> None:
        """Publish the command or task; after the commit that records the intent. Reports come through the sink."""
        ...

    def cancel(self, order: Order) -> None:
        """Ask the device to stop."""
        ...

    def answer(self, task_id: str, skill: str, parts: bytes) -> None:
        """Hand the caller's input to a device that asked."""
        ...


class Grants(Protocol):
    """Who may act on what (design D24). Implemented by `devices`, handed down to the task service."""

    def may_act(self, aid: str, skill: Skill) -> bool:
        """Whether `aid` may command `skill`: always unless its risk is high, then only with an explicit grant."""
        ...


class TaskSink(Protocol):
    """Where devices report. Implemented by the task service, handed down to `devices`."""

    def report(self, report: Report, done: Callable[[BaseException | None], None]) -> None:
        """Apply a report in one unit; `done` runs in the loop when it is on disk."""
        ...
