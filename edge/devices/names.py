"""What a device or an MQTT user may be called, plain and no convention's; and what more topics they may be given."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from edge.contract.errors import InvalidParams
from edge.contract.time import SECOND, Clock
from edge.protocol.discovery.config import slug as slugged
from edge.protocol.discovery.record import Refusal
from edge.protocol.mqtt.topics import valid_filter

KNOWN_ROOTS = frozenset(
    "aun homeassistant tele stat cmnd zigbee2mqtt tasmota homie shellies esphome spbv1-0 rtl-433 ruuvi home".split()
)
"""First topic levels that belong to conventions: no device may have one as its slug."""

FILTER_LENGTH = 256
"""Characters of a topic filter that the owner gives somebody, at most: a rule of what is one, not a bound on others."""

RESERVED_US = 60 * SECOND
"""How long a name that the owner gives is held for its commit."""


def check_filters(filters: Iterable[str], whose: str) -> None:
    """Raises `InvalidParams` for what is no topic filter that a `whose` may be given."""
    for one in filters:
        if not valid_filter(one) or one.startswith("$") or len(one) > FILTER_LENGTH:
            raise InvalidParams(f"not a topic filter for a {whose}: {one[:80]!r}")


class Names:
    """Slugs of devices. `used` says whether a device that is not forgotten has one."""

    def __init__(self, clock: Clock, used: Callable[[str], bool]) -> None:
        self._clock, self._used = clock, used
        self._reserved: dict[str, int] = {}
        self.roots = set(KNOWN_ROOTS)

    def reserve(self, wanted: str) -> str:
        """Take a slug for a device that the owner adds; held a minute for its commit.

        Raises `Refusal` when the name is none, belongs to a convention, or is taken.
        """
        slug = slugged(wanted, "-")
        if not self.good(slug):
            raise Refusal("bad name", f"{wanted[:64]!r}: 2 to 40 letters, digits and hyphens, no known topic root")
        if self.taken(slug):
            raise Refusal("taken", slug)
        self._reserved[slug] = self._clock.now().mono_us
        return slug

    def release(self, slug: str) -> None:
        """Its commit is over."""
        self._reserved.pop(slug, None)

    def good(self, slug: str) -> bool:
        """Whether a slug may be one: as long as it should be, and no convention's root."""
        return 2 <= len(slug) <= 40 and slug not in self.roots

    def taken(self, slug: str) -> bool:
        """Whether a device has it, or is about to."""
        held = self._reserved.get(slug)
        if held is not None and self._clock.now().mono_us - held > RESERVED_US:
            self.release(slug)
            held = None
        return held is not None or self._used(slug)

    def first(self, hints: Iterable[str]) -> str:
        """The first hint that makes a slug, with a number behind it when it is taken."""
        made = next((one for hint in hints if self.good(one := slugged(hint, "-"))), "device")
        slug, count = made, 1
        while self.taken(slug):
            count += 1
            slug = f"{made}-{count}"
        return slug
