"""When to try again: each cause has a name and a curve, and every wait is drawn at random below it (full jitter).

A crowd that lost the same server comes back spread over the whole wait, not in waves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from edge.contract.time import SECOND

LEAST_US = SECOND // 10
"""No wait is shorter, whatever is drawn."""


class Curve(msgspec.Struct, frozen=True):
    """The upper end of the waits: `first_s`, doubled at each failure in a row, `most_s` at last."""

    first_s: float = 1
    most_s: float = 60


class Backoff:
    """Waits of one connection. `cause` is why the last try failed, `failures` how many did in a row."""

    def __init__(self, curves: Mapping[str, Curve], draw: Callable[[], float]) -> None:
        """`draw` gives numbers from 0 to 1. A cause without a curve has the usual one, from 1 to 60 seconds."""
        self._curves, self._draw = dict(curves), draw
        self.cause = ""
        self.failures = 0
        self.totals: dict[str, int] = {}
        """How often each cause was met since the start."""

    def failed(self, cause: str) -> int:
        """A try failed: how many µs to wait. Another cause than before starts its own curve."""
        self.failures = self.failures + 1 if cause == self.cause else 1
        self.cause = cause
        self.totals[cause] = self.totals.get(cause, 0) + 1
        curve = self._curves.get(cause, Curve())
        most = min(curve.most_s, curve.first_s * 2.0 ** min(self.failures - 1, 30))
        return max(LEAST_US, int(self._draw() * most * SECOND))

    def well(self) -> None:
        """It has worked for a while: the next failure is a first one."""
        self.cause, self.failures = "", 0
