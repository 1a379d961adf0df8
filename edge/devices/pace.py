"""How much one publisher may announce: a burst, then a steady trickle; what is announced again unchanged is free."""

from __future__ import annotations

from collections import OrderedDict

from edge.contract.limit import Limits
from edge.contract.time import SECOND, Clock
from edge.devices import limits as bounds

PUBLISHERS = 1_024
"""Publishers whose pace is remembered; the one longest silent is forgotten first."""
HEAD = 256
"""Octets that every announcement costs beside its own."""


class Pace:
    """A bucket of octets per publisher: `devices.announce_octets` full, refilled by `devices.announce_rate`."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock, self._limits = clock, limits
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, who: str, octets: int) -> bool:
        """Whether there is room for an announcement of that size; it is used up then."""
        full, rate = self._limits[bounds.ANNOUNCE_OCTETS], self._limits[bounds.ANNOUNCE_RATE]
        now = self._clock.now().mono_us
        left, at = self._left.pop(who, (float(full), now))
        left = min(full, left + (now - at) * rate / SECOND)
        fits = left >= octets + HEAD
        self._left[who] = (left - octets - HEAD if fits else left, now)
        if len(self._left) > PUBLISHERS:
            self._left.popitem(last=False)
        return fits
