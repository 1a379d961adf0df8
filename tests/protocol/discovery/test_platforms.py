from __future__ import annotations

import json
from typing import Any

import pytest

from edge.contract.wire import JsonLimits
from edge.protocol.discovery.homeassistant import parse
from edge.protocol.discovery.platforms import PLATFORMS
from edge.protocol.discovery.record import Component, Payload, Refusal, read, write
from edge.protocol.discovery.template import NO_SAMPLE


def parts(platform: str, **payload: Any) -> dict[str, Component]:
    """The capabilities of an entity by name; its own is ``."""
    made = parse(f"homeassistant/{platform}/x/config", json.dumps({"name": "X", **payload}).encode())
    assert made is not None
    return {component.cap.name.removeprefix("x").lstrip("_"): component for component in made.components}


def said(component: Component, payload: object) -> object:
    assert component.reader is not None
    raw = payload if isinstance(payload, str) else json.dumps(payload)
    return read(component.reader, Payload(raw.encode(), JsonLimits()))


def ordered(component: Component, value: Any) -> str:
    assert component.writer is not None
    return write(component.writer, value).decode()


def test_a_sensor_is_numeric_when_its_unit_class_or_state_class_says_so() -> None:
    for extra in ({"unit_of_meas": "W"}, {"stat_cla": "measurement"}, {"dev_cla": "power"}):
        assert parts("sensor", stat_t="s", **extra)[""].cap.value_type == "number"
    assert parts("sensor", stat_t="s")[""].cap.value_type == "text"
    assert parts("sensor", stat_t="s", dev_cla="timestamp")[""].cap.value_type == "text"
    enum = parts("sensor", stat_t="s", dev_cla="enum", ops=["a", "b"])[""]
    assert (enum.cap.value_type, enum.cap.options) == ("text", ("a", "b"))


def test_a_sensor_may_expire_and_may_count_every_message() -> None:
    component = parts("sensor", stat_t="s", exp_aft=30, frc_upd=True)[""]
    assert (component.expire_s, component.cap.history) == (30, "every")
    assert component.cap.traffic == "telemetry"


def test_a_binary_sensor_is_true_false_or_nothing() -> None:
    component = parts("binary_sensor", stat_t="s", dev_cla="smoke", off_dly=5)[""]
    assert (said(component, "ON"), said(component, "OFF"), said(component, "?")) == (True, False, NO_SAMPLE)
    assert (component.off_delay_s, component.cap.traffic) == (5, "alarm")
    assert not component.cap.writable
    own = parts("binary_sensor", stat_t="s", pl_on="1", pl_off="0")[""]
    assert (said(own, "1"), said(own, "ON")) == (True, NO_SAMPLE)
    assert own.cap.traffic == "state"
    by_json = parts("binary_sensor", stat_t="s", pl_on=True, pl_off=False, val_tpl="{{ value_json.motion }}")[""]
    assert said(by_json, {"motion": True}) is True


def test_a_switch_has_words_both_ways() -> None:
    component = parts("switch", stat_t="s", cmd_t="c", ret=True, qos=2)[""]
    assert component.cap.verbs == ("on", "off", "toggle")
    assert component.cap.repeat_safe
    assert component.writer is not None
    assert (component.writer.retain, component.writer.qos) == (True, 1)
    assert (ordered(component, True), ordered(component, False)) == ("ON", "OFF")
    other = parts("switch", stat_t="s", cmd_t="c", pl_on="1", pl_off="0", stat_on="running", stat_off="idle")[""]
    assert (ordered(other, True), said(other, "running"), said(other, "1")) == ("1", True, NO_SAMPLE)
    with pytest.raises(Refusal):
        ordered(other, "dim")


def test_a_switch_without_state_is_not_readable() -> None:
    component = parts("switch", cmd_t="c")[""]
    assert not component.cap.readable
    assert component.cap.writable


def test_a_number_has_a_range() -> None:
    component = parts("number", stat_t="s", cmd_t="c", min=-5, max=5, step=0.5, unit_of_meas="V")[""]
    assert (component.cap.minimum, component.cap.maximum, component.cap.step) == (-5, 5, 0.5)
    assert (ordered(component, 2.0), ordered(component, 2.5), said(component, "1.5")) == ("2", "2.5", 1.5)
    assert (parts("number", cmd_t="c")[""].cap.minimum, parts("number", cmd_t="c")[""].cap.maximum) == (1, 100)


def test_a_select_takes_its_options() -> None:
    component = parts("select", stat_t="s", cmd_t="c", ops=["eco", "full"])[""]
    assert component.cap.options == ("eco", "full")
    assert ordered(component, "eco") == "eco"


def test_a_text_has_a_length() -> None:
    component = parts("text", stat_t="s", cmd_t="c", max=10)[""]
    assert (component.cap.minimum, component.cap.maximum) == (0, 10)


def test_a_button_a_scene_and_a_notice_only_take_orders() -> None:
    button = parts("button", cmd_t="c")[""]
    assert (button.cap.readable, button.cap.value_type, button.cap.verbs) == (False, "none", ("press",))
    assert ordered(button, "press") == "PRESS"
    assert not button.cap.repeat_safe
    scene = parts("scene", cmd_t="c", pl_on="go")[""]
    assert ordered(scene, "press") == "go"
    assert scene.cap.repeat_safe
    notice = parts("notify", cmd_t="c")[""]
    assert (ordered(notice, "Hello"), notice.cap.repeat_safe) == ("Hello", False)


def test_an_event_is_its_type() -> None:
    component = parts("event", stat_t="s", evt_typ=["single", "double"])[""]
    assert said(component, {"event_type": "double", "at": 3}) == "double"
    assert said(component, "single") is NO_SAMPLE
    assert component.cap.history == "every"


def test_a_json_light_is_a_state_and_its_members() -> None:
    lamp = parts("light", schema="json", stat_t="s", cmd_t="c", brightness=True, sup_clrm=["color_temp"], effect=True,
                 fx_list=["rainbow"])  # fmt: skip
    assert set(lamp) == {"", "brightness", "color_temp", "effect"}
    state = {"state": "ON", "brightness": 120, "color_temp": 300, "effect": "rainbow"}
    assert [said(lamp[name], state) for name in ("", "brightness", "color_temp", "effect")] == [
        True,
        120,
        300,
        "rainbow",
    ]
    assert said(lamp["brightness"], {"state": "OFF"}) is NO_SAMPLE
    assert json.loads(ordered(lamp[""], True)) == {"state": "ON"}
    assert json.loads(ordered(lamp["brightness"], 80)) == {"state": "ON", "brightness": 80}
    assert json.loads(ordered(lamp["effect"], "rainbow")) == {"state": "ON", "effect": "rainbow"}
    assert set(parts("light", schema="json", stat_t="s", cmd_t="c", sup_clrm=["onoff"])) == {""}


def test_a_plain_light_has_a_topic_for_each_channel() -> None:
    lamp = parts(
        "light", stat_t="s", cmd_t="c", bri_stat_t="b", bri_cmd_t="b/set", bri_scl=100, rgb_stat_t="r", rgb_cmd_t="r/s",
        clr_temp_cmd_t="t/set", clr_temp_stat_t="t", clr_temp_k=True,
    )  # fmt: skip
    assert set(lamp) == {"", "brightness", "color_temp", "rgb"}
    assert lamp["brightness"].cap.maximum == 100
    assert (lamp["color_temp"].cap.unit, lamp["color_temp"].cap.minimum) == ("K", 2000)
    assert said(lamp["rgb"], "255,0,10") == "255,0,10"
    mireds = parts("light", cmd_t="c", clr_temp_cmd_t="t", stat_val_tpl="{{ value_json.s }}", stat_t="s")
    assert mireds["color_temp"].cap.unit == "mired"
    assert said(mireds[""], {"s": "ON"}) is True


def test_a_light_of_another_schema_is_refused_by_name() -> None:
    with pytest.raises(Refusal, match="schema template"):
        parts("light", schema="template", stat_t="s", cmd_t="c")


def test_a_cover_moves_by_words_and_stands_somewhere() -> None:
    cover = parts("cover", stat_t="s", cmd_t="c", pos_t="p", set_pos_t="p/set", tilt_cmd_t="t/set", tilt_status_t="t")
    assert set(cover) == {"", "position", "tilt"}
    assert cover[""].cap.verbs == ("open", "close", "stop")
    assert (ordered(cover[""], "open"), said(cover[""], "closing"), said(cover[""], "?")) == (
        "OPEN",
        "closing",
        NO_SAMPLE,
    )
    assert all(component.cap.risk == "high" for component in cover.values())
    assert cover[""].cap.cancellable
    assert (cover["position"].cap.minimum, cover["position"].cap.maximum) == (0, 100)
    without = parts("cover", cmd_t="c", pl_stop=None)[""]
    assert without.cap.verbs == ("open", "close"), "a null payload says that it cannot stop"
    assert not without.cap.cancellable


def test_a_valve_moves_by_words_or_to_a_position() -> None:
    words = parts("valve", stat_t="s", cmd_t="c")[""]
    assert words.cap.verbs == ("open", "close")
    assert parts("valve", stat_t="s", cmd_t="c", pl_stop="HALT")[""].cap.verbs == ("open", "close", "stop")
    position = parts("valve", stat_t="s", cmd_t="c", reports_position=True)[""]
    assert (position.cap.value_type, position.cap.maximum, position.cap.risk) == ("number", 100, "high")


def test_a_lock_takes_words_and_is_high_risk() -> None:
    lock = parts("lock", stat_t="s", cmd_t="c", pl_open="OPEN")[""]
    assert lock.cap.verbs == ("lock", "unlock", "open")
    assert (ordered(lock, "unlock"), said(lock, "JAMMED"), lock.cap.risk) == ("UNLOCK", "jammed", "high")
    coded = parts("lock", stat_t="s", cmd_t="c", cod_form="^\\d+$")[""]
    assert not coded.cap.writable
    assert coded.cap.risk == "low", "reading a lock is no danger"
    assert "code_format" in coded.unsupported[0]


def test_a_climate_is_its_set_points_and_measures() -> None:
    climate = parts(
        "climate",
        modes=["off", "heat"],
        mode_stat_t="m",
        mode_cmd_t="m/set",
        temp_stat_t="t",
        temp_cmd_t="t/set",
        temp_step=0.5,
        min_temp=5,
        curr_temp_t="now",
        curr_hum_t="rh",
        fan_mode_cmd_t="f/set",
        act_t="a",
        pr_mode_cmd_t="p/set",
        pr_modes=["eco"],
        pow_cmd_t="power",
        hum_cmd_t="h/set",
        temp_unit="F",
    )
    assert set(climate) == {
        "mode", "temperature", "current_temperature", "current_humidity", "fan_mode", "action", "preset_mode", "power",
        "target_humidity",
    }  # fmt: skip
    assert climate["mode"].cap.options == ("off", "heat")
    assert (climate["temperature"].cap.minimum, climate["temperature"].cap.step) == (5, 0.5)
    assert climate["temperature"].cap.unit == "°F"
    assert {name for name, part in climate.items() if part.cap.risk == "high"} == {
        "mode", "temperature", "fan_mode", "preset_mode", "power", "target_humidity",
    }  # fmt: skip
    assert ordered(climate["power"], False) == "OFF"


def test_a_water_heater_and_a_humidifier() -> None:
    heater = parts("water_heater", mode_cmd_t="m/set", temp_cmd_t="t/set", curr_temp_t="now")
    assert set(heater) == {"mode", "temperature", "current_temperature"}
    assert heater["temperature"].cap.risk == "high"
    humidifier = parts("humidifier", cmd_t="c", hum_cmd_t="h/set", mode_cmd_t="m/set", modes=["auto"])
    assert set(humidifier) == {"", "target_humidity", "mode"}
    assert humidifier["target_humidity"].cap.maximum == 100
    assert humidifier[""].cap.risk == "low"


def test_a_fan_has_speed_direction_and_oscillation() -> None:
    fan = parts(
        "fan", cmd_t="c", pct_cmd_t="p/set", pct_stat_t="p", spd_rng_max=10, osc_cmd_t="o/set", osc_stat_t="o",
        dir_cmd_t="d/set", pr_mode_cmd_t="m/set", pr_modes=["sleep"],
    )  # fmt: skip
    assert set(fan) == {"", "percentage", "oscillation", "direction", "preset_mode"}
    assert fan["percentage"].cap.maximum == 10
    assert ordered(fan["oscillation"], True) == "oscillate_on"
    assert said(fan["oscillation"], "oscillate_off") is False
    assert fan["direction"].cap.options == ("forward", "reverse")


def test_a_siren_speaks_json_and_is_high_risk() -> None:
    siren = parts("siren", stat_t="s", cmd_t="c")[""]
    assert json.loads(ordered(siren, True)) == {"state": "ON"}
    assert (said(siren, "ON"), said(siren, {"state": "OFF"}), siren.cap.risk) == (True, False, "high")
    assert siren.cap.traffic == "alarm"


def test_an_alarm_panel_with_a_code_is_read_only() -> None:
    panel = parts("alarm_control_panel", stat_t="s", cmd_t="c", sup_feat=["arm_home", "arm_away"])[""]
    assert panel.cap.verbs == ("disarm", "arm_home", "arm_away")
    assert (ordered(panel, "arm_home"), panel.cap.risk, said(panel, "triggered")) == ("ARM_HOME", "high", "triggered")
    assert not parts("alarm_control_panel", stat_t="s", cmd_t="c", code="1234")[""].cap.writable


def test_an_update_tells_versions_and_installs_nothing() -> None:
    update = parts("update", stat_t="s", l_ver_t="l", cmd_t="c")
    assert said(update[""], {"installed_version": "1.0"}) == "1.0"
    assert said(update[""], "1.1") == "1.1"
    assert not any(part.cap.writable for part in update.values())


def test_a_vacuum_and_a_mower_take_their_words() -> None:
    vacuum = parts("vacuum", stat_t="s", cmd_t="c")[""]
    assert vacuum.cap.verbs == ("start", "stop", "return_to_base", "clean_spot")
    assert said(vacuum, {"state": "docked"}) == "docked"
    mower = parts("lawn_mower", activity_state_topic="a", dock_command_topic="d")
    assert set(mower) == {"", "dock"}
    assert ordered(mower["dock"], "press") == "dock"


def test_a_tracker_a_tag_and_a_trigger_are_heard() -> None:
    tracker = parts("device_tracker", stat_t="s")[""]
    assert (said(tracker, "home"), said(tracker, "garden")) == ("home", "garden")
    assert said(parts("tag", t="s")[""], "0123") == "0123"
    trigger = parts("device_automation", atype="trigger", t="s", pl="1", type="press", stype="left")[""]
    assert (said(trigger, "1"), said(trigger, "0")) == ("left press", NO_SAMPLE)
    assert said(parts("device_automation", t="s", type="press")[""], "anything") == "anything"


@pytest.mark.parametrize("platform", ["camera", "image", "sensors", "device_x"])
def test_a_platform_that_is_not_mapped_is_refused_by_name(platform: str) -> None:
    with pytest.raises(Refusal, match=f"platform {platform}"):
        parts(platform, stat_t="s", t="s")


@pytest.mark.parametrize("platform", sorted(PLATFORMS))
def test_every_platform_refuses_a_payload_without_topics(platform: str) -> None:
    with pytest.raises(Refusal) as caught:
        parts(platform)
    assert caught.value.reason == "incomplete"
