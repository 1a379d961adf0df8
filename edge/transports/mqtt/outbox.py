"""What the node has for a foreign broker: on disk before it leaves, in order, until the broker has acked it.

Nothing leaves it silently: what is too old, or too much, is declared lost in the very unit that forgets it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from edge.contract.bus import Done, Publish
from edge.contract.gap import Gap
from edge.contract.limit import Limits, declare
from edge.contract.store import Store, Unit
from edge.contract.time import SECOND, Clock, later
from edge.store import spool
from edge.store.spool import Spooled

logger = logging.getLogger(__name__)

SPOOL_MESSAGES = declare(
    "mqtt.spool_messages", 10_000, "messages", "of the node waiting for a foreign broker; the oldest go", None
)
SPOOL_OCTETS = declare(
    "mqtt.spool_octets", 4_194_304, "bytes", "of the node waiting for a foreign broker; the oldest go", None
)
SPOOL_TRIES = declare(
    "mqtt.spool_tries",
    10,
    "times",
    "a message is sent that a foreign broker refuses for the moment; then it goes",
    None,
)


class Outbox:
    """Implements `edge.transports.mqtt.foreign.Outgoing`. `klass` says the traffic class of a topic."""

    def __init__(
        self, clock: Clock, hot: Store, limits: Limits, klass: Callable[[str], str], keep_us: int, who: str = "node"
    ) -> None:
        self._clock, self._hot, self._limits = clock, hot, limits
        self._klass, self._keep_us, self._who = klass, keep_us, who
        self._all: dict[int, Spooled] = {}
        """Everything that waits or is on its way, by number, in order."""
        self._ready: deque[Spooled] = deque()
        self._tries: dict[int, int] = {}
        """How often the broker has refused it, by number, in this run."""
        self._filled = asyncio.Event()
        self._number = 0
        self._writing = 0
        self._cancel: Callable[[], None] | None = None
        self.octets = 0
        self.counters: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._all)

    @property
    def quiet(self) -> bool:
        """Nothing is on its way to the disk."""
        return not self._writing

    async def load(self) -> None:
        """Take up what the last run could not send."""
        for one in await self._hot.read(spool.load):
            self._number = max(self._number, one.number)
            self._all[one.number] = one
            self.octets += one.octets
            self._ready.append(one)
        self._expire()

    def close(self) -> None:
        """No more timers."""
        if self._cancel is not None:
            self._cancel()

    def put(self, message: Publish, told: Done | None = None) -> None:
        """Keep a message, then let it go out. One that the store refuses goes out all the same; `told` hears why."""
        self._number += 1
        one = Spooled(self._number, message.topic, message.payload, message.retain, message.at)
        self._all[one.number] = one
        self.octets += one.octets

        def done(result: object) -> None:
            if isinstance(result, BaseException):
                self._count("sent_unstored")
            if one.number in self._all:
                self._ready.append(one)
                self._filled.set()
            if told is not None:
                told(result if isinstance(result, BaseException) else None)

        self._write(lambda unit: spool.put(unit, one), done)
        self._make_room()
        self._watch_age()

    def _make_room(self) -> None:
        while len(self._all) > 1:
            if len(self._all) > self._limits[SPOOL_MESSAGES]:
                self._limits.hit(SPOOL_MESSAGES)
            elif self.octets > self._limits[SPOOL_OCTETS]:
                self._limits.hit(SPOOL_OCTETS)
            else:
                return
            self._give_up([next(iter(self._all.values()))], "spool_full")

    # What the connection asks.

    async def following(self) -> Spooled:
        """The next message that may go out, once there is one."""
        while True:
            self._expire()
            while self._ready:
                one = self._ready.popleft()
                if one.number in self._all:
                    return one
            self._filled.clear()
            await self._filled.wait()

    def sent(self, one: Spooled) -> None:
        """The broker has it."""
        self._count("sent")
        if self._forget(one):
            self._write(lambda unit: spool.take(unit, [one.number]), _log_failure)

    def back(self, one: Spooled) -> None:
        """The broker may not have it: it goes out again, in its place."""
        self._ready = deque(sorted((*self._ready, one), key=lambda waiting: waiting.number))
        self._filled.set()

    def refused(self, one: Spooled, reason: str, *, again: bool) -> None:
        """The broker does not take it: it goes out again, in its place and a few times, or is declared lost."""
        self._count("refused")
        if one.number not in self._all:
            return
        tries = self._tries[one.number] = self._tries.get(one.number, 0) + 1
        if again and tries < self._limits[SPOOL_TRIES]:
            self.back(one)
            return
        if again:
            self._limits.hit(SPOOL_TRIES)
        self._give_up([one], reason)

    # What is given up.

    def _forget(self, one: Spooled) -> bool:
        if self._all.pop(one.number, None) is None:
            return False
        self._tries.pop(one.number, None)
        self.octets -= one.octets
        return True

    def _give_up(self, some: list[Spooled], reason: str) -> None:
        """Declare messages lost."""
        at = self._clock.now()
        gaps = [Gap("mqtt", self._klass(one.topic), 0, 0, 1, reason, self._who, at) for one in some]
        for one in some:
            self._forget(one)
            self._count(f"dropped.{reason}")

        def work(unit: Unit) -> None:
            spool.take(unit, [one.number for one in some])
            for gap in gaps:
                unit.lose(gap)

        self._write(work, _log_failure)

    def _expire(self) -> None:
        """What waited too long is lost: an old command is worse than none."""
        old = [one for one in self._all.values() if self._age_us(one) >= self._keep_us]
        if old:
            self._give_up(old, "expired")
        self._watch_age()

    def _watch_age(self) -> None:
        if self._all and self._cancel is None:
            oldest = next(iter(self._all.values()))
            left_us = max(SECOND // 10, self._keep_us - self._age_us(oldest))
            self._cancel = later(self._clock, left_us, self._aged)

    def _aged(self) -> None:
        self._cancel = None
        self._expire()

    def _age_us(self, one: Spooled) -> int:
        now = self._clock.now()
        if one.at.boot == now.boot:
            return now.mono_us - one.at.mono_us
        return self._clock.wall(now)[0] - self._clock.wall(one.at)[0]

    def _write(self, work: Callable[[Unit], None], done: Callable[[object], None]) -> None:
        self._writing += 1

        def finished(result: object) -> None:
            self._writing -= 1
            done(result)

        self._hot.write(work, finished)

    def _count(self, name: str) -> None:
        self.counters[name] = self.counters.get(name, 0) + 1


def _log_failure(result: object) -> None:
    if isinstance(result, BaseException):
        logger.warning("the spool could not be written: %s", result)
