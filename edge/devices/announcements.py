"""Discovery messages: read, checked against their publisher's own rights, taken into the registry and written.

The same payload again is nothing. A message is written to node.db in one unit and its ack waits for it; what is refused
is in the ledger before its ack. A discovery may only name topics that its publisher may itself use (design §5), and
what came in by `mqtt.plain_lan` announces nothing of high risk, and changes and withdraws nothing of it (settled G14).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from edge.contract.bus import Admission, Publish
from edge.contract.principal import PLAIN_LAN, Principal
from edge.devices import limits as bounds
from edge.devices.acks import Acks, Losses, sender
from edge.devices.model import Pending
from edge.devices.pace import Pace
from edge.devices.registry import Registry, Source, publisher
from edge.protocol.discovery import homeassistant, native
from edge.protocol.discovery.record import Component, Found, Refusal, Refused
from edge.protocol.mqtt.topics import within
from edge.store import devices as table
from edge.store.devices import Change

PARSER = b"1"
"""Part of every discovery digest: when the parsers learn something, what is announced again is read again."""

_WITHOUT_TLS = "high risk without TLS"

_LIMITED = {
    "too many components": bounds.COMPONENTS,
    "too many options": bounds.OPTIONS,
    "too deep": bounds.DISCOVERY_DEPTH,
}


class Announcements:
    """Takes what devices say of themselves. `admission` tells a publisher's rights; `heard` are topics now read."""

    def __init__(
        self,
        registry: Registry,
        losses: Losses,
        admission: Callable[[Principal], Admission | None],
        prefix: str,
        heard: Callable[[str, Acks], None],
    ) -> None:
        self._registry, self._losses, self._admission = registry, losses, admission
        self._prefix, self._heard = prefix, heard
        self._limits, self._counters = registry.limits, registry.counters
        self._bounds = bounds.bounds(registry.limits)
        self._pace = Pace(registry.clock, registry.limits)

    def home_assistant(self, message: Publish, acks: Acks) -> bool | None:
        """Take a Home Assistant config message: whether its ack waits; None when the topic is none of those."""
        try:
            if homeassistant.address(message.topic, self._prefix) is None:
                return None
        except Refusal as error:
            return self._refuse(message, Refused("", error.reason, error.detail), acks)
        return self._take(
            message, lambda: homeassistant.parse(message.topic, message.payload, self._prefix, self._bounds), acks
        )

    def native(self, device: str, message: Publish, acks: Acks) -> bool:
        """Take a native announcement: whether its ack waits."""
        return self._take(message, lambda: native.parse(device, message.payload, self._bounds), acks)

    def _take(self, message: Publish, parse: Callable[[], Found | None], acks: Acks) -> bool:
        by = self._admission(message.who)
        if by is None:
            return self._refuse(message, Refused("", "unknown publisher"), acks)
        plain = message.who.via == PLAIN_LAN
        if plain and self._registry.routes.closed(message.topic):
            return self._refuse(message, Refused("", _WITHOUT_TLS, "announced over TLS"), acks)
        if not message.payload:
            source = self._registry.sources.get(message.topic)
            return self._write(self._withdrawn(message.topic), source, acks)
        if len(message.payload) > self._bounds.octets:
            return self._too_large(message, acks)
        digest = _digest(by, message.payload, plain)
        source = self._registry.sources.get(message.topic)
        if source is not None and source.row.digest == digest:
            self._counters["repeated"] += 1
            if source.pending is None:
                return False
            source.pending.then(acks.wait())
            return True
        if not self._pace.take(publisher(by), len(message.payload)):
            self._limits.hit(bounds.ANNOUNCE_OCTETS)
            return self._refuse(message, Refused("", "too fast"), acks)
        try:
            found = parse()
        except Refusal as error:
            return self._turn_away(message, by, digest, (Refused("", error.reason, error.detail),), acks)
        if found is None:
            self._counters["migrating"] += 1
            return False
        return self._adopt(message, by, digest, found, acks)

    def _adopt(self, message: Publish, by: Admission, digest: bytes, found: Found, acks: Acks) -> bool:
        admitted: list[Component] = []
        rights = _Rights(by)
        refused = list(found.refused)
        plain = message.who.via == PLAIN_LAN
        taken = self._registry.risky(found, by) if plain else set()
        for one in found.components:
            foreign = rights.foreign(one)
            risky = self._risky(one, taken) if plain else ""
            if risky:
                refused.append(Refused(one.uid[:64], _WITHOUT_TLS, risky[:128]))
            elif foreign:
                refused.append(Refused(one.uid[:64], "foreign topic", foreign[:128]))
            else:
                admitted.append(one)
                if any(": over " in text for text in one.unsupported):
                    self._limits.hit(bounds.TEMPLATE)
        if refused and not admitted:
            return self._turn_away(message, by, digest, tuple(refused), acks)
        wanted = Found(device=found.device, components=tuple(admitted), native=found.native)
        try:
            change = self._registry.adopt(message.topic, by, digest, wanted, tuple(refused))
        except Refusal as error:
            refused.append(Refused("", error.reason, error.detail))
            return self._turn_away(message, by, digest, tuple(refused), acks)
        self._note(message, refused, acks)
        self._counters["adopted"] += 1
        self._write(change, self._registry.sources[message.topic], acks)
        for topic in dict.fromkeys(topic for one in admitted for topic in one.topics()[0]):
            self._heard(topic, acks)
        return True

    def _risky(self, component: Component, taken: set[str]) -> str:
        """What of a component is of high risk: its kind, what it would take the place of (one of the uids `taken`),
        or a topic of orders that something of high risk hears too."""
        if component.cap.risk == "high" or component.uid in taken:
            return component.cap.kind
        return next(filter(self._registry.routes.closed, component.topics()[1]), "")

    def _turn_away(
        self, message: Publish, by: Admission, digest: bytes, refused: tuple[Refused, ...], acks: Acks
    ) -> bool:
        self._note(message, list(refused), acks)
        change = self._registry.turn_away(message.topic, by, digest, refused)
        self._write(change if change.sources else None, self._registry.sources.get(message.topic), acks)
        return True

    def _withdrawn(self, topic: str) -> Change | None:
        change = self._registry.withdraw(topic)
        if change is not None:
            self._counters["withdrawn"] += 1
        return change

    def _write(self, change: Change | None, source: Source | None, acks: Acks) -> bool:
        """One unit of node.db. If it fails, the same announcement is taken again."""
        if change is None:
            return False
        pending = Pending()
        pending.then(acks.wait())
        if source is not None:
            source.pending = pending

        def done(result: BaseException | None) -> None:
            error = result if isinstance(result, BaseException) else None
            if source is not None:
                source.pending = None
            if error is not None:
                self._registry.unsaved(change, source)
            pending.done(error)

        self._registry.node.write(lambda unit: table.save(unit, change), done)
        return True

    def _note(self, message: Publish, refused: list[Refused], acks: Acks) -> None:
        """Count what is refused, and write it to the ledger."""
        reasons: dict[str, int] = {}
        for one in refused:
            self._counters[f"refused {one.reason}"] += 1
            reasons[one.reason] = reasons.get(one.reason, 0) + 1
            if one.reason in _LIMITED:
                self._limits.hit(_LIMITED[one.reason])
        for reason, count in reasons.items():
            self._losses.add("discovery", message.topic, count, reason, sender(message), acks.wait())

    def _refuse(self, message: Publish, refused: Refused, acks: Acks) -> bool:
        self._note(message, [refused], acks)
        return True

    def _too_large(self, message: Publish, acks: Acks) -> bool:
        self._limits.hit(bounds.DISCOVERY_OCTETS)
        return self._refuse(message, Refused("", "too large"), acks)


def _digest(by: Admission, payload: bytes, plain: bool) -> bytes:
    """What was said, by whom, with which rights, by which door: others may mean another answer."""
    made = hashlib.blake2b(PARSER, digest_size=16)
    for text in (publisher(by), *by.publish, "", *by.subscribe):
        made.update(text.encode() + b"\0")
    if plain:
        made.update(PLAIN_LAN.encode() + b"\0")
    made.update(payload)
    return made.digest()


class _Rights:
    """What a publisher may use itself; each topic of one message is looked at once (the confused-deputy rule)."""

    def __init__(self, by: Admission) -> None:
        self._by = by
        self._says: dict[str, bool] = {}
        self._hears: dict[str, bool] = {}

    def foreign(self, component: Component) -> str:
        """The first topic that a component names but its publisher may not itself use, "" if none."""
        says, hears = component.topics()
        for topics, seen, allowed in ((says, self._says, self._by.publish), (hears, self._hears, self._by.subscribe)):
            for topic in topics:
                if topic not in seen:
                    seen[topic] = any(within(topic, one) for one in allowed)
                if not seen[topic]:
                    return topic
        return ""
