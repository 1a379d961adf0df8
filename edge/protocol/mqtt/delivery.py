"""Where a message goes: retained, to every receiver, into queues; QoS 2 from the client."""

from __future__ import annotations

from edge.contract.bus import Done, Publish, Sink
from edge.protocol.mqtt.ackline import AckLine
from edge.protocol.mqtt.codec import V311
from edge.protocol.mqtt.connection import Connection
from edge.protocol.mqtt.core import Core
from edge.protocol.mqtt.hold import Hold
from edge.protocol.mqtt.message import Message
from edge.protocol.mqtt.reasons import Reason
from edge.protocol.mqtt.router import ALARM, Route
from edge.protocol.mqtt.session import HELD, READY, RELEASED, Outgoing, Session, Subscription
from edge.protocol.mqtt.topics import valid_topic
from edge.protocol.mqtt.wire import AT_ONCE, JOURNAL, Reply


class Delivery(Core):
    """Hands messages out."""

    def attach(self, sink: Sink) -> None:
        """Add a sink."""
        self._sinks.append(sink)

    def publish(self, publish: Publish, done: Done | None = None) -> None:
        """Publish from the host: `edge.contract.bus.Bus.publish`."""
        if not valid_topic(publish.topic):
            raise ValueError(f"not a topic name: {publish.topic!r}")
        route = self.router.route(publish.topic)
        message = Message(publish, route.head)
        if done is not None:
            self._await(message, done)
        noted, position = self.journal.count, len(self.batch)
        self.accept(message, route, None, None)
        if done is not None and self.journal.count != noted:
            self.journaled.add(position)
        self.need_turn()

    def _await(self, message: Message, done: Done) -> None:
        """Somebody waits for the message that comes next. Raises the error of a limit on what is retained."""
        publish = message.publish
        if publish.retain and publish.payload:
            limit = self.retained.refuses(publish.topic, message.octets, publish.who)
            if limit is not None:
                raise self.limits.refuse(limit)
        self.awaited.append((len(self.batch), done))

    def announce(self, publish: Publish) -> None:
        """Publish a figure of our own: retained in memory, for subscribers only."""
        route = self.router.route(publish.topic)
        message = Message(publish, route.head)
        self.retained.put(message)
        self.spread(message, route)

    def accept(self, message: Message, route: Route, connection: Connection | None, ack: bytes | None) -> None:
        """A message is in: batch it, retain it, hand it out; its ack waits for whoever keeps it."""
        message.rank = route.rank
        position = len(self.batch)
        self.batch.append(message.publish)
        if message.rank == ALARM:
            self.alarms.add(position)
        noted = self.journal.count
        if message.publish.retain:
            self._retain(message)
        self.spread(message, route)
        if ack is not None and connection is not None:
            if self.journal.count != noted:
                self.journaled.add(position)
            connection.unacked += ack[0] == 0x40
            self.acks.append((position, connection, ack))

    def _retain(self, message: Message) -> None:
        """Keep the last message of a topic; an empty one forgets it (MQTT-3.3.1-6)."""
        topic = message.publish.topic
        if not message.publish.payload:
            self._forget_retained(topic)
            return
        limit = self.retained.refuses(topic, message.octets, message.publish.who)
        if limit is not None:
            self.limits.hit(limit)
            self.lost("retained_full", message.rank, message.source.user if message.source else "")
            return
        self.retained.put(message)
        self.journal.retain(topic, message, message.rank)
        self._watch_retained(message)

    def _watch_retained(self, message: Message) -> None:
        """Forget a retained message when it expires."""
        topic = message.publish.topic
        self.deadlines.cancel(self._expiring.pop(topic, None))
        if message.expires_us is not None:
            due = self.deadlines.at(message.expires_us, lambda: self._forget_retained(topic))
            self._expiring[topic] = due

    def _forget_retained(self, topic: str) -> None:
        self.deadlines.cancel(self._expiring.pop(topic, None))
        old = self.retained.take(topic)
        if old is not None:
            self.journal.retain(topic, None, old.rank)
        elif not self.journal.idle:  # it may have been forgotten a moment ago, and still be on disk
            self.journal.retain(topic, None, self.router.rank(topic))

    def take_up(self, message: Message) -> None:
        """A retained message that the store had."""
        self.retained.put(message)
        self._watch_retained(message)

    def spread(self, message: Message, route: Route) -> None:
        """Hand a message to every receiver."""
        if route.generation != self.router.generation:
            self.router.refresh(route)
        qos = message.publish.qos
        for found in route.plain:
            granted = found.qos if found.qos < qos else qos
            if granted:
                self.offer(found.session, message, granted, False, ())
            elif found.session.conn is not None:
                found.session.conn.send0(message, False, ())
        if route.special or route.groups:
            self.spread_special(message, route)

    def spread_special(self, message: Message, route: Route) -> None:
        """Hand a message to receivers with options of their own and to one of each shared group."""
        chosen = [self.router.pick(route, group) for group in route.groups]
        for found in (*route.special, *chosen):
            if found.no_local and found.session is message.source:
                continue
            retain = message.publish.retain and found.retain_as_published
            self.send_to(found, message, min(found.qos, message.publish.qos), retain)

    def send_to(self, found: Subscription, message: Message, qos: int, retain: bool) -> None:
        """Hand a message to one receiver."""
        if qos:
            self.offer(found.session, message, qos, retain, found.ids)
        elif found.session.conn is not None:
            found.session.conn.send0(message, retain, found.ids)

    def offer(self, session: Session, message: Message, qos: int, retain: bool, ids: tuple[int, ...]) -> None:
        """A message with QoS 1 or 2 for one session: in flight at once, or in its queue."""
        self.numbers += 1
        out = Outgoing(self.numbers, message, qos, retain, ids)
        conn = session.conn
        if conn is not None and not session.queue and len(session.inflight) < session.window and conn.writable:
            packet_id = session.next_id
            if packet_id in session.inflight:
                session.launch(out)
            else:
                session.inflight[packet_id] = out
                session.next_id = packet_id % 0xFFFF + 1
                out.packet_id, out.state = packet_id, READY
            if session.durable:
                self.launched(session, out)
            elif qos == 1 and conn.quick == V311 and not retain:
                conn.send_quickly(out)
            else:
                conn.send_outgoing(out)
            return
        session.enqueue(out)
        if session.durable:
            self.journal.outgoing(session, out)
            if conn is not None and self.journal.refused:
                self.dirty.append(conn)  # it may overtake what the store refuses
        while (over := session.overflow(self.bounds)) is not None:
            gone, limit = over
            self.limits.hit(limit)
            self.lost("queue_full", gone.message.rank, session.user)
            self.settled(session, gone)

    def launched(self, session: Session, out: Outgoing) -> None:
        """Send a message just put in flight; with QoS 2 of a durable session only once its packet id is on disk."""
        if out.message.expired(self.now_us):
            session.inflight.pop(out.packet_id, None)
            self.lost("expired", out.message.rank, session.user)
            self.settled(session, out)
            return
        if session.durable:
            if out.qos == 2:
                out.state = HELD
                self.journal.outgoing(session, out)
                self._unsent.append((session, out))
                return
            self.journal.outgoing(session, out)
        assert session.conn is not None  # noqa: S101 - launched because it is connected
        session.conn.send_outgoing(out)

    def review(self, session: Session) -> None:
        """Give up what a session, under new rights, may no longer read."""
        for out in session.withdraw():
            self.lost("not_authorized", out.message.rank, session.user)
            if out.state != RELEASED:
                self.settled(session, out)
            elif session.durable:
                self.journal.outgoing(session, out)

    def settled(self, session: Session, out: Outgoing) -> None:
        """A message is the client's, or lost: nothing of it need be kept."""
        if session.durable:
            self.journal.settled(session, out)

    def release(self, connection: Connection, packet_id: int) -> None:
        """PUBREL: route what was kept back, forget the packet id, then PUBCOMP (MQTT-4.3.3-11)."""
        session = connection.session
        assert session is not None  # noqa: S101 - open
        pubcomp = b"\x70\x02" + packet_id.to_bytes(2, "big")
        incoming = session.incoming
        if not incoming or packet_id not in incoming:
            # It may have been forgotten a moment ago: until that is on disk, a restart would still know the message.
            unknown = bytes((Reason.PACKET_ID_NOT_FOUND,)) if connection.version == 5 else b""
            wait = JOURNAL if session.durable else AT_ONCE
            connection.ack(wait, bytes((0x70, 2 + len(unknown))) + pubcomp[2:] + unknown)
            return
        message = incoming[packet_id]
        if message is None:
            del incoming[packet_id]
            connection.ack(AT_ONCE, pubcomp)
            return
        key = session.number, packet_id
        if key in self.releasing:
            self.releasing[key] = connection
            return
        position = len(self.batch)
        self.batch.append(message.publish)
        if message.rank == ALARM:
            self.alarms.add(position)
        if not message.routed:
            message.routed = True
            if message.publish.retain:
                self._retain(message)
            self.spread(message, self.router.route(message.publish.topic))
        self.releasing[key] = connection
        connection.ack(position, Release(self, session, packet_id, pubcomp))

    def forget_incoming(self, session: Session, packet_id: int) -> int:
        """A QoS 2 packet id is free again; the class of its message."""
        message = session.forget(packet_id)
        rank = 0 if message is None else message.rank
        if session.durable:
            self.journal.incoming(session, packet_id, False, rank)
        return rank

    def released(self, session: Session, packet_id: int, pubcomp: bytes, error: BaseException | None) -> None:
        """What a released QoS 2 message left behind is on disk: forget its packet id, then say so."""
        connection = self.releasing.pop((session.number, packet_id))
        if error is None:
            rank = self.forget_incoming(session, packet_id)
            connection.ack(self.journal_of(rank), pubcomp)
            self.need_turn()


class Release(Reply):
    """PUBCOMP of a durable session. When no sink keeps the message the packet id goes in the same commit as the
    copies for its subscribers; else in the commit after the sinks'."""

    __slots__ = ("_broker", "_packet_id", "_pubcomp", "_session")

    def __init__(self, broker: Delivery, session: Session, packet_id: int, pubcomp: bytes) -> None:
        super().__init__()
        self._broker, self._session, self._packet_id, self._pubcomp = broker, session, packet_id, pubcomp

    def decide(self, kept: bool, hold: Hold, connection: AckLine) -> None:
        """At the end of the turn."""
        broker, session, packet_id = self._broker, self._session, self._packet_id
        if kept:
            message = (session.incoming or {}).get(packet_id)
            if message is not None and broker.sessions.get(session.key) is session:
                broker.journal.incoming(session, packet_id, message, message.rank)
            hold.calls.append(lambda error: broker.released(session, packet_id, self._pubcomp, error))
            return
        latest = broker.releasing.pop((session.number, packet_id), connection)
        rank = broker.forget_incoming(session, packet_id)
        self.data = self._pubcomp
        if latest is not connection:
            latest.ack(broker.journal_of(rank), self._pubcomp)
