from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.contract.errors import Malformed
from edge.protocol.front_matter import read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("# only a comment\n\n", {}),
        ("a: 1", {"a": 1}),
        ("a: -7\nb: 1.5\nc: 1e3\nd: true\ne: False\nf: null\ng: ~\nh:", None),
        ("version: 1.0.0", {"version": "1.0.0"}),
        ("a: text with spaces  # comment", {"a": "text with spaces"}),
        ("a: http://x.y:80/z#frag", {"a": "http://x.y:80/z#frag"}),
        ("a: 'it''s'", {"a": "it's"}),
        (r'a: "tab\t \u4e00 \ud83d\ude00 \x41 \U0001F600 \/"', {"a": "tab\t 一 😀 A 😀 /"}),
        ('a: "x"  # comment', {"a": "x"}),
        ("'quoted key': 1\n\"other\": 2", {"quoted key": 1, "other": 2}),
        ("1: a\ntrue: b", {"1": "a", "true": "b"}),
        ("a key: b", {"a key": "b"}),
        ("a:\r\n  b: 1\r\n", {"a": {"b": 1}}),
        ("tags:\n- a\n- b c", {"tags": ["a", "b c"]}),
        ("tags:\n  - a\n  - 'b'\nx: 1", {"tags": ["a", "b"], "x": 1}),
        ("s:\n  - id: a\n    n: 1\n  - id: b", {"s": [{"id": "a", "n": 1}, {"id": "b"}]}),
        ("s:\n  -\n    id: a\n  - # nothing\n  - c", {"s": [{"id": "a"}, None, "c"]}),
        ("s:\n  - - 1\n    - 2\n  - [3]", {"s": [[1, 2], [3]]}),
        ("a: [1, x y, \"z\", {b: 2, 'c': [ ]}, ]", {"a": [1, "x y", "z", {"b": 2, "c": []}]}),
        ('a: {"b": {"c": [1, null, "d"]}}', {"a": {"b": {"c": [1, None, "d"]}}}),
        ("a: {}\nb: []", {"a": {}, "b": []}),
        ("t: |\n  one\n    two\n\n  three\nx: 1", {"t": "one\n  two\n\nthree\n", "x": 1}),
        ("t: >-\n  a\n  b\n\n  c", {"t": "a b\n\nc"}),
        ("t: |+\n  a\n\n", {"t": "a\n\n\n"}),
        ("t: |\n\n  a", {"t": "\na\n"}),
        ("t: |", {"t": ""}),
        ("t: |\nx: 1", {"t": "", "x": 1}),
        ("a: 12345678901234567890", {"a": "12345678901234567890"}),
        ("a: 99999999999999999", {"a": "99999999999999999"}),
        ("a: 1e300", {"a": "1e300"}),
        ("a:\n\n# between\n  b: 1", {"a": {"b": 1}}),
        ("a:\nb: 1", {"a": None, "b": 1}),
    ],
)
def test_the_subset_is_read(text: str, value: dict[str, Any] | None) -> None:
    if value is None:
        value = {"a": -7, "b": 1.5, "c": 1000.0, "d": True, "e": False, "f": None, "g": None, "h": None}
    assert read(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1",
        "a: *x",
        "a: !!python/object:os.system x",
        "%YAML 1.2",
        "<<: {b: 1}",
        "a: {<<: 1}",
        "a: 1\na: 2",
        "a: {b: 1, b: 2}",
        "\ta: 1",
        "a:\n\t b: 1",
        "  a: 1",
        "a: 1\n  b: 2",
        "a:\n    b: 1\n  c: 2",
        "a:\n  - 1\n    - 2",
        "a: [1",
        "a: {b: 1",
        "a: {b 1}",
        "a: {1, 2}",
        "a: [1 2] 3",
        "a: 'x",
        'a: "x',
        'a: "\\q"',
        'a: "\\u12"',
        'a: "\\ud800"',
        'a: "\\UFFFFFFFF"',
        "a: 'x' y",
        "a: 'x'#y",
        "a: b: c",
        "a: x\n  y",
        "a: |3\n  x",
        "- a",
        "? a\n: b",
        "just text",
        "a: @x",
        "a: [[[[[[[[[[1]]]]]]]]]]",
        "".join("  " * depth + "a:\n" for depth in range(12)),
        "a:\n- 1\nb: 2\n - 3",
        "a: 1\n- x",
        "s:\n-   a: 1\n  b: 2",
    ],
)
def test_everything_else_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(Malformed, match="front matter"):
        read(text)


SCALARS = st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,10}", fullmatch=True), VALUES, max_size=4))
def test_json_behind_a_key_means_itself(fields: dict[str, Any]) -> None:
    fields = {name: value for name, value in fields.items() if "<<" not in json.dumps(value)}
    assert read("\n".join(f"{name}: {json.dumps(value)}" for name, value in fields.items())) == fields


@given(st.text(alphabet="ab:-#'\"[]{},|> \n\\&*!", max_size=60))
def test_whatever_comes_is_a_mapping_or_refused(text: str) -> None:
    try:
        assert isinstance(read(text), dict)
    except Malformed:
        pass
