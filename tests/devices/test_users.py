"""MQTT users who chose their password."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import InvalidParams, NameTaken, NotFound
from edge.contract.op import Call, Empty, Params
from edge.devices.intake import Intake
from edge.devices.records import AddDevice, DeviceNamed
from edge.devices.users import AddUser, ChangePassword, UserNamed, UserService
from tests.support.house import OPERATOR, House, house

PASSWORD = "correct horse"


class Users:
    """The service on the house of the devices area."""

    def __init__(self, made: House) -> None:
        self.house = made
        self.service = UserService(made.node, made.registry.names, made.gatekeeper, made.bus)

    async def call(self, name: str, params: Params | None = None) -> Any:
        call: Call[Any] = Call(who=OPERATOR, op=name, params=params or Empty())
        run = getattr(self.service, name)
        if not run.__op__["writes"]:
            return await run(call)
        call.prepared = await getattr(self.service, run.__op__["before"])(call)
        return await self.house.node.commit(lambda unit: run(call, unit))

    async def add(self, name: str = "bob", password: str = PASSWORD, **more: Any) -> Any:
        return await self.call("add", AddUser(name=name, password=password, **more))


@pytest.fixture
async def users(tmp_path: Path) -> AsyncIterator[Users]:
    async with house(tmp_path) as made:
        yield Users(made)


async def test_a_user_has_a_place_of_their_own_and_what_the_owner_adds(users: Users) -> None:
    await users.add(topics=("garden/#",))
    await users.add("root", admin=True)
    assert [(line.name, line.admin, line.topics) for line in await users.call("users")] == [
        ("bob", False, ["bob/#", "garden/#"]),
        ("root", True, ["#"]),
    ]
    rights = users.house.gatekeeper.user("bob")
    assert rights is not None
    assert (rights.publish, rights.who.aid) == (("bob/#", "garden/#"), "mqtt:bob")
    stored = await users.house.node.read(lambda unit: unit.run("SELECT * FROM mqtt_person"))
    assert PASSWORD not in str(stored)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"name": "B"}, "2 to 40"),
        ({"name": "tele"}, "known topic root"),
        ({"password": "123456789"}, "10 characters or more"),
        ({"password": "x" * 257}, "256 bytes at most"),
        ({"topics": ("$SYS/#",)}, "not a topic filter"),
        ({"topics": ("a/#/b",)}, "not a topic filter"),
    ],
)
async def test_what_cannot_be_a_user_is_refused_with_why(users: Users, asked: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidParams, match=why):
        await users.add(**asked)
    assert await users.call("users") == []


async def test_the_root_that_discovery_was_given_is_nobodys_place(users: Users) -> None:
    Intake(users.house.registry, users.house.gatekeeper.admission, users.house.hub, prefix="ha")
    with pytest.raises(InvalidParams, match="known topic root"):
        await users.add("ha")


async def test_ten_characters_and_256_bytes_are_a_password(users: Users) -> None:
    await users.add("aa", "1234567890")
    await users.add("bb", "x" * 256)


async def test_a_name_is_a_devices_or_a_persons(users: Users) -> None:
    await users.house.add("lamp")
    await users.add()
    for name in ("lamp", "bob"):
        with pytest.raises(NameTaken):
            await users.add(name)
    with pytest.raises(NameTaken):
        await users.house.call("device.add", AddDevice(name="bob"))


async def test_forgetting_a_device_that_a_bridge_named_like_a_person_leaves_the_person(users: Users) -> None:
    h = users.house
    await users.add()
    bridge = await h.add("bridge", admin=True)
    await h.say(bridge, "homeassistant/switch/x/config", {"cmd_t": "x/set", "dev": {"ids": ["x"], "name": "bob"}})
    shown = await h.call("device.show", DeviceNamed(name="bob"))
    assert shown.publish == []
    with pytest.raises(NotFound, match="no password of its own"):
        await h.call("device.rotate", DeviceNamed(name="bob"))
    await h.call("device.forget", DeviceNamed(name="bob"))
    assert h.gatekeeper.user("bob") is not None
    assert h.bus.expelled == []


async def test_another_password_cuts_off_who_used_the_old_one_and_removal_ends_everything(users: Users) -> None:
    await users.add()
    await users.call("change", ChangePassword(name="bob", password="another horse"))
    assert users.house.bus.hung_up == ["bob"]
    with pytest.raises(InvalidParams):
        await users.call("change", ChangePassword(name="bob", password="short"))
    await users.call("remove", UserNamed(name="bob"))
    assert users.house.bus.expelled == ["bob"]
    assert users.house.gatekeeper.user("bob") is None
    for name, params in (("remove", UserNamed(name="bob")), ("change", ChangePassword(name="bob", password=PASSWORD))):
        with pytest.raises(NotFound, match="no MQTT user 'bob'"):
            await users.call(name, params)
