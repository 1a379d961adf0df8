from __future__ import annotations

from typing import Any

import pytest

from edge.contract.errors import InvalidParams
from edge.protocol import parts

FILE = {"kind": "file", "file": {"name": "a.txt", "mimeType": "text/plain", "uri": "http://x/a.txt"}}


def test_texts_and_objects_are_found_in_order() -> None:
    said = [parts.text("a"), parts.data({"n": 1}), parts.text("b"), {"kind": "data", "data": 5}]
    assert parts.texts(said) == "a\nb"
    assert parts.objects(said) == [{"n": 1}]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("hello", [parts.text("hello")]),
        ([{"type": "text", "text": "a"}, None], [parts.text("a")]),
        ([{"kind": "text", "text": 5}], [parts.data({"kind": "text", "text": 5})]),
        (
            [{"type": "data", "data": {"n": 1}, "metadata": {"m": 1}}],
            [{"kind": "data", "data": {"n": 1}, "metadata": {"m": 1}}],
        ),
        ([{"type": "file", "file": {"uri": "x"}}], [{"kind": "file", "file": {"uri": "x"}}]),
        (21.5, [parts.data({"value": 21.5})]),
        ({"n": 1}, [parts.data({"n": 1})]),
        (None, []),
    ],
)
def test_devices_are_read_leniently(value: Any, read: list[Any]) -> None:
    assert list(parts.lenient(value)) == read


@pytest.mark.parametrize(
    "value",
    [
        [parts.text("a"), parts.data({}), FILE],
        [{"kind": "text", "text": "", "metadata": None}],
        [{"kind": "file", "file": {"bytes": "aGk=", "name": None}}],
    ],
)
def test_good_parts_pass(value: list[Any]) -> None:
    read = parts.strict(value)
    assert len(read) == len(value)
    assert all(None not in part.values() for part in read)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        ["text"],
        [{}],
        [{"kind": "video", "text": "x"}],
        [{"kind": "text"}],
        [{"kind": "text", "text": 5}],
        [{"kind": "data", "data": [1]}],
        [{"kind": "file", "file": "x"}],
        [{"kind": "file", "file": {}}],
        [{"kind": "file", "file": {"uri": "x", "bytes": "y"}}],
        [{"kind": "file", "file": {"uri": 5}}],
        [{"kind": "file", "file": {"uri": "x", "name": 5}}],
        [{"kind": "text", "text": "x", "metadata": "m"}],
    ],
)
def test_bad_parts_are_invalid_params(value: Any) -> None:
    with pytest.raises(InvalidParams):
        parts.strict(value)
