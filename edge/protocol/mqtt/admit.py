"""CONNECT (MQTT §3.1.4): refuse, authenticate, take over, open the session; nothing is touched before the client is
known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge.contract.bus import Admission, Refusal
from edge.contract.limit import Limit
from edge.protocol.mqtt import limits
from edge.protocol.mqtt.codec import V5, Connect
from edge.protocol.mqtt.connection import Connection
from edge.protocol.mqtt.fields import Fault
from edge.protocol.mqtt.properties import Prop, Properties
from edge.protocol.mqtt.reasons import Reason
from edge.protocol.mqtt.rights import Rights
from edge.protocol.mqtt.session import Session
from edge.protocol.mqtt.wire import JOURNAL, Reply, State

if TYPE_CHECKING:
    from edge.protocol.mqtt.broker import Broker

NEVER = 0xFFFF_FFFF
"""Session expiry interval that means for ever (MQTT 5 §3.1.2.11.2); we keep a session as long as our limit says."""


_REFUSALS = {
    Refusal.CREDENTIALS: Reason.BAD_USER_OR_PASSWORD,
    Refusal.NOT_AUTHORIZED: Reason.NOT_AUTHORIZED,
    Refusal.BUSY: Reason.SERVER_BUSY,
}


def connect(broker: Broker, connection: Connection, packet: Connect) -> None:
    """Take a CONNECT; the answer follows once the gatekeeper has spoken."""
    refusal = _refusal(broker, packet)
    if refusal is not None:
        broker.count(f"refused_connect.{refusal.name.lower()}")
        connection.refuse(refusal)
        return
    broker.ask(connection, packet, lambda admission: _admitted(broker, connection, packet, admission))


def _refusal(broker: Broker, packet: Connect) -> Reason | None:
    if Prop.AUTHENTICATION_METHOD in packet.properties:
        return Reason.BAD_AUTHENTICATION_METHOD
    if not packet.client_id and not packet.clean and packet.version != V5:
        return Reason.CLIENT_ID_NOT_VALID
    if len(packet.client_id.encode()) > broker.limits[limits.CLIENT_ID_OCTETS]:
        broker.limits.hit(limits.CLIENT_ID_OCTETS)
        return Reason.CLIENT_ID_NOT_VALID
    return None


def _admitted(broker: Broker, connection: Connection, packet: Connect, admission: Admission | Refusal) -> None:
    if connection.state is not State.OPENING:
        return
    if isinstance(admission, Refusal):
        refusal = _REFUSALS[admission]
        if refusal is Reason.BAD_USER_OR_PASSWORD and packet.user is None:
            refusal = Reason.NOT_AUTHORIZED
        broker.count(f"refused_connect.{refusal.name.lower()}")
        connection.refuse(refusal)
        return
    client_id = packet.client_id or f"auto-{broker.random_id()}"
    rights = broker.rights(admission, client_id)
    if packet.will is not None:
        try:
            broker.check_topic(packet.will.topic, packet.will.topic.encode())
        except Fault as fault:
            connection.refuse(fault.reason)
            return
        if not rights.may_publish(packet.will.topic) and not packet.will.topic.startswith("$"):
            broker.count("refused_connect.will_not_authorized")
            connection.refuse(Reason.NOT_AUTHORIZED)
            return
    # A will on a `$` topic (Mosquitto's bridges leave one) is refused when it goes out, not the connection.
    connection.who, connection.user, connection.client_id = admission.who, admission.user, client_id
    _open(broker, connection, packet, rights)


def _open(broker: Broker, connection: Connection, packet: Connect, rights: Rights) -> None:
    key = connection.user, connection.client_id
    noted = broker.journal.count
    old = broker.sessions.get(key)
    if old is not None and old.conn is not None:
        broker.count("taken_over")
        old.conn.close(Reason.SESSION_TAKEN_OVER, "MQTT-3.1.4-3 another connection of this client id")
        old = broker.sessions.get(key)
    if old is not None and packet.clean:
        broker.end_session(old, "session_discarded")
        old = None
    session = old or _new(broker, key, rights, connection)
    session.rights, session.who = rights, connection.who
    broker.unwatch(session)
    delay = packet.will.properties.get(Prop.WILL_DELAY, 0) if packet.will is not None else 0
    session.will = None if packet.will is None else (packet.will, delay)
    asked = _expiry(packet)
    broker.set_expiry(session, asked)
    session.conn, connection.session = connection, session
    broker.sys.connected(len(broker.connections))
    if old is not None:
        broker.router.generation += 1
        broker.review(session)
    found = _client_bounds(broker, connection, session, packet)
    present = old is not None
    if session.durable:
        broker.journal.session(session)
    else:
        broker.journal.forget(session)
    opening = _Opening(broker, connection, session, packet, present, found, asked)
    if broker.journal.count == noted:
        opening.kept()
    else:
        connection.ack(JOURNAL, opening)


def _new(broker: Broker, key: tuple[str, str], rights: Rights, connection: Connection) -> Session:
    broker.session_numbers += 1
    session = Session(key, broker.session_numbers, rights, connection.who)
    broker.sessions[key] = session
    return session


def _expiry(packet: Connect) -> int:
    if packet.version == V5:
        expiry: int = packet.properties.get(Prop.SESSION_EXPIRY, 0)
        return expiry
    return 0 if packet.clean else NEVER


def _client_bounds(broker: Broker, connection: Connection, session: Session, packet: Connect) -> Properties:
    """What the client can take; what a version 5 client is told of us (MQTT 5 §3.2.2.3)."""
    session.window = broker.bounds.inflight
    if packet.version != V5:
        return {}
    said = packet.properties
    session.window = min(session.window, said.get(Prop.RECEIVE_MAXIMUM, 0xFFFF))
    connection.alias_maximum = min(said.get(Prop.TOPIC_ALIAS_MAXIMUM, 0), broker.topic_aliases)
    told: Properties = {
        Prop.RECEIVE_MAXIMUM: broker.receive_maximum,
        Prop.MAXIMUM_PACKET_SIZE: broker.packet_octets,
        Prop.TOPIC_ALIAS_MAXIMUM: broker.topic_aliases,
    }
    if not packet.client_id:
        told[Prop.ASSIGNED_CLIENT_ID] = connection.client_id
    return told


class _Opening(Reply):
    """CONNACK of a session that must be on disk first (session present has to be right after a crash)."""

    __slots__ = ("_asked", "_broker", "_connection", "_found", "_packet", "_present", "_session")

    def __init__(
        self,
        broker: Broker,
        connection: Connection,
        session: Session,
        packet: Connect,
        present: bool,
        found: Properties,
        asked: int,
    ) -> None:
        super().__init__()
        self._broker, self._connection, self._session = broker, connection, session
        self._packet, self._present, self._found, self._asked = packet, present, found, asked

    def kept(self) -> bytes:
        keep_alive = self._packet.keep_alive
        longest = self._broker.limits[limits.KEEP_ALIVE_S]
        if self._packet.version == V5:
            if keep_alive > longest:
                keep_alive = self._found[Prop.SERVER_KEEP_ALIVE] = longest
            if self._session.expiry_s != self._asked:
                self._found[Prop.SESSION_EXPIRY] = self._session.expiry_s
        self._connection.opened(self._present, self._found, keep_alive)
        return b""

    def failed(self) -> bytes:
        """The store keeps nothing now. A session that is on disk stays the client's, with all that was acked for it, as
        it lies there; a new one lives as long as its connection, and 5 says so."""
        if not self._session.kept:
            self._broker.set_expiry(self._session, 0)
        return self.kept()


def make_room_for_sessions(broker: Broker, user: str) -> None:
    """Above a limit of absent sessions the one absent longest goes: of the user first, then of all."""
    absent = [session for session in broker.sessions.values() if session.conn is None]
    mine = [session for session in absent if session.user == user]
    _drop_oldest(broker, mine, limits.SESSIONS_PER_USER)
    _drop_oldest(broker, [session for session in absent if session.key in broker.sessions], limits.SESSIONS)


def _drop_oldest(broker: Broker, absent: list[Session], limit: Limit) -> None:
    excess = len(absent) - broker.limits[limit]
    if excess > 0:
        for session in sorted(absent, key=lambda one: one.since_us)[:excess]:
            broker.limits.hit(limit)
            broker.end_session(session, "sessions_full")
