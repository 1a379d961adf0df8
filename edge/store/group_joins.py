# ruff: noqa: S608  the composed parts are constants of this module
"""Tables of the ways into a group: directed invites, join requests, invite codes (node.db)."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from edge.contract.store import Unit
from edge.store.migration import statements

PENDING, APPROVED, REJECTED, ACCEPTED, REVOKED = "pending", "approved", "rejected", "accepted", "revoked"
CODE_ACTIVE, CODE_REVOKED, CODE_EXPIRED = "active", "revoked", "expired"

_INVITE = """CREATE TABLE group_invite (invite_id TEXT PRIMARY KEY, gid TEXT NOT NULL, invitee TEXT NOT NULL,
    inviter TEXT NOT NULL, kind TEXT NOT NULL, status TEXT NOT NULL, created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID"""
_REQUEST = """CREATE TABLE group_request (gid TEXT NOT NULL, aid TEXT NOT NULL, message TEXT NOT NULL,
    answer TEXT NOT NULL, status TEXT NOT NULL, by TEXT NOT NULL, reason TEXT NOT NULL, created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL, PRIMARY KEY (gid, aid)) STRICT, WITHOUT ROWID"""
_CODE = """CREATE TABLE group_code (code TEXT PRIMARY KEY, gid TEXT NOT NULL, by TEXT NOT NULL,
    until_ms INTEGER NOT NULL, max_uses INTEGER NOT NULL, used INTEGER NOT NULL, revoked INTEGER NOT NULL,
    created_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID"""

MIGRATIONS = [
    statements(
        "node",
        "group-joins-001",
        _INVITE,
        "CREATE INDEX group_invite_invitee ON group_invite (invitee, status)",
        "CREATE INDEX group_invite_gid ON group_invite (gid, invitee)",
        _REQUEST,
        _CODE,
        "CREATE INDEX group_code_gid ON group_code (gid)",
    )
]

_I = "invite_id, gid, invitee, inviter, kind, status, created_ms, updated_ms"
_ADD_INVITE = f"INSERT INTO group_invite ({_I}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_INVITE_BY_ID = f"SELECT {_I} FROM group_invite WHERE invite_id = ?"
_INVITES = f"SELECT {_I} FROM group_invite WHERE gid = ? AND invitee = ? AND status = 'pending' ORDER BY created_ms"
_INVITES_OF = f"SELECT {_I} FROM group_invite WHERE invitee = ? AND status = 'pending' ORDER BY gid, created_ms"
_COUNT_INVITES = "SELECT count(*) FROM group_invite WHERE gid = ? AND status = 'pending'"
_SETTLE = "UPDATE group_invite SET status = ?, updated_ms = ? WHERE invite_id = ?"
_END_INVITES = """UPDATE group_invite SET status = 'revoked', updated_ms = ? WHERE gid = ? AND status = 'pending'
    RETURNING invitee, invite_id, inviter"""
_FORGET_INVITES = "DELETE FROM group_invite WHERE status <> 'pending' AND updated_ms < ?"
_FORGET_ENDED = """DELETE FROM group_invite WHERE gid = ? AND status <> 'pending' AND invite_id NOT IN
    (SELECT invite_id FROM group_invite WHERE gid = ? AND status <> 'pending' ORDER BY updated_ms DESC LIMIT ?)"""
_R = "gid, aid, message, answer, status, by, reason, created_ms, updated_ms"
_PUT_REQUEST = f"INSERT OR REPLACE INTO group_request ({_R}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_REQUEST_OF = f"SELECT {_R} FROM group_request WHERE gid = ? AND aid = ?"
_REQUESTS = f"""SELECT {_R} FROM group_request WHERE gid = ? AND (? = '' OR status = ?) ORDER BY created_ms, aid
    LIMIT ? OFFSET ?"""
_COUNT_REQUESTS = "SELECT count(*) FROM group_request WHERE gid = ? AND (? = '' OR status = ?)"
_FORGET_REQUESTS = "DELETE FROM group_request WHERE status <> 'pending' AND updated_ms < ?"
_C = "code, gid, by, until_ms, max_uses, used, revoked, created_ms"
_ADD_CODE = f"INSERT INTO group_code ({_C}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_CODE_OF = f"SELECT {_C} FROM group_code WHERE code = ?"
_CODES = f"SELECT {_C} FROM group_code WHERE gid = ? ORDER BY created_ms, code"
_USE = "UPDATE group_code SET used = used + 1 WHERE code = ?"
_REVOKE_CODE = "UPDATE group_code SET revoked = 1 WHERE code = ?"
_OLD = """SELECT EXISTS (SELECT 1 FROM group_invite WHERE status <> 'pending' AND updated_ms < ?1)
    OR EXISTS (SELECT 1 FROM group_request WHERE status <> 'pending' AND updated_ms < ?1)
    OR EXISTS (SELECT 1 FROM group_code WHERE until_ms < ?1)"""
_CLEAR = tuple(f"DELETE FROM {table} WHERE gid = ?" for table in ("group_request", "group_code"))
_FORGET_DEAD = "DELETE FROM group_code WHERE gid = ? AND (revoked OR used >= max_uses OR until_ms <= ?)"
_FORGET_CODES = "DELETE FROM group_code WHERE until_ms < ?"


class Invite(msgspec.Struct, frozen=True):
    """One member's invitation of one AID. Ends once: accepted, rejected or revoked."""

    invite_id: str
    gid: str
    invitee: str
    inviter: str
    kind: str
    status: str
    created_ms: int
    updated_ms: int


class Request(msgspec.Struct, frozen=True):
    """Somebody asks to come in; one per AID. `by` reviewed it."""

    gid: str
    aid: str
    message: str
    answer: str
    status: str
    by: str
    reason: str
    created_ms: int
    updated_ms: int


class Code(msgspec.Struct, frozen=True):
    """A code that lets its first `max_uses` users in until `until_ms`."""

    code: str
    gid: str
    by: str
    until_ms: int
    max_uses: int
    used: int
    revoked: int
    created_ms: int

    def status(self, now_ms: int) -> str:
        """`active`, `revoked` or `expired` (also: used up)."""
        if self.revoked:
            return CODE_REVOKED
        return CODE_ACTIVE if self.until_ms > now_ms and self.used < self.max_uses else CODE_EXPIRED


def add_invite(unit: Unit, invite: Invite, keep: int) -> None:
    """Keep an invitation; of the group's ended ones the newest `keep` stay."""
    unit.run(_FORGET_ENDED, (invite.gid, invite.gid, keep))
    unit.run(_ADD_INVITE, msgspec.structs.astuple(invite))


def invite(unit: Unit, invite_id: str) -> Invite | None:
    """An invitation, whatever became of it."""
    found = cast("list[tuple[Any, ...]]", unit.run(_INVITE_BY_ID, (invite_id,)))
    return Invite(*found[0]) if found else None


def invites(unit: Unit, gid: str, invitee: str) -> list[Invite]:
    """Pending invitations of one AID to one group, oldest first."""
    return [Invite(*cast("tuple[Any, ...]", row)) for row in unit.run(_INVITES, (gid, invitee))]


def invites_of(unit: Unit, invitee: str) -> list[Invite]:
    """Every pending invitation of an AID, by group."""
    return [Invite(*cast("tuple[Any, ...]", row)) for row in unit.run(_INVITES_OF, (invitee,))]


def count_invites(unit: Unit, gid: str) -> int:
    """Pending invitations to a group."""
    return cast(int, unit.run(_COUNT_INVITES, (gid,))[0][0])


def settle(unit: Unit, invite_id: str, status: str, now_ms: int) -> None:
    """End an invitation."""
    unit.run(_SETTLE, (status, now_ms, invite_id))


def end_invites(unit: Unit, gid: str, now_ms: int) -> list[tuple[str, str, str]]:
    """Revoke all pending invitations to a group; (invitee, invite id, inviter) of each."""
    return cast("list[tuple[str, str, str]]", unit.run(_END_INVITES, (now_ms, gid)))


def put_request(unit: Unit, request: Request) -> None:
    """Keep a request; the newest of an AID counts."""
    unit.run(_PUT_REQUEST, msgspec.structs.astuple(request))


def request(unit: Unit, gid: str, aid: str) -> Request | None:
    """Somebody's request."""
    found = cast("list[tuple[Any, ...]]", unit.run(_REQUEST_OF, (gid, aid)))
    return Request(*found[0]) if found else None


def requests(unit: Unit, gid: str, status: str, limit: int, offset: int) -> list[Request]:
    """Requests of a status ("" all), oldest first."""
    found = unit.run(_REQUESTS, (gid, status, status, limit, offset))
    return [Request(*cast("tuple[Any, ...]", row)) for row in found]


def count_requests(unit: Unit, gid: str, status: str) -> int:
    """How many requests of a status ("" all)."""
    return cast(int, unit.run(_COUNT_REQUESTS, (gid, status, status))[0][0])


def add_code(unit: Unit, code: Code) -> None:
    """Keep a new code."""
    unit.run(_ADD_CODE, msgspec.structs.astuple(code))


def code(unit: Unit, text: str) -> Code | None:
    """A code, valid or not."""
    found = cast("list[tuple[Any, ...]]", unit.run(_CODE_OF, (text,)))
    return Code(*found[0]) if found else None


def codes(unit: Unit, gid: str) -> list[Code]:
    """The codes of a group, oldest first."""
    return [Code(*cast("tuple[Any, ...]", row)) for row in unit.run(_CODES, (gid,))]


def use(unit: Unit, text: str) -> None:
    """Somebody came in by this code."""
    unit.run(_USE, (text,))


def revoke_code(unit: Unit, text: str) -> None:
    """A code lets nobody in any more."""
    unit.run(_REVOKE_CODE, (text,))


def forget_dead_codes(unit: Unit, gid: str, now_ms: int) -> None:
    """Remove the codes of a group that let nobody in any more."""
    unit.run(_FORGET_DEAD, (gid, now_ms))


def clear(unit: Unit, gid: str) -> None:
    """Forget the requests and codes of a group that has ended."""
    for statement in _CLEAR:
        unit.run(statement, (gid,))


def has_old(unit: Unit, before_ms: int) -> bool:
    """Did anything end before this?"""
    return bool(unit.run(_OLD, (before_ms,))[0][0])


def forget(unit: Unit, before_ms: int) -> None:
    """Remove what ended before this."""
    unit.run(_FORGET_INVITES, (before_ms,))
    unit.run(_FORGET_REQUESTS, (before_ms,))
    unit.run(_FORGET_CODES, (before_ms,))
