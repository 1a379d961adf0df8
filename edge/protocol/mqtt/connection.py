"""One connection: bytes in, packets handled, bytes out. The wire below it decides nothing (MQTT 3.1.1 and 5)."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from edge.contract.bus import Publish
from edge.contract.time import SECOND
from edge.protocol.mqtt import codec, limits
from edge.protocol.mqtt import message as messages
from edge.protocol.mqtt.codec import V5, V311
from edge.protocol.mqtt.deadlines import Deadline
from edge.protocol.mqtt.fields import Fault, violation
from edge.protocol.mqtt.message import Message
from edge.protocol.mqtt.properties import Prop, Properties
from edge.protocol.mqtt.reasons import CONNACK_311, FROM_CLIENT, Packet, Reason
from edge.protocol.mqtt.router import Route
from edge.protocol.mqtt.session import HELD, RELEASED, SENT, Outgoing, Session, Subscription

if TYPE_CHECKING:
    from edge.protocol.mqtt.broker import Broker, Hold

AT_ONCE, JOURNAL = -2, -1
"""What an ack waits for besides the position of a message in the batch: nothing of its own; the journal."""


class State(Enum):
    """NEW waits for CONNECT, OPENING for what CONNACK waits for."""

    NEW = 1
    OPENING = 2
    OPEN = 3
    CLOSED = 4


class Wire(Protocol):
    """What carries the bytes."""

    def write(self, data: bytes) -> None:
        """Send; never waits."""
        ...

    def buffered(self) -> int:
        """Bytes written and not yet taken by the kernel."""
        ...

    def pause(self) -> None:
        """Read no more for now."""
        ...

    def resume(self) -> None:
        """Read again."""
        ...

    def close(self) -> None:
        """Close once what is buffered has been taken."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class Reply:
    """An ack with something to do: `kept` when what it waits for is on disk, `failed` when it cannot be."""

    __slots__ = ("data",)

    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    def kept(self) -> bytes:
        """The bytes to send."""
        return self.data

    def failed(self) -> bytes | None:
        """The bytes to send instead; None keeps the ack back."""
        return None


class Connection:
    """The machine of one client's connection; `receive` never raises on what the client sent."""

    __slots__ = (
        "_aliases",
        "_backlog",
        "_blocked",
        "_client_aliases",
        "_held",
        "_keep_alive",
        "_limit",
        "_paused",
        "_replay",
        "_routes",
        "_tail",
        "_timeout",
        "_wanted",
        "_watch",
        "_watched_us",
        "address",
        "alias_maximum",
        "broker",
        "client_id",
        "heard_us",
        "out",
        "packet_maximum",
        "quick",
        "room",
        "session",
        "state",
        "unacked",
        "user",
        "version",
        "who",
        "wire",
    )

    def __init__(self, broker: Broker, wire: Wire, address: str) -> None:
        self.broker, self.wire, self.address = broker, wire, address
        self.state = State.NEW
        self.version = V311
        self.quick = 0
        """The version, when a PUBLISH with QoS 0 needs nothing of this connection's own; else 0."""
        self.session: Session | None = None
        self.client_id = self.user = ""
        self.who = broker.nobody
        self.out: list[bytes] = []
        self.room = broker.write_octets
        """How many bytes may still be written before QoS 0 is dropped."""
        self.heard_us = broker.now_us
        self.packet_maximum = 0
        self.alias_maximum = 0
        self._limit = broker.connect_octets
        self._routes: dict[bytes, Route] = {}
        self._tail = bytearray()
        self._wanted = 2
        self._held: deque[tuple[Hold | None, list[bytes | Reply]]] | None = None
        self.unacked = 0
        """PUBLISH packets with QoS 1 whose PUBACK has not left."""
        self._watch: Deadline | None = None
        self._watched_us = 0
        self._paused = False
        self._backlog: deque[Outgoing] | None = None
        self._replay: deque[tuple[str, Subscription]] | None = None
        self._aliases: dict[str, int] | None = None
        self._client_aliases: dict[int, str] | None = None
        self._blocked: Deadline | None = None
        self._keep_alive = 0
        self._timeout: Deadline | None = broker.deadlines.at(self.heard_us + broker.connect_us, self._connect_timed_out)

    # Bytes in.

    def receive(self, data: bytes) -> None:
        """Take a chunk from the wire."""
        if self.state is State.CLOSED:
            return
        tail = self._tail
        if tail:
            tail += data
            if len(tail) < self._wanted or self.state is State.OPENING:
                return
            data = bytes(tail)
            self._tail = bytearray()
        elif self.state is State.OPENING:
            tail += data
            return
        self._consume(data)
        self.broker.need_turn()

    def _consume(self, data: bytes) -> None:
        """Handle every whole packet; keep the rest."""
        pos, end = 0, len(data)
        try:
            while pos < end:
                first = data[pos]
                start = pos + 2
                length = data[pos + 1] if start <= end else 0xFF
                if length > 0x7F:
                    found = codec.split(data, pos, self._limit, self.version == V5)
                    if isinstance(found, int):
                        self._wanted = found
                        break
                    first, start, stop = found
                else:
                    stop = start + length
                    if stop > end:
                        self._wanted = stop - pos
                        break
                if not (
                    (first == 0x30 and self._publish0(data, pos, start, stop))
                    or (first == 0x32 and self._publish1(data, start, stop))
                    or (first == 0x40 and stop - start == 2 and self._puback(data[start] << 8 | data[start + 1]))
                ):
                    self._packet(first, data, start, stop)
                pos = stop
                if self.state is not State.OPEN:
                    break
        except Fault as fault:
            self._fault(fault)
        if pos:
            self.heard_us = self.broker.now_us
        if pos < end and self.state is not State.CLOSED:
            self._tail = bytearray(data[pos:])

    def _publish0(self, data: bytes, pos: int, start: int, stop: int) -> bool:
        """The short way of a PUBLISH with QoS 0 on a known topic: False when it must go the long way."""
        at = start + 2
        if at > stop:
            return False
        at += data[start] << 8 | data[start + 1]
        route = self._routes.get(data[start + 2 : at])
        if route is None or at > stop:
            return False
        if self.version == V5:
            if at == stop or data[at]:
                return False
            at += 1
        broker = self.broker
        frame = data[pos:stop]
        publish = Publish(route.topic, data[at:stop], 0, False, self.who, broker.stamp)
        broker.batch.append(publish)
        if route.generation != broker.router.generation:
            broker.router.refresh(route)
        version, size, dirty = self.version, stop - pos, broker.dirty
        for found in route.plain:
            conn = found.session.conn
            if conn is None:
                continue
            if conn.quick == version:
                if conn.room < size and not conn.make_room(size):
                    broker.lost_live(route.topic, found.session, limits.WRITE_OCTETS)
                    continue
                conn.room -= size
                out = conn.out
                if not out:
                    dirty.append(conn)
                out.append(frame)
            else:
                conn.send0(Message(publish, route.head, source=self.session), False, ())
        if route.special or route.groups:
            broker.spread_special(Message(publish, route.head, source=self.session), route)
        return True

    def _publish1(self, data: bytes, start: int, stop: int) -> bool:
        """The short way of a PUBLISH with QoS 1 on a known topic."""
        at = start + 2
        if at > stop:
            return False
        at += data[start] << 8 | data[start + 1]
        route = self._routes.get(data[start + 2 : at])
        body = at + 2
        if route is None or body > stop:
            return False
        packet_id = data[at:body]
        if packet_id == b"\0\0":
            return False
        if self.version == V5:
            if body == stop or data[body]:
                return False
            body += 1
            self._count_unacked()
        broker = self.broker
        publish = Publish(route.topic, data[body:stop], 1, False, self.who, broker.stamp)
        broker.accept(Message(publish, route.head, source=self.session), route, self, b"\x40\x02" + packet_id)
        return True

    def _fault(self, fault: Fault) -> None:
        broker = self.broker
        broker.count(f"fault.{fault.reason.name.lower()}")
        if fault.reason is Reason.PACKET_TOO_LARGE:
            broker.limits.hit(limits.CONNECT_OCTETS if self.state is State.NEW else limits.PACKET_OCTETS)
        if self.state is State.NEW:
            if fault.reason is Reason.UNSUPPORTED_PROTOCOL_VERSION:
                self.refuse(Reason.UNSUPPORTED_PROTOCOL_VERSION)
            else:
                self.close(None)
        else:
            self.close(fault.reason, fault.clause)

    def _packet(self, first: int, data: bytes, start: int, stop: int) -> None:
        if self.state is State.NEW and first != 0x10:
            raise violation("MQTT-3.1.0-1 first packet is not CONNECT")
        packet = codec.decode(first, data, start, stop, self.version)
        if isinstance(packet, codec.PublishPacket):
            self._on_publish(packet)
        elif isinstance(packet, codec.Ack):
            self._on_ack(packet)
        elif isinstance(packet, codec.Ping) and packet.kind == Packet.PINGREQ:
            self.ack(AT_ONCE, b"\xd0\0")
        elif isinstance(packet, codec.Subscribe):
            self.broker.subscribe(self, packet)
        elif isinstance(packet, codec.Unsubscribe):
            self.broker.unsubscribe(self, packet)
        elif isinstance(packet, codec.Disconnect):
            self._on_disconnect(packet)
        elif isinstance(packet, codec.Connect) and self.state is State.NEW:
            self._on_connect(packet)
        else:
            raise violation("MQTT-3.1.0-2 packet not allowed here")

    # Opening.

    def _on_connect(self, packet: codec.Connect) -> None:
        self.version = packet.version
        self.broker.deadlines.cancel(self._timeout)
        self._timeout = None
        self.state = State.OPENING
        self.wire.pause()
        self.broker.connect(self, packet)

    def opened(self, session_present: bool, found: Properties, keep_alive: int) -> None:
        """CONNACK may leave: the session is the client's, traffic flows."""
        if self.state is not State.OPENING:
            return
        self.state = State.OPEN
        self._limit = self.broker.packet_octets
        self._put(codec.encode(codec.Connack(session_present, 0, found), self.version))
        if not (self.packet_maximum or self.alias_maximum):
            self.quick = self.version
        self._keep_alive = keep_alive * SECOND * 3 // 2
        if self._keep_alive:
            self.heard_us = self.broker.now_us
            self._timeout = self.broker.deadlines.at(self.heard_us + self._keep_alive, self._keep_alive_due)
        self._backlog = deque(self.session.inflight.values()) if self.session and self.session.inflight else None
        self.pump()
        self.wire.resume()
        tail, self._tail = bytes(self._tail), bytearray()
        if tail:
            self._consume(tail)
        self.broker.need_turn()

    def refuse(self, reason: Reason, found: Properties | None = None) -> None:
        """CONNACK with a refusal, then close (MQTT-3.2.2-5 of 3.1.1, MQTT-3.2.2-7 of 5)."""
        if self.state is State.CLOSED:
            return
        if self.version == V5 and reason is not Reason.UNSUPPORTED_PROTOCOL_VERSION:
            self._put(codec.encode(codec.Connack(False, reason, found or {}), V5))
        elif reason in CONNACK_311:
            self._put(codec.encode(codec.Connack(False, CONNACK_311[reason]), V311))
        self.close(None)

    def _connect_timed_out(self) -> None:
        self.broker.limits.hit(limits.CONNECT_S)
        self.broker.count("closed.connect_timeout")
        self.close(None)

    def _keep_alive_due(self) -> None:
        due = self.heard_us + self._keep_alive
        if due <= self.broker.now_us:
            self.broker.count("closed.keep_alive")
            self.close(Reason.KEEP_ALIVE_TIMEOUT, "MQTT-3.1.2-22 silent for 1.5 times the keep-alive")
        else:
            self._timeout = self.broker.deadlines.at(due, self._keep_alive_due)

    # From the client.

    def _on_publish(self, packet: codec.PublishPacket) -> None:
        topic = self._resolve_alias(packet) if self.version == V5 else packet.topic
        broker = self.broker
        route, refusal = self._checked(topic, packet)
        if packet.qos:
            self._count_unacked()
        publish = Publish(topic, packet.payload, packet.qos, packet.retain, self.who, broker.stamp)
        if refusal is not None:
            broker.refused(publish, self, refusal)
            if packet.qos:
                kind = Packet.PUBACK if packet.qos == 1 else Packet.PUBREC
                reason = refusal if self.version == V5 else 0
                self.unacked += packet.qos == 1
                self.ack(AT_ONCE, codec.encode(codec.Ack(kind, packet.packet_id, reason), self.version))
            return
        assert route is not None  # noqa: S101 - no refusal
        message = messages.make(publish, packet.properties, self.session, route.head)
        if packet.qos == 2:
            self._on_publish2(packet.packet_id, message, route)
        elif packet.qos:
            broker.accept(message, route, self, b"\x40\x02" + packet.packet_id.to_bytes(2, "big"))
        else:
            broker.accept(message, route, self, None)

    def _checked(self, topic: str, packet: codec.PublishPacket) -> tuple[Route | None, Reason | None]:
        """The route, or why the message is refused. Raises `Fault` for what closes the connection."""
        broker = self.broker
        name = topic.encode()
        route = self._routes.get(name)
        if route is None:
            broker.check_topic(topic, name)
            assert self.session is not None  # noqa: S101 - open
            if not self.session.rights.may_publish(topic):
                return None, Reason.NOT_AUTHORIZED
            if len(self._routes) >= 256:
                self._routes.clear()
            route = self._routes[name] = broker.router.route(topic)
        if packet.properties.get(Prop.PAYLOAD_FORMAT) and not _is_text(packet.payload):
            return None, Reason.PAYLOAD_FORMAT_INVALID
        return route, None

    def _resolve_alias(self, packet: codec.PublishPacket) -> str:
        """The topic behind a topic alias (MQTT 5 §3.3.2.3.4)."""
        if Prop.SUBSCRIPTION_IDENTIFIER in packet.properties:
            raise violation("MQTT-3.3.4-6 subscription identifier from a client")
        alias = packet.properties.get(Prop.TOPIC_ALIAS)
        if alias is None:
            return packet.topic
        if not 0 < alias <= self.broker.topic_aliases:
            raise Fault(Reason.TOPIC_ALIAS_INVALID, "MQTT-3.3.2-8, MQTT-3.3.2-9 topic alias")
        if self._client_aliases is None:
            self._client_aliases = {}
        if packet.topic:
            self._client_aliases[alias] = packet.topic
            return packet.topic
        topic = self._client_aliases.get(alias)
        if topic is None:
            raise violation("§3.3.2.3.4 topic alias without a topic")
        return topic

    def _on_publish2(self, packet_id: int, message: Message, route: Route) -> None:
        """Durable sessions keep the message until PUBREL; others route it now and remember the id (§4.3.3)."""
        session = self.session
        assert session is not None  # noqa: S101 - open
        pubrec = b"\x50\x02" + packet_id.to_bytes(2, "big")
        known = not session.take(packet_id, message if session.durable else None)
        if session.durable:
            if not known:
                self.broker.journal.incoming(session, packet_id, message)
            self.ack(JOURNAL, pubrec)
        elif known:
            self.ack(AT_ONCE, pubrec)
        else:
            self.broker.accept(message, route, self, pubrec)

    def _count_unacked(self) -> None:
        """Hold a version 5 client to Receive Maximum (MQTT-3.3.4-7 to -9); a 3.1.1 client is left unread instead."""
        session = self.session
        unacked = self.unacked + len(session.incoming or ()) if session is not None else 0
        if unacked >= self.broker.receive_maximum and self.version == V5:
            self.broker.limits.hit(limits.RECEIVE_MAXIMUM)
            raise Fault(Reason.RECEIVE_MAXIMUM_EXCEEDED, "MQTT-3.3.4-9 more unacknowledged than Receive Maximum")

    def _puback(self, packet_id: int) -> bool:
        """PUBACK without a reason."""
        session = self.session
        if session is None:
            return False
        out = session.acked(packet_id, 1)
        if out is None:
            return packet_id != 0
        self.broker.settled(session, out)
        self._forget_backlog(out)
        if session.queue or self._replay or self._backlog:
            self.pump()
        return True

    def _on_ack(self, packet: codec.Ack) -> None:
        session = self.session
        assert session is not None  # noqa: S101 - open
        refused = packet.reason >= 0x80
        if packet.kind == Packet.PUBREL:
            self.broker.release(self, packet.packet_id)
        elif packet.kind == Packet.PUBREC and not refused:
            self._on_pubrec(session, packet.packet_id)
        else:
            out = session.acked(packet.packet_id, 1 if packet.kind == Packet.PUBACK else 2)
            if out is not None:
                if refused:
                    self.broker.count(f"refused_by_client.{Reason(packet.reason).name.lower()}")
                self.broker.settled(session, out)
                self._forget_backlog(out)
                self.pump()

    def _on_pubrec(self, session: Session, packet_id: int) -> None:
        """PUBREL leaves when its state is on disk, or a restart would publish again (MQTT-4.3.3-8)."""
        out = session.received(packet_id)
        if out is None:
            reason = Reason.PACKET_ID_NOT_FOUND if self.version == V5 else 0
            self.ack(AT_ONCE, codec.encode(codec.Ack(Packet.PUBREL, packet_id, reason), self.version))
            return
        self._forget_backlog(out)
        if session.durable:
            self.broker.journal.outgoing(session, out)
        self.ack(JOURNAL if session.durable else AT_ONCE, b"\x62\x02" + packet_id.to_bytes(2, "big"))

    def _forget_backlog(self, out: Outgoing) -> None:
        if self._backlog and out in self._backlog:
            self._backlog.remove(out)

    def _on_disconnect(self, packet: codec.Disconnect) -> None:
        if packet.reason not in FROM_CLIENT[Packet.DISCONNECT]:
            raise violation("§3.14.2.1 reason code of a server")
        session = self.session
        expiry = packet.properties.get(Prop.SESSION_EXPIRY)
        if expiry is not None and session is not None:
            if expiry and not session.expiry_s:
                raise violation("MQTT-3.14.2-2 session expiry at the end, none at the start")
            self.broker.set_expiry(session, expiry)
        self.close(None, will=packet.reason != Reason.SUCCESS)

    # To the client.

    def send0(self, message: Message, retain: bool, ids: tuple[int, ...]) -> None:
        """Send with QoS 0, or lose it, counted, when the client does not take what it has."""
        session = self.session
        if self.state is not State.OPEN or session is None:
            return
        plain = self.quick and not retain and not ids
        now_us = self.broker.now_us
        frame = message.plain0(self.version, now_us) if plain else self._packet_of(message, 0, retain, ids)
        if frame is None:
            return
        if self.room < len(frame) and not self.make_room(len(frame)):
            self.broker.lost_live(message.publish.topic, session, limits.WRITE_OCTETS)
            return
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
            self.broker.too_large_for(self, message)
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

    def send_outgoing(self, out: Outgoing) -> None:
        """Send a message in flight, again if it was sent before; settle it when the client cannot take it."""
        message = out.message
        if out.state == RELEASED:
            self._put(b"\x62\x02" + out.packet_id.to_bytes(2, "big"))
            return
        dup = out.state == SENT
        out.state = SENT
        if out.qos == 1 and not dup and self.quick == V311 and not out.retain:
            prefix, payload = message.prefix1(), message.publish.payload
            if not self.out:
                self.broker.dirty.append(self)
            self.out += (prefix, out.packet_id.to_bytes(2, "big"), payload)
            self.room -= len(prefix) + len(payload) + 2
            return
        frame = self._packet_of(message, out.qos, out.retain, out.ids, out.packet_id, dup)
        if frame is not None:
            self._put(frame)
        elif self.session is not None and self.session.inflight.pop(out.packet_id, None) is out:
            self.broker.settled(self.session, out)

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
            if len(session.inflight) - len(self._backlog) >= session.window:
                return False
            out = self._backlog.popleft()
            if out.state != HELD:
                self.send_outgoing(out)
            return True
        following = session.next()
        if following is not None:
            if session.rights.may_read(following.message.publish.topic):
                self.broker.launched(session, following)
            else:
                self.broker.not_for(session, following)
            return True
        return self._pump_replay(session)

    def durable(self, out: Outgoing) -> None:
        """A message that waited for the disk may be sent."""
        if self.state is State.OPEN and not (self._backlog and out in self._backlog):
            self.send_outgoing(out)

    def replay(self, topics: list[str], subscription: Subscription) -> bool:
        """Queue retained messages for a new subscription; False when too many wait already."""
        if self._replay is None:
            self._replay = deque()
        if topics and len(self._replay) + len(topics) > self.broker.most_replayed:
            return False
        self._replay.extend((topic, subscription) for topic in topics)
        return True

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
        if message is not None and session.rights.may_read(topic):
            self.broker.send_to(subscription, message, qos, True)
        return True

    # Acks.

    def ack(self, waits_for: int, reply: bytes | Reply) -> None:
        """Queue an ack in the order of §4.6; it leaves when what it waits for is on disk."""
        self.broker.acks.append((waits_for, self, reply))

    def acked_with(self, reply: bytes | Reply, hold: Hold | None) -> None:
        """At the end of a turn: send an ack, or line it up behind those that still wait."""
        if hold is None and not self._held:
            self._send_ack(reply if isinstance(reply, bytes) else reply.kept())
            return
        if self._held is None:
            self._held = deque()
        if hold is not None:
            hold.connections[self] = None
        if self._held and (hold is None or self._held[-1][0] is hold):
            self._held[-1][1].append(reply)
        else:
            self._held.append((hold, [reply]))
            if len(self._held) == 1:
                self._watch_acks()
        if self.unacked >= self.broker.receive_maximum and not self._paused:
            self.broker.limits.hit(limits.RECEIVE_MAXIMUM)
            self._paused = True
            self.wire.pause()

    def _watch_acks(self) -> None:
        """The front of the held acks is a new one: see that it does not wait for ever."""
        broker = self.broker
        self._watched_us = broker.now_us
        if self._watch is None:
            self._watch = broker.deadlines.at(self._watched_us + broker.held_us, self._held_too_long)

    def _held_too_long(self) -> None:
        self._watch = None
        if not self._held:
            return
        due = self._watched_us + self.broker.held_us
        if due > self.broker.now_us:
            self._watch = self.broker.deadlines.at(due, self._held_too_long)
            return
        self.broker.limits.hit(limits.HELD_ACK_S)
        self.broker.count("closed.held_ack_s")
        self.close(Reason.SERVER_BUSY, "the store keeps nothing now")

    def release_acks(self) -> None:
        """Send the acks at the front whose wait is over."""
        held = self._held
        if not held or self.state is State.CLOSED:
            return
        while held:
            hold, replies = held[0]
            if hold is not None and hold.open:
                break
            if hold is not None and hold.error is not None:
                if not self._fail_acks(replies):
                    return
            else:
                for reply in replies:
                    self._send_ack(reply if isinstance(reply, bytes) else reply.kept())
            held.popleft()
        if held:
            self._watch_acks()
        if self._paused and self.unacked < self.broker.receive_maximum:
            self._paused = False
            self.wire.resume()
        self.broker.need_turn()

    def _fail_acks(self, replies: list[bytes | Reply]) -> bool:
        """What the store refused: 5 is told (quota exceeded), 3.1.1 is kept waiting; False when acks stay held."""
        while replies:
            reply = replies[0]
            answer = _refusal(reply, self.version) if isinstance(reply, bytes) else reply.failed()
            if answer is None:
                break
            replies.pop(0)
            self._send_ack(answer)
        if replies and sum(len(waiting) for _, waiting in self._held or ()) >= self.broker.held_acks:
            self.broker.limits.hit(limits.HELD_ACKS)
            self.broker.count("closed.held_acks")
            self.close(Reason.QUOTA_EXCEEDED, "the store keeps nothing now")
        return not replies

    def _send_ack(self, data: bytes) -> None:
        if data and data[0] == 0x40:
            self.unacked -= 1
        if self.state is State.OPEN:
            self._put(data)

    @property
    def holds_acks(self) -> bool:
        """Whether an ack still waits."""
        return bool(self._held)

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
            self.wire.write(data)
            self.room = self.broker.write_octets - self.wire.buffered()

    def make_room(self, octets: int) -> bool:
        """Write before the end of the turn when the buffer is full; whether it then has room."""
        self.flush()
        if self.out:
            self.broker.dirty.append(self)
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

    # The end.

    def close(self, reason: Reason | None, clause: str = "", *, will: bool = True) -> None:
        """End it: tell a version 5 client why, let go of the session. Idempotent."""
        if self.state is State.CLOSED:
            return
        if reason is not None and self.version == V5 and self.state is State.OPEN:
            found: Properties = {Prop.REASON_STRING: clause} if clause else {}
            packet = codec.encode(codec.Disconnect(reason, found), V5)
            if self.packet_maximum and len(packet) > self.packet_maximum:
                packet = codec.encode(codec.Disconnect(reason), V5)
            self._put(packet)
        self.flush()
        self.state = State.CLOSED
        self.quick = 0
        for deadline in (self._timeout, self._blocked, self._watch):
            self.broker.deadlines.cancel(deadline)
        self._timeout = self._blocked = self._watch = None
        self._held = self._backlog = self._replay = None
        self._tail = bytearray()
        self._routes = {}
        self.wire.close()
        self.broker.left(self, will)

    def lost(self) -> None:
        """The wire is gone."""
        self.close(None)


def _refusal(ack: bytes, version: int) -> bytes | None:
    """PUBACK or PUBREC as a refusal of version 5."""
    if version == V5 and ack[0] in (0x40, 0x50):
        return bytes((ack[0], 3)) + ack[2:4] + bytes((Reason.QUOTA_EXCEEDED,))
    return None


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
