"""SUBSCRIBE and UNSUBSCRIBE (MQTT §3.8 to §3.11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge.protocol.mqtt import codec, limits
from edge.protocol.mqtt.codec import V5, Suback, Subscribe, Unsuback, Unsubscribe, Wish
from edge.protocol.mqtt.connection import Connection
from edge.protocol.mqtt.fields import Fault
from edge.protocol.mqtt.properties import Prop
from edge.protocol.mqtt.reasons import Reason
from edge.protocol.mqtt.session import Session, Subscription
from edge.protocol.mqtt.topics import SHARE, share_of
from edge.protocol.mqtt.wire import AT_ONCE, JOURNAL, Reply

if TYPE_CHECKING:
    from edge.protocol.mqtt.broker import Broker


def subscribe(broker: Broker, connection: Connection, packet: Subscribe) -> None:
    """Grant what the client may have, replace what it had, replay what is retained."""
    _check_answer(connection, len(packet.wishes))
    session = connection.session
    assert session is not None  # noqa: S101 - open
    ident = packet.properties.get(Prop.SUBSCRIPTION_IDENTIFIER)
    noted = broker.journal.count
    reasons: list[int] = []
    fresh: list[Subscription] = []
    changed: dict[int, tuple[str, Subscription | None]] = {}
    most = broker.limits[limits.SUBSCRIPTIONS]
    for at, wish in enumerate(packet.wishes[:most]):
        old, noted_before = session.subscriptions.get(wish.filter), broker.journal.count
        reason = _grant(broker, connection, session, wish, ident, fresh)
        if broker.journal.count != noted_before:
            changed[at] = wish.filter, old
        if reason >= 0x80:
            broker.count(f"refused_subscribe.{Reason(reason).name.lower()}")
        reasons.append(reason if connection.version == V5 or reason < 0x80 else 0x80)
    if len(packet.wishes) > most:
        broker.limits.hit(limits.SUBSCRIPTIONS, len(packet.wishes) - most)
        refusal = Reason.QUOTA_EXCEEDED if connection.version == V5 else 0x80
        reasons += [refusal] * (len(packet.wishes) - most)
    reply = _Suback(broker, connection, session, packet.packet_id, reasons, changed, fresh)
    connection.ack(JOURNAL if session.durable and broker.journal.count != noted else AT_ONCE, reply)


def _check_answer(connection: Connection, reasons: int) -> None:
    """Raises `Fault` for a request whose answer is larger than the client takes (MQTT-3.1.2-24)."""
    if connection.packet_maximum and len(codec.frame(0, bytes(3 + reasons))) > connection.packet_maximum:
        raise Fault(Reason.PACKET_TOO_LARGE, "MQTT-3.1.2-24 the answer would be larger than Maximum Packet Size")


def _grant(
    broker: Broker,
    connection: Connection,
    session: Session,
    wish: Wish,
    ident: int | None,
    fresh: list[Subscription],
) -> int:
    """Subscribe to one filter: the granted QoS or why not."""
    try:
        broker.check_topic(wish.filter, wish.filter.encode())
    except Fault:
        return Reason.TOPIC_FILTER_INVALID
    group, inner = "", wish.filter
    if wish.filter.startswith(SHARE):
        share = share_of(wish.filter)
        if share is None:  # MQTT-4.8.2-1, MQTT-4.8.2-2; 3.1.1 knows no shares: another `$` filter, and not one of ours
            return Reason.TOPIC_FILTER_INVALID
        group, inner = share
    refusal = session.rights.refusal(inner)
    if refusal:
        return refusal
    old = session.subscriptions.get(wish.filter)
    if old is None and len(session.subscriptions) >= broker.limits[limits.SUBSCRIPTIONS]:
        broker.limits.hit(limits.SUBSCRIPTIONS)
        return Reason.QUOTA_EXCEEDED
    subscription = Subscription(
        session,
        inner,
        wish.qos,
        group=group,
        ids=() if ident is None else (ident,),
        no_local=wish.no_local or connection.bridge,
        retain_as_published=wish.retain_as_published or connection.bridge,
        retain_handling=wish.retain_handling,
    )
    replayed = not group and (wish.retain_handling == 0 or (wish.retain_handling == 1 and old is None))
    if replayed:
        if connection.searches + len(fresh) >= broker.limits[limits.SUBSCRIPTIONS]:
            broker.limits.hit(limits.SUBSCRIPTIONS)
            return Reason.QUOTA_EXCEEDED
        fresh.append(subscription)
    session.subscriptions[wish.filter] = subscription
    broker.router.put(subscription)
    if session.durable and not subscription.same(old):
        broker.journal.subscription(session, wish.filter, subscription)
    return wish.qos


def unsubscribe(broker: Broker, connection: Connection, packet: Unsubscribe) -> None:
    """End subscriptions; what was sent already stays sent."""
    _check_answer(connection, len(packet.filters))
    session = connection.session
    assert session is not None  # noqa: S101 - open
    noted = broker.journal.count
    reasons: list[int] = []
    for wanted in packet.filters:
        subscription = session.subscriptions.pop(wanted, None)
        if subscription is not None:
            broker.router.take(subscription)
            if session.durable:
                broker.journal.subscription(session, wanted, None)
        reasons.append(Reason.SUCCESS if subscription is not None else Reason.NO_SUBSCRIPTION_EXISTED)
    reply = codec.encode(Unsuback(packet.packet_id, reasons), connection.version)
    connection.ack(JOURNAL if session.durable and broker.journal.count != noted else AT_ONCE, reply)


class _Suback(Reply):
    """SUBACK, then the retained messages (MQTT-3.3.1-6 of 3.1.1, MQTT-3.3.1-9 to -11 of 5); what of a durable session's
    subscriptions cannot be kept is as it was before, and refused."""

    __slots__ = ("_broker", "_changed", "_connection", "_fresh", "_packet_id", "_reasons", "_session")

    def __init__(
        self,
        broker: Broker,
        connection: Connection,
        session: Session,
        packet_id: int,
        reasons: list[int],
        changed: dict[int, tuple[str, Subscription | None]],
        fresh: list[Subscription],
    ) -> None:
        super().__init__(codec.encode(Suback(packet_id, reasons), connection.version))
        self._broker, self._connection, self._session = broker, connection, session
        self._packet_id, self._reasons, self._changed, self._fresh = packet_id, reasons, changed, fresh

    def sent(self) -> None:
        self._connection.replay(self._fresh)

    def failed(self) -> bytes:
        refusal = Reason.QUOTA_EXCEEDED if self._connection.version == V5 else 0x80
        for at, (wanted, old) in self._changed.items():
            self._put_back(wanted, old)
            self._reasons[at] = refusal
        return codec.encode(Suback(self._packet_id, self._reasons), self._connection.version)

    def _put_back(self, wanted: str, old: Subscription | None) -> None:
        session, router = self._session, self._broker.router
        fresh = session.subscriptions.pop(wanted, None)
        if fresh is not None:
            router.take(fresh)
        if old is not None:
            session.subscriptions[wanted] = old
            router.put(old)
        self._broker.journal.subscription(session, wanted, old)
