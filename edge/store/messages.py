# ruff: noqa: S608  the composed parts are constants of this module
"""Tables of point-to-point messages: inboxes, the cursors of their readers, device keys (node.db).

An inbox is numbered by the log `inbox` of its AID; rows live here because a recall replaces one in place. Payloads
are the sender's JSON text, byte for byte. Rows leave by age only (`oldest`, `expire`), which raises the inbox floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import cast

import msgspec

from edge.contract.store import Unit
from edge.contract.time import Stamp
from edge.protocol.aun_events import NAME_OCTETS, ROW_OCTETS
from edge.protocol.pages import leading
from edge.store.migration import statements
from edge.store.unreadable import Unreadable, is_object, lose

INBOX = "inbox"
"""The log that numbers inboxes; its key is the owner's AID."""

ENCRYPTED, QUIET, RECALLED, SYNC, V2, TARGETED = 1, 2, 4, 8, 16, 32
"""Flags of a row: `encrypted` on the wire; not to be rendered; a tombstone; the sender's own copy; a V2 envelope;
sent to one device by name."""

_MESSAGE = """CREATE TABLE message (id INTEGER PRIMARY KEY, aid TEXT NOT NULL, seq INTEGER NOT NULL,
    sender TEXT NOT NULL, sender_device TEXT NOT NULL, recipient TEXT NOT NULL, message_id TEXT NOT NULL,
    kind TEXT NOT NULL, devices TEXT NOT NULL, flags INTEGER NOT NULL, sent_ms INTEGER NOT NULL, boot INTEGER NOT NULL,
    mono_us INTEGER NOT NULL, payload BLOB NOT NULL) STRICT"""
_INBOX = """CREATE TABLE message_inbox (aid TEXT PRIMARY KEY, rows INTEGER NOT NULL, octets INTEGER NOT NULL)
    STRICT, WITHOUT ROWID"""
_SHARE = """CREATE TABLE message_share (aid TEXT NOT NULL, sender TEXT NOT NULL, rows INTEGER NOT NULL,
    octets INTEGER NOT NULL, PRIMARY KEY (aid, sender)) STRICT, WITHOUT ROWID"""
_SHARES = """INSERT INTO message_share SELECT aid, sender, count(*), sum(length(payload)) FROM message
    GROUP BY aid, sender"""
_CURSORS_OF = """CREATE TABLE message_cursor (aid TEXT NOT NULL, device TEXT NOT NULL, slot TEXT NOT NULL,
    sender TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (aid, device, slot, sender)) STRICT, WITHOUT ROWID"""
_READER = """CREATE TABLE message_reader (aid TEXT NOT NULL, device TEXT NOT NULL, slot TEXT NOT NULL,
    boot INTEGER NOT NULL, PRIMARY KEY (aid, device, slot)) STRICT, WITHOUT ROWID"""
_SPK = """CREATE TABLE message_spk (aid TEXT NOT NULL, device TEXT NOT NULL, spk_id TEXT NOT NULL,
    spk_pk TEXT NOT NULL, signature TEXT NOT NULL, made_s INTEGER NOT NULL, at_ms INTEGER NOT NULL,
    PRIMARY KEY (aid, device)) STRICT, WITHOUT ROWID"""
_PREKEY = """CREATE TABLE message_prekey (aid TEXT NOT NULL, device TEXT NOT NULL, body BLOB NOT NULL,
    at_ms INTEGER NOT NULL, PRIMARY KEY (aid, device)) STRICT, WITHOUT ROWID"""
_REPLY = """CREATE TABLE message_reply (task_id TEXT PRIMARY KEY, aid TEXT NOT NULL, sender TEXT NOT NULL,
    message_id TEXT NOT NULL) STRICT, WITHOUT ROWID"""
_INDICES = (
    "CREATE UNIQUE INDEX message_by_seq ON message (aid, seq, sender)",
    "CREATE INDEX message_by_sender ON message (aid, sender, seq)",
    "CREATE INDEX message_by_id ON message (message_id, sender)",
)

MIGRATIONS = [
    statements("node", "messages-001", _MESSAGE, _INBOX, _CURSORS_OF, _READER, _SPK, _PREKEY, _REPLY, *_INDICES),
    statements("node", "messages-002", "ALTER TABLE message_reply ADD COLUMN sealed INTEGER NOT NULL DEFAULT 0"),
    statements("node", "messages-003", _SHARE, _SHARES),
]

_COLUMNS = (
    "aid, seq, sender, sender_device, recipient, message_id, kind, devices, flags, sent_ms, boot, mono_us, payload"
)
_ADD = f"INSERT INTO message ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_GROWN = """INSERT INTO message_inbox (aid, rows, octets) VALUES (?, 1, ?)
    ON CONFLICT DO UPDATE SET rows = rows + 1, octets = octets + excluded.octets"""
_SHRUNK = "UPDATE message_inbox SET rows = rows - ?, octets = octets - ? WHERE aid = ?"
_USAGE = "SELECT rows, octets FROM message_inbox WHERE aid = ?"
_HELD_MORE = """INSERT INTO message_share (aid, sender, rows, octets) VALUES (?, ?, 1, ?)
    ON CONFLICT DO UPDATE SET rows = rows + 1, octets = octets + excluded.octets"""
_HELD_LESS = "UPDATE message_share SET rows = rows - ?, octets = octets - ? WHERE aid = ? AND sender = ?"
_HELD_NONE = "DELETE FROM message_share WHERE aid = ? AND sender = ? AND rows <= 0"
_HELD = "SELECT rows, octets FROM message_share WHERE aid = ? AND sender = ?"
_COUNT_SENDERS = "SELECT count(*) FROM message_share WHERE aid = ?"
_LAST_OF = "SELECT coalesce(max(seq), 0) FROM message WHERE aid = ? AND sender = ?"
_FIND = f"SELECT {_COLUMNS} FROM message WHERE message_id = ? AND sender = ? ORDER BY id"
_KNOWN_ID = "SELECT 1 FROM message WHERE message_id = ? LIMIT 1"
_SEEN_BY = f"SELECT {_COLUMNS} FROM message WHERE message_id = ? AND ? IN (aid, sender) ORDER BY aid <> ? LIMIT 1"
_SEEN = "(devices = '' OR instr(devices, char(10) || ? || char(10)))"
_WEIGHT = f"""length(payload) + {ROW_OCTETS} + {NAME_OCTETS} * (length(message_id) + length(kind)
    + length(sender_device) + length(sender) + length(aid))"""
_INBOX_SIZES = f"SELECT seq, {_WEIGHT} FROM message WHERE aid = ? AND seq > ? AND {_SEEN} ORDER BY seq LIMIT ?"
_PEER_SIZES = f"""SELECT seq, {_WEIGHT} FROM message WHERE aid = ? AND sender = ? AND seq > ? AND {_SEEN}
    ORDER BY seq LIMIT ?"""
_INBOX_OLDER = f"SELECT seq, {_WEIGHT} FROM message WHERE aid = ? AND seq < ? AND {_SEEN} ORDER BY seq DESC LIMIT ?"
_PEER_OLDER = f"""SELECT seq, {_WEIGHT} FROM message WHERE aid = ? AND sender = ? AND seq < ? AND {_SEEN}
    ORDER BY seq DESC LIMIT ?"""
_INBOX_ROWS = f"SELECT {_COLUMNS} FROM message WHERE aid = ? AND seq BETWEEN ? AND ? AND {_SEEN} ORDER BY seq"
_PEER_ROWS = (
    f"SELECT {_COLUMNS} FROM message WHERE aid = ? AND sender = ? AND seq BETWEEN ? AND ? AND {_SEEN} ORDER BY seq"
)
_NEXT_SEEN = f"SELECT seq FROM message WHERE aid = ? AND seq > ? AND {_SEEN} ORDER BY seq LIMIT 1"
_SENDERS = f"""WITH RECURSIVE found (sender) AS (
    SELECT min(sender) FROM message WHERE aid = ?1 AND sender > ?2
    UNION ALL SELECT (SELECT min(sender) FROM message WHERE aid = ?1 AND sender > found.sender)
        FROM found WHERE found.sender IS NOT NULL LIMIT ?4)
    SELECT sender, coalesce((SELECT seq FROM message WHERE aid = ?1 AND sender = found.sender
        AND {_SEEN.replace("?", "?3")} ORDER BY seq DESC LIMIT 1), 0) FROM found WHERE sender IS NOT NULL"""
_COVERED = "SELECT DISTINCT sender FROM message WHERE aid = ? AND seq > ? AND seq <= ?"
_CURSOR = "SELECT seq FROM message_cursor WHERE aid = ? AND device = ? AND slot = ? AND sender = ?"
_CURSORS = "SELECT sender, seq FROM message_cursor WHERE aid = ? AND device = ? AND slot = ? AND sender > ''"
_SET_CURSOR = """INSERT INTO message_cursor (aid, device, slot, sender, seq) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET seq = max(seq, excluded.seq) RETURNING seq"""
_ACKED = "SELECT 1 FROM message_cursor WHERE aid = ? AND sender IN ('', ?) AND seq >= ? LIMIT 1"
_BOOT = "SELECT boot FROM message_reader WHERE aid = ? AND device = ? AND slot = ?"
_SET_BOOT = "INSERT OR IGNORE INTO message_reader (aid, device, slot, boot) VALUES (?, ?, ?, ?)"
_BURY = "UPDATE message SET kind = ?, flags = ?, payload = ? WHERE aid = ? AND seq = ?"
_TAKE_OUT = "DELETE FROM message WHERE aid = ? AND seq = ? RETURNING sender, length(payload)"
_OLDEST = "SELECT id, boot, mono_us FROM message ORDER BY id LIMIT ?"
_EXPIRING = """SELECT aid, sender, max(seq), count(*), sum(length(payload)) FROM message WHERE id <= ?
    GROUP BY +aid, +sender"""
_EXPIRE = "DELETE FROM message WHERE id <= ?"
_FORGET_CURSORS = "DELETE FROM message_cursor WHERE aid = ? AND sender > '' AND seq <= ?"
_PUT_SPK = """INSERT INTO message_spk (aid, device, spk_id, spk_pk, signature, made_s, at_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET spk_id = excluded.spk_id, spk_pk = excluded.spk_pk, signature = excluded.signature,
        made_s = excluded.made_s, at_ms = excluded.at_ms"""
_SPKS = "SELECT device, spk_id, spk_pk, signature, made_s FROM message_spk WHERE aid = ? ORDER BY at_ms, device"
_SPK_SIZES = "SELECT device, at_ms, length(spk_pk) + length(signature) FROM message_spk WHERE aid = ?"
_PUT_PREKEY = """INSERT INTO message_prekey (aid, device, body, at_ms) VALUES (?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET body = excluded.body, at_ms = excluded.at_ms"""
_PREKEYS = "SELECT device, body, at_ms FROM message_prekey WHERE aid = ? ORDER BY at_ms DESC, device"
_OWE = "INSERT OR REPLACE INTO message_reply (task_id, aid, sender, message_id, sealed) VALUES (?, ?, ?, ?, ?)"
_OWED = "SELECT task_id, aid, sender, message_id, sealed FROM message_reply ORDER BY task_id"
_PAID = "DELETE FROM message_reply WHERE task_id = ?"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One row of an inbox. `recipient` is set when it is not the inbox's owner (a copy of what the owner sent).

    `devices` names the devices that may see it (empty: all); `sent_ms` is wall time.
    """

    aid: str
    seq: int
    sender: str
    sender_device: str = ""
    recipient: str = ""
    message_id: str
    kind: str = ""
    devices: tuple[str, ...] = ()
    flags: int = 0
    sent_ms: int
    at: Stamp
    payload: bytes


class Reader(msgspec.Struct, frozen=True):
    """Who keeps a place in an inbox. Connections without a device share one per AID. `slot` is an isolation key."""

    aid: str
    device: str = ""
    slot: str = ""

    def place(self) -> tuple[str, str, str]:
        """The key of its cursors."""
        return (self.aid, self.device, self.slot if self.device else "")


class Peer(msgspec.Struct, frozen=True):
    """A sender with rows in an inbox: the last that this device may see, and where the reader stands with it."""

    sender: str
    head: int
    acked: int


class Spk(msgspec.Struct, frozen=True):
    """A device's signed prekey (V2). `made_s` is the client's own time, seconds."""

    device: str
    spk_id: str
    spk_pk: str
    signature: str
    made_s: int


class Owed(msgspec.Struct, frozen=True):
    """An automaton's debt: when the task is over, `aid` answers the message of `sender`, sealed if that was."""

    task_id: str
    aid: str
    sender: str
    message_id: str
    sealed: bool = False


def add(unit: Unit, message: Message) -> int:
    """Put a message into an inbox; its number (the one in `message` is ignored)."""
    seq = unit.log(INBOX).number(message.aid)
    devices = "\n".join(("", *message.devices, "")) if message.devices else ""
    unit.run(
        _ADD,
        (
            message.aid,
            seq,
            message.sender,
            message.sender_device,
            message.recipient,
            message.message_id,
            message.kind,
            devices,
            message.flags,
            message.sent_ms,
            message.at.boot,
            message.at.mono_us,
            message.payload,
        ),
    )
    unit.run(_GROWN, (message.aid, len(message.payload)))
    unit.run(_HELD_MORE, (message.aid, message.sender, len(message.payload)))
    return seq


def usage(unit: Unit, aid: str) -> tuple[int, int]:
    """Rows and payload bytes of an inbox."""
    found = unit.run(_USAGE, (aid,))
    return cast("tuple[int, int]", found[0]) if found else (0, 0)


def held(unit: Unit, aid: str, sender: str) -> tuple[int, int]:
    """Rows and payload bytes that one sender has in an inbox."""
    found = unit.run(_HELD, (aid, sender))
    return cast("tuple[int, int]", found[0]) if found else (0, 0)


def senders(unit: Unit, aid: str) -> int:
    """How many have messages in an inbox."""
    return cast(int, unit.run(_COUNT_SENDERS, (aid,))[0][0])


def find(unit: Unit, sender: str, message_id: str) -> list[Message]:
    """The rows that one sender made under this id, in any inbox, oldest first."""
    return [_message(row) for row in unit.run(_FIND, (message_id, sender))]


def seen_by(unit: Unit, aid: str, message_id: str) -> Message | None:
    """The message that an AID knows by this id: in its inbox rather than sent by it; None without one."""
    found = unit.run(_SEEN_BY, (message_id, aid, aid))
    return _message(found[0]) if found else None


def used(unit: Unit, message_id: str) -> bool:
    """Is there a row with this id, of any sender?"""
    return bool(unit.run(_KNOWN_ID, (message_id,)))


def last_of(unit: Unit, aid: str, sender: str) -> int:
    """The number of the sender's last row in this inbox, 0 without one."""
    [(seq,)] = unit.run(_LAST_OF, (aid, sender))
    return cast(int, seq)


def head(unit: Unit, aid: str) -> int:
    """The last number given out in this inbox."""
    return unit.log(INBOX).head(aid)


def floor(unit: Unit, aid: str) -> int:
    """Rows up to this number are gone."""
    return unit.log(INBOX).floor(aid)


def after(
    unit: Unit, reader: Reader, seq: int, *, rows: int, octets: int, sender: str = ""
) -> tuple[list[Message], bool]:
    """What the reader may see above `seq`, oldest first, of one sender or of all; and whether there is more.

    At most `rows`, and at most `octets` as `aun_events.weight` counts (but one row if there is any). Raises
    `Unreadable`.
    """
    sizes = unit.run(
        _PEER_SIZES if sender else _INBOX_SIZES,
        (reader.aid, sender, seq, reader.device, rows + 1) if sender else (reader.aid, seq, reader.device, rows + 1),
    )
    taken = leading(cast("list[tuple[int, int]]", sizes), rows, octets)
    return (_between(unit, reader, taken[0], taken[-1], sender) if taken else []), len(taken) < len(sizes)


def before(
    unit: Unit, reader: Reader, seq: int, *, rows: int, octets: int, sender: str = ""
) -> tuple[list[Message], bool]:
    """The newest rows below `seq` that the reader may see, oldest first; and whether there are older ones.

    Raises `Unreadable`.
    """
    sizes = unit.run(
        _PEER_OLDER if sender else _INBOX_OLDER,
        (reader.aid, sender, seq, reader.device, rows + 1) if sender else (reader.aid, seq, reader.device, rows + 1),
    )
    taken = leading(cast("list[tuple[int, int]]", sizes), rows, octets)
    return (_between(unit, reader, taken[-1], taken[0], sender) if taken else []), len(taken) < len(sizes)


def next_seen(unit: Unit, reader: Reader, seq: int) -> int:
    """The first row above `seq` that the reader may see, 0 without one."""
    found = unit.run(_NEXT_SEEN, (reader.aid, seq, reader.device))
    return cast(int, found[0][0]) if found else 0


def peers(unit: Unit, reader: Reader, *, above: str = "", limit: int = 1 << 31) -> list[Peer]:
    """Every sender with rows in the inbox, by name, from the first above `above`."""
    base = boot(unit, reader)
    acked = cast("dict[str, int]", dict(unit.run(_CURSORS, reader.place())))  # type: ignore[arg-type]
    found = cast("list[tuple[str, int]]", unit.run(_SENDERS, (reader.aid, above, reader.device, limit)))
    return [Peer(sender, last, max(acked.get(sender, base), base)) for sender, last in found]


def covered(unit: Unit, aid: str, above: int, through: int) -> set[str]:
    """The senders of rows in `(above, through]` that are still there."""
    above = max(above, floor(unit, aid))
    return {cast(str, row[0]) for row in unit.run(_COVERED, (aid, above, through))}


def cursor(unit: Unit, reader: Reader, sender: str = "") -> int:
    """Where the reader stands: with one sender (at least at the frozen boot floor), or with the whole inbox."""
    found = unit.run(_CURSOR, (*reader.place(), sender))
    seq = cast(int, found[0][0]) if found else 0
    return max(seq, boot(unit, reader)) if sender else seq


def ack(unit: Unit, reader: Reader, seq: int, sender: str = "") -> int:
    """Move a cursor forward, never back; where it stands now. Clamping to a head is the caller's."""
    [(now,)] = unit.run(_SET_CURSOR, (*reader.place(), sender, max(0, seq)))
    return cast(int, now)


def acked_by_anybody(unit: Unit, aid: str, sender: str, seq: int) -> bool:
    """Has any reader of the inbox acknowledged this row?"""
    return bool(unit.run(_ACKED, (aid, sender, seq)))


def boot(unit: Unit, reader: Reader) -> int:
    """The frozen floor of a reader that fetches by sender; 0 before it was frozen."""
    found = unit.run(_BOOT, reader.place())
    return cast(int, found[0][0]) if found else 0


def frozen(unit: Unit, reader: Reader) -> bool:
    """Has `freeze` been called for this reader?"""
    return bool(unit.run(_BOOT, reader.place()))


def freeze(unit: Unit, reader: Reader) -> int:
    """Copy the reader's inbox cursor into its boot floor, once and for all; the floor."""
    unit.run(_SET_BOOT, (*reader.place(), cursor(unit, reader)))
    return boot(unit, reader)


def bury(unit: Unit, row: Message, kind: str, payload: bytes) -> None:
    """Replace a row by a tombstone at the same number."""
    unit.run(_BURY, (kind, (row.flags & SYNC) | RECALLED, payload, row.aid, row.seq))
    _shrink(unit, row.aid, row.sender, 0, len(row.payload) - len(payload))


def oldest(unit: Unit, rows: int) -> list[tuple[int, Stamp]]:
    """Row ids and times of the oldest rows of all inboxes, oldest first."""
    found = cast("list[tuple[int, int, int]]", unit.run(_OLDEST, (rows,)))
    return [(ident, Stamp(at, mono_us)) for ident, at, mono_us in found]


def expire(unit: Unit, through_id: int) -> int:
    """Remove every row up to this row id and raise the floors of their inboxes; how many."""
    gone = cast("list[tuple[str, str, int, int, int]]", unit.run(_EXPIRING, (through_id,)))
    unit.run(_EXPIRE, (through_id,))
    floors: dict[str, int] = {}
    for aid, sender, seq, count, octets in gone:
        _shrink(unit, aid, sender, count, octets)
        floors[aid] = max(seq, floors.get(aid, 0))
    log = unit.log(INBOX)
    for aid, seq in floors.items():
        log.raise_floor(aid, seq)
        unit.run(_FORGET_CURSORS, (aid, seq))
    return sum(count for _, _, _, count, _ in gone)


def put_spk(unit: Unit, aid: str, spk: Spk, at_ms: int) -> None:
    """Keep the device's newest signed prekey."""
    unit.run(_PUT_SPK, (aid, spk.device, spk.spk_id, spk.spk_pk, spk.signature, spk.made_s, at_ms))


def spks(unit: Unit, aid: str) -> list[Spk]:
    """One signed prekey per device of an AID, the one changed longest ago first."""
    return [Spk(*row) for row in unit.run(_SPKS, (aid,))]  # type: ignore[arg-type]


def spk_sizes(unit: Unit, aid: str) -> list[tuple[str, int, int]]:
    """Of each device of an AID when it published its signed prekey last (ms), and the bytes of the keys."""
    return cast("list[tuple[str, int, int]]", unit.run(_SPK_SIZES, (aid,)))


def put_prekey(unit: Unit, aid: str, device: str, body: bytes, at_ms: int) -> None:
    """Keep the device's newest prekey (first generation), as JSON."""
    unit.run(_PUT_PREKEY, (aid, device, body, at_ms))


def prekeys(unit: Unit, aid: str) -> list[tuple[str, bytes, int]]:
    """Device, JSON and server time (ms) of each prekey of an AID, newest first."""
    return cast("list[tuple[str, bytes, int]]", unit.run(_PREKEYS, (aid,)))


def owe(unit: Unit, owed: Owed) -> None:
    """Remember to answer a message when its task is over."""
    unit.run(_OWE, (owed.task_id, owed.aid, owed.sender, owed.message_id, owed.sealed))


def owed(unit: Unit) -> list[Owed]:
    """Every answer that is still due."""
    found = cast("list[tuple[str, str, str, str, int]]", unit.run(_OWED))
    return [Owed(*row[:4], sealed=bool(row[4])) for row in found]


def paid(unit: Unit, task_id: str) -> None:
    """The answer was sent."""
    unit.run(_PAID, (task_id,))


def _shrink(unit: Unit, aid: str, sender: str, rows: int, octets: int) -> None:
    """So much of this sender is no longer in the inbox."""
    unit.run(_SHRUNK, (rows, octets, aid))
    unit.run(_HELD_LESS, (rows, octets, aid, sender))
    if rows:
        unit.run(_HELD_NONE, (aid, sender))


def _between(unit: Unit, reader: Reader, first: int, last: int, sender: str) -> list[Message]:
    if sender:
        found = unit.run(_PEER_ROWS, (reader.aid, sender, first, last, reader.device))
    else:
        found = unit.run(_INBOX_ROWS, (reader.aid, first, last, reader.device))
    rows = [_message(row) for row in found]
    bad = [row.seq for row in rows if not is_object(row.payload)]
    if bad:
        raise Unreadable(partial(_take_out, aid=reader.aid, seqs=bad))
    return rows


def _take_out(unit: Unit, aid: str, seqs: Sequence[int]) -> int:
    """Remove rows that cannot be read and declare them lost; their numbers stay empty. How many there still were."""
    count = 0
    for seq in seqs:
        for sender, octets in cast("list[tuple[str, int]]", unit.run(_TAKE_OUT, (aid, seq))):
            _shrink(unit, aid, sender, 1, octets)
            lose(unit, INBOX, aid, seq)
            count += 1
    return count


def _message(row: Iterable[object]) -> Message:
    aid, seq, sender, device, recipient, message_id, kind, devices, flags, sent_ms, at, mono_us, payload = cast(
        "tuple[str, int, str, str, str, str, str, str, int, int, int, int, bytes]", tuple(row)
    )
    return Message(
        aid=aid,
        seq=seq,
        sender=sender,
        sender_device=device,
        recipient=recipient,
        message_id=message_id,
        kind=kind,
        devices=tuple(devices.split("\n")[1:-1]) if devices else (),
        flags=flags,
        sent_ms=sent_ms,
        at=Stamp(at, mono_us),
        payload=payload,
    )
