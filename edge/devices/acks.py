"""The acks of one batch of the bus, and what could not be kept."""

from __future__ import annotations

import asyncio

from edge.contract.bus import Done, Publish
from edge.contract.gap import Gap
from edge.contract.store import Store, Unit
from edge.contract.time import Clock, Stamp
from edge.devices.model import Cap, Pending

Row = tuple[Cap, object, bytes, Stamp, int | None, bool]
"""Capability, value, the value as JSON, when it arrived, stated time, live."""


class Acks:
    """The acks of one batch: `done` once everything it waits for is over, never inside the sink."""

    def __init__(self, done: Done) -> None:
        self._done, self._open, self._wanted = done, 0, False
        self._error: BaseException | None = None
        self.rows: list[Row] = []
        self.pending = Pending()
        self.awaited = False
        """Whether somebody waits for the ack of a row; otherwise they may stay for the wear window."""
        self.hurry = False
        """Whether what somebody waits for may be waiting for the wear window."""
        self.alarm = False
        """Whether among the rows is one of an alarm."""

    def wait(self) -> Done:
        """One more thing to wait for."""
        self._open += 1
        return self._settle

    def close(self, kept: list[int]) -> list[int]:
        """The sink is done; `done` is called only when it keeps something."""
        self._wanted = bool(kept)
        if self._wanted and not self._open:
            asyncio.get_running_loop().call_soon(self._done, self._error)
        return kept

    def _settle(self, error: BaseException | None) -> None:
        self._open -= 1
        self._error = self._error or error
        if self._wanted and not self._open:
            self._done(self._error)


class Losses:
    """The loss ledger of node.db for what never had a number (promise P2)."""

    def __init__(self, node: Store, clock: Clock) -> None:
        self._node, self._clock = node, clock

    def add(self, kind: str, key: str, count: int, reason: str, who: str, done: Done) -> None:
        """Write it down; `done` once it is on disk, or with why not."""
        at = self._clock.now()

        def work(unit: Unit) -> None:
            unit.lose(Gap(kind, key, 0, 0, count, reason, who, at))

        self._node.write(work, lambda result: done(result if isinstance(result, BaseException) else None))


def sender(message: Publish) -> str:
    """Who sent a message, for the ledger."""
    return message.who.device_id or message.who.aid or str(message.who.kind)
