"""`$SYS` topics as the field knows them (Mosquitto's names). Nothing is published unless somebody subscribes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from edge import __version__
from edge.contract.bus import Publish
from edge.contract.principal import NODE
from edge.contract.time import SECOND, Stamp
from edge.protocol.mqtt.deadlines import Deadlines
from edge.protocol.mqtt.router import Router
from edge.protocol.mqtt.session import Key, Session

EVERY_US = 10 * SECOND
"""How often figures are published while somebody listens."""

ROOT = "$SYS/broker/"


class Shown(Protocol):
    """The broker whose figures these are."""

    deadlines: Deadlines
    router: Router
    sessions: dict[Key, Session]
    counters: dict[str, int]

    @property
    def stamp(self) -> Stamp:
        """This turn's moment."""
        ...

    @property
    def now_us(self) -> int:
        """The same on the monotonic clock."""
        ...

    def stats(self) -> dict[str, int]:
        """Its figures, by our own names."""
        ...

    def announce(self, publish: Publish) -> None:
        """Publish a message of the broker's own."""
        ...


class SysTopics:
    """Figures of one broker; only those that changed are published."""

    def __init__(self, broker: Shown, started_us: int) -> None:
        self._broker, self._started_us = broker, started_us
        self._most = 0
        self._told: dict[str, str] = {}
        self._armed = False
        self.every_us = EVERY_US
        self.more: dict[str, Callable[[], str]] = {}
        """Figures that others know, by their topic."""

    def refresh(self) -> None:
        """Publish what has changed; again after `every_us` as long as somebody listens."""
        broker = self._broker
        for name, value in self._figures().items():
            if self._told.get(name) != value:
                self._told[name] = value
                broker.announce(Publish(ROOT + name, value.encode(), 0, True, NODE, broker.stamp))
        if not self._armed:
            self._armed = True
            broker.deadlines.at(broker.now_us + self.every_us, self._due)

    def _due(self) -> None:
        self._armed = False
        if self._broker.router.heard("$SYS"):
            self.refresh()

    def connected(self, count: int) -> None:
        """How many clients are connected now."""
        self._most = max(self._most, count)

    def _figures(self) -> dict[str, str]:
        stats = self._broker.stats()
        counters = self._broker.counters
        absent = sum(session.conn is None for session in self._broker.sessions.values())
        dropped = sum(count for name, count in counters.items() if name.startswith("dropped."))
        up = (self._broker.now_us - self._started_us) // SECOND
        figures = {
            "clients/connected": stats["sessions"] - absent,
            "clients/disconnected": absent,
            "clients/expired": counters.get("dropped.session_expired", 0),
            "clients/maximum": self._most,
            "clients/total": stats["sessions"],
            "bytes/received": stats["octets_in"],
            "bytes/sent": stats["octets_out"],
            "messages/inflight": stats["inflight"],
            "messages/stored": stats["queued"] + stats["retained"],
            "publish/messages/dropped": dropped,
            "publish/messages/received": stats["messages_in"],
            "publish/messages/sent": stats["messages_out"],
            "retained messages/count": stats["retained"],
            "subscriptions/count": stats["subscriptions"],
        }
        return {
            "version": f"aun-edge {__version__}",
            "uptime": f"{up} seconds",
            **{name: str(value) for name, value in figures.items()},
            **{name: value() for name, value in self.more.items()},
        }
