"""`mqtt sub` for the operator: a copy of what the bus hands over, bounded, never slowing the bus."""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable

import msgspec

from edge.contract.bus import Done, Publish
from edge.contract.limit import Limits
from edge.devices import limits as bounds
from edge.protocol.mqtt.topics import matches


class Heard(msgspec.Struct, omit_defaults=True):
    """One message. `payload` is text, or else `payload_b64`; `missed` counts what was skipped just before it. `retain`
    is as its publisher said; `kept`: it was there before, and nobody published it now."""

    topic: str
    payload: str = ""
    payload_b64: str = ""
    qos: int = 0
    retain: bool = False
    user: str = ""
    missed: int = 0
    kept: bool = False


class _Tap:
    def __init__(self, filters: tuple[str, ...], most: int) -> None:
        self.filters, self.most = filters, most
        self.queue: deque[tuple[Publish, int]] = deque()
        self.missed = 0
        self.filled = asyncio.Event()


class Taps:
    """Every `mqtt sub` that runs; `sink` is attached to the bus and keeps nothing."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._taps: list[_Tap] = []

    def sink(self, batch: list[Publish], done: Done) -> Collection[int]:
        """Copy what somebody listens to."""
        for tap in self._taps:
            for message in batch:
                if any(matches(one, message.topic) for one in tap.filters):
                    self._put(tap, message)
        return ()

    def _put(self, tap: _Tap, message: Publish) -> None:
        if len(tap.queue) >= tap.most:
            tap.missed += 1
            self._limits.hit(bounds.TAP_QUEUE)
            return
        tap.queue.append((message, tap.missed))
        tap.missed = 0
        tap.filled.set()

    def open(self, filters: tuple[str, ...], before: Iterable[Publish] = ()) -> AsyncIterator[Heard]:
        """Those `before`, then messages from now on, until the iterator is closed. Raises `RateLimited` when too many
        listen."""
        if len(self._taps) >= self._limits[bounds.TAPS]:
            raise self._limits.refuse(bounds.TAPS)
        tap = _Tap(filters, self._limits[bounds.TAP_QUEUE])
        self._taps.append(tap)
        return self._messages(tap, before)

    async def _messages(self, tap: _Tap, before: Iterable[Publish]) -> AsyncIterator[Heard]:
        try:
            for message in before:
                yield heard(message)
            while True:
                await tap.filled.wait()
                while tap.queue:
                    yield heard(*tap.queue.popleft())
                tap.filled.clear()
        finally:
            self._taps.remove(tap)


def heard(message: Publish, missed: int = 0) -> Heard:
    """A message as the operator sees it."""
    made = Heard(
        topic=message.topic,
        qos=message.qos,
        retain=message.retain,
        user=message.who.device_id or message.who.aid or str(message.who.kind),
        missed=missed,
        kept=not message.live,
    )
    try:
        made.payload = message.payload.decode()
    except UnicodeDecodeError:
        made.payload_b64 = base64.b64encode(message.payload).decode()
    return made
