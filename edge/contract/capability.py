"""One thing that a device measures or does: conventions produce it, every agent protocol renders it (design §5)."""

from __future__ import annotations

import msgspec

HIGH_RISK_KINDS = frozenset(
    {"lock", "climate", "cover", "valve", "siren", "heater", "water_heater", "alarm_control_panel"}
)
"""Kinds of `high` risk: no command without an explicit grant (design D24)."""


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """A capability of a device; its skill id is `<device slug>.<name>`.

    kind: what it is (`sensor`, `binary_sensor`, `switch`, `number`, `select`, `button`, `lock`, …).
    value_type: `number`, `text`, `boolean`, `json`, `none`.
    options: the texts it accepts, if it is a choice. verbs: what the fixed grammar accepts besides a value.
    history: `change`, `every`, `none` or `<seconds>`; traffic: `alarm`, `state`, `telemetry`.
    device_class: the convention's own word (`temperature`, `motion`), "" if none.
    """

    name: str
    title: str
    kind: str
    value_type: str = "text"
    unit: str = ""
    device_class: str = ""
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None
    options: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    readable: bool = True
    writable: bool = False
    risk: str = "low"
    repeat_safe: bool = False
    cancellable: bool = False
    safe_state: str = ""
    history: str = "change"
    traffic: str = "telemetry"
    native: bool = False
    """True: the device itself understands tasks (native convention); False: a command topic."""


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """A capability as callers see it, with its latest value. `at` is µs UTC of the value, None when unknown."""

    id: str
    device: str
    device_name: str
    aid: str
    cap: Capability
    value: object = None
    at: int | None = None
    online: bool | None = None
    default: bool = False
    """True: what is meant when the device is addressed without naming a skill (declared by it, or its only one)."""
