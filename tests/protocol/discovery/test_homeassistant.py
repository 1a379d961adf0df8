from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.discovery.homeassistant import address, hardware, parse
from edge.protocol.discovery.record import Bounds, Component, Found, Refusal, Refused

SENSOR = "homeassistant/sensor/balcony-17_h/config"
BALCONY = {"ids": ["balcony-17"], "name": "Balcony", "mf": "Acme", "mdl": "BX", "sw": "1.4"}


def found(payload: dict[str, Any], topic: str = SENSOR, **more: Any) -> Found:
    made = parse(topic, json.dumps(payload).encode(), **more)
    assert made is not None
    return made


def one(payload: dict[str, Any], topic: str = SENSOR) -> Component:
    (component,) = found(payload, topic).components
    return component


def test_a_single_component_with_full_keys() -> None:
    made = found(
        {
            "name": "Humidity",
            "unique_id": "balcony-17_h",
            "device_class": "humidity",
            "state_class": "measurement",
            "unit_of_measurement": "%",
            "state_topic": "balcony/17/state",
            "value_template": "{{ value_json.rh }}",
            "availability_topic": "balcony/17/alive",
            "device": {"identifiers": ["balcony-17"], "name": "Balcony", "manufacturer": "Acme", "model": "BX"},
        }
    )
    (component,) = made.components
    assert (component.cap.name, component.cap.kind, component.cap.value_type) == ("humidity", "sensor", "number")
    assert component.cap.unit == "%"
    assert component.uid == "sensor:balcony-17_h"
    assert component.reader is not None
    assert component.reader.topic == "balcony/17/state"
    assert component.availability.topics[0].topic == "balcony/17/alive"
    assert (made.device.name, made.device.maker, made.device.model) == ("Balcony", "Acme", "BX")
    assert made.device.ids == ("id:balcony-17",)
    assert component.topics() == (["balcony/17/state", "balcony/17/alive"], [])


def test_the_device_based_form_shares_topics_and_keeps_its_components_apart() -> None:
    made = found(
        {
            "dev": BALCONY,
            "o": {"name": "acme2mqtt", "sw": "3.1", "url": "https://example.org/help"},
            "cmps": {
                "t": {
                    "p": "sensor",
                    "dev_cla": "temperature",
                    "unit_of_meas": "°C",
                    "val_tpl": "{{ value_json.t }}",
                    "uniq_id": "balcony-17_t",
                },
                "fan": {
                    "p": "switch",
                    "cmd_t": "balcony/17/fan/set",
                    "val_tpl": "{{ value_json.fan }}",
                    "uniq_id": "balcony-17_fan",
                },
                "old": {"p": "sensor"},
            },
            "stat_t": "balcony/17/state",
            "avty_t": "balcony/17/alive",
            "qos": 1,
        },
        "homeassistant/device/balcony-17/config",
    )
    temperature, fan = made.components
    assert made.refused == ()
    assert temperature.reader is not None
    assert fan.reader is not None
    assert fan.writer is not None
    assert temperature.reader.topic == fan.reader.topic == "balcony/17/state"
    assert (fan.writer.topic, fan.writer.qos) == ("balcony/17/fan/set", 1)
    assert temperature.availability == fan.availability
    assert made.device.version == "1.4"


def test_a_component_that_is_only_its_platform_is_not_there_any_more() -> None:
    payload = {"dev": BALCONY, "cmps": {"t": {"p": "sensor"}}}
    assert found(payload, "homeassistant/device/b/config").components == ()


def test_what_is_wrong_with_one_component_does_not_touch_the_others() -> None:
    made = found(
        {
            "dev": BALCONY,
            "cmps": {
                "good": {"p": "sensor", "stat_t": "b/s", "uniq_id": "g"},
                "text": "x",
                "nothing": {"name": "no platform"},
                "camera": {"p": "camera", "t": "b/c"},
                "empty": {"p": "sensor", "name": "no topic"},
                "wild": {"p": "sensor", "stat_t": "b/#"},
            },
        },
        "homeassistant/device/b/config",
    )
    assert [component.uid for component in made.components] == ["sensor:g"]
    assert {refused.component: refused.reason for refused in made.refused} == {
        "text": "malformed",
        "nothing": "incomplete",
        "camera": "unsupported",
        "empty": "incomplete",
        "wild": "bad topic",
    }


def test_a_component_without_unique_id_is_known_by_its_discovery_key() -> None:
    made = found({"dev": BALCONY, "cmps": {"t": {"p": "sensor", "stat_t": "b/s"}}}, "homeassistant/device/b/config")
    assert made.components[0].uid == "sensor b t"
    assert one({"stat_t": "b/s"}, "homeassistant/sensor/node/object/config").uid == "sensor node object"


@pytest.mark.parametrize("key", ["migrate_discovery", "migr_discvry"])
def test_a_migration_notice_is_no_config(key: str) -> None:
    assert parse(SENSOR, json.dumps({key: True}).encode()) is None


@pytest.mark.parametrize(
    ("payload", "topics"),
    [
        ({"~": "pump/3", "stat_t": "~/s", "cmd_t": "~/set"}, ("pump/3/s", "pump/3/set")),
        ({"~": "pump/3", "stat_t": "state/~", "cmd_t": "x"}, ("state/pump/3", "x")),
        ({"~": "pump/3", "stat_t": "a~b", "cmd_t": "x"}, ("a~b", "x")),
        ({"~": 3, "stat_t": "~/s", "cmd_t": "x"}, ("~/s", "x")),
    ],
)
def test_the_base_topic_stands_for_one_tilde_at_either_end(payload: dict[str, Any], topics: tuple[str, str]) -> None:
    component = one(payload, "homeassistant/switch/pump/config")
    assert component.reader is not None
    assert component.writer is not None
    assert (component.reader.topic, component.writer.topic) == topics


def test_the_base_topic_reaches_availability_entries_and_not_the_components_of_a_device() -> None:
    component = one({"~": "pump/3", "stat_t": "~/s", "avty": [{"t": "~/alive"}]})
    assert component.availability.topics[0].topic == "pump/3/alive"
    made = found(
        {"~": "pump", "dev": BALCONY, "cmps": {"a": {"p": "sensor", "stat_t": "~/s"}}}, "homeassistant/device/b/config"
    )
    assert made.components[0].reader is not None
    assert made.components[0].reader.topic == "~/s"


def test_abbreviations_expand_in_every_place_and_only_there() -> None:
    made = found(
        {
            "stat_t": "b/s",
            "dev": {"ids": "x1", "cns": [["mac", "AA:BB:cc:00:11:22"], ["alone"], "x"], "sw": "2.0", "hw": "B"},
            "avty": [{"t": "b/a", "pl_avail": "up", "pl_not_avail": "down", "val_tpl": "{{ value_json.s }}"}],
            "avty_mode": "all",
            "o": {"name": "x", "sw": "1"},
        }
    )
    (component,) = made.components
    (presence,) = component.availability.topics
    assert (presence.topic, presence.online, presence.offline) == ("b/a", "up", "down")
    assert presence.template is not None
    assert component.availability.mode == "all"
    assert made.device.ids == ("mac:aabbcc001122", "id:x1")
    assert made.device.version == "2.0"


def test_a_long_key_wins_over_its_short_form() -> None:
    component = one({"stat_t": "short", "state_topic": "long"})
    assert component.reader is not None
    assert component.reader.topic == "long"


@pytest.mark.parametrize("identifiers", ["x1", ["x1"], [["nested"], "x1"]])
def test_identifiers_are_a_text_or_a_list(identifiers: object) -> None:
    assert found({"stat_t": "b/s", "device": {"identifiers": identifiers}}).device.ids == ("id:x1",)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"not json", "malformed"),
        (b"[]", "malformed"),
        (b'{"stat_t": "b/s", "dev": {"name": "no ids"}}', "incomplete"),
        (b'{"stat_t": "b/s", "dev": "x"}', "malformed"),
        (b'{"stat_t": "b/s", "avty_t": "a", "avty": [{"t": "b"}]}', "bad field"),
        (b'{"stat_t": "b/s", "avty": ["b"]}', "bad field"),
        (b'{"stat_t": "b/s", "avty": [{"pl_avail": "x"}]}', "bad field"),
        (b'{"stat_t": "b/s", "avty_t": "a", "avty_mode": "most"}', "bad field"),
        (b'{"stat_t": "b/+/s"}', "bad topic"),
        (b'{"stat_t": "$SYS/x"}', "bad topic"),
        (b'{"stat_t": 7}', "bad topic"),
        (b'{"stat_t": "b/s", "exp_aft": "soon"}', "bad field"),
        (b'{"stat_t": "b/s", "unit_of_meas": {"a": 1}}', "bad field"),
        (b'{"stat_t": "b/s", "ops": "on"}', "bad field"),
        (b'{"name": "no topic"}', "incomplete"),
        (b'{"a":' * 20 + b"1" + b"}" * 20, "too deep"),
    ],
)
def test_a_payload_that_cannot_be_taken_says_why(payload: bytes, reason: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse(SENSOR, payload)
    assert caught.value.reason == reason
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "payload",
    [{"dev": BALCONY}, {"cmps": {}}, {"dev": BALCONY, "cmps": []}, {"dev": {"name": "x"}, "cmps": {}}],
)
def test_the_device_based_form_needs_a_device_and_components(payload: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as caught:
        found(payload, "homeassistant/device/b/config")
    assert caught.value.reason == "incomplete"


def test_a_payload_at_the_limit_is_taken_and_one_byte_over_is_not() -> None:
    payload = json.dumps({"stat_t": "b/s"}).encode()
    assert parse(SENSOR, payload, bounds=Bounds(octets=len(payload))) is not None
    with pytest.raises(Refusal) as caught:
        parse(SENSOR, payload, bounds=Bounds(octets=len(payload) - 1))
    assert caught.value.reason == "too large"


def test_components_up_to_the_limit_are_taken_and_one_more_is_not() -> None:
    def payload(count: int) -> bytes:
        parts = {f"c{n}": {"p": "sensor", "stat_t": "b/s"} for n in range(count)}
        return json.dumps({"dev": BALCONY, "cmps": parts}).encode()

    bounds = Bounds(components=3)
    made = parse("homeassistant/device/b/config", payload(3), bounds=bounds)
    assert made is not None
    assert len(made.components) == 3
    with pytest.raises(Refusal) as caught:
        parse("homeassistant/device/b/config", payload(4), bounds=bounds)
    assert caught.value.reason == "too many components"


def test_options_up_to_the_limit_are_taken_and_one_more_is_not() -> None:
    def payload(count: int) -> bytes:
        return json.dumps({"cmd_t": "b/set", "ops": [str(n) for n in range(count)]}).encode()

    topic = "homeassistant/select/b/config"
    assert parse(topic, payload(3), bounds=Bounds(options=3)) is not None
    with pytest.raises(Refusal) as caught:
        parse(topic, payload(4), bounds=Bounds(options=3))
    assert caught.value.reason == "too many options"


def test_an_unsupported_template_keeps_the_raw_text_and_says_so() -> None:
    component = one({"stat_t": "b/s", "unit_of_meas": "°C", "val_tpl": "{% if true %}1{% endif %}"})
    assert component.cap.value_type == "text"
    assert component.reader is not None
    assert component.reader.template is None
    assert "value_template" in component.unsupported[0]
    component = one({"stat_t": "b/s", "val_tpl": 7})
    assert component.unsupported == ("value_template: not a text",)


def test_an_unsupported_command_template_leaves_a_capability_that_is_only_read() -> None:
    component = one({"stat_t": "b/s", "cmd_t": "b/set", "cmd_tpl": "{{ value * 2 }}"}, "homeassistant/number/b/config")
    assert not component.cap.writable
    assert component.writer is None
    assert "command_template" in component.unsupported[0]


def test_an_unsupported_availability_template_is_told() -> None:
    component = one({"stat_t": "b/s", "avty_t": "b/a", "avty_tpl": "{{ now() }}"})
    assert component.availability.topics[0].template is None
    assert component.unsupported[0].startswith("availability")


def test_what_components_share_is_told_of_each_of_them() -> None:
    listed = [{"t": "b/alive", "val_tpl": "{% for x in y %}{% endfor %}"}]
    parts = {name: {"p": "sensor", "stat_t": f"b/{name}", "uniq_id": name} for name in ("one", "two")}
    first, second = found({"dev": BALCONY, "cmps": parts, "avty": listed}, "homeassistant/device/b/config").components
    assert first.availability == second.availability
    assert first.availability.topics[0].topic == "b/alive"
    assert first.unsupported == second.unsupported != ()


def test_a_payload_that_is_no_text_is_not_read() -> None:
    with pytest.raises(Refusal):
        one({"stat_t": "b/s", "e": ""})


@pytest.mark.parametrize(
    ("topic", "place"),
    [
        ("homeassistant/sensor/a/config", ("sensor", "a")),
        ("homeassistant/sensor/n/a_1-b/config", ("sensor", "n a_1-b")),
        ("homeassistant/device/x/config", ("device", "x")),
        ("homeassistant/status", None),
        ("homeassistant/sensor/a/state", None),
        ("homeassistant/sensor/a/b/c/config", None),
        ("homeassistant/sensor/config", None),
        ("elsewhere/sensor/a/config", None),
        ("homeassistant2/sensor/a/config", None),
    ],
)
def test_a_config_topic_is_recognised(topic: str, place: tuple[str, str] | None) -> None:
    assert address(topic) == place


def test_another_prefix_may_have_levels() -> None:
    assert address("my/ha/sensor/a/config", "my/ha") == ("sensor", "a")
    assert found({"stat_t": "b/s"}, "my/ha/sensor/a/config", prefix="my/ha").components
    with pytest.raises(Refusal):
        parse("elsewhere", b"{}")


@pytest.mark.parametrize("topic", ["homeassistant/sensor/a b/config", "homeassistant/sensor/ä/config"])
def test_an_illegal_object_id_is_refused(topic: str) -> None:
    with pytest.raises(Refusal) as caught:
        address(topic)
    assert caught.value.reason == "bad id"


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        ({"name": "Wind Speed", "stat_t": "s"}, "wind_speed"),
        ({"name": None, "stat_t": "s"}, "sensor"),
        ({"name": None, "dev_cla": "temperature", "stat_t": "s"}, "temperature"),
        ({"dev_cla": "humidity", "stat_t": "s"}, "humidity"),
        ({"stat_t": "s"}, "balcony_17_h"),
        ({"name": "温度", "stat_t": "s"}, "balcony_17_h"),
    ],
)
def test_a_capability_is_named_after_what_is_said_of_it(payload: dict[str, Any], name: str) -> None:
    assert one(payload).cap.name == name


def test_a_device_without_an_id_is_known_by_its_place() -> None:
    assert found({"stat_t": "s"}, "homeassistant/sensor/node/thing/config").device.hints == ("thing", "node")
    assert found({"stat_t": "s", "dev": {"ids": ["x"], "name": "温度计"}}).device.hints[0] == "x"


def test_hardware_ids_have_one_spelling() -> None:
    assert hardware("mac", "AA:BB-cc 00") == "mac:aabbcc00"
    assert hardware("upnp", "uuid:X") == "upnp:uuid:X"
    assert hardware("", "X") == "id:X"
    assert hardware("AUN", "other-device") == "said_aun:other-device", "nobody names a native device by a connection"


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["dev", "cmps", "stat_t", "avty", "p", "~", "ids", "cns", "ops", "name", "t", "val_tpl", "x"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode())
)
def test_whatever_is_announced_is_found_or_refused(payload: bytes) -> None:
    for topic in (SENSOR, "homeassistant/device/b/config", "homeassistant/climate/b/config"):
        try:
            made = parse(topic, payload)
        except Refusal:
            continue
        assert made is None or all(isinstance(refused, Refused) for refused in made.refused)
