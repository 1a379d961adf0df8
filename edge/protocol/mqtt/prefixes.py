"""Whose a topic is when the broker is somebody else's: one principal per configured prefix (design §5).

A foreign broker does not say who published. What its owner states instead is which topics belong to whom.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edge.contract.bus import Admission
from edge.contract.principal import Kind, Principal
from edge.protocol.mqtt.topics import matches

MOST_REMEMBERED = 10_000
"""Topics whose owner is remembered; then looking starts anew."""


class Prefixes:
    """`table` is prefix → name. A name's topics are those below all of its prefixes; the longest prefix wins.

    A prefix of one level stands for everything that a device of that name uses by default (`own_topics`);
    `#` is whatever belongs to nobody else.
    """

    def __init__(
        self, table: Mapping[str, str], own_topics: Callable[[str], tuple[str, ...]], aid: Callable[[str], str]
    ) -> None:
        """Raises `ValueError` for what is no prefix."""
        filters: dict[str, list[str]] = {}
        for prefix, name in table.items():
            filters.setdefault(name, []).extend(_filters(prefix, own_topics))
        self.admissions = {
            name: Admission(
                Principal(kind=Kind.DEVICE, aid=aid(name), via="mqtt", device_id=name), name, tuple(found), tuple(found)
            )
            for name, found in filters.items()
        }
        self._places = sorted(
            ((one, name) for name, found in filters.items() for one in found), key=lambda place: -_weight(place[0])
        )
        self._known: dict[str, Admission | None] = {}

    @property
    def filters(self) -> tuple[str, ...]:
        """Every filter of everybody, the longest first."""
        return tuple(one for one, _ in self._places)

    def whose(self, topic: str) -> Admission | None:
        """Who is taken to have published on a topic; None when it belongs to nobody."""
        if topic in self._known:
            return self._known[topic]
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        found = next((self.admissions[name] for one, name in self._places if matches(one, topic)), None)
        self._known[topic] = found
        return found

    def admission(self, name: str) -> Admission | None:
        """What a name may use."""
        return self.admissions.get(name)


def _filters(prefix: str, own_topics: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
    levels = prefix.removesuffix("/#").removesuffix("/")
    if levels == "#":
        return ("#",)
    if not levels or any(sign in levels for sign in "+#\0") or levels.startswith("$"):
        raise ValueError(f"{prefix!r} is no topic prefix")
    if "/" not in levels and prefix == levels:
        return own_topics(levels)
    return (f"{levels}/#",)


def _weight(wanted: str) -> int:
    """How much of a filter is named."""
    return sum(level not in "+#" for level in wanted.split("/"))
