"""One connection: bytes in, packets handled, bytes out. The wire below it decides nothing (MQTT 3.1.1 and 5)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from edge.contract.bus import Publish
from edge.contract.principal import GUEST, Principal
from edge.contract.time import SECOND
from edge.protocol.mqtt import codec, limits
from edge.protocol.mqtt import message as messages
from edge.protocol.mqtt.ackline import AckLine
from edge.protocol.mqtt.codec import V5, V311
from edge.protocol.mqtt.deadlines import Deadline
from edge.protocol.mqtt.fields import Fault, violation
from edge.protocol.mqtt.message import Message
from edge.protocol.mqtt.properties import Prop, Properties
from edge.protocol.mqtt.reasons import CONNACK_311, FROM_CLIENT, Packet, Reason
from edge.protocol.mqtt.router import ALARM, Route
from edge.protocol.mqtt.session import UNRELEASED_COST, Outgoing, Session
from edge.protocol.mqtt.wire import AT_ONCE, JOURNAL, State, Wire

if TYPE_CHECKING:
    from edge.protocol.mqtt.broker import Broker

SLOW_WORK = 7
"""What a packet that goes the long way costs besides the one that every packet does."""
MOST_ROUTES = 256
"""Topics of one connection in its short cut to their routes; then it starts anew."""


class Connection(AckLine):
    """The machine of one client's connection; `receive` never raises on what the client sent."""

    __slots__ = (
        "_carried",
        "_client_aliases",
        "_keep_alive",
        "_limit",
        "_paced",
        "_paid_us",
        "_routes",
        "_tail",
        "_timeout",
        "_unfinished",
        "_wanted",
        "address",
        "bridge",
        "client_id",
        "heard_us",
        "user",
        "who",
    )

    def __init__(self, broker: Broker, wire: Wire, address: str) -> None:
        super().__init__(broker, wire)
        self.address = address
        self.client_id = self.user = ""
        self.bridge = False
        self.who: Principal = GUEST
        self.heard_us = broker.now_us
        self._limit = broker.connect_octets
        self._routes: dict[bytes, Route] = {}
        """Topics that this client may publish to, as they stand in a packet."""
        self._tail = bytearray()
        self._wanted = 2
        """How many bytes the tail must have before there can be a packet in it."""
        self._paid_us = 0
        """Until when, at the allowed rate, its messages so far are paid for; a second may be saved up."""
        self._paced: Deadline | None = None
        self._unfinished = False
        self._client_aliases: dict[int, str] | None = None
        self._carried: set[int] | None = None
        """Packet ids of QoS 2 that an earlier connection left, as long as they are not used on this one."""
        self._keep_alive = 0
        due = self.heard_us + broker.connect_us
        self._timeout: Deadline | None = broker.deadlines.at(due, self._connect_timed_out)

    # Bytes in.

    def receive(self, data: bytes) -> None:
        """Take a chunk from the wire."""
        if self.state is State.CLOSED:
            return
        self.broker.octets_in += len(data)
        tail = self._tail
        if self._unfinished or self.state is State.OPENING or (tail and len(tail) + len(data) < self._wanted):
            tail += data
            return
        if tail:
            data = bytes(tail) + data
            self._tail = bytearray()
        self._consume(data)
        if not self.broker.scheduled:
            self.broker.need_turn()

    def go_on(self) -> None:
        """Take up what the last turn had no time for."""
        self._unfinished = False
        if self.state is State.OPEN:
            data, self._tail = bytes(self._tail), bytearray()
            self.read_on()
            self._consume(data)

    def _consume(self, data: bytes) -> None:
        """Handle every whole packet, as many as one turn has time for; keep the rest."""
        pos, end = 0, len(data)
        broker = self.broker
        work = broker.turn_work
        heard = len(broker.batch)
        try:
            if self.state is State.NEW and data[:1] not in (b"\x10", b""):
                raise violation("MQTT-3.1.0-1 first packet is not CONNECT")
            while pos < end:
                if work <= 0:
                    self._put_off()
                    break
                work -= 1
                first = data[pos]
                start = pos + 2
                length = data[pos + 1] if start <= end else 0xFF
                if length > 0x7F:
                    high = data[start] if start < end else 0
                    stop = start + 1 + (high << 7 | length & 0x7F)
                    if 0 < high < 0x80 and stop <= end and stop - pos <= self._limit:
                        start += 1
                    else:
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
                    or (first == 0x32 and self._publish1(data, pos, start, stop))
                    or (first == 0x40 and stop - start == 2 and self._puback(data[start] << 8 | data[start + 1]))
                ):
                    work -= SLOW_WORK + (stop - start) // 256
                    self._packet(first, data, start, stop)
                pos = stop
                if self.state is not State.OPEN:
                    break
        except Fault as fault:
            self._fault(fault)
        if pos:
            self.heard_us = broker.stamp.mono_us
        if pos < end and self.state is not State.CLOSED:
            self._tail = bytearray(data[pos:])
        if broker.rate and self.state is State.OPEN:
            self._pace(len(broker.batch) - heard)

    def _pace(self, messages: int) -> None:
        """Hold a client to `rate` messages a second: what it sent above that it is left unread for."""
        broker = self.broker
        now_us, cost_us = broker.now_us, SECOND // broker.rate
        self._paid_us = max(self._paid_us, now_us - SECOND) + messages * cost_us
        if self._paid_us > now_us and self._paced is None:
            broker.limits.hit(limits.RATE)
            self.stop_reading()
            self._paced = broker.deadlines.at(self._paid_us, self._read_again)

    def _read_again(self) -> None:
        self._paced = None
        self.read_on()

    def _put_off(self) -> None:
        """Let others have their turn."""
        self.broker.limits.hit(limits.TURN_WORK)
        self._unfinished = True
        self.stop_reading()
        self.broker.unfinished.append(self)
        self.broker.need_turn()

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
        publish = Publish(route.topic, data[at:stop], 0, False, self.who, broker.moment or broker.stamp)
        broker.batch.append(publish)
        if route.generation != broker.router.generation:
            broker.router.refresh(route)
        if route.rank == ALARM:
            broker.alarms.add(len(broker.batch) - 1)
        version, size, dirty, sent = self.version, stop - pos, broker.dirty, 0
        for found in route.plain:
            conn = found.session.conn
            if conn is None:
                continue
            if conn.quick == version:
                if conn.room < size and not conn.make_room(size):
                    broker.lost_live(route, found.session, limits.WRITE_OCTETS)
                    continue
                conn.room -= size
                sent += 1
                out = conn.out
                if not out:
                    dirty.append(conn)
                out.append(frame)
            else:
                conn.send0(Message(publish, route.head, source=self.session, rank=route.rank), False, ())
        broker.messages_out += sent
        if route.special or route.groups:
            broker.spread_special(Message(publish, route.head, source=self.session, rank=route.rank), route)
        return True

    def _publish1(self, data: bytes, pos: int, start: int, stop: int) -> bool:
        """The short way of a PUBLISH with QoS 1 on a known topic; what `Broker.accept` does, in one place."""
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
        old = self.version == V311
        if not old:
            if body == stop or data[body]:
                return False
            body += 1
            self._count_unacked()
        broker = self.broker
        publish = Publish(route.topic, data[body:stop], 1, False, self.who, broker.moment or broker.stamp)
        batch = broker.batch
        position = len(batch)
        batch.append(publish)
        if route.generation != broker.router.generation:
            broker.router.refresh(route)
        if route.rank == ALARM:
            broker.alarms.add(position)
        if route.plain or route.special or route.groups:
            noted = broker.journal.count
            message = Message(publish, route.head, b"", None, self.session, route.rank)
            if old:
                message.prefix = data[pos:at]
            for found in route.plain:
                if found.qos:
                    broker.offer(found.session, message, 1, False, ())
                elif found.session.conn is not None:
                    found.session.conn.send0(message, False, ())
            if route.special or route.groups:
                broker.spread_special(message, route)
            if broker.journal.count != noted:
                broker.journaled.add(position)
        self.unacked += 1
        broker.acks.append((position, self, b"\x40\x02" + packet_id))
        return True

    def _fault(self, fault: Fault) -> None:
        broker = self.broker
        broker.count(f"fault.{fault.reason.name.lower()}")
        if fault.reason is Reason.PACKET_TOO_LARGE:
            broker.limits.hit(limits.CONNECT_OCTETS if self.state is State.NEW else limits.PACKET_OCTETS)
        if self.state is State.NEW:
            if fault.version == V5:  # MQTT 5 §4.13.1; MQTT-3.1.4-1 of 3.1.1 wants silence
                self.version = V5
                self.refuse(fault.reason)
            elif fault.reason is Reason.UNSUPPORTED_PROTOCOL_VERSION:
                self.refuse(fault.reason)
            else:
                self.close(None)
        else:
            self.close(fault.reason, fault.clause)

    def _packet(self, first: int, data: bytes, start: int, stop: int) -> None:
        if first in (0x82, 0xA2) and stop - start > self.broker.subscribe_octets:
            self.broker.limits.hit(limits.SUBSCRIBE_OCTETS)
            raise Fault(Reason.QUOTA_EXCEEDED, f"at most {self.broker.subscribe_octets} bytes of filters")
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
        self.version, self.bridge = packet.version, packet.bridge
        self.packet_maximum = packet.properties.get(Prop.MAXIMUM_PACKET_SIZE, 0)
        self.broker.deadlines.cancel(self._timeout)
        self._timeout = None
        self.state = State.OPENING
        self.stop_reading()
        self.broker.connect(self, packet)

    def opened(self, session_present: bool, found: Properties, keep_alive: int) -> None:
        """CONNACK may leave: the session is the client's, traffic flows."""
        connack = codec.encode(codec.Connack(session_present, 0, found), self.version)
        if self.packet_maximum and len(connack) > self.packet_maximum:  # MQTT-3.1.2-24
            self.broker.count("refused_connect.packet_maximum")
            self.close(None, will=False)
            return
        self.state = State.OPEN
        self._limit = self.broker.packet_octets
        self._put(connack)
        if not (self.packet_maximum or self.alias_maximum):
            self.quick = self.version
        self._keep_alive = keep_alive * SECOND * 3 // 2
        if self._keep_alive:
            self.heard_us = self.broker.now_us
            self._timeout = self.broker.deadlines.at(self.heard_us + self._keep_alive, self._keep_alive_due)
        self._take_up()
        self.pump()
        self.read_on()
        tail, self._tail = bytes(self._tail), bytearray()
        if tail:
            self._consume(tail)
        self.broker.need_turn()

    def _take_up(self) -> None:
        """What an earlier connection left under way, both ways."""
        session = self.session
        assert session is not None  # noqa: S101 - open
        if session.inflight:
            self._backlog = deque(session.inflight.values())
        if session.incoming:
            self._carried = set(session.incoming)

    def refuse(self, reason: Reason) -> None:
        """CONNACK with a refusal, then close (MQTT-3.2.2-5 of 3.1.1, MQTT-3.2.2-7 of 5)."""
        if self.version == V5:
            connack = codec.encode(codec.Connack(False, reason), V5)
            if not 0 < self.packet_maximum < len(connack):  # MQTT-3.1.2-24
                self._put(connack)
        elif reason in CONNACK_311:
            self._put(codec.encode(codec.Connack(False, CONNACK_311[reason]), V311))
        self.close(None)

    def _connect_timed_out(self) -> None:
        self.broker.limits.hit(limits.CONNECT_S)
        self.broker.count("closed.connect_timeout")
        self.close(None)

    def _keep_alive_due(self) -> None:
        if self._pauses:  # whether it is silent we do not know: we do not read it
            self.heard_us = self.broker.now_us
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
            self._refused(publish, packet, refusal)
            return
        assert route is not None  # noqa: S101 - no refusal
        message = messages.make(publish, packet.properties, self.session, route.head)
        if packet.qos == 2:
            if self._burdened(packet.packet_id, message):
                self._refused(publish, packet, Reason.QUOTA_EXCEEDED)
            else:
                self._on_publish2(packet.packet_id, message, route)
        elif packet.qos:
            broker.accept(message, route, self, b"\x40\x02" + packet.packet_id.to_bytes(2, "big"))
        else:
            broker.accept(message, route, self, None)

    def _refused(self, publish: Publish, packet: codec.PublishPacket, refusal: Reason) -> None:
        """Not taken: version 5 is told why, 3.1.1 has no way to be told (MQTT-3.3.5-2)."""
        self.broker.refused(publish, self, refusal)
        if packet.qos:
            kind = Packet.PUBACK if packet.qos == 1 else Packet.PUBREC
            reason = refusal if self.version == V5 else 0
            self.unacked += packet.qos == 1
            self.ack(
                AT_ONCE if reason else JOURNAL,
                codec.encode(codec.Ack(kind, packet.packet_id, reason), self.version),
            )

    def _burdened(self, packet_id: int, message: Message) -> bool:
        """Whether what the session has not released leaves no room for another message of a version 5 client.

        A 3.1.1 client cannot be refused, and left unread it could not release either: it is closed, and when it is
        back sends PUBREL for the oldest first (MQTT-4.4.0-1). One message is always taken."""
        session, broker = self.session, self.broker
        assert session is not None  # noqa: S101 - open
        if (
            not session.durable
            or not session.unreleased_octets
            or session.unreleased_octets + message.octets + UNRELEASED_COST <= broker.unreleased_octets
            or packet_id in (session.incoming or ())
        ):
            return False
        broker.limits.hit(limits.UNRELEASED_OCTETS)
        if self.version != V5:
            raise Fault(Reason.QUOTA_EXCEEDED, "more QoS 2 messages than may wait for PUBREL")
        return True

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
            route = broker.router.route(topic)
            if self.session.rights.closed is None:  # else the verdict may change
                if len(self._routes) >= MOST_ROUTES:
                    self._routes.clear()
                self._routes[name] = route
        if packet.retain and packet.qos and packet.payload and self.version == V5:
            limit = broker.retained.refuses(topic, len(route.head) + len(packet.payload), self.who)
            if limit is not None:
                broker.limits.hit(limit)
                return None, Reason.QUOTA_EXCEEDED
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
        message.rank = route.rank
        known = not session.take(packet_id, message if session.durable else None)
        if self._carried:
            self._carried.discard(packet_id)
        if session.durable:
            if not known:
                self.broker.journal.incoming(session, packet_id, message, message.rank)
            self.ack(self.broker.journal_of(message.rank), pubrec)
        elif known:
            self.ack(AT_ONCE, pubrec)
        else:
            self.broker.accept(message, route, self, pubrec)

    def _count_unacked(self) -> None:
        """Hold a version 5 client to Receive Maximum (MQTT-3.3.4-7 to -9); a 3.1.1 client is left unread instead."""
        assert self.session is not None  # noqa: S101 - open
        incoming = self.session.incoming or ()
        unacked = self.unacked + len(incoming)
        if unacked < self.broker.receive_maximum or self.version != V5:
            return
        if self._carried and unacked < 2 * self.broker.receive_maximum:  # §4.9: each connection counts anew
            unacked -= sum(packet_id in incoming for packet_id in self._carried)
        if unacked >= self.broker.receive_maximum:
            self.broker.limits.hit(limits.RECEIVE_MAXIMUM)
            raise Fault(Reason.RECEIVE_MAXIMUM_EXCEEDED, "MQTT-3.3.4-9 more unacknowledged than Receive Maximum")

    def _puback(self, packet_id: int) -> bool:
        """PUBACK without a reason."""
        session = self.session
        assert session is not None  # noqa: S101 - open
        out = session.inflight.get(packet_id)
        if out is None:
            return packet_id != 0
        if out.qos != 1:
            return False
        del session.inflight[packet_id]
        if session.durable:
            self.broker.journal.settled(session, out)
        if session.queue or self._replay or self._backlog:
            self._forget_backlog(out)
            self.pump()
        return True

    def _on_ack(self, packet: codec.Ack) -> None:
        session = self.session
        assert session is not None  # noqa: S101 - open
        refused = packet.reason >= 0x80
        if packet.kind == Packet.PUBREL:
            self.broker.release(self, packet.packet_id)
            return
        awaited = session.inflight.get(packet.packet_id)
        if awaited is not None and not awaited.takes(packet.kind):
            raise violation("§4.3 not the ack that this packet identifier waits for")
        if packet.kind == Packet.PUBREC and not refused:
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
        wait = self.broker.journal_of(out.message.rank) if session.durable else AT_ONCE
        self.ack(wait, b"\x62\x02" + packet_id.to_bytes(2, "big"))

    def _forget_backlog(self, out: Outgoing) -> None:
        if self._backlog and out in self._backlog:
            self._backlog.remove(out)

    def _on_disconnect(self, packet: codec.Disconnect) -> None:
        if packet.reason not in FROM_CLIENT[Packet.DISCONNECT]:
            raise violation("§3.14.2.1 reason code of a server")
        session = self.session
        assert session is not None  # noqa: S101 - open
        expiry = packet.properties.get(Prop.SESSION_EXPIRY)
        if expiry is not None:
            if expiry and not session.expiry_s:
                raise violation("MQTT-3.14.2-2 session expiry at the end, none at the start")
            self.broker.set_expiry(session, expiry)
        self.close(None, will=packet.reason != Reason.SUCCESS)

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
        for deadline in (self._timeout, self._blocked, self._watch, self._patience, self._paced):
            self.broker.deadlines.cancel(deadline)
        self._timeout = self._blocked = self._watch = self._patience = self._paced = None
        self._held = self._backlog = self._replay = self._searches = None
        self._tail = bytearray()
        self._routes = {}
        self.wire.close()
        self.broker.left(self, will)

    def lost(self) -> None:
        """The wire is gone."""
        self.close(None)


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
