"""`device.*`: what the owner sees and decides about devices.

A device's password is made here, shown once and kept as a SHA-256. Forgetting a device ends its sessions, its
retained messages, its grants and its place in every list; its readings age out with the others.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

import msgspec

from edge.contract.bus import Admission, Bus, Publish
from edge.contract.errors import InvalidParams, NameTaken, NotFound
from edge.contract.op import Call, Empty, op
from edge.contract.principal import NODE
from edge.contract.store import Unit
from edge.contract.time import Clock
from edge.devices.caps import skill_line
from edge.devices.door import Door
from edge.devices.grants import GrantBook
from edge.devices.model import Device
from edge.devices.names import check_filters
from edge.devices.records import (
    AddDevice,
    Added,
    DeviceDetail,
    DeviceLine,
    DeviceNamed,
    Done,
    RefusedLine,
)
from edge.devices.registry import Registry
from edge.protocol.discovery import native
from edge.protocol.discovery.record import Refusal
from edge.protocol.mqtt.topics import within
from edge.store import credentials, persons
from edge.store import devices as table
from edge.store.credentials import Credential

log = logging.getLogger(__name__)

PASSWORD_OCTETS = 24
"""192 random bits."""
_STATES = {table.PRESENT: "present", table.RETIRED: "retired", table.FORGOTTEN: "forgotten"}


class _Adding(msgspec.Struct):
    """What `device.add` made before its unit."""

    credential: Credential
    row: table.DeviceRow
    password: str
    mqtt: str
    hardware: list[str]


class DeviceService:
    """Operations of the owner. `mqtt_url` says where devices connect; `prefix` is that of Home Assistant discovery."""

    def __init__(
        self,
        registry: Registry,
        grants: GrantBook,
        door: Door,
        bus: Bus,
        clock: Clock,
        *,
        mqtt_url: Callable[[], str] = lambda: "",
        prefix: str = "homeassistant",
    ) -> None:
        self._registry, self._grants, self._door, self._bus = registry, grants, door, bus
        self._clock, self._mqtt_url, self._prefix = clock, mqtt_url, prefix

    async def prepare_add(self, call: Call[AddDevice]) -> _Adding:
        """Take the name and make the password, before the unit."""
        asked = call.params
        check_filters(asked.topics, "device")
        try:
            slug = self._registry.names.reserve(asked.name)
        except Refusal as error:
            if error.reason == "taken":
                raise NameTaken(
                    f"there is a device {error.detail!r} already: `aun-edge device rotate {error.detail}` "
                    f"gives it another password, `aun-edge device forget {error.detail}` lets another have the name"
                ) from None
            raise InvalidParams(f"not a device name: {error.detail}") from None
        row = self._registry.fresh(slug, asked.name if asked.name != slug else "", "", "")
        row = msgspec.structs.replace(row, publisher=row.aid)
        filters = ("#",) if asked.admin else (*credentials.own_topics(slug, self._prefix), *asked.topics)
        password = secrets.token_urlsafe(PASSWORD_OCTETS)
        credential = Credential(
            user=slug,
            digest=credentials.digest(password.encode()),
            aid=row.aid,
            admin=asked.admin,
            publish=filters,
            subscribe=filters,
        )
        return _Adding(credential, row, password, self._mqtt_url(), [f"aun:{slug}"])

    @op(
        "device.add",
        scope="device:admin",
        raises=(InvalidParams, NameTaken),
        wire={"edge": ("device.add",)},
        writes=True,
        before="prepare_add",
    )
    def add(self, call: Call[AddDevice], unit: Unit) -> Added:
        """Let a device in: a user of its own topics and a password that is told this once."""
        made: _Adding = call.prepared
        if persons.of(unit, made.row.slug) is not None or not credentials.add(unit, made.credential):
            raise NameTaken(f"there is an MQTT user {made.credential.user!r} already")
        change = table.Change(
            devices=[made.row],
            hardware=[(one, made.row.slug) for one in made.hardware],
            events=[(made.row.slug, "device.added")],
        )
        table.save(unit, change)
        unit.after(lambda: self._added(made))
        return Added(made.row.slug, made.row.aid, made.credential.user, made.password, made.mqtt)

    def _added(self, made: _Adding) -> None:
        self._registry.enrol(made.row, made.hardware)
        self._door.enrol(made.credential)

    async def prepare_rotate(self, call: Call[DeviceNamed]) -> tuple[Device, str]:
        """Find the device and make the password, before the unit."""
        return self._registry.named(call.params.name), secrets.token_urlsafe(PASSWORD_OCTETS)

    @op(
        "device.rotate",
        scope="device:admin",
        raises=(NotFound,),
        wire={"edge": ("device.rotate",)},
        writes=True,
        before="prepare_rotate",
    )
    def rotate(self, call: Call[DeviceNamed], unit: Unit) -> Added:
        """Give a device another password, told this once; the old one is no good any more and its connections close."""
        device, password = call.prepared
        kept = credentials.of(unit, device.slug)
        if kept is None:
            raise NotFound(f"{device.slug} has no password of its own: it came by {device.row.publisher or 'a bridge'}")
        fresh = msgspec.structs.replace(kept, digest=credentials.digest(password.encode()))
        credentials.renew(unit, fresh)
        unit.after(lambda: self._rotated(fresh))
        return Added(device.slug, device.aid, fresh.user, password, self._mqtt_url())

    def _rotated(self, fresh: Credential) -> None:
        if self._door.user(fresh.user) is not None:  # else it was forgotten meanwhile
            self._door.enrol(fresh)
        self._bus.hang_up(fresh.user)

    @op("device.list", scope="device:read", wire={"edge": ("device.list",)})
    async def devices(self, call: Call[Empty]) -> list[DeviceLine]:
        """Every device, with whether it is there."""
        return [self._line(device) for device in self._registry.devices()]

    def _line(self, device: Device) -> DeviceLine:
        user = self._user_of(device)
        return DeviceLine(
            name=device.slug,
            title=device.title,
            aid=device.aid,
            online=device.online(),
            state=_STATES[device.state],
            model=device.row.model,
            skills=len(device.present()),
            credentials=user is not None,
            admin=user is not None and "#" in user.publish,
            last_seen=device.last_seen(self._clock),
        )

    @op("device.show", scope="device:read", raises=(NotFound,), wire={"edge": ("device.show",)})
    async def show(self, call: Call[DeviceNamed]) -> DeviceDetail:
        """One device: skills, topics it may use, what of its announcements was refused and why."""
        device = self._registry.named(call.params.name)
        user = self._user_of(device)
        present = device.present()
        return DeviceDetail(
            name=device.slug,
            title=device.title,
            aid=device.aid,
            online=device.online(),
            state=_STATES[device.state],
            model=device.row.model,
            maker=device.row.maker,
            version=device.row.version,
            publisher=device.row.publisher,
            hardware=sorted(device.hardware),
            default_skill=device.default_skill(),
            publish=list(user.publish) if user else [],
            subscribe=list(user.subscribe) if user else [],
            skills=[skill_line(self._registry, cap) for cap in present],
            retired=sorted(cap.name for cap in device.caps.values() if not cap.present),
            unsupported={cap.name: list(cap.component.unsupported) for cap in present if cap.component.unsupported},
            refused=[
                RefusedLine(topic, one.component, one.reason, one.detail)
                for topic, one in self._registry.refused(device)
            ],
            counters={cap.name: dict(cap.counters) for cap in present if cap.counters},
            last_seen=device.last_seen(self._clock),
        )

    async def prepare_forget(self, call: Call[DeviceNamed]) -> str:
        """Find the device, before the unit."""
        return self._registry.named(call.params.name).slug

    @op(
        "device.forget",
        scope="device:admin",
        raises=(NotFound,),
        wire={"edge": ("device.forget",)},
        writes=True,
        before="prepare_forget",
    )
    def forget(self, call: Call[DeviceNamed], unit: Unit) -> Done:
        """End a device: its password, sessions, retained messages and grants are gone."""
        slug = str(call.prepared)
        table.forget(unit, slug)
        credentials.remove(unit, slug)
        unit.after(lambda: self._forgotten(slug))
        return Done()

    def _forgotten(self, slug: str) -> None:
        device = self._registry.device(slug)
        if device is None:
            return
        topics = self._retained_topics(device)
        if self._door.user(slug) == self._user_of(device):
            self._door.dismiss(slug)
            self._bus.expel(slug)
        self._grants.drop_device(slug)
        self._registry.forget(slug)
        at = self._clock.now()
        for topic in topics:
            self._bus.publish(Publish(topic, b"", 0, True, NODE, at))

    def _user_of(self, device: Device) -> Admission | None:
        """What a device's own user may do; a person of the same name is another user."""
        found = self._door.user(device.slug)
        return found if found is not None and found.who.aid == device.aid else None

    def _retained_topics(self, device: Device) -> list[str]:
        """Where messages of this device may be retained: its own announcements, states and availability."""
        topics = {topic for topic, source in self._registry.sources.items() if source.row.slug == device.slug}
        level = device.row.native or device.slug
        topics |= {f"{native.ROOT}{level}/announce", f"{native.ROOT}{level}/online"}
        for cap in device.caps.values():
            topics.update(cap.component.topics()[0])
        user = self._user_of(device)
        own = user.publish if user is not None else ("#",)
        shared = {
            topic
            for other in self._registry.devices()
            if other is not device
            for cap in other.present()
            for topic in cap.component.topics()[0]
        }
        return sorted(topic for topic in topics - shared if any(within(topic, one) for one in own))
