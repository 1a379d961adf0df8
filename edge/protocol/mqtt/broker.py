"""The broker without I/O: who is connected, and what becomes of a session when its connection ends.

The owner feeds bytes to connections, calls `turn` when asked to (`schedule`) and `tick` at `deadlines.next()`.
"""

from __future__ import annotations

from collections.abc import Callable

from edge.contract.bus import Publish
from edge.contract.limit import Limits
from edge.contract.principal import Principal
from edge.contract.time import SECOND, Stamp
from edge.protocol.mqtt import admit, limits, subscribing
from edge.protocol.mqtt import message as messages
from edge.protocol.mqtt.codec import Connect, Subscribe, Unsubscribe
from edge.protocol.mqtt.connection import Connection
from edge.protocol.mqtt.core import Ask
from edge.protocol.mqtt.journal import Write
from edge.protocol.mqtt.reasons import Reason
from edge.protocol.mqtt.router import CLASSES
from edge.protocol.mqtt.session import Session
from edge.protocol.mqtt.systopics import SysTopics
from edge.protocol.mqtt.turns import Turns
from edge.protocol.mqtt.wire import Wire


class Broker(Turns):
    """One MQTT broker."""

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
        super().__init__(
            now=now, ask=ask, bounds=bounds, write=write, schedule=schedule, random_id=random_id, traffic=traffic
        )
        self.sys = SysTopics(self, self.started_us)

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
        session.expires_us = self.now_us + session.expiry_s * SECOND
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
        session.will_due = self.deadlines.at(session.will_at_us, lambda: self._will_due(session))

    def _will_due(self, session: Session) -> None:
        self.publish_will(session, None)
        self.journal.session(session)

    def watch_expiry(self, session: Session) -> None:
        """End an absent session when its time is over."""
        assert session.expires_us is not None  # noqa: S101 - the caller set it
        end = "session_expired"
        session.expiry = self.deadlines.at(session.expires_us, lambda: self.end_session(session, end))

    def unwatch(self, session: Session) -> None:
        """A session is no longer absent, or no longer there: nothing of it falls due."""
        self.deadlines.cancel(session.will_due)
        self.deadlines.cancel(session.expiry)
        session.will_due = session.expiry = session.will_at_us = session.expires_us = None

    def publish_will(self, session: Session, who: Principal | None) -> None:
        """Publish a will, once; as any publish of that client."""
        if session.will is None:
            return
        will, _ = session.will
        self.deadlines.cancel(session.will_due)
        session.will = session.will_at_us = session.will_due = None
        publish = Publish(will.topic, will.payload, will.qos, will.retain, who or session.who, self.stamp)
        if session.rights.may_publish(will.topic):
            route = self.router.route(will.topic)
            self.accept(messages.make(publish, will.properties, session, route.head), route, None, None)
        else:
            self.count("refused.will")

    def end_session(self, session: Session, reason: str) -> None:
        """Forget a session; its will, if it still waits, is due now (MQTT-3.1.3-9). What it leaves undelivered, to its
        client and from it, is declared lost."""
        self.publish_will(session, None)
        for subscription in session.subscriptions.values():
            self.router.take(subscription)
        self.sessions.pop(session.key, None)
        if session.durable:
            for out in session.pending():
                self.lost(reason, out.message.rank, session.user)
        for packet_id, message in (session.incoming or {}).items():
            if message is not None and (session.number, packet_id) not in self.releasing:
                self.lost("unreleased", message.rank, session.user)
        self.journal.forget(session)
        self.unwatch(session)

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
            if session.key in self.sessions:
                self.end_session(session, "expelled")
        self.need_turn()
        return len(mine)

    def hang_up(self, user: str) -> int:
        """Close every connection of a user; sessions and wills go on as when a client is lost. How many."""
        mine = [one for one in self.connections if one.user == user and one.session is not None]
        for connection in mine:
            connection.close(Reason.NOT_AUTHORIZED, "the password is another one now")
        self.need_turn()
        return len(mine)

    def subscribe(self, connection: Connection, packet: Subscribe) -> None:
        """SUBSCRIBE."""
        if any("$SYS" in wish.filter for wish in packet.wishes):
            self.sys.refresh()
        subscribing.subscribe(self, connection, packet)

    def unsubscribe(self, connection: Connection, packet: Unsubscribe) -> None:
        """UNSUBSCRIBE."""
        subscribing.unsubscribe(self, connection, packet)
