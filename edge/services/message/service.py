"""The message service as the node sees it: every operation, its timers, and what a new connection is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile
from typing import Any

import msgspec

from edge.contract.channel import Instance, Presence
from edge.contract.errors import Unavailable
from edge.contract.event import Event, Fanout
from edge.contract.limit import Limits
from edge.contract.op import Call, Calls, Spawn
from edge.contract.principal import Kind, Principal
from edge.contract.store import Store, Unit
from edge.contract.task import DeviceGate
from edge.contract.time import SECOND, Clock, Stamp, later, wall_us
from edge.contract.wire import dumps
from edge.services.message import remembered
from edge.services.message.automata import Automata
from edge.services.message.catalogue import CatalogueService
from edge.services.message.drafts import Drafts
from edge.services.message.inbox import InboxService
from edge.services.message.keys import KeyService
from edge.services.message.letters import KeyOf, Letters
from edge.services.message.memory import Known, Memory
from edge.services.message.post import PostService
from edge.services.message.reads import ReadService
from edge.services.message.records import TTL, Send
from edge.services.message.ring import place
from edge.services.message.thoughts import ThoughtService
from edge.store import messages
from edge.store.messages import Reader

logger = logging.getLogger(__name__)

SWEEP_US = 60 * SECOND
SWEEP_ROWS = 500


class MessageService(PostService, InboxService, CatalogueService, KeyService, ReadService, ThoughtService):
    """Point-to-point messages. `known` says which AIDs exist; `issuer` is the part behind their first dot."""

    def __init__(
        self,
        node: Store,
        clock: Clock,
        presence: Presence,
        gate: DeviceGate,
        calls: Calls,
        spawn: Spawn,
        fanout: Fanout,
        *,
        issuer: str,
        known: Known,
        limits: Limits,
        key_of: KeyOf,
    ) -> None:
        """`key_of` gives the key of a device or service, so that it reads what is sealed for it."""
        memory, drafts = Memory(clock, fanout, limits), Drafts(clock, known, issuer, limits)
        letters = Letters(node, clock, key_of)
        self._automata = Automata(node, clock, gate, calls, spawn, fanout, issuer, self._reply, letters)
        PostService.__init__(self, node, clock, presence, memory, drafts, limits, self._automata.received)
        InboxService.__init__(self, node, clock, presence, memory, issuer, limits)
        CatalogueService.__init__(self, node, memory, limits)
        KeyService.__init__(self, node, known, limits)
        ReadService.__init__(self, node, limits)
        ThoughtService.__init__(self, node, clock, drafts, limits)
        self._spawn, self._fanout = spawn, fanout
        self._cancel: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to age messages out, and answer what devices were asked before the last stop."""
        self._sweep()
        self._spawn(self._declare_lost())
        self._automata.start()

    def stop(self) -> None:
        """End the timers."""
        if self._cancel:
            self._cancel()
        self._automata.stop()

    def connected(self, instance: Instance) -> None:
        """A connection of an AID is live: hand it what waits in the ring, tell it when there is a backlog."""
        ring = self._memory.ring
        if instance.mode == "queue" and instance.long:
            for row in ring.unclaimed(instance.aid, instance.device_id, self._memory.now_us):
                row.owner = place(instance)
                self._memory.push(row.message, row.seq, only=instance.channel)
        if instance.peer_pull:
            self._spawn(self._hint(instance))

    async def _reply(self, sender: str, to: str, message_id: str, payload: Mapping[str, Any]) -> None:
        who = Principal(Kind.DEVICE, sender, frozenset({"message:write"}), "node")
        params = Send(to=to, payload=msgspec.Raw(dumps(payload)), message_id=message_id, delivery_mode="fanout")
        await self.send(Call(who=who, op="message.send", params=params))

    async def _hint(self, instance: Instance) -> None:
        reader = Reader(instance.aid, *place(instance))
        waiting = bool(self._memory.volatile.senders(instance.aid, place(instance), self._memory.now_us))
        if waiting or await self._node.read(partial(_backlog, reader=reader)):
            audience = frozenset({instance.aid})
            self._fanout.publish(
                Event(messages.INBOX, instance.aid, 0, "message.hint", b"{}", audience, instance.channel)
            )

    async def _declare_lost(self) -> None:
        """Queue messages that earlier lives of the node held and nobody read, a few at a time."""
        at = remembered.Lost(("", ""), True)
        try:
            while at.more:
                at = await self._node.commit(
                    partial(remembered.declare, life=self._memory.life, after=at.after, rows=SWEEP_ROWS)
                )
        except Unavailable as error:
            self._automata.later(self._declare_lost, error)

    def _sweep(self) -> None:
        """Let messages go that are older than the stated age; raise the floors of their inboxes (M-16)."""
        self._cancel = later(self._clock, SWEEP_US, self._sweep)
        self._spawn(self._age_out())

    async def _age_out(self) -> None:
        while True:
            found = await self._node.read(lambda unit: messages.oldest(unit, SWEEP_ROWS))
            due = list(takewhile(lambda row: self._aged(row[1]), found))
            if due:
                await self._node.commit(partial(messages.expire, through_id=due[-1][0]))
            if len(due) < SWEEP_ROWS:
                return

    def _aged(self, at: Stamp) -> bool:
        return wall_us(self._clock) - self._clock.wall(at)[0] >= self._limits[TTL] * SECOND


def _backlog(unit: Unit, reader: Reader) -> bool:
    floor = messages.floor(unit, reader.aid)
    return any(peer.head > max(peer.acked, floor) for peer in messages.peers(unit, reader))
