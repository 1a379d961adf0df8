"""Group keys of the first generation: one shared key per epoch, changed by a leader (spec aun-services §5.1, §1.3).

The secrets travel between members as messages. The node keeps the committed epoch and one open rotation with a lease,
and lets exactly one rotation follow an epoch.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from edge.contract.errors import InvalidParams, NotFound
from edge.contract.op import Call, Params, op
from edge.contract.store import Unit
from edge.contract.wire import decode, dumps
from edge.protocol.group_rules import ADMIN, OWNER
from edge.services.group import limits as bounds
from edge.services.group.lifecycle import ADMIN_ERRORS, GROUP_ERRORS
from edge.services.group.room import InGroup, Seat, Service, caller
from edge.store import group_keys, groups
from edge.store.group_keys import ABORTED, COMMITTED, DISTRIBUTING, Rotation

LEASE_MS = 60_000
MAX_EPOCH = (1 << 31) - 1


class EpochAnswer(msgspec.Struct, kw_only=True):
    """The committed epoch (0 before the first), the rotation under way, the last one committed."""

    group_id: str
    epoch: int
    committed_epoch: int
    owner_aid: str
    pending_rotation: dict[str, Any] | None
    committed_rotation: dict[str, Any] | None
    recovery_candidates: list[str]


class Begin(InGroup, frozen=True, kw_only=True):
    """From which epoch to which, with which key, for whom."""

    base_epoch: int
    target_epoch: int
    rotation_id: str
    reason: str = ""
    key_commitment: str
    expected_members: tuple[str, ...] = ()
    required_acks: tuple[str, ...] = ()
    lease_ms: int = LEASE_MS


class Named(Params, frozen=True, kw_only=True):
    """Which rotation; its id says which group."""

    rotation_id: str
    key_commitment: str = ""
    reason: str = ""
    lease_ms: int = LEASE_MS


class Rotate(InGroup, frozen=True, kw_only=True):
    """The epoch to step on from, when it is still that one."""

    current_epoch: int | None = None


class Turned(msgspec.Struct, kw_only=True):
    """Whether it happened, and the committed epoch now (0 before the first).

    `reason` says why not, `rotation` is the one in the way or the one asked for.
    """

    success: bool
    epoch: int
    committed_epoch: int
    reason: str | UnsetType = UNSET
    rotation: dict[str, Any] | UnsetType = UNSET


class LegacyService(Service):
    """Epochs of the first generation."""

    @op("group.e2ee.get_epoch", scope="group:read", wire={"aun": ("group.e2ee.get_epoch",)}, raises=GROUP_ERRORS)
    async def get_epoch(self, call: Call[InGroup]) -> EpochAnswer:
        """The committed epoch and what is under way."""

        def look(unit: Unit) -> EpochAnswer:
            seat, now_ms = self._room.enter(unit, call), unit.wall_us // 1000
            pending = group_keys.last_rotation(unit, seat.gid, DISTRIBUTING)
            last = group_keys.last_rotation(unit, seat.gid, COMMITTED)
            leaders = [*groups.members(unit, seat.gid, role=OWNER), *groups.members(unit, seat.gid, role=ADMIN)]
            return EpochAnswer(
                group_id=seat.gid,
                epoch=seat.group.legacy_epoch,
                committed_epoch=seat.group.legacy_epoch,
                owner_aid=seat.group.owner,
                pending_rotation=_shown(pending, now_ms) if pending is not None else None,
                committed_rotation=_shown(last, now_ms) if last is not None else None,
                recovery_candidates=[one.aid for one in leaders],
            )

        return await self._room.node.read(look)

    @op(
        "group.e2ee.begin_rotation",
        scope="group:write",
        wire={"aun": ("group.e2ee.begin_rotation",)},
        raises=ADMIN_ERRORS,
        writes=True,
    )
    def begin_rotation(self, call: Call[Begin], unit: Unit) -> Turned:
        """Open a rotation; one at a time, on the committed epoch, for the members there are."""
        asked, now_ms = call.params, unit.wall_us // 1000
        seat = self._room.enter(unit, call, ADMIN)
        self._fits(bounds.READ_NAME, asked.rotation_id, asked.reason, asked.key_commitment)
        if not asked.rotation_id or not asked.key_commitment:
            raise InvalidParams("rotation_id and key_commitment must not be empty")
        if not 0 <= asked.base_epoch < asked.target_epoch <= MAX_EPOCH:
            raise InvalidParams("target_epoch must be above base_epoch")
        if len(asked.expected_members) + len(asked.required_acks) > 2 * self._limits[bounds.MEMBERS]:
            raise InvalidParams("expected_members names more than a group can have")
        known = group_keys.rotation(unit, asked.rotation_id)
        if known is not None:
            return self._turned(seat, known, now_ms, "" if _mine(known, seat) else "rotation_id_taken")
        pending = group_keys.last_rotation(unit, seat.gid, DISTRIBUTING)
        if pending is not None and pending.lease_ms > now_ms:
            return self._turned(seat, pending, now_ms, "rotation_pending")
        if asked.base_epoch != seat.group.legacy_epoch or asked.target_epoch != asked.base_epoch + 1:
            return _refused(seat, "epoch_mismatch")
        members = groups.member_aids(unit, seat.gid)
        if asked.expected_members and sorted(set(asked.expected_members)) != members:
            return _refused(seat, "expected_members_mismatch")
        if pending is not None:
            self._keep(unit, msgspec.structs.replace(pending, status=ABORTED))
        made = Rotation(
            gid=seat.gid,
            rotation_id=asked.rotation_id,
            base=asked.base_epoch,
            target=asked.target_epoch,
            reason=asked.reason,
            commitment=asked.key_commitment,
            expected=dumps(members),
            required=dumps(sorted(set(asked.required_acks))),
            by=seat.aid,
            lease_ms=now_ms + self._lease(asked.lease_ms),
            created_ms=now_ms,
        )
        self._keep(unit, made)
        return self._turned(seat, made, now_ms, "")

    @op(
        "group.e2ee.ack_rotation_key",
        scope="group:write",
        wire={"aun": ("group.e2ee.ack_rotation_key",)},
        raises=(*GROUP_ERRORS, NotFound),
        writes=True,
    )
    def ack_rotation_key(self, call: Call[Named], unit: Unit) -> Turned:
        """Say that one has the key; also after the commit."""
        seat, found, now_ms = self._find(unit, call)
        if call.params.key_commitment != found.commitment:
            return self._turned(seat, found, now_ms, "key_commitment_mismatch")
        if found.status == ABORTED:
            return self._turned(seat, found, now_ms, "rotation_aborted")
        acked = sorted({*decode(found.acked, list[str]), seat.aid})
        self._keep(unit, msgspec.structs.replace(found, acked=dumps(acked)))
        return self._turned(seat, found, now_ms, "")

    @op(
        "group.e2ee.commit_rotation",
        scope="group:write",
        wire={"aun": ("group.e2ee.commit_rotation",)},
        raises=(*ADMIN_ERRORS, NotFound),
        writes=True,
    )
    def commit_rotation(self, call: Call[Named], unit: Unit) -> Turned:
        """Make the new key the group's; a second commit of the same rotation says so again."""
        seat, found, now_ms = self._find(unit, call, ADMIN)
        if found.status == COMMITTED:
            return self._turned(seat, found, now_ms, "")
        if found.status == ABORTED or found.lease_ms <= now_ms:
            return self._turned(seat, found, now_ms, "rotation_expired")
        if found.base != seat.group.legacy_epoch:
            return self._turned(seat, found, now_ms, "epoch_mismatch")
        if decode(found.expected, list[str]) != groups.member_aids(unit, seat.gid):
            return self._turned(seat, found, now_ms, "expected_members_mismatch")
        if set(decode(found.required, list[str])) - set(decode(found.acked, list[str])):
            return self._turned(seat, found, now_ms, "acks_missing")
        done = msgspec.structs.replace(found, status=COMMITTED)
        self._keep(unit, done)
        group = groups.change(unit, seat.gid, now_ms, legacy_epoch=found.target)
        return self._turned(Seat(group, seat.member), done, now_ms, "")

    @op(
        "group.e2ee.heartbeat_rotation",
        scope="group:write",
        wire={"aun": ("group.e2ee.heartbeat_rotation",)},
        raises=(*ADMIN_ERRORS, NotFound),
        writes=True,
    )
    def heartbeat_rotation(self, call: Call[Named], unit: Unit) -> Turned:
        """Keep one's open rotation a while longer."""
        seat, found, now_ms = self._find(unit, call, ADMIN)
        if found.status != DISTRIBUTING or found.by != seat.aid:
            return self._turned(seat, found, now_ms, "not_distributing")
        longer = msgspec.structs.replace(found, lease_ms=now_ms + self._lease(call.params.lease_ms))
        self._keep(unit, longer)
        return self._turned(seat, longer, now_ms, "")

    @op(
        "group.e2ee.abort_rotation",
        scope="group:write",
        wire={"aun": ("group.e2ee.abort_rotation",)},
        raises=(*ADMIN_ERRORS, NotFound),
        writes=True,
    )
    def abort_rotation(self, call: Call[Named], unit: Unit) -> Turned:
        """End an open rotation without a new key."""
        seat, found, now_ms = self._find(unit, call, ADMIN)
        if found.status == COMMITTED:
            return self._turned(seat, found, now_ms, "already_committed")
        ended = msgspec.structs.replace(found, status=ABORTED)
        self._keep(unit, ended)
        return self._turned(seat, ended, now_ms, "")

    @op(
        "group.e2ee.rotate_epoch",
        scope="group:write",
        wire={"aun": ("group.e2ee.rotate_epoch",)},
        raises=ADMIN_ERRORS,
        writes=True,
    )
    def rotate_epoch(self, call: Call[Rotate], unit: Unit) -> Turned:
        """Step to the next epoch in one call, when nothing else is under way."""
        asked, now_ms = call.params, unit.wall_us // 1000
        seat = self._room.enter(unit, call, ADMIN)
        pending = group_keys.last_rotation(unit, seat.gid, DISTRIBUTING)
        if pending is not None and pending.lease_ms > now_ms:
            return self._turned(seat, pending, now_ms, "rotation_pending")
        epoch = seat.group.legacy_epoch
        if asked.current_epoch is not None and asked.current_epoch != epoch:
            return _refused(seat, "epoch_mismatch")
        groups.change(unit, seat.gid, now_ms, legacy_epoch=epoch + 1)
        return Turned(success=True, epoch=epoch + 1, committed_epoch=epoch + 1)

    # Parts.

    def _find(self, unit: Unit, call: Call[Named], least: str = "member") -> tuple[Seat, Rotation, int]:
        found = group_keys.rotation(unit, call.params.rotation_id)
        if found is None:
            raise NotFound("rotation not found")
        return self._room.seat(unit, found.gid, caller(call.who), least), found, unit.wall_us // 1000

    def _keep(self, unit: Unit, rotation: Rotation) -> None:
        group_keys.put_rotation(unit, rotation, self._limits[bounds.ROTATIONS])

    def _lease(self, asked: int) -> int:
        return max(1_000, min(asked, self._limits[bounds.ROTATION_LEASE]))

    def _turned(self, seat: Seat, rotation: Rotation, now_ms: int, reason: str) -> Turned:
        epoch = seat.group.legacy_epoch
        return Turned(
            success=not reason,
            epoch=epoch,
            committed_epoch=epoch,
            reason=reason or UNSET,
            rotation=_shown(rotation, now_ms) if rotation.gid == seat.gid else UNSET,
        )


def _refused(seat: Seat, reason: str) -> Turned:
    epoch = seat.group.legacy_epoch
    return Turned(success=False, epoch=epoch, committed_epoch=epoch, reason=reason)


def _mine(known: Rotation, seat: Seat) -> bool:
    return known.gid == seat.gid and known.by == seat.aid and known.status != ABORTED


def _shown(found: Rotation, now_ms: int) -> dict[str, Any]:
    return {
        "rotation_id": found.rotation_id,
        "group_id": found.gid,
        "base_epoch": found.base,
        "target_epoch": found.target,
        "reason": found.reason,
        "key_commitment": found.commitment,
        "expected_members": msgspec.Raw(found.expected),
        "required_acks": msgspec.Raw(found.required),
        "acked": msgspec.Raw(found.acked),
        "status": found.status,
        "initiator_aid": found.by,
        "lease_expires_at": found.lease_ms,
        "expired": found.status == DISTRIBUTING and found.lease_ms <= now_ms,
        "created_at": found.created_ms,
    }
