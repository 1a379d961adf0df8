from __future__ import annotations

import pytest

from edge.protocol.discovery.abbreviations import DEVICE, ORIGIN, TOP, expand


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("dev", "device"), ("o", "origin"), ("cmps", "components"), ("p", "platform"), ("uniq_id", "unique_id"),
        ("obj_id", "object_id"), ("def_ent_id", "default_entity_id"), ("dev_cla", "device_class"),
        ("stat_cla", "state_class"), ("unit_of_meas", "unit_of_measurement"),
        ("sug_dsp_prc", "suggested_display_precision"), ("val_tpl", "value_template"), ("exp_aft", "expire_after"),
        ("frc_upd", "force_update"), ("off_dly", "off_delay"), ("ent_cat", "entity_category"),
        ("ent_pic", "entity_picture"), ("en", "enabled_by_default"), ("e", "encoding"),
        ("json_attr_t", "json_attributes_topic"), ("json_attr_tpl", "json_attributes_template"),
        ("lrst_val_tpl", "last_reset_value_template"), ("evt_typ", "event_types"), ("bri_scl", "brightness_scale"),
        ("bri_cmd_t", "brightness_command_topic"), ("bri_stat_t", "brightness_state_topic"),
        ("atype", "automation_type"), ("stype", "subtype"), ("pl", "payload"), ("avty", "availability"),
        ("avty_t", "availability_topic"), ("avty_tpl", "availability_template"), ("avty_mode", "availability_mode"),
        ("pl_avail", "payload_available"), ("pl_not_avail", "payload_not_available"), ("t", "topic"),
        ("cmd_t", "command_topic"), ("cmd_tpl", "command_template"), ("stat_t", "state_topic"),
        ("stat_tpl", "state_template"), ("stat_val_tpl", "state_value_template"), ("pl_on", "payload_on"),
        ("pl_off", "payload_off"), ("stat_on", "state_on"), ("stat_off", "state_off"), ("pl_prs", "payload_press"),
        ("ops", "options"), ("opt", "optimistic"), ("ret", "retain"), ("ic", "icon"),
        ("migr_discvry", "migrate_discovery"), ("clr_temp_cmd_t", "color_temp_command_topic"),
        ("hum_cmd_t", "target_humidity_command_topic"), ("temp_hi_stat_t", "temperature_high_state_topic"),
        ("pr_mode_val_tpl", "preset_mode_value_template"), ("pl_osc_on", "payload_oscillation_on"),
        ("dir_val_tpl", "direction_value_template"), ("stat_unlocking", "state_unlocking"),
        ("curr_temp_tpl", "current_temperature_template"), ("spd_rng_max", "speed_range_max"),
        ("l_ver_t", "latest_version_topic"), ("cod_form", "code_format"), ("sup_clrm", "supported_color_modes"),
    ],
)  # fmt: skip
def test_a_short_key_has_its_long_form(short: str, long: str) -> None:
    assert TOP[short] == long


@pytest.mark.parametrize(
    ("short", "long"),
    [("ids", "identifiers"), ("cns", "connections"), ("mf", "manufacturer"), ("mdl", "model"), ("mdl_id", "model_id"),
     ("sw", "sw_version"), ("hw", "hw_version"), ("sn", "serial_number"), ("sa", "suggested_area"),
     ("cu", "configuration_url")],
)  # fmt: skip
def test_a_short_key_of_a_device_has_its_long_form(short: str, long: str) -> None:
    assert DEVICE[short] == long


def test_a_short_key_expands_only_where_its_table_applies() -> None:
    assert expand({"sw": "1", "name": "x"}, TOP) == {"sw": "1", "name": "x"}
    assert expand({"sw": "1", "url": "u"}, ORIGIN) == {"sw_version": "1", "support_url": "u"}
    assert expand({"via_device": "v", "ids": "x"}, DEVICE) == {"via_device": "v", "identifiers": "x"}


def test_a_long_key_wins_over_its_short_form_in_any_order() -> None:
    assert expand({"stat_t": "s", "state_topic": "l"}, TOP) == {"state_topic": "l"}
    assert expand({"state_topic": "l", "stat_t": "s"}, TOP) == {"state_topic": "l"}


def test_no_long_form_is_itself_a_short_key() -> None:
    assert not [long for long in TOP.values() if long in TOP and TOP[long] != long]
