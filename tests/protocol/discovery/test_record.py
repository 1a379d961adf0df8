from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.contract.wire import JsonLimits
from edge.protocol.discovery.record import (
    Payload,
    Reader,
    Refusal,
    Writer,
    confirmed_by,
    number,
    plain,
    read,
    typed,
    write,
)
from edge.protocol.discovery.template import NO_SAMPLE, Phrase, parse

NATIVE = Reader(topic="t", value_type="number", native=True)


def said(reader: Reader, payload: bytes) -> object:
    return read(reader, Payload(payload, JsonLimits()))


@pytest.mark.parametrize(
    ("text", "value"),
    [("21.5", 21.5), (" 7 ", 7), ("-3", -3), ("+4", 4), ("1e3", 1000.0), (3, 3), (2.5, 2.5)],
)
def test_a_number_is_read_from_plain_text(text: object, value: float) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    "text",
    ["21,5", "nan", "inf", "-Infinity", "", "x", "1_0", "٣", "9" * 65, "1e400", True, None, [], 2**53, float("nan")],
)
def test_a_number_is_never_guessed(text: object) -> None:
    assert number(text) is NO_SAMPLE


@pytest.mark.parametrize(
    ("value_type", "raw", "value"),
    [
        ("number", "4", 4),
        ("boolean", True, True),
        ("boolean", "ON", NO_SAMPLE),
        ("text", "x", "x"),
        ("text", {"a": 1}, '{"a":1}'),
        ("json", {"a": 1}, {"a": 1}),
        ("none", "x", NO_SAMPLE),
        ("number", None, None),
    ],
)
def test_a_value_has_the_type_of_its_capability(value_type: str, raw: object, value: object) -> None:
    assert typed(raw, value_type) == value


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b"21.5", 21.5),
        (b'{"v": 21.5}', 21.5),
        (b'{"v": 21.5, "t": 1767225600000}', 21.5),
        (b'{"v": null}', None),
        (b'"21.5"', 21.5),
        (b"", NO_SAMPLE),
        (b"\xff", NO_SAMPLE),
        (b"warm", NO_SAMPLE),
        (b'{"v": 1, "x": 2}', NO_SAMPLE),
    ],
)
def test_a_native_state_is_a_value_or_a_value_with_its_time(payload: bytes, value: object) -> None:
    assert said(NATIVE, payload) == value


def test_a_payload_that_several_read_says_the_same_to_each() -> None:
    payload = Payload(b'{"v": 21.5, "t": 1700000000000}', JsonLimits())
    assert [read(NATIVE, payload), payload.native(), payload.native()] == [21.5, *[(21.5, 1_700_000_000_000)] * 2]


def test_a_native_text_need_not_be_json() -> None:
    assert said(Reader(topic="t", native=True), b"hello there") == "hello there"


@pytest.mark.parametrize(
    ("payload", "at"),
    [
        (b'{"v": 1, "t": 5}', 5),
        (b'{"v": 1, "t": 5.9}', 5),
        (b'{"v": 1, "t": true}', None),
        (b'{"v": 1}', None),
        (b'{"v": 1, "t": 5, "more": 1}', None),
        (b"1", None),
    ],
)
def test_the_stated_time_is_in_milliseconds(payload: bytes, at: int | None) -> None:
    assert Payload(payload, JsonLimits()).native()[1] == at


def test_empty_text_is_no_sample_and_none_is_unknown() -> None:
    for reader in (Reader(topic="t"), Reader(topic="t", value_type="number")):
        assert said(reader, b"") is NO_SAMPLE
        assert said(reader, b"None") is None
    strict = Reader(topic="t", value_type="boolean", texts=(("ON", True),), strict=True)
    assert said(strict, b"None") is None
    assert said(strict, b"") is NO_SAMPLE


def test_a_template_may_say_unknown() -> None:
    reader = Reader(topic="t", value_type="number", template=parse("{{ value_json.x }}", 100))
    assert said(reader, b'{"x": null}') is None


def test_words_stand_for_values_and_others_pass() -> None:
    reader = Reader(topic="t", texts=(("home", "at home"), ("1", "one"), ("{}", "nothing")))
    assert (said(reader, b"home"), said(reader, b"garden")) == ("at home", "garden")
    by_json = Reader(topic="t", texts=(("1", "one"), ('{"a":1}', "object")), template=parse("{{ value_json }}", 100))
    assert (said(by_json, b"1"), said(by_json, b'{"a": 1}')) == ("one", "object")


def test_a_json_value_is_kept_whole() -> None:
    reader = Reader(topic="t", value_type="json")
    assert said(reader, b'{"a": [1]}') == {"a": [1]}
    assert said(reader, b"{") is NO_SAMPLE
    assert said(reader, b"\xff") is NO_SAMPLE


@given(st.binary(max_size=40))
def test_no_payload_breaks_a_reader(payload: bytes) -> None:
    for reader in (NATIVE, Reader(topic="t"), Reader(topic="t", value_type="json"), Reader(topic="t", key="a")):
        said(reader, payload)


def test_a_payload_is_decoded_once_and_only_when_asked() -> None:
    payload = Payload(b'{"a": 1}', JsonLimits())
    assert payload.json() is payload.json()
    assert payload.text() == payload.text() == '{"a": 1}'
    assert Payload(b"\xff", JsonLimits()).text() is None
    assert Payload(b'{"a": 1}', JsonLimits(octets=3)).json() is NO_SAMPLE


@pytest.mark.parametrize(("value", "text"), [(21.0, "21"), (21.5, "21.5"), (True, "true"), ("x", "x"), (None, "null")])
def test_a_value_is_written_plainly(value: object, text: str) -> None:
    assert plain(value) == text


def test_a_writer_has_words_for_values_or_refuses() -> None:
    writer = Writer(topic="t", texts=(("true", "1"), ("false", "0")), strict=True, confirms=(("open", "opened"),))
    assert (write(writer, True), write(writer, False)) == (b"1", b"0")
    with pytest.raises(Refusal):
        write(writer, "2")
    assert (confirmed_by(writer, "open"), confirmed_by(writer, "x")) == ("opened", "x")


def test_a_writer_with_a_template_refuses_what_would_break_out() -> None:
    writer = Writer(topic="t", phrase=Phrase('{"text": "', '"}'))
    assert write(writer, "calm") == b'{"text": "calm"}'
    with pytest.raises(Refusal):
        write(writer, 'x", "admin": "true')


def test_a_writer_with_a_key_makes_json() -> None:
    assert write(Writer(topic="t", key="level", with_state="ON"), 7) == b'{"state":"ON","level":7}'
    assert write(Writer(topic="t", key="state", texts=(("true", "ON"),)), True) == b'{"state":"ON"}'
