"""MQTT users who chose their password: a name, a salted scrypt hash, and the topics they may use (node.db).

A random token needs no slow hash, a password that a person can remember does; so these are no rows of `mqtt_user`.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from typing import cast

import msgspec

from edge.contract.store import Unit
from edge.contract.wire import dumps
from edge.store.migration import statements

log = logging.getLogger(__name__)

MIGRATIONS = [
    statements(
        "node",
        "persons-001",
        """CREATE TABLE mqtt_person (user TEXT PRIMARY KEY, digest BLOB NOT NULL, salt BLOB NOT NULL,
            cost INTEGER NOT NULL, admin INTEGER NOT NULL, publish BLOB NOT NULL, subscribe BLOB NOT NULL,
            boot INTEGER NOT NULL, mono_us INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    )
]

COST = 14
"""log2 of scrypt's N; with r = 8 one check takes 16 MiB, about 50 ms here and some tenths of a second on a Pi."""
SALT_OCTETS = 16

_COLUMNS = "user, digest, salt, cost, admin, publish, subscribe"


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """One user. The filters bound what may be published and subscribed."""

    user: str
    digest: bytes = b""
    salt: bytes = b""
    cost: int = COST
    admin: bool = False
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()

    @property
    def aid(self) -> str:
        """Who they are where an address is kept; no AID can look like this."""
        return f"mqtt:{self.user}"


def slow_digest(password: bytes, salt: bytes, cost: int) -> bytes:
    """The scrypt hash (RFC 7914) of a password. Slow: never in the loop."""
    return hashlib.scrypt(password, salt=salt, n=1 << cost, r=8, p=1, maxmem=64 << 20, dklen=32)


def with_password(one: Person, password: bytes) -> Person:
    """The same user with this password. Slow: never in the loop."""
    salt = secrets.token_bytes(SALT_OCTETS)
    return msgspec.structs.replace(one, digest=slow_digest(password, salt, COST), salt=salt, cost=COST)


def add(unit: Unit, one: Person) -> bool:
    """Keep a user; False when the name is taken."""
    if unit.run("SELECT 1 FROM mqtt_person WHERE user = ?", (one.user,)):
        return False
    put(unit, one)
    return True


def put(unit: Unit, one: Person) -> None:
    """Keep a user as it is now."""
    row = (one.user, one.digest, one.salt, one.cost, int(one.admin), dumps(one.publish), dumps(one.subscribe))
    unit.run(
        f"INSERT OR REPLACE INTO mqtt_person ({_COLUMNS}, boot, mono_us) VALUES (?,?,?,?,?,?,?,?,?)",  # noqa: S608
        (*row, unit.at.boot, unit.at.mono_us),
    )


def remove(unit: Unit, user: str) -> bool:
    """Drop a user; whether there was one."""
    return bool(unit.run("DELETE FROM mqtt_person WHERE user = ? RETURNING 1", (user,)))


def of(unit: Unit, user: str) -> Person | None:
    """A user."""
    found = unit.run(f"SELECT {_COLUMNS} FROM mqtt_person WHERE user = ?", (user,))  # noqa: S608
    return _person(found[0]) if found else None


def all_users(unit: Unit) -> list[Person]:
    """Every user; one whose row is damaged is not let in, and the log says so."""
    found = []
    for row in unit.run(f"SELECT {_COLUMNS} FROM mqtt_person ORDER BY user"):  # noqa: S608
        try:
            found.append(_person(row))
        except (msgspec.DecodeError, UnicodeError):
            log.error("the MQTT user %s cannot be read any more; next: aun-edge mqtt user remove, then add", row[0])
    return found


def _person(row: tuple[object, ...]) -> Person:
    user, digest, salt, cost, admin, publish, subscribe = row
    return Person(
        user=cast(str, user),
        digest=cast(bytes, digest),
        salt=cast(bytes, salt),
        cost=cast(int, cost),
        admin=bool(admin),
        publish=msgspec.json.decode(cast(bytes, publish), type=tuple[str, ...]),
        subscribe=msgspec.json.decode(cast(bytes, subscribe), type=tuple[str, ...]),
    )
