"""MQTT users: a name, the SHA-256 of a random token, and the topics it may use (node.db).

Tokens have 128 bits and more, so one SHA-256 is enough (spec/mqtt.md §5); the token itself is shown once, never kept.
"""

from __future__ import annotations

import hashlib
import logging
from typing import cast

import msgspec

from edge.contract.store import Unit
from edge.contract.wire import dumps
from edge.store.migration import statements

log = logging.getLogger(__name__)

MIGRATIONS = [
    statements(
        "node",
        "credentials-001",
        """CREATE TABLE mqtt_user (user TEXT PRIMARY KEY, digest BLOB NOT NULL, aid TEXT NOT NULL,
            admin INTEGER NOT NULL, publish BLOB NOT NULL, subscribe BLOB NOT NULL, boot INTEGER NOT NULL,
            mono_us INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    )
]

_COLUMNS = "user, digest, aid, admin, publish, subscribe"


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """One MQTT user. `user` is the slug of its device; the filters bound what it may publish and subscribe."""

    user: str
    digest: bytes
    aid: str
    admin: bool = False
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()


def digest(password: bytes) -> bytes:
    """What is kept of a password."""
    return hashlib.sha256(password).digest()


def own_topics(user: str, prefix: str = "homeassistant") -> tuple[str, ...]:
    """The topics of a device by default (design §5). `prefix` is that of Home Assistant discovery."""
    return (
        f"aun/v1/{user}/#",
        f"{user}/#",
        f"{prefix}/+/{user}/#",
        f"{prefix}/device/{user}/#",
        f"tele/{user}/#",
        f"stat/{user}/#",
        f"cmnd/{user}/#",
    )


def add(unit: Unit, one: Credential) -> bool:
    """Keep a credential; False when the user is there already."""
    row = (one.user, one.digest, one.aid, int(one.admin), dumps(one.publish), dumps(one.subscribe))
    made = unit.run(
        f"INSERT INTO mqtt_user ({_COLUMNS}, boot, mono_us) "  # noqa: S608
        "VALUES (?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING RETURNING 1",
        (*row, unit.at.boot, unit.at.mono_us),
    )
    return bool(made)


def renew(unit: Unit, one: Credential) -> bool:
    """Put another password in the place of a user's; False when there is no such user."""
    return bool(unit.run("UPDATE mqtt_user SET digest = ? WHERE user = ? RETURNING 1", (one.digest, one.user)))


def of(unit: Unit, user: str) -> Credential | None:
    """A user's credential."""
    found = unit.run(f"SELECT {_COLUMNS} FROM mqtt_user WHERE user = ?", (user,))  # noqa: S608
    return _credential(found[0]) if found else None


def remove(unit: Unit, user: str) -> bool:
    """Drop a credential; whether there was one."""
    return bool(unit.run("DELETE FROM mqtt_user WHERE user = ? RETURNING 1", (user,)))


def all_users(unit: Unit) -> list[Credential]:
    """Every credential; one whose row is damaged lets nobody in, and the log says so."""
    found = []
    for row in unit.run(f"SELECT {_COLUMNS} FROM mqtt_user ORDER BY user"):  # noqa: S608
        try:
            found.append(_credential(row))
        except (msgspec.DecodeError, UnicodeError):
            log.error("the MQTT user %s cannot be read any more; next: aun-edge device forget, then device add", row[0])
    return found


def _credential(row: tuple[object, ...]) -> Credential:
    user, kept, aid, admin, publish, subscribe = row
    return Credential(
        user=cast(str, user),
        digest=cast(bytes, kept),
        aid=cast(str, aid),
        admin=bool(admin),
        publish=msgspec.json.decode(cast(bytes, publish), type=tuple[str, ...]),
        subscribe=msgspec.json.decode(cast(bytes, subscribe), type=tuple[str, ...]),
    )
