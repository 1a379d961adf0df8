# ruff: noqa: S608  the composed parts are constants of this module
"""What is said in groups, and how far each device has read (node.db).

The log `group` numbers the messages of a group (its key is the group's AID); rows live here because a recall replaces
one in place. The log `group_event` holds the events themselves. Rows leave oldest first, by age (`oldest`, `expire`)
or because the group is full (`evict`); both raise the floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from edge.contract.gap import Gap
from edge.contract.store import Unit
from edge.contract.time import Stamp
from edge.protocol.aun_events import NAME_OCTETS
from edge.protocol.pages import leading
from edge.protocol.wraps import LEAF
from edge.store.migration import statements
from edge.store.unreadable import REASON, Unreadable, is_array, is_object, lose

MESSAGES, EVENTS = "group", "group_event"
"""The logs; the key of both is the group's AID."""

ENCRYPTED, QUIET, RECALLED, V2 = 1, 2, 4, 8
"""Flags of a row: `encrypted` on the wire; not to be rendered; a tombstone; a V2 envelope, one wrap per device."""

RECIPIENT_OCTETS = 512
"""What each device that an encrypted message is for takes in the table of wraps, about; LEAF divides it."""
ROW_OCTETS, OWN_OCTETS = 400, 3_600
"""What a row as it is shown may have beside payload and names; an encrypted one the reader's wrap and its proof too."""

_MESSAGE = """CREATE TABLE group_message (id INTEGER PRIMARY KEY, gid TEXT NOT NULL, seq INTEGER NOT NULL,
    sender TEXT NOT NULL, device TEXT NOT NULL, message_id TEXT NOT NULL, kind TEXT NOT NULL, mode TEXT NOT NULL,
    flags INTEGER NOT NULL, sent_ms INTEGER NOT NULL, boot INTEGER NOT NULL, mono_us INTEGER NOT NULL,
    payload BLOB NOT NULL, attachments BLOB NOT NULL, leaves BLOB NOT NULL) STRICT"""
_WRAP = """CREATE TABLE group_wrap (gid TEXT NOT NULL, seq INTEGER NOT NULL, aid TEXT NOT NULL, device TEXT NOT NULL,
    place INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (gid, seq, aid, device)) STRICT, WITHOUT ROWID"""
_SIZE = """CREATE TABLE group_size (gid TEXT PRIMARY KEY, rows INTEGER NOT NULL, octets INTEGER NOT NULL)
    STRICT, WITHOUT ROWID"""
_CURSOR = """CREATE TABLE group_cursor (gid TEXT NOT NULL, aid TEXT NOT NULL, device TEXT NOT NULL, slot TEXT NOT NULL,
    seq INTEGER NOT NULL, event INTEGER NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, at_ms INTEGER NOT NULL,
    PRIMARY KEY (gid, aid, device, slot)) STRICT, WITHOUT ROWID"""

MIGRATIONS = [
    statements(
        "node",
        "group-logs-001",
        _MESSAGE,
        "CREATE UNIQUE INDEX group_message_seq ON group_message (gid, seq)",
        "CREATE UNIQUE INDEX group_message_id ON group_message (gid, message_id)",
        _WRAP,
        _SIZE,
        _CURSOR,
    ),
    statements(
        "node",
        "group-logs-002",
        """UPDATE group_size SET octets = (SELECT coalesce(sum(length(payload) + length(attachments)
            + length(leaves) * 16), 0) FROM group_message WHERE group_message.gid = group_size.gid)""",
    ),
]

_C = "gid, seq, sender, device, message_id, kind, mode, flags, sent_ms, boot, mono_us, payload, attachments, leaves"
_ADD = f"INSERT INTO group_message ({_C}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ADD_WRAP = "INSERT INTO group_wrap (gid, seq, aid, device, place, body) VALUES (?, ?, ?, ?, ?, ?)"
_WRAPS = """SELECT seq, place, body FROM group_wrap WHERE gid = ? AND seq BETWEEN ? AND ? AND aid = ?
    AND device IN (?, '') ORDER BY seq, device"""
_DROP_WRAPS = "DELETE FROM group_wrap WHERE gid = ? AND seq = ?"
_DROP_OLD_WRAPS = "DELETE FROM group_wrap WHERE gid = ? AND seq <= ?"
_GROWN = """INSERT INTO group_size (gid, rows, octets) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET rows = rows + excluded.rows, octets = octets + excluded.octets"""
_USAGE = "SELECT rows, octets FROM group_size WHERE gid = ?"
_BY_ID = f"SELECT {_C} FROM group_message WHERE gid = ? AND message_id = ?"
_VISIBLE = f"""(flags & {V2} = 0 OR EXISTS (SELECT 1 FROM group_wrap w WHERE w.gid = group_message.gid
    AND w.seq = group_message.seq AND w.aid = ? AND w.device IN (?, '')))"""
_WEIGHT = f"(length(payload) + length(attachments) + length(leaves) * {RECIPIENT_OCTETS // LEAF})"
_SHOWN = f"""(length(payload) + length(attachments) + {ROW_OCTETS}
    + {NAME_OCTETS} * (length(message_id) + 2 * length(kind) + length(device)) + 2 * (length(sender) + length(gid))
    + CASE WHEN flags & {V2} THEN {OWN_OCTETS} ELSE 0 END)"""
_AFTER = f"SELECT seq, {_SHOWN} FROM group_message WHERE gid = ? AND seq > ? AND {_VISIBLE} ORDER BY seq LIMIT ?"
_BEFORE = (
    f"SELECT seq, {_SHOWN} FROM group_message WHERE gid = ? AND seq < ? AND seq > ? AND {_VISIBLE} "
    "ORDER BY seq DESC LIMIT ?"
)
_ROWS = f"SELECT {_C} FROM group_message WHERE gid = ? AND seq BETWEEN ? AND ? AND {_VISIBLE} ORDER BY seq"
_UNREAD = f"SELECT count(*) FROM (SELECT 1 FROM group_message WHERE gid = ? AND seq > ? AND {_VISIBLE} LIMIT ?)"
_NEWEST = f"SELECT seq FROM group_message WHERE gid = ? AND seq > ? AND {_VISIBLE} ORDER BY seq DESC LIMIT 1"
_BURY = "UPDATE group_message SET kind = ?, flags = ?, payload = ?, attachments = x'', leaves = x'' WHERE id = ?"
_TAKE_OUT = f"DELETE FROM group_message WHERE gid = ? AND seq = ? RETURNING {_WEIGHT}"
_TAKE_WRAP = "DELETE FROM group_wrap WHERE gid = ? AND seq = ? AND aid = ? AND place = ? RETURNING seq"
_ID_OF = "SELECT id FROM group_message WHERE gid = ? AND seq = ?"
_OLDEST = "SELECT id, boot, mono_us FROM group_message ORDER BY id LIMIT ?"
_EXPIRING = f"SELECT gid, max(seq), count(*), sum({_WEIGHT}) FROM group_message WHERE id <= ? GROUP BY +gid"
_EXPIRE = "DELETE FROM group_message WHERE id <= ?"
_FIRST = f"SELECT seq, {_WEIGHT} FROM group_message WHERE gid = ? ORDER BY seq LIMIT ?"
_EVICT = "DELETE FROM group_message WHERE gid = ? AND seq <= ?"
_CURSOR_OF = "SELECT seq, event FROM group_cursor WHERE gid = ? AND aid = ? AND device = ? AND slot = ?"
_PUT_CURSOR = """INSERT INTO group_cursor (gid, aid, device, slot, seq, event, name, type, at_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET seq = max(seq, excluded.seq),
    event = max(event, excluded.event), name = CASE excluded.name WHEN '' THEN name ELSE excluded.name END,
    type = CASE excluded.type WHEN '' THEN type ELSE excluded.type END, at_ms = excluded.at_ms RETURNING seq, event"""
_COUNT_CURSORS = "SELECT count(*) FROM group_cursor WHERE gid = ? AND aid = ?"
_OLDEST_CURSOR = """DELETE FROM group_cursor WHERE (gid, aid, device, slot) IN (SELECT gid, aid, device, slot
    FROM group_cursor WHERE gid = ? AND aid = ? ORDER BY at_ms LIMIT 1)"""
_DEVICES = """SELECT device, max(name), max(type), max(at_ms), max(seq), max(event) FROM group_cursor
    WHERE gid = ? AND aid = ? GROUP BY device ORDER BY device"""
_DROP_DEVICE = "DELETE FROM group_cursor WHERE gid = ? AND aid = ? AND device = ? RETURNING slot"
_DROP_CURSORS = "DELETE FROM group_cursor WHERE gid = ? AND aid = ?"
_FURTHEST = "SELECT aid, max(seq), max(at_ms) FROM group_cursor WHERE gid = ? GROUP BY aid"

_STEP = 256


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a group. `mode` is the mention mode that was in force; `payload` and `attachments` are JSON text.

    Of a V2 message the payload is the envelope without its recipients; `leaves` are the hashes of all of them.
    """

    gid: str
    seq: int
    sender: str
    device: str = ""
    message_id: str
    kind: str = ""
    mode: str = ""
    flags: int = 0
    sent_ms: int
    at: Stamp
    payload: bytes
    attachments: bytes = b""
    leaves: bytes = b""


class Wrap(msgspec.Struct, frozen=True):
    """One device's key of a V2 message; `place`: its row's position among the recipients; `body`: the row (JSON)."""

    aid: str
    device: str
    place: int
    body: bytes


class Place(msgspec.Struct, frozen=True):
    """Who keeps cursors in a group. `slot` is an isolation key; without a device there is one place per AID."""

    gid: str
    aid: str
    device: str = ""
    slot: str = ""

    def key(self) -> tuple[str, str, str, str]:
        """The key of its row."""
        return (self.gid, self.aid, self.device, self.slot if self.device else "")


class Device(msgspec.Struct, frozen=True):
    """One device's cursors in a group."""

    device: str
    name: str
    type: str
    at_ms: int
    seq: int
    event: int


# -- messages ---------------------------------------------------------------------------------------------------------


def add(unit: Unit, said: Said, wraps: Iterable[Wrap] = ()) -> int:
    """Put a message into its group; its number (the one in `said` is ignored)."""
    seq = unit.log(MESSAGES).number(said.gid)
    unit.run(
        _ADD,
        (
            said.gid,
            seq,
            said.sender,
            said.device,
            said.message_id,
            said.kind,
            said.mode,
            said.flags,
            said.sent_ms,
            said.at.boot,
            said.at.mono_us,
            said.payload,
            said.attachments,
            said.leaves,
        ),
    )
    for wrap in wraps:
        unit.run(_ADD_WRAP, (said.gid, seq, wrap.aid, wrap.device, wrap.place, wrap.body))
    unit.run(_GROWN, (said.gid, 1, _weight(said)))
    return seq


def usage(unit: Unit, gid: str) -> tuple[int, int]:
    """Rows of a group, and their bytes: payloads, attachments, and what each recipient's key takes."""
    found = cast("list[tuple[int, int]]", unit.run(_USAGE, (gid,)))
    return found[0] if found else (0, 0)


def find(unit: Unit, gid: str, message_id: str) -> Said | None:
    """The row with this id."""
    found = unit.run(_BY_ID, (gid, message_id))
    return _said(found[0]) if found else None


def head(unit: Unit, gid: str) -> int:
    """The last message number given out."""
    return unit.log(MESSAGES).head(gid)


def floor(unit: Unit, gid: str) -> int:
    """Messages up to this number are gone."""
    return unit.log(MESSAGES).floor(gid)


def after(unit: Unit, place: Place, seq: int, *, rows: int, octets: int) -> tuple[list[Said], bool]:
    """What the device may see above `seq`, oldest first; and whether there is more.

    At most `rows`, and at most `octets` as they are shown (but one row if there is any). Raises `Unreadable`.
    """
    sizes = cast("list[tuple[int, int]]", unit.run(_AFTER, (place.gid, seq, place.aid, place.device, rows + 1)))
    taken = leading(sizes, rows, octets)
    return (_between(unit, place, taken[0], taken[-1]) if taken else []), len(taken) < len(sizes)


def before(unit: Unit, place: Place, seq: int, above: int, *, rows: int, octets: int) -> tuple[list[Said], bool]:
    """The newest rows in `(above, seq)` that the device may see, oldest first; and whether there are older ones.

    Raises `Unreadable`.
    """
    asked = (place.gid, seq, above, place.aid, place.device, rows + 1)
    sizes = cast("list[tuple[int, int]]", unit.run(_BEFORE, asked))
    taken = leading(sizes, rows, octets)
    return (_between(unit, place, taken[-1], taken[0]) if taken else []), len(taken) < len(sizes)


def wraps(unit: Unit, place: Place, first: int, last: int) -> dict[int, tuple[int, bytes]]:
    """By message number: place and body of the wrap that this device opens (one for the whole AID counts less).

    Raises `Unreadable`: without its wrap a message is not for this device.
    """
    asked = (place.gid, first, last, place.aid, place.device)
    found = cast("list[tuple[int, int, bytes]]", unit.run(_WRAPS, asked))
    bad = [(seq, at) for seq, at, body in found if not is_array(body)]
    if bad:
        raise Unreadable(partial(_take_wraps, gid=place.gid, aid=place.aid, wraps=bad))
    return {seq: (at, body) for seq, at, body in found}


def unread(unit: Unit, place: Place, seq: int, most: int) -> int:
    """How many rows above `seq` the device may see, counted up to `most`."""
    return cast(int, unit.run(_UNREAD, (place.gid, seq, place.aid, place.device, most))[0][0])


def newest(unit: Unit, place: Place, above: int) -> int:
    """The newest row above `above` that the device may see; 0 without one."""
    found = unit.run(_NEWEST, (place.gid, above, place.aid, place.device))
    return cast(int, found[0][0]) if found else 0


def bury(unit: Unit, said: Said, kind: str, payload: bytes) -> None:
    """Replace a row by a tombstone at the same number; nobody's key of it is left."""
    [(ident,)] = unit.run(_ID_OF, (said.gid, said.seq))
    unit.run(_BURY, (kind, RECALLED, payload, ident))
    unit.run(_DROP_WRAPS, (said.gid, said.seq))
    unit.run(_GROWN, (said.gid, 0, len(payload) - _weight(said)))


def evict(unit: Unit, gid: str, rows: int, octets: int) -> Gap | None:
    """Drop the oldest rows until the group is within both bounds; what went is declared in the same unit."""
    have, weight = usage(unit, gid)
    first = last = count = gone = 0
    while have - count > rows or weight - gone > octets:
        page = cast("list[tuple[int, int]]", unit.run(_FIRST, (gid, count + _STEP)))[count:]
        if not page:
            break
        for seq, size in page:
            first, last, count, gone = first or seq, seq, count + 1, gone + size
            if have - count <= rows and weight - gone <= octets:
                break
    if not count:
        return None
    unit.run(_EVICT, (gid, last))
    _gone(unit, gid, last, count, gone)
    gap = Gap(MESSAGES, gid, first, last, count, "group_full", "group", unit.at)
    unit.lose(gap)
    return gap


def oldest(unit: Unit, rows: int) -> list[tuple[int, Stamp]]:
    """Row ids and times of the oldest rows of all groups, oldest first."""
    found = cast("list[tuple[int, int, int]]", unit.run(_OLDEST, (rows,)))
    return [(ident, Stamp(boot, mono_us)) for ident, boot, mono_us in found]


def expire(unit: Unit, through_id: int) -> int:
    """Remove every row up to this row id and raise the floors of their groups; how many."""
    gone = cast("list[tuple[str, int, int, int]]", unit.run(_EXPIRING, (through_id,)))
    unit.run(_EXPIRE, (through_id,))
    for gid, seq, count, octets in gone:
        _gone(unit, gid, seq, count, octets)
    return sum(count for _, _, count, _ in gone)


def events(unit: Unit, gid: str, after: int, *, rows: int, octets: int) -> list[tuple[int, bytes]]:
    """Events of a group above a number, oldest first: number and body (a JSON object). Raises `Unreadable`."""
    found = unit.log(EVENTS).after(gid, after, rows, octets)
    bad = [seq for seq, body in found if not is_object(body)]
    if bad:
        raise Unreadable(lambda unit: unit.log(EVENTS).take_out(gid, bad, REASON))
    return found


# -- cursors ----------------------------------------------------------------------------------------------------------


def cursor(unit: Unit, place: Place) -> tuple[int, int]:
    """Where a device stands: message and event."""
    found = cast("list[tuple[int, int]]", unit.run(_CURSOR_OF, place.key()))
    return found[0] if found else (0, 0)


def ack(
    unit: Unit, place: Place, now_ms: int, *, seq: int = 0, event: int = 0, name: str = "", kind: str = "", most: int
) -> tuple[int, int]:
    """Move cursors forward, never back; where they stand now. Beyond `most` places of an AID the stalest goes."""
    if not unit.run(_CURSOR_OF, place.key()):
        while cast(int, unit.run(_COUNT_CURSORS, (place.gid, place.aid))[0][0]) >= most:
            unit.run(_OLDEST_CURSOR, (place.gid, place.aid))
    [now] = cast("list[tuple[int, int]]", unit.run(_PUT_CURSOR, (*place.key(), seq, event, name, kind, now_ms)))
    return now


def devices(unit: Unit, gid: str, aid: str) -> list[Device]:
    """The devices of an AID that keep cursors in a group."""
    return [Device(*cast("tuple[Any, ...]", row)) for row in unit.run(_DEVICES, (gid, aid))]


def drop_device(unit: Unit, gid: str, aid: str, device: str) -> bool:
    """Forget one device's cursors; whether there were any."""
    return bool(unit.run(_DROP_DEVICE, (gid, aid, device)))


def drop_cursors(unit: Unit, gid: str, aid: str) -> None:
    """Forget every cursor of an AID in a group."""
    unit.run(_DROP_CURSORS, (gid, aid))


def furthest(unit: Unit, gid: str) -> dict[str, tuple[int, int]]:
    """By member: the furthest message any of their devices has acknowledged, and when one last did."""
    found = cast("list[tuple[str, int, int]]", unit.run(_FURTHEST, (gid,)))
    return {aid: (seq, at_ms) for aid, seq, at_ms in found}


def _weight(said: Said) -> int:
    """`_WEIGHT` of a row in hand."""
    return len(said.payload) + len(said.attachments) + len(said.leaves) * (RECIPIENT_OCTETS // LEAF)


def _gone(unit: Unit, gid: str, last: int, count: int, octets: int) -> None:
    unit.run(_DROP_OLD_WRAPS, (gid, last))
    unit.run(_GROWN, (gid, -count, -octets))
    unit.log(MESSAGES).raise_floor(gid, last)


def _between(unit: Unit, place: Place, first: int, last: int) -> list[Said]:
    rows = [_said(row) for row in unit.run(_ROWS, (place.gid, first, last, place.aid, place.device))]
    bad = [row.seq for row in rows if not (is_object(row.payload) and is_array(row.attachments or b"[]"))]
    if bad:
        raise Unreadable(partial(_take_out, gid=place.gid, seqs=bad))
    return rows


def _take_out(unit: Unit, gid: str, seqs: Sequence[int]) -> int:
    """Remove messages that cannot be read and declare them lost; their numbers stay empty. How many there were."""
    count = 0
    for seq in seqs:
        for (octets,) in cast("list[tuple[int]]", unit.run(_TAKE_OUT, (gid, seq))):
            unit.run(_DROP_WRAPS, (gid, seq))
            unit.run(_GROWN, (gid, -1, -octets))
            lose(unit, MESSAGES, gid, seq)
            count += 1
    return count


def _take_wraps(unit: Unit, gid: str, aid: str, wraps: Sequence[tuple[int, int]]) -> int:
    """Remove one reader's keys that cannot be read; the messages are lost for that reader only."""
    count = 0
    for seq, at in wraps:
        if unit.run(_TAKE_WRAP, (gid, seq, aid, at)):
            unit.lose(Gap(MESSAGES, gid, seq, seq, 1, REASON, aid, unit.at))
            count += 1
    return count


def _said(row: Sequence[object]) -> Said:
    gid, seq, sender, device, message_id, kind, mode, flags, sent_ms, boot, mono_us, payload, attachments, leaves = (
        cast("tuple[Any, ...]", row)
    )
    return Said(
        gid=gid,
        seq=seq,
        sender=sender,
        device=device,
        message_id=message_id,
        kind=kind,
        mode=mode,
        flags=flags,
        sent_ms=sent_ms,
        at=Stamp(boot, mono_us),
        payload=payload,
        attachments=attachments,
        leaves=leaves,
    )
