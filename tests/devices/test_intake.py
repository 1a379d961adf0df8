from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from edge.contract.bus import Publish
from edge.contract.limit import Limits
from edge.contract.principal import NODE, Principal
from edge.devices.records import AddDevice
from tests.support.clock import FakeClock, turn
from tests.support.house import House, house

MINUTE = 60_000_000


async def native(h: House, *caps: dict[str, Any], name: str = "dev") -> Principal:
    """A device of the native convention with these capabilities (by default one number)."""
    who = await h.add(name)
    announced = list(caps) or [{"name": "t", "value_type": "number"}]
    arrival = await h.say(who, f"aun/v1/{name}/announce", {"capabilities": announced}, retain=True)
    assert arrival.acked
    return who


@pytest.mark.seed("C-012")
async def test_a_published_value_is_on_disk_before_its_ack(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        arrival = h.bus.arrive("aun/v1/dev/state/t", "21.5", who)
        await asyncio.sleep(0)
        assert arrival.acked is None, "the batch was handed over, the commit has not come back"
        await h.settle()
        assert arrival.acked
        assert await h.values() == [21.5]


async def test_a_message_that_nobody_keeps_does_not_wait(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        arrival = h.bus.arrive("dev/anything", "x", who)
        await asyncio.sleep(0)
        assert arrival.acked is True


async def test_values_are_kept_on_change_or_after_a_minute(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        for value in (1, 1, 1, 2, 2, 1):
            assert (await h.say(who, "aun/v1/dev/state/t", str(value))).acked
        assert await h.values() == [1, 2, 1]
        h.clock.advance(MINUTE - 1)
        await h.say(who, "aun/v1/dev/state/t", "1")
        assert await h.values() == [1, 2, 1]
        h.clock.advance(1)
        await h.say(who, "aun/v1/dev/state/t", "1")
        assert await h.values() == [1, 2, 1, 1]


@pytest.mark.parametrize(
    ("history", "kept"), [("every", [1, 1, 1, 2]), ("none", []), ("30", [1, 2]), ("change", [1, 2])]
)
async def test_every_capability_has_its_own_history(tmp_path: Path, history: str, kept: list[int]) -> None:
    async with house(tmp_path) as h:
        who = await native(h, {"name": "t", "value_type": "number", "history": history})
        for value in (1, 1, 1, 2):
            h.clock.advance(10_000_000)
            await h.say(who, "aun/v1/dev/state/t", str(value))
        assert await h.values() == kept
        assert h.registry.skill("dev.t").value == 2  # type: ignore[union-attr]


async def test_an_equal_value_in_the_same_batch_waits_for_the_first_ones_commit(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        first = h.bus.arrive("aun/v1/dev/state/t", "5", who)
        second = h.bus.arrive("aun/v1/dev/state/t", "5", who)
        await asyncio.sleep(0)
        third = h.bus.arrive("aun/v1/dev/state/t", "5", who)
        await asyncio.sleep(0)
        assert [one.acked for one in (first, second, third)] == [None, None, None]
        await h.settle()
        assert [one.acked for one in (first, second, third)] == [True, True, True]
        assert await h.values() == [5]


async def test_a_value_becomes_visible_with_its_commit_and_its_event_follows(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        h.bus.arrive("aun/v1/dev/state/t", "5", who)
        await asyncio.sleep(0)
        assert h.registry.skill("dev.t").value is None  # type: ignore[union-attr]
        assert not [event for event in h.events if event.log == "reading"]
        await h.settle()
        (event,) = [event for event in h.events if event.log == "reading"]
        assert (event.key, event.seq, event.kind) == ("dev.t", 1, "reading")
        assert json.loads(event.body) == {
            "skill": "dev.t", "value": 5, "unit": "", "at": h.clock.wall(h.clock.now())[0],
        }  # fmt: skip


async def test_numbers_of_readings_rise_over_all_capabilities(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h, {"name": "a"}, {"name": "b"})
        for name in ("a", "b", "a"):
            await h.say(who, f"aun/v1/dev/state/{name}", f"{len(h.events)}")
        assert [event.seq for event in h.events if event.log == "reading"] == [1, 2, 3]


async def test_the_devices_own_time_is_taken_when_it_can_be_one(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        now_ms = h.clock.wall(h.clock.now())[0] // 1000
        for said, at in ((now_ms - 5000, now_ms - 5000), (12, now_ms), (now_ms + 90_000_000, now_ms)):
            await h.say(who, "aun/v1/dev/state/t", {"v": said % 1000, "t": said})
            assert h.registry.skill("dev.t").at == at * 1000  # type: ignore[union-attr]
        assert h.registry.cap("dev.t").counters["bad_time"] == 2  # type: ignore[union-attr]


async def test_a_replayed_state_is_last_known_and_has_no_time(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)

        def replay(payload: str) -> None:
            message = Publish("aun/v1/dev/state/t", payload.encode(), 1, True, who, h.clock.now(), live=False)
            h.intake.sink([message], lambda error: None)

        replay("7")
        await h.settle()
        skill = h.registry.skill("dev.t")
        assert skill is not None
        assert (skill.value, skill.at) == (7, None)
        await h.say(who, "aun/v1/dev/state/t", "8")
        at = h.registry.skill("dev.t").at  # type: ignore[union-attr]
        h.clock.advance(10 * MINUTE)
        replay("8")
        await h.settle()
        assert await h.values() == [7, 8], "it says nothing new"
        assert h.registry.skill("dev.t").at == at  # type: ignore[union-attr]
        stated = h.clock.wall(h.clock.now())[0] // 1000 - 1
        replay(json.dumps({"v": 9, "t": stated}))
        await h.settle()
        assert h.registry.skill("dev.t").at == stated * 1000  # type: ignore[union-attr]


async def test_state_before_discovery_is_read_when_the_device_comes(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        await h.say(who, "aun/v1/dev/state/t", "1")
        await h.say(who, "aun/v1/dev/state/t", "2")
        await h.say(who, "aun/v1/dev/online", "1")
        assert await h.values() == []
        await h.say(who, "aun/v1/dev/announce", {"capabilities": [{"name": "t", "value_type": "number"}]})
        assert await h.values() == [2]
        assert h.registry.skill("dev.t").online is True  # type: ignore[union-attr]


async def test_topics_without_a_device_are_remembered_up_to_the_limit(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits({"devices.unknown_topics": 2, "devices.unknown_octets": 3})) as h:
        who = await h.add("dev")
        for name in ("a", "b", "c"):
            await h.say(who, f"aun/v1/dev/state/{name}", name)
        assert h.limits.hits["devices.unknown_topics"] == 1
        await h.say(who, "aun/v1/dev/state/d", "123")
        await h.say(who, "aun/v1/dev/state/e", "1234")
        assert h.limits.hits["devices.unknown_octets"] == 1
        await h.say(who, "aun/v1/dev/announce", {"capabilities": [{"name": n} for n in "abcde"]})
        assert await h.values() == ["c", "123"]


async def test_one_message_may_carry_many_values(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        for name in ("t", "h"):
            config = {"name": name, "uniq_id": name, "stat_t": "dev/s", "val_tpl": "{{ value_json." + name + " }}"}
            await h.say(who, f"homeassistant/sensor/dev/{name}/config", {**config, "unit_of_meas": "x"})
        await h.say(who, "dev/s", {"t": 1, "h": 2})
        await h.say(who, "dev/s", {"t": 1})
        assert {skill.id: skill.value for skill in h.registry.skills()} == {"dev.t": 1, "dev.h": 2}
        assert h.registry.cap("dev.h").counters["no_sample"] == 1  # type: ignore[union-attr]


async def test_a_value_of_the_limit_is_kept_and_a_larger_one_is_in_the_ledger(tmp_path: Path) -> None:
    limits = Limits({"devices.value_octets": 10, "devices.state_octets": 30})
    async with house(tmp_path, limits=limits) as h:
        who = await native(h, {"name": "x"})
        for payload in ("12345678", "123456789", "1" * 31):
            assert (await h.say(who, "aun/v1/dev/state/x", payload if len(payload) < 9 else f"x{payload}")).acked
        assert await h.values() == [12345678] or await h.values() == ["12345678"]
        assert h.limits.hits == {"devices.value_octets": 1, "devices.state_octets": 1}
        assert (await h.drops())["reading", "too large"] == 2


async def test_the_nodes_own_publish_is_no_state(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await native(h)
        h.bus.publish(Publish("aun/v1/dev/state/t", b"99", 0, False, NODE, h.clock.now()))
        h.bus.publish(Publish("aun/v1/dev/state/u", b"99", 0, False, NODE, h.clock.now()))
        await h.settle()
        assert h.registry.skill("dev.t").value is None  # type: ignore[union-attr]


async def test_a_choice_takes_only_its_options(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h, {"name": "mode", "kind": "select", "options": ["eco", "full"]})
        await h.say(who, "aun/v1/dev/state/mode", '"turbo"')
        assert await h.values() == []
        await h.say(who, "aun/v1/dev/state/mode", '"eco"')
        assert await h.values() == ["eco"]


async def test_what_is_on_and_says_nothing_more_goes_off(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        await h.say(who, "homeassistant/binary_sensor/dev/config", {"stat_t": "dev/s", "off_dly": 5})
        await h.say(who, "dev/s", "ON")
        h.clock.advance(3_000_000)
        await h.say(who, "dev/s", "ON")
        h.clock.advance(4_999_999)
        await h.settle()
        assert await h.values() == [True]
        h.clock.advance(1)
        await h.settle()
        assert await h.values() == [True, False]
        await h.say(who, "dev/s", "ON")
        await h.say(who, "homeassistant/binary_sensor/dev/config", b"")
        h.clock.advance(10_000_000)
        await h.settle()
        assert await h.values() == [True, False, True], "what is withdrawn says nothing"


@pytest.mark.parametrize(
    ("mode", "words", "online"),
    [
        ("latest", [("a", "up")], True),
        ("latest", [("a", "up"), ("b", "offline")], False),
        ("latest", [("a", "?")], None),
        ("all", [("a", "up")], None),
        ("all", [("a", "up"), ("b", "online")], True),
        ("all", [("a", "up"), ("b", "offline")], False),
        ("any", [("a", "down")], None),
        ("any", [("a", "up")], True),
        ("any", [("a", "down"), ("b", "offline")], False),
    ],
)
async def test_availability_has_three_modes(
    tmp_path: Path, mode: str, words: list[tuple[str, str]], online: bool | None
) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        entries = [{"t": "dev/a", "pl_avail": "up", "pl_not_avail": "down"}, {"t": "dev/b"}]
        await h.say(who, "homeassistant/sensor/dev/config", {"stat_t": "dev/s", "avty": entries, "avty_mode": mode})
        for topic, word in words:
            await h.say(who, f"dev/{topic}", word)
        assert h.registry.skills()[0].online is online


async def test_availability_may_be_a_template(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        config = {"stat_t": "dev/s", "avty_t": "dev/a", "avty_tpl": "{{ value_json.up }}", "pl_avail": "True"}
        await h.say(who, "homeassistant/sensor/dev/config", config)
        for payload, online in (("x", None), ('{"up": true}', True), ('{"up": 3}', True), ('{"up": "offline"}', False)):
            await h.say(who, "dev/a", payload)
            assert h.registry.skills()[0].online is online


# When the store fails.


async def test_without_a_commit_there_is_no_ack_and_the_same_again_is_taken(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        full = [True]
        real = h.hot.bulk

        def bulk(sql: str, rows: Any, done: Any, **more: Any) -> None:
            if full[0]:
                asyncio.get_running_loop().call_soon(done, OSError("disk full"))
            else:
                real(sql, rows, done, **more)

        h.hot.bulk = bulk  # type: ignore[method-assign]
        arrival = await h.say(who, "aun/v1/dev/state/t", "5")
        assert arrival.acked is False
        assert h.registry.skill("dev.t").value == 5, "local work goes on"  # type: ignore[union-attr]
        assert not [event for event in h.events if event.log == "reading"]
        assert h.registry.counters["unstored"] == 1
        full[0] = False
        assert (await h.say(who, "aun/v1/dev/state/t", "5")).acked
        assert await h.values() == [5]


async def test_a_handler_that_breaks_does_not_stop_the_batch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with house(tmp_path) as h:
        who = await native(h, {"name": "a"}, {"name": "b"})
        h.registry.cap("dev.a").component = None  # type: ignore[assignment,union-attr]
        arrival = h.bus.arrive("aun/v1/dev/state/a", "1", who)
        h.bus.arrive("aun/v1/dev/state/b", "2", who)
        await h.settle()
        assert arrival.acked
        assert h.registry.counters["failed"] == 1
        assert "could not be taken" in caplog.text
        assert await h.drops() == {("reading", "internal"): 1}
        assert await h.values() == ["2"] or await h.values() == [2]


# Task events.


async def test_an_event_of_another_device_or_of_nobody_is_not_passed_on(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        await h.say(who, "aun/v1/dev/task/T1/event", {"seq": 1, "state": "completed"})
        assert [report.device for report in h.tasks.of("T1")] == ["dev"]
        stranger = await h.add("stranger", admin=True)
        await h.say(stranger, "aun/v1/unknown/task/T1/event", {"seq": 2, "state": "failed"})
        assert len(h.tasks.of("T1")) == 1
        assert h.registry.counters["event of nobody"] == 1
        assert await h.drops() == {("task", "no such device"): 1}
        await h.say(who, "aun/v1/dev/task/T1/event", b"")
        await h.say(who, "aun/v1/dev/task/T1/cancel", b"{}")
        assert len(h.tasks.of("T1")) == 1


async def test_a_broken_or_oversize_event_is_counted(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits({"devices.event_octets": 40})) as h:
        who = await native(h)
        event = json.dumps({"state": "working"})
        await h.say(who, "aun/v1/dev/task/T1/event", event + " " * (40 - len(event)))
        assert len(h.tasks.of("T1")) == 1
        await h.say(who, "aun/v1/dev/task/T1/event", event + " " * (41 - len(event)))
        await h.say(who, "aun/v1/dev/task/T1/event", b'{"state": "done"}')
        assert len(h.tasks.of("T1")) == 1
        assert h.limits.hits["devices.event_octets"] == 1
        assert await h.drops() == {("task", "too large"): 1, ("task", "bad field"): 1}


async def test_an_event_is_acked_when_its_report_is_on_disk(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        h.tasks.refuse = OSError("disk full")
        assert (await h.say(who, "aun/v1/dev/task/T1/event", {"seq": 1, "state": "working"})).acked is False
        h.tasks.refuse = None
        assert (await h.say(who, "aun/v1/dev/task/T1/event", {"seq": 1, "state": "working"})).acked


async def test_readings_without_an_ack_may_wait_for_the_wear_window(tmp_path: Path) -> None:
    async with house(tmp_path, wear_window_us=5_000_000) as h:
        who = await native(h)
        h.bus.arrive("aun/v1/dev/state/t", "1", who, qos=0)
        await h.bus.turn()
        await turn()
        assert not [event for event in h.events if event.log == "reading"]
        h.clock.advance(5_000_000)
        await h.settle()
        assert await h.values() == [1]
        h.bus.arrive("aun/v1/dev/state/t", "2", who, qos=0)
        arrival = h.bus.arrive("aun/v1/dev/state/t", "3", who, qos=1)
        await h.settle()
        assert arrival.acked
        assert await h.values() == [1, 2, 3]


async def test_who_waits_for_a_value_that_may_wait_is_not_kept_waiting(tmp_path: Path) -> None:
    async with house(tmp_path, wear_window_us=60_000_000) as h:
        who = await native(h)
        h.bus.arrive("aun/v1/dev/state/t", "1", who, qos=0)
        await h.bus.turn()
        same = h.bus.arrive("aun/v1/dev/state/t", "1", who, qos=1)
        await h.bus.turn()
        await h.hot.ping()
        await turn()
        assert same.acked
        assert await h.values() == [1]


async def test_a_slug_of_the_configured_prefix_is_no_device_name(tmp_path: Path) -> None:
    from edge.contract.errors import InvalidParams
    from edge.devices.intake import Intake

    async with house(tmp_path) as h:
        Intake(h.registry, h.gatekeeper.admission, h.hub, prefix="ha/main")
        with pytest.raises(InvalidParams):
            await h.call("device.add", AddDevice(name="ha"))


async def test_time_that_stands_still_does_not_disturb(tmp_path: Path) -> None:
    clock = FakeClock(mono_us=0)
    async with house(tmp_path, clock=clock) as h:
        who = await native(h)
        await h.say(who, "aun/v1/dev/state/t", "1")
        assert await h.values() == [1]


async def test_who_announces_too_fast_is_refused_and_repeats_are_free(tmp_path: Path) -> None:
    limits = Limits({"devices.announce_octets": 2_000, "devices.announce_rate": 1})
    async with house(tmp_path, limits=limits) as h:
        who = await h.add("dev")
        topic = "homeassistant/sensor/dev/t/config"
        first = {"name": "T", "unique_id": "t", "state_topic": "dev/t", "device": {"ids": ["x"]}}
        for _ in range(50):
            await h.say(who, topic, first)
        assert h.registry.counters["repeated"] == 49
        for number in range(8):
            await h.say(who, topic, {**first, "name": f"T{number}", "pad": "x" * 200})
        assert h.registry.counters["refused too fast"] >= 1
        assert h.registry.limits.hits["devices.announce_octets"] == h.registry.counters["refused too fast"]
        assert h.registry.skill("dev.t") is not None
