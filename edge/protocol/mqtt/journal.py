"""What must survive a crash, gathered while the last commit runs (window 0), handed over as one set of changes.

A row that comes and goes within one gathering is never written.
"""

from __future__ import annotations

from collections.abc import Callable

from edge.contract.bus import Done
from edge.contract.time import SECOND
from edge.protocol.mqtt.message import Message
from edge.protocol.mqtt.session import Outgoing, Session, Subscription

RETRY_US = SECOND
"""How long a store that failed is left alone."""


class Changes:
    """Rows by key, None where the row goes. They show the state at hand-over, so whoever writes them copies at once."""

    __slots__ = ("incoming", "losses", "outgoing", "retained", "sessions", "subscriptions")

    def __init__(self) -> None:
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


Losses = dict[tuple[str, str, str], int]
"""How many messages were given up, by traffic class, reason and user: what the ledger is told."""


def add_losses(total: Losses, more: Losses) -> None:
    """Add counts."""
    for key, count in more.items():
        total[key] = total.get(key, 0) + count


Write = Callable[[Changes, Done], None]
"""Commits changes; `done` comes later, in the loop, not from within the call."""


class Journal:
    """`count` grows with each note that an ack may wait for: who compares it knows whether something was noted."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._next = Changes()
        self._waiting: list[Done] = []
        self._busy = False
        self._failed: BaseException | None = None
        self.retry_us = 0
        """When a store that failed may be tried again."""
        self.count = 0

    def retain(self, topic: str, message: Message | None) -> None:
        """Keep (or forget) a retained message."""
        self.count += 1
        self._next.retained[topic] = message

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
        session.stored = False
        for wanted in session.subscriptions:
            self._next.subscriptions[session.number, wanted] = None
        for out in session.pending():
            self.settled(session, out)
        for packet_id in session.incoming or ():
            self._next.incoming[session.number, packet_id] = False
        self._next.sessions[session.number] = None

    def subscription(self, session: Session, wanted: str, subscription: Subscription | None) -> None:
        """Keep or forget a subscription; `wanted` is the filter as the client wrote it."""
        self.count += 1
        self._next.subscriptions[session.number, wanted] = subscription

    def outgoing(self, session: Session, out: Outgoing) -> None:
        """Keep an outgoing message as it now is."""
        self.count += 1
        self._next.outgoing[session.number, out.number] = out

    def settled(self, session: Session, out: Outgoing) -> None:
        """Forget an outgoing message; nothing waits for that."""
        key = session.number, out.number
        if out.stored:
            self._next.outgoing[key] = None
        else:
            self._next.outgoing.pop(key, None)

    def incoming(self, session: Session, packet_id: int, message: Message | bool) -> None:
        """Keep a QoS 2 packet id with its message, as routed (True), or forget it (False)."""
        self.count += 1
        self._next.incoming[session.number, packet_id] = message

    def lost(self, klass: str, reason: str, user: str) -> None:
        """Declare a message lost; in the next commit, which nothing waits for."""
        key = klass, reason, user
        self._next.losses[key] = self._next.losses.get(key, 0) + 1

    @property
    def owes(self) -> bool:
        """Whether losses wait for a commit."""
        return bool(self._next.losses)

    def declare(self, now_us: int) -> None:
        """Commit the losses now, whether or not there is anything else; not while a commit runs."""
        if self._next.losses and not self._busy:
            self._hand_over(now_us)

    def after(self, done: Done) -> None:
        """Call `done` when everything noted so far is on disk, or with the error."""
        self._waiting.append(done)

    def flush(self, now_us: int) -> None:
        """Hand over what was noted, unless a commit is still running. Only at the end of a turn, and there is one after
        each commit: what is noted in the course of a turn (a QoS 2 message's copies, and that its packet id is free)
        must not be parted."""
        if self._busy:
            return
        if not self._next and not (self._waiting and self._next.losses):
            self._tell(self._take_waiting(), None)
        elif self._failed is not None and now_us < self.retry_us:
            self._tell(self._take_waiting(), self._failed)
        else:
            self._hand_over(now_us)

    @property
    def failing(self) -> bool:
        """The last commit failed, and what it was to keep still waits."""
        return self._failed is not None and not self._busy and bool(self._next)

    @property
    def idle(self) -> bool:
        """Nothing noted and nothing under way."""
        return not self._busy and not self._next

    def _hand_over(self, now_us: int) -> None:
        changes, self._next = self._next, Changes()
        waiting = self._take_waiting()
        for out in changes.outgoing.values():
            if out is not None:
                out.stored = True
        self._busy = True

        def done(error: BaseException | None) -> None:
            self._busy = False
            self._failed = error
            if error is not None:
                self._next = changes.under(self._next)
                self.retry_us = now_us + RETRY_US
            else:
                for out in changes.outgoing.values():
                    if out is not None:
                        out.written = True
            self._tell(waiting, error)

        self._write(changes, done)

    def _take_waiting(self) -> list[Done]:
        waiting, self._waiting = self._waiting, []
        return waiting

    @staticmethod
    def _tell(waiting: list[Done], error: BaseException | None) -> None:
        for done in waiting:
            done(error)
