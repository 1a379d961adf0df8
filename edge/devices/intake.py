"""The bus's sink of the devices area: topic → handler, one batch → one write per table, the ack after the commit.

A value is kept by its capability's history policy: `change` (default) when it differs from the last one kept or a
minute has passed, `every`, `none`, or every so many seconds. What is equal to a value whose commit is still under way
waits for that commit. A discovery message is written to node.db in one unit, and its ack waits for it; the same
payload again is nothing. What is refused is in the ledger before its ack.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Protocol

from edge.contract.bus import Admission, Done, Publish
from edge.contract.event import Event, Fanout
from edge.contract.gap import Gap
from edge.contract.limit import Limit
from edge.contract.principal import Kind, Principal
from edge.contract.store import Unit
from edge.contract.time import SECOND, Stamp
from edge.contract.wire import JsonLimits, dumps
from edge.devices import limits as bounds
from edge.devices.model import Cap, Latest, Pending, Route, moment, word
from edge.devices.registry import RESTATE_ROWS, Registry, Source, publisher
from edge.protocol.discovery import homeassistant, native
from edge.protocol.discovery.config import slug
from edge.protocol.discovery.record import Component, Found, Payload, Refusal, Refused, read, stated_ms
from edge.protocol.discovery.template import NO_SAMPLE
from edge.protocol.mqtt.topics import within
from edge.store import devices as table
from edge.store.devices import Change
from edge.store.readings import UNKNOWN_TIME

log = logging.getLogger(__name__)

PARSER = b"1"
"""Part of every discovery digest: when the parsers learn something, what is announced again is read again."""

MINUTE_US = 60 * SECOND
EARLIEST_US = 1_577_836_800 * SECOND
"""A device's own time before 2020 is a clock that was never set."""
AHEAD_US = 86_400 * SECOND

Row = tuple[Cap, object, bytes, Stamp, int | None, bool]
"""Capability, value, the value as JSON, when it arrived, stated time, live."""


class TaskEvents(Protocol):
    """Takes what a native device says of a task (implemented by the gate)."""

    def event(self, device: str, task_id: str, said: native.Event, done: Done) -> None:
        """`done` runs once it is on disk, or with why not."""
        ...


class _Batch:
    """The acks of one batch: `done` once everything it waits for is over, never inside the sink."""

    def __init__(self, done: Done) -> None:
        self._done, self._open, self._wanted = done, 0, False
        self._error: BaseException | None = None
        self.rows: list[Row] = []
        self.pending = Pending()
        self.urgent = False
        """Whether somebody waits for the ack of a row; otherwise they may stay for the wear window."""

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
        self._registry, self._admission, self._fanout = registry, admission, fanout
        self._events, self._prefix = events, prefix
        registry.roots.add(slug(prefix.partition("/")[0], "-"))
        self._clock, self._limits, self._counters = registry.clock, registry.limits, registry.counters
        self._bounds = bounds.bounds(registry.limits)
        self._values = JsonLimits(registry.limits[bounds.STATE_OCTETS], registry.limits[bounds.DISCOVERY_DEPTH])
        self._unknown: OrderedDict[str, Publish] = OrderedDict()
        self._unstated = 0

    def sink(self, batch: list[Publish], done: Done) -> Collection[int]:
        """Take the messages of one loop turn; the positions whose acks wait for `done`."""
        acks = _Batch(done)
        kept: list[int] = []
        for position, message in enumerate(batch):
            try:
                if self._take(message, acks):
                    kept.append(position)
            except Exception:
                self._counters["failed"] += 1
                log.exception("a message on %s could not be taken", message.topic[:128])
        self._flush(acks)
        return acks.close(kept)

    def _take(self, message: Publish, acks: _Batch) -> bool:
        """Whether the ack of this message has to wait."""
        topic = message.topic
        route = self._registry.routes.get(topic)
        if route is not None:
            return self._state(route, message, acks)
        if topic.startswith(native.ROOT):
            return self._native(message, acks)
        if topic.startswith(self._prefix) and topic.endswith("/config"):
            try:
                place = homeassistant.address(topic, self._prefix)
            except Refusal as error:
                return self._refuse(message, (Refused("", error.reason, error.detail),), acks)
            if place is not None:
                return self._discovery(message, lambda: self._home_assistant(message), acks)
        return self._remember(message)

    def _native(self, message: Publish, acks: _Batch) -> bool:
        place = native.address(message.topic)
        if place is None:
            return False
        if place.kind == "announce":
            return self._discovery(message, lambda: native.parse(place.device, message.payload, self._bounds), acks)
        if place.kind == "event":
            return self._event(place, message, acks)
        return self._remember(message)

    def _home_assistant(self, message: Publish) -> Found | None:
        return homeassistant.parse(message.topic, message.payload, self._prefix, self._bounds)

    # Values.

    def _state(self, route: Route, message: Publish, acks: _Batch) -> bool:
        """A message that present capabilities read. The node's own publishes are commands, not states."""
        if message.who.kind is Kind.NODE:
            return False
        if len(message.payload) > self._values.octets:
            return self._too_large(bounds.STATE_OCTETS, message, acks)
        payload = Payload(message.payload, self._values)
        waits = False
        for cap in route.readers:
            waits = self._read(cap, payload, message, acks) or waits
        for cap, index in route.presences:
            said = word(cap.component.availability.topics[index], payload)
            if said is not None:
                cap.say(index, said)
                self._presence(cap)
        return waits

    def _read(self, cap: Cap, payload: Payload, message: Publish, acks: _Batch) -> bool:
        reader = cap.component.reader
        if reader is None or not message.payload:
            return False
        value = read(reader, payload)
        if value is NO_SAMPLE or not _possible(cap, value):
            cap.counters["no_sample"] += 1
            return False
        stated = self._stated(cap, payload) if reader.native else None
        if stated is None and not message.live:
            stated = UNKNOWN_TIME
        waits = self._sample(cap, value, message.at, stated, message.live, acks)
        acks.urgent = acks.urgent or (waits and message.qos > 0)
        return waits

    def _stated(self, cap: Cap, payload: Payload) -> int | None:
        """The device's own time in µs, if it can be one."""
        said = stated_ms(payload)
        if said is None:
            return None
        at = said * 1000
        now, uncertainty = self._clock.wall(self._clock.now())
        if EARLIEST_US <= at <= now + uncertainty + AHEAD_US:
            return at
        cap.counters["bad_time"] += 1
        return None

    def _sample(self, cap: Cap, value: object, at: Stamp, stated: int | None, live: bool, acks: _Batch) -> bool:
        """Keep a value by the policy; whether the ack has to wait."""
        raw = dumps(value)
        if len(raw) > self._limits[bounds.VALUE_OCTETS]:
            self._limits.hit(bounds.VALUE_OCTETS)
            cap.counters["too_large"] += 1
            self._lose("reading", cap.skill_id, 1, "too large", cap.device.row.publisher, acks.wait())
            return True
        cap.heard_us = at.mono_us
        self._arm_off(cap, value)
        if _keep(cap, value, at, live):
            cap.kept, cap.pending = (value, at.mono_us), acks.pending
            acks.rows.append((cap, value, raw, at, stated, live))
            return True
        if cap.pending is not None:
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

    def _flush(self, acks: _Batch) -> None:
        """Hand the rows of a batch to the store, in one call."""
        rows, acks.rows = acks.rows, []
        if not rows:
            return
        pending = acks.pending
        pending.then(acks.wait())
        seqs = range(0)

        def done(error: BaseException | None) -> None:
            self._stored(rows, seqs, pending, error)

        seqs = self._registry.readings.add(
            [(cap.id, at, stated, raw) for cap, _, raw, at, stated, _ in rows], done, lazy=not acks.urgent
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
            if error is None:
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
        if not cap.component.off_delay_s:
            return
        if cap.cancel_off is not None:
            cap.cancel_off()
            cap.cancel_off = None
        if value is True:
            due = self._clock.now().mono_us + int(cap.component.off_delay_s * SECOND)
            cap.cancel_off = self._clock.at(due, lambda: self._off(cap))

    def _off(self, cap: Cap) -> None:
        cap.cancel_off = None
        acks = _Batch(lambda error: None)
        self._sample(cap, False, self._clock.now(), None, True, acks)
        self._flush(acks)

    def _presence(self, cap: Cap) -> None:
        """Tell when the whole device has come or gone."""
        device = cap.device
        online = device.online()
        if online == device.was_online:
            return
        device.was_online = online
        kind = "device.online" if online else "device.offline"
        self._fanout.publish(Event("device", device.slug, 0, kind, dumps({"device": device.slug})))
        for call in self._registry.on_presence:
            call(device)

    # Announcements.

    def _discovery(self, message: Publish, parse: Callable[[], Found | None], acks: _Batch) -> bool:
        by = self._admission(message.who)
        if by is None:
            return self._refuse(message, (Refused("", "unknown publisher"),), acks)
        if not message.payload:
            source = self._registry.sources.get(message.topic)
            return self._write(self._withdrawn(message.topic), source, acks)
        if len(message.payload) > self._bounds.octets:
            return self._too_large(bounds.DISCOVERY_OCTETS, message, acks)
        digest = _digest(by, message.payload)
        source = self._registry.sources.get(message.topic)
        if source is not None and source.row.digest == digest:
            self._counters["repeated"] += 1
            if source.pending is None:
                return False
            source.pending.then(acks.wait())
            return True
        try:
            found = parse()
        except Refusal as error:
            return self._turn_away(message, by, digest, (Refused("", error.reason, error.detail),), acks)
        if found is None:
            self._counters["migrating"] += 1
            return False
        return self._adopt(message, by, digest, found, acks)

    def _adopt(self, message: Publish, by: Admission, digest: bytes, found: Found, acks: _Batch) -> bool:
        admitted: list[Component] = []
        refused = list(found.refused)
        for one in found.components:
            foreign = _foreign(one, by)
            if foreign:
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
            self._replay(topic, acks)
        return True

    def _turn_away(
        self, message: Publish, by: Admission, digest: bytes, refused: tuple[Refused, ...], acks: _Batch
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

    def _write(self, change: Change | None, source: Source | None, acks: _Batch) -> bool:
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

    # Refusals.

    def _note(self, message: Publish, refused: list[Refused], acks: _Batch) -> None:
        """Count what is refused, and write it to the ledger."""
        reasons: dict[str, int] = {}
        for one in refused:
            self._counters[f"refused {one.reason}"] += 1
            reasons[one.reason] = reasons.get(one.reason, 0) + 1
            if one.reason in _LIMITED:
                self._limits.hit(_LIMITED[one.reason])
        for reason, count in reasons.items():
            self._lose("discovery", message.topic, count, reason, _who(message), acks.wait())

    def _refuse(self, message: Publish, refused: tuple[Refused, ...], acks: _Batch) -> bool:
        self._note(message, list(refused), acks)
        return True

    def _too_large(self, limit: Limit, message: Publish, acks: _Batch) -> bool:
        self._limits.hit(limit)
        self._counters["refused too large"] += 1
        kind = "discovery" if limit is bounds.DISCOVERY_OCTETS else "reading"
        self._lose(kind, message.topic, 1, "too large", _who(message), acks.wait())
        return True

    def _lose(self, kind: str, key: str, count: int, reason: str, who: str, done: Done) -> None:
        at = self._clock.now()

        def work(unit: Unit) -> None:
            unit.lose(Gap(kind, key, 0, 0, count, reason, who, at))

        self._registry.node.write(work, lambda result: done(result if isinstance(result, BaseException) else None))

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

    def _replay(self, topic: str, acks: _Batch) -> None:
        message = self._unknown.pop(topic, None)
        route = self._registry.routes.get(topic)
        if message is not None and route is not None:
            self._state(route, message, acks)

    # Tasks of native devices.

    def _event(self, place: native.Address, message: Publish, acks: _Batch) -> bool:
        if self._events is None or not message.payload or message.who.kind is Kind.NODE:
            return False
        octets = self._limits[bounds.EVENT_OCTETS]
        if len(message.payload) > octets:
            return self._too_large_event(message, acks)
        try:
            said = native.event(message.payload, octets)
        except Refusal as error:
            self._counters[f"refused event {error.reason}"] += 1
            self._lose("task", message.topic, 1, error.reason, _who(message), acks.wait())
            return True
        device = self._native_slug(place.device)
        if device is None:
            self._counters["event of nobody"] += 1
            return False
        self._events.event(device, place.of, said, acks.wait())
        return True

    def _too_large_event(self, message: Publish, acks: _Batch) -> bool:
        self._limits.hit(bounds.EVENT_OCTETS)
        self._lose("task", message.topic, 1, "too large", _who(message), acks.wait())
        return True

    def _native_slug(self, level: str) -> str | None:
        device = self._registry.native(level)
        return device.slug if device is not None else None


_LIMITED = {
    "too many components": bounds.COMPONENTS,
    "too many options": bounds.OPTIONS,
    "too deep": bounds.DISCOVERY_DEPTH,
}


def _possible(cap: Cap, value: object) -> bool:
    """A choice of states takes only its own texts."""
    what = cap.what
    if what.kind in ("select", "event") and what.options and isinstance(value, str):
        return value in what.options
    return True


def _keep(cap: Cap, value: object, at: Stamp, live: bool) -> bool:
    """The history policy. A replayed state is kept only when it says something new."""
    if cap.what.history == "none":
        return False
    if cap.kept is None:
        return live or cap.latest is None or not _same(cap.latest.value, value)
    last, last_us = cap.kept
    if not live:
        return not _same(last, value)
    match cap.what.history:
        case "every":
            return True
        case "change":
            return not _same(last, value) or at.mono_us - last_us >= MINUTE_US
        case seconds:
            return at.mono_us - last_us >= int(seconds) * SECOND


def _same(left: object, right: object) -> bool:
    """`True` is not `1`."""
    return type(left) is type(right) and left == right


def _digest(by: Admission, payload: bytes) -> bytes:
    """What was said, by whom, with which rights: other rights may mean another answer."""
    made = hashlib.blake2b(PARSER, digest_size=16)
    for text in (publisher(by), *by.publish, "", *by.subscribe):
        made.update(text.encode() + b"\0")
    made.update(payload)
    return made.digest()


def _foreign(component: Component, by: Admission) -> str:
    """The first topic that the publisher names but may not itself use, "" if none (the confused-deputy rule)."""
    says, hears = component.topics()
    for topics, allowed in ((says, by.publish), (hears, by.subscribe)):
        for topic in topics:
            if not any(within(topic, one) for one in allowed):
                return topic
    return ""


def _who(message: Publish) -> str:
    return message.who.device_id or message.who.aid or str(message.who.kind)
