"""`message.thought.put` and `get`: what an agent thinks beside the conversation; in memory, fetched, never pushed.

One head per (sender, peer, context); a sender keeps its newest contexts only, a context its newest thoughts.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import msgspec

from edge.contract.errors import InvalidParams, NotPermitted, RecipientsStale, TooLarge, UnknownAid
from edge.contract.limit import Limits, declare
from edge.contract.op import Call, Params, op
from edge.contract.store import Store
from edge.contract.time import Clock, wall_ms
from edge.protocol import aid as aids
from edge.protocol.thoughts import Bounds, Shelf
from edge.services.message.drafts import Drafts, sender_of
from edge.services.message.records import Send

CONTEXTS = declare("message.thought_contexts", 100, "contexts", "of one sender; the oldest is forgotten", None)
ITEMS = declare("message.thoughts", 100, "thoughts", "of one context; the oldest is forgotten", None)
OCTETS = declare(
    "message.thought_context_octets",
    1_200_000,
    "bytes",
    "of one context, as one answer holds it; the oldest thought is forgotten",
    None,
)
TOTAL = declare("message.thought_octets", 8 << 20, "bytes", "of all thoughts; the oldest context is forgotten", None)
NAME = declare(
    "message.thought_name", 128, "characters", "of a context's type or id, or of a thought_id", InvalidParams
)


class Context(msgspec.Struct, frozen=True):
    """What a thought is about, `{"type": "run", "id": "run-1"}`."""

    type: str
    id: str


class PutThought(Params, frozen=True, kw_only=True):
    """Add a thought to the caller's head for a peer and a context."""

    to: str
    context: Context
    payload: msgspec.Raw
    thought_id: str = ""


class Put(msgspec.Struct, kw_only=True):
    """The head now holds `stored_count` thoughts."""

    sender_aid: str
    peer_aid: str
    to: str
    context: Context
    thought_id: str
    stored_count: int
    updated_at: int


class GetThoughts(Params, frozen=True, kw_only=True):
    """Whose thoughts on what; the other party may be left out by that party."""

    sender_aid: str
    context: Context
    peer_aid: str = ""
    to: str = ""


class Thoughts(msgspec.Struct, kw_only=True):
    """The head, oldest thought first; nothing is no error."""

    found: bool
    sender_aid: str
    peer_aid: str
    context: Context
    thoughts: list[Mapping[str, object]]
    updated_at: int


class ThoughtService:
    """Keeps thoughts while the node runs."""

    def __init__(self, node: Store, clock: Clock, drafts: Drafts, limits: Limits) -> None:
        self._node, self._clock, self._drafts, self._limits = node, clock, drafts, limits
        self._shelf = Shelf(limits, Bounds(CONTEXTS, ITEMS, OCTETS, TOTAL), thinker=1)

    @op(
        "message.thought.put",
        scope="message:write",
        wire={"aun": ("message.thought.put",)},
        raises=(InvalidParams, TooLarge, UnknownAid, RecipientsStale, NotPermitted),
    )
    async def put_thought(self, call: Call[PutThought]) -> Put:
        """Keep a thought for a peer to fetch; it is not delivered, numbered or stored on disk."""
        asked = call.params
        self._check_names(asked.context.type, asked.context.id, asked.thought_id)
        draft = self._drafts.make(call.who, Send(to=asked.to, payload=asked.payload))
        await self._node.read(lambda unit: self._drafts.accept(unit, draft))
        message, thought_id = draft.message, asked.thought_id or f"mt-{secrets.token_hex(16)}"
        key, now_ms = (message.sender, message.to, asked.context.type, asked.context.id), wall_ms(self._clock)
        item = {
            "thought_id": thought_id,
            "message_id": thought_id,
            "context": asked.context,
            "from": message.sender,
            "to": message.to,
            "payload": message.payload,
            "created_at": now_ms,
        }
        count = self._shelf.put(key, thought_id, item, now_ms)
        return Put(
            sender_aid=message.sender,
            peer_aid=message.to,
            to=message.to,
            context=asked.context,
            thought_id=thought_id,
            stored_count=count,
            updated_at=now_ms,
        )

    @op(
        "message.thought.get",
        scope="message:read",
        wire={"aun": ("message.thought.get",)},
        raises=(InvalidParams, NotPermitted),
    )
    async def get_thoughts(self, call: Call[GetThoughts]) -> Thoughts:
        """The thoughts of a conversation's party; only the two parties may read them."""
        asked, me = call.params, sender_of(call.who)
        sender = aids.normal(asked.sender_aid)
        named = asked.peer_aid or asked.to
        peer = aids.normal(named) if named else me
        if sender == me and not named:
            raise InvalidParams("peer_aid is missing")
        if me not in (sender, peer):
            raise NotPermitted("thoughts are for the two who talk")
        items, at_ms = self._shelf.get((sender, peer, asked.context.type, asked.context.id))
        return Thoughts(
            found=bool(items),
            sender_aid=sender,
            peer_aid=peer,
            context=asked.context,
            thoughts=items,
            updated_at=at_ms,
        )

    def _check_names(self, kind: str, ident: str, thought_id: str) -> None:
        if not kind or not ident:
            raise InvalidParams("context needs type and id")
        if max(len(kind), len(ident), len(thought_id)) > self._limits[NAME]:
            raise self._limits.refuse(NAME)
