"""What devices say about tasks, from the wire of the gate to steps of the engine."""

from __future__ import annotations

from typing import Any

from edge.contract.errors import InvalidParams
from edge.contract.task import Report
from edge.contract.time import Stamp
from edge.contract.wire import JsonLimits, loads
from edge.protocol import parts
from edge.protocol.task import Artifact, Message, Reported, State

REPORTED = frozenset(State) - {State.QUEUED}
LIMITS = JsonLimits(octets=1_048_576)


def step_of(report: Report, at: Stamp) -> Reported:
    """The step of a report. Raises `InvalidParams` for a state that no device may claim, `Malformed`, `TooLarge`."""
    try:
        state = State(report.state)
    except ValueError:
        raise InvalidParams(f"no such task state: {report.state[:40]!r}") from None
    if state not in REPORTED:
        raise InvalidParams(f"a device cannot report {state}")
    artifact, append = _artifact(report.artifact)
    return Reported(
        state=state,
        seq=report.seq,
        reason=report.reason[:1000],
        message=_message(report, at),
        artifact=artifact,
        append=append,
    )


def _message(report: Report, at: Stamp) -> Message | None:
    if not report.message:
        return None
    said = parts.lenient(loads(report.message, LIMITS))
    if not said:
        return None
    return Message(id=f"{report.task_id}-{report.seq or at.mono_us}", by="assignee", at=at, parts=said)


def _artifact(raw: bytes) -> tuple[Artifact | None, bool]:
    """An artifact and whether it goes behind what is there already. Without an id it is the first one."""
    if not raw:
        return None, False
    value: Any = loads(raw, LIMITS)
    if not isinstance(value, dict):
        return Artifact(id="1", parts=parts.lenient(value)), False
    said = parts.lenient(value.get("parts", []))
    name = value.get("name")
    found = Artifact(
        id=str(value.get("id", "1"))[:128],
        parts=said,
        name=name[:256] if isinstance(name, str) else "",
        closed=value.get("last") is not False,
    )
    return found, value.get("append") is True
