"""The identity of a group: its certificate, its change of key, its change of owner (spec aun-services §1.3, C-10).

The owner holds the group's private key; the node certifies the public one. A certified group changes hands in two
steps: the old owner authorises with the group's key, the new owner accepts with their own and brings a new key.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import msgspec

from edge.contract.errors import (
    Conflict,
    GroupNotFound,
    GroupStateInvalid,
    InvalidParams,
    NotMember,
    NotPermitted,
    SignatureInvalid,
    VersionConflict,
)
from edge.contract.op import Call, op
from edge.contract.store import Unit
from edge.contract.time import SECOND
from edge.contract.wire import dumps
from edge.protocol import aid as aids
from edge.protocol import keys
from edge.protocol.group_rules import ADMIN, OWNER
from edge.services.group import limits as bounds
from edge.services.group import views
from edge.services.group.lifecycle import ADMIN_ERRORS
from edge.services.group.room import InGroup, Seat, Service, caller, first_said
from edge.store import groups
from edge.store import identity as names
from edge.store.groups import Group
from edge.store.keyring import SURE_US, Issued


class Proof(msgspec.Struct, frozen=True):
    """A signature over the fields of a request, dated and used once."""

    nonce: str
    issued_ms: int
    signature: str

    def check(self, spki: bytes, *fields: str) -> None:
        """Verify it over these fields, the nonce and the date. Raises `SignatureInvalid`."""
        text = "|".join((*fields, self.nonce, str(self.issued_ms)))
        try:
            keys.verify(spki, text.encode(), self.signature)
        except InvalidParams:
            raise SignatureInvalid from None


class Bind(InGroup, frozen=True, kw_only=True):
    """The group's public key (base64 SPKI). `group_name`, where given, must be the group's."""

    public_key: str
    curve: str = "P-256"
    group_name: str = ""


class Renew(InGroup, frozen=True, kw_only=True):
    """The key to replace and the new one; the old one signs."""

    old_public_key: str
    new_public_key: str
    renew_proof: Proof
    curve: str = "P-256"


class Transfer(InGroup, frozen=True, kw_only=True):
    """To whom; a certified group's key signs."""

    new_owner: str = ""
    aid: str = ""
    transfer_auth: Proof | None = None


class Complete(InGroup, frozen=True, kw_only=True):
    """The new owner's new group key; the new owner's own key signs."""

    public_key: str
    transfer_accept: Proof
    curve: str = "P-256"


class Bound(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The group and its certificate."""

    group: dict[str, Any]
    group_id: str
    group_aid: str
    aid_cert: dict[str, Any]
    old_cert_revoked: bool = False
    status: str = ""
    old_owner: str = ""
    new_owner: str = ""


class Transferred(msgspec.Struct, omit_defaults=True, kw_only=True):
    """`transferred` at once, or `pending_rekey` until the new owner completes it."""

    status: str
    group: dict[str, Any]
    group_id: str
    group_aid: str
    old_owner: str
    new_owner: str
    requires_ca_rekey: bool = False
    complete_rpc: str = ""
    pending_owner_transfer: dict[str, Any] = {}


class Entity(msgspec.Struct):
    """Owner and present certificate; `stale` when the card was signed with an earlier one."""

    owner_aid: str
    cert_sha256: str
    status: str


IDENTITY_ERRORS = (*ADMIN_ERRORS, Conflict, SignatureInvalid, GroupStateInvalid, VersionConflict)


class IdentityService(Service):
    """Certificates of groups, and who owns them."""

    @op(
        "group.bind_group_aid",
        scope="group:write",
        wire={"aun": ("group.bind_group_aid", "group.bind_aid")},
        raises=IDENTITY_ERRORS,
    )
    async def bind(self, call: Call[Bind]) -> Bound:
        """Certify the group's key; the same key again gets the same certificate."""
        asked = call.params
        spki = keys.public_of(asked.public_key, asked.curve)

        def look(unit: Unit) -> tuple[Seat, names.Aid | None]:
            seat = self._room.enter(unit, call, OWNER)
            if asked.group_name and asked.group_name.strip().lower() != seat.gid.partition(".")[0]:
                raise InvalidParams("a group keeps the name it was created with")
            return seat, names.aid(unit, seat.gid)

        seat, known = await self._room.node.read(look)
        if known is not None and known.spki and known.spki != spki:
            raise Conflict("group_aid_already_bound_different_key")
        made = await self._certify(seat.gid, spki) if known is None or not known.spki else None

        def work(unit: Unit) -> Bound:
            now, held = look(unit)
            if held is not None and held.spki:
                if held.spki != spki:
                    raise Conflict("group_aid_already_bound_different_key")
            elif made is not None:
                names.issue(unit, made, kind="group", spki=spki, operation="agent_cert_issue")
            return self._bound(unit, now.group)

        return await self._room.node.commit(work)

    @op(
        "group.renew_group_aid",
        scope="group:write",
        wire={"aun": ("group.renew_group_aid",)},
        raises=IDENTITY_ERRORS,
    )
    async def renew(self, call: Call[Renew]) -> Bound:
        """Replace the group's key, signed by the old one; the old certificate is revoked."""
        asked = call.params
        self._fresh(asked.renew_proof)
        old, new = keys.public_of(asked.old_public_key), keys.public_of(asked.new_public_key, asked.curve)

        def look(unit: Unit) -> Seat:
            seat = self._room.enter(unit, call, OWNER)
            if self._key(unit, seat.gid) != old:
                raise VersionConflict("old_public_key is not the group's key")
            return seat

        seat = await self._room.node.read(look)
        hashes = (_sha256(asked.old_public_key), _sha256(asked.new_public_key))
        asked.renew_proof.check(old, "aun-group-aid-renew-v1", seat.gid, seat.gid, *hashes)
        if new == old:
            raise InvalidParams("new_public_key is the old one")
        made = await self._certify(seat.gid, new)

        def work(unit: Unit) -> Bound:
            self._rekey(unit, look(unit).group, new, made)
            answer = self._bound(unit, self._room.group(unit, seat.gid))
            answer.old_cert_revoked = True
            return answer

        return await self._room.node.commit(work)

    @op(
        "group.transfer_owner",
        scope="group:write",
        wire={"aun": ("group.transfer_owner",)},
        raises=IDENTITY_ERRORS,
        writes=True,
    )
    def transfer(self, call: Call[Transfer], unit: Unit) -> Transferred:
        """Give the group to another member; a certified group waits for the new owner's key."""
        asked, seat = call.params, self._room.enter(unit, call, OWNER)
        to = aids.normal(first_said(asked.new_owner, asked.aid))
        if groups.member(unit, seat.gid, to) is None:
            raise NotMember(f"{to} is not a member of {seat.gid}")
        if to == seat.aid:
            raise InvalidParams("new_owner is the owner")
        key = self._key(unit, seat.gid)
        if not key:
            if asked.transfer_auth is not None:
                raise GroupStateInvalid("the group has no certificate: leave transfer_auth out, or bind one first")
            group = self._hand_over(unit, seat.group, to)
            return self._transferred(unit, group, seat.aid, to, "transferred")
        if asked.transfer_auth is None:
            raise InvalidParams("transfer_auth is missing: the group has a certificate, its key must sign")
        self._fresh(asked.transfer_auth)
        asked.transfer_auth.check(key, "aun-group-owner-transfer-v1", seat.gid, seat.gid, to)
        pending = {
            "status": "pending_rekey",
            "old_owner": seat.aid,
            "new_owner": to,
            "group_aid": seat.gid,
            "nonce": asked.transfer_auth.nonce,
            "started_at": unit.wall_us // 1000,
        }
        group = groups.change(unit, seat.gid, unit.wall_us // 1000, pending=dumps(pending))
        told = {"status": "pending_rekey", "old_owner": seat.aid, "new_owner": to}
        self._room.changed(unit, group, "owner_transfer_rekey_pending", seat.aid, **told)
        return self._transferred(unit, group, seat.aid, to, "pending_rekey")

    @op(
        "group.complete_transfer",
        scope="group:write",
        wire={"aun": ("group.complete_transfer",)},
        raises=IDENTITY_ERRORS,
    )
    async def complete(self, call: Call[Complete]) -> Bound:
        """Take a group over: the new owner brings a new key, the old certificate is revoked."""
        asked, me = call.params, caller(call.who)
        self._fresh(asked.transfer_accept)
        spki = keys.public_of(asked.public_key, asked.curve)

        def look(unit: Unit) -> Seat:
            seat = self._room.enter(unit, call)
            if not seat.group.pending or views.transfer(seat.group)["new_owner"] != me:
                raise GroupStateInvalid("no transfer of this group to you is pending")
            if self._key(unit, seat.gid) == spki:
                raise InvalidParams("public_key is the group's old key: bring a new one")
            own = names.aid(unit, me)
            if own is None:
                raise NotPermitted(f"{me} has no key here")
            text = ("aun-group-owner-transfer-accept-v1", seat.gid, seat.gid, me, _sha256(asked.public_key))
            asked.transfer_accept.check(own.spki, *text)
            return seat

        def done(unit: Unit) -> Bound | None:
            """The answer again, when this very key was already taken over."""
            seat = self._room.enter(unit, call)
            if seat.group.owner != me or self._key(unit, seat.gid) != spki:
                return None
            return self._bound(unit, seat.group, status="transferred", new_owner=me)

        if (again := await self._room.node.read(done)) is not None:
            return again
        seat = await self._room.node.read(look)
        made = await self._certify(seat.gid, spki)

        def work(unit: Unit) -> Bound:
            if (before := done(unit)) is not None:
                return before
            now = look(unit)
            old_owner = now.group.owner
            self._rekey(unit, now.group, spki, made)
            group = self._hand_over(unit, now.group, me)
            return self._bound(unit, group, status="transferred", old_owner=old_owner, new_owner=me)

        return await self._room.node.commit(work)

    @op("group.entity", scope="", wire={"http": ("group.entity",)}, raises=(InvalidParams, GroupNotFound))
    async def entity(self, call: Call[InGroup]) -> Entity:
        """Whose a certified group is, for those who read its card."""
        gid = self._room.named(call)

        def look(unit: Unit) -> Entity:
            group, found = self._room.group(unit, gid), names.current(unit, gid)
            if found is None or found.state != names.ACTIVE:
                raise GroupNotFound(f"group has no certificate: {gid}")
            card = names.agent_md(unit, gid)
            current = card is None or found.cert_sha256.encode() in card.body
            return Entity(group.owner, found.cert_sha256, "current" if current else "stale")

        return await self._room.node.read(look)

    # Parts.

    def _hand_over(self, unit: Unit, group: Group, to: str) -> Group:
        """Exactly one owner at all times (G-4): the old one becomes an admin in the same unit."""
        groups.set_role(unit, group.gid, group.owner, ADMIN)
        groups.set_role(unit, group.gid, to, OWNER)
        now = groups.change(unit, group.gid, unit.wall_us // 1000, owner=to, pending=b"")
        told = {"status": "transferred", "old_owner": group.owner, "new_owner": to}
        self._room.changed(unit, now, "owner_transferred", group.owner, **told)
        return now

    def _rekey(self, unit: Unit, group: Group, spki: bytes, made: Issued) -> None:
        before = names.current(unit, group.gid)
        names.issue(unit, made, kind="group", spki=spki, operation="agent_cert_rekey")
        if before is not None:
            names.revoke_one(unit, before.serial, "superseded")

    def _key(self, unit: Unit, gid: str) -> bytes:
        """The certified key of a group; empty without one."""
        known = names.aid(unit, gid)
        return known.spki if known is not None else b""

    async def _certify(self, gid: str, spki: bytes) -> Issued:
        now_us, unsure_us = self._room.clock.wall(self._room.clock.now())
        return await asyncio.to_thread(self._room.identity.issue, gid, spki, now_us, unsure_us, self._room.base())

    def _fresh(self, proof: Proof) -> None:
        """Is a proof dated now? While our own time is not sure, any date is. Raises `InvalidParams`."""
        self._fits(bounds.READ_NAME, proof.nonce)
        now_us, unsure_us = self._room.clock.wall(self._room.clock.now())
        skew_ms = abs(now_us // 1000 - proof.issued_ms)
        if unsure_us <= SURE_US and skew_ms * 1000 > self._limits[bounds.PROOF_SKEW] * SECOND:
            raise self._limits.refuse(bounds.PROOF_SKEW)

    def _bound(self, unit: Unit, group: Group, **more: str) -> Bound:
        fields: dict[str, Any] = dict(more)
        found = names.current(unit, group.gid)
        assert found is not None  # noqa: S101  only called when a certificate was issued
        made = Issued(
            serial=found.serial,
            aid=group.gid,
            pem=found.pem,
            cert_sha256=found.cert_sha256,
            spki_sha256=found.spki_sha256,
            curve=found.curve,
            start=found.not_before,
            end=found.not_after,
        )
        return Bound(
            group=views.group(unit, group),
            group_id=group.gid,
            group_aid=group.gid,
            aid_cert=views.certificate(made, self._room.identity.chain_pem),
            **fields,
        )

    def _transferred(self, unit: Unit, group: Group, old: str, new: str, status: str) -> Transferred:
        waits = status == "pending_rekey"
        return Transferred(
            status=status,
            group=views.group(unit, group),
            group_id=group.gid,
            group_aid=group.gid,
            old_owner=old,
            new_owner=new,
            requires_ca_rekey=waits,
            complete_rpc="group.complete_transfer" if waits else "",
            pending_owner_transfer=views.transfer(group) if waits else {},
        )


def _sha256(text: str) -> str:
    """Proofs name keys by the hash of their base64 text."""
    return hashlib.sha256(text.encode()).hexdigest()
