# ruff: noqa: S608  the composed parts are constants of this module
"""Tables of group encryption: device prekeys, the signed state and its proposals, rotations of the first generation."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from edge.contract.store import Unit
from edge.store.migration import statements

PENDING, CONFIRMED, SUPERSEDED = "pending", "confirmed", "superseded"
DISTRIBUTING, COMMITTED, ABORTED = "distributing", "committed", "aborted"

_SPK = """CREATE TABLE group_spk (gid TEXT NOT NULL, aid TEXT NOT NULL, device TEXT NOT NULL, spk_id TEXT NOT NULL,
    spk_pk TEXT NOT NULL, signature TEXT NOT NULL, made_s INTEGER NOT NULL, at_ms INTEGER NOT NULL,
    PRIMARY KEY (gid, aid, device)) STRICT, WITHOUT ROWID"""
_PROPOSAL = """CREATE TABLE group_proposal (proposal_id TEXT PRIMARY KEY, gid TEXT NOT NULL, version INTEGER NOT NULL,
    epoch INTEGER NOT NULL, hash TEXT NOT NULL, previous TEXT NOT NULL, snapshot TEXT NOT NULL,
    signature TEXT NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL, status TEXT NOT NULL,
    auto_ms INTEGER NOT NULL, created_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID"""
_STATE = """CREATE TABLE group_state (gid TEXT PRIMARY KEY, proposal_id TEXT NOT NULL, chain TEXT NOT NULL,
    confirmed_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID"""
_ROTATION = """CREATE TABLE group_rotation (gid TEXT NOT NULL, rotation_id TEXT NOT NULL, base INTEGER NOT NULL,
    target INTEGER NOT NULL, reason TEXT NOT NULL, commitment TEXT NOT NULL, expected BLOB NOT NULL,
    required BLOB NOT NULL, acked BLOB NOT NULL, status TEXT NOT NULL, by TEXT NOT NULL, lease_ms INTEGER NOT NULL,
    created_ms INTEGER NOT NULL, PRIMARY KEY (gid, rotation_id)) STRICT, WITHOUT ROWID"""

MIGRATIONS = [
    statements(
        "node",
        "group-keys-001",
        _SPK,
        _PROPOSAL,
        "CREATE INDEX group_proposal_gid ON group_proposal (gid, status, created_ms)",
        "CREATE INDEX group_proposal_due ON group_proposal (auto_ms) WHERE status = 'pending'",
        _STATE,
        _ROTATION,
        "CREATE INDEX group_rotation_id ON group_rotation (rotation_id)",
    )
]

_PUT_SPK = """INSERT OR REPLACE INTO group_spk (gid, aid, device, spk_id, spk_pk, signature, made_s, at_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_SPKS = "SELECT aid, device, spk_id, spk_pk, signature, made_s FROM group_spk WHERE gid = ? ORDER BY aid, device"
_SPK_SIZES = "SELECT aid, device, at_ms, length(spk_pk) + length(signature) FROM group_spk WHERE gid = ?"
_SPKS_OF = """SELECT aid, device, spk_id, spk_pk, signature, made_s FROM group_spk WHERE gid = ? AND aid = ?
    ORDER BY device"""
_DROP_SPKS = "DELETE FROM group_spk WHERE gid = ? AND aid = ?"
_P = """proposal_id, gid, version, epoch, hash, previous, snapshot, signature, actor, reason, status, auto_ms,
    created_ms"""
_ADD_PROPOSAL = f"INSERT INTO group_proposal ({_P}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PROPOSAL_OF = f"SELECT {_P} FROM group_proposal WHERE proposal_id = ?"
_PENDING_OF = f"""SELECT {_P} FROM group_proposal WHERE gid = ? AND status = 'pending'
    ORDER BY created_ms DESC, proposal_id LIMIT 1"""
_COUNT_PENDING = "SELECT count(*) FROM group_proposal WHERE gid = ? AND status = 'pending'"
_MARK = "UPDATE group_proposal SET status = ? WHERE proposal_id = ?"
_SUPERSEDE = "UPDATE group_proposal SET status = 'superseded' WHERE gid = ? AND status = 'pending'"
_DUE = f"SELECT {_P} FROM group_proposal WHERE status = 'pending' AND auto_ms <= ? ORDER BY auto_ms LIMIT ?"
_NEXT_DUE = "SELECT min(auto_ms) FROM group_proposal WHERE status = 'pending'"
_PUT_STATE = "INSERT OR REPLACE INTO group_state (gid, proposal_id, chain, confirmed_ms) VALUES (?, ?, ?, ?)"
_STATE_OF = "SELECT proposal_id, chain, confirmed_ms FROM group_state WHERE gid = ?"
_FORGET_SETTLED = """DELETE FROM group_proposal WHERE status <> 'pending' AND created_ms < ?
    AND proposal_id NOT IN (SELECT proposal_id FROM group_state)"""
_KEY_TABLES = ("group_spk", "group_proposal", "group_state", "group_rotation")
_CLEAR = tuple(f"DELETE FROM {table} WHERE gid = ?" for table in _KEY_TABLES)
_R = """gid, rotation_id, base, target, reason, commitment, expected, required, acked, status, by, lease_ms,
    created_ms"""
_PUT_ROTATION = f"INSERT OR REPLACE INTO group_rotation ({_R}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ROTATION_BY_ID = f"SELECT {_R} FROM group_rotation WHERE rotation_id = ? ORDER BY created_ms DESC LIMIT 1"
_LAST_ROTATION = f"""SELECT {_R} FROM group_rotation WHERE gid = ? AND status = ?
    ORDER BY target DESC, created_ms DESC LIMIT 1"""
_FORGET_ROTATIONS = """DELETE FROM group_rotation WHERE gid = ? AND rotation_id NOT IN (SELECT rotation_id
    FROM group_rotation WHERE gid = ? ORDER BY created_ms DESC, target DESC LIMIT ?)"""


class GroupSpk(msgspec.Struct, frozen=True):
    """A device's signed prekey for one group. `made_s` is the client's own time, seconds."""

    aid: str
    device: str
    spk_id: str
    spk_pk: str
    signature: str
    made_s: int


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A signed state that somebody put forward; the strings are theirs. `auto_ms`: then it confirms itself."""

    proposal_id: str
    gid: str
    version: int
    epoch: int
    hash: str
    previous: str
    snapshot: str
    signature: str
    actor: str
    reason: str = ""
    status: str = PENDING
    auto_ms: int
    created_ms: int


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The confirmed state of a group: the proposal that won, and the chain of all hashes up to it."""

    proposal: Proposal
    chain: str
    confirmed_ms: int


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the first generation's group key; the lists are JSON text of AIDs."""

    gid: str
    rotation_id: str
    base: int
    target: int
    reason: str
    commitment: str
    expected: bytes
    required: bytes
    acked: bytes = b"[]"
    status: str = DISTRIBUTING
    by: str
    lease_ms: int
    created_ms: int


def put_spk(unit: Unit, gid: str, spk: GroupSpk, now_ms: int) -> None:
    """Keep a device's prekey; the newest one counts."""
    unit.run(_PUT_SPK, (gid, *msgspec.structs.astuple(spk), now_ms))


def spks(unit: Unit, gid: str) -> list[GroupSpk]:
    """The prekeys of a group's devices, by AID and device."""
    return [GroupSpk(*cast("tuple[Any, ...]", row)) for row in unit.run(_SPKS, (gid,))]


def spks_of(unit: Unit, gid: str, aid: str) -> list[GroupSpk]:
    """The prekeys of one member's devices, by device."""
    return [GroupSpk(*cast("tuple[Any, ...]", row)) for row in unit.run(_SPKS_OF, (gid, aid))]


def spk_sizes(unit: Unit, gid: str) -> list[tuple[str, str, int, int]]:
    """Of each device (AID and name) when it published its prekey last (ms), and the bytes of its keys."""
    return cast("list[tuple[str, str, int, int]]", unit.run(_SPK_SIZES, (gid,)))


def drop_spks(unit: Unit, gid: str, aid: str) -> None:
    """Forget the prekeys of an AID in a group."""
    unit.run(_DROP_SPKS, (gid, aid))


def propose(unit: Unit, proposal: Proposal) -> None:
    """Keep a new proposal."""
    unit.run(_ADD_PROPOSAL, msgspec.structs.astuple(proposal))


def proposal(unit: Unit, proposal_id: str) -> Proposal | None:
    """A proposal, whatever became of it."""
    found = unit.run(_PROPOSAL_OF, (proposal_id,))
    return _proposal(found[0]) if found else None


def pending(unit: Unit, gid: str) -> Proposal | None:
    """The newest proposal that waits."""
    found = unit.run(_PENDING_OF, (gid,))
    return _proposal(found[0]) if found else None


def count_pending(unit: Unit, gid: str) -> int:
    """How many proposals wait."""
    return cast(int, unit.run(_COUNT_PENDING, (gid,))[0][0])


def confirm(unit: Unit, won: Proposal, chain: str, now_ms: int) -> None:
    """This proposal is the state now; whatever else waits is superseded."""
    unit.run(_SUPERSEDE, (won.gid,))
    unit.run(_MARK, (CONFIRMED, won.proposal_id))
    unit.run(_PUT_STATE, (won.gid, won.proposal_id, chain, now_ms))


def supersede(unit: Unit, proposal_id: str) -> None:
    """This proposal can never win."""
    unit.run(_MARK, (SUPERSEDED, proposal_id))


def due(unit: Unit, now_ms: int, limit: int) -> list[Proposal]:
    """Proposals whose time to confirm themselves has come."""
    return [_proposal(row) for row in unit.run(_DUE, (now_ms, limit))]


def next_due(unit: Unit) -> int | None:
    """When the next proposal confirms itself."""
    return cast("int | None", unit.run(_NEXT_DUE)[0][0])


def state(unit: Unit, gid: str) -> State | None:
    """The confirmed state, if there is one."""
    for proposal_id, chain, confirmed_ms in unit.run(_STATE_OF, (gid,)):
        found = proposal(unit, cast(str, proposal_id))
        if found is not None:
            return State(proposal=found, chain=cast(str, chain), confirmed_ms=cast(int, confirmed_ms))
    return None


def forget_settled(unit: Unit, before_ms: int) -> None:
    """Remove proposals that were settled long ago and are not the state."""
    unit.run(_FORGET_SETTLED, (before_ms,))


def clear(unit: Unit, gid: str) -> None:
    """Forget the keys, states and rotations of a group that has ended."""
    for statement in _CLEAR:
        unit.run(statement, (gid,))


def put_rotation(unit: Unit, rotation: Rotation, keep: int) -> None:
    """Keep a rotation as it is now; of each group the newest `keep` stay."""
    unit.run(_PUT_ROTATION, msgspec.structs.astuple(rotation))
    unit.run(_FORGET_ROTATIONS, (rotation.gid, rotation.gid, keep))


def rotation(unit: Unit, rotation_id: str) -> Rotation | None:
    """A rotation by its id."""
    found = unit.run(_ROTATION_BY_ID, (rotation_id,))
    return _rotation(found[0]) if found else None


def last_rotation(unit: Unit, gid: str, status: str) -> Rotation | None:
    """The newest rotation of a group in a status."""
    found = unit.run(_LAST_ROTATION, (gid, status))
    return _rotation(found[0]) if found else None


def _proposal(row: tuple[object, ...]) -> Proposal:
    return Proposal(**dict(zip(Proposal.__struct_fields__, row, strict=True)))  # type: ignore[arg-type]


def _rotation(row: tuple[object, ...]) -> Rotation:
    return Rotation(**dict(zip(Rotation.__struct_fields__, row, strict=True)))  # type: ignore[arg-type]
