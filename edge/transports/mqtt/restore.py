"""Take up what the last run left: retained messages, sessions, what was on its way (before anybody is let in)."""

from __future__ import annotations

from collections.abc import Callable

from edge.contract.bus import Admission, Publish
from edge.contract.time import SECOND, Stamp
from edge.protocol.mqtt.broker import Broker
from edge.protocol.mqtt.message import Message, head_of
from edge.protocol.mqtt.session import SENT, WAITING, Outgoing, Session, Subscription
from edge.store.mqtt import Stored, StoredMessage, StoredOutgoing, StoredSession, StoredSubscription

Here = Callable[[Stamp], int]
"""A moment of any boot on this boot's monotonic clock."""

WILL_GRACE_US = 30 * SECOND
"""Clients cut off by our own restart have this long to come back before their wills go out."""


class Restoring:
    """Fills an empty broker, part by part, in the order of the tables. What has expired meanwhile ends in the first
    turn."""

    def __init__(self, broker: Broker, here: Here) -> None:
        self._broker, self._here = broker, here
        self._sessions: dict[int, Session] = {}

    def take(self, stored: Stored) -> None:
        """Take up some of what was stored. What belongs to a session comes after it."""
        broker, here = self._broker, self._here
        for row in stored.retained:
            broker.take_up(_message(broker, row, here, retain=True))
        for one in stored.sessions:
            self._sessions[one.number] = _session(broker, one, here)
        for sub in stored.subscriptions:
            self._subscribe(sub)
        for out in stored.outgoing:
            session = self._sessions.get(out.session)
            broker.numbers = max(broker.numbers, out.number)
            if session is not None:
                _outgoing(broker, session, out, here)
        for row_in in stored.incoming:
            session = self._sessions.get(row_in.session)
            if session is not None:
                message = _message(broker, row_in.message, here, retain=row_in.retain)
                message.routed = row_in.routed
                session.take(row_in.packet_id, message)

    def done(self) -> None:
        """Everything was taken up: clocks run from now on."""
        for session in self._sessions.values():
            self._broker.watch_expiry(session)
            if session.will_at_us is not None:
                self._broker.watch_will(session)
        self._broker.need_turn()

    def _subscribe(self, sub: StoredSubscription) -> None:
        session = self._sessions.get(sub.session)
        if session is None:
            return
        found = Subscription(
            session,
            sub.filter,
            sub.qos,
            group=sub.share,
            ids=(sub.ident,) if sub.ident else (),
            no_local=sub.no_local,
            retain_as_published=sub.as_published,
            retain_handling=sub.handling,
        )
        session.subscriptions[sub.wanted] = found
        self._broker.router.put(found)


def _message(broker: Broker, row: StoredMessage, here: Here, *, retain: bool) -> Message:
    """Its traffic class is what its topic's is now: capabilities are loaded before the bus."""
    at = Stamp(row.boot, row.mono_us)
    publish = Publish(row.topic, row.payload, row.qos, retain, row.who, at, live=False)
    expires = None if row.expires_us is None else here(Stamp(row.boot, row.expires_us))
    return Message(publish, head_of(row.topic), row.extra, expires, rank=broker.router.rank(row.topic))


def _session(broker: Broker, row: StoredSession, here: Here) -> Session:
    """Absent since it left, or since now when we were what went away. Its rights come with its next CONNECT.

    Until then a message may be queued for it by the subscriptions it was granted; delivery is checked again."""
    rights = broker.rights(Admission(row.who, row.user, ("#",), ("#", "$SYS/#")), row.client_id)
    session = Session((row.user, row.client_id), row.number, rights, row.who)
    now_us = broker.now_us
    session.stored = session.kept = True
    broker.set_expiry(session, row.expiry_s)
    session.since_us = now_us if row.since_us < 0 else here(Stamp(row.boot, row.since_us))
    session.expires_us = session.since_us + session.expiry_s * SECOND
    if row.will is not None:
        session.will = row.will, row.will_delay_s
        session.will_at_us = now_us + max(WILL_GRACE_US, row.will_delay_s * SECOND)
    broker.session_numbers = max(broker.session_numbers, row.number)
    broker.sessions[session.key] = session
    return session


def _outgoing(broker: Broker, session: Session, row: StoredOutgoing, here: Here) -> None:
    message = _message(broker, row.message, here, retain=row.retain)
    out = Outgoing(row.number, message, row.granted, row.retain, row.ids)
    out.stored = out.written = True
    out.packet_id, out.state = row.packet_id, row.state
    if not out.packet_id:
        out.state = WAITING
        session.enqueue(out)
        return
    out.state = max(row.state, SENT)
    earlier = session.inflight.pop(out.packet_id, None)
    if earlier is not None:  # the client had acked it, and a full disk did not take that
        broker.journal.settled(session, earlier)
    session.inflight[out.packet_id] = out
    session.next_id = out.packet_id % 0xFFFF + 1
