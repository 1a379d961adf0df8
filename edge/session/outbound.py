"""One bounded queue per channel (design D2a): whoever has something to say queues it, one sender takes it."""

from __future__ import annotations

import asyncio
from collections import deque

from edge.contract.limit import Limit, Limits, declare

FRAMES = declare(
    "session.outbound_frames",
    256,
    "frames",
    "waiting to be sent on one channel; over it the channel closes (1013)",
    error=None,
)
OCTETS = declare(
    "session.outbound_octets",
    1_048_576,
    "bytes",
    "waiting to be sent on one channel; over it the channel closes (1013)",
    error=None,
)

CLASSES = ("control", "answer", "event")
"""In the order in which they leave; within a class first in, first out."""


class Outbound:
    """Frames on their way to one peer. `put` never waits; one task calls `take` and, when it is written, `sent`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._queues: dict[str, deque[bytes]] = {klass: deque() for klass in CLASSES}
        self._octets = 0
        self._frames = 0
        self._open = True
        self._sending: bytes | None = None
        self._changed = asyncio.Event()

    @property
    def open(self) -> bool:
        """Whether `put` still takes frames."""
        return self._open

    @property
    def waiting(self) -> int:
        """Frames that the peer has not been sent, the one being written included."""
        return self._frames

    def put(self, frame: bytes, klass: str) -> bool:
        """Queue a frame; False when the queue is closed or full. A frame of any size fits an empty queue."""
        if not self._open:
            return False
        if (limit := self._over(len(frame))) is not None:
            self._limits.hit(limit)
            return False
        self._queues[klass].append(frame)
        self._frames += 1
        self._octets += len(frame)
        self._changed.set()
        return True

    def end(self) -> None:
        """Take no more frames; what waits still leaves."""
        self._open = False
        self._changed.set()

    def abandon(self) -> None:
        """Take no more frames and drop what waits: the peer does not read, or is gone."""
        self.end()
        for queue in self._queues.values():
            queue.clear()
        self._octets = self._frames = 0
        self._sending = None

    async def take(self) -> bytes | None:
        """The next frame; None once the queue has ended and is empty."""
        while True:
            for queue in self._queues.values():
                if queue:
                    self._sending = queue.popleft()
                    return self._sending
            if not self._open:
                return None
            await self._change()

    def sent(self) -> None:
        """The frame last taken is written: its room is free."""
        if self._sending is not None:
            self._frames -= 1
            self._octets -= len(self._sending)
            self._sending = None
            self._changed.set()

    async def room(self) -> bool:
        """Wait until less than half is used, for who can wait; False when the queue has ended."""
        while self._open and (self._frames * 2 >= self._limits[FRAMES] or self._octets * 2 >= self._limits[OCTETS]):
            await self._change()
        return self._open

    async def fits(self, octets: int) -> bool:
        """Wait until a frame of this size would be taken, for who can wait; False when the queue has ended."""
        while self._open and self._over(octets) is not None:
            await self._change()
        return self._open

    async def flushed(self) -> None:
        """Wait until nothing waits."""
        while self._frames:
            await self._change()

    def _over(self, octets: int) -> Limit | None:
        """The limit that one more frame would break."""
        if self._frames and self._frames + 1 > self._limits[FRAMES]:
            return FRAMES
        if self._frames and self._octets + octets > self._limits[OCTETS]:
            return OCTETS
        return None

    async def _change(self) -> None:
        """Wait for the next change. Nothing happens between a caller's look and this, so none is missed."""
        self._changed.clear()
        await self._changed.wait()
