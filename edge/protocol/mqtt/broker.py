"""The broker without I/O: who is connected, what goes where, one batch of messages and one write per turn.

The owner feeds bytes to connections, calls `turn` when asked to (`schedule`) and `tick` at `deadlines.next()`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from edge.contract.bus import Admission, Publish, Sink
from edge.contract.limit import Limit, Limits
from edge.contract.principal import Principal
from edge.contract.time import SECOND, Stamp
from edge.protocol.mqtt import admit, limits, subscribing
from edge.protocol.mqtt import message as messages
from edge.protocol.mqtt.ackline import AckLine
from edge.protocol.mqtt.codec import Connect, Subscribe, Unsubscribe
from edge.protocol.mqtt.connection import Connection
from edge.protocol.mqtt.deadlines import Deadline, Deadlines
from edge.protocol.mqtt.fields import Fault
from edge.protocol.mqtt.journal import Journal, Write
from edge.protocol.mqtt.message import Message
from edge.protocol.mqtt.reasons import Reason
from edge.protocol.mqtt.router import CLASSES, Retained, Route, Router
from edge.protocol.mqtt.sender import Sender
from edge.protocol.mqtt.session import HELD, READY, Bounds, Key, Outgoing, Session, Subscription
from edge.protocol.mqtt.systopics import SysTopics
from edge.protocol.mqtt.topics import valid_topic
from edge.protocol.mqtt.wire import AT_ONCE, JOURNAL, Reply, Wire

logger = logging.getLogger(__name__)

SEARCH_STEPS = 4_000
"""Levels of retained topics that one turn looks at for new subscribers before it lets others have theirs."""
DECLARE_US = 3 * SECOND
"""How long a loss waits for a commit of something else before it makes one."""

Ack = tuple[int, AckLine, bytes | Reply]
Ask = Callable[[Connection, Connect, Callable[[Admission | None], None]], None]
"""Asks who this is; answers now or later, once, in the loop."""


class Hold:
    """What the acks of one turn wait for: `open` completions, then `error` says how it went."""

    __slots__ = ("calls", "connections", "error", "open")

    def __init__(self) -> None:
        self.open = 1
        self.error: BaseException | None = None
        self.connections: dict[AckLine, None] = {}
        self.calls: list[Callable[[BaseException | None], None]] = []

    def done(self, error: BaseException | None = None) -> None:
        """One completion is in."""
        self.open -= 1
        self.error = self.error or error
        if not self.open:
            for connection in self.connections:
                connection.release_acks()
            for call in self.calls:
                call(self.error)


class Broker:
    """One MQTT broker. `batch` and `acks` are of the turn now gathering, `dirty` the connections with output."""

    def __init__(
        self,
        *,
        now: Callable[[], Stamp],
        ask: Ask,
        bounds: Limits,
        write: Write,
        schedule: Callable[[], None],
        random_id: Callable[[], str],
        traffic: Callable[[str], str] = lambda topic: CLASSES[0],
    ) -> None:
        self._now, self.ask, self.limits = now, ask, bounds
        self._schedule, self.random_id = schedule, random_id
        self._scheduled = False
        self._stamp: Stamp | None = None
        self._sinks: list[Sink] = []
        self.journal = Journal(write)
        self.router = Router(bounds, traffic)
        self.retained = Retained(bounds)
        self.deadlines = Deadlines()
        self.sessions: dict[Key, Session] = {}
        self.connections: set[Connection] = set()
        self.batch: list[Publish] = []
        self.acks: list[Ack] = []
        self.dirty: list[Sender] = []
        self.unfinished: list[Connection] = []
        """Connections with bytes that this turn had no time for: others are read before they go on."""
        self._due: list[Connection] = []
        self._searching: deque[Sender] = deque()
        """Connections with new subscriptions whose retained messages are yet to be looked for."""
        self.counters: dict[str, int] = {}
        self.octets_in = self.octets_out = self.messages_in = self.messages_out = 0
        self.journaled: set[int] = set()
        self._unsent: list[tuple[Session, Outgoing]] = []
        self.releasing: dict[tuple[int, int], AckLine] = {}
        self._declaring: Deadline | None = None
        self.numbers = 0
        self.session_numbers = 0
        self.sys = SysTopics(self, now().mono_us)
        self._read_limits(bounds)

    def _read_limits(self, bounds: Limits) -> None:
        self.bounds = Bounds(bounds[limits.INFLIGHT], bounds[limits.QUEUE_MESSAGES], bounds[limits.QUEUE_OCTETS])
        self.connect_us = bounds[limits.CONNECT_S] * SECOND
        self.blocked_us = bounds[limits.BLOCKED_S] * SECOND
        self.held_us = bounds[limits.HELD_ACK_S] * SECOND
        self.connect_octets = bounds[limits.CONNECT_OCTETS]
        self.packet_octets = bounds[limits.PACKET_OCTETS]
        self.write_octets = bounds[limits.WRITE_OCTETS]
        self.receive_maximum = bounds[limits.RECEIVE_MAXIMUM]
        self.held_acks = bounds[limits.HELD_ACKS]
        self.topic_aliases = bounds[limits.TOPIC_ALIASES]
        self.turn_work = bounds[limits.TURN_WORK]
        self.subscribe_octets = bounds[limits.SUBSCRIBE_OCTETS]
        self._topic_octets = bounds[limits.TOPIC_OCTETS]
        self._topic_levels = bounds[limits.TOPIC_LEVELS]

    # Time.

    @property
    def stamp(self) -> Stamp:
        """This turn's moment."""
        stamp = self._stamp
        if stamp is None:
            stamp = self._stamp = self._now()
        return stamp

    @property
    def now_us(self) -> int:
        """This turn's moment on the monotonic clock."""
        return self.stamp.mono_us

    def tick(self) -> None:
        """Keep the appointments that are due."""
        self._stamp = None
        self.deadlines.run(self.now_us)
        self.need_turn()

    # Connections.

    def open(self, wire: Wire, address: str) -> Connection:
        """A new connection, silent so far."""
        connection = Connection(self, wire, address)
        self.connections.add(connection)
        self.need_turn()
        return connection

    def connect(self, connection: Connection, packet: Connect) -> None:
        """A CONNECT: authenticate before anything is touched, then open the session."""
        admit.connect(self, connection, packet)

    def left(self, connection: Connection, will: bool) -> None:
        """A connection ended: its will, and what becomes of its session."""
        self.connections.discard(connection)
        self.need_turn()
        session = connection.session
        if session is None or session.conn is not connection:
            return
        session.conn = None
        session.since_us = self.now_us
        if not will:
            session.will = None
        if session.will is not None and not self._later(session):
            self.publish_will(session, connection.who)
        if not session.durable:
            self.end_session(session, "session_ended")
            return
        session.expires_us = session.deadline_us(self.now_us)
        self.journal.session(session)
        self.watch_expiry(session)
        admit.make_room_for_sessions(self, session.user)

    def _later(self, session: Session) -> bool:
        """Arm a delayed will (MQTT 5 §3.1.3.2.2)."""
        assert session.will is not None  # noqa: S101 - the caller looked
        delay = min(session.will[1], session.expiry_s) if session.durable else 0
        if not delay:
            return False
        session.will_at_us = self.now_us + delay * SECOND
        self.watch_will(session)
        return True

    def watch_will(self, session: Session) -> None:
        """Publish the will of an absent session when its delay is over."""
        assert session.will_at_us is not None  # noqa: S101 - the caller set it
        self.deadlines.at(session.will_at_us, lambda: self._will_due(session))

    def _will_due(self, session: Session) -> None:
        if session.conn is None and session.will_at_us is not None and session.will_at_us <= self.now_us:
            self.publish_will(session, None)
            if session.stored:
                self.journal.session(session)

    def watch_expiry(self, session: Session) -> None:
        """End an absent session when its time is over."""
        if session.expires_us is not None:
            self.deadlines.at(session.expires_us, lambda: self._expiry_due(session))

    def _expiry_due(self, session: Session) -> None:
        if session.conn is None and session.expires_us is not None and session.expires_us <= self.now_us:
            if self.sessions.get(session.key) is session:
                self.end_session(session, "session_expired")

    def publish_will(self, session: Session, who: Principal | None) -> None:
        """Publish a will, once; as any publish of that client."""
        if session.will is None:
            return
        will, _ = session.will
        session.will = session.will_at_us = None
        publish = Publish(will.topic, will.payload, will.qos, will.retain, who or session.who, self.stamp)
        if session.rights.may_publish(will.topic):
            route = self.router.route(will.topic)
            self.accept(messages.make(publish, will.properties, session, route.head), route, None, None)
        else:
            self.count("refused.will")

    def end_session(self, session: Session, reason: str) -> None:
        """Forget a session; its will, if it still waits, is due now (MQTT-3.1.3-9)."""
        self.publish_will(session, None)
        for subscription in session.subscriptions.values():
            self.router.take(subscription)
        if self.sessions.get(session.key) is session:
            del self.sessions[session.key]
        if session.durable:
            for out in session.pending():
                self.lost(reason, out.message.rank, session.user)
        self.journal.forget(session)
        session.expires_us = None

    def set_expiry(self, session: Session, expiry_s: int) -> None:
        """Change how long a session outlives its connection."""
        session.expiry_s = min(expiry_s, self.limits[limits.SESSION_EXPIRY_S])
        session.durable = session.expiry_s > 0

    def expel(self, user: str) -> int:
        """Close every connection and forget every session of a user, without wills; how many sessions."""
        mine = [session for session in self.sessions.values() if session.user == user]
        for session in mine:
            session.will = None
            if session.conn is not None:
                session.conn.close(Reason.ADMINISTRATIVE_ACTION, "expelled", will=False)
            if self.sessions.get(session.key) is session:
                self.end_session(session, "expelled")
        for connection in [one for one in self.connections if one.user == user]:
            connection.close(None, will=False)
        self.need_turn()
        return len(mine)

    # Messages.

    def attach(self, sink: Sink) -> None:
        """Add a sink."""
        self._sinks.append(sink)

    def publish(self, publish: Publish) -> None:
        """Publish from the host. Raises `ValueError` for what is no topic name."""
        if not valid_topic(publish.topic):
            raise ValueError(f"not a topic name: {publish.topic!r}")
        route = self.router.route(publish.topic)
        self.accept(Message(publish, route.head), route, None, None)
        self.need_turn()

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
            if self.retained.take(topic) is not None:
                self.journal.retain(topic, None)
            return
        limit = self.retained.refuses(topic, message.octets, message.publish.who)
        if limit is not None:
            self.limits.hit(limit)
            self.lost("retained_full", message.rank, message.source.user if message.source else "")
            return
        self.retained.put(message)
        self.journal.retain(topic, message)
        if message.expires_us is not None:
            self.deadlines.at(message.expires_us, lambda: self._retained_due(topic))

    def watch_retained(self) -> None:
        """Forget what expires of retained messages taken up from the store."""
        for message in self.retained:
            if message.expires_us is not None:
                topic = message.publish.topic
                self.deadlines.at(message.expires_us, lambda topic=topic: self._retained_due(topic))  # type: ignore[misc]

    def _retained_due(self, topic: str) -> None:
        if self.retained.peek(topic) is not None and self.retained.get(topic, self.now_us) is None:
            self.retained.take(topic)
            self.journal.retain(topic, None)

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
        if (
            conn is not None
            and conn.room > 0
            and not session.queue
            and len(session.inflight) < session.window
            and conn.writable
        ):
            packet_id = session.next_id
            if packet_id in session.inflight:
                session.launch(out)
            else:
                session.inflight[packet_id] = out
                session.next_id = packet_id % 0xFFFF + 1
                out.packet_id, out.state = packet_id, READY
            if session.durable:
                self.launched(session, out)
            else:
                conn.send_outgoing(out)
            return
        session.enqueue(out)
        if session.durable:
            self.journal.outgoing(session, out)
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
        """Take out of a queue what its session, under new rights, may no longer read."""
        for out in session.withdraw():
            self.lost("not_authorized", out.message.rank, session.user)
            self.settled(session, out)

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
            unknown = bytes((Reason.PACKET_ID_NOT_FOUND,)) if connection.version == 5 else b""
            connection.ack(AT_ONCE, bytes((0x70, 2 + len(unknown))) + pubcomp[2:] + unknown)
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
        if not message.routed:
            message.routed = True
            if message.publish.retain:
                self._retain(message)
            self.spread(message, self.router.route(message.publish.topic))
        self.releasing[key] = connection
        connection.ack(position, _Release(self, session, packet_id, pubcomp))

    def forget_incoming(self, session: Session, packet_id: int) -> None:
        """A QoS 2 packet id is free again."""
        if session.incoming is not None:
            session.incoming.pop(packet_id, None)
        if session.durable:
            self.journal.incoming(session, packet_id, False)

    def lost_live(self, route: Route, session: Session, limit: Limit) -> None:
        """A message with QoS 0 that a connected client had no room for."""
        self.limits.hit(limit)
        self.lost("no_room", route.rank, session.user)

    def lost(self, reason: str, rank: int, user: str) -> None:
        """A message given up after it was taken: counted here and, with the next commit, in the ledger."""
        self.count(f"dropped.{reason}")
        self.journal.lost(CLASSES[rank], reason, user)
        if self._declaring is None:
            self._declaring = self.deadlines.at(self.now_us + DECLARE_US, self._declare)

    def _declare(self) -> None:
        """Losses reach the ledger within seconds, also when nothing else is to be written."""
        self._declaring = None
        self.journal.declare(self.now_us)
        if self.journal.owes:
            self._declaring = self.deadlines.at(self.now_us + DECLARE_US, self._declare)

    def refused(self, publish: Publish, connection: Connection, reason: Reason) -> None:
        """A publish that was not taken."""
        self.count(f"refused.{reason.name.lower()}")
        self.lost(f"refused_{reason.name.lower()}", self.router.rank(publish.topic), connection.user)

    def check_topic(self, topic: str, name: bytes) -> None:
        """Raises `Fault` for a topic or filter that is too long or too deep."""
        if len(name) > self._topic_octets:
            self.limits.hit(limits.TOPIC_OCTETS)
        elif topic.count("/") >= self._topic_levels:
            self.limits.hit(limits.TOPIC_LEVELS)
        else:
            return
        raise Fault(Reason.TOPIC_NAME_INVALID, "topic too long or too deep")

    def subscribe(self, connection: Connection, packet: Subscribe) -> None:
        """SUBSCRIBE."""
        if any("$SYS" in wish.filter for wish in packet.wishes):
            self.sys.refresh()
        subscribing.subscribe(self, connection, packet)

    def unsubscribe(self, connection: Connection, packet: Unsubscribe) -> None:
        """UNSUBSCRIBE."""
        subscribing.unsubscribe(self, connection, packet)

    # Turns.

    def need_turn(self) -> None:
        """Ask the owner for a turn, once."""
        if not self._scheduled:
            self._scheduled = True
            self._schedule()

    def turn(self) -> None:
        """Hand the batch to the sinks, let go of acks that wait for nothing, write what gathered."""
        self._scheduled = False
        due, self._due, self.unfinished = self._due, self.unfinished, []
        for connection in due:
            connection.go_on()
        if self._due:
            self.need_turn()
        if self._searching:
            self._search()
        if self.batch or self.acks:
            self._settle_turn()
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            self.journal.after(lambda error: self._durable(unsent, error))
        self.journal.flush(self.now_us)
        dirty, self.dirty = self.dirty, []
        for sender in dirty:
            sender.flush()
            if sender.stalled:
                sender.pump()
        self._stamp = None

    def search(self, sender: Sender) -> None:
        """Look for the retained messages of a connection's new subscriptions, when it is its turn."""
        self._searching.append(sender)
        self.need_turn()

    def _search(self) -> None:
        """Search within what one turn may cost; at least once."""
        steps = 0
        while self._searching and steps < SEARCH_STEPS:
            steps += self._searching.popleft().search()
        if self._searching:
            self.need_turn()

    def _settle_turn(self) -> None:
        batch, self.batch = self.batch, []
        self.messages_in += len(batch)
        acks, self.acks = self.acks, []
        journaled, self.journaled = self.journaled, set()
        hold = Hold()
        kept = self._offer_to_sinks(batch, hold) if batch else set()
        on_journal = bool(kept & journaled) if journaled else False
        for waits_for, connection, reply in acks:
            if waits_for in kept:
                wait: Hold | None = hold
            elif waits_for == JOURNAL or waits_for in journaled:
                wait, on_journal = hold, True
            else:
                wait = None
            if isinstance(reply, _Release):
                reply.decide(waits_for in kept, hold, connection)
                wait, on_journal = hold, True
            connection.acked_with(reply, wait)
        if on_journal:
            hold.open += 1
            self.journal.after(hold.done)
        hold.done()

    def _offer_to_sinks(self, batch: list[Publish], hold: Hold) -> set[int]:
        kept: set[int] = set()
        for sink in self._sinks:
            hold.open += 1
            try:
                mine: Iterable[int] = sink(batch, hold.done)
            except Exception as error:
                logger.exception("a sink of the bus raised")
                kept.update(range(len(batch)))
                hold.done(error)
                continue
            if mine:
                kept.update(mine)
            else:
                hold.open -= 1
        return kept

    def _durable(self, unsent: list[tuple[Session, Outgoing]], error: BaseException | None) -> None:
        """Packet ids of QoS 2 are on disk: publish. If they are not, they wait for the next commit."""
        if error is not None:
            self._unsent += unsent
            return
        for session, out in unsent:
            if out.state == HELD and session.inflight.get(out.packet_id) is out:
                out.state = READY
                if session.conn is not None:
                    session.conn.durable(out)
        self.need_turn()

    def released(self, session: Session, packet_id: int, pubcomp: bytes, error: BaseException | None) -> None:
        """What a released QoS 2 message left behind is on disk: forget its packet id, then say so."""
        connection = self.releasing.pop((session.number, packet_id), None)
        if error is not None:
            return
        self.forget_incoming(session, packet_id)
        if connection is not None:
            connection.ack(JOURNAL, pubcomp)
        self.need_turn()

    def declare(self) -> None:
        """Losses go to the ledger now. Before the store closes."""
        self.journal.declare(self.now_us)

    @property
    def quiet(self) -> bool:
        """Nothing gathers, nothing waits for the store."""
        if self.batch or self.acks or not self.journal.idle:
            return False
        return not any(connection.holds_acks for connection in self.connections)

    # Figures.

    def count(self, name: str, times: int = 1) -> None:
        """Count something by name."""
        self.counters[name] = self.counters.get(name, 0) + times

    def stats(self) -> dict[str, int]:
        """How much there is, and how often what happened."""
        return {
            "connections": len(self.connections),
            "sessions": len(self.sessions),
            "subscriptions": self.router.subscriptions,
            "retained": len(self.retained),
            "retained_octets": self.retained.octets,
            "queued": sum(len(one.queue) for one in self.sessions.values() if one.queue),
            "inflight": sum(len(one.inflight) for one in self.sessions.values()),
            "messages_in": self.messages_in,
            "messages_out": self.messages_out,
            "octets_in": self.octets_in,
            "octets_out": self.octets_out,
            **self.counters,
        }


class _Release(Reply):
    """PUBCOMP of a durable session. When no sink keeps the message the packet id goes in the same commit as the
    copies for its subscribers; else in the commit after the sinks'."""

    __slots__ = ("_broker", "_packet_id", "_pubcomp", "_session")

    def __init__(self, broker: Broker, session: Session, packet_id: int, pubcomp: bytes) -> None:
        super().__init__()
        self._broker, self._session, self._packet_id, self._pubcomp = broker, session, packet_id, pubcomp

    def decide(self, kept: bool, hold: Hold, connection: AckLine) -> None:
        """At the end of the turn."""
        broker, session, packet_id = self._broker, self._session, self._packet_id
        if kept:
            message = (session.incoming or {}).get(packet_id)
            if message is not None:
                broker.journal.incoming(session, packet_id, message)
            hold.calls.append(lambda error: broker.released(session, packet_id, self._pubcomp, error))
            return
        latest = broker.releasing.pop((session.number, packet_id), connection)
        broker.forget_incoming(session, packet_id)
        self.data = self._pubcomp
        if latest is not connection:
            latest.ack(JOURNAL, self._pubcomp)
