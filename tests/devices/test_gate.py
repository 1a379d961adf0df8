from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import (
    EdgeError,
    InvalidParams,
    NotFound,
    OutputTooLarge,
    StorageFull,
    TaskTerminal,
    TooLarge,
)
from edge.contract.limit import Limits
from edge.contract.principal import Principal
from edge.contract.task import Order
from tests.support.house import House, house

DEVICE = {"ids": ["x"], "name": "Thing"}


async def entity(h: House, platform: str, **config: Any) -> Principal:
    """A Home Assistant entity of a device called `dev`, with state and command topics of its own."""
    who = await h.add("dev")
    payload = {"name": None, "stat_t": "dev/state", "cmd_t": "dev/set", "dev": DEVICE, **config}
    assert (await h.say(who, f"homeassistant/{platform}/dev/config", payload, retain=True)).acked
    return who


async def native(h: House, **announced: Any) -> Principal:
    who = await h.add("dev")
    await h.say(who, "aun/v1/dev/announce", {"skills": [{"name": "work", "cancellable": True}], **announced})
    return who


def text(h: House, task_id: str) -> str:
    report = h.tasks.last(task_id)
    parts = json.loads(report.artifact)["parts"] if report.artifact else json.loads(report.message)
    return next(part["text"] for part in parts if part["kind"] == "text")


def commands(h: House, topic: str = "dev/set") -> list[str]:
    return [message.payload.decode() for message in h.bus.sent_to(topic)]


# Reading.


@pytest.mark.seed("S4-011")
async def test_reading_answers_at_once_with_value_unit_and_time(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, "sensor", unit_of_meas="°C", dev_cla="temperature")
        await h.say(who, "dev/state", "21.5")
        report = await h.order("T1", "dev.temperature")
        assert report.state == "completed"
        assert text(h, "T1") == "21.5 °C"
        assert h.tasks.data("T1") == {
            "skill": "dev.temperature", "value": 21.5, "unit": "°C", "at": "2025-06-15T15:06:41.000Z", "online": None,
        }  # fmt: skip
        artifact = json.loads(report.artifact)
        assert (artifact["append"], artifact["last"]) == (False, True)


async def test_reading_what_was_never_said_fails_with_the_truth(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await entity(h, "sensor")
        report = await h.order("T1", "dev.sensor")
        assert (report.state, report.reason) == ("failed", "no_value")


async def test_reading_an_offline_device_gives_the_last_value_and_says_so(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, "sensor", avty_t="dev/alive")
        await h.say(who, "dev/state", "warm")
        await h.say(who, "dev/alive", "offline")
        await h.order("T1", "dev.sensor")
        assert text(h, "T1") == "warm (last known; offline)"
        assert h.tasks.data("T1")["online"] is False


async def test_a_time_that_nobody_knows_is_null(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, "sensor")
        await h.say(who, "dev/state", "warm")
        h.clock.uncertainty_us, h.clock.boot = 10**15, h.clock.boot + 1
        await h.order("T1", "dev.sensor")
        assert h.tasks.data("T1")["at"] is None


# Commands.


async def test_a_command_is_completed_by_the_state_that_confirms_it(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, "switch", ret=True, qos=1)
        await h.order("T1", "dev.switch", "on")
        (sent,) = h.bus.sent_to("dev/set")
        assert (sent.payload, sent.qos, sent.retain) == (b"ON", 1, True)
        assert h.tasks.of("T1") == []
        await h.say(who, "dev/state", "OFF")
        assert h.tasks.of("T1") == []
        await h.say(who, "dev/state", "ON")
        assert h.tasks.last("T1").state == "completed"
        assert text(h, "T1") == "confirmed: on"
        data = h.tasks.data("T1")
        assert (data["value"], data["confirmed"], data["ordered"]) == (True, True, True)
        h.clock.advance(10_000_000)
        assert len(h.tasks.of("T1")) == 1, "the deadline is off"


async def test_without_confirmation_the_truth_is_told_after_the_deadline(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, "switch")
        await h.say(who, "dev/state", "OFF")
        await h.order("T1", "dev.switch", "on")
        h.clock.advance(2_999_999)
        assert h.tasks.of("T1") == []
        h.clock.advance(1)
        assert text(h, "T1") == "command sent, state not confirmed within 3 s"
        assert (h.tasks.last("T1").state, h.tasks.last("T1").reason) == ("completed", "state_not_confirmed")
        data = h.tasks.data("T1")
        assert (data["confirmed"], data["value"], data["ordered"]) == (False, False, True)
        await h.say(who, "dev/state", "ON")
        assert len(h.tasks.of("T1")) == 1


async def test_the_same_state_again_confirms_too(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, "switch")
        await h.say(who, "dev/state", "ON")
        await h.order("T1", "dev.switch", "on")
        await h.say(who, "dev/state", "ON")
        assert text(h, "T1") == "confirmed: on"
        assert await h.values() == [True]


async def test_two_orders_wait_for_their_own_states(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, "switch")
        await h.order("T1", "dev.switch", "on")
        await h.order("T2", "dev.switch", "off")
        await h.say(who, "dev/state", "OFF")
        assert (h.tasks.of("T1"), h.tasks.last("T2").state) == ([], "completed")


async def test_what_reports_no_state_is_completed_when_it_is_sent(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await entity(h, "button", stat_t=None)
        await h.order("T1", "dev.button", "press")
        assert commands(h) == ["PRESS"]
        assert text(h, "T1") == "command sent; this device reports no state"


@pytest.mark.parametrize(
    ("platform", "config", "verb", "value", "sent", "states", "said"),
    [
        ("number", {"max": 200, "unit_of_meas": "W"}, "set", 150, "150", ["149", "150"], "confirmed: 150 W"),
        ("select", {"ops": ["eco", "full"]}, "set", "eco", "eco", ["full", "eco"], "confirmed: eco"),
        ("lock", {}, "unlock", None, "UNLOCK", ["UNLOCKING", "UNLOCKED"], "confirmed: unlocked"),
        ("cover", {}, "close", None, "CLOSE", ["closing", "closed"], "confirmed: closed"),
        ("switch", {"cmd_tpl": '{"s": "{{ value }}"}'}, "set", False, '{"s": "OFF"}', ["ON", "OFF"], "confirmed: off"),
        ("text", {}, "set", "hello", "hello", ["hello"], "confirmed: hello"),
    ],
)
async def test_each_kind_has_its_words(
    tmp_path: Path,
    platform: str,
    config: dict[str, Any],
    verb: str,
    value: Any,
    sent: str,
    states: list[str],
    said: str,
) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, platform, **config)
        await h.order("T1", f"dev.{platform}", verb, value)
        assert commands(h) == [sent]
        for state in states:
            assert h.tasks.of("T1") == []
            await h.say(who, "dev/state", state)
        assert text(h, "T1") == said


async def test_a_toggle_is_the_opposite_of_what_is_known(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, "switch")
        with pytest.raises(InvalidParams, match="not known"):
            await h.order("T1", "dev.switch", "toggle")
        await h.say(who, "dev/state", "ON")
        await h.order("T1", "dev.switch", "toggle")
        assert commands(h) == ["OFF"]


@pytest.mark.parametrize(
    ("platform", "config", "verb", "value"),
    [
        ("sensor", {"cmd_t": None}, "set", 1),
        ("number", {}, "set", 101),
        ("number", {}, "set", 0),
        ("number", {}, "set", "warm"),
        ("number", {}, "set", True),
        ("number", {}, "on", None),
        ("number", {}, "set", None),
        ("number", {}, "", None),
        ("select", {"ops": ["a"]}, "set", "b"),
        ("select", {"ops": ["a"]}, "set", 1),
        ("switch", {}, "set", "ON"),
        ("switch", {}, "press", None),
        ("button", {"stat_t": None}, "set", True),
        ("button", {"stat_t": None}, "read", None),
        ("text", {"max": 3}, "set", "four"),
        ("text", {"min": 2}, "set", "1"),
        ("text", {}, "set", 7),
        ("text", {"cmd_tpl": '{"a": "{{ value }}"}'}, "set", '","b":"'),
        ("lock", {}, "set", "locked"),
    ],
)
async def test_an_order_that_makes_no_sense_is_refused_with_what_would(
    tmp_path: Path, platform: str, config: dict[str, Any], verb: str, value: Any
) -> None:
    async with house(tmp_path) as h:
        await entity(h, platform, **config)
        with pytest.raises(InvalidParams) as caught:
            await h.order("T1", f"dev.{platform}", verb, value)
        assert f"dev.{platform}" in caught.value.message
        assert h.bus.sent == []
        order = Order(task_id="T2", skill=f"dev.{platform}", verb=verb, value=json.dumps(value).encode())
        if platform not in ("sensor",) and verb != "":
            h.gate.deliver(order)
            assert (h.tasks.last("T2").state, h.bus.sent) == ("failed", [])


async def test_a_command_of_the_limit_is_taken_and_a_larger_one_is_not(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits({"devices.command_octets": 10})) as h:
        await entity(h, "text")
        await h.order("T1", "dev.text", "set", "12345678")
        with pytest.raises(TooLarge):
            await h.order("T2", "dev.text", "set", "123456789")


async def test_an_unknown_skill_is_not_found(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        with pytest.raises(NotFound):
            await h.order("T1", "dev.light")
        h.gate.deliver(Order(task_id="T1", skill="dev.light"))
        assert h.tasks.last("T1").reason == "skill_gone"


async def test_orders_up_to_the_limit_are_under_way_and_no_more(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits({"devices.open_orders": 2})) as h:
        await entity(h, "switch")
        for task_id in ("T1", "T2", "T3"):
            await h.order(task_id, "dev.switch", "on")
        assert h.tasks.last("T3").reason == "busy"
        assert h.limits.hits["devices.open_orders"] == 1
        assert len(commands(h)) == 2


@pytest.mark.parametrize(
    ("platform", "verb", "config", "sent"),
    [("switch", "on", {}, ["ON"]), ("switch", "toggle", {}, []), ("button", "press", {"stat_t": None}, [])],
)
async def test_after_a_crash_only_what_may_be_repeated_is_sent_again(
    tmp_path: Path, platform: str, verb: str, config: dict[str, Any], sent: list[str]
) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, platform, **config)
        if platform == "switch":
            await h.say(who, "dev/state", "ON")
        await h.order("T1", f"dev.{platform}", verb, again=True)
        assert commands(h) == sent
        if not sent:
            assert h.tasks.last("T1").reason == "outcome_unknown"


async def test_an_order_for_a_device_that_is_offline_goes_out_once_when_it_is_back(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, "switch", avty_t="dev/alive")
        await h.say(who, "dev/alive", "offline")
        report = await h.order("T1", "dev.switch", "on")
        assert (report.state, report.reason, commands(h)) == ("accepted", "device_offline", [])
        await h.say(who, "dev/alive", "online")
        await h.say(who, "dev/alive", "offline")
        await h.say(who, "dev/alive", "online")
        assert commands(h) == ["ON"]
        await h.say(who, "dev/state", "ON")
        assert h.tasks.last("T1").state == "completed"


async def test_an_order_that_waits_does_not_become_one_for_a_lock(tmp_path: Path) -> None:
    """It was allowed for a switch; meanwhile a lock was announced on the switch's topic (design D24)."""
    async with house(tmp_path) as h:
        who = await entity(h, "switch", avty_t="dev/alive", uniq_id="s")
        await h.say(who, "dev/alive", "offline")
        assert (await h.order("T1", "dev.switch", "on")).reason == "device_offline"
        lock = {"name": "Lock", "cmd_t": "dev/set", "uniq_id": "l"}
        assert (await h.say(who, "homeassistant/lock/dev/config", lock, retain=True)).acked
        await h.say(who, "dev/alive", "online")
        report = h.tasks.last("T1")
        assert (report.state, report.reason, commands(h)) == ("failed", "high_risk", [])


async def test_an_order_waits_for_an_offline_device_no_longer_than_the_limit(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits({"devices.hold_s": 60})) as h:
        who = await entity(h, "switch", avty_t="dev/alive")
        await h.say(who, "dev/alive", "offline")
        await h.order("T1", "dev.switch", "on")
        h.clock.advance(59_999_999)
        assert h.tasks.last("T1").state == "accepted"
        h.clock.advance(1)
        assert (h.tasks.last("T1").state, h.tasks.last("T1").reason) == ("failed", "device_offline")
        assert h.limits.hits["devices.hold_s"] == 1
        await h.say(who, "dev/alive", "online")
        assert commands(h) == []


async def test_canceling_what_was_not_sent_means_not_sending_it(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, "switch", avty_t="dev/alive")
        await h.say(who, "dev/alive", "offline")
        await h.order("T1", "dev.switch", "on")
        h.gate.cancel(Order(task_id="T1", skill="dev.switch"))
        assert h.tasks.last("T1").state == "canceled"
        await h.say(who, "dev/alive", "online")
        assert commands(h) == []


async def test_a_cover_under_way_can_be_stopped(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await entity(h, "cover")
        await h.order("T1", "dev.cover", "open")
        h.gate.cancel(Order(task_id="T1", skill="dev.cover"))
        assert commands(h) == ["OPEN", "STOP"]
        assert h.tasks.last("T1").state == "canceled"
        h.gate.cancel(Order(task_id="T9", skill="dev.nothing"))


async def test_a_switch_that_was_sent_cannot_be_stopped(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await entity(h, "switch")
        await h.order("T1", "dev.switch", "on")
        h.gate.cancel(Order(task_id="T1", skill="dev.switch"))
        assert h.tasks.of("T1") == []


async def test_a_capability_that_is_withdrawn_ends_what_waits_for_it(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, "switch")
        await h.order("T1", "dev.switch", "on")
        await h.say(who, "homeassistant/switch/dev/config", b"")
        assert (h.tasks.last("T1").state, h.tasks.last("T1").reason) == ("failed", "skill_gone")


async def test_a_replayed_state_confirms_nothing(tmp_path: Path) -> None:
    from edge.contract.bus import Publish

    async with house(tmp_path) as h:
        who = await entity(h, "switch")
        await h.order("T1", "dev.switch", "on")
        h.intake.sink([Publish("dev/state", b"ON", 1, True, who, h.clock.now(), live=False)], lambda error: None)
        await h.settle()
        assert h.tasks.of("T1") == []


async def test_our_own_command_on_a_shared_topic_confirms_nothing(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await entity(h, "switch", stat_t="dev/set")
        await h.order("T1", "dev.switch", "on")
        assert h.tasks.of("T1") == []


# Native devices.


@pytest.mark.seed("S3-023")
async def test_a_native_device_gets_the_whole_task(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await native(h)
        parts = [
            {"kind": "text", "text": "do it"},
            {"kind": "file", "file": {"bytes": "AAAA", "mimeType": "image/png"}},
        ]
        await h.order(
            "T1",
            "dev.work",
            "",
            message_id="m1",
            context_id="c1",
            params=b'{"speed": 3}',
            parts=json.dumps(parts).encode(),
            metadata=b'{"k": "v"}',
            deadline_us=1_767_225_600_000_000,
        )
        (sent,) = h.bus.sent_to("aun/v1/dev/task")
        assert (sent.qos, sent.retain) == (1, False)
        assert json.loads(sent.payload) == {
            "task_id": "T1",
            "message_id": "m1",
            "context_id": "c1",
            "skill": "dev.work",
            "cap": "work",
            "params": {"speed": 3},
            "parts": parts,
            "metadata": {"k": "v"},
            "deadline_ms": 1_767_225_600_000,
        }


async def test_what_a_native_device_says_is_reported_once_each(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        await h.order("T1", "dev.work", "")
        topic = "aun/v1/dev/task/T1/event"
        for event in (
            {"seq": 1, "state": "accepted"},
            {"seq": 2, "state": "working", "message": [{"kind": "text", "text": "half"}]},
            {"seq": 2, "state": "working", "message": [{"kind": "text", "text": "half"}]},
            {"seq": 3, "state": "completed", "artifact": {"id": "r", "parts": [{"kind": "text", "text": "done"}]}},
        ):
            assert (await h.say(who, topic, event)).acked
        assert [(report.state, report.seq, report.device) for report in h.tasks.of("T1")] == [
            ("accepted", 1, "dev"), ("working", 2, "dev"), ("completed", 3, "dev"),
        ]  # fmt: skip
        assert json.loads(h.tasks.last("T1").artifact)["parts"][0]["text"] == "done"


async def test_an_event_that_could_not_be_written_may_come_again(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        await h.order("T1", "dev.work", "")
        h.tasks.refuse = StorageFull()
        topic, event = "aun/v1/dev/task/T1/event", {"seq": 1, "state": "completed"}
        assert (await h.say(who, topic, event)).acked is False
        h.tasks.refuse = None
        assert (await h.say(who, topic, event)).acked
        assert len(h.tasks.of("T1")) == 1


async def test_what_can_never_be_taken_is_acked_in_the_ledger_and_ends_its_task(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        await h.order("T1", "dev.work", "")
        h.tasks.refuse_once = OutputTooLarge()
        event = {"seq": 1, "state": "completed", "artifact": {"parts": []}}
        assert (await h.say(who, "aun/v1/dev/task/T1/event", event)).acked
        assert await h.drops() == {("task", "refused report"): 1}
        assert (h.tasks.last("T1").state, h.tasks.last("T1").reason) == ("failed", "bad_report")
        assert "too large" in text(h, "T1")
        h.tasks.refuse_once = ValueError()
        assert (await h.say(who, "aun/v1/dev/task/T2/event", event)).acked
        assert h.tasks.of("T2") == []


async def test_an_order_that_waited_while_the_capability_changed_ends_with_the_truth(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, "switch", avty_t="dev/alive")
        await h.say(who, "dev/alive", "offline")
        await h.order("T1", "dev.switch", "on")
        read_only = {"name": None, "stat_t": "dev/state", "avty_t": "dev/alive", "dev": DEVICE}
        await h.say(who, "homeassistant/switch/dev/config", read_only)
        await h.say(who, "dev/alive", "online")
        assert (h.tasks.last("T1").state, h.tasks.last("T1").reason) == ("failed", "not_writable")
    async with house(tmp_path) as h:
        await h.say(who, "homeassistant/text/dev/config", {**read_only, "name": "t", "cmd_t": "dev/set"})
        await h.say(who, "dev/alive", "offline")
        await h.order("T2", "dev.t", "set", 'say "hi"')
        quoting = {**read_only, "name": "t", "cmd_t": "dev/set", "cmd_tpl": '{"t": "{{ value }}"}'}
        await h.say(who, "homeassistant/text/dev/config", quoting)
        await h.say(who, "dev/alive", "online")
        assert (h.tasks.last("T2").state, h.tasks.last("T2").reason) == ("failed", "invalid_params")


async def test_a_device_cannot_speak_of_anothers_task(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await native(h)
        await h.order("T1", "dev.work", "")
        other = await h.add("other")
        await h.say(other, "aun/v1/other/announce", {"skills": [{"name": "work"}]})
        assert (await h.say(other, "aun/v1/other/task/T1/event", {"seq": 1, "state": "completed"})).acked
        assert h.tasks.of("T1") == []
        assert h.registry.counters["event of another's task"] == 1
        assert await h.drops() == {("task", "another's task"): 1}


async def test_a_question_is_answered_and_a_cancel_is_passed_on(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        await h.order("T1", "dev.work", "")
        h.gate.answer("T1", "dev.work", b'[{"kind":"text","text":"blue"}]')
        h.gate.cancel(Order(task_id="T1", skill="dev.work"))
        sent = {message.topic: json.loads(message.payload) for message in h.bus.sent}
        assert sent["aun/v1/dev/task/T1/input"] == {"task_id": "T1", "parts": [{"kind": "text", "text": "blue"}]}
        assert sent["aun/v1/dev/task/T1/cancel"] == {"task_id": "T1"}
        assert h.tasks.of("T1") == [], "it is canceled when the device says so"
        await h.say(who, "aun/v1/dev/task/T1/event", {"seq": 1, "state": "canceled"})
        assert h.tasks.last("T1").state == "canceled"
        h.gate.answer("T1", "dev.nothing", b"[]")


async def test_a_task_that_a_sleeping_native_device_never_heard_is_sent_again_when_it_wakes(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await native(h)
        await h.order("T1", "dev.work", "")
        await h.say(who, "aun/v1/dev/online", "1")
        assert len(h.bus.sent_to("aun/v1/dev/task")) == 2
        await h.say(who, "aun/v1/dev/task/T1/event", {"seq": 1, "state": "accepted"})
        await h.say(who, "aun/v1/dev/online", "0")
        await h.say(who, "aun/v1/dev/online", "1")
        assert len(h.bus.sent_to("aun/v1/dev/task")) == 2


async def test_a_writable_value_of_a_native_device_arrives_as_a_task(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        capability = {"name": "level", "value_type": "number", "min": 0, "max": 9, "writable": True}
        who = await native(h, capabilities=[capability])
        with pytest.raises(InvalidParams, match="0…9"):
            await h.order("T1", "dev.level", "set", 10)
        await h.order("T1", "dev.level", "set", 5, params=b'{"value": "5", "slowly": true}')
        params = [json.loads(sent.payload)["params"] for sent in h.bus.sent_to("aun/v1/dev/task")]
        assert params == [{"value": 5, "slowly": True}], "the value as it was understood"
        await h.say(who, "aun/v1/dev/state/level", "5")
        assert h.tasks.of("T1") == [], "a native device says itself when it is done"
        assert (await h.order("T2", "dev.level", "read")).state == "completed"


async def test_a_verb_for_a_native_device_is_among_its_params(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await native(h, capabilities=[{"name": "lamp", "value_type": "boolean", "writable": True}])
        for task_id, verb in (("T1", "on"), ("T2", "toggle")):
            await h.order(task_id, "dev.lamp", verb)
        params = [json.loads(sent.payload)["params"] for sent in h.bus.sent_to("aun/v1/dev/task")]
        assert params == [{"verb": "on"}, {"verb": "toggle"}]


async def test_an_order_of_which_nothing_more_is_heard_is_forgotten_by_the_gate(tmp_path: Path) -> None:
    limits = Limits({"devices.hold_s": 100, "devices.open_orders": 1})
    async with house(tmp_path, limits=limits) as h:
        await native(h)
        await h.order("T1", "dev.work", "")
        assert (await h.order("T2", "dev.work", "")).reason == "busy"
        h.gate.cancel(Order(task_id="T1", skill="dev.work"))
        h.clock.advance(60_000_000)
        assert (await h.order("T3", "dev.work", "")).state == "none"
        h.clock.advance(100_000_000)
        assert (await h.order("T4", "dev.work", "")).state == "none"


# Reports that the store refuses.


async def test_a_report_of_the_nodes_own_is_tried_again_while_the_store_refuses(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await entity(h, "switch")
        await h.order("T1", "dev.switch", "on")
        h.tasks.refuse = StorageFull()
        await h.say(who, "dev/state", "ON")
        h.clock.advance(5_000_000)
        assert h.tasks.of("T1") == []
        h.tasks.refuse = None
        h.clock.advance(1_000_000)
        assert [report.state for report in h.tasks.of("T1")] == ["completed"]


@pytest.mark.limit("devices.report_tries")
async def test_a_report_is_tried_so_often_and_no_more(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits({"devices.report_tries": 3})) as h:
        await entity(h, "button", stat_t=None)
        for task_id, seconds, told in (("T1", 2, 1), ("T2", 3, 0)):
            h.tasks.refuse = StorageFull()
            h.gate.deliver(Order(task_id=task_id, skill="dev.button", verb="press"))
            h.clock.advance(seconds * 1_000_000)
            h.tasks.refuse = None
            h.clock.advance(1_000_000)
            assert len(h.tasks.of(task_id)) == told
            assert h.limits.hits.get("devices.report_tries", 0) == 1 - told


@pytest.mark.parametrize(("error", "lost"), [(StorageFull(), 1), (TaskTerminal(), 0)])
async def test_a_report_is_given_up_in_the_end_and_counted(tmp_path: Path, error: EdgeError, lost: int) -> None:
    async with house(tmp_path) as h:
        await entity(h, "button", stat_t=None)
        h.tasks.refuse = error
        h.gate.deliver(Order(task_id="T1", skill="dev.button", verb="press"))
        h.clock.advance(70_000_000)
        assert h.registry.counters["reports lost"] == lost
        await h.node.ping()
        assert await h.drops() == ({("task", "report lost"): 1} if lost else {})


async def test_a_report_that_is_given_up_on_a_full_disk_is_declared_once_there_is_room(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await entity(h, "button", stat_t=None)
        h.tasks.refuse = StorageFull()
        h.gate.deliver(Order(task_id="T1", skill="dev.button", verb="press"))
        h.clock.advance(58_000_000)
        await _room(h, pages=1)
        with pytest.raises(StorageFull):
            await h.node.commit(lambda unit: unit.append("x", "x", [b"x" * 50_000]))
        for _ in range(4):
            h.clock.advance(1_000_000)
            await h.node.ping()
        assert h.registry.counters["reports lost"] == 1
        assert (h.node.read_only, await h.drops()) == (True, {})
        await _room(h, pages=100_000)
        for _ in range(10):
            h.clock.advance(1_000_000)
            await h.node.ping()
        assert await h.drops() == {("task", "report lost"): 1}


async def _room(h: House, pages: int) -> None:
    """Let node.db have this many pages; those it has already stay."""
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    h.node.control(lambda writer: writer.conn.execute(f"PRAGMA max_page_count = {pages}").fetchall(), future.set_result)
    await future


async def test_the_gate_lists_what_the_registry_has(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await entity(h, "switch")
        assert h.gate.skills() == h.registry.skills()
        assert h.gate.skill("dev.switch") == h.gate.skills()[0]
        assert h.gate.skill("dev.nothing") is None
