"""The bus's sink of the devices area: topic → handler, one batch → one write per table, the ack after the commit.

A value is kept by its capability's history policy: `change` (default) when it differs from the last one kept or a
minute has passed, `every`, `none`, or every so many seconds. What is equal to a value whose commit is still under way
waits for that commit.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Protocol

from edge.contract.bus import Admission, Done, Publish
from edge.contract.capability import Capability
from edge.contract.event import Event, Fanout
from edge.contract.principal import Kind, Principal
from edge.contract.time import SECOND, Stamp
from edge.contract.wire import JsonLimits, dumps
from edge.devices import limits as bounds
from edge.devices.acks import Acks, Losses, Row, sender
from edge.devices.announcements import Announcements
from edge.devices.model import Cap, Device, Latest, Pending, Route, moment, word
from edge.devices.registry import RESTATE_ROWS, Registry
from edge.protocol.discovery import native
from edge.protocol.discovery.config import slug
from edge.protocol.discovery.record import Payload, Refusal, read, read_native
from edge.protocol.discovery.template import NO_SAMPLE
from edge.store.readings import UNKNOWN_TIME

log = logging.getLogger(__name__)

MINUTE_US = 60 * SECOND
EARLIEST_US = 1_577_836_800 * SECOND
"""A device's own time before 2020 is a clock that was never set."""
AHEAD_US = 86_400 * SECOND


class TaskEvents(Protocol):
    """Takes what a native device says of a task (implemented by the gate)."""

    def event(self, device: str, task_id: str, said: native.Event, done: Done) -> None:
        """`done` runs once it is on disk, or with why not."""
        ...


class Intake:
    """Feeds the registry from the bus: `bus.attach(intake.sink)`. Subscribes to nothing by itself."""

    def __init__(
        self,
        registry: Registry,
        admission: Callable[[Principal], Admission | None],
        fanout: Fanout,
        *,
        events: TaskEvents | None = None,
        prefix: str = "homeassistant",
    ) -> None:
        self._registry, self._fanout = registry, fanout
        self._events, self._prefix = events, prefix
        registry.names.roots.add(slug(prefix.partition("/")[0], "-"))
        self._clock, self._limits, self._counters = registry.clock, registry.limits, registry.counters
        self._losses = Losses(registry.node, registry.clock)
        self._announcements = Announcements(registry, self._losses, admission, prefix, self._replay)
        self._values = JsonLimits(registry.limits[bounds.STATE_OCTETS], registry.limits[bounds.DISCOVERY_DEPTH])
        self._value_octets = registry.limits[bounds.VALUE_OCTETS]
        self._unknown: OrderedDict[str, Publish] = OrderedDict()
        self._unstated = 0

    def sink(self, batch: list[Publish], done: Done) -> Collection[int]:
        """Take the messages of one loop turn; the positions whose acks wait for `done`."""
        acks = Acks(done)
        kept: list[int] = []
        for position, message in enumerate(batch):
            try:
                if self._take(message, acks):
                    kept.append(position)
            except Exception:
                self._counters["failed"] += 1
                log.exception("a message on %s could not be taken", message.topic[:128])
                self._losses.add("reading", message.topic, 1, "internal", sender(message), acks.wait())
                kept.append(position)
        self._flush(acks)
        return acks.close(kept)

    def _take(self, message: Publish, acks: Acks) -> bool:
        """Whether the ack of this message has to wait."""
        topic = message.topic
        route = self._registry.routes.get(topic)
        if route is not None:
            return self._state(route, message, acks)
        if topic.startswith(native.ROOT):
            return self._native(message, acks)
        if topic.startswith(self._prefix) and topic.endswith("/config"):
            waits = self._announcements.home_assistant(message, acks)
            if waits is not None:
                return waits
        return self._remember(message)

    def _native(self, message: Publish, acks: Acks) -> bool:
        place = native.address(message.topic)
        if place is None:
            return False
        if place.kind == "announce":
            return self._announcements.native(place.device, message, acks)
        if place.kind == "event":
            return self._event(place, message, acks)
        return self._remember(message)

    # Values.

    def _state(self, route: Route, message: Publish, acks: Acks) -> bool:
        """A message that present capabilities read. The node's own publishes are commands, not states."""
        if message.who.kind is Kind.NODE:
            return False
        if len(message.payload) > self._values.octets:
            self._limits.hit(bounds.STATE_OCTETS)
            self._losses.add("reading", message.topic, 1, "too large", sender(message), acks.wait())
            return True
        payload = Payload(message.payload, self._values)
        waits = False
        for cap in tuple(route.readers):
            waits = self._read(cap, payload, message, acks) or waits
        if route.presences:
            self._availability(route, payload)
        return waits

    def _availability(self, route: Route, payload: Payload) -> None:
        devices: dict[Device, None] = {}
        for cap, index in route.presences:
            said = word(cap.component.availability.topics[index], payload)
            if said is not None:
                cap.say(index, said)
                devices[cap.device] = None
        for device in devices:
            self._presence(device)

    def _read(self, cap: Cap, payload: Payload, message: Publish, acks: Acks) -> bool:
        reader = cap.component.reader
        if reader is None or not message.payload:
            return False
        said: int | None = None
        if reader.native:
            value, said = read_native(reader, payload)
        else:
            value = read(reader, payload)
        if value is NO_SAMPLE or (cap.component.cap.options and not _possible(cap.component.cap, value)):
            cap.counters["no_sample"] += 1
            return False
        stated = None if said is None else self._stated(cap, said)
        if stated is None and not message.live:
            stated = UNKNOWN_TIME
        waits = self._sample(cap, value, message.at, stated, message.live, acks)
        if waits and message.qos:
            acks.awaited = True
        return waits

    def _stated(self, cap: Cap, said_ms: int) -> int | None:
        """The device's own time in µs, if it can be one."""
        at = said_ms * 1000
        now, uncertainty = self._clock.wall(self._clock.now())
        if EARLIEST_US <= at <= now + uncertainty + AHEAD_US:
            return at
        cap.counters["bad_time"] += 1
        return None

    def _sample(self, cap: Cap, value: object, at: Stamp, stated: int | None, live: bool, acks: Acks) -> bool:
        """Keep a value by the policy; whether the ack has to wait."""
        raw = dumps(value)
        if len(raw) > self._value_octets:
            self._limits.hit(bounds.VALUE_OCTETS)
            cap.counters["too_large"] += 1
            self._losses.add("reading", cap.skill_id, 1, "too large", cap.device.row.publisher, acks.wait())
            return True
        cap.heard_us = at.mono_us
        if cap.component.off_delay_s:
            self._arm_off(cap, value)
        what = cap.component.cap
        if _keep(cap, what.history, value, at, live):
            cap.kept, cap.pending = (value, at.mono_us), acks.pending
            acks.rows.append((cap, value, raw, at, stated, live))
            if what.traffic == "alarm":
                acks.alarm = True
            return True
        if cap.pending is not None:
            acks.hurry = acks.hurry or cap.pending.lazy
            cap.pending.then(acks.wait())
            cap.pending.then(lambda error: self._again(cap, value, at, stated, live))
            return True
        self._again(cap, value, at, stated, live)
        return False

    def _again(self, cap: Cap, value: object, at: Stamp, stated: int | None, live: bool) -> None:
        """A value that is not kept: it is the latest all the same."""
        seq = cap.latest.seq if cap.latest is not None and cap.latest.value == value else 0
        if not live and cap.latest is not None:
            return
        self._registry.put(cap, Latest(value, at, stated, seq), live)

    def _flush(self, acks: Acks) -> None:
        """Hand the rows of a batch to the store, in one call."""
        rows, acks.rows = acks.rows, []
        if not rows:
            if acks.awaited and acks.hurry:
                self._registry.readings.hurry()
            return
        pending = acks.pending
        pending.lazy = not acks.awaited
        pending.then(acks.wait())
        seqs = range(0)

        def done(error: BaseException | None) -> None:
            self._stored(rows, seqs, pending, error)

        seqs = self._registry.readings.add(
            [(cap.id, at, stated, raw) for cap, _, raw, at, stated, _ in rows],
            done,
            lazy=not acks.awaited,
            urgent=acks.alarm,
        )
        self._unstated += len(rows)
        if self._unstated >= RESTATE_ROWS:
            self.restate(seqs[0] - self._unstated)

    def _stored(self, rows: list[Row], seqs: range, pending: Pending, error: BaseException | None) -> None:
        """After the commit: latest values, events, then whoever waited."""
        for seq, (cap, value, raw, at, stated, live) in zip(seqs, rows, strict=True):
            if cap.pending is pending:
                cap.pending = None
            latest = Latest(value, at, stated, 0 if error else seq)
            if error is not None:
                cap.kept = None
                self._counters["unstored"] += 1
            self._registry.put(cap, latest, live)
            if error is None and self._fanout.watched("reading", cap.skill_id):
                self._fanout.publish(self._told(cap, latest, raw))
        pending.done(error)

    def _told(self, cap: Cap, latest: Latest, raw: bytes) -> Event:
        at = moment(latest, self._clock)
        head = dumps({"skill": cap.skill_id, "unit": cap.what.unit, "at": at})
        return Event("reading", cap.skill_id, latest.seq, "reading", head[:-1] + b',"value":' + raw + b"}")

    def restate(self, before: int) -> int:
        """Write the latest value of what has been silent since number `before` again, with its old time; how many."""
        self._unstated = 0
        silent = self._registry.silent(before)
        if not silent:
            return 0
        seqs = range(0)

        def done(error: BaseException | None) -> None:
            for seq, (cap, row) in zip(seqs, silent, strict=True):
                if error is None and cap.latest is not None and (cap.id, cap.latest.at) == (row[0], row[1]):
                    cap.latest = Latest(cap.latest.value, cap.latest.at, cap.latest.stated_us, seq)

        seqs = self._registry.readings.add([row for _, row in silent], done, restated=True)
        return len(silent)

    def _arm_off(self, cap: Cap, value: object) -> None:
        """`off_delay`: what is on and says nothing more is off (spec/device-conventions.md §1.8)."""
        if cap.cancel_off is not None:
            cap.cancel_off()
            cap.cancel_off = None
        if value is True:
            due = self._clock.now().mono_us + int(cap.component.off_delay_s * SECOND)
            cap.cancel_off = self._clock.at(due, lambda: self._off(cap))

    def _off(self, cap: Cap) -> None:
        cap.cancel_off = None
        acks = Acks(lambda error: None)
        self._sample(cap, False, self._clock.now(), None, True, acks)
        self._flush(acks)

    def _presence(self, device: Device) -> None:
        """Tell when the whole device has come or gone."""
        online = device.online()
        if online == device.was_online:
            return
        device.was_online = online
        kind = "device.online" if online else "device.offline"
        self._fanout.publish(Event("device", device.slug, 0, kind, dumps({"device": device.slug})))
        for call in self._registry.on_presence:
            call(device)

    # What comes before its device.

    def _remember(self, message: Publish) -> bool:
        """State before discovery: the last message of a bounded number of topics is read when its device comes."""
        if message.who.kind is Kind.NODE or not message.payload:
            return False
        if len(message.payload) > self._limits[bounds.UNKNOWN_OCTETS]:
            self._limits.hit(bounds.UNKNOWN_OCTETS)
            return False
        self._unknown[message.topic] = message
        self._unknown.move_to_end(message.topic)
        if len(self._unknown) > self._limits[bounds.UNKNOWN_TOPICS]:
            self._unknown.popitem(last=False)
            self._limits.hit(bounds.UNKNOWN_TOPICS)
        return False

    def _replay(self, topic: str, acks: Acks) -> None:
        message = self._unknown.pop(topic, None)
        route = self._registry.routes.get(topic)
        if message is not None and route is not None:
            self._state(route, message, acks)

    # Tasks of native devices.

    def _event(self, place: native.Address, message: Publish, acks: Acks) -> bool:
        if self._events is None or not message.payload or message.who.kind is Kind.NODE:
            return False
        octets = self._limits[bounds.EVENT_OCTETS]
        if len(message.payload) > octets:
            self._limits.hit(bounds.EVENT_OCTETS)
            self._losses.add("task", message.topic, 1, "too large", sender(message), acks.wait())
            return True
        try:
            said = native.event(message.payload, octets)
        except Refusal as error:
            self._counters[f"refused event {error.reason}"] += 1
            self._losses.add("task", message.topic, 1, error.reason, sender(message), acks.wait())
            return True
        device = self._native_slug(place.device)
        if device is None:
            self._counters["event of nobody"] += 1
            self._losses.add("task", message.topic, 1, "no such device", sender(message), acks.wait())
            return True
        self._events.event(device, place.of, said, acks.wait())
        return True

    def _native_slug(self, level: str) -> str | None:
        device = self._registry.native(level)
        return device.slug if device is not None else None


def _possible(what: Capability, value: object) -> bool:
    """A choice of states takes only its own texts."""
    return what.kind not in ("select", "event") or not isinstance(value, str) or value in what.options


def _keep(cap: Cap, history: str, value: object, at: Stamp, live: bool) -> bool:
    """The history policy. A replayed state is kept only when it says something new."""
    if history == "every" and live:
        return True
    if history == "none":
        return False
    if cap.kept is None:
        return live or cap.latest is None or not _same(cap.latest.value, value)
    last, last_us = cap.kept
    if not live:
        return not _same(last, value)
    if history == "change":
        return not _same(last, value) or at.mono_us - last_us >= MINUTE_US
    return at.mono_us - last_us >= int(history) * SECOND


def _same(left: object, right: object) -> bool:
    """`True` is not `1`."""
    return type(left) is type(right) and left == right
