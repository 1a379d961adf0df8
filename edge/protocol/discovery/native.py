"""The native convention: topics `aun/v1/<device>/…` and the JSON on them (design §5).

| topic | direction | content |
|---|---|---|
| `announce` (retained) | device → node | see below; empty = gone |
| `online` (retained, will) | device → node | `1` / `0` |
| `state/<cap>` | device → node | a JSON value (or plain text for a text), or `{"v": value, "t": ms since 1970 UTC}` |
| `task` | node → device | `{task_id, message_id, context_id, skill, cap, params, parts, metadata, deadline_ms}` |
| `task/<task_id>/event` | device → node | `{seq, state, reason?, message?, artifact?}`: `Event` |
| `task/<task_id>/cancel` | node → device | `{task_id}` |
| `task/<task_id>/input` | node → device | `{task_id, parts}` |

The announcement, every field optional but `capabilities` or `skills`:

    {"name": "Worker", "model": "W1", "manufacturer": "Acme", "version": "1.2",
     "hardware_id": "mac:aa:bb:cc:00:11:22", "default_skill": "work",
     "capabilities": [
       {"name": "temperature", "title": "Temperature", "kind": "sensor", "value_type": "number", "unit": "°C",
        "device_class": "temperature", "min": -40, "max": 85, "step": 0.1, "history": "change", "traffic": "telemetry"},
       {"name": "valve", "kind": "valve", "value_type": "text", "options": ["open", "close"], "writable": true,
        "risk": "high", "repeat_safe": true, "cancellable": true, "safe_state": "closed"}],
     "skills": [{"name": "work", "title": "Does what it is told", "cancellable": true}]}

`capabilities` are values: readable unless `"readable": false`, writable only with `"writable": true`; an order for
one arrives as a task whose `params` are `{"value": …}` or `{"verb": …}`. `skills` are jobs without a value: every task
goes to the device with all its parts. `risk` may only raise what the kind says. `value_type` is `number`, `text`,
`boolean`, `json` or `none`; `history` is `change`, `every`, `none` or seconds as text; names are `[a-z0-9_]{1,64}`.
The device repeats nothing: an event's `seq` starts at 1 and rises; a repeat is ignored.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from edge.contract.capability import HIGH_RISK_KINDS, Capability
from edge.contract.wire import JsonLimits, dumps
from edge.protocol.discovery.homeassistant import hardware
from edge.protocol.discovery.record import (
    Availability,
    Bounds,
    Component,
    DeviceInfo,
    Found,
    Presence,
    Reader,
    Refusal,
    Refused,
    json_object,
    number,
)
from edge.protocol.discovery.template import NO_SAMPLE

ROOT = "aun/v1/"
STATES = frozenset({"accepted", "working", "need_input", "delivered", "completed", "failed", "rejected", "canceled"})
_NAME = re.compile(r"[a-z0-9_]{1,64}")
_LEVEL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TASK = re.compile(r"[0-9A-Za-z_-]{1,64}")
_VALUE_TYPES = frozenset({"number", "text", "boolean", "json", "none"})
_HISTORY = re.compile(r"change|every|none|[1-9][0-9]{0,6}")
_VERBS = {"boolean": ("on", "off", "toggle"), "none": ("press",)}


class Address(msgspec.Struct, frozen=True):
    """What a native topic is about. kind: `announce`, `online`, `state` (of = capability) or `event` (of = task id)."""

    device: str
    kind: str
    of: str = ""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What a device says of a task. message: JSON part list or b""; artifact: JSON object or b""."""

    seq: int
    state: str
    reason: str = ""
    message: bytes = b""
    artifact: bytes = b""


def address(topic: str) -> Address | None:
    """What a topic below `aun/v1/` is, None for one that is not the node's to read."""
    if not topic.startswith(ROOT):
        return None
    levels = topic[len(ROOT) :].split("/")
    if not _LEVEL.fullmatch(levels[0]):
        return None
    match levels[1:]:
        case ["announce" | "online" as kind]:
            return Address(levels[0], kind)
        case ["state", name]:
            return Address(levels[0], "state", name)
        case ["task", task, "event"] if _TASK.fullmatch(task):
            return Address(levels[0], "event", task)
    return None


def task_topic(device: str, *more: str) -> str:
    """`aun/v1/<device>/task[/…]`."""
    return "/".join((f"{ROOT}{device}/task", *more))


def task_topic_of(topic: str) -> str:
    """The task topic that a topic is, or is below of; "" for any other."""
    device, task, _ = f"{topic.removeprefix(ROOT)}/".partition("/task/")
    return task_topic(device) if task and topic.startswith(ROOT) and "/" not in device else ""


def parse(device: str, payload: bytes, bounds: Bounds | None = None) -> Found:
    """What an announcement says. Raises `Refusal` when none of it can be taken."""
    bounds = bounds or Bounds()
    whole = json_object(payload, JsonLimits(bounds.octets, bounds.depth))
    caps, skills = whole.get("capabilities", []), whole.get("skills", [])
    if not isinstance(caps, list) or not isinstance(skills, list):
        raise Refusal("malformed", "capabilities and skills are lists")
    if len(caps) + len(skills) > bounds.components:
        raise Refusal("too many components", str(len(caps) + len(skills)))
    found: dict[str, Component] = {}
    refused: list[Refused] = []
    for entry, job in [(one, False) for one in caps] + [(one, True) for one in skills]:
        name = entry.get("name") if isinstance(entry, dict) else None
        try:
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise Refusal("bad id", str(name)[:64])
            if name in found:
                raise Refusal("announced twice", name)
            found[name] = _component(device, name, entry, bounds, job=job)
        except Refusal as error:
            refused.append(Refused(str(name)[:64], error.reason, error.detail))
    info = _device(device, whole, bounds)
    return Found(device=info, components=tuple(found.values()), refused=tuple(refused), native=device)


def event(payload: bytes, octets: int) -> Event:
    """A task event. Raises `Refusal`."""
    whole = json_object(payload, JsonLimits(octets, 24))
    state, seq = whole.get("state"), whole.get("seq", 0)
    if not isinstance(state, str) or state not in STATES:
        raise Refusal("bad field", "state")
    if not isinstance(seq, int) or isinstance(seq, bool) or seq < 0:
        raise Refusal("bad field", "seq")
    message, artifact, reason = whole.get("message"), whole.get("artifact"), whole.get("reason", "")
    if artifact is not None and not isinstance(artifact, dict):
        raise Refusal("bad field", "artifact")
    return Event(
        seq=seq,
        state=state,
        reason=reason[:256] if isinstance(reason, str) else "",
        message=b"" if message is None else dumps(message if isinstance(message, list) else [message]),
        artifact=b"" if artifact is None else dumps(_artifact(artifact)),
    )


def _artifact(given: dict[str, Any]) -> dict[str, Any]:
    parts = given.get("parts", [])
    name = given.get("name")
    return {
        "id": str(given.get("id") or "result")[:64],
        **({"name": name[:128]} if isinstance(name, str) else {}),
        "append": given.get("append") is True,
        "last": given.get("last", True) is not False,
        "parts": parts if isinstance(parts, list) else [parts],
    }


def _device(device: str, whole: dict[str, Any], bounds: Bounds) -> DeviceInfo:
    ids = [f"aun:{device}"]
    given = whole.get("hardware_id")
    if isinstance(given, str) and given:
        kind, colon, value = given.partition(":")
        ids.append(hardware(kind, value) if colon and kind.isalpha() else f"id:{given}"[:128])
    return DeviceInfo(
        ids=tuple(ids),
        name=_text(whole, "name", bounds),
        model=_text(whole, "model", bounds),
        maker=_text(whole, "manufacturer", bounds),
        version=_text(whole, "version", bounds),
        hints=(device,),
        default_skill=_text(whole, "default_skill", bounds),
    )


def _component(device: str, name: str, entry: dict[str, Any], bounds: Bounds, *, job: bool) -> Component:
    kind = _text(entry, "kind", bounds) or ("skill" if job else "sensor")
    value_type = _text(entry, "value_type", bounds) or ("none" if job else "text")
    history, traffic = str(entry.get("history", "change")), _text(entry, "traffic", bounds) or "telemetry"
    if value_type not in _VALUE_TYPES or not _HISTORY.fullmatch(history):
        raise Refusal("bad field", "value_type" if value_type not in _VALUE_TYPES else "history")
    if traffic not in ("alarm", "state", "telemetry"):
        raise Refusal("bad field", "traffic")
    options = entry.get("options", [])
    if not isinstance(options, list) or not all(isinstance(one, str) and len(one) <= 128 for one in options):
        raise Refusal("bad field", "options")
    if len(options) > bounds.options:
        raise Refusal("too many options", name)
    writable = job or entry.get("writable") is True
    readable = not job and value_type != "none" and entry.get("readable") is not False
    high = kind in HIGH_RISK_KINDS or entry.get("risk") == "high"
    cap = Capability(
        name=name,
        title=_text(entry, "title", bounds) or name.replace("_", " "),
        kind=kind,
        value_type=value_type,
        unit=_text(entry, "unit", bounds),
        device_class=_text(entry, "device_class", bounds),
        minimum=_number(entry, "min"),
        maximum=_number(entry, "max"),
        step=_number(entry, "step"),
        options=tuple(options),
        verbs=tuple(options) if writable and options else _VERBS.get(value_type, ()) if writable and not job else (),
        readable=readable,
        writable=writable,
        risk="high" if high and writable else "low",
        repeat_safe=entry.get("repeat_safe") is True,
        cancellable=entry.get("cancellable") is True,
        safe_state=_text(entry, "safe_state", bounds),
        history=history,
        traffic=traffic,
        native=True,
    )
    reader = Reader(topic=f"{ROOT}{device}/state/{name}", value_type=value_type, native=True) if readable else None
    return Component(uid=name, cap=cap, reader=reader, availability=presence(device))


def presence(device: str) -> Availability:
    """The availability of a native device."""
    return Availability((Presence(f"{ROOT}{device}/online", "1", "0"),))


def _text(entry: dict[str, Any], key: str, bounds: Bounds) -> str:
    value = entry.get(key)
    return value[: bounds.text] if isinstance(value, str) else ""


def _number(entry: dict[str, Any], key: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    found = number(value)
    if found is NO_SAMPLE:
        raise Refusal("bad field", key)
    return found
