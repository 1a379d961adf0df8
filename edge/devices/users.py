"""`mqtt.user_*`: MQTT users who chose their password: people and programs that are no devices."""

from __future__ import annotations

import asyncio
import re

import msgspec

from edge.contract.bus import Bus
from edge.contract.errors import InvalidParams, NameTaken, NotFound
from edge.contract.op import Call, Empty, Params, op
from edge.contract.store import Store, Unit
from edge.devices.door import Door
from edge.devices.names import Names, check_filters
from edge.devices.records import Done
from edge.store import credentials, persons
from edge.store.persons import Person

SHORTEST, LONGEST = 10, 256
"""Characters and bytes of a password that the owner gives: a rule of what is one, and nobody else's work to bound."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


class AddUser(Params, frozen=True, kw_only=True):
    """A user to let in. admin: every topic; topics: filters besides NAME/#."""

    name: str
    password: str
    admin: bool = False
    topics: tuple[str, ...] = ()


class ChangePassword(Params, frozen=True, kw_only=True):
    """A user and the new password."""

    name: str
    password: str


class UserNamed(Params, frozen=True, kw_only=True):
    """A user."""

    name: str


class UserLine(msgspec.Struct):
    """A user and what they may use."""

    name: str
    admin: bool
    topics: list[str]


class UserService:
    """Operations of the owner."""

    def __init__(self, node: Store, names: Names, door: Door, bus: Bus) -> None:
        self._node, self._names, self._door, self._bus = node, names, door, bus

    async def prepare_add(self, call: Call[AddUser]) -> Person:
        """Look at what is asked and hash the password, before the unit."""
        asked = call.params
        if not _NAME.fullmatch(asked.name) or not self._names.good(asked.name):
            raise InvalidParams("a user name has 2 to 40 of a-z 0-9 -, and is no known topic root")
        check_filters(asked.topics, "user")
        if self._door.user(asked.name) is not None:
            raise NameTaken(f"there is an MQTT user {asked.name!r} already, maybe a device")
        filters = ("#",) if asked.admin else (f"{asked.name}/#", *asked.topics)
        fresh = Person(user=asked.name, admin=asked.admin, publish=filters, subscribe=filters)
        return await _hashed(fresh, asked.password)

    @op(
        "mqtt.user_add",
        scope="mqtt:admin",
        raises=(InvalidParams, NameTaken),
        wire={"edge": ("mqtt.user_add",)},
        writes=True,
        before="prepare_add",
    )
    def add(self, call: Call[AddUser], unit: Unit) -> UserLine:
        """Let a user in whose password a person chose; never without TLS from the network."""
        one: Person = call.prepared
        if credentials.of(unit, one.user) is not None or not persons.add(unit, one):
            raise NameTaken(f"there is an MQTT user {one.user!r} already")
        unit.after(lambda: self._door.enrol_person(one))
        return _line(one)

    @op("mqtt.user_list", scope="mqtt:admin", wire={"edge": ("mqtt.user_list",)})
    async def users(self, call: Call[Empty]) -> list[UserLine]:
        """Every such user."""
        return [_line(one) for one in await self._node.read(persons.all_users)]

    async def prepare_change(self, call: Call[ChangePassword]) -> Person:
        """Find the user and hash the password, before the unit."""
        return await _hashed(await self._found(call.params.name), call.params.password)

    @op(
        "mqtt.user_password",
        scope="mqtt:admin",
        raises=(InvalidParams, NotFound),
        wire={"edge": ("mqtt.user_password",)},
        writes=True,
        before="prepare_change",
    )
    def change(self, call: Call[ChangePassword], unit: Unit) -> Done:
        """Give a user another password; who used the old one is cut off."""
        one: Person = call.prepared
        if not persons.remove(unit, one.user):
            raise NotFound(f"no MQTT user {one.user!r} any more")
        persons.put(unit, one)
        unit.after(lambda: self._changed(one))
        return Done()

    def _changed(self, one: Person) -> None:
        self._door.enrol_person(one)
        self._bus.hang_up(one.user)

    async def prepare_remove(self, call: Call[UserNamed]) -> Person:
        """Find the user, before the unit."""
        return await self._found(call.params.name)

    @op(
        "mqtt.user_remove",
        scope="mqtt:admin",
        raises=(NotFound,),
        wire={"edge": ("mqtt.user_remove",)},
        writes=True,
        before="prepare_remove",
    )
    def remove(self, call: Call[UserNamed], unit: Unit) -> Done:
        """Let a user in no more; connections and sessions end."""
        user = call.prepared.user
        persons.remove(unit, user)
        unit.after(lambda: self._removed(user))
        return Done()

    def _removed(self, user: str) -> None:
        self._door.dismiss(user)
        self._bus.expel(user)

    async def _found(self, name: str) -> Person:
        found = await self._node.read(lambda unit: persons.of(unit, name))
        if found is None:
            raise NotFound(f"no MQTT user {name[:80]!r}: aun-edge mqtt user list")
        return found


async def _hashed(one: Person, password: str) -> Person:
    if len(password) < SHORTEST or len(password.encode()) > LONGEST:
        raise InvalidParams(f"a password has {SHORTEST} characters or more, and {LONGEST} bytes at most")
    return await asyncio.to_thread(persons.with_password, one, password.encode())


def _line(one: Person) -> UserLine:
    return UserLine(one.user, one.admin, list(one.publish))
