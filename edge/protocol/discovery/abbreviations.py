"""The short keys of Home Assistant discovery (spec/device-conventions.md §1.4), spelled out word by word.

A short key expands only where its table applies, so `sw` is a version inside `device` and nothing at the top level.
"""

from __future__ import annotations

_WORDS = {
    "act": "action",
    "av": "available",
    "avty": "availability",
    "bri": "brightness",
    "cla": "class",
    "cls": "close",
    "clsd": "closed",
    "clrm": "color_mode",
    "cln": "clean",
    "cmd": "command",
    "cmps": "components",
    "curr": "current",
    "dev": "device",
    "dir": "direction",
    "dly": "delay",
    "dsp": "display",
    "evt": "event",
    "exp": "expire",
    "aft": "after",
    "frc": "force",
    "fx": "effect",
    "hi": "high",
    "hum": "humidity",
    "lo": "low",
    "loc": "locate",
    "lrst": "last_reset",
    "mirs": "mireds",
    "nite": "night",
    "ops": "options",
    "osc": "oscillation",
    "paus": "pause",
    "pct": "percentage",
    "pl": "payload",
    "pos": "position",
    "pow": "power",
    "pr": "preset",
    "prs": "press",
    "rng": "range",
    "rst": "reset",
    "scl": "scale",
    "sp": "spot",
    "spd": "speed",
    "stat": "state",
    "strt": "start",
    "sug": "suggested",
    "t": "topic",
    "temp": "temperature",
    "tpl": "template",
    "typ": "types",
    "unlk": "unlock",
    "upd": "update",
    "val": "value",
    "vrs": "version",
    "whit": "white",
}

_REGULAR = """
act_t act_tpl
avty avty_mode avty_t avty_tpl
bri_cmd_t bri_cmd_tpl bri_scl bri_stat_t bri_tpl bri_val_tpl
clrm clrm_stat_t clrm_val_tpl
cmd_t cmd_tpl cmps
curr_hum_t curr_hum_tpl curr_temp_t curr_temp_tpl
dev dev_cla
dir_cmd_t dir_cmd_tpl dir_stat_t dir_val_tpl
evt_typ exp_aft frc_upd
fan_mode_cmd_t fan_mode_cmd_tpl fan_mode_stat_t fan_mode_stat_tpl
fx_cmd_t fx_cmd_tpl fx_list fx_stat_t fx_tpl fx_val_tpl
hs_cmd_t hs_cmd_tpl hs_stat_t hs_val_tpl
lrst_val_tpl
max_hum min_hum max_mirs min_mirs
mode_cmd_t mode_cmd_tpl mode_stat_t mode_stat_tpl
off_dly ops
osc_cmd_t osc_cmd_tpl osc_stat_t osc_val_tpl
pct_cmd_t pct_cmd_tpl pct_stat_t pct_val_tpl
pl pl_arm_away pl_arm_home pl_arm_nite pl_arm_vacation pl_cls pl_cln_sp pl_disarm pl_loc pl_lock pl_off pl_on pl_open
pl_osc_off pl_osc_on pl_paus pl_prs pl_rst pl_rst_hum pl_rst_mode pl_rst_pct pl_stop pl_strt pl_home pl_not_home
pl_unlk
pos_clsd pos_open pos_t pos_tpl
pow_cmd_t pow_cmd_tpl
pr_mode_cmd_t pr_mode_cmd_tpl pr_mode_stat_t pr_mode_val_tpl pr_modes
rgb_cmd_t rgb_cmd_tpl rgb_stat_t rgb_val_tpl
rgbw_cmd_t rgbw_cmd_tpl rgbw_stat_t rgbw_val_tpl rgbww_cmd_t rgbww_cmd_tpl rgbww_stat_t rgbww_val_tpl
send_cmd_t
set_fan_spd_t set_pos_t set_pos_tpl
spd_rng_max spd_rng_min
stat_cla stat_clsd stat_closing stat_locked stat_locking stat_off stat_on stat_open stat_opening stat_stopped
stat_unlocked stat_unlocking stat_jammed stat_t stat_tpl stat_val_tpl
sug_dsp_prc
swing_mode_cmd_t swing_mode_cmd_tpl swing_mode_stat_t swing_mode_stat_tpl
t
temp_cmd_t temp_cmd_tpl temp_stat_t temp_stat_tpl temp_unit
temp_hi_cmd_t temp_hi_cmd_tpl temp_hi_stat_t temp_hi_stat_tpl
temp_lo_cmd_t temp_lo_cmd_tpl temp_lo_stat_t temp_lo_stat_tpl
tilt_cmd_t tilt_cmd_tpl
val_tpl
whit_cmd_t whit_scl
xy_cmd_t xy_cmd_tpl xy_stat_t xy_val_tpl
"""

_IRREGULAR = {
    "clr_temp_cmd_t": "color_temp_command_topic",
    "clr_temp_cmd_tpl": "color_temp_command_template",
    "clr_temp_k": "color_temp_kelvin",
    "clr_temp_stat_t": "color_temp_state_topic",
    "clr_temp_tpl": "color_temp_template",
    "clr_temp_val_tpl": "color_temp_value_template",
    "ent_cat": "entity_category",
    "ent_pic": "entity_picture",
    "max_k": "max_kelvin",
    "min_k": "min_kelvin",
    "sup_clrm": "supported_color_modes",
    "atype": "automation_type",
    "av_tones": "available_tones",
    "cod_arm_req": "code_arm_required",
    "cod_dis_req": "code_disarm_required",
    "cod_form": "code_format",
    "cod_trig_req": "code_trigger_required",
    "def_ent_id": "default_entity_id",
    "e": "encoding",
    "en": "enabled_by_default",
    "fanspd_lst": "fan_speed_list",
    "hum_cmd_t": "target_humidity_command_topic",
    "hum_cmd_tpl": "target_humidity_command_template",
    "hum_stat_t": "target_humidity_state_topic",
    "hum_state_tpl": "target_humidity_state_template",
    "ic": "icon",
    "init": "initial",
    "json_attr": "json_attributes",
    "json_attr_t": "json_attributes_topic",
    "json_attr_tpl": "json_attributes_template",
    "l_ver_t": "latest_version_topic",
    "l_ver_tpl": "latest_version_template",
    "migr_discvry": "migrate_discovery",
    "o": "origin",
    "obj_id": "object_id",
    "on_cmd_type": "on_command_type",
    "opt": "optimistic",
    "p": "platform",
    "pl_arm_custom_b": "payload_arm_custom_bypass",
    "pl_avail": "payload_available",
    "pl_inst": "payload_install",
    "pl_not_avail": "payload_not_available",
    "pl_ret": "payload_return_to_base",
    "pl_rst_pr_mode": "payload_reset_preset_mode",
    "pl_stpa": "payload_start_pause",
    "pl_toff": "payload_turn_off",
    "pl_ton": "payload_turn_on",
    "pl_trig": "payload_trigger",
    "ret": "retain",
    "src_type": "source_type",
    "stype": "subtype",
    "sug_dsp_prc": "suggested_display_precision",
    "sup_dur": "support_duration",
    "sup_feat": "supported_features",
    "sup_vol": "support_volume_set",
    "tilt_clsd_val": "tilt_closed_value",
    "tilt_opnd_val": "tilt_opened_value",
    "tilt_opt": "tilt_optimistic",
    "tilt_status_t": "tilt_status_topic",
    "tilt_status_tpl": "tilt_status_template",
    "uniq_id": "unique_id",
    "unit_of_meas": "unit_of_measurement",
}

TOP: dict[str, str] = {
    **{short: "_".join(_WORDS.get(word, word) for word in short.split("_")) for short in _REGULAR.split()},
    **_IRREGULAR,
}
"""Short → long, at the top level, in components and in availability entries."""

DEVICE: dict[str, str] = {
    "cns": "connections",
    "cu": "configuration_url",
    "hw": "hw_version",
    "ids": "identifiers",
    "mdl": "model",
    "mdl_id": "model_id",
    "mf": "manufacturer",
    "sa": "suggested_area",
    "sn": "serial_number",
    "sw": "sw_version",
}
"""Short → long inside `device`."""

ORIGIN: dict[str, str] = {"sw": "sw_version", "url": "support_url"}
"""Short → long inside `origin`."""


def expand(given: dict[str, object], table: dict[str, str]) -> dict[str, object]:
    """The object with long keys. A long key that is there already wins over its short form."""
    made: dict[str, object] = {}
    for key, value in given.items():
        long = table.get(key, key)
        if long == key or long not in given:
            made[long] = value
    return made
