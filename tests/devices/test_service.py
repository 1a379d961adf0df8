from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import InvalidParams, NameTaken, NotFound
from edge.contract.op import Call
from edge.contract.store import Unit
from edge.devices.records import AddDevice, DeviceNamed, GrantAsked, SkillAsked
from edge.store import credentials
from tests.support.house import OPERATOR, door, house
from tests.support.login import let_in


async def test_a_device_gets_a_user_of_its_own_topics_and_a_password_told_once(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        added = await h.call("device.add", AddDevice(name="Living Room"))
        assert (added.name, added.aid, added.username) == ("living-room", "d-living-room.edge.test", "living-room")
        assert added.mqtt == "mqtt://127.0.0.1:1883"
        assert len(added.password) >= 32
        admission = let_in(h.gatekeeper, "living-room", added.password.encode())
        assert admission is not None
        assert (
            admission.publish
            == admission.subscribe
            == (
                "aun/v1/living-room/#",
                "living-room/#",
                "homeassistant/+/living-room/#",
                "homeassistant/device/living-room/#",
                "tele/living-room/#",
                "stat/living-room/#",
                "cmnd/living-room/#",
            )
        )
        stored = await h.node.read(lambda unit: unit.run("SELECT * FROM mqtt_user"))
        assert added.password not in str(stored)
        other = await h.call("device.add", AddDevice(name="other"))
        assert other.password != added.password
        (shown,) = [line for line in await h.call("device.list") if line.name == "living-room"]
        assert (shown.title, shown.credentials, shown.admin, shown.state) == ("Living Room", True, False, "present")


async def test_a_user_is_there_after_a_restart(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        added = await h.call("device.add", AddDevice(name="thermo"))
    async with house(tmp_path) as h:
        assert let_in(h.gatekeeper, "thermo", added.password.encode()) is not None
        assert let_in(h.gatekeeper, "thermo", b"wrong") is None


async def test_a_bridge_may_use_every_topic_and_further_topics_may_be_added(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await h.add("bridge", admin=True)
        await h.add("garden", topics=("shed/+/t", "well/#"))
        assert h.gatekeeper.user("bridge").publish == ("#",)  # type: ignore[union-attr]
        assert h.gatekeeper.user("garden").publish[-2:] == ("shed/+/t", "well/#")  # type: ignore[union-attr]
        assert [line.admin for line in await h.call("device.list")] == [True, False]


@pytest.mark.parametrize("name", ["aun", "homeassistant", "!", "", "温度计"])
async def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    async with house(tmp_path) as h:
        with pytest.raises(InvalidParams):
            await h.add(name)


@pytest.mark.parametrize("topic", ["a/#/b", "", "$SYS/#", "a+", "x" * 257])
async def test_a_topic_filter_that_is_none_is_refused(tmp_path: Path, topic: str) -> None:
    async with house(tmp_path) as h:
        with pytest.raises(InvalidParams):
            await h.add("dev", topics=(topic,))


async def test_a_topic_filter_of_256_characters_is_one(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await h.add("dev", topics=("x" * 256,))


async def test_a_name_is_taken_once(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await h.add("thermo")
        with pytest.raises(NameTaken):
            await h.add("Thermo")
        orphan = credentials.Credential(user="orphan", digest=b"", aid="d-orphan.edge.test")
        await h.node.commit(lambda unit: credentials.add(unit, orphan))
        with pytest.raises(NameTaken):
            await h.add("orphan")


async def test_a_device_is_shown_with_everything(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        device = {"ids": ["x"], "name": "Dev", "mf": "Acme", "mdl": "M1", "sw": "2"}
        parts = {
            "a": {"p": "sensor", "name": "a", "stat_t": "dev/s", "val_tpl": "{{ now() }}"},
            "b": {"p": "camera", "t": "dev/picture"},
            "c": {"p": "sensor", "name": "c", "stat_t": "dev/c", "unit_of_meas": "x"},
        }
        topic = "homeassistant/device/dev/config"
        await h.say(who, topic, {"dev": device, "cmps": parts})
        await h.say(who, "dev/c", "no number")
        parts.pop("c")
        shown = await h.call("device.show", DeviceNamed(name="d-dev.edge.test"))
        assert shown.counters == {"c": {"no_sample": 1}}
        await h.say(who, topic, {"dev": device, "cmps": parts})
        shown = await h.call("device.show", DeviceNamed(name="dev"))
        assert (shown.title, shown.maker, shown.model, shown.version) == ("Dev", "Acme", "M1", "2")
        assert shown.hardware == ["aun:dev", "id:x"]
        assert [line.id for line in shown.skills] == ["dev.a"]
        assert shown.retired == ["c"]
        assert "value_template" in shown.unsupported["a"][0]
        (refused,) = shown.refused
        assert (refused.topic, refused.component, refused.reason) == (topic, "b", "unsupported")
        assert shown.publish[1] == "dev/#"
        with pytest.raises(NotFound) as caught:
            await h.call("device.show", DeviceNamed(name="nothing"))
        assert caught.value.data == {"devices": ["dev"]}


async def test_forgetting_a_device_ends_everything_of_it(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await door(h)
        await h.say(who, "door/state", "LOCKED", retain=True)
        await h.call("cap.grant", GrantAsked(cap="door.lock", agent="alice"))
        skill = h.registry.skills()[0]
        await h.call("device.forget", DeviceNamed(name="door"))
        await h.settle()
        assert await h.call("device.list") == []
        assert await h.call("skill.list", SkillAsked()) == []
        assert h.bus.expelled == ["door"]
        assert h.bus.retained == {}
        assert h.gatekeeper.user("door") is None
        assert not h.grants.may_act("alice.edge.test", skill)
        assert [event.kind for event in h.events if event.log == "device"][-1] == "device.removed"
        with pytest.raises(NotFound):
            await h.call("device.forget", DeviceNamed(name="door"))
    async with house(tmp_path) as h:
        assert await h.call("device.list") == []
        assert not h.grants.may_act("alice.edge.test", skill)
        assert h.registry.sources == {}


async def test_forgetting_one_device_leaves_the_topics_that_others_share(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        bridge = await h.add("bridge", admin=True)
        for name in ("a", "b"):
            config = {
                "name": name,
                "stat_t": f"z/{name}",
                "avty_t": "z/state",
                "dev": {"ids": [name], "name": f"dev {name}"},
            }
            await h.say(bridge, f"homeassistant/sensor/{name}/config", config, retain=True)
            await h.say(bridge, f"z/{name}", "1", retain=True)
        await h.say(bridge, "z/state", "online", retain=True)
        await h.call("device.forget", DeviceNamed(name="dev-a"))
        await h.settle()
        assert set(h.bus.retained) == {"homeassistant/sensor/b/config", "z/b", "z/state"}
        assert h.bus.expelled == ["dev-a"]
        assert h.gatekeeper.user("bridge") is not None


# Grants.


async def test_every_operation_is_declared_with_a_scope_and_a_name(tmp_path: Path) -> None:
    from edge.dispatch.table import OpTable

    async with house(tmp_path) as h:
        table = OpTable(h.service, h.caps, h.operator)
        assert table.names("edge") == [
            "cap.grant", "cap.list", "cap.revoke", "device.add", "device.forget", "device.history", "device.list",
            "device.rotate", "device.show", "mqtt.pub", "mqtt.sub", "skill.list",
        ]  # fmt: skip
        assert all(op.scope and op.doc for op in table)
        assert json.dumps([op.name for op in table if op.writes]).count("add") == 1


async def test_a_device_gets_another_password_and_the_old_one_ends(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        old = await h.call("device.add", AddDevice(name="thermo", topics=("garden/#",)))
        new = await h.call("device.rotate", DeviceNamed(name="thermo"))
        assert (new.name, new.aid, new.username) == (old.name, old.aid, old.username)
        assert new.password != old.password
        assert h.bus.hung_up == ["thermo"]
    async with house(tmp_path) as h:
        assert let_in(h.gatekeeper, "thermo", old.password.encode()) is None
        admission = let_in(h.gatekeeper, "thermo", new.password.encode())
        assert admission is not None
        assert "garden/#" in admission.publish


async def test_the_old_password_is_good_until_the_new_one_is_on_disk(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        old = await h.call("device.add", AddDevice(name="thermo"))
        call: Call[Any] = Call(who=OPERATOR, op="device.rotate", params=DeviceNamed(name="thermo"))
        call.prepared = await h.service.prepare_rotate(call)

        def fails(unit: Unit) -> None:
            h.service.rotate(call, unit)
            raise RuntimeError("the disk")

        with pytest.raises(RuntimeError, match="the disk"):
            await h.node.commit(fails)
        assert let_in(h.gatekeeper, "thermo", old.password.encode()) is not None
        assert h.bus.hung_up == []


async def test_what_came_by_a_bridge_has_no_password_to_change(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("bridge", admin=True)
        await h.say(
            who, "homeassistant/switch/plug/config", {"cmd_t": "plug/set", "dev": {"ids": ["x"], "name": "plug"}}
        )
        with pytest.raises(NotFound, match="plug has no password of its own: it came by d-bridge"):
            await h.call("device.rotate", DeviceNamed(name="plug"))
        with pytest.raises(NotFound, match="no device 'else'"):
            await h.call("device.rotate", DeviceNamed(name="else"))
