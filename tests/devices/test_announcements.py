from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.contract.limit import Limits
from edge.contract.principal import PLAIN_LAN, Kind, Principal
from edge.devices.records import DeviceNamed
from tests.support.clock import turn
from tests.support.house import OPERATOR, House, house


async def native(h: House, *caps: dict[str, Any], name: str = "dev") -> Principal:
    """A device of the native convention with these capabilities (by default one number)."""
    who = await h.add(name)
    announced = list(caps) or [{"name": "t", "value_type": "number"}]
    arrival = await h.say(who, f"aun/v1/{name}/announce", {"capabilities": announced}, retain=True)
    assert arrival.acked
    return who


# The confused-deputy rule.


@pytest.mark.parametrize(
    ("config", "topic"),
    [
        ({"stat_t": "good/secret"}, "good/secret"),
        ({"stat_t": "bad/s", "avty_t": "good/alive"}, "good/alive"),
        ({"stat_t": "bad/s", "cmd_t": "good/set"}, "good/set"),
        ({"stat_t": "bad/s", "cmd_t": "aun/v1/good/task"}, "aun/v1/good/task"),
    ],
)
async def test_a_discovery_may_not_name_topics_that_its_publisher_may_not_use(
    tmp_path: Path, config: dict[str, Any], topic: str
) -> None:
    async with house(tmp_path) as h:
        await h.add("good")
        bad = await h.add("bad")
        assert (await h.say(bad, "homeassistant/switch/bad/config", config, retain=True)).acked
        assert h.registry.skills() == []
        assert h.registry.counters["refused foreign topic"] == 1
        assert await h.drops() == {("discovery", "foreign topic"): 1}
        shown = await h.call("device.show", DeviceNamed(name="bad"))
        assert [(line.reason, line.detail) for line in shown.refused] == [("foreign topic", topic)]
        await h.say(bad, "homeassistant/switch/bad/config", config, retain=True)
        assert await h.drops() == {("discovery", "foreign topic"): 1}, "the same again is nothing new"


async def test_only_the_foreign_component_is_refused(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        bad = await h.add("bad")
        parts = {
            "mine": {"p": "sensor", "name": "mine", "stat_t": "bad/s"},
            "theirs": {"p": "sensor", "name": "theirs", "stat_t": "good/s"},
        }
        await h.say(bad, "homeassistant/device/bad/config", {"dev": {"ids": ["x"]}, "cmps": parts})
        assert [skill.id for skill in h.registry.skills()] == ["bad.mine"]
        shown = await h.call("device.show", DeviceNamed(name="bad"))
        assert [line.reason for line in shown.refused] == ["foreign topic"]


async def test_topics_that_the_owner_added_may_be_named(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev", topics=("garden/#",))
        await h.say(who, "homeassistant/sensor/dev/config", {"stat_t": "garden/north/t"})
        assert len(h.registry.skills()) == 1


async def test_other_rights_make_the_same_announcement_a_new_one(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        config = {"stat_t": "garden/t", "uniq_id": "u"}
        who = await h.add("dev")
        await h.say(who, "homeassistant/sensor/dev/config", config)
        assert h.registry.skills() == []
        await h.call("device.forget", DeviceNamed(name="dev"))
        who = await h.add("dev", topics=("garden/#",))
        await h.say(who, "homeassistant/sensor/dev/config", config)
        assert len(h.registry.skills()) == 1


async def test_a_publisher_that_is_no_user_any_more_announces_nothing(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        ghost = Principal(kind=Kind.DEVICE, aid="d-ghost.edge.test", via="mqtt", device_id="ghost")
        assert (await h.say(ghost, "homeassistant/sensor/x/config", {"stat_t": "x"})).acked
        assert h.registry.skills() == []
        assert await h.drops() == {("discovery", "unknown publisher"): 1}


async def test_the_operator_may_announce(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await h.say(OPERATOR, "homeassistant/sensor/x/config", {"stat_t": "x/s", "name": "t"})
        assert [skill.id for skill in h.registry.skills()] == ["device.t"] or h.registry.skills()


# Bad input.


@pytest.mark.parametrize(
    ("topic", "payload", "reason"),
    [
        ("homeassistant/sensor/dev/config", b"{", "malformed"),
        ("homeassistant/sensor/dev/config", b'{"stat_t": "dev/s", "stat_t": "dev/t"}', "malformed"),
        ("homeassistant/sensor/dev/config", b'{"n": 9007199254740993}', "malformed"),
        ("homeassistant/sensor/dev/config", b'{"n": "\\ud800"}', "malformed"),
        ("homeassistant/sensor/dev/config", b"\xff\xfe", "malformed"),
        ("homeassistant/sensor/dev/config", b"[" * 60_000, "too deep"),
        ("homeassistant/sensor/dev/config", b'{"stat_t": "dev/#"}', "bad topic"),
        ("homeassistant/camera/dev/config", b'{"t": "dev/s"}', "unsupported"),
        ("homeassistant/sensor/dev/a b/config", b"{}", "bad id"),
        ("aun/v1/dev/announce", b"[]", "malformed"),
    ],
)
async def test_a_broken_announcement_is_counted_and_changes_nothing(
    tmp_path: Path, topic: str, payload: bytes, reason: str
) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        assert (await h.say(who, topic, payload, retain=True)).acked
        assert h.registry.skills() == []
        assert h.registry.counters[f"refused {reason}"] == 1
        assert await h.drops() == {("discovery", reason): 1}


async def test_what_was_announced_before_stays_when_its_next_version_is_broken(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        await h.say(who, "aun/v1/dev/announce", b"{")
        assert [skill.id for skill in h.registry.skills()] == ["dev.t"]
        await h.say(who, "aun/v1/dev/announce", b"")
        assert h.registry.skills() == []


async def test_a_discovery_bomb_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        fill = {"stat_t": "dev/s", "name": "x"}
        room = 65_536 - len(json.dumps({**fill, "pad": ""}))
        await h.say(who, "homeassistant/sensor/dev/config", {**fill, "pad": "x" * room})
        assert len(h.registry.skills()) == 1
        await h.say(who, "homeassistant/sensor/dev/two/config", {**fill, "pad": "x" * (room + 1)})
        assert len(h.registry.skills()) == 1
        assert h.limits.hits["devices.discovery_octets"] == 1
        assert (await h.drops())["discovery", "too large"] == 1


@pytest.mark.parametrize(
    ("limit", "value", "good", "bad"),
    [
        ("devices.discovery_depth", 3, {"cmps": {"a": {"p": "sensor", "stat_t": "dev/s"}}}, {"pad": [[[1]]]}),
        ("devices.components", 1, {"cmps": {"a": {"p": "sensor", "stat_t": "dev/s"}}}, {"cmps": {"a": {}, "b": {}}}),
        (
            "devices.options",
            1,
            {"cmps": {"a": {"p": "sensor", "stat_t": "dev/s", "ops": ["1"]}}},
            {"cmps": {"a": {"p": "select", "cmd_t": "dev/c", "ops": ["1", "2"]}}},
        ),
    ],
)
async def test_limits_of_an_announcement_hold_at_their_edge(
    tmp_path: Path, limit: str, value: int, good: dict[str, Any], bad: dict[str, Any]
) -> None:
    async with house(tmp_path, limits=Limits({limit: value})) as h:
        who = await h.add("dev")
        await h.say(who, "homeassistant/device/dev/config", {"dev": {"ids": "x"}, "cmps": {}, **good})
        assert len(h.registry.skills()) == 1
        await h.say(who, "homeassistant/device/dev/two/config", {"dev": {"ids": "x"}, "cmps": {}, **bad})
        assert len(h.registry.skills()) == 1
        assert sum(count for (log, _), count in (await h.drops()).items() if log == "discovery") == 1
        assert h.limits.hits == {limit: 1}


async def test_a_template_over_the_limit_leaves_the_raw_value(tmp_path: Path) -> None:
    template = "{{ value_json.t }}"
    async with house(tmp_path, limits=Limits({"devices.template_length": len(template)})) as h:
        who = await h.add("dev")
        for name, text in (("a", template), ("b", template + " ")):
            await h.say(
                who, f"homeassistant/sensor/dev/{name}/config", {"name": name, "stat_t": "dev/s", "val_tpl": text}
            )
        await h.say(who, "dev/s", {"t": "warm"})
        assert {skill.id: skill.value for skill in h.registry.skills()} == {"dev.a": "warm", "dev.b": '{"t": "warm"}'}
        assert list((await h.call("device.show", DeviceNamed(name="dev"))).unsupported) == ["b"]
        assert h.limits.hits == {"devices.template_length": 1}


# When the store fails.


async def test_an_announcement_that_was_not_written_is_taken_again(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        real = h.node.write

        def write(work: Any, done: Any, *, urgent: bool = False) -> None:
            asyncio.get_running_loop().call_soon(done, OSError("disk full"))

        payload = {"capabilities": [{"name": "t"}]}
        h.node.write = write  # type: ignore[method-assign]
        first = h.bus.arrive("aun/v1/dev/announce", json.dumps(payload), who)
        await h.bus.turn()
        await turn()
        assert first.acked is False
        h.node.write = real  # type: ignore[method-assign]
        assert (await h.say(who, "aun/v1/dev/announce", payload)).acked
        assert h.registry.counters["adopted"] == 2
    async with house(tmp_path) as h:
        assert [skill.id for skill in h.registry.skills()] == ["dev.t"]


async def test_a_withdrawal_that_was_not_written_is_taken_again(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        real = h.node.write
        h.node.write = lambda work, done: asyncio.get_running_loop().call_soon(done, OSError("full"))  # type: ignore
        gone = h.bus.arrive("aun/v1/dev/announce", b"", who)
        await h.bus.turn()
        await turn()
        assert gone.acked is False
        h.node.write = real  # type: ignore[method-assign]
        assert (await h.say(who, "aun/v1/dev/announce", b"")).acked
    async with house(tmp_path) as h:
        assert h.registry.skills() == []


async def test_a_repeat_waits_for_the_first_announcement_to_be_on_disk(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        payload = json.dumps({"capabilities": [{"name": "t"}]})
        first = h.bus.arrive("aun/v1/dev/announce", payload, who)
        await asyncio.sleep(0)
        second = h.bus.arrive("aun/v1/dev/announce", payload, who)
        await asyncio.sleep(0)
        assert (first.acked, second.acked) == (None, None)
        await h.settle()
        assert (first.acked, second.acked) == (True, True)


async def test_what_came_without_tls_gives_no_other_name_to_the_orders_of_a_lock(tmp_path: Path) -> None:
    """Settled G14: a switch needs no grant, so it must not speak to the topic that a lock listens to."""
    async with house(tmp_path) as h:
        who = await h.add("bridge", admin=True)
        plain = msgspec.structs.replace(who, via=PLAIN_LAN)
        lock = {"unique_id": "l1", "command_topic": "door/set", "state_topic": "door/state"}
        lamp = {"unique_id": "s1", "command_topic": "lamp/set", "state_topic": "lamp/state"}
        assert (await h.say(who, "homeassistant/lock/bridge/l1/config", lock, retain=True)).acked
        for via, topic in ((plain, "lamp/set"), (plain, "door/set"), (who, "door/set")):
            switch = lamp | {"command_topic": topic}
            assert (await h.say(via, "homeassistant/switch/bridge/s1/config", switch, retain=True)).acked
            admitted = any(
                topic in cap.component.topics()[1] and cap.what.kind == "switch" for cap in h.registry.caps()
            )
            assert admitted == ((via, topic) != (plain, "door/set"))
        assert await h.drops() == {("discovery", "high risk without TLS"): 1}


async def test_what_came_without_tls_announces_nothing_of_high_risk(tmp_path: Path) -> None:
    """Settled G14. The same words over TLS are another announcement."""
    async with house(tmp_path) as h:
        who = await h.add("dev")
        plain = msgspec.structs.replace(who, via=PLAIN_LAN)
        announced = {
            "capabilities": [{"name": "t", "value_type": "number"}, {"name": "bolt", "kind": "lock", "writable": True}]
        }
        for via, skills in ((plain, ["dev.t"]), (who, ["dev.bolt", "dev.t"])):
            assert (await h.say(via, "aun/v1/dev/announce", announced, retain=True)).acked
            assert sorted(skill.id for skill in h.registry.skills()) == skills
            shown = (await h.call("device.show", DeviceNamed(name="dev"))).refused
            refused = [(line.component, line.reason, line.detail) for line in shown]
            assert refused == [("bolt", "high risk without TLS", "lock")] * (via is plain)
        assert await h.drops() == {("discovery", "high risk without TLS"): 1}


async def test_what_came_without_tls_takes_no_lock_away(tmp_path: Path) -> None:
    """Settled G14: with the lock gone its topics would be open to whoever withdrew it."""
    async with house(tmp_path) as h:
        who = await h.add("dev")
        plain = msgspec.structs.replace(who, via=PLAIN_LAN)
        announced = {"capabilities": [{"name": "bolt", "kind": "lock", "writable": True}]}
        assert (await h.say(who, "aun/v1/dev/announce", announced, retain=True)).acked
        for said in ("", announced, {"capabilities": [{"name": "t", "value_type": "number"}]}):
            assert (await h.say(plain, "aun/v1/dev/announce", said, retain=True)).acked
            assert [skill.id for skill in h.registry.skills()] == ["dev.bolt"]
        assert await h.drops() == {("discovery", "high risk without TLS"): 3}
        assert (await h.say(who, "aun/v1/dev/announce", "", retain=True)).acked
        assert h.registry.skills() == []


async def test_what_came_without_tls_takes_no_place_of_a_lock(tmp_path: Path) -> None:
    """Settled G14: the same id by another topic would turn the lock into what only reads, and open its topics."""
    async with house(tmp_path) as h:
        who = await h.add("bridge", admin=True)
        plain = msgspec.structs.replace(who, via=PLAIN_LAN)
        device = {"ids": ["x"], "name": "Door"}
        lock = {"unique_id": "l1", "command_topic": "door/set", "state_topic": "door/state", "device": device}
        assert (await h.say(who, "homeassistant/lock/bridge/l1/config", lock, retain=True)).acked
        parts = {
            "a": {"p": "lock", "unique_id": "l1", "state_topic": "lamp/state"},
            "b": {"p": "sensor", "unique_id": "t1", "state_topic": "lamp/t"},
        }
        config = {"dev": device, "cmps": parts}
        assert (await h.say(plain, "homeassistant/device/bridge/config", config, retain=True)).acked
        risks = {"lock:l1": "high", "sensor:t1": "low"}
        assert {cap.component.uid: cap.what.risk for cap in h.registry.caps()} == risks
        assert h.registry.routes.closed("door/set")
        assert (await h.say(who, "homeassistant/device/bridge/config", config, retain=True)).acked
        assert {cap.component.uid: cap.what.risk for cap in h.registry.caps()} == dict.fromkeys(risks, "low")


@pytest.mark.parametrize("first", ["switch", "lock"])
async def test_a_switch_on_the_topic_of_a_lock_has_its_risk_whichever_was_announced_first(
    tmp_path: Path, first: str
) -> None:
    """Design D24: who may order a switch without a grant would have the lock by it."""
    async with house(tmp_path) as h:
        who = await h.add("bridge", admin=True)
        switch = {"unique_id": "s1", "command_topic": "door/set", "state_topic": "lamp/state", "payload_on": "UNLOCK"}
        lock = {"unique_id": "l1", "command_topic": "door/set", "state_topic": "door/state"}
        said = [("switch", "s1", switch), ("lock", "l1", lock)]
        for kind, uid, config in said if first == "switch" else reversed(said):
            assert (await h.say(who, f"homeassistant/{kind}/bridge/{uid}/config", config, retain=True)).acked
        assert {skill.cap.kind: skill.cap.risk for skill in h.registry.skills()} == {"switch": "high", "lock": "high"}
        assert {line.kind: line.risk for line in await h.call("cap.list")} == {"switch": "high", "lock": "high"}
        (alias,) = [skill for skill in h.registry.skills() if skill.cap.kind == "switch"]
        assert not h.grants.may_act("alice.edge.test", alias)
        assert (await h.say(who, "homeassistant/lock/bridge/l1/config", "", retain=True)).acked
        assert [skill.cap.risk for skill in h.registry.skills()] == ["low"]


async def test_a_native_device_keeps_the_risk_of_each_capability(tmp_path: Path) -> None:
    """Its tasks share one topic and it tells them apart; an alias of that topic or a lock that hears it does not."""
    async with house(tmp_path) as h:
        who = await h.add("dev")
        caps = [
            {"name": "bolt", "kind": "lock", "writable": True},
            {"name": "lamp", "kind": "switch", "writable": True},
        ]
        assert (await h.say(who, "aun/v1/dev/announce", {"capabilities": caps}, retain=True)).acked
        lamp = await h.add("lamp")
        assert (await h.say(lamp, "aun/v1/lamp/announce", {"capabilities": caps[1:]}, retain=True)).acked
        bridge = await h.add("bridge", admin=True)
        alias = {"unique_id": "s1", "command_topic": "aun/v1/dev/task", "name": "alias"}
        assert (await h.say(bridge, "homeassistant/switch/bridge/s1/config", alias, retain=True)).acked
        risks = {skill.id: skill.cap.risk for skill in h.registry.skills()}
        (other,) = risks.keys() - {"dev.bolt", "dev.lamp", "lamp.lamp"}
        assert risks == {"dev.bolt": "high", "dev.lamp": "low", "lamp.lamp": "low", other: "high"}
        lock = {"unique_id": "l1", "command_topic": "aun/v1/lamp/task", "name": "lock"}
        assert (await h.say(bridge, "homeassistant/lock/bridge/l1/config", lock, retain=True)).acked
        risks = {skill.id: skill.cap.risk for skill in h.registry.skills()}
        assert (risks["lamp.lamp"], risks["dev.lamp"]) == ("high", "low")
