"""The half of a connection that speaks: packets for one client, what waits for room, bytes for the wire."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from edge.protocol.mqtt import limits
from edge.protocol.mqtt import message as messages
from edge.protocol.mqtt.codec import V311
from edge.protocol.mqtt.deadlines import Deadline
from edge.protocol.mqtt.message import Message
from edge.protocol.mqtt.reasons import Reason
from edge.protocol.mqtt.router import ALARM
from edge.protocol.mqtt.session import HELD, READY, RELEASED, SENT, Outgoing, Session, Subscription
from edge.protocol.mqtt.wire import State, Wire

if TYPE_CHECKING:
    from edge.protocol.mqtt.broker import Broker


class Sender:
    """Output of a turn gathers in `out` and leaves in one piece; `room` is what the client may still be sent."""

    __slots__ = (
        "_aliases",
        "_backlog",
        "_blocked",
        "_pauses",
        "_replay",
        "_searches",
        "alias_maximum",
        "broker",
        "out",
        "packet_maximum",
        "quick",
        "room",
        "session",
        "state",
        "version",
        "wire",
    )

    def __init__(self, broker: Broker, wire: Wire) -> None:
        self.broker, self.wire = broker, wire
        self.state = State.NEW
        self.version = V311
        self.quick = 0
        """The version, when a PUBLISH with QoS 0 needs nothing of this connection's own; else 0."""
        self.session: Session | None = None
        self.out: list[bytes] = []
        self.room = broker.write_octets
        self.packet_maximum = 0
        """The largest packet that the client takes; 0 is any (MQTT 5 §3.1.2.11.4)."""
        self.alias_maximum = 0
        self._backlog: deque[Outgoing] | None = None
        """In flight on an earlier connection and not yet sent on this one."""
        self._replay: deque[tuple[str, Subscription]] | None = None
        """Retained messages yet to be sent."""
        self._searches: deque[Subscription] | None = None
        self._aliases: dict[str, int] | None = None
        self._blocked: Deadline | None = None
        self._pauses = 0

    # To the client.

    def send0(self, message: Message, retain: bool, ids: tuple[int, ...]) -> None:
        """Send with QoS 0, or lose it, counted, when the client does not take what it has."""
        session = self.session
        if self.state is not State.OPEN or session is None:
            return
        plain = self.quick and not retain and not ids
        now_us, aliases = self.broker.now_us, len(self._aliases or ())
        frame = message.plain0(self.version, now_us) if plain else self._packet_of(message, 0, retain, ids)
        if frame is None:
            return
        if self.room < len(frame) and not self.make_room(len(frame)):
            self.broker.limits.hit(limits.WRITE_OCTETS)
            self.broker.lost("no_room", message.rank, session.user)
            if self._aliases and len(self._aliases) > aliases:
                self._aliases.popitem()  # the client never hears what it stands for
            return
        self.broker.messages_out += 1
        self._put(frame)

    def _packet_of(
        self, message: Message, qos: int, retain: bool, ids: tuple[int, ...], packet_id: int = 0, dup: bool = False
    ) -> bytes | None:
        """The packet for this client, with its alias; None when it is larger than the client takes (MQTT-3.1.2-24)."""
        now_us = self.broker.now_us
        alias, head = self._alias(message.publish.topic) if self.alias_maximum else (0, None)
        frame = messages.packet(
            message, self.version, qos, retain, now_us, packet_id=packet_id, dup=dup, ids=ids, alias=alias, head=head
        )
        if self.packet_maximum and len(frame) > self.packet_maximum:
            if alias and head is None and self._aliases is not None:
                del self._aliases[message.publish.topic]
            self.broker.lost("too_large_for_client", message.rank, self.session.user if self.session else "")
            return None
        return frame

    def _alias(self, topic: str) -> tuple[int, bytes | None]:
        """The topic alias and, once the client knows it, an empty topic (MQTT 5 §3.3.2.3.4)."""
        if self._aliases is None:
            self._aliases = {}
        known = self._aliases.get(topic)
        if known is not None:
            return known, b"\0\0"
        if len(self._aliases) >= self.alias_maximum:
            return 0, None
        alias = self._aliases[topic] = len(self._aliases) + 1
        return alias, None

    def send_quickly(self, out: Outgoing) -> None:
        """Send a new message with QoS 1 to a 3.1.1 client: three pieces, of which only the packet id is its own."""
        out.state = SENT
        broker, message = self.broker, out.message
        broker.messages_out += 1
        prefix, payload = message.prefix or message.prefix1(), message.publish.payload
        mine = self.out
        if not mine:
            broker.dirty.append(self)
        mine += (prefix, out.packet_id.to_bytes(2, "big"), payload)
        self.room -= len(prefix) + len(payload) + 2

    def send_outgoing(self, out: Outgoing) -> None:
        """Send a message in flight, again if it was sent before; settle it when the client cannot take it."""
        message = out.message
        if out.state == READY and out.qos == 1 and self.quick == V311 and not out.retain:
            self.send_quickly(out)
            return
        if out.state == RELEASED:
            self._put(b"\x62\x02" + out.packet_id.to_bytes(2, "big"))
            return
        self.broker.messages_out += 1
        dup = out.state == SENT
        out.state = SENT
        frame = self._packet_of(message, out.qos, out.retain, out.ids, out.packet_id, dup)
        if frame is not None:
            self._put(frame)
            return
        assert self.session is not None  # noqa: S101 - open
        del self.session.inflight[out.packet_id]
        self.broker.settled(self.session, out)

    def stop_reading(self) -> None:
        """Leave the client unread, for one reason more."""
        self._pauses += 1
        if self._pauses == 1:
            self.wire.pause()

    def read_on(self) -> None:
        """One reason less; without any the client is read again."""
        self._pauses -= 1
        if not self._pauses:
            self.wire.resume()

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self.state is State.CLOSED

    @property
    def writable(self) -> bool:
        """Open, and within its write buffer."""
        return self.room > 0 and self.state is State.OPEN and not self._backlog

    @property
    def stalled(self) -> bool:
        """Whether something waits for room that there is again."""
        session = self.session
        return (
            self.room > 0
            and session is not None
            and bool(session.queue or self._replay or self._backlog)
            and self.state is State.OPEN
        )

    def pump(self) -> None:
        """Send what waits: first what was in flight before, then the queue, then retained messages."""
        session = self.session
        while session is not None and self.room > 0 and self.state is State.OPEN:
            if not self._pump_one(session):
                break
        if self.out:
            self.broker.need_turn()

    def _pump_one(self, session: Session) -> bool:
        if self._backlog:
            return self._pump_backlog(session, self._backlog)
        following = session.next(ALARM if session.durable and self.broker.journal.refused else 0)
        if following is not None:
            self.broker.launched(session, following)
            return True
        return self._pump_replay(session)

    def _pump_backlog(self, session: Session, backlog: deque[Outgoing]) -> bool:
        """Send again in the old order (MQTT-4.6.0-1); when the window is full, PUBREL all the same (MQTT-3.3.4-10)."""
        out = backlog[0]
        if out.state != RELEASED and len(session.inflight) - len(backlog) >= session.window:
            released = next((one for one in backlog if one.state == RELEASED), None)
            if released is None:
                return False
            out = released
        backlog.remove(out)
        if out.state != HELD:
            self.send_outgoing(out)
        return True

    def durable(self, out: Outgoing) -> None:
        """A message that waited for the disk may be sent."""
        if self.state is State.OPEN and not self.resuming(out):
            self.send_outgoing(out)

    def resuming(self, out: Outgoing) -> bool:
        """Whether a message is one of those that an earlier connection left in flight and this one has yet to send."""
        return self._backlog is not None and out in self._backlog

    @property
    def searches(self) -> int:
        """How many new subscriptions wait for their retained messages."""
        return len(self._searches or ())

    def replay(self, fresh: list[Subscription]) -> None:
        """Send the retained messages of new subscriptions: looked for one filter at a time, sent as fast as the client
        takes them."""
        if not fresh or self.state is not State.OPEN:
            return
        if self._searches is None:
            self._searches = deque()
        if not self._searches and not self._replay:
            self.broker.search(self)
        self._searches.extend(fresh)

    def search(self) -> int:
        """Look for the next subscription's retained messages; what that cost."""
        if not self._searches or self.state is not State.OPEN:
            return 0
        subscription = self._searches.popleft()
        topics, steps = self.broker.retained.find(subscription.filter)
        if topics:
            self._replay = deque((topic, subscription) for topic in topics)
            self.pump()
        elif self._searches:
            self.broker.search(self)
        return steps

    def _pump_replay(self, session: Session) -> bool:
        """Send one retained message, as it is now; False when there is none or it has to wait."""
        if not self._replay:
            return False
        topic, subscription = self._replay[0]
        message = self.broker.retained.get(topic, self.broker.now_us)
        qos = min(subscription.qos, message.publish.qos) if message is not None else 0
        if qos and (session.queue or len(session.inflight) >= session.window):
            return False
        self._replay.popleft()
        if not self._replay and self._searches:
            self.broker.search(self)
        if message is not None and session.rights.may_read(topic):
            self.broker.send_to(subscription, message, qos, True)
        return True

    # Bytes out.

    def _put(self, data: bytes) -> None:
        if not data:
            return
        if not self.out:
            self.broker.dirty.append(self)
        self.out.append(data)
        self.room -= len(data)

    def flush(self) -> None:
        """Hand everything to the wire, in one piece."""
        out = self.out
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self.broker.octets_out += len(data)
            self.wire.write(data)
            self.room = self.broker.write_octets - self.wire.buffered()

    def make_room(self, octets: int) -> bool:
        """Write before the end of the turn when the buffer is full; whether it then has room."""
        self.flush()
        return self.room >= octets or (octets > self.broker.write_octets and self.room == self.broker.write_octets)

    def blocked(self) -> None:
        """The wire is full: give the client some time."""
        if self._blocked is None and self.state is not State.CLOSED:
            self._blocked = self.broker.deadlines.at(
                self.broker.now_us + self.broker.blocked_us, self._blocked_too_long
            )
            self.broker.need_turn()

    def unblocked(self) -> None:
        """The wire takes more."""
        self.broker.deadlines.cancel(self._blocked)
        self._blocked = None
        if self.state is State.OPEN:
            self.room = self.broker.write_octets - self.wire.buffered()
            self.pump()
            self.broker.need_turn()

    def _blocked_too_long(self) -> None:
        self._blocked = None
        self.broker.limits.hit(limits.BLOCKED_S)
        self.broker.count("closed.blocked")
        self.wire.abort()
        self.close(None)

    def close(self, reason: Reason | None, clause: str = "", *, will: bool = True) -> None:
        """End the connection."""
