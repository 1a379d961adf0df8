"""Table of installations that want to be woken (node.db): who, on which device, by which push server."""

from __future__ import annotations

from typing import cast

import msgspec

from edge.contract.store import Unit
from edge.store.migration import statements

MIGRATIONS = [
    statements(
        "node",
        "push-001",
        """CREATE TABLE push_registration (aid TEXT NOT NULL, device TEXT NOT NULL, slot TEXT NOT NULL,
            id TEXT NOT NULL, version INTEGER NOT NULL, enabled INTEGER NOT NULL, server TEXT NOT NULL,
            token TEXT NOT NULL, provider TEXT NOT NULL, app TEXT NOT NULL,
            PRIMARY KEY (aid, device, slot)) STRICT, WITHOUT ROWID""",
    )
]

_PUT = """INSERT INTO push_registration (aid, device, slot, id, version, enabled, server, token, provider, app)
    VALUES (?, ?, ?, ?, 1, 1, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET version = version + 1, enabled = 1, server = excluded.server, token = excluded.token,
        provider = excluded.provider, app = excluded.app
    RETURNING id, version"""
_DISABLE = "UPDATE push_registration SET enabled = 0, token = '' WHERE aid = ? AND device = ? AND slot = ?"
_COUNT = "SELECT count(*) FROM push_registration WHERE aid = ? AND (device, slot) != (?, ?) AND enabled"
_OF = "SELECT aid, device, slot, server, token, provider, app FROM push_registration WHERE aid = ? AND enabled"
_AIDS = "SELECT DISTINCT aid FROM push_registration WHERE enabled"


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """One application on one device. `token` is the push server's own; nobody here reads it."""

    aid: str
    device: str
    slot: str
    server: str
    token: str
    provider: str = ""
    app: str = ""


def register(unit: Unit, one: Installation, ident: str) -> tuple[str, int]:
    """Keep an installation, its newest words; its id (`ident` if it is new) and how often it was told."""
    row = (one.aid, one.device, one.slot, ident, one.server, one.token, one.provider, one.app)
    [(kept, version)] = unit.run(_PUT, row)
    return cast(str, kept), cast(int, version)


def disable(unit: Unit, aid: str, device: str, slot: str) -> None:
    """Wake it no more; its token is forgotten."""
    unit.run(_DISABLE, (aid, device, slot))


def others(unit: Unit, aid: str, device: str, slot: str) -> int:
    """How many other installations of an AID want to be woken."""
    [(count,)] = unit.run(_COUNT, (aid, device, slot))
    return cast(int, count)


def of(unit: Unit, aid: str) -> list[Installation]:
    """The installations of an AID that want to be woken."""
    names = Installation.__struct_fields__
    return [Installation(**dict(zip(names, row, strict=True))) for row in unit.run(_OF, (aid,))]  # type: ignore[arg-type]


def aids(unit: Unit) -> set[str]:
    """Every AID with an installation that wants to be woken."""
    return {cast(str, row[0]) for row in unit.run(_AIDS)}
