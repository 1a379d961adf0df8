"""What the operations of the devices area take and answer."""

from __future__ import annotations

from typing import Any

import msgspec

from edge.contract.op import Params


class AddDevice(Params, frozen=True, kw_only=True):
    """A device to let in. admin: a bridge or operator that may use every topic; topics: further filters."""

    name: str
    admin: bool = False
    topics: tuple[str, ...] = ()


class Added(msgspec.Struct):
    """How the device connects. The password is told this once."""

    name: str
    aid: str
    username: str
    password: str
    mqtt: str


class DeviceNamed(Params, frozen=True, kw_only=True):
    """A device by slug or AID."""

    name: str


class SkillAsked(Params, frozen=True, kw_only=True):
    """Which skills: of one device, or all."""

    device: str = ""


class GrantAsked(Params, frozen=True, kw_only=True):
    """A skill id, and an agent by name or AID."""

    cap: str
    agent: str


class HistoryAsked(Params, frozen=True, kw_only=True):
    """Readings of a skill after a number, oldest first."""

    skill: str
    after: int = 0
    limit: int = 100


class PublishAsked(Params, frozen=True, kw_only=True):
    """A message: payload as text, or as base64."""

    topic: str
    payload: str = ""
    payload_b64: str = ""
    qos: int = 0
    retain: bool = False


class SubscribeAsked(Params, frozen=True, kw_only=True):
    """Topic filters to listen to; with `retained` what is kept of them comes first."""

    filters: tuple[str, ...]
    retained: bool = True


class DeviceLine(msgspec.Struct, kw_only=True):
    """A device in the list. `name` is its slug, `title` its name for people. `online` is its own word since the node
    started, null as long as there is none; `last_seen`, over restarts too, is µs since 1970 UTC, null for never."""

    name: str
    title: str
    aid: str
    online: bool | None
    state: str
    model: str
    skills: int
    credentials: bool
    admin: bool
    last_seen: int | None


class RefusedLine(msgspec.Struct):
    """Something that was announced and not taken."""

    topic: str
    component: str
    reason: str
    detail: str


class DeviceDetail(msgspec.Struct, kw_only=True):
    """One device with everything about it but its password; the same words as in the list."""

    name: str
    title: str
    aid: str
    online: bool | None
    state: str
    model: str
    maker: str
    version: str
    publisher: str
    hardware: list[str]
    default_skill: str
    publish: list[str]
    subscribe: list[str]
    skills: list[SkillLine]
    retired: list[str]
    unsupported: dict[str, list[str]]
    refused: list[RefusedLine]
    counters: dict[str, dict[str, int]]
    last_seen: int | None


class SkillLine(msgspec.Struct, kw_only=True):
    """A skill in the list. `at` is µs since 1970 UTC, null when nobody knows; `online` null when nobody said."""

    id: str
    name: str
    device: str
    aid: str
    kind: str
    unit: str
    value: Any
    at: int | None
    risk: str
    online: bool | None
    readable: bool
    writable: bool
    verbs: list[str]
    options: list[str]


class CapLine(msgspec.Struct, kw_only=True):
    """A capability with its risk and who was granted to command it."""

    id: str
    kind: str
    value_type: str
    unit: str
    risk: str
    readable: bool
    writable: bool
    minimum: float | None
    maximum: float | None
    options: list[str]
    native: bool
    granted: list[str]


class Point(msgspec.Struct):
    """A reading. `at` is µs since 1970 UTC, null when nobody knows."""

    seq: int
    value: Any
    at: int | None


class History(msgspec.Struct):
    """Readings; `next` is the number to go on from, `more` whether there may be further ones."""

    skill: str
    readings: list[Point]
    next: int
    more: bool


class Done(msgspec.Struct):
    """It is done."""

    ok: bool = True
