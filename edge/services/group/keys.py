"""Encryption of groups as a server sees it: device keys, encrypted messages, signed states (spec §5.3, G-19 to G-23).

The node reads nothing of a message. It checks that the envelope is for the members as they are, splits it so that each
device gets its own key only, and keeps the states that members sign, of which exactly one follows another.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from edge.contract.errors import (
    EdgeError,
    EpochStale,
    GroupStateMismatch,
    GroupSuspended,
    InvalidParams,
    NotFound,
    RateLimited,
    RecipientsStale,
    RoleInsufficient,
    StateStale,
    TooLarge,
    Unavailable,
)
from edge.contract.op import Call, op
from edge.contract.store import Unit
from edge.contract.time import later, wall_us
from edge.contract.wire import JsonLimits, dumps
from edge.protocol import group_rules, group_state, wraps
from edge.protocol.group_rules import ADMIN, OWNER
from edge.services.group import devices, views
from edge.services.group import limits as bounds
from edge.services.group.devices import KEY_SOURCE
from edge.services.group.lifecycle import ADMIN_ERRORS, GROUP_ERRORS
from edge.services.group.messages import LEGACY_KIND, MessageService
from edge.services.group.room import InGroup, Room, Seat, may_speak
from edge.store import group_keys, groups
from edge.store.group_keys import GroupSpk, Proposal, State
from edge.store.group_logs import ENCRYPTED, QUIET, V2, Said, Wrap

logger = logging.getLogger(__name__)

SUITE_VERSION = "v2"
DUE_ROWS = 50
RETRY_MS = 5_000
"""How long what the store refused waits for another try."""


class PutKey(InGroup, frozen=True, kw_only=True):
    """A device's signed prekey for this group."""

    key_source: str = KEY_SOURCE
    spk_id: str
    spk_pk: str
    spk_signature: str
    spk_timestamp: int


class Stored(msgspec.Struct):
    """It is on disk."""

    ok: bool = True


class Bootstrap(msgspec.Struct, kw_only=True):
    """Whom to encrypt for, and the state that was signed; without a state the signed fields are empty.

    `pending_adds` are members that no signed state vouches for yet (no key of theirs is listed), `pending_removes`
    those that it still vouches for though they are gone.
    """

    group_id: str
    group_aid: str
    devices: list[dict[str, Any]]
    epoch: int
    member_aids: list[str]
    committed_member_aids: list[str]
    pending_adds: list[str]
    pending_removes: list[str]
    state_version: int
    state_hash: str
    state_chain: str
    state_hash_signed: str
    state_signature: str
    state_actor_aid: str
    state_membership_snapshot: str
    audit_recipients: list[dict[str, Any]]
    e2ee_wrap_policy: dict[str, str] | None
    e2ee_security_level: str
    e2ee_security_warning: str


class SendV2(InGroup, frozen=True, kw_only=True):
    """An envelope (type `e2ee.group_encrypted`, version v2) with one wrapped key per device."""

    envelope: msgspec.Raw
    message_id: str | None = None
    need_render: bool = True


class SentV2(msgspec.Struct):
    """The stored message's number."""

    group_id: str
    group_aid: str
    seq: int
    message_id: str
    timestamp: int
    t_server: int
    status: str
    epoch: int


class Commitment(msgspec.Struct, frozen=True):
    """The state that a message stands on."""

    state_version: int = 0
    state_hash: str = ""
    state_chain: str = ""


class Aad(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """What the sender vouches for in the clear."""

    sender: str = ""
    from_device: str = ""
    group_id: str = ""
    epoch: int = 0
    message_id: str = ""
    state_commitment: Commitment = Commitment()


class Envelope(msgspec.Struct, frozen=True):
    """What the node reads of an envelope."""

    type: str = ""
    version: str = ""
    recipients_digest: str = ""
    recipients: msgspec.Raw = msgspec.Raw()
    aad: Aad = Aad()


class Draft(msgspec.Struct):
    """An envelope that passed the checks which need no table: without its recipients, and they apart."""

    envelope: Envelope
    body: bytes
    rows: list[wraps.Row]
    leaves: bytes


class Propose(InGroup, frozen=True, kw_only=True):
    """A state that should follow the confirmed one; its strings are kept as they are."""

    state_version: int
    key_epoch: int = 0
    state_hash: str
    prev_state_hash: str
    membership_snapshot: str
    signature: str = ""
    reason: str = ""
    auto_confirm_seconds: int = 30


class Proposed(msgspec.Struct):
    """The proposal waits; it confirms itself at `auto_confirm_at` (ms)."""

    proposal_id: str
    group_id: str
    state_version: int
    status: str
    auto_confirm_at: int


class Waiting(msgspec.Struct):
    """The newest proposal that waits, or null."""

    group_id: str
    proposal: dict[str, Any] | None


class Confirm(InGroup, frozen=True, kw_only=True):
    """Which proposal."""

    proposal_id: str


class Confirmed(msgspec.Struct):
    """The state that is in force now."""

    success: bool
    group_id: str
    proposal_id: str
    state_version: int
    state_hash: str
    state_chain: str
    status: str


class StateAnswer(msgspec.Struct, kw_only=True):
    """The state in force; version 0 without one."""

    group_id: str
    group_aid: str
    state_version: int
    state_hash: str
    prev_state_hash: str
    state_chain: str
    key_epoch: int
    membership_snapshot: str
    policy_snapshot: str
    state_signature: str
    state_actor_aid: str


class KeyService(MessageService):
    """Keys, encrypted messages and states of groups."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self._cancel_due: Callable[[], None] = _nothing
        self._due_ms = 0

    @op(
        "group.v2.put_group_pk",
        scope="group:write",
        wire={"aun": ("group.v2.put_group_pk",)},
        raises=(*GROUP_ERRORS, RateLimited),
        writes=True,
    )
    def put_group_pk(self, call: Call[PutKey], unit: Unit) -> Stored:
        """Publish this device's signed prekey for the group; the newest one counts."""
        asked, seat = call.params, self._room.enter(unit, call)
        if asked.key_source != KEY_SOURCE:
            raise InvalidParams(f"key_source must be {KEY_SOURCE}")
        if len(asked.spk_pk) + len(asked.spk_signature) > self._limits[bounds.KEY_OCTETS]:
            raise self._limits.refuse(bounds.KEY_OCTETS)
        if asked.spk_id != "sha256:" + hashlib.sha256(_decoded(asked.spk_pk)).hexdigest()[:16]:
            raise InvalidParams("spk_id is not the fingerprint of spk_pk")
        if len(_decoded(asked.spk_signature)) != 64:
            raise InvalidParams("spk_signature must be 64 bytes r||s")
        device = call.who.device_id
        mine = {one.device for one in group_keys.spks_of(unit, seat.gid, seat.aid)}
        if device not in mine and len(mine) >= self._limits[bounds.DEVICES]:
            raise self._limits.refuse(bounds.DEVICES)
        spk = GroupSpk(seat.aid, device, asked.spk_id, asked.spk_pk, asked.spk_signature, asked.spk_timestamp)
        group_keys.put_spk(unit, seat.gid, spk, unit.wall_us // 1000)
        return Stored()

    @op("group.v2.bootstrap", scope="group:read", wire={"aun": ("group.v2.bootstrap",)}, raises=GROUP_ERRORS)
    async def bootstrap(self, call: Call[InGroup]) -> Bootstrap:
        """The devices to encrypt for (of very many the newest, evenly of each member), and the group's signed state."""

        def look(unit: Unit) -> Bootstrap:
            seat = self._room.enter(unit, call)
            members, state = groups.member_aids(unit, seat.gid), group_keys.state(unit, seat.gid)
            vouched = self._vouched(state, members)
            trusted = self._trusted(unit, seat, state, members)
            mode = views.join_mode(unit, seat.group)
            loose = mode == group_rules.OPEN
            found = state.proposal if state is not None else None
            return Bootstrap(
                group_id=seat.gid,
                group_aid=seat.gid,
                devices=devices.listed(unit, seat.gid, trusted, self._limits),
                epoch=seat.group.epoch,
                member_aids=members,
                committed_member_aids=sorted(vouched & set(members)),
                pending_adds=sorted(set(members) - vouched),
                pending_removes=sorted(vouched - set(members)),
                state_version=found.version if found else 0,
                state_hash=found.hash if found else "",
                state_chain=state.chain if state is not None else "",
                state_hash_signed=found.hash if found else "",
                state_signature=found.signature if found else "",
                state_actor_aid=found.actor if found else "",
                state_membership_snapshot=found.snapshot if found else "",
                audit_recipients=[],
                e2ee_wrap_policy=None,
                e2ee_security_level="transport" if loose else "end_to_end",
                e2ee_security_warning="anybody may join this group" if loose else "",
            )

        return await self._room.node.read(look)

    @op(
        "group.v2.send",
        scope="group:write",
        wire={"aun": ("group.v2.send",)},
        raises=(*GROUP_ERRORS, TooLarge, GroupSuspended, RecipientsStale, EpochStale, StateStale),
        writes=True,
        before="read_envelope",
    )
    def send_v2(self, call: Call[SendV2], unit: Unit) -> SentV2:
        """Say something encrypted; refused, and nothing written, when it is not for the members as they are."""
        asked, seat = call.params, self._room.enter(unit, call)
        draft: Draft = call.prepared
        message_id = asked.message_id or draft.envelope.aad.message_id or f"gm-{secrets.token_hex(16)}"
        if (again := self._again(unit, seat, message_id)) is not None:
            return self._sent_v2(seat, *again, "duplicate")
        may_speak(unit, seat)
        self._check_sender(seat, call.who.device_id, message_id, draft.envelope.aad)
        self._check_current(unit, seat, call.who.device_id, draft)
        said = Said(
            gid=seat.gid,
            seq=0,
            sender=seat.aid,
            device=call.who.device_id,
            message_id=message_id,
            kind=LEGACY_KIND,
            mode=views.mention_mode(unit, seat.gid),
            flags=ENCRYPTED | V2 | (0 if asked.need_render else QUIET),
            sent_ms=unit.wall_us // 1000,
            at=unit.at,
            payload=draft.body,
            leaves=draft.leaves,
        )
        keys = [Wrap(row.aid, row.device, place, dumps(row)) for place, row in enumerate(draft.rows)]
        return self._sent_v2(seat, *self.post(unit, seat, said, LEGACY_KIND, keys), "sent")

    async def read_envelope(self, call: Call[SendV2]) -> Draft:
        """Take an envelope apart and check its digest; large ones off the loop."""
        raw = bytes(call.params.envelope)
        if not raw.lstrip().startswith(b"{"):
            raise InvalidParams("envelope must be a JSON object")
        self._fits(bounds.MESSAGE_ID, call.params.message_id or "")
        if len(raw) < 32_768:
            return self._draft(raw)
        return await asyncio.to_thread(self._draft, raw)

    # The signed state.

    @op("group.get_state", scope="group:read", wire={"aun": ("group.get_state",)}, raises=GROUP_ERRORS)
    async def get_state(self, call: Call[InGroup]) -> StateAnswer:
        """The signed state in force, every string as it was proposed."""

        def look(unit: Unit) -> StateAnswer:
            seat = self._room.enter(unit, call)
            state = group_keys.state(unit, seat.gid)
            found = state.proposal if state is not None else None
            return StateAnswer(
                group_id=seat.gid,
                group_aid=seat.gid,
                state_version=found.version if found else 0,
                state_hash=found.hash if found else "",
                prev_state_hash=found.previous if found else "",
                state_chain=state.chain if state is not None else "",
                key_epoch=found.epoch if found else seat.group.epoch,
                membership_snapshot=found.snapshot if found else "",
                policy_snapshot="",
                state_signature=found.signature if found else "",
                state_actor_aid=found.actor if found else "",
            )

        return await self._room.node.read(look)

    @op(
        "group.v2.propose_state",
        scope="group:write",
        wire={"aun": ("group.v2.propose_state",)},
        raises=(*ADMIN_ERRORS, GroupStateMismatch, TooLarge, RateLimited),
        writes=True,
    )
    def propose_state(self, call: Call[Propose], unit: Unit) -> Proposed:
        """Put a signed state forward; the first one only by the owner."""
        asked, seat, now_ms = call.params, self._room.enter(unit, call, ADMIN), unit.wall_us // 1000
        if asked.state_version == 1 and seat.member.role != OWNER:
            raise RoleInsufficient("the owner proposes the first state")
        if not 0 < asked.state_version <= group_state.MAX_VERSION:
            raise InvalidParams("state_version is a 32-bit number above 0")
        if len(asked.membership_snapshot.encode()) > self._limits[bounds.SNAPSHOT]:
            raise self._limits.refuse(bounds.SNAPSHOT)
        if len(asked.signature) > self._limits[bounds.KEY_OCTETS]:
            raise self._limits.refuse(bounds.KEY_OCTETS)
        self._fits(bounds.REASON, asked.state_hash, asked.prev_state_hash, asked.reason)
        if not asked.state_hash or group_state.committed(asked.membership_snapshot, self._json()) is None:
            raise InvalidParams("state_hash and a membership_snapshot that names the members are required")
        self._follows(group_keys.state(unit, seat.gid), asked.state_version, asked.prev_state_hash)
        if group_keys.count_pending(unit, seat.gid) >= self._limits[bounds.PROPOSALS]:
            raise self._limits.refuse(bounds.PROPOSALS, seat.gid)
        wait_s = max(1, min(asked.auto_confirm_seconds, self._limits[bounds.AUTO_CONFIRM]))
        made = Proposal(
            proposal_id=f"gp-{secrets.token_hex(12)}",
            gid=seat.gid,
            version=asked.state_version,
            epoch=asked.key_epoch,
            hash=asked.state_hash,
            previous=asked.prev_state_hash,
            snapshot=asked.membership_snapshot,
            signature=asked.signature,
            actor=seat.aid,
            reason=asked.reason,
            auto_ms=now_ms + wait_s * 1000,
            created_ms=now_ms,
        )
        group_keys.propose(unit, made)
        admins = [*groups.members(unit, seat.gid, role=OWNER), *groups.members(unit, seat.gid, role=ADMIN)]
        told = {"proposal_id": made.proposal_id, "state_version": made.version, "actor_aid": seat.aid}
        others = {one.aid for one in admins} - {seat.aid}
        self._room.tell(unit, seat.gid, "group.v2.state_proposed", others, **told)
        unit.after(lambda: self._await_due(made.auto_ms))
        return Proposed(made.proposal_id, seat.gid, made.version, made.status, made.auto_ms)

    @op("group.v2.get_proposal", scope="group:read", wire={"aun": ("group.v2.get_proposal",)}, raises=GROUP_ERRORS)
    async def get_proposal(self, call: Call[InGroup]) -> Waiting:
        """The state that waits to be confirmed."""

        def look(unit: Unit) -> Waiting:
            seat = self._room.enter(unit, call)
            found = group_keys.pending(unit, seat.gid)
            return Waiting(seat.gid, _proposal(found) if found is not None else None)

        return await self._room.node.read(look)

    @op(
        "group.v2.confirm_state",
        scope="group:write",
        wire={"aun": ("group.v2.confirm_state",)},
        raises=(*ADMIN_ERRORS, GroupStateMismatch, NotFound),
        writes=True,
    )
    def confirm_state(self, call: Call[Confirm], unit: Unit) -> Confirmed:
        """Put a proposed state into force; of two that follow the same one, the first confirmed wins."""
        seat = self._room.enter(unit, call, ADMIN)
        found = group_keys.proposal(unit, call.params.proposal_id)
        if found is None or found.gid != seat.gid:
            raise NotFound("proposal not found")
        if found.status == group_keys.SUPERSEDED:
            raise GroupStateMismatch("another state was confirmed first: propose again on top of it")
        if found.status == group_keys.PENDING:
            self._confirm(unit, found)
        state = group_keys.state(unit, seat.gid)
        assert state is not None  # noqa: S101  a confirmed proposal is one
        return Confirmed(
            True,
            seat.gid,
            found.proposal_id,
            found.version,
            found.hash,
            state.chain,
            group_keys.CONFIRMED,
        )

    def resume_due(self) -> None:
        """After a start: proposals whose time came while nobody watched confirm themselves now."""
        self._room.spawn(self._confirm_due())

    def stop_due(self) -> None:
        """End the timer."""
        self._cancel_due()

    # Parts.

    def _draft(self, raw: bytes) -> Draft:
        try:
            fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            envelope = msgspec.json.decode(raw, type=Envelope)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise InvalidParams(f"envelope: {error}") from None
        if envelope.type != LEGACY_KIND or envelope.version != SUITE_VERSION:
            raise InvalidParams(f"envelope must be {LEGACY_KIND}, {SUITE_VERSION}")
        rows = wraps.rows(bytes(envelope.recipients))
        if len(rows) > self._limits[bounds.WRAPS]:
            raise self._limits.refuse(bounds.WRAPS)
        if any(len(dumps(row)) > self._limits[bounds.WRAP] for row in rows):
            raise self._limits.refuse(bounds.WRAP)
        leaves = [wraps.leaf(row) for row in rows]
        if wraps.root(leaves) != envelope.recipients_digest:
            raise InvalidParams("recipients_digest is not the root of recipients")
        body = dumps({name: value for name, value in fields.items() if name not in ("recipients", "recipient")})
        if len(body) > self._limits[bounds.PAYLOAD]:
            raise self._limits.refuse(bounds.PAYLOAD)
        return Draft(envelope, body, rows, b"".join(leaves))

    def _check_sender(self, seat: Seat, device: str, message_id: str, aad: Aad) -> None:
        """What the sender vouches for must be true (G-20)."""
        true = {
            "from": (aad.sender, seat.aid),
            "from_device": (aad.from_device, device),
            "group_id": (aad.group_id, seat.gid),
            "message_id": (aad.message_id, message_id),
        }
        for name, (said, is_) in true.items():
            if said != is_:
                raise InvalidParams(f"aad.{name} is not the message's")

    def _check_current(self, unit: Unit, seat: Seat, device: str, draft: Draft) -> None:
        """Is it for the members, devices and state there are now? Its sender then looks again and resends."""
        aad, state = draft.envelope.aad, group_keys.state(unit, seat.gid)
        if aad.epoch != seat.group.epoch:
            raise EpochStale(f"epoch is {seat.group.epoch}, not {aad.epoch}")
        if aad.state_commitment.state_version and state is not None:
            won, stands = state.proposal, aad.state_commitment
            if (stands.state_version, stands.state_hash) != (won.version, won.hash):
                raise StateStale(f"the confirmed state is version {won.version}")
        members = groups.member_aids(unit, seat.gid)
        wrapped = {(row.aid, row.device) for row in draft.rows}
        trusted = self._trusted(unit, seat, state, members)
        current = devices.names(unit, seat.gid, trusted, self._limits)
        needed = {(aid, name) for aid, named in current.items() for name in named}
        own = {(seat.aid, device), (seat.aid, "")}
        missing = {(aid, name) for aid, name in needed - wrapped - own if (aid, "") not in wrapped}
        if missing:
            raise RecipientsStale(f"the envelope misses {len(missing)} current devices of the group")
        if {aid for aid, _ in wrapped} - trusted - {seat.aid}:
            raise RecipientsStale("the envelope is for somebody who may not read it")

    def _vouched(self, state: State | None, members: list[str]) -> set[str]:
        """Whom the signed state vouches for; without one, every member."""
        if state is None:
            return set(members)
        return set(group_state.committed(state.proposal.snapshot, self._json()) or members)

    def _trusted(self, unit: Unit, seat: Seat, state: State | None, members: list[str]) -> set[str]:
        """The members that messages are encrypted for: vouched for (in open groups: all), and not blocked (G-10)."""
        trusted = set(members)
        if views.join_mode(unit, seat.group) != group_rules.OPEN:
            trusted &= self._vouched(state, members) | {seat.aid}
        deaf = {one.subject for one in groups.shuts(unit, seat.gid, groups.BLOCK, unit.wall_us // 1000)}
        return trusted - deaf

    def _sent_v2(self, seat: Seat, said: Said, seq: int, status: str) -> SentV2:
        at = said.sent_ms
        return SentV2(seat.gid, seat.gid, seq, said.message_id, at, at, status, seat.group.epoch)

    def _follows(self, state: State | None, version: int, previous: str) -> None:
        """Compare and swap: the next version, on top of the hash in force."""
        now = state.proposal if state is not None else None
        if version != (now.version if now else 0) + 1:
            raise GroupStateMismatch(f"state_version must be {(now.version if now else 0) + 1}")
        if previous != (now.hash if now else ""):
            raise GroupStateMismatch("prev_state_hash is not the hash of the confirmed state")

    def _confirm(self, unit: Unit, won: Proposal) -> None:
        state = group_keys.state(unit, won.gid)
        self._follows(state, won.version, won.previous)
        chain = group_state.chain(state.chain if state is not None else "", won.hash)
        group_keys.confirm(unit, won, chain, unit.wall_us // 1000)
        told = {"proposal_id": won.proposal_id, "state_version": won.version, "state_hash": won.hash}
        members = groups.member_aids(unit, won.gid)
        self._room.tell(unit, won.gid, "group.v2.state_confirmed", members, **told, state_chain=chain)

    def _await_due(self, at_ms: int) -> None:
        """Wake up when the next proposal confirms itself."""
        if self._due_ms and self._due_ms <= at_ms:
            return
        self._cancel_due()
        self._due_ms, clock = at_ms, self._room.clock
        wait_us = max(0, at_ms * 1000 - clock.wall(clock.now())[0])
        self._cancel_due = later(clock, wait_us, self.resume_due)

    async def _confirm_due(self) -> None:
        self._due_ms = 0

        def work(unit: Unit) -> int | None:
            for proposal in group_keys.due(unit, unit.wall_us // 1000, DUE_ROWS):
                try:
                    self._room.seat(unit, proposal.gid, proposal.actor, ADMIN)
                    self._confirm(unit, proposal)
                except EdgeError:
                    group_keys.supersede(unit, proposal.proposal_id)
                    told = {"proposal_id": proposal.proposal_id, "state_version": proposal.version}
                    self._room.tell(unit, proposal.gid, "group.v2.state_retry_needed", (proposal.actor,), **told)
            return group_keys.next_due(unit)

        try:
            following = await self._room.node.commit(work)
        except Unavailable as error:
            logger.warning("proposals that are due are confirmed later: %s", error)
            following = wall_us(self._room.clock) // 1000 + RETRY_MS
        if following is not None:
            self._await_due(following)

    def _json(self) -> JsonLimits:
        return JsonLimits(octets=self._limits[bounds.SNAPSHOT])


def _proposal(found: Proposal) -> dict[str, Any]:
    return {
        "proposal_id": found.proposal_id,
        "group_id": found.gid,
        "state_version": found.version,
        "key_epoch": found.epoch,
        "state_hash": found.hash,
        "prev_state_hash": found.previous,
        "membership_snapshot": found.snapshot,
        "signature": found.signature,
        "proposer_aid": found.actor,
        "reason": found.reason,
        "status": found.status,
        "auto_confirm_at": found.auto_ms,
        "created_at": found.created_ms,
    }


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParams("not base64") from None


def _nothing() -> None:
    pass
