from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edge.contract.bus import Publish
from edge.contract.limit import Limits
from edge.contract.principal import Principal
from edge.devices import registry as module
from edge.devices.records import DeviceNamed
from edge.store.devices import capability_id
from tests.support.clock import FakeClock
from tests.support.house import House, house


def sensor(uid: str, device: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": uid, "uniq_id": uid, "stat_t": f"{uid}/s", **({"dev": device} if device else {}), **more}


async def announce(h: House, who: Principal, uid: str, device: dict[str, Any] | None = None, **more: Any) -> None:
    arrival = await h.say(who, f"homeassistant/sensor/{uid}/config", sensor(uid, device, **more), retain=True)
    assert arrival.acked


def ids(h: House) -> list[str]:
    return [skill.id for skill in h.registry.skills()]


@pytest.mark.seed("C-007")
async def test_a_device_is_named_once_and_keeps_its_names(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        bridge = await h.add("bridge", admin=True)
        await announce(h, bridge, "a", {"ids": ["1"], "name": "Living Room"})
        await announce(h, bridge, "a", {"ids": ["1"], "name": "Bed Room"})
        (skill,) = h.registry.skills()
        assert (skill.id, skill.device, skill.aid) == ("living-room.a", "living-room", "d-living-room.edge.test")
        assert skill.device_name == "Bed Room"


async def test_two_devices_of_one_name_are_told_apart(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        bridge = await h.add("bridge", admin=True)
        for number in ("1", "2", "3"):
            await announce(h, bridge, f"s{number}", {"ids": [number], "name": "Lamp"})
        assert ids(h) == ["lamp.s1", "lamp-2.s2", "lamp-3.s3"]
        assert h.registry.skill("lamp-2.s2").aid == "d-lamp-2.edge.test"  # type: ignore[union-attr]


async def test_announcements_that_share_a_hardware_id_are_one_device(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        bridge = await h.add("bridge", admin=True)
        await announce(h, bridge, "a", {"ids": ["x"], "cns": [["mac", "AA:BB:CC:00:11:22"]], "name": "One"})
        await announce(h, bridge, "b", {"cns": [["mac", "aabbcc001122"]], "name": "One"})
        native = {"name": "One", "hardware_id": "mac:aa-bb-cc-00-11-22", "capabilities": [{"name": "c"}]}
        await h.say(bridge, "aun/v1/one/announce", native)
        assert ids(h) == ["one.a", "one.b", "one.c"]


async def test_a_users_first_device_has_the_name_that_the_owner_gave(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        thermo = await h.add("thermo")
        await announce(h, thermo, "thermo", {"ids": ["x"], "name": "Something Else"})
        await announce(h, thermo, "thermo", {"ids": ["x"], "name": "Again"}, dev_cla="humidity")
        assert ids(h) == ["thermo.thermo"]
        await h.say(thermo, "homeassistant/sensor/thermo/b/config", sensor("thermo", {"ids": ["y"], "name": "Second"}))
        assert ids(h) == ["second.thermo", "thermo.thermo"]


async def test_a_device_without_an_id_is_its_publishers_own(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        thermo = await h.add("thermo")
        bridge = await h.add("bridge", admin=True)
        await announce(h, thermo, "thermo")
        await announce(h, bridge, "shed")
        await announce(h, bridge, "shed", dev_cla="power")
        assert ids(h) == ["shed.shed", "thermo.thermo"]


async def test_nobody_joins_another_publishers_device_by_naming_its_hardware(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        good, bad = await h.add("good"), await h.add("bad")
        await announce(h, good, "good", {"ids": ["x"], "name": "Good"})
        await announce(h, bad, "bad", {"ids": ["x"], "name": "Good"})
        await announce(h, bad, "bad", {"ids": ["x"], "name": "Better"})
        assert ids(h) == ["bad.bad", "good.good"]
        assert h.registry.device("good").title == "Good"  # type: ignore[union-attr]
        assert h.registry.counters["foreign_identity"] == 1


async def test_what_is_withdrawn_is_retired_and_comes_back_as_itself(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        thermo = await h.add("thermo")
        await announce(h, thermo, "thermo", {"ids": ["x"]})
        await h.say(thermo, "thermo/s", "warm")
        before = h.registry.cap("thermo.thermo")
        await h.say(thermo, "homeassistant/sensor/thermo/config", b"")
        assert ids(h) == []
        device = h.registry.device("thermo")
        assert device is not None
        assert [cap.name for cap in device.caps.values()] == ["thermo"]
        await announce(h, thermo, "thermo", {"ids": ["x"]})
        assert h.registry.cap("thermo.thermo") is before
        assert h.registry.skills()[0].value == "warm"
        kinds = [event.kind for event in h.events if event.log == "device"]
        assert kinds == ["device.added", "device.changed", "device.removed", "device.added"]


async def test_a_component_that_moves_to_the_device_form_stays_the_same_capability(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        thermo = await h.add("thermo")
        old, device = "homeassistant/sensor/thermo/config", {"ids": ["x"], "name": "T"}
        await h.say(thermo, old, sensor("thermo", device), retain=True)
        cap = h.registry.cap("thermo.thermo")
        await h.say(thermo, old, {"migrate_discovery": True}, retain=True)
        components = {"t": {"p": "sensor", **sensor("thermo")}}
        await h.say(thermo, "homeassistant/device/thermo/config", {"dev": device, "cmps": components}, retain=True)
        await h.say(thermo, old, b"", retain=True)
        assert h.registry.caps() == [cap]
        assert h.registry.counters["migrating"] == 1


async def test_a_component_that_is_left_out_or_only_its_platform_is_retired(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        thermo = await h.add("thermo")
        topic, device = "homeassistant/device/thermo/config", {"ids": ["x"]}
        parts = {name: {"p": "sensor", **sensor(f"thermo/{name}", name=name)} for name in ("a", "b", "c")}
        await h.say(thermo, topic, {"dev": device, "cmps": parts})
        assert ids(h) == ["thermo.a", "thermo.b", "thermo.c"]
        await h.say(thermo, topic, {"dev": device, "cmps": {"a": parts["a"], "b": {"p": "sensor"}}})
        assert ids(h) == ["thermo.a"]


async def test_everything_is_there_again_after_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    async with house(tmp_path, clock=clock) as h:
        thermo = await h.add("thermo")
        bridge = await h.add("bridge", admin=True)
        await announce(
            h, thermo, "thermo", {"ids": ["x"], "name": "T"}, unit_of_meas="°C", val_tpl="{{ value_json.t }}"
        )
        await announce(h, bridge, "gone", {"ids": ["y"], "name": "Gone"})
        await h.say(bridge, "homeassistant/sensor/gone/config", b"")
        await h.say(thermo, "thermo/s", {"t": 20.5})
        before = h.registry.skills()
    async with house(tmp_path, clock=clock) as h:
        assert h.registry.skills() == before
        assert h.registry.skills()[0].value == 20.5
        again = await h.say(
            thermo,
            "homeassistant/sensor/thermo/config",
            sensor("thermo", {"ids": ["x"], "name": "T"}, unit_of_meas="°C", val_tpl="{{ value_json.t }}"),
        )
        assert again.acked
        assert h.registry.counters["repeated"] == 1
        await h.say(thermo, "thermo/s", {"t": 21})
        assert h.registry.skills()[0].value == 21
        assert [event.seq for event in h.events if event.log == "reading"] == [2]


async def test_after_a_restart_a_device_is_unknown_until_it_speaks_and_when_it_was_seen_is_known(
    tmp_path: Path,
) -> None:
    """A kept value and a retained word about itself tell when it was last heard; neither says that it is there now."""
    clock = FakeClock()

    def wall() -> int:
        return clock.wall(clock.now())[0]

    async with house(tmp_path, clock=clock) as h:
        talker, sleeper, _ = [await h.add(name) for name in ("talker", "sleeper", "mute")]
        for name, who in (("talker", talker), ("sleeper", sleeper)):
            native = {"capabilities": [{"name": "t", "value_type": "number"}]}
            await h.say(who, f"aun/v1/{name}/announce", native, retain=True)
            await h.say(who, f"aun/v1/{name}/online", "1", retain=True)
        clock.advance(5_000_000)
        await h.say(talker, "aun/v1/talker/state/t", "21")
        heard = wall()
        clock.advance(5_000_000)
        await h.say(sleeper, "aun/v1/sleeper/online", "0", retain=True)
        slept = wall()
        lines = {line.name: line for line in await h.call("device.list")}
        assert [(lines[name].online, lines[name].last_seen) for name in ("talker", "sleeper", "mute")] == [
            (True, heard),
            (False, slept),
            (None, None),
        ]
        retained = h.bus.retained
    clock.advance(60_000_000)
    async with house(tmp_path, clock=clock) as h:
        h.bus.retained = retained
        h.registry.recall(h.bus.kept)
        lines = {line.name: line for line in await h.call("device.list")}
        assert {name: (line.online, line.last_seen) for name, line in lines.items()} == {
            "talker": (None, heard),
            "sleeper": (None, slept),
            "mute": (None, None),
        }
        await h.say(sleeper, "aun/v1/sleeper/online", "1", retain=True)
        shown = await h.call("device.show", DeviceNamed(name="sleeper"))
        assert (shown.online, shown.last_seen) == (True, wall())


async def test_what_a_broker_repeats_is_no_sign_of_life(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        await h.say(who, "aun/v1/dev/announce", {"capabilities": [{"name": "t", "value_type": "number"}]})
        old = Publish("aun/v1/dev/state/t", b"21", 1, True, who, h.clock.now(), live=False)
        h.intake.sink([old], lambda error: None)
        await h.settle()
        [line] = await h.call("device.list")
        assert (h.registry.skills()[0].value, line.last_seen) == (21, None)


async def test_latest_values_are_found_at_the_end_of_a_long_log(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "RESTATE_ROWS", 50)
    monkeypatch.setattr("edge.devices.intake.RESTATE_ROWS", 50)
    async with house(tmp_path) as h:
        thermo = await h.add("thermo")
        native = {"capabilities": [{"name": "busy", "value_type": "number", "history": "every"}, {"name": "quiet"}]}
        await h.say(thermo, "aun/v1/thermo/announce", native)
        await h.say(thermo, "aun/v1/thermo/state/quiet", "said once")
        at = h.registry.skill("thermo.quiet").at  # type: ignore[union-attr]
        h.clock.advance(5_000_000)
        for start in range(0, 300, 30):
            for value in range(start, start + 30):
                h.bus.arrive("aun/v1/thermo/state/busy", str(value), thermo)
            await h.settle()
        assert len(await h.rows()) > 301, "the quiet value was written again"
    async with house(tmp_path) as h:
        quiet = h.registry.skill("thermo.quiet")
        assert quiet is not None
        assert (quiet.value, quiet.at) == ("said once", at)
        assert h.registry.skill("thermo.busy").value == 299  # type: ignore[union-attr]


async def test_a_forgotten_device_leaves_its_name_for_another_with_a_history_of_its_own(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        thermo = await h.add("thermo")
        await announce(h, thermo, "thermo", {"ids": ["x"]})
        await h.say(thermo, "thermo/s", "old")
        await h.call("device.forget", DeviceNamed(name="thermo"))
        assert h.registry.devices() == []
        thermo = await h.add("thermo")
        await announce(h, thermo, "thermo", {"ids": ["x"]})
        (skill,) = h.registry.skills()
        assert (skill.id, skill.value) == ("thermo.thermo", None)
        assert h.registry.cap("thermo.thermo").id == capability_id("thermo", 1, "thermo")  # type: ignore[union-attr]


async def test_devices_up_to_the_limit_of_a_publisher_and_no_further(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits({"devices.per_publisher": 3})) as h:
        bridge = await h.add("bridge", admin=True)
        for number in range(4):
            await announce(h, bridge, f"s{number}", {"ids": [str(number)]})
        assert len(ids(h)) == 2, "the bridge itself is one"
        assert h.limits.hits["devices.per_publisher"] == 2
        assert (await h.drops())["discovery", "too many devices"] == 2


async def test_capabilities_up_to_the_limit_of_a_device_and_no_further(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits({"devices.capabilities_per_device": 2})) as h:
        bridge = await h.add("bridge", admin=True)
        for number in range(3):
            await announce(h, bridge, f"s{number}", {"ids": ["x"], "name": "One"})
        assert ids(h) == ["one.s0", "one.s1"]
        assert h.limits.hits["devices.capabilities_per_device"] == 1


async def test_capabilities_up_to_the_limit_of_a_publisher_and_no_further(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits({"devices.components_per_publisher": 2})) as h:
        bridge = await h.add("bridge", admin=True)
        for number in range(3):
            await announce(h, bridge, f"s{number}", {"ids": [str(number)], "name": f"d{number}"})
        assert ids(h) == ["d0.s0", "d1.s1"]
        assert h.limits.hits["devices.components_per_publisher"] == 1


async def test_announcements_of_nothing_are_remembered_up_to_the_limit(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits({"devices.components_per_publisher": 3})) as h:
        who = await h.add("dev")
        for number in range(5):
            await h.say(who, f"homeassistant/sensor/dev/s{number}/config", b"{}")
            empty = {"dev": {"ids": ["x"]}, "cmps": {}}
            await h.say(who, f"homeassistant/device/dev/d{number}/config", empty)
        assert len(h.registry.sources) == 3
        await h.say(who, "homeassistant/sensor/dev/s0/config", b"")
        await h.say(who, "homeassistant/sensor/dev/s9/config", b"{}")
        assert "homeassistant/sensor/dev/s9/config" in h.registry.sources
        assert (await h.drops())["discovery", "too many announcements"] == 4


async def test_a_row_that_cannot_be_read_does_not_stop_the_start(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        thermo, bridge = await h.add("thermo"), await h.add("bridge", admin=True)
        await announce(h, thermo, "thermo", {"ids": ["x"]})
        await announce(h, bridge, "b", {"ids": ["y"], "name": "Bell"})
        await announce(h, bridge, "c", {"ids": ["z"], "name": "Cam"})
        await h.say(thermo, "thermo/s", "warm")

        def damage(unit: Any) -> None:
            unit.run("UPDATE capability SET component = x'7b' WHERE slug = 'thermo'")
            unit.run("UPDATE discovery SET refused = x'7b' WHERE topic LIKE '%/b/config'")
            unit.run("DELETE FROM device WHERE slug = 'cam'")

        await h.node.commit(damage)
        await h.hot.commit(lambda unit: unit.run("UPDATE reading SET value = x'7b'"))
    async with house(tmp_path) as h:
        assert ids(h) == ["bell.b"]
        assert h.registry.counters["unreadable"] == 2
        await announce(h, thermo, "thermo", {"ids": ["x"]})
        await announce(h, bridge, "b", {"ids": ["y"], "name": "Bell"})
        await announce(h, bridge, "c", {"ids": ["z"], "name": "Cam"})
        assert ids(h) == ["bell.b", "cam.c", "thermo.thermo"]
    async with house(tmp_path) as h:
        assert h.registry.counters["unreadable"] == 1, "the value cannot be read, the capability can"


async def test_capabilities_of_one_name_are_told_apart(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        bridge = await h.add("bridge", admin=True)
        await announce(h, bridge, "a", {"ids": ["x"], "name": "One"}, name="Power")
        await announce(h, bridge, "b", {"ids": ["x"], "name": "One"}, name="Power")
        assert ids(h) == ["one.power", "one.power_2"]


async def test_the_default_skill_is_the_declared_or_the_only_one(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        worker = await h.add("worker")
        names = [{"name": "a"}, {"name": "b"}]
        await h.say(worker, "aun/v1/worker/announce", {"capabilities": names, "default_skill": "b"})
        assert [skill.default for skill in h.registry.skills()] == [False, True]
        await h.say(worker, "aun/v1/worker/announce", {"capabilities": names[:1]})
        assert [skill.default for skill in h.registry.skills()] == [True]
        await h.say(worker, "aun/v1/worker/announce", {"capabilities": names, "default_skill": "c"})
        assert [skill.default for skill in h.registry.skills()] == [False, False]


async def test_a_device_is_online_when_it_says_so(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        worker = await h.add("worker")
        await h.say(worker, "aun/v1/worker/announce", {"capabilities": [{"name": "a"}]})
        assert not h.registry.online("d-worker.edge.test")
        await h.say(worker, "aun/v1/worker/online", "1", retain=True)
        assert h.registry.online("d-worker.edge.test")
        await h.say(worker, "aun/v1/worker/online", "0", retain=True)
        assert not h.registry.online("d-worker.edge.test")
        assert not h.registry.online("nobody.edge.test")
        assert [event.kind for event in h.events if event.kind.startswith("device.o")] == [
            "device.online",
            "device.offline",
        ]


async def test_a_value_past_its_expiry_is_unknown_again(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        thermo = await h.add("thermo")
        await announce(h, thermo, "thermo", exp_aft=60)
        await h.say(thermo, "thermo/s", "warm")
        h.clock.advance(60_000_000)
        assert h.registry.skill("thermo.thermo").value == "warm"  # type: ignore[union-attr]
        h.clock.advance(1)
        skill = h.registry.skill("thermo.thermo")
        assert skill is not None
        assert (skill.value, skill.online) == (None, False)
        await h.say(thermo, "thermo/s", "warm")
        assert h.registry.skill("thermo.thermo").value == "warm"  # type: ignore[union-attr]


async def test_a_time_that_nobody_knows_is_not_told(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        thermo = await h.add("thermo")
        await announce(h, thermo, "thermo")
        await h.say(thermo, "thermo/s", "warm")
        assert h.registry.skill("thermo.thermo").at is not None  # type: ignore[union-attr]
        h.clock.uncertainty_us = 10**15
        assert h.registry.skill("thermo.thermo").at is not None  # type: ignore[union-attr]
        h.clock.boot += 1
        assert h.registry.skill("thermo.thermo").at is None  # type: ignore[union-attr]


async def test_a_thousand_announcements_twice_are_a_thousand_changes_and_then_none(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        bridge = await h.add("bridge", admin=True)
        payloads = [
            (f"homeassistant/sensor/n{n % 100}/s{n}/config", json.dumps(sensor(f"s{n}", {"ids": [f"n{n % 100}"]})))
            for n in range(1000)
        ]
        for _ in range(2):
            arrivals = [h.bus.arrive(topic, payload, bridge, retain=True) for topic, payload in payloads]
            await h.settle()
            assert all(arrival.acked for arrival in arrivals)
        assert (h.registry.counters["adopted"], h.registry.counters["repeated"]) == (1000, 1000)
        assert len(h.registry.skills()) == 1000
        assert len(h.registry.devices()) == 101
