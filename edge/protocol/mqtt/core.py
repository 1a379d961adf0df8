"""What every part of the broker shares: time, limits, counts, who is there, what this turn gathers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from edge.contract.bus import Admission, Done, Publish, Sink, Verdict
from edge.contract.limit import Limit, Limits
from edge.contract.principal import PLAIN_LAN
from edge.contract.time import SECOND, Stamp
from edge.protocol.mqtt import limits
from edge.protocol.mqtt.ackline import AckLine
from edge.protocol.mqtt.codec import Connect
from edge.protocol.mqtt.connection import Connection
from edge.protocol.mqtt.deadlines import Deadline, Deadlines
from edge.protocol.mqtt.fields import Fault
from edge.protocol.mqtt.journal import Journal, Write
from edge.protocol.mqtt.reasons import Reason
from edge.protocol.mqtt.rights import Rights
from edge.protocol.mqtt.router import ALARM, CLASSES, Retained, Route, Router
from edge.protocol.mqtt.sender import Sender
from edge.protocol.mqtt.session import Bounds, Key, Outgoing, Receiver, Session
from edge.protocol.mqtt.wire import JOURNAL, URGENT, Reply

DECLARE_US = 3 * SECOND
"""How long a loss waits for a commit of something else before it makes one."""

Ack = tuple[int, AckLine, bytes | Reply]
Ask = Callable[[Connection, Connect, Verdict], None]
"""Asks who this is; answers now or later, once, in the loop."""


class Core:
    """`batch`, `acks` and `awaited` are of the turn now gathering, `dirty` the connections with output."""

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
        self.scheduled = False
        self.moment: Stamp | None = None
        """`stamp`, once somebody has asked for it in this turn."""
        self._sinks: list[Sink] = []
        self.journal = Journal(write)
        self.router = Router(bounds, traffic)
        self.retained = Retained(bounds)
        self.deadlines = Deadlines()
        self.sessions: dict[Key, Session] = {}
        self.connections: set[Connection] = set()
        self.batch: list[Publish] = []
        self.alarms: set[int] = set()
        """Positions in `batch` of what is of the class alarm."""
        self.acks: list[Ack] = []
        self.awaited: list[tuple[int, Done]] = []
        """Messages of the host by their position in the batch, and who waits for them to be kept."""
        self.dirty: list[Receiver] = []
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
        self.closed: Callable[[str], bool] = lambda topic: False
        """Topics that are shut to who came in by `mqtt.plain_lan` (settled G14)."""
        self._declaring: Deadline | None = None
        self._expiring: dict[str, Deadline] = {}
        """Retained messages that expire, by topic."""
        self.retrying: Deadline | None = None
        self._recoveries = 0
        self.numbers = 0
        self.session_numbers = 0
        self.started_us = now().mono_us
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
        self.unreleased_octets = bounds[limits.UNRELEASED_OCTETS]
        self.held_acks = bounds[limits.HELD_ACKS]
        self.topic_aliases = bounds[limits.TOPIC_ALIASES]
        self.turn_work = bounds[limits.TURN_WORK]
        self.rate = bounds[limits.RATE]
        self.subscribe_octets = bounds[limits.SUBSCRIBE_OCTETS]
        self._topic_octets = bounds[limits.TOPIC_OCTETS]
        self._topic_levels = bounds[limits.TOPIC_LEVELS]

    def rights(self, admission: Admission, client_id: str) -> Rights:
        """What a client may do, by the door it came in."""
        plain = admission.who.via == PLAIN_LAN
        return Rights(admission, client_id, (lambda topic: self.closed(topic)) if plain else None)

    # Time.

    @property
    def stamp(self) -> Stamp:
        """This turn's moment."""
        stamp = self.moment
        if stamp is None:
            stamp = self.moment = self._now()
        return stamp

    @property
    def now_us(self) -> int:
        """This turn's moment on the monotonic clock."""
        return self.stamp.mono_us

    def tick(self) -> None:
        """Keep the appointments that are due."""
        self.moment = None
        self.deadlines.run(self.now_us)
        self.need_turn()

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

    @staticmethod
    def journal_of(rank: int) -> int:
        """What the ack of something waits for that the journal has and that is of class `rank`."""
        return URGENT if rank == ALARM else JOURNAL

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

    def need_turn(self) -> None:
        """Ask the owner for a turn, once."""
        if not self.scheduled:
            self.scheduled = True
            self._schedule()

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
