"""Which capabilities a Home Assistant platform is made of (spec/device-conventions.md §1.8).

An entity with several topics becomes several capabilities: a light its state, its brightness, its colour; each is
read and ordered by itself. A platform that is not in `PLATFORMS` is refused by name, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edge.protocol.discovery.config import Config, Part, on_off
from edge.protocol.discovery.record import Refusal

ON_OFF = ("on", "off", "toggle")
_ACTIONS = ("off", "heating", "cooling", "drying", "idle", "fan", "preheating", "defrosting")
_MODES = ("auto", "off", "cool", "heat", "dry", "fan_only")
_ARMED = ("disarmed", "armed_home", "armed_away", "armed_night", "armed_vacation", "armed_custom_bypass", "pending")


def _sensor(c: Config) -> list[Part]:
    unit = c.text("unit_of_measurement")
    if c.numeric():
        return [Part(value="number", unit=unit, always=True)]
    return [Part(unit=unit, options=c.texts("options"), always=True)]


def _binary_sensor(c: Config) -> list[Part]:
    return [
        Part(
            value="boolean",
            states=((c.text("payload_on", "ON"), True), (c.text("payload_off", "OFF"), False)),
            strict=True,
            always=True,
            off_delay=True,
            orders="",
        )
    ]


def _states(c: Config, on: str = "ON", off: str = "OFF") -> tuple[tuple[str, bool | str], ...]:
    return (
        (c.text("state_on", c.text("payload_on", on)), True),
        (c.text("state_off", c.text("payload_off", off)), False),
    )


def _onoff(c: Config, **more: Any) -> Part:
    part = Part(
        value="boolean",
        states=_states(c),
        strict=True,
        commands=on_off(c),
        exact=True,
        verbs=ON_OFF,
        always=True,
    )
    return part._replace(**more)


def _switch(c: Config) -> list[Part]:
    return [_onoff(c)]


def _number(c: Config) -> list[Part]:
    low, high = c.number("min", 1.0), c.number("max", 100.0)
    unit = c.text("unit_of_measurement")
    return [Part(value="number", minimum=low, maximum=high, step=c.number("step", 1.0), unit=unit, always=True)]


def _choice(c: Config, suffix: str, stem: str, modes: str, default: tuple[str, ...] = (), how: str = "state") -> Part:
    options = c.texts(modes, default)
    return Part(
        suffix,
        kind="select",
        says=f"{stem}_state_topic",
        how=f"{stem}_{how}_template",
        orders=f"{stem}_command_topic",
        phrase=f"{stem}_command_template",
        options=options,
    )


def _select(c: Config) -> list[Part]:
    return [Part(options=c.texts("options"), always=True)]


def _text(c: Config) -> list[Part]:
    return [Part(minimum=c.number("min", 0), maximum=c.number("max", 255), always=True)]


def _button(c: Config) -> list[Part]:
    return [_press(c, c.text("payload_press", "PRESS"), repeat_safe=False)]


def _press(c: Config, payload: str, *, repeat_safe: bool) -> Part:
    return Part(
        value="none",
        says="",
        how="",
        commands=(("press", payload),),
        exact=True,
        verbs=("press",),
        repeat_safe=repeat_safe,
        always=True,
    )


def _scene(c: Config) -> list[Part]:
    return [_press(c, c.text("payload_on", "ON"), repeat_safe=True)]


def _notify(c: Config) -> list[Part]:
    return [Part(says="", how="", repeat_safe=False, always=True)]


def _event(c: Config) -> list[Part]:
    return [
        Part(
            options=c.texts("event_types"), key="event_type", object_only=True, history="every", orders="", always=True
        )
    ]


def _light(c: Config) -> list[Part]:
    match c.text("schema", "basic"):
        case "basic" | "default":
            return _light_basic(c)
        case "json":
            return _light_json(c)
    raise Refusal("unsupported", f"light schema {c.text('schema')}")


def _light_basic(c: Config) -> list[Part]:
    def channel(suffix: str, stem: str = "") -> Part:
        stem = stem or suffix
        return Part(
            suffix,
            says=f"{stem}_state_topic",
            how=f"{stem}_value_template",
            orders=f"{stem}_command_topic",
            phrase=f"{stem}_command_template",
        )

    number: dict[str, Any] = {"kind": "number", "value": "number"}
    kelvin = c.flag("color_temp_kelvin")
    return [
        _onoff(c, how="state_value_template" if "state_value_template" in c.fields else "value_template", phrase=""),
        channel("brightness")._replace(**number, minimum=0.0, maximum=c.number("brightness_scale", 255.0), step=1.0),
        channel("color_temp")._replace(
            **number,
            minimum=c.number("min_kelvin", 2000.0) if kelvin else c.number("min_mireds", 153.0),
            maximum=c.number("max_kelvin", 6535.0) if kelvin else c.number("max_mireds", 500.0),
            unit="K" if kelvin else "mired",
        ),
        channel("effect")._replace(kind="select", options=c.texts("effect_list")),
        *(channel(colour)._replace(kind="text") for colour in ("rgb", "rgbw", "rgbww", "hs", "xy")),
    ]


def _light_json(c: Config) -> list[Part]:
    """One topic both ways; a member each (`{"state":"ON","brightness":120}`)."""
    parts = [
        _onoff(
            c,
            states=(("ON", True), ("OFF", False)),
            commands=(("true", "ON"), ("false", "OFF")),
            key="state",
            how="",
            object_only=True,
            phrase="",
            write_key="state",
        )
    ]
    member = Part(kind="number", value="number", how="", phrase="", object_only=True, with_state="ON", step=1.0)
    modes = c.texts("supported_color_modes")
    if c.flag("brightness") or (modes and "onoff" not in modes):
        scale = c.number("brightness_scale", 255.0)
        parts.append(
            member._replace(suffix="brightness", key="brightness", write_key="brightness", minimum=0.0, maximum=scale)
        )
    if c.flag("color_temp") or "color_temp" in modes:
        parts.append(
            member._replace(
                suffix="color_temp",
                key="color_temp",
                write_key="color_temp",
                minimum=c.number("min_mireds", 153.0),
                maximum=c.number("max_mireds", 500.0),
                unit="mired",
            )
        )
    if c.flag("effect"):
        effects = c.texts("effect_list")
        parts.append(
            member._replace(suffix="effect", key="effect", write_key="effect", kind="select", value="text")._replace(
                options=effects, step=None
            )
        )
    return parts


def _moving(c: Config, *, stop: str | None) -> Part:
    """Cover and valve: words for what it does, words for where it is."""
    words = [("open", c.text("payload_open", "OPEN")), ("close", c.text("payload_close", "CLOSE"))]
    if stop is not None and c.fields.get("payload_stop", stop) is not None:
        words.append(("stop", c.text("payload_stop", stop)))
    states = tuple(
        (c.text(f"state_{word}", word), word) for word in ("open", "opening", "closed", "closing", "stopped")
    )
    verbs = tuple(word for word, _ in words)
    return Part(
        states=states,
        strict=True,
        commands=tuple(words),
        exact=True,
        phrase="",
        verbs=verbs,
        options=verbs,
        confirms=(("close", "closed"), ("stop", "stopped")),
        cancellable="stop" in verbs,
    )


def _cover(c: Config) -> list[Part]:
    position = Part(
        "position",
        kind="number",
        value="number",
        says="position_topic",
        how="position_template",
        orders="set_position_topic",
        phrase="set_position_template",
        minimum=min(c.number("position_closed", 0.0) or 0.0, c.number("position_open", 100.0) or 0.0),
        maximum=max(c.number("position_closed", 0.0) or 0.0, c.number("position_open", 100.0) or 0.0),
        unit="%",
    )
    tilt = position._replace(
        suffix="tilt",
        says="tilt_status_topic",
        how="tilt_status_template",
        orders="tilt_command_topic",
        phrase="tilt_command_template",
        minimum=c.number("tilt_min", 0.0),
        maximum=c.number("tilt_max", 100.0),
    )
    return [_moving(c, stop="STOP"), position, tilt]


def _valve(c: Config) -> list[Part]:
    if c.flag("reports_position"):
        return [
            Part(
                value="number",
                phrase="command_template",
                minimum=c.number("position_closed", 0.0),
                maximum=c.number("position_open", 100.0),
                unit="%",
                always=True,
            )
        ]
    stop = c.fields.get("payload_stop")
    return [_moving(c, stop=stop if isinstance(stop, str) else None)._replace(always=True)]


def _lock(c: Config) -> list[Part]:
    if c.fields.get("code_format") is not None:
        c.unsupported.append("code_format: a lock that asks for a code is not commanded")
    words = [("lock", c.text("payload_lock", "LOCK")), ("unlock", c.text("payload_unlock", "UNLOCK"))]
    if c.fields.get("payload_open") is not None:
        words.append(("open", c.text("payload_open")))
    states = tuple(
        (c.text(f"state_{word}", word.upper()), word)
        for word in ("locked", "unlocked", "locking", "unlocking", "jammed")
    )
    verbs = tuple(word for word, _ in words)
    return [
        Part(
            states=states,
            strict=True,
            commands=tuple(words),
            exact=True,
            orders="" if c.unsupported else "command_topic",
            verbs=verbs,
            options=verbs,
            confirms=(("lock", "locked"), ("unlock", "unlocked")),
            always=True,
        )
    ]


def _measured(suffix: str, unit: str = "") -> Part:
    return Part(
        suffix,
        kind="sensor",
        value="number",
        says=f"{suffix}_topic",
        how=f"{suffix}_template",
        orders="",
        unit=unit,
    )


def _setpoint(c: Config, suffix: str, low: float, high: float, unit: str, *, span: str = "temp") -> Part:
    return Part(
        suffix,
        kind="number",
        value="number",
        says=f"{suffix}_state_topic",
        how=f"{suffix}_state_template",
        orders=f"{suffix}_command_topic",
        phrase=f"{suffix}_command_template",
        minimum=c.number(f"min_{span}", low),
        maximum=c.number(f"max_{span}", high),
        step=c.number("temp_step", 1.0) if span == "temp" else 1.0,
        unit=unit,
    )


def _power(c: Config) -> Part:
    return Part(
        "power",
        kind="switch",
        value="boolean",
        says="",
        how="",
        orders="power_command_topic",
        phrase="power_command_template",
        commands=on_off(c),
        exact=True,
        verbs=("on", "off"),
    )


def _action(name: str = "action") -> Part:
    return Part(name, kind="sensor", says="action_topic", how="action_template", orders="", options=_ACTIONS)


def _degrees(c: Config) -> str:
    return "°F" if c.text("temperature_unit") == "F" else "°C"


def _climate(c: Config) -> list[Part]:
    unit = _degrees(c)
    return [
        _choice(c, "mode", "mode", "modes", _MODES),
        *(_setpoint(c, name, 7.0, 35.0, unit) for name in ("temperature", "temperature_high", "temperature_low")),
        _measured("current_temperature", unit),
        _measured("current_humidity", "%"),
        _setpoint(c, "target_humidity", 30.0, 99.0, "%", span="humidity"),
        _choice(c, "fan_mode", "fan_mode", "fan_modes", ("auto", "low", "medium", "high")),
        _choice(c, "swing_mode", "swing_mode", "swing_modes", ("on", "off")),
        _choice(c, "preset_mode", "preset_mode", "preset_modes", how="value"),
        _power(c),
        _action(),
    ]


def _water_heater(c: Config) -> list[Part]:
    unit = _degrees(c)
    modes = ("off", "eco", "electric", "gas", "heat_pump", "high_demand", "performance")
    return [
        _choice(c, "mode", "mode", "modes", modes),
        _setpoint(c, "temperature", 43.0, 60.0, unit),
        _measured("current_temperature", unit),
        _power(c),
    ]


def _humidifier(c: Config) -> list[Part]:
    return [
        _onoff(c, how="state_value_template"),
        _setpoint(c, "target_humidity", 0.0, 100.0, "%", span="humidity"),
        _choice(c, "mode", "mode", "modes"),
        _measured("current_humidity", "%"),
        _action(),
    ]


def _fan(c: Config) -> list[Part]:
    stem = "oscillation"
    on, off = c.text("payload_oscillation_on", "oscillate_on"), c.text("payload_oscillation_off", "oscillate_off")
    return [
        _onoff(c, how="state_value_template"),
        Part(
            "percentage",
            kind="number",
            value="number",
            says="percentage_state_topic",
            how="percentage_value_template",
            orders="percentage_command_topic",
            phrase="percentage_command_template",
            minimum=0.0,
            maximum=c.number("speed_range_max", 100.0),
        ),
        _choice(c, "preset_mode", "preset_mode", "preset_modes", how="value"),
        Part(
            stem,
            kind="switch",
            value="boolean",
            says=f"{stem}_state_topic",
            how=f"{stem}_value_template",
            orders=f"{stem}_command_topic",
            phrase=f"{stem}_command_template",
            states=((on, True), (off, False)),
            strict=True,
            commands=(("true", on), ("false", off)),
            exact=True,
            verbs=ON_OFF,
        ),
        _choice(c, "direction", "direction", "", ("forward", "reverse"), how="value"),
    ]


def _siren(c: Config) -> list[Part]:
    """Without a command template the payload is `{"state": "ON"}`; the state may come either way."""
    return [_onoff(c, how="state_value_template", key="state", write_key="state")]


def _alarm(c: Config) -> list[Part]:
    """Arming and disarming; a panel that asks for a code is read only."""
    words = ("disarm", "arm_home", "arm_away", "arm_night", "arm_vacation", "arm_custom_bypass", "trigger")
    features = c.texts("supported_features", words[1:])
    if c.fields.get("code") is not None:
        c.unsupported.append("code: a panel that asks for a code is not commanded")
    verbs = tuple(word for word in words if word == "disarm" or word in features)
    states = (*_ARMED, "triggered", "arming", "disarming")
    return [
        Part(
            states=tuple((state, state) for state in states),
            strict=True,
            commands=tuple((word, c.text(f"payload_{word}", word.upper())) for word in verbs),
            exact=True,
            orders="" if c.unsupported else "command_topic",
            phrase="",
            verbs=verbs,
            options=verbs,
            confirms=tuple((word, "disarmed" if word == "disarm" else f"armed_{word[4:]}") for word in verbs),
            always=True,
        )
    ]


def _update(c: Config) -> list[Part]:
    """What is installed and what there is; installing is left to whoever made the device."""
    latest = Part("latest", kind="sensor", says="latest_version_topic", how="latest_version_template", orders="")
    return [Part(kind="update", key="installed_version", orders="", always=True), latest]


def _vacuum(c: Config) -> list[Part]:
    words = ("start", "pause", "stop", "return_to_base", "clean_spot", "locate")
    offered = c.texts("supported_features", ("start", "stop", "return_home", "clean_spot"))
    verbs = tuple(word for word in words if word in offered or (word == "return_to_base" and "return_home" in offered))
    return [
        Part(
            key="state",
            object_only=True,
            how="",
            phrase="",
            commands=tuple((word, c.text(f"payload_{word}", word)) for word in verbs),
            exact=True,
            verbs=verbs,
            options=verbs,
            confirms=(("start", "cleaning"), ("pause", "paused"), ("stop", "idle"), ("return_to_base", "returning")),
            repeat_safe=False,
            always=True,
        )
    ]


def _lawn_mower(c: Config) -> list[Part]:
    def command(word: str) -> Part:
        return Part(
            word,
            kind="button",
            value="none",
            says="",
            how="",
            orders=f"{word}_command_topic",
            phrase=f"{word}_command_template",
            commands=(("press", word),),
            exact=True,
            verbs=("press",),
        )

    state = Part(says="activity_state_topic", how="activity_value_template", orders="")
    return [state, *(command(word) for word in ("start_mowing", "pause", "dock"))]


def _tracker(c: Config) -> list[Part]:
    states = ((c.text("payload_home", "home"), "home"), (c.text("payload_not_home", "not_home"), "not_home"))
    return [Part(states=states, orders="", always=True)]


def _tag(c: Config) -> list[Part]:
    return [Part(kind="tag", says="topic", orders="", history="every", always=True)]


def _trigger(c: Config) -> list[Part]:
    """A device automation: no state; a message equal to `payload` is the event."""
    word = " ".join(text for text in (c.text("subtype"), c.text("type")) if text) or "triggered"
    payload = c.text("payload")
    states: tuple[tuple[str, bool | str], ...] = ((payload, word),) if payload else ()
    return [
        Part(
            kind="event",
            says="topic",
            orders="",
            states=states,
            strict=bool(payload),
            options=(word,) if payload else (),
            history="every",
            always=True,
        )
    ]


PLATFORMS: dict[str, Callable[[Config], list[Part]]] = {
    "alarm_control_panel": _alarm,
    "binary_sensor": _binary_sensor,
    "button": _button,
    "climate": _climate,
    "cover": _cover,
    "device_automation": _trigger,
    "device_tracker": _tracker,
    "event": _event,
    "fan": _fan,
    "humidifier": _humidifier,
    "lawn_mower": _lawn_mower,
    "light": _light,
    "lock": _lock,
    "notify": _notify,
    "number": _number,
    "scene": _scene,
    "select": _select,
    "sensor": _sensor,
    "siren": _siren,
    "switch": _switch,
    "tag": _tag,
    "text": _text,
    "update": _update,
    "vacuum": _vacuum,
    "valve": _valve,
    "water_heater": _water_heater,
}
"""Platform → its parts. `camera` and `image` carry pictures, not values, and are refused as unsupported."""
