"""Every device and capability there is, with latest values; rebuilt from node.db and the readings at the start.

What a device is called is fixed at first sight: slug, AID and skill ids never change afterwards. Two announcements
are one device when they share a hardware id and their publishers may speak for it. What is withdrawn is retired,
not deleted, and comes back as itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec

from edge.contract.bus import Admission, Publish
from edge.contract.capability import Skill
from edge.contract.errors import EdgeError, NotFound
from edge.contract.limit import Limits
from edge.contract.store import Store
from edge.contract.time import SECOND, Clock, Stamp
from edge.contract.wire import dumps, loads
from edge.devices import limits as bounds
from edge.devices.model import Cap, Device, Latest, Pending, Routes, moment
from edge.devices.names import Names
from edge.protocol.discovery.record import Component, DeviceInfo, Found, Refusal, Refused
from edge.store import devices as table
from edge.store.database import Database
from edge.store.devices import FORGOTTEN, PRESENT, RETIRED, CapabilityRow, Change, DeviceRow, SourceRow
from edge.store.readings import Readings

RESTATE_ROWS = 50_000
"""After so many rows, whatever has been silent meanwhile is restated: the start walks back twice that at most."""


def everything(admission: Admission) -> bool:
    """Whether somebody may use every topic (a bridge, the operator)."""
    return "#" in admission.publish and "#" in admission.subscribe


def publisher(admission: Admission) -> str:
    """Who announces, for ownership."""
    return admission.who.aid or str(admission.who.kind)


class Source(msgspec.Struct):
    """A discovery topic in memory; `pending` while what came by it is not on disk."""

    row: SourceRow
    pending: Pending | None = None


class Registry:
    """Devices by slug, capabilities by topic. Everything but `load` runs in the loop and does no I/O."""

    def __init__(self, issuer: str, clock: Clock, node: Store, hot: Database, limits: Limits) -> None:
        self.issuer, self.clock, self.node, self.limits = issuer, clock, node, limits
        self.readings = Readings(hot)
        self.routes = Routes()
        self.names = Names(clock, self._used)
        self.sources: dict[str, Source] = {}
        self.counters: Counter[str] = Counter()
        self.on_value: list[Callable[[Cap, Latest, bool], None]] = []
        self.on_presence: list[Callable[[Device], None]] = [self._spoke]
        self.on_gone: list[Callable[[Cap], None]] = []
        self._devices: dict[str, Device] = {}
        self._by_aid: dict[str, Device] = {}
        self._hardware: dict[str, Device] = {}
        self._cap_ids: dict[int, Cap] = {}
        self._announcing: Counter[str] = Counter()
        self._unsaved: set[str] = set()

    async def load(self) -> None:
        """Read what there is, then the latest values from the end of the readings. Before the bus starts."""
        known = await self.node.read(table.known)
        for row in known.devices:
            self._enter(Device(row))
        for hardware, slug in known.hardware:
            self._own(self._devices[slug], hardware)
        for cap in known.capabilities:
            self._listen(self._hold(self._devices[cap.slug], cap))
        for source in known.sources:
            if source.slug and source.slug not in self._devices:
                continue
            lost = source.topic in known.broken
            self._remember(msgspec.structs.replace(source, digest=b"") if lost else source)
        self.counters["unreadable"] += len(known.broken)
        await self.readings.open()
        await self._latest()

    async def _latest(self) -> None:
        caps = {cap.id: cap for device in self._devices.values() for cap in device.caps.values()}
        reach = 2 * RESTATE_ROWS + len(caps)
        for number, reading in (await self.readings.newest(caps, reach)).items():
            try:
                value = loads(reading.value)
            except EdgeError:
                self.counters["unreadable"] += 1
                continue
            caps[number].latest = Latest(value, reading.at, reading.stated_us, reading.seq)
            if reading.at.boot == self.clock.now().boot:
                caps[number].kept = (value, reading.at.mono_us)

    def _spoke(self, device: Device) -> None:
        device.spoke = self.clock.now()

    def recall(self, kept: Callable[[str], Iterator[Publish]]) -> None:
        """When devices last said whether they are there, from what is retained (`Bus.kept`), after the bus has loaded.

        What they said is no word about now: they may have gone while nobody was there to hear it.
        """
        for topic in self.routes.topics():
            route, message = self.routes.get(topic), next(kept(topic), None)
            for cap, _ in route.presences if route is not None and message is not None else ():
                if message is not None and (cap.device.spoke is None or cap.device.spoke < message.at):
                    cap.device.spoke = message.at

    # Questions.

    def devices(self) -> list[Device]:
        """Every device that is not forgotten, by slug."""
        return [device for _, device in sorted(self._devices.items()) if device.state != FORGOTTEN]

    def device(self, name: str) -> Device | None:
        """A device by slug or AID, unless it is forgotten."""
        device = self._devices.get(name) or self._by_aid.get(name)
        return None if device is None or device.state == FORGOTTEN else device

    def named(self, name: str) -> Device:
        """The device of this name. Raises `NotFound`, with the names that there are."""
        device = self.device(name)
        if device is None:
            known = [one.slug for one in self.devices()][:50]
            raise NotFound(f"no device {name!r}: aun-edge device list", data={"devices": known})
        return device

    def native(self, level: str) -> Device | None:
        """The device that speaks under `aun/v1/<level>/`."""
        return self._hardware.get(f"aun:{level}")

    def caps(self) -> list[Cap]:
        """Every announced capability, by device and name."""
        return [cap for device in self.devices() for cap in device.present()]

    def cap(self, skill_id: str) -> Cap | None:
        """An announced capability."""
        slug, _, name = skill_id.partition(".")
        device = self._devices.get(slug)
        cap = device.caps.get(name) if device is not None else None
        return cap if cap is not None and cap.present else None

    def skills(self) -> list[Skill]:
        """Every skill, by device and name."""
        made: list[Skill] = []
        for device in self.devices():
            online, default = device.online(), device.default_skill()
            made += [self._skill(cap, online, default) for cap in device.present()]
        return made

    def skill(self, skill_id: str) -> Skill | None:
        """One skill."""
        cap = self.cap(skill_id)
        return None if cap is None else self.skill_of(cap)

    def skill_of(self, cap: Cap) -> Skill:
        """A capability as callers see it. A value past its `expire_after` is unknown again.

        Its risk is that of the topic it is ordered by: who may order a switch has no lock by it, whichever came first.
        """
        return self._skill(cap, cap.device.online(), cap.device.default_skill())

    def _skill(self, cap: Cap, device_online: bool | None, default: str) -> Skill:
        device, latest, own = cap.device, cap.latest, cap.online()
        expired, what, risk = self._expired(cap), cap.what, self.routes.risk(cap)
        return Skill(
            id=cap.skill_id,
            device=device.slug,
            device_name=device.title,
            aid=device.aid,
            cap=what if what.risk == risk else msgspec.structs.replace(what, risk=risk),
            value=None if latest is None or expired else latest.value,
            at=None if latest is None else moment(latest, self.clock),
            online=False if expired else device_online if own is None else own,
            default=default == cap.name,
        )

    def online(self, aid: str) -> bool:
        """Whether the device of an AID says that it is there (settled G19)."""
        device = self._by_aid.get(aid)
        return device is not None and device.state == PRESENT and device.online() is True

    def _expired(self, cap: Cap) -> bool:
        if not cap.component.expire_s or cap.latest is None:
            return False
        heard = cap.heard_us
        return heard is None or self.clock.now().mono_us - heard > cap.component.expire_s * SECOND

    def refused(self, device: Device) -> list[tuple[str, Refused]]:
        """(topic, what was refused) of everything that this device's publisher announced for it."""
        return [
            (topic, one)
            for topic, source in sorted(self.sources.items())
            if source.row.slug == device.slug or (not source.row.slug and source.row.publisher == device.aid)
            for one in source.row.refused
        ]

    # Names.

    def fresh(self, slug: str, name: str, native: str, owner: str) -> DeviceRow:
        """The row of a new device of this slug: the next generation if there was one before."""
        old = self._devices.get(slug)
        return DeviceRow(
            slug=slug,
            aid=f"d-{slug}.{self.issuer}",
            generation=old.row.generation + 1 if old is not None else 0,
            publisher=owner,
            name=name,
            native=native,
            first=self.clock.now(),
        )

    def enrol(self, row: DeviceRow, hardware: Iterable[str]) -> None:
        """A device that the owner added is on disk."""
        self.names.release(row.slug)
        device = Device(row)
        self._enter(device)
        for one in hardware:
            self._own(device, one)

    def forget(self, slug: str) -> None:
        """A device that the owner ended is off the disk."""
        device = self._devices[slug]
        for cap in list(device.caps.values()):
            self._drop(cap)
        device.caps.clear()
        for one in device.hardware:
            self._hardware.pop(one, None)
        device.hardware.clear()
        device.row = msgspec.structs.replace(device.row, state=FORGOTTEN)
        for topic in [topic for topic, source in self.sources.items() if source.row.slug == slug]:
            self._unremember(topic)

    # Announcements.

    def adopt(self, topic: str, by: Admission, digest: bytes, found: Found, refused: tuple[Refused, ...]) -> Change:
        """Take what a discovery message says into memory; what has to be written.

        Raises `Refusal` when it is over a limit; nothing has changed then.
        """
        who = publisher(by)
        if self._too_many(topic, who):
            self.limits.hit(bounds.COMPONENTS_PER_PUBLISHER)
            raise Refusal("too many announcements", f"of {who}")
        device, made = self._device_for(found, by)
        wanted = self._admissible(found.components, device, who)
        change = Change()
        before = device.row
        device.row = _described(device.row, found.device, found.native)
        if made:
            self._enter(device)
        if made or device.row != before:
            change.devices.append(device.row)
        for one in self._claimed(_ids(found, who), device, by):
            self._own(device, one)
            change.hardware.append((one, device.slug))
        changed = self._describe(device, topic, wanted, change)
        self._complete(device, change)
        row = SourceRow(topic=topic, publisher=who, digest=digest, slug=device.slug, refused=refused)
        self._remember(row)
        change.sources.append(row)
        if made or before.state != PRESENT:
            change.events.append((device.slug, "device.added"))
        elif changed or change.devices:
            change.events.append((device.slug, "device.changed"))
        return change

    def withdraw(self, topic: str) -> Change | None:
        """Take an empty discovery message: what came by this topic is retired. None when nothing did."""
        source = self._unremember(topic)
        if source is None:
            return None
        change = Change(gone=[topic])
        device = self._devices.get(source.row.slug)
        if device is not None:
            self._describe(device, topic, [], change)
            if not device.present() and device.state == PRESENT:
                device.row = msgspec.structs.replace(device.row, state=RETIRED)
                change.devices.append(device.row)
                change.events.append((device.slug, "device.removed"))
            elif change.capabilities:
                change.events.append((device.slug, "device.changed"))
            self._complete(device, change)
        return change

    def turn_away(self, topic: str, by: Admission, digest: bytes, refused: tuple[Refused, ...]) -> Change:
        """Remember a message of which nothing was taken; what it announced before stays as it was.

        Beyond the number of announcements that a publisher may have, nothing is remembered.
        """
        old = self.sources.get(topic)
        slug = old.row.slug if old is not None else ""
        row = SourceRow(topic=topic, publisher=publisher(by), digest=digest, slug=slug, refused=refused)
        if self._too_many(topic, row.publisher):
            return Change()
        self._remember(row)
        return Change(sources=[row])

    def _too_many(self, topic: str, who: str) -> bool:
        limit = self.limits[bounds.COMPONENTS_PER_PUBLISHER]
        return topic not in self.sources and self._announcing[who] >= limit

    def _remember(self, row: SourceRow) -> None:
        self._unremember(row.topic)
        self.sources[row.topic] = Source(row)
        self._announcing[row.publisher] += 1

    def _unremember(self, topic: str) -> Source | None:
        source = self.sources.pop(topic, None)
        if source is not None:
            self._announcing[source.row.publisher] -= 1
        return source

    def unsaved(self, change: Change, source: Source | None) -> None:
        """A change is in memory and could not be written: the next one of its devices writes all of them.

        The announcement itself is taken again, because nothing remembers its digest.
        """
        self._unsaved |= {row.slug for row in change.devices} | {row.slug for row in change.capabilities}
        self._unsaved |= {row.slug for row in change.sources if row.slug}
        if source is not None:
            source.row = msgspec.structs.replace(source.row, digest=b"")
            self._unsaved.add(source.row.slug)
            if source.row.topic not in self.sources:
                self._remember(source.row)

    def _complete(self, device: Device, change: Change) -> None:
        """Write everything about a device of which a change was lost."""
        if device.slug in self._unsaved:
            self._unsaved.discard(device.slug)
            change.devices = [device.row]
            change.hardware = [(one, device.slug) for one in sorted(device.hardware)]
            change.capabilities = [cap.row() for cap in device.caps.values()]

    def risky(self, found: Found, by: Admission) -> set[str]:
        """Uids of what is of high risk now, on the device that an announcement means."""
        device = self._known(found, by)
        return set() if device is None else {cap.component.uid for cap in device.present() if cap.what.risk == "high"}

    def _known(self, found: Found, by: Admission) -> Device | None:
        """The device that is meant, if there is one."""
        who = publisher(by)
        for one in _ids(found, who):
            for spelled in (one, f"{one}@{who}"):
                device = self._hardware.get(spelled)
                if device is not None and self._speaks_for(by, device):
                    return device
        own = self._by_aid.get(who)
        if own is not None and own.state != FORGOTTEN and not everything(by) and self._vacant(own, found):
            return own
        return None

    def _device_for(self, found: Found, by: Admission) -> tuple[Device, bool]:
        """The device that is meant, and whether it is new."""
        device, who = self._known(found, by), publisher(by)
        if device is not None:
            return device, False
        mine = sum(1 for device in self._devices.values() if device.row.publisher == who and device.state != FORGOTTEN)
        if mine >= self.limits[bounds.DEVICES_PER_PUBLISHER]:
            self.limits.hit(bounds.DEVICES_PER_PUBLISHER)
            raise Refusal("too many devices", f"over {self.limits[bounds.DEVICES_PER_PUBLISHER]} by {who}")
        slug = self.names.first((*found.device.hints, *([by.user] if by.user else [])))
        return Device(self.fresh(slug, "", "", who)), True

    def _speaks_for(self, by: Admission, device: Device) -> bool:
        """A publisher joins its own devices, a bridge any; for anybody else it is another device."""
        return everything(by) or device.row.publisher == publisher(by) or device.aid == publisher(by)

    def _vacant(self, device: Device, found: Found) -> bool:
        """Whether a user's own device still waits for its first announcement, or this one names no device at all."""
        if found.native:
            return False
        return not found.device.ids or all(one.startswith(("aun:", "name:")) for one in device.hardware)

    def _claimed(self, ids: Iterable[str], device: Device, by: Admission) -> list[str]:
        """Hardware ids to enter; one that belongs to somebody else's device is entered under our publisher's name."""
        made: list[str] = []
        for one in ids:
            owner = self._hardware.get(one)
            spelled = one if owner is None or owner is device else f"{one}@{publisher(by)}"
            if self._hardware.get(spelled) is not device:
                made.append(spelled)
                if spelled != one:
                    self.counters["foreign_identity"] += 1
        return made

    def _admissible(self, components: Iterable[Component], device: Device, who: str) -> list[Component]:
        wanted = list(components)
        known = {cap.component.uid for cap in device.caps.values()}
        new = sum(1 for one in wanted if one.uid not in known)
        limit = self.limits[bounds.CAPABILITIES_PER_DEVICE]
        if len(device.caps) + new > limit:
            self.limits.hit(bounds.CAPABILITIES_PER_DEVICE)
            raise Refusal("too many capabilities", f"over {limit} of {device.slug}")
        if new:
            total = sum(len(one.caps) for one in self._devices.values() if one.row.publisher == who)
            if total + new > self.limits[bounds.COMPONENTS_PER_PUBLISHER]:
                self.limits.hit(bounds.COMPONENTS_PER_PUBLISHER)
                raise Refusal("too many capabilities", f"of {who}")
        return wanted

    def _describe(self, device: Device, topic: str, wanted: list[Component], change: Change) -> bool:
        """Make the capabilities that came by `topic` exactly the wanted ones; whether anything changed."""
        by_uid = {cap.component.uid: cap for cap in device.caps.values()}
        for component in wanted:
            cap = by_uid.get(component.uid)
            if cap is None:
                cap = self._hold(device, self._new(device, component, topic))
            else:
                named = msgspec.structs.replace(component.cap, name=cap.name)
                component = msgspec.structs.replace(component, cap=named)
                if cap.component == component and cap.source == topic and cap.state == PRESENT:
                    continue
                self.routes.remove(cap)
                cap.describe(component, topic)
            self._listen(cap)
            change.capabilities.append(cap.row())
        staying = {component.uid for component in wanted}
        for cap in device.caps.values():
            if cap.source == topic and cap.component.uid not in staying and cap.state == PRESENT:
                self._retire(cap)
                change.capabilities.append(cap.row())
        return bool(change.capabilities)

    def _new(self, device: Device, component: Component, topic: str) -> CapabilityRow:
        """Name and number a capability, once and for all."""
        name, count = component.cap.name, 1
        while name in device.caps:
            count += 1
            name = f"{component.cap.name}_{count}"
        number = table.capability_id(device.slug, device.row.generation, name)
        while number in self._cap_ids:
            number += 1
        cap = msgspec.structs.replace(component.cap, name=name, title=component.cap.title or device.title)
        return CapabilityRow(
            id=number,
            slug=device.slug,
            name=name,
            state=PRESENT,
            source=topic,
            component=msgspec.structs.replace(component, cap=cap),
        )

    # Memory.

    def _used(self, slug: str) -> bool:
        device = self._devices.get(slug)
        return device is not None and device.state != FORGOTTEN

    def _enter(self, device: Device) -> None:
        self._devices[device.slug] = self._by_aid[device.aid] = device

    def _own(self, device: Device, hardware: str) -> None:
        device.hardware.add(hardware)
        self._hardware[hardware] = device

    def _hold(self, device: Device, row: CapabilityRow) -> Cap:
        cap = device.caps[row.name] = self._cap_ids[row.id] = Cap(device, row)
        return cap

    def _listen(self, cap: Cap) -> None:
        if cap.state == PRESENT:
            self.routes.add(cap)

    def _retire(self, cap: Cap) -> None:
        self.routes.remove(cap)
        cap.state = RETIRED
        self._gone(cap)

    def _drop(self, cap: Cap) -> None:
        self.routes.remove(cap)
        self._cap_ids.pop(cap.id, None)
        cap.state = FORGOTTEN
        self._gone(cap)

    def _gone(self, cap: Cap) -> None:
        if cap.cancel_off is not None:
            cap.cancel_off()
            cap.cancel_off = None
        for call in self.on_gone:
            call(cap)

    # Values.

    def put(self, cap: Cap, latest: Latest, live: bool) -> None:
        """A value is known now; who waits for it is told."""
        cap.latest = latest
        for call in self.on_value:
            call(cap, latest, live)

    def silent(self, before: int) -> list[tuple[Cap, tuple[int, Stamp, int | None, bytes]]]:
        """Capabilities whose latest value has a number up to `before`, and the row that restates it."""
        return [
            (cap, (cap.id, cap.latest.at, cap.latest.stated_us, dumps(cap.latest.value)))
            for cap in self._cap_ids.values()
            if cap.latest is not None and cap.pending is None and 0 < cap.latest.seq <= before
        ]


def _ids(found: Found, who: str) -> tuple[str, ...]:
    """What a device is recognised by; without an id its publisher and the name in its topic are all there is."""
    return found.device.ids or (f"name:{found.device.hints[-1]}@{who}",)


def _described(row: DeviceRow, info: DeviceInfo, native: str) -> DeviceRow:
    """What a new announcement says; what it leaves out stays."""
    return msgspec.structs.replace(
        row,
        state=PRESENT,
        name=info.name or row.name,
        model=info.model or row.model,
        maker=info.maker or row.maker,
        version=info.version or row.version,
        native=native or row.native,
        default_skill=info.default_skill if native else row.default_skill,
    )
