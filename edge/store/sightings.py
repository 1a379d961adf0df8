"""Numbers above our head: which of those that readers show are believed (design D18, third case).

A reader whose cursor lies above the head of its log knows of numbers that this file has forgotten: an older copy of
the state was put in its place, or a power cut took commits that no mark knew of. Then every number goes on in a new
incarnation, or they would be given out twice and readers would ignore what comes under them.

Nobody can prove what was forgotten, so what is believed has bounds: whoever may read a log could else make the
numbers of all logs jump, or burn the 8191 incarnations that numbers have room for.
"""

from __future__ import annotations

from edge.contract.limit import Limits, declare
from edge.contract.store import INCARNATION_SHIFT
from edge.store.marks import Marks

SIGHTINGS = declare(
    "numbers.sightings",
    4,
    "readers",
    "believed between two starts, of one file, that show a number above our head; others are ignored",
    None,
)
DISTANCE = declare(
    "numbers.sighting_distance", 1 << 30, "numbers", "that one shown and believed may lie above our head", None
)
LEAP = declare("numbers.sighting_leap", 16, "incarnations", "that a number shown and believed may lie above ours", None)
LAST = declare(
    "numbers.sighting_last",
    4096,
    "incarnations",
    "that numbers shown may use up in all; the rest is for restores and files that lost commits",
    None,
)


class Sightings:
    """What readers of one file were believed since it was opened. Loop only."""

    def __init__(self, marks: Marks, limits: Limits) -> None:
        self._marks, self._limits = marks, limits
        self._believed: set[str] = set()

    def believe(self, seq: int, head: int, who: str) -> bool:
        """Does `seq`, above `head`, ask for a new incarnation? What is not believed is counted, and changes nothing.

        A number of an earlier incarnation asks for nothing: all that come are above it anyway. So does one of an
        incarnation that began in this run because of a number shown: whatever was given out in it, we know.
        """
        shown, ours = seq >> INCARNATION_SHIFT, self._marks.incarnation
        if seq <= head or shown < ours:
            return False
        limits, base = self._limits, shown << INCARNATION_SHIFT
        if shown - ours > limits[LEAP]:
            limits.hit(LEAP)
        elif shown >= limits[LAST]:
            limits.hit(LAST)
        elif seq - max(head, base) > limits[DISTANCE]:
            limits.hit(DISTANCE)
        elif shown == self._marks.begun or who in self._believed or len(self._believed) >= limits[SIGHTINGS]:
            limits.hit(SIGHTINGS)
        else:
            self._believed.add(who)
            return True
        return False
