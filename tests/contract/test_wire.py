from __future__ import annotations

import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.contract import wire
from edge.contract.errors import EdgeError, Malformed, TooLarge
from edge.contract.wire import SAFE_INTEGER, JsonLimits, canonical, decode, dumps, loads

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-SAFE_INTEGER, SAFE_INTEGER)
    | st.floats(-1e15, 1e15, allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(plain)
def test_what_dumps_writes_loads_reads(value: object) -> None:
    assert loads(dumps(value)) == value
    assert loads(dumps(value).decode()) == value


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_named_error(data: bytes) -> None:
    try:
        value = loads(data)
    except EdgeError:
        return
    assert json.dumps(value) is not None


SCRAPS = (
    rb'{ } [ ] , : " "a" "b" "v": "a:b" 1 -0 0.1 01 1e400 9007199254740992 true null NaN \u003a "\ud83d\ude00" "\ud800"'
)
scraps = st.sampled_from([*SCRAPS.split(), b" ", b"\n", b"\xff"])


@given(st.binary(max_size=20) | st.lists(scraps, max_size=14).map(b"".join) | plain.map(dumps))
def test_the_short_way_says_what_the_strict_parser_says(data: bytes) -> None:
    """Of what it takes; the rest it leaves to the parser. The same values, types and order of members."""

    def told() -> str:
        try:
            return repr(loads(data, JsonLimits(depth=3)))
        except EdgeError as error:
            return type(error).__name__

    short = told()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "_clean", lambda raw, depth: wire._UNSURE)
        assert told() == short


def test_clean_json_goes_the_short_way() -> None:
    for clean in (b'{"v":{"n":[1,2.5,null,true,{"a":"b"}]}}', b"21.5", b'"\\ud83d\\ude00"', b"[]"):
        assert wire._clean(clean, 5) == json.loads(clean)
    for unsure in (b'{"v":1,"v":1}', b'{"v":"a:b"}', b"[[[[[[]]]]]]", b"9007199254740992", b"[9007199254740992]", b"{"):
        assert wire._clean(unsure, 5) is wire._UNSURE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1,",
        '{"a":1,"a":2}',
        '{"x":{"a":1,"a":2}}',
        "NaN",
        "[Infinity]",
        "-Infinity",
        str(SAFE_INTEGER + 1),
        str(-SAFE_INTEGER - 1),
        "1" * 5000,
        "1e300",
        "-9007199254740993.0",
        '"\\ud800"',
        '{"\\udc00":1}',
        '["a",["\\uD800x"]]',
        "[" * 200_000,
        '{"a":' * 200_000,
        "[" * 33 + "]" * 33,
        "\ud800",
        "1 2",
    ],
)
def test_what_would_cut_off_a_reader_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        loads(text)


def test_invalid_utf8_is_refused() -> None:
    with pytest.raises(Malformed, match="UTF-8"):
        loads(b'"\xff"')


def test_the_edges_are_accepted() -> None:
    assert loads(str(SAFE_INTEGER)) == SAFE_INTEGER
    assert loads(str(-SAFE_INTEGER)) == -SAFE_INTEGER
    assert loads('"\\ud83d\\ude00"') == "😀"
    assert loads(bytearray(b"[" * 32 + b"]" * 32)) is not None
    assert loads('"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\"[["') is not None


@pytest.mark.parametrize("unit", [b'\\"', b'"', b"\\", b'"\\', b"[]", b'["",', b"[{"])
def test_the_depth_of_half_a_megabyte_is_told_in_a_moment(unit: bytes) -> None:
    hostile = b"[" * 40 + b'"' + unit * (500_000 // len(unit))
    started = time.process_time()
    with pytest.raises(Malformed):
        loads(hostile)
    assert time.process_time() - started < 2


def test_size_and_depth_end_exactly_at_their_limit() -> None:
    tight = JsonLimits(octets=6, depth=2)
    assert loads("[[12]]", tight) == [[12]]
    with pytest.raises(TooLarge):
        loads("[[123]]", tight)
    with pytest.raises(Malformed, match="deeper"):
        loads("[[[]]]", tight)
    with pytest.raises(Malformed):
        loads("[[[]", JsonLimits(depth=2))


def test_what_is_too_deep_for_the_reader_itself_is_refused_too() -> None:
    levels = 15_000
    with pytest.raises(Malformed, match="deep"):
        loads("[" * levels + "]" * levels, JsonLimits(depth=levels))


def test_wide_is_not_deep() -> None:
    assert len(loads("[" + ",".join(["[{}]"] * 1000) + "]")) == 1000


def test_canonical_form_is_sorted_compact_and_unescaped() -> None:
    assert canonical({"b": 1, "a": {"z": "ü", "y": [1.5]}}) == '{"a":{"y":[1.5],"z":"ü"},"b":1}'.encode()


class Point(msgspec.Struct):
    x: int


def test_decode_gives_a_record_or_malformed() -> None:
    assert decode(b'{"x":1}', Point) == Point(1)
    for raw in (b'{"x":"1"}', b"{", b'{"x":\xff}'):
        with pytest.raises(Malformed):
            decode(raw, Point)
