"""What acks wait for, and the ack that ends QoS 2 from a durable session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edge.protocol.mqtt.ackline import AckLine
from edge.protocol.mqtt.wire import Reply

if TYPE_CHECKING:
    from edge.protocol.mqtt.delivery import Delivery
    from edge.protocol.mqtt.session import Session


class Hold:
    """What the acks of one turn wait for: `open` completions, then `error` says how it went."""

    __slots__ = ("calls", "connections", "error", "open", "rank")

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        """The class of what waits: alarms, or everything else."""
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
