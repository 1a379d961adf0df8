"""What the broker remembers of one client (MQTT §4.1): subscriptions, messages in flight and waiting, QoS 2 both ways.

A session has no socket and no clock; it says what to send, its owner sends it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

import msgspec

from edge.contract.limit import Limit
from edge.contract.principal import Principal
from edge.protocol.mqtt import limits
from edge.protocol.mqtt.codec import Will
from edge.protocol.mqtt.deadlines import Deadline
from edge.protocol.mqtt.message import Message
from edge.protocol.mqtt.reasons import Packet, Reason
from edge.protocol.mqtt.rights import Rights

Key = tuple[str, str]
"""User and client id: a client id belongs to the user who brought it, another user's is another session."""

WAITING, HELD, READY, SENT, RELEASED = range(5)
"""Of an outgoing message: in the queue; in flight but sent only once it is durable; durable and never sent; published;
PUBREL sent."""

UNRELEASED_COST = 256
"""What a QoS 2 message that waits for PUBREL weighs besides its own bytes."""


class Subscription:
    """One filter of one session. `ids` are the subscription identifiers (none or one; more where some are merged)."""

    __slots__ = ("filter", "group", "ids", "no_local", "qos", "retain_as_published", "retain_handling", "session")

    def __init__(
        self,
        session: Session,
        wanted: str,
        qos: int,
        *,
        group: str = "",
        ids: tuple[int, ...] = (),
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> None:
        self.session, self.filter, self.qos, self.group, self.ids = session, wanted, qos, group, ids
        self.no_local, self.retain_as_published = no_local, retain_as_published
        self.retain_handling = retain_handling

    def same(self, other: Subscription | None) -> bool:
        """Whether replacing one by the other changes nothing."""
        return other is not None and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__ if name != "session"
        )


class Outgoing(msgspec.Struct, eq=False):
    """A message with QoS 1 or 2 for one session. `number` orders all of them and is its row's key."""

    number: int
    message: Message
    qos: int
    retain: bool
    ids: tuple[int, ...]
    packet_id: int = 0
    state: int = WAITING
    stored: bool = False
    """Whether a commit was asked to keep it, so that forgetting it must be written."""
    written: bool = False
    """Whether one did, so that only its packet id and state can have changed."""

    def takes(self, kind: int) -> bool:
        """Whether an ack of this kind may come now (MQTT §4.3): PUBACK; or PUBREC, also again, and PUBCOMP after it."""
        if self.qos == 1:
            return kind == Packet.PUBACK
        return kind == Packet.PUBREC or (kind == Packet.PUBCOMP and self.state == RELEASED)


class Bounds:
    """The numbers that every session is held to, read once."""

    def __init__(self, inflight: int, messages: int, octets: int) -> None:
        self.inflight, self.messages, self.octets = inflight, messages, octets


class Receiver(Protocol):
    """A client's connection, as it is known to those who have something for it (`sender`)."""

    quick: int
    room: int
    out: list[bytes]

    @property
    def writable(self) -> bool:
        """Open, and within its write buffer."""
        ...

    @property
    def stalled(self) -> bool:
        """Whether something waits for room that there is again."""
        ...

    def pump(self) -> None:
        """Send what waits: first what was in flight before, then the queue, then retained messages."""
        ...

    def make_room(self, octets: int) -> bool:
        """Write before the end of the turn when the buffer is full; whether it then has room."""
        ...

    def send0(self, message: Message, retain: bool, ids: tuple[int, ...]) -> None:
        """Send with QoS 0, or lose it, counted, when the client does not take what it has."""
        ...

    def send_quickly(self, out: Outgoing) -> None:
        """Send a new message with QoS 1 to a 3.1.1 client."""
        ...

    def send_outgoing(self, out: Outgoing) -> None:
        """Send a message in flight, again if it was sent before."""
        ...

    def durable(self, out: Outgoing) -> None:
        """A message that waited for the disk may be sent."""
        ...

    def resuming(self, out: Outgoing) -> bool:
        """Whether a message is one of those that an earlier connection left in flight and this one has yet to send."""
        ...

    def flush(self) -> None:
        """Hand everything to the wire, in one piece."""
        ...

    def close(self, reason: Reason | None, clause: str = "", *, will: bool = True) -> None:
        """End the connection."""
        ...


class Session:
    """One client's state. `durable` ones outlive their connection and, by their keeper, the process."""

    __slots__ = (
        "conn",
        "durable",
        "expires_us",
        "expiry",
        "expiry_s",
        "incoming",
        "inflight",
        "kept",
        "key",
        "next_id",
        "number",
        "queue",
        "queue_octets",
        "rights",
        "since_us",
        "stored",
        "subscriptions",
        "unreleased_octets",
        "who",
        "will",
        "will_at_us",
        "will_due",
        "window",
    )

    def __init__(self, key: Key, number: int, rights: Rights, who: Principal) -> None:
        self.key, self.number, self.rights, self.who = key, number, rights, who
        self.conn: Receiver | None = None
        self.durable = False
        self.stored = False
        """Whether there is a row of it, so that removing it must be written."""
        self.kept = False
        """Whether that row is on disk."""
        self.expiry_s = 0
        self.expires_us: int | None = None
        self.expiry: Deadline | None = None
        self.since_us = 0
        """When it was left alone."""
        self.will: tuple[Will, int] | None = None
        """The will and its delay in seconds, as long as it may still be published."""
        self.will_at_us: int | None = None
        self.will_due: Deadline | None = None
        self.window = 0
        """How many messages may be in flight on the present connection."""
        self.subscriptions: dict[str, Subscription] = {}
        self.inflight: dict[int, Outgoing] = {}
        self.incoming: dict[int, Message | None] | None = None
        """QoS 2 packet ids awaiting PUBREL; with the message where it is routed only then."""
        self.unreleased_octets = 0
        self.queue: deque[Outgoing] | None = None
        self.queue_octets = 0
        self.next_id = 1

    @property
    def user(self) -> str:
        """Whose session it is."""
        return self.key[0]

    @property
    def client_id(self) -> str:
        """The client's name for itself."""
        return self.key[1]

    # To the client.

    def enqueue(self, out: Outgoing) -> None:
        """Let a message wait."""
        queue = self.queue
        if queue is None:
            queue = self.queue = deque()
        queue.append(out)
        self.queue_octets += out.message.octets

    def launch(self, out: Outgoing) -> None:
        """Put a message in flight under the next free packet id."""
        packet_id = self.next_id
        inflight = self.inflight
        while packet_id in inflight:
            packet_id = packet_id % 0xFFFF + 1
        self.next_id = packet_id % 0xFFFF + 1
        out.packet_id = packet_id
        out.state = READY
        inflight[packet_id] = out

    def next(self, least: int = 0) -> Outgoing | None:
        """The next message of the queue, now in flight; None when nothing waits or the window is full.

        The store takes messages of class `least` and above: nothing else can be sent with QoS 2. What can, goes before
        it, unless it is of the same topic (MQTT §4.6).
        """
        queue = self.queue
        if not queue or len(self.inflight) >= self.window:
            return None
        if least:
            at = _sendable(queue, least)
            if at is None:
                return None
            out = queue[at]
            del queue[at]
        else:
            out = queue.popleft()
        self.queue_octets -= out.message.octets
        self.launch(out)
        return out

    def give_back(self, out: Outgoing) -> None:
        """Let a message that was held in flight and never sent wait again, before everything that waits."""
        if self.inflight.get(out.packet_id) is not out:
            return  # it was given up meanwhile
        del self.inflight[out.packet_id]
        out.packet_id, out.state = 0, WAITING
        if self.queue is None:
            self.queue = deque()
        self.queue.appendleft(out)
        self.queue_octets += out.message.octets

    def withdraw(self) -> list[Outgoing]:
        """Give up what the client may not read (any more), waiting or in flight.

        Of what it may have had with QoS 2 only PUBREL is sent from now on: it may know the packet id, and would take
        the next message under that for a repeat.
        """
        may_read = self.rights.may_read
        gone = [out for out in self.pending() if out.state != RELEASED and not may_read(out.message.publish.topic)]
        for out in gone:
            if out.qos == 2 and out.state == SENT:
                out.state = RELEASED
            elif out.packet_id:
                del self.inflight[out.packet_id]
        if gone and self.queue is not None:
            self.queue = deque(out for out in self.queue if out not in gone)
            self.queue_octets = sum(out.message.octets for out in self.queue)
        return gone

    def overflow(self, bounds: Bounds) -> tuple[Outgoing, Limit] | None:
        """Take out what has to go until the queue is within bounds: the least important, the oldest of those."""
        queue = self.queue or deque()
        if len(queue) > bounds.messages:
            limit = limits.QUEUE_MESSAGES
        elif self.queue_octets > bounds.octets:
            limit = limits.QUEUE_OCTETS
        else:
            return None
        lowest = min(out.message.rank for out in queue) if queue[0].message.rank else 0
        at = next(at for at, out in enumerate(queue) if out.message.rank == lowest)
        out = queue[at]
        del queue[at]
        self.queue_octets -= out.message.octets
        return out, limit

    def acked(self, packet_id: int, qos: int) -> Outgoing | None:
        """PUBACK or PUBCOMP (or a refusing PUBREC): the message is the client's; None for an unknown id."""
        out = self.inflight.get(packet_id)
        if out is None or out.qos != qos:
            return None
        return self.inflight.pop(packet_id)

    def received(self, packet_id: int) -> Outgoing | None:
        """PUBREC: from now on only PUBREL is sent (MQTT-4.3.3-7); None for an unknown id."""
        out = self.inflight.get(packet_id)
        if out is None or out.qos != 2 or out.state == HELD:
            return None
        out.state = RELEASED
        return out

    def pending(self) -> Iterator[Outgoing]:
        """Everything not settled, in the order in which it was or will be sent."""
        yield from self.inflight.values()
        yield from self.queue or ()

    # From the client.

    def take(self, packet_id: int, message: Message | None) -> bool:
        """Note a QoS 2 packet id; False when it is known already: a repeat (MQTT-4.3.3-10)."""
        if self.incoming is None:
            self.incoming = {}
        if packet_id in self.incoming:
            return False
        self.incoming[packet_id] = message
        if message is not None:
            self.unreleased_octets += message.octets + UNRELEASED_COST
        return True

    def forget(self, packet_id: int) -> Message | None:
        """A QoS 2 packet id is free again; the message kept under it."""
        message = (self.incoming or {}).pop(packet_id, None)
        if message is not None:
            self.unreleased_octets -= message.octets + UNRELEASED_COST
        return message


def _sendable(queue: deque[Outgoing], least: int) -> int | None:
    """The first message that can be sent while the store takes only messages of class `least` and above."""
    waiting: set[str] = set()
    for at, out in enumerate(queue):
        topic = out.message.publish.topic
        if topic not in waiting and (out.qos == 1 or out.message.rank >= least):
            return at
        waiting.add(topic)
    return None
