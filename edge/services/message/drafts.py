"""What a caller wants to send, checked: everything that `message.send` and `message.thought.put` have in common."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from edge.contract.errors import InvalidParams, Malformed, NotPermitted, RecipientsStale, UnknownAid
from edge.contract.limit import Limits
from edge.contract.principal import Principal
from edge.contract.store import Unit
from edge.contract.time import Clock, wall_ms
from edge.contract.wire import decode
from edge.protocol import aid as aids
from edge.protocol.aun_events import Delivery
from edge.services.message import records as r
from edge.services.message.memory import Head, Known, kind_of
from edge.store import messages

MULTI_DEVICE, ENCRYPTED_COPY = "e2ee.multi_device", "e2ee.encrypted"
"""A message that carries a copy for each device (first generation), and what each copy is."""


SPACE = 65_536
"""How much white space a payload may have beyond the limit for its compact form."""


class _Copy(msgspec.Struct):
    """One device's copy of a multi-device message."""

    envelope: msgspec.Raw
    device_id: str = ""


class Draft(msgspec.Struct, kw_only=True):
    """A message that passed the checks which need no database. `target` is the one device it is meant for.

    `wrapped` are the (AID, device) pairs that a V2 envelope is encrypted for; None when it is no V2 envelope.
    `parts` are what goes into inboxes: the message, or its copies for single devices, and those for the sender's own.
    """

    who: Principal
    message: Delivery
    parts: tuple[Delivery, ...]
    target: str = ""
    wrapped: frozenset[tuple[str, str]] | None = None


class Drafts:
    """Makes drafts. `known` says which AIDs exist; `issuer` is the part behind their first dot."""

    def __init__(self, clock: Clock, known: Known, issuer: str, limits: Limits) -> None:
        self._clock, self._known, self._issuer, self._limits = clock, known, issuer, limits

    def make(self, who: Principal, asked: r.Send) -> Draft:
        """A draft. Raises `InvalidParams`, `TooLarge`, `UnknownAid`, `NotPermitted`."""
        to, raw, target = self._local(asked.to), bytes(asked.payload), asked.device_id or asked.to_device_id
        if not raw.lstrip().startswith(b"{"):
            raise InvalidParams("payload must be a JSON object")
        self._check_size(raw)
        self._check_names(asked.message_id, asked.type, target)
        head = decode(raw, Head)
        kind = kind_of(head)
        v2 = kind == "e2ee.p2p_encrypted" and head.version == "v2"
        if v2 and len(raw) + raw.count(b'"') + raw.count(b"\\") > self._limits[r.ROW]:
            raise self._limits.refuse(r.ROW)
        wrapped = _wrapped(head.recipients) if v2 else None
        message = Delivery(
            sender=sender_of(who),
            to=to,
            message_id=asked.message_id or f"m-{secrets.token_hex(16)}",
            payload=asked.payload.copy(),  # a view would keep the caller's whole frame in memory
            sent_ms=wall_ms(self._clock),
            kind=asked.type,
            payload_type=kind,
            sender_device=who.device_id,
            devices=(target,) if target else _readers(wrapped, to),
            encrypted=asked.encrypted or kind.startswith("e2ee."),
            render=asked.need_render,
            v2=v2,
            targeted=bool(target),
        )
        parts = self._copies(message, head) if kind == MULTI_DEVICE else (message, *_own_copy(message, wrapped))
        return Draft(who=who, message=message, parts=parts, target=target, wrapped=wrapped)

    def _check_size(self, raw: bytes) -> None:
        """The limit is for compact JSON (Q-10); white space is kept, so that it may add a little, not anything."""
        most = self._limits[r.PAYLOAD]
        if len(raw) > most and (len(raw) > most + SPACE or len(msgspec.json.format(raw, indent=-1)) > most):
            raise self._limits.refuse(r.PAYLOAD)

    def _copies(self, message: Delivery, head: Head) -> tuple[Delivery, ...]:
        """The copies of a first-generation multi-device message, each for the device it names (§5.1)."""
        theirs, own = _read_copies(head.recipient_copies), _read_copies(head.self_copies)
        if not theirs:
            raise InvalidParams("recipient_copies is empty")
        if len(theirs) + len(own) > 2 * self._limits[r.DEVICES]:
            raise self._limits.refuse(r.DEVICES)
        self._check_names(*(copy.device_id for copy in (*theirs, *own)))
        return (*_parts(message, theirs, own=False), *_parts(message, own, own=True))

    def _check_names(self, *names: str) -> None:
        """What stands beside a payload in every row and every page; quotas and pages count payloads only."""
        if max(map(len, names)) > self._limits[r.MESSAGE_ID]:
            raise self._limits.refuse(r.MESSAGE_ID)

    def _local(self, to: str) -> str:
        aid = aids.normal(to)
        issuer = aid.partition(".")[2]
        if issuer != self._issuer:
            raise UnknownAid(f"{aid} belongs to the issuer {issuer}, which this node cannot reach")
        return aid

    def accept(self, unit: Unit, draft: Draft) -> None:
        """Is there such a recipient, and can all its devices read a V2 envelope (M-5, M-22)?

        Raises `UnknownAid`, `RecipientsStale`.
        """
        to = draft.message.to
        if not self._known(unit, to):
            raise UnknownAid(f"aid not registered: {to}")
        if draft.wrapped is None:
            return
        mine = {device for aid, device in draft.wrapped if aid == to}
        needed = {draft.target} if draft.target else {spk.device for spk in messages.spks(unit, to)}
        if not mine or ("" not in mine and needed - mine):
            raise RecipientsStale(f"the envelope misses a current device of {to}")


def sender_of(who: Principal) -> str:
    """The AID a caller speaks for. Raises `NotPermitted` without one."""
    if not who.aid:
        raise NotPermitted("message.* needs an AID")
    return who.aid


def _own_copy(message: Delivery, wrapped: frozenset[tuple[str, str]] | None) -> tuple[Delivery, ...]:
    """The self-sync wraps of a V2 envelope reach the sender's other devices through the sender's inbox (§5.2)."""
    if not wrapped or message.sender == message.to:
        return ()
    own = tuple(sorted({d for aid, d in wrapped if aid == message.sender} - {"", message.sender_device}))
    return (msgspec.structs.replace(message, devices=own, own=True),) if own else ()


def _read_copies(raw: msgspec.Raw) -> list[_Copy]:
    try:
        copies = decode(bytes(raw) or b"[]", list[_Copy])
    except Malformed as error:
        raise InvalidParams(f"copies must be objects with an envelope: {error}") from None
    if not all(bytes(copy.envelope).startswith(b"{") for copy in copies):
        raise InvalidParams("an envelope must be an object")
    return copies


def _parts(message: Delivery, copies: Sequence[_Copy], *, own: bool) -> tuple[Delivery, ...]:
    return tuple(
        msgspec.structs.replace(
            message,
            payload=copy.envelope,
            kind=ENCRYPTED_COPY,
            payload_type=ENCRYPTED_COPY,
            devices=(copy.device_id,) if copy.device_id else (),
            own=own,
        )
        for copy in copies
    )


def _wrapped(recipients: Any) -> frozenset[tuple[str, str]] | None:
    """Whom an envelope is encrypted for: rows `[aid, device_id, role, …]` (§5.2); None when they cannot be read."""
    if not isinstance(recipients, list):
        return None
    rows = [row for row in recipients if isinstance(row, list) and len(row) >= 2]
    return frozenset((row[0], row[1]) for row in rows if isinstance(row[0], str) and isinstance(row[1], str))


def _readers(wrapped: frozenset[tuple[str, str]] | None, to: str) -> tuple[str, ...]:
    """The devices that can read an envelope; empty when all can, or when nobody knows."""
    mine = {device for aid, device in wrapped or () if aid == to}
    return () if "" in mine else tuple(sorted(mine))
