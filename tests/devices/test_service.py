from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edge.contract.capability import Skill
from edge.contract.errors import InvalidParams, NameTaken, NotFound
from edge.contract.limit import Limits
from edge.contract.op import Call
from edge.contract.principal import Kind, Principal
from edge.contract.store import Unit
from edge.devices.records import AddDevice, DeviceNamed, GrantAsked, HistoryAsked, SkillAsked
from edge.store import credentials
from tests.support.house import OPERATOR, House, house
from tests.support.login import let_in

LOCK = {"name": None, "stat_t": "door/state", "cmd_t": "door/set", "dev": {"ids": ["x"], "name": "Front door"}}


async def door(h: House) -> Principal:
    who = await h.add("door")
    await h.say(who, "homeassistant/lock/door/config", LOCK, retain=True)
    return who


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


async def test_skills_are_listed_with_all_that_tools_rely_on(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await door(h)
        await h.say(who, "door/state", "LOCKED")
        (line,) = await h.call("skill.list", SkillAsked())
        assert (line.id, line.device, line.aid, line.kind) == ("door.lock", "door", "d-door.edge.test", "lock")
        assert (line.value, line.unit, line.risk, line.writable, line.online) == ("locked", "", "high", True, None)
        assert line.at == h.clock.wall(h.clock.now())[0]
        assert (line.name, line.verbs) == ("Front door", ["lock", "unlock"])
        assert await h.call("skill.list", SkillAsked(device="door")) == [line]
        with pytest.raises(NotFound):
            await h.call("skill.list", SkillAsked(device="nothing"))


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


async def test_high_risk_needs_a_grant_and_low_risk_does_not(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await door(h)
        lock = h.registry.skills()[0]
        low = Skill(id="x.y", device="x", device_name="x", aid="d-x.edge.test", cap=msg_low(lock))
        assert not h.grants.may_act("alice.edge.test", lock)
        assert h.grants.may_act("alice.edge.test", low)
        assert h.grants.may_act("", low)
        await h.call("cap.grant", GrantAsked(cap="door.lock", agent="Alice"))
        assert h.grants.may_act("alice.edge.test", lock)
        assert not h.grants.may_act("bob.edge.test", lock)
        assert not h.grants.may_act("", lock)
        (line,) = await h.call("cap.list")
        assert (line.id, line.risk, line.granted) == ("door.lock", "high", ["alice.edge.test"])
    async with house(tmp_path) as h:
        assert h.grants.may_act("alice.edge.test", lock)
        await h.call("cap.revoke", GrantAsked(cap="door.lock", agent="alice.edge.test"))
        assert not h.grants.may_act("alice.edge.test", lock)
        with pytest.raises(NotFound):
            await h.call("cap.revoke", GrantAsked(cap="door.lock", agent="alice"))


def msg_low(lock: Skill) -> Any:
    import msgspec

    return msgspec.structs.replace(lock.cap, risk="low")


async def test_a_grant_names_a_capability_and_an_agent(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await door(h)
        with pytest.raises(NotFound) as caught:
            await h.call("cap.grant", GrantAsked(cap="door.bell", agent="alice"))
        assert caught.value.data == {"skills": ["door.lock"]}
        for agent in ("", "a b"):
            with pytest.raises(InvalidParams):
                await h.call("cap.grant", GrantAsked(cap="door.lock", agent=agent))


# History.


async def test_history_is_paged_by_number(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        caps = [{"name": "t", "value_type": "number"}, {"name": "other"}]
        await h.say(who, "aun/v1/dev/announce", {"capabilities": caps})
        for value in range(5):
            await h.say(who, "aun/v1/dev/state/t", str(value))
            await h.say(who, "aun/v1/dev/state/other", f"x{value}")
        page = await h.call("device.history", HistoryAsked(skill="dev.t", limit=3))
        assert [(point.seq, point.value) for point in page.readings] == [(1, 0), (3, 1), (5, 2)]
        assert (page.next, page.more) == (5, True)
        page = await h.call("device.history", HistoryAsked(skill="dev.t", after=page.next, limit=3))
        assert [point.value for point in page.readings] == [3, 4]
        assert (page.next, page.more) == (10, False)
        assert page.readings[0].at == h.clock.wall(h.clock.now())[0]
        page = await h.call("device.history", HistoryAsked(skill="dev.t", after=10))
        assert (page.readings, page.more) == ([], False)


async def test_who_knows_of_a_later_reading_gets_higher_numbers_from_then_on(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        await h.say(who, "aun/v1/dev/announce", {"capabilities": [{"name": "t", "value_type": "number"}]})
        await h.say(who, "aun/v1/dev/state/t", "1")
        alice = Principal(kind=Kind.AGENT, aid="alice.edge.test", via="test")
        await h.call("device.history", HistoryAsked(skill="dev.t", after=10), alice)
        await h.hot.commit(lambda unit: None)
        await h.say(who, "aun/v1/dev/state/t", "2")
        page = await h.call("device.history", HistoryAsked(skill="dev.t", after=10))
        assert [one.seq for one in page.readings] == [(1 << 40) + 1]


async def test_history_tells_what_time_it_knows(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        await h.say(who, "aun/v1/dev/announce", {"capabilities": [{"name": "t", "history": "every"}]})
        stated = h.clock.wall(h.clock.now())[0] // 1000 - 7
        await h.say(who, "aun/v1/dev/state/t", {"v": "a", "t": stated})
        await h.say(who, "aun/v1/dev/state/t", "b")
        h.clock.uncertainty_us, h.clock.boot = 10**15, h.clock.boot + 1
        page = await h.call("device.history", HistoryAsked(skill="dev.t"))
        assert [point.at for point in page.readings] == [stated * 1000, None]


async def test_history_has_a_limit_of_rows_and_sensible_params(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits({"devices.history_rows": 2})) as h:
        who = await h.add("dev")
        await h.say(who, "aun/v1/dev/announce", {"capabilities": [{"name": "t"}]})
        for value in "abc":
            await h.say(who, "aun/v1/dev/state/t", value)
        assert len((await h.call("device.history", HistoryAsked(skill="dev.t", limit=2))).readings) == 2
        assert h.limits.hits == {}
        assert len((await h.call("device.history", HistoryAsked(skill="dev.t", limit=3))).readings) == 2
        assert h.limits.hits == {"devices.history_rows": 1}
        with pytest.raises(NotFound):
            await h.call("device.history", HistoryAsked(skill="dev.x"))
        for bad in (HistoryAsked(skill="dev.t", limit=0), HistoryAsked(skill="dev.t", after=-1)):
            with pytest.raises(InvalidParams):
                await h.call("device.history", bad)


async def test_every_operation_is_declared_with_a_scope_and_a_name(tmp_path: Path) -> None:
    from edge.dispatch.table import OpTable

    async with house(tmp_path) as h:
        table = OpTable(h.service, h.operator)
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
