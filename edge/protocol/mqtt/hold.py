"""What acks wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Held(Protocol):
    """Whose acks wait."""

    def release_acks(self) -> None:
        """Send what waits no more."""
        ...


class Hold:
    """What the acks of one turn wait for: `open` completions, then `error` says how it went."""

    __slots__ = ("calls", "connections", "error", "open", "rank")

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        """The class of what waits: alarms, or everything else."""
        self.open = 1
        self.error: BaseException | None = None
        self.connections: dict[Held, None] = {}
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
