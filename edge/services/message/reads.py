"""`message.read` and `message.read_state`: what the application has read, per device, and the newest of them all.

Positions are compared by the time their message was sent, then by its id; never by delivery numbers. A message that
is not known (yet, or any more) has no place in that order: it never replaces one that has.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from edge.contract.errors import InvalidParams, NotPermitted, RateLimited
from edge.contract.event import Event
from edge.contract.limit import Limits, declare
from edge.contract.op import Call, Params, op
from edge.contract.store import Store, Unit
from edge.contract.wire import dumps
from edge.protocol import aid as aids
from edge.protocol import pages
from edge.services.message.drafts import sender_of
from edge.services.message.records import PAGE_OCTETS
from edge.store import messages, read_states
from edge.store.messages import TARGETED, Message
from edge.store.read_states import ReadMark

WORDS = declare("message.read_words", 128, "characters", "of a topic key or message id", InvalidParams)
STATES = declare("message.read_states", 200, "positions", "in one message.read", InvalidParams)
TOPICS = declare("message.read_topics", 10_000, "topics", "of one AID with a read position", RateLimited)


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far the caller's device has read a topic."""

    topic_key: str
    last_read_message_id: str
    scope: str = ""


class Read(Params, frozen=True, kw_only=True):
    """Positions in `states`, or one flat. All of them are kept, or none."""

    states: tuple[Position, ...] | UnsetType = UNSET
    topic_key: str = ""
    last_read_message_id: str = ""
    scope: str = ""


class Receipt(msgspec.Struct, kw_only=True):
    """What became of a position; `changed` is about this device, not about the shared position."""

    scope: str
    topic_key: str
    last_read_message_id: str
    changed: bool


class ReadResult(msgspec.Struct):
    """Receipts in the order of the request."""

    updated: int
    ignored: int
    states: list[Receipt]


class AskState(Params, frozen=True, kw_only=True):
    """Which positions; all of the caller's without a filter."""

    scope: str = ""
    topic_key: str = ""
    aid: str = ""


class State(msgspec.Struct, kw_only=True):
    """The newest position of all devices in a topic, and that message's number in the inbox the caller sees."""

    scope: str = "p2p"
    topic_key: str
    last_read_message_id: str
    last_read_order: int
    current_device_seq: int | None
    mapping_status: str
    updated_at: int


class States(msgspec.Struct, omit_defaults=True, kw_only=True):
    """`states` is always there; a single one is repeated beside it. `has_more`: the oldest did not fit the answer."""

    scope: str = "p2p"
    states: list[State]
    has_more: bool = False
    topic_key: str | UnsetType = UNSET
    last_read_message_id: str | UnsetType = UNSET
    last_read_order: int | UnsetType = UNSET
    current_device_seq: int | UnsetType | None = UNSET
    mapping_status: str | UnsetType = UNSET
    updated_at: int | UnsetType = UNSET


class ReadService:
    """Read positions of the caller's AID."""

    def __init__(self, node: Store, limits: Limits) -> None:
        self._node, self._limits = node, limits

    @op(
        "message.read",
        scope="message:read",
        wire={"aun": ("message.read",)},
        raises=(InvalidParams, NotPermitted, RateLimited),
        writes=True,
    )
    def read(self, call: Call[Read], unit: Unit) -> ReadResult:
        """Say how far this device has read its topics; the AID's other connections hear of a shared step forward."""
        aid, asked = sender_of(call.who), self._positions(call.params)
        receipts = [self._keep(unit, aid, call.who.device_id, position) for position in asked]
        updated = sum(receipt.changed for receipt in receipts)
        return ReadResult(updated, len(receipts) - updated, receipts)

    @op(
        "message.read_state",
        scope="message:read",
        wire={"aun": ("message.read_state",)},
        raises=(InvalidParams, NotPermitted),
    )
    async def read_state(self, call: Call[AskState]) -> States:
        """How far any device of the caller has read its topics; the newest positions when not all fit one answer."""
        asked, aid = call.params, sender_of(call.who)
        _check_scope(asked.scope)
        if asked.aid and aids.normal(asked.aid) != aid:
            raise NotPermitted("read positions are their owner's")
        self._check_words(asked.topic_key)

        def work(unit: Unit) -> list[State]:
            topics: dict[str, list[ReadMark]] = {}
            for mark in read_states.marks(unit, aid, asked.topic_key):
                if not mark.targeted:
                    topics.setdefault(mark.topic, []).append(mark)
            return [_state(unit, aid, call.who.device_id, marks) for marks in topics.values()]

        found, cut = pages.newest(await self._node.read(work), lambda one: one.updated_at, self._limits[PAGE_OCTETS])
        answer = States(states=found, has_more=cut)
        if len(found) == 1:
            for name in ("topic_key", "last_read_message_id", "last_read_order", "current_device_seq"):
                setattr(answer, name, getattr(found[0], name))
            answer.mapping_status, answer.updated_at = found[0].mapping_status, found[0].updated_at
        return answer

    def _positions(self, asked: Read) -> Sequence[Position]:
        positions = asked.states
        if isinstance(positions, UnsetType):
            flat = Position(
                topic_key=asked.topic_key, last_read_message_id=asked.last_read_message_id, scope=asked.scope
            )
            positions = (flat,)
        if not positions:
            raise InvalidParams("states is empty")
        if len(positions) > self._limits[STATES]:
            raise self._limits.refuse(STATES)
        for position in positions:
            _check_scope(position.scope)
            if not position.topic_key or not position.last_read_message_id:
                raise InvalidParams("a position needs topic_key and last_read_message_id")
            self._check_words(position.topic_key, position.last_read_message_id)
        return positions

    def _check_words(self, *words: str) -> None:
        if max(map(len, words)) > self._limits[WORDS]:
            raise self._limits.refuse(WORDS)

    def _keep(self, unit: Unit, aid: str, device: str, position: Position) -> Receipt:
        row = _known(unit, aid, position.last_read_message_id)
        targeted = row is not None and bool(row.flags & TARGETED)
        mark = ReadMark(
            topic=position.topic_key,
            device=device,
            targeted=targeted,
            message_id=position.last_read_message_id,
            sent_ms=row.sent_ms if row else 0,
            at_ms=unit.wall_us // 1000,
        )
        known = [_placed(unit, aid, one) for one in read_states.marks(unit, aid, position.topic_key)]
        if not known and read_states.topics(unit, aid) >= self._limits[TOPICS]:
            raise self._limits.refuse(TOPICS)
        mine = [one for one in known if (one.device, one.targeted) == (device, targeted)]
        changed = not mine or _moves(mine[0], mark)
        if changed:
            read_states.put(unit, aid, mark)
            shared = [one for one in known if not one.targeted]
            if not targeted and mark.sent_ms and all(_order(one) < _order(mark) for one in shared):
                unit.emit(_changed(aid, mark))
        return Receipt(scope="p2p", topic_key=mark.topic, last_read_message_id=mark.message_id, changed=changed)


def _check_scope(scope: str) -> None:
    if scope not in ("", "p2p"):
        raise InvalidParams("scope is p2p")


def _known(unit: Unit, aid: str, message_id: str) -> Message | None:
    """The message an AID calls by this id: in its inbox, or sent by it."""
    return messages.seen_by(unit, aid, message_id)


def _placed(unit: Unit, aid: str, mark: ReadMark) -> ReadMark:
    """A mark whose message was unknown gets its place once the message is."""
    if mark.sent_ms or (row := _known(unit, aid, mark.message_id)) is None:
        return mark
    return msgspec.structs.replace(mark, sent_ms=row.sent_ms)


def _order(mark: ReadMark) -> tuple[int, str]:
    return mark.sent_ms, mark.message_id


def _moves(old: ReadMark, new: ReadMark) -> bool:
    """Forward only; what has no place in the order gives way to anything else that is new."""
    if old.message_id == new.message_id:
        return False
    return _order(old) < _order(new) if old.sent_ms else True


def _state(unit: Unit, aid: str, device: str, marks: Sequence[ReadMark]) -> State:
    newest = max((_placed(unit, aid, mark) for mark in marks), key=lambda mark: (mark.sent_ms > 0, *_order(mark)))
    row = _known(unit, aid, newest.message_id)
    seq = None
    if row is not None and row.aid == aid and (not row.devices or device in row.devices):
        seq = row.seq
    status = "unresolved" if row is None else "not_received" if seq is None else "resolved"
    return State(
        topic_key=newest.topic,
        last_read_message_id=newest.message_id,
        last_read_order=newest.sent_ms,
        current_device_seq=seq,
        mapping_status=status,
        updated_at=newest.at_ms,
    )


def _changed(aid: str, mark: ReadMark) -> Event:
    body = {
        "owner_aid": aid,
        "scope": "p2p",
        "topic_key": mark.topic,
        "last_read_message_id": mark.message_id,
        "last_read_order": mark.sent_ms,
        "updated_at": mark.at_ms,
    }
    return Event("inbox", aid, 0, "message.read_changed", dumps(body), frozenset({aid}))
