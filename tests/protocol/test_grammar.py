from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.contract.errors import InvalidParams
from edge.protocol import grammar
from edge.protocol.grammar import Reading, aim, default, question, read
from tests.support.tasks import BELL, DIMMER, DOOR, LAMP, ROBOT, THERMOMETER, skill

MODE = skill("fan", "mode", "select", options=("Auto", "Night sleep"), verbs=("read",), writable=True)
SHADE = skill(
    "shade", "cover", "cover", options=("open", "close", "stop"), verbs=("open", "close", "stop"), writable=True
)
NAME = skill("sign", "label", "text", value_type="text", writable=True)
PUMP = skill("pump", "run", "switch", value_type="boolean", verbs=("on", "off"), writable=True, readable=False)
LIGHT = msgspec.structs.replace(
    skill("tai-deng", "power", "switch", value_type="boolean", verbs=("on", "off", "toggle"), writable=True),
    device_name="台灯",
)
HUMID = skill("thermo", "humidity", "sensor", value_type="number", unit="%", value=40)
HOUSE = [THERMOMETER, HUMID, LAMP, DIMMER, BELL, DOOR, MODE, SHADE, NAME, PUMP, LIGHT]


def text(value: str) -> list[dict[str, Any]]:
    return [{"kind": "text", "text": value}]


def data(value: Any) -> list[dict[str, Any]]:
    return [{"kind": "data", "data": value}]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("thermo.temperature read", Reading(THERMOMETER.id, "read")),
        ("thermo.temperature", Reading(THERMOMETER.id, "read")),
        ("Thermo Temperature: read", Reading(THERMOMETER.id, "read")),
        ("read the temperature", Reading(THERMOMETER.id, "read")),
        ("temperature?", Reading(THERMOMETER.id, "read")),
        ("turn on the lamp", Reading(LAMP.id, "on")),
        ("lamp on", Reading(LAMP.id, "on")),
        ("LAMP  OFF!", Reading(LAMP.id, "off")),
        ("lamp power toggle", Reading(LAMP.id, "toggle")),
        ("lamp power true", Reading(LAMP.id, "set", True)),
        ("lamp 40", Reading(DIMMER.id, "set", 40)),
        ("lamp brightness 40.5 %", Reading(DIMMER.id, "set", 40.5)),
        ("lamp.brightness = 40", Reading(DIMMER.id, "set", 40)),
        ("brightness set to 40%", Reading(DIMMER.id, "set", 40)),
        ("d-bell.edge.test press", Reading(BELL.id, "press")),
        ("door unlock", Reading(DOOR.id, "unlock")),
        ("fan mode night sleep", Reading(MODE.id, "set", "Night sleep")),
        ("close shade", Reading(SHADE.id, "close")),
        ("sign set Hello You", Reading(NAME.id, "set", "Hello You")),
        ("set Hello! sign", Reading(NAME.id, "set", "Hello")),
        ("sign 设为你好", Reading(NAME.id, "set", "你好")),
        ("台灯打开", Reading(LIGHT.id, "on")),
        ("打开台灯", Reading(LIGHT.id, "on")),
        ("台灯 关", Reading(LIGHT.id, "off")),
        ("切换台灯。", Reading(LIGHT.id, "toggle")),
        ("ｌａｍｐ　ｏｎ", Reading(LAMP.id, "on")),
        ("lamp brightness 设为 30", Reading(DIMMER.id, "set", 30)),
    ],
)
def test_the_grammar_reads(line: str, expected: Reading) -> None:
    assert read(line, HOUSE) == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "lamps on",
        "blamp on",
        "lamp brightness 101",
        "lamp brightness -1",
        "lamp brightness bright",
        "lamp brightness 1e1",
        "lamp maybe",
        "thermo read",
        "thermo on",
        "thermo.temperature 30",
        "fan mode Turbo",
        "sign hello",
        "door 5",
        "bell",
        "pump read",
        "lamp power yes please",
    ],
)
def test_what_is_not_in_the_grammar_is_no_call(line: str) -> None:
    assert read(line, HOUSE) is None


def test_a_word_for_two_verbs_of_one_skill_is_no_call() -> None:
    both = skill("gate", "drive", "cover", verbs=("on", "open"), writable=True, readable=False)
    assert read("打开gate", [both]) is None
    assert read("gate open", [both]) == Reading(both.id, "open")


def test_names_are_as_long_as_they_can_be() -> None:
    hall = skill("hall lamp", "power", "switch", value_type="boolean", verbs=("on",), writable=True)
    assert read("hall lamp on", [LAMP, hall]) == Reading(hall.id, "on")
    assert read("lamp on", [LAMP, hall]) == Reading(LAMP.id, "on")


@given(st.text(max_size=60))
def test_any_text_is_read_or_is_no_call(line: str) -> None:
    found = read(line, HOUSE)
    assert found is None or found.skill in {one.id for one in HOUSE}


@given(st.sampled_from(HOUSE), st.data())
def test_every_word_that_the_card_offers_is_understood(one: Any, chosen: st.DataObject) -> None:
    words = [word for word in grammar.usage(one.cap) if not word.startswith(("<", "set"))]
    word = chosen.draw(st.sampled_from(sorted(words) or ["set x"]))
    found = read(f"{one.id} {word}", HOUSE)
    assert found is not None
    assert found.skill == one.id


# Aims.


def test_a_skill_in_a_data_part_or_in_the_metadata_is_taken_at_its_word() -> None:
    call = {"skill": DIMMER.id, "params": {"value": 40}}
    for found in (aim(data(call), {}, HOUSE), aim(text("do it"), call, HOUSE)):
        assert found is not None
        assert (found.skill, found.verb, found.value, found.params) == (DIMMER.id, "set", 40, {"value": 40})
    assert aim(data({"note": 1}) + data(call), {}, HOUSE) == aim(data(call), {}, HOUSE)


@pytest.mark.parametrize(
    ("params", "verb", "value"),
    [
        (None, "read", None),
        ({}, "read", None),
        ({"value": "read"}, "read", None),
        ({"value": "on"}, "on", None),
        ({"verb": "off"}, "off", None),
        ({"action": "toggle"}, "toggle", None),
        ({"value": True}, "set", True),
        ({"verb": "set", "value": False}, "set", False),
        ({"value": "loud"}, "set", "loud"),
    ],
)
def test_params_say_a_verb_or_a_value(params: Any, verb: str, value: Any) -> None:
    found = aim(data({"skill": LAMP.id, "params": params}), {}, HOUSE)
    assert found is not None
    assert (found.verb, found.value) == (verb, value)
    assert found.repeat_safe is True


@pytest.mark.parametrize(
    ("call", "text_"),
    [
        ({"skill": "lamp.colour"}, "no skill 'lamp.colour' here; skills: thermo.temperature"),
        ({"skill": 7}, "skill must be a string"),
        ({"skill": LAMP.id, "params": [1]}, "params an object"),
        ({"skill": LAMP.id, "params": {"verb": 1}}, r"params\.verb must be a string"),
        ({"skill": LAMP.id, "params": {"verb": "explode"}}, "does not take 'explode'; it takes: off, on, read, toggle"),
        ({"skill": THERMOMETER.id, "params": {"value": 30}}, "does not take 'set'"),
        ({"skill": THERMOMETER.id, "params": {"value": "on"}}, "does not take 'on'; it takes: read"),
        ({"skill": BELL.id}, "does not take 'read'"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused_with_what_would(call: Any, text_: str) -> None:
    with pytest.raises(InvalidParams, match=text_):
        aim(data(call), {}, HOUSE)


def test_where_there_is_no_skill_the_refusal_says_so() -> None:
    with pytest.raises(InvalidParams, match="none yet"):
        aim(data({"skill": "x"}), {}, [])


def test_a_text_that_reads_is_an_aim_with_its_params() -> None:
    found = aim(text("lamp 40"), {}, HOUSE)
    assert found is not None
    assert (found.skill, found.params, found.repeat_safe) == (DIMMER.id, {"value": 40}, False)
    found = aim(text("lamp on"), {}, HOUSE)
    assert found is not None
    assert found.params == {"verb": "on"}


def test_a_message_without_a_skill_means_the_default_or_nothing() -> None:
    assert aim(text("how warm is it?"), {}, HOUSE) is None
    only = aim(text("how warm is it?"), {}, [THERMOMETER])
    assert only is not None
    assert (only.skill, only.verb) == (THERMOMETER.id, "read")
    declared = aim(text("hm?"), {}, HOUSE, THERMOMETER.id)
    assert declared == only
    assert aim(text("off"), {}, [LAMP]) == aim(text("lamp off"), {}, [LAMP])
    assert aim(text("do something"), {}, [LAMP]) is None
    assert default(HOUSE, "gone") is None
    assert default([LAMP], "gone") == LAMP


def test_a_free_text_for_a_settled_skill_keeps_its_letters() -> None:
    assert grammar.about("set Good Morning", NAME) == Reading(NAME.id, "set", "Good Morning")


def test_a_native_skill_hears_what_no_grammar_reads() -> None:
    found = aim(text("robot the kitchen, twice"), {}, [*HOUSE, ROBOT])
    assert found is not None
    assert (found.skill, found.verb, found.native, found.cancellable, found.params) == (ROBOT.id, "", True, True, {})
    assert aim(text("the kitchen"), {}, [ROBOT]) == found
    assert aim(text("the kitchen"), {}, [*HOUSE, ROBOT]) is None
    other = msgspec.structs.replace(ROBOT, id="robot.mow")
    assert aim(text("robot the kitchen"), {}, [ROBOT, other]) is None
    named = aim(data({"skill": ROBOT.id, "params": {"room": 1}}), {}, [ROBOT])
    assert named is not None
    assert (named.verb, named.params) == ("", {"room": 1})
    sensor = skill("native", "level", "sensor", value_type="number", native=True)
    reading = aim(data({"skill": sensor.id}), {}, [sensor])
    assert reading is not None
    assert reading.verb == "read"


def test_the_question_lists_what_there_is() -> None:
    said, listed = question([LAMP, DIMMER, SHADE, NAME])
    assert "lamp.power: off, on, read, toggle" in said["text"]
    assert "lamp.brightness: <0…100 %>, read" in said["text"]
    assert listed["data"]["skills"][2] == {
        "id": SHADE.id,
        "name": "shade cover",
        "accepts": ["close", "open", "read", "stop"],
    }
    assert listed["data"]["skills"][3]["accepts"] == ["read", "set <value>"]
    assert question([])[0]["text"] == "There is no skill here yet."
    many = [skill(f"d{number}", "power", "switch") for number in range(60)]
    said, listed = question(many)
    assert said["text"].endswith("… and 10 more")
    assert len(listed["data"]["skills"]) == 50
    free = skill("x", "level", "number", value_type="number", writable=True)
    assert "<…>" in grammar.usage(free.cap)
