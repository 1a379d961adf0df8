"""Devices, their capabilities, who announced them and who may command them (node.db).

Nothing here is ever deleted but grants and hardware ids: what is gone is retired, so that a slug, an AID and the
history of a capability keep their meaning. A forgotten device is a tombstone; the next one of its name is a new
generation with capabilities of its own.
"""

from __future__ import annotations

import hashlib
from typing import cast

import msgspec

from edge.contract.event import Event
from edge.contract.store import Unit
from edge.contract.time import Stamp
from edge.contract.wire import dumps
from edge.protocol.discovery.record import Component, Refused
from edge.store.migration import statements

LOG = "device"

PRESENT, RETIRED, FORGOTTEN = 0, 1, 2
"""States of a device or capability: announced; withdrawn by its publisher; ended by the owner."""

MIGRATIONS = [
    statements(
        "node",
        "devices-001",
        """CREATE TABLE device (slug TEXT PRIMARY KEY, aid TEXT NOT NULL UNIQUE, generation INTEGER NOT NULL,
            state INTEGER NOT NULL, publisher TEXT NOT NULL, name TEXT NOT NULL, model TEXT NOT NULL,
            maker TEXT NOT NULL, version TEXT NOT NULL, native TEXT NOT NULL, default_skill TEXT NOT NULL,
            boot INTEGER NOT NULL, mono_us INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
        """CREATE TABLE device_hardware (id TEXT PRIMARY KEY, slug TEXT NOT NULL) STRICT, WITHOUT ROWID""",
        """CREATE TABLE capability (id INTEGER PRIMARY KEY, slug TEXT NOT NULL, name TEXT NOT NULL,
            state INTEGER NOT NULL, source TEXT NOT NULL, component BLOB NOT NULL, UNIQUE (slug, name)) STRICT""",
        """CREATE TABLE discovery (topic TEXT PRIMARY KEY, publisher TEXT NOT NULL, digest BLOB NOT NULL,
            slug TEXT NOT NULL, refused BLOB NOT NULL) STRICT, WITHOUT ROWID""",
        """CREATE TABLE capability_grant (skill TEXT NOT NULL, aid TEXT NOT NULL, boot INTEGER NOT NULL,
            mono_us INTEGER NOT NULL, PRIMARY KEY (skill, aid)) STRICT, WITHOUT ROWID""",
    )
]

_PUT_DEVICE = """INSERT INTO device (slug, aid, generation, state, publisher, name, model, maker, version, native,
    default_skill, boot, mono_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (slug) DO UPDATE SET
    generation = excluded.generation, state = excluded.state, publisher = excluded.publisher, name = excluded.name,
    model = excluded.model, maker = excluded.maker, version = excluded.version, native = excluded.native,
    default_skill = excluded.default_skill"""
_PUT_HARDWARE = "INSERT INTO device_hardware (id, slug) VALUES (?, ?) ON CONFLICT DO UPDATE SET slug = excluded.slug"
_PUT_CAPABILITY = """INSERT INTO capability (id, slug, name, state, source, component) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (slug, name) DO UPDATE SET id = excluded.id, state = excluded.state, source = excluded.source,
    component = excluded.component"""
_PUT_SOURCE = """INSERT INTO discovery (topic, publisher, digest, slug, refused) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET publisher = excluded.publisher, digest = excluded.digest, slug = excluded.slug,
    refused = excluded.refused"""
_DEVICES = """SELECT slug, aid, generation, state, publisher, name, model, maker, version, native, default_skill,
    boot, mono_us FROM device ORDER BY slug"""


class DeviceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A device. publisher: the AID that announced it first; native: its level in `aun/v1/<native>/…` or ""."""

    slug: str
    aid: str
    generation: int = 0
    state: int = PRESENT
    publisher: str = ""
    name: str = ""
    model: str = ""
    maker: str = ""
    version: str = ""
    native: str = ""
    default_skill: str = ""
    first: Stamp = Stamp(0, 0)


class CapabilityRow(msgspec.Struct, frozen=True, kw_only=True):
    """A capability with its topics. `id` is what readings carry (`capability_id`); `source` the topic it came by."""

    id: int
    slug: str
    name: str
    state: int
    source: str
    component: Component


class SourceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A discovery topic: the digest of what was last taken from it, for whom, and what was not taken."""

    topic: str
    publisher: str
    digest: bytes
    slug: str
    refused: tuple[Refused, ...] = ()


class Change(msgspec.Struct, kw_only=True):
    """What one discovery message changes, in one unit. `gone` are discovery topics; `events` (slug, kind)."""

    devices: list[DeviceRow] = []
    hardware: list[tuple[str, str]] = []
    capabilities: list[CapabilityRow] = []
    sources: list[SourceRow] = []
    gone: list[str] = []
    events: list[tuple[str, str]] = []


class Known(msgspec.Struct, kw_only=True):
    """Everything there is, for the start. `broken` are sources of which a row cannot be read any more."""

    devices: list[DeviceRow]
    hardware: list[tuple[str, str]]
    capabilities: list[CapabilityRow]
    sources: list[SourceRow]
    broken: set[str] = set()


def capability_id(slug: str, generation: int, name: str) -> int:
    """48 bits that stand for one capability in the readings, the same whenever they are made."""
    digest = hashlib.blake2b(f"{slug}.{name}#{generation}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big")


def save(unit: Unit, change: Change) -> None:
    """Write a change and tell of it once it is on disk."""
    for device in change.devices:
        unit.run(_PUT_DEVICE, _device_row(device))
    for pair in change.hardware:
        unit.run(_PUT_HARDWARE, pair)
    for cap in change.capabilities:
        row = (cap.id, cap.slug, cap.name, cap.state, cap.source, dumps(cap.component))
        unit.run(_PUT_CAPABILITY, row)
    for source in change.sources:
        unit.run(_PUT_SOURCE, (source.topic, source.publisher, source.digest, source.slug, dumps(list(source.refused))))
    for topic in change.gone:
        unit.run("DELETE FROM discovery WHERE topic = ?", (topic,))
    for slug, kind in change.events:
        tell(unit, slug, kind)


def tell(unit: Unit, slug: str, kind: str) -> None:
    """Number an event of a device and emit it."""
    unit.emit(Event(LOG, slug, unit.log(LOG).number(slug), kind, dumps({"device": slug})))


def known(unit: Unit) -> Known:
    """Read everything. A row that this release cannot read is left out; its announcement brings it back."""
    made = Known(devices=[_device(row) for row in unit.run(_DEVICES)], hardware=[], capabilities=[], sources=[])
    slugs = {device.slug for device in made.devices}
    hardware = cast("list[tuple[str, str]]", unit.run("SELECT id, slug FROM device_hardware"))
    made.hardware = [pair for pair in hardware if pair[1] in slugs]
    for row in unit.run("SELECT id, slug, name, state, source, component FROM capability ORDER BY slug, name"):
        try:
            if row[1] in slugs:
                made.capabilities.append(_capability(row))
        except (msgspec.DecodeError, UnicodeError):
            made.broken.add(cast(str, row[4]))
    for row in unit.run("SELECT topic, publisher, digest, slug, refused FROM discovery"):
        try:
            made.sources.append(_source(row))
        except (msgspec.DecodeError, UnicodeError):
            made.broken.add(cast(str, row[0]))
    return made


def has_aid(unit: Unit, aid: str) -> bool:
    """Whether a device of this node has that AID and is not forgotten."""
    return bool(unit.run("SELECT 1 FROM device WHERE aid = ? AND state != ? LIMIT 1", (aid, FORGOTTEN)))


def forget(unit: Unit, slug: str) -> None:
    """End a device: a tombstone stays; its capabilities, hardware ids, sources and grants are gone."""
    unit.run("UPDATE device SET state = ? WHERE slug = ?", (FORGOTTEN, slug))
    unit.run("DELETE FROM device_hardware WHERE slug = ?", (slug,))
    unit.run("DELETE FROM capability WHERE slug = ?", (slug,))
    unit.run("DELETE FROM discovery WHERE slug = ?", (slug,))
    unit.run("DELETE FROM capability_grant WHERE skill >= ? AND skill < ?", (f"{slug}.", f"{slug}/"))
    tell(unit, slug, "device.removed")


def grant(unit: Unit, skill: str, aid: str) -> None:
    """Let an AID command a skill of high risk."""
    unit.run("INSERT OR IGNORE INTO capability_grant VALUES (?, ?, ?, ?)", (skill, aid, unit.at.boot, unit.at.mono_us))


def revoke(unit: Unit, skill: str, aid: str) -> bool:
    """Take a grant back; whether there was one."""
    gone = unit.run("DELETE FROM capability_grant WHERE skill = ? AND aid = ? RETURNING 1", (skill, aid))
    return bool(gone)


def revoke_agent(unit: Unit, aid: str) -> bool:
    """Take every grant of an AID back; whether there was one."""
    return bool(unit.run("DELETE FROM capability_grant WHERE aid = ? RETURNING 1", (aid,)))


def grants(unit: Unit) -> list[tuple[str, str]]:
    """Every (skill, AID)."""
    return cast("list[tuple[str, str]]", unit.run("SELECT skill, aid FROM capability_grant"))


def _device_row(device: DeviceRow) -> tuple[object, ...]:
    *fields, first = msgspec.structs.astuple(device)
    return (*fields, first.boot, first.mono_us)


def _device(row: tuple[object, ...]) -> DeviceRow:
    *fields, boot, mono_us = row
    names = DeviceRow.__struct_fields__[:-1]
    return DeviceRow(**dict(zip(names, fields, strict=True)), first=Stamp(cast(int, boot), cast(int, mono_us)))  # type: ignore[arg-type]


def _capability(row: tuple[object, ...]) -> CapabilityRow:
    number, slug, name, state, source, component = row
    return CapabilityRow(
        id=cast(int, number),
        slug=cast(str, slug),
        name=cast(str, name),
        state=cast(int, state),
        source=cast(str, source),
        component=msgspec.json.decode(cast(bytes, component), type=Component),
    )


def _source(row: tuple[object, ...]) -> SourceRow:
    topic, publisher, digest, slug, refused = row
    return SourceRow(
        topic=cast(str, topic),
        publisher=cast(str, publisher),
        digest=cast(bytes, digest),
        slug=cast(str, slug),
        refused=msgspec.json.decode(cast(bytes, refused), type=tuple[Refused, ...]),
    )
