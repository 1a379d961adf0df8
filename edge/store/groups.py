# ruff: noqa: S608  the composed parts are constants of this module
"""Tables of groups: what a group is, who is in it, who was, who may not speak or hear (node.db).

A group's key is its AID, `<base>.<issuer>`; the row stays when the group is dissolved, so the name is never used
again. Times are wall ms because the wire shows them. Messages, joining and keys have modules of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from edge.contract.store import Unit
from edge.store.migration import statements

ACTIVE, SUSPENDED, DISSOLVED = "active", "suspended", "dissolved"
BAN, BLOCK = "ban", "block"

_GROUP = """CREATE TABLE group_record (gid TEXT PRIMARY KEY, name TEXT NOT NULL, owner TEXT NOT NULL,
    creator TEXT NOT NULL, visibility TEXT NOT NULL, status TEXT NOT NULL, description TEXT NOT NULL,
    avatar TEXT NOT NULL, metadata BLOB NOT NULL, pending BLOB NOT NULL, members INTEGER NOT NULL,
    epoch INTEGER NOT NULL, legacy_epoch INTEGER NOT NULL, create_key TEXT NOT NULL, created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL) STRICT"""
_MEMBER = """CREATE TABLE group_member (gid TEXT NOT NULL, aid TEXT NOT NULL, role TEXT NOT NULL, kind TEXT NOT NULL,
    joined_ms INTEGER NOT NULL, join_seq INTEGER NOT NULL, join_event INTEGER NOT NULL, online TEXT NOT NULL,
    work TEXT NOT NULL, status_ms INTEGER NOT NULL, said_ms INTEGER NOT NULL, said_kind TEXT NOT NULL,
    PRIMARY KEY (gid, aid)) STRICT, WITHOUT ROWID"""
_LEAVER = """CREATE TABLE group_leaver (gid TEXT NOT NULL, aid TEXT NOT NULL, join_event INTEGER NOT NULL,
    event INTEGER NOT NULL, at_ms INTEGER NOT NULL, PRIMARY KEY (gid, aid)) STRICT, WITHOUT ROWID"""
_SHUT = """CREATE TABLE group_shut (gid TEXT NOT NULL, what TEXT NOT NULL, subject TEXT NOT NULL, by TEXT NOT NULL,
    reason TEXT NOT NULL, until_ms INTEGER NOT NULL, created_ms INTEGER NOT NULL, PRIMARY KEY (gid, what, subject))
    STRICT, WITHOUT ROWID"""
_SETTING = """CREATE TABLE group_setting (gid TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, by TEXT NOT NULL,
    updated_ms INTEGER NOT NULL, PRIMARY KEY (gid, key)) STRICT, WITHOUT ROWID"""
_READ = """CREATE TABLE group_read (aid TEXT NOT NULL, gid TEXT NOT NULL, topic TEXT NOT NULL, device TEXT NOT NULL,
    message_id TEXT NOT NULL, place INTEGER NOT NULL, updated_ms INTEGER NOT NULL,
    PRIMARY KEY (aid, gid, topic, device)) STRICT, WITHOUT ROWID"""

MIGRATIONS = [
    statements(
        "node",
        "groups-001",
        _GROUP,
        "CREATE UNIQUE INDEX group_by_create_key ON group_record (create_key) WHERE create_key <> ''",
        "CREATE INDEX group_by_creator ON group_record (creator)",
        _MEMBER,
        "CREATE INDEX group_member_aid ON group_member (aid)",
        _LEAVER,
        "CREATE INDEX group_leaver_aid ON group_leaver (aid)",
        _SHUT,
        _SETTING,
        _READ,
    )
]

_G = """gid, name, owner, creator, visibility, status, description, avatar, metadata, pending, members, epoch,
    legacy_epoch, created_ms, updated_ms"""
_M = "gid, aid, role, kind, joined_ms, join_seq, join_event, online, work, status_ms, said_ms, said_kind"
_GROUP_COLUMNS = ", ".join(f"g.{name.strip()}" for name in _G.split(","))
_MEMBER_COLUMNS = ", ".join(f"m.{name.strip()}" for name in _M.split(","))
_MARKS = ", ".join("?" * 16)
_ADD = f"INSERT INTO group_record ({_G}, create_key) VALUES ({_MARKS})"
_FIND = f"SELECT {_G} FROM group_record WHERE gid = ?"
_BY_KEY = f"SELECT {_G} FROM group_record WHERE create_key = ?"
_SEARCH = f"""SELECT {_G} FROM group_record WHERE visibility = 'public' AND status = 'active'
    AND (name LIKE ? ESCAPE '\\' OR gid LIKE ? ESCAPE '\\') ORDER BY members DESC, gid LIMIT ?"""
_OF = f"""SELECT {_GROUP_COLUMNS}, {_MEMBER_COLUMNS} FROM group_member m JOIN group_record g ON g.gid = m.gid
    WHERE m.aid = ? AND g.status <> 'dissolved' ORDER BY g.updated_ms DESC, g.gid LIMIT ?"""
_COUNT_OF = """SELECT count(*) FROM group_member m JOIN group_record g ON g.gid = m.gid
    WHERE m.aid = ? AND g.status <> 'dissolved'"""
_MADE_BY = "SELECT count(*), count(*) FILTER (WHERE status <> 'dissolved') FROM group_record WHERE creator = ?"
_PUT_MEMBER = f"INSERT INTO group_member ({_M}) VALUES (?, ?, ?, ?, ?, ?, ?, '', '', 0, 0, '')"
_COUNTED = "UPDATE group_record SET members = members + ?, epoch = epoch + 1, updated_ms = ? WHERE gid = ?"
_MEMBER_OF = f"SELECT {_M} FROM group_member WHERE gid = ? AND aid = ?"
_RANK = "CASE role WHEN 'owner' THEN 0 WHEN 'admin' THEN 1 ELSE 2 END"
_MEMBERS = (
    f"SELECT {_M} FROM group_member WHERE gid = ? AND (? = '' OR role = ?) ORDER BY {_RANK}, aid LIMIT ? OFFSET ?"
)
_MEMBER_AIDS = "SELECT aid FROM group_member WHERE gid = ? ORDER BY aid"
_COUNT_MEMBERS = "SELECT count(*) FROM group_member WHERE gid = ? AND (? = '' OR role = ?)"
_ROLE = "UPDATE group_member SET role = ? WHERE gid = ? AND aid = ?"
_STATUS = "UPDATE group_member SET online = ?, work = ?, status_ms = ? WHERE gid = ? AND aid = ?"
_SAID = "UPDATE group_member SET said_ms = ?, said_kind = ? WHERE gid = ? AND aid = ?"
_DROP_MEMBER = "DELETE FROM group_member WHERE gid = ? AND aid = ?"
_LEFT = """INSERT OR REPLACE INTO group_leaver (gid, aid, join_event, event, at_ms) VALUES (?, ?, ?, ?, ?)"""
_LEAVER_OF = "SELECT gid, aid, join_event, event FROM group_leaver WHERE gid = ? AND aid = ?"
_LEAVERS = "SELECT gid, aid, join_event, event FROM group_leaver WHERE aid = ? ORDER BY gid"
_FORGET_LEAVER = "DELETE FROM group_leaver WHERE gid = ? AND aid = ?"
_OLD_LEAVERS = "SELECT 1 FROM group_leaver WHERE at_ms < ? LIMIT 1"
_FORGET_LEAVERS = "DELETE FROM group_leaver WHERE at_ms < ? RETURNING gid, aid"
_SHUT_COLUMNS = "gid, what, subject, by, reason, until_ms, created_ms"
_PUT_SHUT = f"INSERT OR REPLACE INTO group_shut ({_SHUT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
_OPEN = "DELETE FROM group_shut WHERE gid = ? AND what = ? AND subject = ? RETURNING until_ms = 0 OR until_ms > ?"
_FORGET_SHUTS = "DELETE FROM group_shut WHERE gid = ? AND until_ms <> 0 AND until_ms <= ?"
_SHUTS = f"""SELECT {_SHUT_COLUMNS} FROM group_shut WHERE gid = ? AND what = ? AND (until_ms = 0 OR until_ms > ?)
    ORDER BY created_ms, subject"""
_IS_SHUT = """SELECT 1 FROM group_shut WHERE gid = ? AND what = ? AND subject = ?
    AND (until_ms = 0 OR until_ms > ?)"""
_PUT_SETTING = """INSERT OR REPLACE INTO group_setting (gid, key, value, by, updated_ms) VALUES (?, ?, ?, ?, ?)"""
_DROP_SETTING = "DELETE FROM group_setting WHERE gid = ? AND key = ?"
_SETTINGS = "SELECT key, value, by, updated_ms FROM group_setting WHERE gid = ? ORDER BY key"
_CLEAR = tuple(f"DELETE FROM {table} WHERE gid = ?" for table in ("group_shut", "group_setting"))
_SETTING_OF = "SELECT key, value, by, updated_ms FROM group_setting WHERE gid = ? AND key = ?"
_PUT_READ = """INSERT OR REPLACE INTO group_read (aid, gid, topic, device, message_id, place, updated_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_READS = """SELECT gid, topic, device, message_id, place, updated_ms FROM group_read WHERE aid = ? AND device IN ('', ?)
    ORDER BY gid, topic, device"""
_COUNT_READS = "SELECT count(*) FROM group_read WHERE aid = ?"


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One group. `epoch` changes with its members; `legacy_epoch` is the first SDK's, moved by its own rotations.

    `metadata` and `pending` (an owner transfer that waits for the new owner, empty without one) are JSON text.
    """

    gid: str
    name: str
    owner: str
    creator: str
    visibility: str
    status: str = ACTIVE
    description: str = ""
    avatar: str = ""
    metadata: bytes = b"{}"
    pending: bytes = b""
    members: int = 0
    epoch: int = 0
    legacy_epoch: int = 0
    created_ms: int
    updated_ms: int


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody in a group. `join_seq`, `join_event`: the heads of both logs just before they came in."""

    gid: str
    aid: str
    role: str
    kind: str
    joined_ms: int
    join_seq: int
    join_event: int
    online: str = ""
    work: str = ""
    status_ms: int = 0
    said_ms: int = 0
    said_kind: str = ""


class Leaver(msgspec.Struct, frozen=True):
    """Somebody who was in a group, and the event that ended it: up to there they may still read events."""

    gid: str
    aid: str
    join_event: int
    event: int


class Shut(msgspec.Struct, frozen=True, kw_only=True):
    """A ban (`what` is BAN: no speaking, no joining) or a block (no hearing). `until_ms` 0 has no end."""

    gid: str
    what: str
    subject: str
    by: str
    reason: str = ""
    until_ms: int = 0
    created_ms: int


class Setting(msgspec.Struct, frozen=True):
    """One setting; `value` is JSON text."""

    key: str
    value: bytes
    by: str
    updated_ms: int


class Read(msgspec.Struct, frozen=True):
    """How far a topic was read: by one device, or (device "") by any. `place` is the message's number, 0 unknown."""

    gid: str
    topic: str
    device: str
    message_id: str
    place: int
    updated_ms: int


# -- groups -----------------------------------------------------------------------------------------------------------


def add(unit: Unit, group: Group, create_key: str = "") -> None:
    """A new group. `create_key` makes a repeated creation the same one; "" does not."""
    unit.run(_ADD, (*msgspec.structs.astuple(group), create_key))


def find(unit: Unit, gid: str) -> Group | None:
    """A group, dissolved or not."""
    found = unit.run(_FIND, (gid,))
    return _group(found[0]) if found else None


def by_create_key(unit: Unit, key: str) -> Group | None:
    """The group that was created under this key."""
    found = unit.run(_BY_KEY, (key,))
    return _group(found[0]) if found else None


def owner(unit: Unit, gid: str) -> str:
    """Who owns a group that is not dissolved; "" otherwise."""
    found = find(unit, gid)
    return found.owner if found is not None and found.status != DISSOLVED else ""


def change(unit: Unit, gid: str, now_ms: int, **fields: object) -> Group:
    """Change columns of a group; how it is now."""
    if not fields.keys() <= set(Group.__struct_fields__) - {"gid"}:
        raise ValueError(f"no such column: {sorted(fields)}")
    sets = "".join(f", {name} = ?" for name in fields)
    unit.run(f"UPDATE group_record SET updated_ms = ?{sets} WHERE gid = ?", (now_ms, *fields.values(), gid))
    found = find(unit, gid)
    assert found is not None  # noqa: S101  the caller has just read it in this unit
    return found


def of(unit: Unit, aid: str, limit: int) -> list[tuple[Group, Member]]:
    """The groups somebody is in, most lately changed first."""
    width = len(Group.__struct_fields__)
    return [(_group(row[:width]), _member(row[width:])) for row in unit.run(_OF, (aid, limit))]


def count_of(unit: Unit, aid: str) -> int:
    """How many groups somebody is in."""
    return cast(int, unit.run(_COUNT_OF, (aid,))[0][0])


def made_by(unit: Unit, aid: str) -> tuple[int, int]:
    """How many groups somebody ever created, and how many of them still exist."""
    [found] = cast("list[tuple[int, int]]", unit.run(_MADE_BY, (aid,)))
    return found


def search(unit: Unit, text: str, limit: int) -> list[Group]:
    """Active public groups with this text in their name or AID, the largest first."""
    like = "%" + text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    return [_group(row) for row in unit.run(_SEARCH, (like, like, limit))]


# -- members ----------------------------------------------------------------------------------------------------------


def join(unit: Unit, member: Member) -> None:
    """Somebody comes in: counted, and a new epoch."""
    unit.run(_PUT_MEMBER, msgspec.structs.astuple(member)[:7])
    unit.run(_FORGET_LEAVER, (member.gid, member.aid))
    unit.run(_COUNTED, (1, member.joined_ms, member.gid))


def leave(unit: Unit, member: Member, event: int, now_ms: int) -> None:
    """Somebody goes, by this event: counted, and a new epoch."""
    unit.run(_DROP_MEMBER, (member.gid, member.aid))
    unit.run(_LEFT, (member.gid, member.aid, member.join_event, event, now_ms))
    unit.run(_COUNTED, (-1, now_ms, member.gid))


def member(unit: Unit, gid: str, aid: str) -> Member | None:
    """Somebody's membership."""
    found = unit.run(_MEMBER_OF, (gid, aid))
    return _member(found[0]) if found else None


def members(unit: Unit, gid: str, *, role: str = "", limit: int = 1 << 31, offset: int = 0) -> list[Member]:
    """Members of a role or all, owner first, then admins, each by AID."""
    return [_member(row) for row in unit.run(_MEMBERS, (gid, role, role, limit, offset))]


def member_aids(unit: Unit, gid: str) -> list[str]:
    """The AIDs of all members, sorted."""
    return [cast(str, row[0]) for row in unit.run(_MEMBER_AIDS, (gid,))]


def count_members(unit: Unit, gid: str, role: str = "") -> int:
    """How many members of a role, or at all."""
    return cast(int, unit.run(_COUNT_MEMBERS, (gid, role, role))[0][0])


def set_role(unit: Unit, gid: str, aid: str, role: str) -> None:
    """Give a member another role."""
    unit.run(_ROLE, (role, gid, aid))


def set_status(unit: Unit, gid: str, aid: str, online: str, work: str, now_ms: int) -> None:
    """What a member says about themselves."""
    unit.run(_STATUS, (online, work, now_ms, gid, aid))


def said(unit: Unit, gid: str, aid: str, kind: str, now_ms: int) -> None:
    """A member has sent a message whose payload is of this type."""
    unit.run(_SAID, (now_ms, kind, gid, aid))


def leaver(unit: Unit, gid: str, aid: str) -> Leaver | None:
    """Somebody's departure, while it is remembered."""
    found = cast("list[tuple[Any, ...]]", unit.run(_LEAVER_OF, (gid, aid)))
    return Leaver(*found[0]) if found else None


def departures(unit: Unit, aid: str) -> list[Leaver]:
    """The groups somebody was in, while that is remembered."""
    return [Leaver(*cast("tuple[Any, ...]", row)) for row in unit.run(_LEAVERS, (aid,))]


def has_old_departures(unit: Unit, before_ms: int) -> bool:
    """Is a departure remembered that is older than this?"""
    return bool(unit.run(_OLD_LEAVERS, (before_ms,)))


def forget_departures(unit: Unit, before_ms: int) -> list[tuple[str, str]]:
    """Departures older than this are not remembered; group and AID of each."""
    return cast("list[tuple[str, str]]", unit.run(_FORGET_LEAVERS, (before_ms,)))


# -- bans and blocks --------------------------------------------------------------------------------------------------


def shut(unit: Unit, row: Shut) -> None:
    """Ban or block; again replaces."""
    unit.run(_PUT_SHUT, msgspec.structs.astuple(row))


def lift(unit: Unit, gid: str, what: str, subject: str, now_ms: int) -> bool:
    """End a ban or block; whether there was one in force."""
    found = unit.run(_OPEN, (gid, what, subject, now_ms))
    return bool(found and found[0][0])


def forget_shuts(unit: Unit, gid: str, now_ms: int) -> None:
    """Remove the bans of a group that have ended by themselves."""
    unit.run(_FORGET_SHUTS, (gid, now_ms))


def shuts(unit: Unit, gid: str, what: str, now_ms: int) -> list[Shut]:
    """The bans or blocks in force, oldest first."""
    return [_shut(row) for row in unit.run(_SHUTS, (gid, what, now_ms))]


def is_shut(unit: Unit, gid: str, what: str, subject: str, now_ms: int) -> bool:
    """Is somebody banned or blocked now?"""
    return bool(unit.run(_IS_SHUT, (gid, what, subject, now_ms)))


# -- settings ---------------------------------------------------------------------------------------------------------


def put_setting(unit: Unit, gid: str, setting: Setting) -> None:
    """Write one setting."""
    unit.run(_PUT_SETTING, (gid, setting.key, setting.value, setting.by, setting.updated_ms))


def drop_setting(unit: Unit, gid: str, key: str) -> None:
    """Forget one setting."""
    unit.run(_DROP_SETTING, (gid, key))


def settings(unit: Unit, gid: str) -> list[Setting]:
    """Every setting that was written, by key."""
    return [Setting(*cast("tuple[Any, ...]", row)) for row in unit.run(_SETTINGS, (gid,))]


def setting(unit: Unit, gid: str, key: str) -> Setting | None:
    """One setting, if it was written."""
    found = cast("list[tuple[Any, ...]]", unit.run(_SETTING_OF, (gid, key)))
    return Setting(*found[0]) if found else None


def clear(unit: Unit, gid: str) -> None:
    """Forget the bans, blocks and settings of a group that has ended."""
    for statement in _CLEAR:
        unit.run(statement, (gid,))


# -- what was read ----------------------------------------------------------------------------------------------------


def put_read(unit: Unit, aid: str, read: Read) -> None:
    """Keep how far a topic was read."""
    unit.run(_PUT_READ, (aid, *msgspec.structs.astuple(read)))


def reads(unit: Unit, aid: str, device: str) -> list[Read]:
    """The shared positions of an AID and those of one of its devices, by group and topic."""
    return [Read(*cast("tuple[Any, ...]", row)) for row in unit.run(_READS, (aid, device))]


def count_reads(unit: Unit, aid: str) -> int:
    """How many positions are kept for an AID."""
    return cast(int, unit.run(_COUNT_READS, (aid,))[0][0])


def _group(row: Sequence[object]) -> Group:
    return Group(**dict(zip(Group.__struct_fields__, row, strict=True)))  # type: ignore[arg-type]


def _shut(row: Sequence[object]) -> Shut:
    return Shut(**dict(zip(Shut.__struct_fields__, row, strict=True)))  # type: ignore[arg-type]


def _member(row: Sequence[object]) -> Member:
    return Member(**dict(zip(Member.__struct_fields__, row, strict=True)))  # type: ignore[arg-type]
