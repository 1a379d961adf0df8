from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.contract.wire import JsonLimits, dumps
from edge.protocol.discovery.record import Payload
from edge.protocol.discovery.template import NO_SAMPLE, Phrase, Unsupported, parse, parse_phrase

LONGEST = 1024


def rendered(template: str, payload: str) -> object:
    """What a template makes of a payload; the identity gives the text."""
    made = parse(template, LONGEST)
    source = Payload(payload.encode(), JsonLimits())
    return source.text() if made is None else made.render(source)


@pytest.mark.parametrize(
    ("template", "payload", "value"),
    [
        ("{{ value }}", "21.5", "21.5"),
        ("{{value}}", "x", "x"),
        ("{{- value -}}", "x", "x"),
        ("{{ value_json }}", '{"a": 1}', {"a": 1}),
        ("{{ value_json.t }}", '{"t": 21.07}', 21.07),
        ("{{ value_json.a.b }}", '{"a": {"b": "deep"}}', "deep"),
        ("{{ value_json['a'][\"b\"] }}", '{"a": {"b": 3}}', 3),
        ("{{value_json['ENERGY']['Total']}}", '{"ENERGY": {"Total": 1.25}}', 1.25),
        ('{{ value_json["temperature"] }}', '{"temperature": 20}', 20),
        ("{{ value_json.list[0] }}", '{"list": [7, 8]}', 7),
        ("{{ value_json.list[-1] }}", '{"list": [7, 8]}', 8),
        ("{{ value_json.list.1 }}", '{"list": [7, 8]}', 8),
        ("{{ value_json['a b'].c[1]['d'] }}", '{"a b": {"c": [0, {"d": true}]}}', True),
        ("{{ value | float }}", "21.50", 21.5),
        ("{{ value | float() }}", "1", 1.0),
        ("{{ value | float(0) }}", "none", 0),
        ("{{ value | int }}", "12.7", 12),
        ("{{ value | int(5) }}", "x", 5),
        ("{{ value_json.on | int }}", '{"on": true}', 1),
        ("{{ value_json.x | float }}", '{"x": 3}', 3.0),
        ("{{ value_json.t | round(1) }}", '{"t": 21.07}', 21.1),
        ("{{ value_json.t | round }}", '{"t": 21.57}', 22),
        ("{{ value | float | round(2) }}", "1.005", 1.0),
        ("{{ value_json.x | default('none yet') }}", "{}", "none yet"),
        ("{{ value_json.x | default(0) | int }}", "{}", 0),
        ("{{ value_json.x | is_defined }}", '{"x": 1}', 1),
        ("{{ value | lower }}", "ON", "on"),
        ("{{ value | upper }}", "on", "ON"),
        ("{{ value_json.x | upper }}", '{"x": true}', "TRUE"),
        ("{{ value | bool }}", "yes", True),
        ("{{ value | bool }}", "off", False),
        ("{{ value_json.x | bool }}", '{"x": 0}', False),
        ("{{ value_json.x | bool }}", '{"x": true}', True),
        ("{{ value_json.x * 0.1 }}", '{"x": 215}', 21.5),
        ("{{ value_json.x / 10 }}", '{"x": 215}', 21.5),
        ("{{ value_json.x + 1 }}", '{"x": 1}', 2),
        ("{{ value_json.x - 1.5 }}", '{"x": 2}', 0.5),
        ("{{ value_json.x + -1 }}", '{"x": 1}', 0),
        ("{{ 100 - value_json.x }}", '{"x": 30}', 70),
        ("{{ -1 * value_json.x }}", '{"x": 30}', -30),
        ("{{ value | float / 1000 }}", "1500", 1.5),
        ("{{ (value_json.x * 0.1) | round(1) }}", '{"x": 216}', 21.6),
        ("{{ ((value_json.x | float) / 10) | round(1) }}", '{"x": "216"}', 21.6),
        ("{{ (value | float) * 2 }}", "4", 8.0),
        ("{{ (value | float) | round(0) }}", "4.4", 4.0),
        ("{{ (value) }}", "4", "4"),
        ("{{ 'ON' if value_json.x else 'OFF' }}", '{"x": true}', "ON"),
        ("{{ 'ON' if value_json.x else 'OFF' }}", '{"x": 0}', "OFF"),
        ("{{ 'ON' if value_json.x == 'open' else 'OFF' }}", '{"x": "open"}', "ON"),
        ("{{ 'ON' if value_json.x == 1 else 'OFF' }}", '{"x": true}', "OFF"),
        ("{{ 'ON' if value == '1' else 'OFF' }}", "1", "ON"),
        ("{{ 1 if value_json.x else 0 }}", '{"x": true}', 1),
        ("{{ 'ON' if value_json.x == none else 'OFF' }}", '{"x": null}', "ON"),
        ("{{ value.split(';')[0] }}", "a;b", "a"),
        ("{{ value_json.s.split(',')[1] | int }}", '{"s": "1,2"}', 2),
    ],
)
def test_a_supported_template_gives_its_value(template: str, payload: str, value: object) -> None:
    assert rendered(template, payload) == value
    assert type(rendered(template, payload)) is type(value)


@pytest.mark.parametrize(
    ("template", "payload"),
    [
        ("{{ value_json.x }}", "{}"),
        ("{{ value_json.a.b }}", '{"a": 1}'),
        ("{{ value_json.l[3] }}", '{"l": [1]}'),
        ("{{ value_json.x }}", "not json"),
        ("{{ value_json.x | is_defined }}", "{}"),
        ("{{ value_json.x | round(1) }}", '{"x": "text"}'),
        ("{{ value_json.x | round(1) }}", '{"x": true}'),
        ("{{ value_json.x * 2 }}", '{"x": "text"}'),
        ("{{ value_json.x * 2 }}", '{"x": true}'),
        ("{{ value_json.x / 0 }}", '{"x": 1}'),
        ("{{ value_json.x * 9007199254740991 }}", '{"x": 9007199254740991}'),
        ("{{ value_json.x / 0." + "0" * 310 + "1 }}", '{"x": 9007199254740991}'),
        ("{{ value | float }}", "nan"),
        ("{{ value | float }}", "inf"),
        ("{{ value | float }}", "1_000"),
        ("{{ value | float }}", "9" * 70),
        ("{{ value_json.x | int }}", '{"x": []}'),
        ("{{ value | bool }}", "perhaps"),
        ("{{ 'ON' if value_json.x else 'OFF' }}", "{}"),
        ("{{ value.split(';')[2] }}", "a;b"),
        ("{{ value_json.s.split(',')[0] }}", '{"s": 3}'),
    ],
)
def test_a_missing_key_or_a_value_of_the_wrong_kind_is_no_sample(template: str, payload: str) -> None:
    assert rendered(template, payload) is NO_SAMPLE


def test_a_payload_that_is_no_text_is_no_sample() -> None:
    made = parse("{{ value | float }}", LONGEST)
    assert made is not None
    assert made.render(Payload(b"\xff\xfe", JsonLimits())) is NO_SAMPLE


@pytest.mark.parametrize(
    "template",
    [
        "{% if value_json.x %}ON{% endif %}",
        "{{ value_json.x }} °C",
        "{{ value_json.x }}{{ value_json.y }}",
        "{{ value_json.x | regex_replace('a', 'b') }}",
        "{{ value_json.x | tojson }}",
        "{{ value_json.x | float * 2 + 1 }}",
        "{{ value_json.x * 0.1 | round(1) }}",
        "{{ value_json.x + value_json.y }}",
        "{{ states('sensor.x') }}",
        "{{ value_json.items() }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ value_json.x if value_json.y }}",
        "{{ 'ON' if value_json.x > 1 else 'OFF' }}",
        "{{ 'ON' if value_json.x == 1 and value_json.y else 'OFF' }}",
        "{{ value_json.x | round(1, 'floor') }}",
        "{{ value_json.x | round(99) }}",
        "{{ value_json.x | default }}",
        "{{ value_json.x | lower('a') }}",
        "{{ value_json.x | float('a') }}",
        "{{ value.x }}",
        "{{ now() }}",
        "{{ value_json.x ** 2 }}",
        "{{ value[1:] }}",
        "{{ value_json['a\\'b'] }}",
        "{{ value_json.x | }}",
        "{{ value_json.x * 'a' }}",
        "{{ value_json.x * true }}",
        "{{ value_json.x * -'a' }}",
        "{{ 99999999999999999999 * value_json.x }}",
        "{{ value_json[true] }}",
        "{{ value_json.'x' }}",
        "{{ value.split('')[0] }}",
        "{{ value.split(1)[0] }}",
        "{{ value.split(';')[0].x }}",
        "{{ (value_json.x }}",
        "{{ 3 value_json.x }}",
        "{{ 'ON' else 'OFF' }}",
        "{{ value_json.x ( }}",
        "{{ value_json.",
        "{{ ",
        "value",
        "{{ }}",
        "{{ @ }}",
        "",
    ],
)
def test_everything_else_is_unsupported_and_never_evaluated(template: str) -> None:
    with pytest.raises(Unsupported):
        parse(template, LONGEST)


@given(st.text(max_size=60))
def test_no_template_breaks_the_parser(text: str) -> None:
    try:
        made = parse("{{" + text + "}}", LONGEST)
    except Unsupported:
        return
    if made is not None:
        made.render(Payload(b'{"a": 1}', JsonLimits()))


def test_a_template_one_character_over_the_limit_is_unsupported() -> None:
    template = "{{ value_json." + "a" * 20 + " }}"
    assert parse(template, len(template)) is not None
    with pytest.raises(Unsupported, match="over"):
        parse(template, len(template) - 1)
    with pytest.raises(Unsupported, match="over"):
        parse_phrase(template, len(template) - 1)


@pytest.mark.parametrize(
    ("template", "value", "payload"),
    [
        ("{{ value }}", "ON", "ON"),
        ('{"state": "{{ value }}"}', "ON", '{"state": "ON"}'),
        ("set={{ value | int }};", "12.0", "set=12;"),
        ("{{ value | upper }}", "on", "ON"),
    ],
)
def test_a_command_template_is_text_around_one_value(template: str, value: str, payload: str) -> None:
    phrase = parse_phrase(template, LONGEST) or Phrase()
    assert phrase.render(value) == payload


@pytest.mark.parametrize(
    "template",
    [
        "fixed",
        "{{ value }} {{ value }}",
        "{{ value_json.x }}",
        "{{ value * 2 }}",
        "{{ 'a' if value else 'b' }}",
        "{% if value %}{{ value }}{% endif %}",
        '{"a": {"b": {{ value }}}}',
    ],
)
def test_other_command_templates_are_unsupported(template: str) -> None:
    with pytest.raises(Unsupported):
        parse_phrase(template, LONGEST)


@pytest.mark.parametrize("value", ['x","evil":"1', "a\\", "a\nb", "{", "it's"])
def test_a_value_cannot_break_out_of_a_quoted_command(value: str) -> None:
    phrase = parse_phrase('{"text": "{{ value }}"}', LONGEST)
    assert phrase is not None
    with pytest.raises(Unsupported):
        phrase.render(value)
    assert parse_phrase("{{ value }}", LONGEST) is None, "a bare value needs no quoting"


def test_a_value_that_a_command_filter_cannot_take_is_refused() -> None:
    phrase = parse_phrase("{{ value | int }}", LONGEST)
    assert phrase is not None
    with pytest.raises(Unsupported):
        phrase.render("warm")


def test_templates_are_plain_data_and_survive_being_stored() -> None:
    import msgspec

    from edge.protocol.discovery.template import Template

    made = parse("{{ 'ON' if value_json.a[0] == 1 else 'OFF' }}", LONGEST)
    assert made is not None
    assert msgspec.json.decode(dumps(made), type=Template) == made
