"""Devices and capabilities as they live in memory, with their latest values and where their messages come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

import msgspec

from edge.contract.capability import Capability
from edge.contract.time import SECOND, Clock, Stamp
from edge.protocol.discovery import native
from edge.protocol.discovery.record import Component, Payload, Presence
from edge.protocol.discovery.template import NO_SAMPLE
from edge.protocol.mqtt.router import CLASSES, rank_of
from edge.store.devices import PRESENT, CapabilityRow, DeviceRow
from edge.store.readings import UNKNOWN_TIME

SURE_WITHIN_US = 3_600 * SECOND
"""A time of an earlier boot that is known less surely than this is not shown."""


class Latest(msgspec.Struct, frozen=True):
    """A value. stated_us as in a reading; seq 0: it is not in the log (history `none`, or not yet)."""

    value: object
    at: Stamp
    stated_us: int | None = None
    seq: int = 0


class Pending:
    """A commit under way, and who waits for it."""

    __slots__ = ("_calls", "lazy", "over")

    def __init__(self) -> None:
        self._calls: list[Callable[[BaseException | None], None]] = []
        self.over = False
        self.lazy = False
        """Whether it waits for the wear window, because nobody waits for it."""

    def then(self, call: Callable[[BaseException | None], None]) -> None:
        """Call when it is on disk, or with why it is not."""
        self._calls.append(call)

    def done(self, error: BaseException | None) -> None:
        """It is over."""
        self.over = True
        for call in self._calls:
            call(error)


class Cap:
    """One capability: what it is, its latest value, and what was last handed to the store."""

    def __init__(self, device: Device, row: CapabilityRow) -> None:
        self.device = device
        self.id, self.name, self.state, self.source = row.id, row.name, row.state, row.source
        self.component: Component = row.component
        self.skill_id = f"{device.slug}.{row.name}"
        self.latest: Latest | None = None
        self.kept: tuple[object, int] | None = None
        """(value, mono µs) of the last value handed to the store; None: whatever comes next is kept."""
        self.pending: Pending | None = None
        self.words: list[bool | None] = [None] * len(row.component.availability.topics)
        self.last_word: bool | None = None
        self.heard_us: int | None = None
        self.counters: Counter[str] = Counter()
        self.cancel_off: Callable[[], None] | None = None

    @property
    def what(self) -> Capability:
        """The capability as callers see it."""
        return self.component.cap

    @property
    def present(self) -> bool:
        """Whether it is announced now."""
        return self.state == PRESENT and self.device.state == PRESENT

    def row(self) -> CapabilityRow:
        """For the store."""
        return CapabilityRow(
            id=self.id,
            slug=self.device.slug,
            name=self.name,
            state=self.state,
            source=self.source,
            component=self.component,
        )

    def describe(self, component: Component, source: str) -> None:
        """Take a new description; what is known of values stays, what is known of availability starts anew."""
        if component.availability != self.component.availability:
            self.words = [None] * len(component.availability.topics)
            self.last_word = None
        self.component, self.source, self.state = component, source, PRESENT

    def say(self, index: int, online: bool) -> None:
        """An availability topic spoke."""
        self.words[index] = self.last_word = online

    def online(self) -> bool | None:
        """By its own availability: None while nothing was heard, or when it has none."""
        if not self.words:
            return None
        match self.component.availability.mode:
            case "all":
                if False in self.words:
                    return False
                return None if None in self.words else True
            case "any":
                if True in self.words:
                    return True
                return None if None in self.words else False
        return self.last_word


class Device:
    """One device and its capabilities by name."""

    def __init__(self, row: DeviceRow) -> None:
        self.row = row
        self.caps: dict[str, Cap] = {}
        self.hardware: set[str] = set()
        self.was_online: bool | None = None
        self.spoke: Stamp | None = None
        """When it last said whether it is there, as far as we know."""

    @property
    def slug(self) -> str:
        """Its name on topics and in skill ids."""
        return self.row.slug

    @property
    def aid(self) -> str:
        """`d-<slug>.<issuer>`."""
        return self.row.aid

    @property
    def state(self) -> int:
        """Present, retired or forgotten."""
        return self.row.state

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.row.name or self.row.slug

    def present(self) -> list[Cap]:
        """Its announced capabilities, by name."""
        return [cap for _, cap in sorted(self.caps.items()) if cap.present]

    def online(self) -> bool | None:
        """True if any of its capabilities says so, False if those that speak say no, None if none has spoken."""
        words = {cap.online() for cap in self.caps.values() if cap.present}
        return True if True in words else False if False in words else None

    def last_seen(self, clock: Clock) -> int | None:
        """µs UTC of the last we heard of it, over restarts too: a value that is kept, or whether it is there. What a
        broker repeats is no sign of life. None when nobody knows."""
        heard = [cap.latest for cap in self.caps.values() if cap.latest is not None]
        stamps = [one.at for one in heard if one.stated_us != UNKNOWN_TIME]
        known = [when(at, clock) for at in (*stamps, *([self.spoke] if self.spoke is not None else []))]
        return max((at for at in known if at is not None), default=None)

    def default_skill(self) -> str:
        """The declared one if it exists, else the only one, else ""."""
        present = self.present()
        if any(cap.name == self.row.default_skill for cap in present):
            return self.row.default_skill
        return present[0].name if len(present) == 1 else ""


class Route:
    """Who listens to a topic, in order: capabilities for its value, and (capability, index) for its availability."""

    __slots__ = ("presences", "readers")

    def __init__(self) -> None:
        self.readers: dict[Cap, None] = {}
        self.presences: dict[tuple[Cap, int], None] = {}


class Routes:
    """Topic → route, for every topic that a present capability reads; and the topics of those of high risk."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}
        self.get = self._routes.get
        """The route of a topic, None when nobody reads it."""
        self._risky: dict[Cap, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """(every topic, command topics) of those of high risk, as they were when they came."""
        self._closed: Counter[str] = Counter()
        self._ordered: Counter[str] = Counter()
        """Command topics of what is of high risk; a native device's tasks are not among them."""
        self.on_change: list[Callable[[], None]] = []
        """Called whenever topics come or go."""

    def topics(self) -> Collection[str]:
        """Every topic that is read."""
        return self._routes.keys()

    def traffic(self, topic: str) -> str:
        """The traffic class of a topic: of the most important capability that reads it; availability is state."""
        route = self._routes.get(topic)
        if route is None:
            return CLASSES[0]
        ranks = [rank_of(cap.what.traffic) for cap in route.readers] + [1] * bool(route.presences)
        return CLASSES[max(ranks, default=0)]

    def closed(self, topic: str) -> bool:
        """Whether a topic carries states, orders, tasks or the announcement of a capability of high risk."""
        if topic in self._closed:
            return True
        return topic.startswith(native.ROOT) and native.task_topic_of(topic) in self._closed

    def risk(self, cap: Cap) -> str:
        """The risk of ordering a capability: of the riskiest that has to do with the topic it is ordered by.

        All capabilities of a native device are ordered by one topic, and the device tells them apart.
        """
        writer = cap.component.writer
        if cap.what.native:
            shared = _tasks(cap) in self._ordered
        else:
            shared = writer is not None and self.closed(writer.topic)
        return "high" if shared else cap.what.risk

    def __contains__(self, topic: str) -> bool:
        return topic in self._routes

    def add(self, cap: Cap) -> None:
        """Listen for a capability."""
        if cap.component.reader is not None:
            self._at(cap.component.reader.topic).readers[cap] = None
        for index, one in enumerate(cap.component.availability.topics):
            self._at(one.topic).presences[cap, index] = None
        if cap.what.risk == "high":
            every, orders = self._risky[cap] = _topics(cap), tuple(cap.component.topics()[1])
            self._closed.update(every)
            self._ordered.update(orders)
        self._changed()

    def remove(self, cap: Cap) -> None:
        """Listen no more for a capability."""
        if cap.component.reader is not None:
            self._gone(cap.component.reader.topic, cap)
        for index, one in enumerate(cap.component.availability.topics):
            self._gone(one.topic, cap, index)
        every, orders = self._risky.pop(cap, ((), ()))
        for counted, topics in ((self._closed, every), (self._ordered, orders)):
            for topic in topics:
                counted[topic] -= 1
                if not counted[topic]:
                    del counted[topic]
        self._changed()

    def _changed(self) -> None:
        for call in self.on_change:
            call()

    def _gone(self, topic: str, cap: Cap, index: int | None = None) -> None:
        route = self._routes.get(topic)
        if route is None:
            return
        if index is None:
            route.readers.pop(cap, None)
        else:
            route.presences.pop((cap, index), None)
        if not route.readers and not route.presences:
            del self._routes[topic]

    def _at(self, topic: str) -> Route:
        return self._routes.setdefault(topic, Route())


def _topics(cap: Cap) -> tuple[str, ...]:
    """Every topic by which a capability is announced, read, told and ordered."""
    says, hears = cap.component.topics()
    return (cap.source, *says, *hears, *([_tasks(cap)] if cap.what.native else []))


def _tasks(cap: Cap) -> str:
    """The topic of a native device's tasks, whichever capability they are for."""
    return native.task_topic(cap.device.row.native or cap.device.slug)


def word(presence: Presence, payload: Payload) -> bool | None:
    """What an availability message says; None when it is neither payload."""
    said = presence.template.render(payload) if presence.template is not None else payload.text()
    if said is NO_SAMPLE or said is None:
        return None
    text = said if isinstance(said, str) else str(said)
    return True if text == presence.online else False if text == presence.offline else None


def moment(latest: Latest, clock: Clock) -> int | None:
    """µs UTC of a value: the device's word, else when it arrived; None when nobody knows.

    While the box does not know the time, what arrived since its start is dated by its best guess.
    """
    if latest.stated_us == UNKNOWN_TIME:
        return None
    if latest.stated_us is not None:
        return latest.stated_us
    return when(latest.at, clock)


def when(at: Stamp, clock: Clock) -> int | None:
    """µs UTC of a moment: of this boot as well as we know it, of an earlier one only if it was known."""
    wall_us, uncertainty = clock.wall(at)
    return wall_us if at.boot == clock.now().boot or uncertainty <= SURE_WITHIN_US else None
