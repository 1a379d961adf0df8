"""What must survive a crash, gathered while the last commit runs (window 0), handed over as one set of changes.

A row that comes and goes within one gathering is never written. As long as the store takes nothing but what is urgent,
what concerns alarms is handed over alone; the rest waits until the store is well.
"""

from __future__ import annotations

from collections.abc import Callable

from edge.contract.bus import Done
from edge.contract.time import SECOND
from edge.protocol.mqtt.message import Message
from edge.protocol.mqtt.router import ALARM, CLASSES
from edge.protocol.mqtt.session import Outgoing, Session, Subscription

RETRY_US = SECOND
"""How long a store that failed is left alone."""


class Changes:
    """Rows by key, None where the row goes. They show the state at hand-over, so whoever writes them copies at once."""

    __slots__ = ("incoming", "losses", "outgoing", "retained", "sessions", "subscriptions", "urgent")

    def __init__(self) -> None:
        self.urgent = False
        """Nothing but what alarms need: a full disk takes it too, as long as there is a reserve."""
        self.retained: dict[str, Message | None] = {}
        self.sessions: dict[int, Session | None] = {}
        self.subscriptions: dict[tuple[int, str], Subscription | None] = {}
        self.outgoing: dict[tuple[int, int], Outgoing | None] = {}
        self.incoming: dict[tuple[int, int], Message | bool] = {}
        """By session and packet id: the message; True for one already routed; False for a row that goes."""
        self.losses: Losses = {}

    def __bool__(self) -> bool:
        return bool(self.outgoing or self.retained or self.incoming or self.sessions or self.subscriptions)

    def under(self, later: Changes) -> Changes:
        """These changes with later ones on top (after a commit that failed)."""
        self.sessions.update(later.sessions)
        self.retained.update(later.retained)
        self.subscriptions.update(later.subscriptions)
        self.outgoing.update(later.outgoing)
        self.incoming.update(later.incoming)
        add_losses(self.losses, later.losses)
        return self

    def plus(self, other: Changes) -> Changes:
        """These and those, which have no row in common, as one set."""
        return Changes().under(self).under(other) if other or other.losses else self

    def without(self, later: Changes) -> Changes:
        """These, but for the rows of which `later` says more. Only these two tables have rows that change class."""
        for topic in later.retained:
            self.retained.pop(topic, None)
        for key in later.incoming:
            self.incoming.pop(key, None)
        return self


Losses = dict[tuple[str, str, str], int]
"""How many messages were given up, by traffic class, reason and user: what the ledger is told."""


def add_losses(total: Losses, more: Losses) -> None:
    """Add counts."""
    for key, count in more.items():
        total[key] = total.get(key, 0) + count


Write = Callable[[Changes, Done], None]
"""Commits changes; `done` comes later, in the loop, not from within the call."""


class Journal:
    """`count` grows with each note that an ack may wait for: who compares it knows whether something was noted.

    What concerns alarms is gathered apart, so that it can be written without the rest."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._next, self._alarms = Changes(), Changes()
        self._waiting: list[Done] = []
        self._urgent: list[Done] = []
        """Who waits for what was noted of alarms only."""
        self._busy = False
        self._failed: BaseException | None = None
        self.retry_us = 0
        """When a store that failed may be tried again."""
        self._refused: BaseException | None = None
        """Why not even alarms were taken when they were last handed over alone."""
        self.recoveries = 0
        """How often a store that had failed took everything again."""
        self.count = 0

    def retain(self, topic: str, message: Message | None, rank: int = 0) -> None:
        """Keep (or forget) a retained message, of class `rank`."""
        self.count += 1
        mine, other = (self._alarms, self._next) if rank == ALARM else (self._next, self._alarms)
        other.retained.pop(topic, None)
        mine.retained[topic] = message

    def session(self, session: Session) -> None:
        """Keep a session as it now is."""
        self.count += 1
        session.stored = True
        self._next.sessions[session.number] = session

    def forget(self, session: Session) -> None:
        """Forget a session with all that hangs on it."""
        if not session.stored:
            return
        self.count += 1
        session.stored = session.kept = False
        for wanted in session.subscriptions:
            self._next.subscriptions[session.number, wanted] = None
        for out in session.pending():
            self.settled(session, out)
        for packet_id, message in (session.incoming or {}).items():
            self.incoming(session, packet_id, False, 0 if message is None else message.rank)
        self._next.sessions[session.number] = None

    def subscription(self, session: Session, wanted: str, subscription: Subscription | None) -> None:
        """Keep or forget a subscription; `wanted` is the filter as the client wrote it."""
        self.count += 1
        self._next.subscriptions[session.number, wanted] = subscription

    def outgoing(self, session: Session, out: Outgoing) -> None:
        """Keep an outgoing message as it now is."""
        self.count += 1
        changes = self._alarms if out.message.rank == ALARM else self._next
        changes.outgoing[session.number, out.number] = out

    def settled(self, session: Session, out: Outgoing) -> None:
        """Forget an outgoing message; nothing waits for that."""
        key = session.number, out.number
        changes = self._alarms if out.message.rank == ALARM else self._next
        if out.stored:
            changes.outgoing[key] = None
        else:
            changes.outgoing.pop(key, None)

    def incoming(self, session: Session, packet_id: int, message: Message | bool, rank: int = 0) -> None:
        """Keep a QoS 2 packet id with its message, as routed (True), or forget it (False)."""
        self.count += 1
        mine, other = (self._alarms, self._next) if rank == ALARM else (self._next, self._alarms)
        key = session.number, packet_id
        other.incoming.pop(key, None)
        mine.incoming[key] = message

    def lost(self, klass: str, reason: str, user: str) -> None:
        """Declare a message lost; in the next commit, which nothing waits for."""
        key = klass, reason, user
        changes = self._alarms if klass == CLASSES[ALARM] else self._next
        changes.losses[key] = changes.losses.get(key, 0) + 1

    @property
    def owes(self) -> bool:
        """Whether losses wait for a commit."""
        return bool(self._next.losses or self._alarms.losses)

    def declare(self, now_us: int) -> None:
        """Commit the losses now, whether or not there is anything else; not while a commit runs."""
        if self.owes and not self._busy:
            self._hand_over(now_us)

    def after(self, done: Done, *, urgent: bool = False) -> None:
        """Call `done` when everything noted so far is on disk (`urgent`: of alarms), or with the error."""
        (self._urgent if urgent else self._waiting).append(done)

    def flush(self, now_us: int) -> None:
        """Hand over what was noted, unless a commit is still running. Only at the end of a turn, and there is one after
        each commit: what is noted in the course of a turn (a QoS 2 message's copies, and that its packet id is free)
        must not be parted."""
        if self._busy:
            return
        if not self._noted and not ((self._waiting or self._urgent) and self.owes):
            self._tell(self._take_waiting() + self._take_urgent(), None)
        elif self._failed is None or now_us >= self.retry_us:
            self._hand_over(now_us)
        else:
            self._tell(self._take_waiting(), self._failed)
            self._flush_alarms()

    def _flush_alarms(self) -> None:
        """The store takes only what is urgent, if that: hand over what somebody waits for of alarms."""
        if not self._alarms and not self._alarms.losses:
            self._tell(self._take_urgent(), None)
        elif self._refused is not None:
            self._tell(self._take_urgent(), self._refused)
        elif self._urgent:
            self._hand_over_alarms()

    @property
    def _noted(self) -> bool:
        return bool(self._next or self._alarms)

    @property
    def failing(self) -> bool:
        """The last commit failed, and what it was to keep still waits."""
        return self._failed is not None and not self._busy and self._noted

    @property
    def refused(self) -> bool:
        """The store takes alarms at most, as far as is known: what it refused last is still to be written."""
        return self._failed is not None and (self._busy or self._noted)

    @property
    def idle(self) -> bool:
        """Nothing noted and nothing under way."""
        return not self._busy and not self._noted

    def _hand_over(self, now_us: int) -> None:
        """All of it, as one set of changes. When the store refuses that, who waits for alarms only waits on."""
        changes, self._next = self._next, Changes()
        alarms, self._alarms = self._alarms, Changes()
        waiting, urgent = self._take_waiting(), self._take_urgent()

        def done(error: BaseException | None) -> None:
            if error is not None:
                self._put_back(changes, alarms)
                self.retry_us = now_us + RETRY_US
                self._refused = None
                self._urgent = urgent + self._urgent
                self._tell(waiting, error)
                self._failed = error
                return
            self.recoveries += self._failed is not None
            self._failed = None
            self._tell(waiting + urgent, None)

        self._commit(changes.plus(alarms), done)

    def _hand_over_alarms(self) -> None:
        """What concerns alarms, without the rest. When the store refuses even that, it is left alone until the time
        has come to try everything."""
        alarms, self._alarms = self._alarms, Changes()
        alarms.urgent = True
        urgent = self._take_urgent()

        def done(error: BaseException | None) -> None:
            self._refused = error
            if error is not None:
                self._put_back(Changes(), alarms)
            self._tell(urgent, error)

        self._commit(alarms, done)

    def _put_back(self, changes: Changes, alarms: Changes) -> None:
        """What a commit did not take goes under what was noted since."""
        alarms.urgent = False
        later, later_alarms = self._next, self._alarms
        self._next = changes.without(later_alarms).under(later)
        self._alarms = alarms.without(later).under(later_alarms)

    def _commit(self, changes: Changes, then: Done) -> None:
        for out in changes.outgoing.values():
            if out is not None:
                out.stored = True
        self._busy = True

        def done(error: BaseException | None) -> None:
            self._busy = False
            if error is None:
                for out in changes.outgoing.values():
                    if out is not None:
                        out.written = True
                for session in changes.sessions.values():
                    if session is not None:
                        session.kept = session.stored
            then(error)

        self._write(changes, done)

    def _take_waiting(self) -> list[Done]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def _take_urgent(self) -> list[Done]:
        urgent, self._urgent = self._urgent, []
        return urgent

    @staticmethod
    def _tell(waiting: list[Done], error: BaseException | None) -> None:
        for done in waiting:
            done(error)
