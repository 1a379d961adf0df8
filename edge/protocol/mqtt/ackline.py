"""Acks of one connection: in the order of MQTT §4.6, each when what it waits for is on disk.

What the store refuses is told to version 5. For 3.1.1, which has no word for it, that ack never leaves on this
connection: those behind it do, so that what is acked stays in order (MQTT-4.6.0-2), and the connection ends before
long, so that the client sends again what it has no ack for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edge.protocol.mqtt import limits
from edge.protocol.mqtt.codec import V5
from edge.protocol.mqtt.deadlines import Deadline
from edge.protocol.mqtt.hold import Hold
from edge.protocol.mqtt.reasons import Reason
from edge.protocol.mqtt.sender import Sender
from edge.protocol.mqtt.wire import Reply, State, Wire

if TYPE_CHECKING:
    from edge.protocol.mqtt.broker import Broker


class _Waiting:
    """Acks in a row that wait for the same thing (None: only for those before them)."""

    __slots__ = ("hold", "plain", "replies")

    def __init__(self, hold: Hold | None) -> None:
        self.hold = hold
        self.replies: list[bytes | Reply] = []
        self.plain = True
        """Nothing but bytes."""


class AckLine(Sender):
    """A line of acks: who waits keeps those behind waiting; who waits for nothing waits only for those before."""

    __slots__ = ("_held", "_patience", "_paused", "_watch", "_watched_us", "owed", "unacked")

    def __init__(self, broker: Broker, wire: Wire) -> None:
        super().__init__(broker, wire)
        self.unacked = 0
        """PUBLISH packets with QoS 1 whose PUBACK has not left."""
        self._held: deque[_Waiting] | None = None
        self._watch: Deadline | None = None
        self._watched_us = 0
        self._patience: Deadline | None = None
        """How long a client goes without the acks that it will not get here."""
        self._paused = False
        self.owed = 0
        """Acks that never leave on this connection."""

    def ack(self, waits_for: int, reply: bytes | Reply) -> None:
        """Queue an ack in the order of §4.6; it leaves when what it waits for is on disk."""
        self.broker.acks.append((waits_for, self, reply))

    def acked_with(self, replies: Sequence[bytes | Reply], hold: Hold | None) -> None:
        """At the end of a turn: send acks that wait for the same, or line them up behind those that still wait.

        They are bytes, or one `Reply`.
        """
        if hold is None and not self._held:
            for reply in replies:
                self._send_reply(reply)
            return
        held = self._held
        if held is None:
            held = self._held = deque()
        last = held[-1] if held else None
        if last is None or last.hold is not hold:
            last = _Waiting(hold)
            held.append(last)
            if hold is not None:
                hold.connections[self] = None
            if len(held) == 1:
                self._watch_acks()
        last.replies += replies
        last.plain = last.plain and isinstance(replies[0], bytes)
        if self.unacked >= self.broker.receive_maximum and not self._paused and self.version != V5:
            self.broker.limits.hit(limits.RECEIVE_MAXIMUM)
            self._paused = True
            self.stop_reading()

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
        self._give_up()

    def _give_up(self) -> None:
        self._watch = self._patience = None
        self.broker.limits.hit(limits.HELD_ACK_S)
        self.broker.count("closed.held_ack_s")
        self.close(Reason.SERVER_BUSY, "the store keeps nothing now")

    def release_acks(self) -> None:
        """Send the acks at the front whose wait is over."""
        held = self._held
        if not held or self.closed:
            return
        while held and not self.closed:
            first = held[0]
            if first.hold is not None and first.hold.open:
                break
            if first.hold is not None and first.hold.error is not None:
                self._fail_acks(first.replies, first.hold.rank)
            else:
                self._send_waiting(first)
            held.popleft()
        if self.closed:
            return
        if held:
            self._watch_acks()
        if self._paused and self.unacked < self.broker.receive_maximum:
            self._paused = False
            self.read_on()
        self.broker.need_turn()

    def _fail_acks(self, replies: list[bytes | Reply], rank: int) -> None:
        """What the store refused: 5 is told (quota exceeded), 3.1.1 goes without."""
        broker = self.broker
        for reply in replies:
            answer = self._refusal(reply, rank) if isinstance(reply, bytes) else reply.failed()
            if answer is not None:
                self._send_ack(answer)
                continue
            self.owed += 1
            if self._patience is None:
                self._patience = broker.deadlines.at(broker.now_us + broker.held_us, self._give_up)
        if self.owed >= broker.held_acks:
            broker.limits.hit(limits.HELD_ACKS)
            broker.count("closed.held_acks")
            self.close(Reason.QUOTA_EXCEEDED, "the store keeps nothing now")

    def _refusal(self, ack: bytes, rank: int) -> bytes | None:
        """PUBACK or PUBREC as a refusal of version 5, which also ends the exchange (MQTT 5 §4.3.3). It need not be sent
        again, so it is in the ledger.

        Not for QoS 2 of a durable session: its packet id may be on disk, and a restart would take the next message
        under that id for a repeat.
        """
        session = self.session
        if self.version != V5 or ack[0] not in (0x40, 0x50) or session is None:
            return None
        if ack[0] == 0x50:
            if session.durable:
                return None
            self.broker.forget_incoming(session, ack[2] << 8 | ack[3])
        self.broker.lost("refused_store_full", rank, session.user)
        return bytes((ack[0], 3)) + ack[2:4] + bytes((Reason.QUOTA_EXCEEDED,))

    def _send_waiting(self, waiting: _Waiting) -> None:
        replies = waiting.replies
        if waiting.plain and self.state is State.OPEN:
            data = b"".join(replies)  # type: ignore[arg-type]
            if data[::4] == b"\x40" * len(replies):  # nothing but PUBACKs of four bytes
                self.unacked -= len(replies)
            else:
                self.unacked -= sum(reply[0] == 0x40 for reply in replies)  # type: ignore[index]
            self._put(data)
            return
        for reply in replies:
            self._send_reply(reply)

    def _send_reply(self, reply: bytes | Reply) -> None:
        if isinstance(reply, bytes):
            self._send_ack(reply)
        else:
            self._send_ack(reply.kept())
            reply.sent()

    def _send_ack(self, data: bytes) -> None:
        if data and data[0] == 0x40:
            self.unacked -= 1
        if self.state is State.OPEN:
            self._put(data)

    @property
    def holds_acks(self) -> bool:
        """Whether an ack still waits."""
        return bool(self._held)
