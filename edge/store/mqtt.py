"""Tables of the MQTT engine in hot.db: retained messages, sessions, subscriptions, messages on their way to and from
durable sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from edge.contract.errors import EdgeError
from edge.contract.gap import Gap
from edge.contract.principal import Principal
from edge.contract.store import Unit
from edge.contract.time import Stamp
from edge.contract.wire import decode
from edge.protocol.mqtt import properties
from edge.protocol.mqtt.codec import Will
from edge.protocol.mqtt.journal import Changes
from edge.protocol.mqtt.message import Message
from edge.protocol.mqtt.session import Outgoing, Session, Subscription
from edge.store.migration import Migration
from edge.store.unreadable import REASON

if TYPE_CHECKING:
    import sqlite_utils

_MESSAGE = (
    "topic TEXT NOT NULL, payload BLOB NOT NULL, qos INTEGER NOT NULL, who TEXT NOT NULL, extra BLOB NOT NULL,"
    " boot INTEGER NOT NULL, mono_us INTEGER NOT NULL, expires_us INTEGER"
)


def _tables(db: sqlite_utils.Database) -> None:
    db.conn.execute(f"CREATE TABLE mqtt_retained ({_MESSAGE}, PRIMARY KEY (topic)) STRICT")
    db.conn.execute(
        "CREATE TABLE mqtt_session (number INTEGER PRIMARY KEY, user TEXT NOT NULL, client_id TEXT NOT NULL,"
        " who TEXT NOT NULL, expiry_s INTEGER NOT NULL, boot INTEGER NOT NULL, since_us INTEGER NOT NULL,"
        " will TEXT, will_delay_s INTEGER NOT NULL) STRICT"
    )
    db.conn.execute(
        "CREATE TABLE mqtt_subscription (session INTEGER NOT NULL, wanted TEXT NOT NULL, filter TEXT NOT NULL,"
        " share TEXT NOT NULL, qos INTEGER NOT NULL, ident INTEGER NOT NULL, no_local INTEGER NOT NULL,"
        " as_published INTEGER NOT NULL, handling INTEGER NOT NULL, PRIMARY KEY (session, wanted)) STRICT"
    )
    db.conn.execute(
        f"CREATE TABLE mqtt_outgoing ({_MESSAGE}, number INTEGER PRIMARY KEY, session INTEGER NOT NULL,"
        " packet_id INTEGER NOT NULL, granted INTEGER NOT NULL, retain INTEGER NOT NULL, state INTEGER NOT NULL,"
        " ids TEXT NOT NULL) STRICT"
    )
    db.conn.execute(
        f"CREATE TABLE mqtt_incoming ({_MESSAGE}, session INTEGER NOT NULL, packet_id INTEGER NOT NULL,"
        " retain INTEGER NOT NULL, routed INTEGER NOT NULL, PRIMARY KEY (session, packet_id)) STRICT"
    )


MIGRATIONS = [Migration("hot", "mqtt-001", _tables)]

LOG = "mqtt"
"""The name under which the ledger counts messages; its keys are the traffic classes."""

Row = tuple[Any, ...]

_MESSAGE_COLUMNS = ("topic", "payload", "qos", "who", "extra", "boot", "mono_us", "expires_us")
_COLUMNS = {
    "mqtt_retained": _MESSAGE_COLUMNS,
    "mqtt_session": (
        "number",
        "user",
        "client_id",
        "who",
        "expiry_s",
        "boot",
        "since_us",
        "will",
        "will_delay_s",
    ),
    "mqtt_subscription": (
        "session",
        "wanted",
        "filter",
        "share",
        "qos",
        "ident",
        "no_local",
        "as_published",
        "handling",
    ),
    "mqtt_outgoing": (
        *_MESSAGE_COLUMNS,
        "number",
        "session",
        "packet_id",
        "granted",
        "retain",
        "state",
        "ids",
    ),
    "mqtt_incoming": (*_MESSAGE_COLUMNS, "session", "packet_id", "retain", "routed"),
}
_KEYS = {
    "mqtt_retained": ("topic",),
    "mqtt_session": ("number",),
    "mqtt_subscription": ("session", "wanted"),
    "mqtt_outgoing": ("number",),
    "mqtt_incoming": ("session", "packet_id"),
}
REMEMBERED = 1_000
"""Principals whose text is kept."""
PAGE_ROWS = 500
"""Rows that one read of the start takes."""
_ROWS_AT_ONCE = 400
"""Rows of one statement: below SQLite's 32 766 parameters with every table."""


def commit(changes: Changes, at: Stamp, texts: Texts) -> Callable[[Unit], None]:
    """A unit of work that writes changes as they are now, losses to the ledger."""
    boot = at.boot
    put: dict[str, list[Row]] = {
        "mqtt_session": [_session_row(one, boot, texts) for one in changes.sessions.values() if one is not None],
        "mqtt_subscription": [
            _subscription_row(key[0], key[1], one) for key, one in changes.subscriptions.items() if one is not None
        ],
        "mqtt_outgoing": [
            _outgoing_row(key[0], out, texts)
            for key, out in changes.outgoing.items()
            if out is not None and not out.written
        ],
        "mqtt_incoming": [
            (*_message_row(one, texts), *key, int(one.publish.retain), int(one.routed))
            for key, one in changes.incoming.items()
            if isinstance(one, Message)
        ],
        "mqtt_retained": [_message_row(one, texts) for one in changes.retained.values() if one is not None],
    }
    gone: dict[str, list[Row]] = {
        "mqtt_session": [(number,) for number, one in changes.sessions.items() if one is None],
        "mqtt_subscription": [key for key, one in changes.subscriptions.items() if one is None],
        "mqtt_outgoing": [(number,) for (_, number), out in changes.outgoing.items() if out is None],
        "mqtt_incoming": [key for key, one in changes.incoming.items() if one is False],
        "mqtt_retained": [(topic,) for topic, one in changes.retained.items() if one is None],
    }

    moved = [
        (out.number, out.packet_id, out.state) for out in changes.outgoing.values() if out is not None and out.written
    ]

    losses = list(changes.losses.items())

    def work(unit: Unit) -> None:
        for table, rows in put.items():
            _put(unit, table, rows)
        _move(unit, moved)
        for table, rows in gone.items():
            _drop(unit, table, rows)
        for (klass, reason, user), count in losses:
            unit.lose(Gap(LOG, klass, 0, 0, count, reason, user, at))

    return work


def _put(unit: Unit, table: str, rows: Sequence[Row]) -> None:
    columns = _COLUMNS[table]
    one = f"({','.join('?' * len(columns))})"
    for chunk in _chunks(rows):
        values = ",".join([one] * len(chunk))
        unit.run(
            f"INSERT OR REPLACE INTO {table} ({','.join(columns)}) VALUES {values}",  # noqa: S608 - names of ours
            [value for row in chunk for value in row],
        )


def _move(unit: Unit, rows: Sequence[Row]) -> None:
    """New packet ids and states of outgoing messages."""
    for chunk in _chunks(rows):
        values = ",".join(["(?,?,?)"] * len(chunk))
        unit.run(
            "UPDATE mqtt_outgoing SET packet_id = moved.column2, state = moved.column3"  # noqa: S608 - question marks
            f" FROM (VALUES {values}) AS moved WHERE number = moved.column1",
            [value for row in chunk for value in row],
        )


def _drop(unit: Unit, table: str, rows: Sequence[Row]) -> None:
    keys = _KEYS[table]
    one = f"({','.join('?' * len(keys))})" if len(keys) > 1 else "?"
    for chunk in _chunks(rows):
        values = ",".join([one] * len(chunk))
        among = f"(VALUES {values})" if len(keys) > 1 else f"({values})"
        unit.run(
            f"DELETE FROM {table} WHERE ({','.join(keys)}) IN {among}",  # noqa: S608 - names of ours
            [value for row in chunk for value in row],
        )


def _chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for at in range(0, len(rows), _ROWS_AT_ONCE):
        yield rows[at : at + _ROWS_AT_ONCE]


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


class Texts:
    """Principals as text, each made once: a device publishes many messages. One per engine."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Principal, str]] = {}

    def of(self, who: Principal) -> str:
        """JSON that `load` reads back."""
        known = self._known.get(id(who))
        if known is not None and known[0] is who:
            return known[1]
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        text = _text({"kind": who.kind, "aid": who.aid, "via": who.via, "scopes": sorted(who.scopes)})
        self._known[id(who)] = who, text
        return text


def _message_row(message: Message, texts: Texts) -> Row:
    publish = message.publish
    at = publish.at
    return (
        publish.topic,
        publish.payload,
        publish.qos,
        texts.of(publish.who),
        message.extra,
        at.boot,
        at.mono_us,
        message.expires_us,
    )


def _session_row(session: Session, boot: int, texts: Texts) -> Row:
    will, delay = session.will or (None, 0)
    since = -1 if session.conn is not None else session.since_us
    return (
        session.number,
        session.user,
        session.client_id,
        texts.of(session.who),
        session.expiry_s,
        boot,
        since,
        None if will is None else _will_text(will),
        delay,
    )


class _WillRow(msgspec.Struct, array_like=True):
    """A will as text; `properties` as they stand in a packet."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes


def _will_text(will: Will) -> str:
    listed = properties.write(will.properties, properties.WILL)
    return _text(_WillRow(will.topic, will.payload, will.qos, will.retain, listed))


def _subscription_row(number: int, wanted: str, one: Subscription) -> Row:
    return (
        number,
        wanted,
        one.filter,
        one.group,
        one.qos,
        one.ids[0] if one.ids else 0,
        int(one.no_local),
        int(one.retain_as_published),
        one.retain_handling,
    )


def _outgoing_row(session: int, out: Outgoing, texts: Texts) -> Row:
    return (
        *_message_row(out.message, texts),
        out.number,
        session,
        out.packet_id,
        out.qos,
        int(out.retain),
        out.state,
        ",".join(map(str, out.ids)),
    )


class StoredMessage(msgspec.Struct, frozen=True):
    """A message as it lay in the file; its times are of boot `boot`."""

    topic: str
    payload: bytes
    qos: int
    who: Principal
    extra: bytes
    boot: int
    mono_us: int
    expires_us: int | None


class StoredSession(msgspec.Struct, frozen=True):
    """`since_us` is when it was left alone, on the clock of `boot`; -1: it was connected."""

    number: int
    user: str
    client_id: str
    who: Principal
    expiry_s: int
    boot: int
    since_us: int
    will: Will | None
    will_delay_s: int


class StoredSubscription(msgspec.Struct, frozen=True):
    """`wanted` is the filter as the client wrote it; `ident` 0 is none."""

    session: int
    wanted: str
    filter: str
    share: str
    qos: int
    ident: int
    no_local: bool
    as_published: bool
    handling: int


class StoredOutgoing(msgspec.Struct, frozen=True):
    """A message on its way to a session."""

    message: StoredMessage
    number: int
    session: int
    packet_id: int
    granted: int
    retain: bool
    state: int
    ids: tuple[int, ...]


class StoredIncoming(msgspec.Struct, frozen=True):
    """A QoS 2 message that waits for PUBREL."""

    message: StoredMessage
    session: int
    packet_id: int
    retain: bool
    routed: bool


class Stored(msgspec.Struct, frozen=True):
    """Everything that the engine needs at start."""

    retained: list[StoredMessage]
    sessions: list[StoredSession]
    subscriptions: list[StoredSubscription]
    outgoing: list[StoredOutgoing]
    incoming: list[StoredIncoming]


class Place(msgspec.Struct, frozen=True):
    """Where a page begins: behind the row with this key of that table (the first of `_COLUMNS` when empty)."""

    table: str = ""
    key: tuple[Any, ...] = ()


class Page(msgspec.Struct, frozen=True):
    """Some rows of one table; `lost` are the tables and keys of rows that cannot be read, `end` where to go on."""

    stored: Stored
    lost: list[tuple[str, tuple[object, ...]]]
    end: Place | None


def page(unit: Unit, place: Place, rows: int = PAGE_ROWS) -> Page:
    """At most so many rows, in the order in which they are taken up: however many there are, no read is long.

    A row that SQLite takes for good may be unreadable all the same: a flipped bit inside a text.
    """
    tables = list(_COLUMNS)
    table = place.table or tables[0]
    keys = _KEYS[table]
    beyond = f"WHERE ({','.join(keys)}) > ({','.join('?' * len(keys))})" if place.key else ""
    sql = f"SELECT {','.join(_COLUMNS[table])} FROM {table} {beyond} ORDER BY {','.join(keys)} LIMIT ?"  # noqa: S608 - names of ours
    found = unit.run(sql, (*place.key, rows))
    part, lost = Stored([], [], [], [], []), []
    into, read = _parts(part)[table]
    for row in found:
        try:
            into.append(read(row))
        except (EdgeError, ValueError, TypeError, AttributeError, LookupError):
            lost.append((table, _key(table, row)))
    if len(found) == rows:
        return Page(part, lost, Place(table, _key(table, found[-1])))
    last = tables.index(table) + 1 == len(tables)
    return Page(part, lost, None if last else Place(tables[tables.index(table) + 1]))


def _key(table: str, row: Row) -> tuple[object, ...]:
    return tuple(row[_COLUMNS[table].index(name)] for name in _KEYS[table])


def mend(unit: Unit, lost: Sequence[tuple[str, tuple[object, ...]]]) -> None:
    """Remove what cannot be read and declare it lost (P2, P3); a session takes its own rows along."""
    for table, key in lost:
        _remove(unit, table, _KEYS[table], key)
        if table == "mqtt_session":
            for other in ("mqtt_subscription", "mqtt_outgoing", "mqtt_incoming"):
                _remove(unit, other, ("session",), key)
        unit.lose(Gap("mqtt", table, 0, 0, 1, REASON, "store", unit.at))


def _remove(unit: Unit, table: str, columns: Sequence[str], key: Sequence[object]) -> None:
    where = " AND ".join(f"{name} IS ?" for name in columns)
    unit.run(f"DELETE FROM {table} WHERE {where}", tuple(key))  # noqa: S608 - names of ours


def _message(row: Row) -> StoredMessage:
    topic, payload, qos, who, extra, boot, mono_us, expires_us = row[:8]
    return StoredMessage(topic, payload, qos, _principal(who), extra, boot, mono_us, expires_us)


def _subscription(row: Row) -> StoredSubscription:
    return StoredSubscription(row[0], row[1], row[2], row[3], row[4], row[5], bool(row[6]), bool(row[7]), row[8])


def _outgoing(row: Row) -> StoredOutgoing:
    ids = tuple(int(ident) for ident in row[14].split(",") if ident)
    return StoredOutgoing(_message(row), row[8], row[9], row[10], row[11], bool(row[12]), row[13], ids)


def _incoming(row: Row) -> StoredIncoming:
    return StoredIncoming(_message(row), row[8], row[9], bool(row[10]), bool(row[11]))


@lru_cache(REMEMBERED)
def _principal(text: str) -> Principal:
    """One object for all rows with the same text: a device publishes many messages."""
    return decode(text.encode(), Principal)


def _session(row: Row) -> StoredSession:
    number, user, client_id, who, expiry_s, boot, since_us, text, delay = row
    will = None
    if text is not None:
        found = decode(text.encode(), _WillRow)
        listed, _ = properties.read(found.properties, 0, len(found.properties), properties.WILL)
        will = Will(found.topic, found.payload, found.qos, found.retain, listed)
    return StoredSession(number, user, client_id, _principal(who), expiry_s, boot, since_us, will, delay)


def _parts(stored: Stored) -> dict[str, tuple[list[Any], Callable[[Row], object]]]:
    """Where the rows of each table go, and how one is read."""
    return {
        "mqtt_retained": (stored.retained, _message),
        "mqtt_session": (stored.sessions, _session),
        "mqtt_subscription": (stored.subscriptions, _subscription),
        "mqtt_outgoing": (stored.outgoing, _outgoing),
        "mqtt_incoming": (stored.incoming, _incoming),
    }
