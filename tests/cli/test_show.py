from __future__ import annotations

import json

import pytest

from edge.cli import show


def test_a_table_has_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show.table(
        [{"id": "a", "value": 21.5}, {"id": "kitchen.lamp", "on_line": True}], ["id", "value", "on_line"], none=""
    )
    assert capsys.readouterr().out.splitlines() == [
        "ID            VALUE  ON LINE",
        "a             21.5   -",
        "kitchen.lamp  -      yes",
    ]


def test_no_rows_are_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    show.table([], ["id"], none="nothing yet")
    assert capsys.readouterr().out == "nothing yet\n"


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (None, "-"),
        ("", "-"),
        (True, "yes"),
        (False, "no"),
        (0, "0"),
        (21.0, "21"),
        (["a", "b"], "a, b"),
        ([], "-"),
        ({"a": 1}, '{"a":1}'),
        ({}, "-"),
        ("灯", "灯"),
        ("\x1b[2Jgone\n", "\\x1b[2Jgone\\n"),
        ("\u202etxt", "\\u202etxt"),
    ],
)
def test_each_value_has_its_word_and_no_terminal_control(value: object, word: str) -> None:
    assert show.word(value) == word


def test_facts_are_nested_by_indentation(capsys: pytest.CaptureFixture[str]) -> None:
    show.facts({"issuer": "home.test", "store": {"node": {"read_only": False}}, "rows": [{"a": 1, "b": None}]})
    assert capsys.readouterr().out.splitlines() == [
        "issuer  home.test",
        "store",
        "  node",
        "    read only  no",
        "rows",
        "  a 1, b -",
    ]


def test_json_is_one_value(capsys: pytest.CaptureFixture[str]) -> None:
    show.as_json({"a": [1, "ü"]})
    assert json.loads(capsys.readouterr().out) == {"a": [1, "ü"]}
