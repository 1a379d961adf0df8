"""Queue mode: one instance gets each message, in memory only, for five minutes (M-7, M-8, M-9; settled G35).

Pure state; the service calls it in the loop. What leaves because there is no room is returned, so that it can be
declared; what leaves by age does so by policy.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Sequence

import msgspec

from edge.contract.channel import Instance
from edge.contract.limit import Limits
from edge.contract.time import SECOND
from edge.protocol.aun import isolation_key
from edge.protocol.aun_events import Delivery
from edge.services.message.records import AFFINITIES, AFFINITY, RING_OCTETS, RING_ROWS, RING_TIME

Place = tuple[str, str]
"""Device and slot isolation key of a reader."""


class Queued(msgspec.Struct):
    """A queue message. `owner` is who may read it; None until an instance or a first reader takes it."""

    seq: int
    message: Delivery
    owner: Place | None
    until_us: int
    acked: bool = False


class Ring:
    """The queue messages of every AID."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._rows: dict[str, deque[Queued]] = {}
        self._octets: dict[str, int] = {}
        self._dropped: dict[str, int] = {}
        self.octets = 0
        self.held: Counter[str] = Counter()
        """Bytes by sender."""

    def put(self, aid: str, seq: int, message: Delivery, owner: Place | None, now_us: int) -> list[Queued]:
        """Keep a message; the result are those that had to go for it."""
        self.expire(now_us)
        rows = self._rows.setdefault(aid, deque())
        rows.append(Queued(seq, message, owner, now_us + self._limits[RING_TIME] * SECOND))
        self._count(aid, message, 1)
        gone = []
        while len(rows) > 1 and (len(rows) > self._limits[RING_ROWS] or self._octets[aid] > self._limits[RING_OCTETS]):
            gone.append(rows.popleft())
            self._count(aid, gone[-1].message, -1)
        if gone:
            self._dropped[aid] = self._dropped.get(aid, 0) + len(gone)
            self._limits.hit(RING_ROWS, len(gone))
        return gone

    def visible(self, aid: str, place: Place, now_us: int, sender: str = "") -> list[Queued]:
        """What is this reader's, and what nobody has yet, oldest first."""
        self.expire(now_us)
        return [
            row
            for row in self._rows.get(aid, ())
            if row.owner in (None, place) and sender in ("", row.message.sender) and _meant(row, place[0])
        ]

    def claim(self, aid: str, place: Place, shown: Collection[int]) -> None:
        """What this reader was shown, and nobody had yet, is the reader's."""
        for row in self._rows.get(aid, ()):
            if row.owner is None and row.seq in shown:
                row.owner = place

    def unclaimed(self, aid: str, device: str, now_us: int) -> list[Queued]:
        """What nobody has yet and this device may have."""
        self.expire(now_us)
        return [row for row in self._rows.get(aid, ()) if row.owner is None and _meant(row, device)]

    def acknowledge(self, aid: str, place: Place, through: int, sender: str = "") -> set[str]:
        """The owner has read up to `through`; the senders of what is newly covered."""
        senders = set()
        for row in self._rows.get(aid, ()):
            if row.seq <= through and row.owner == place and not row.acked and sender in ("", row.message.sender):
                row.acked = True
                senders.add(row.message.sender)
        return senders

    def last_of(self, aid: str, sender: str) -> int:
        """The last number of this sender here, 0 without one."""
        return max((row.seq for row in self._rows.get(aid, ()) if row.message.sender == sender), default=0)

    def earliest(self, aid: str, now_us: int) -> int | None:
        """The first number still here; None when there is nothing."""
        self.expire(now_us)
        rows = self._rows.get(aid)
        return rows[0].seq if rows else None

    def dropped(self, aid: str) -> int:
        """How many had to go for lack of room since the node started."""
        return self._dropped.get(aid, 0)

    def expire(self, now_us: int) -> None:
        """Let go of what is too old."""
        for aid in [aid for aid, rows in self._rows.items() if rows[0].until_us <= now_us]:
            rows = self._rows[aid]
            while rows and rows[0].until_us <= now_us:
                self._count(aid, rows.popleft().message, -1)
            if not rows:
                del self._rows[aid], self._octets[aid]

    def _count(self, aid: str, message: Delivery, sign: int) -> None:
        octets = sign * len(message.payload)
        self._octets[aid] = self._octets.get(aid, 0) + octets
        self.octets += octets
        weigh(self.held, message.sender, octets)


class Routes:
    """Which instance serves a sender: the one that did last, while it is online and not silent too long (G35)."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._served: OrderedDict[tuple[str, str], tuple[Place, int]] = OrderedDict()
        self._turn: dict[str, int] = {}

    def __len__(self) -> int:
        """How many senders are remembered."""
        return len(self._served)

    def choose(self, instances: Sequence[Instance], sender: str, now_us: int) -> Instance | None:
        """One of the live instances of an AID, or None without any."""
        if not instances:
            return None
        aid = instances[0].aid
        self._forget(now_us - self._limits[AFFINITY] * SECOND)
        if any(instance.routing == "round_robin" for instance in instances):
            return self._next(aid, instances)
        last = self._served.pop((aid, sender), None)
        chosen = None
        if last is not None:
            chosen = next((instance for instance in instances if place(instance) == last[0]), None)
        chosen = chosen or self._next(aid, instances)
        self._served[aid, sender] = (place(chosen), now_us)
        while len(self._served) > self._limits[AFFINITIES]:
            self._served.popitem(last=False)
            self._limits.hit(AFFINITIES)
        return chosen

    def _forget(self, before_us: int) -> None:
        """Senders that were silent too long; the one that was served longest ago comes first."""
        while self._served and next(iter(self._served.values()))[1] <= before_us:
            self._served.popitem(last=False)

    def _next(self, aid: str, instances: Sequence[Instance]) -> Instance:
        turn = self._turn.pop(aid, -1) + 1
        self._turn[aid] = turn
        if len(self._turn) > self._limits[AFFINITIES]:
            self._turn.pop(next(iter(self._turn)))
        return instances[turn % len(instances)]


def weigh(held: Counter[str], sender: str, octets: int) -> None:
    """So many bytes more, or fewer, are a sender's; one without any is forgotten."""
    held[sender] += octets
    if not held[sender]:
        del held[sender]


def _meant(row: Queued, device: str) -> bool:
    return not row.message.devices or device in row.message.devices


def place(instance: Instance) -> Place:
    """Where a connection reads."""
    return (instance.device_id, isolation_key(instance.slot)) if instance.device_id else ("", "")
