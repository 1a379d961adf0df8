from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """What `tools/reference` writes about operations."""
    sys.path.insert(0, str(TOOLS))
    try:
        importlib.import_module("reference").import_everything()
        made: dict[str, str] = importlib.import_module("reference_methods").pages("")
    finally:
        sys.path.remove(str(TOOLS))
    return made


def schema(pages: dict[str, str], area: str, operation: str, part: str) -> dict[str, Any]:
    whole = json.loads(pages[f"schema/{area}.json"])
    named: dict[str, Any] = whole["operations"][operation][part]
    found: dict[str, Any] = whole["$defs"][named["$ref"].rpartition("/")[2]]
    return found


def test_every_page_of_the_table_is_there(pages: dict[str, str]) -> None:
    lines = [line for line in pages["methods.md"].splitlines() if line.startswith("| [`")]
    assert len(lines) > 80
    for line in lines:
        name = line.split("`")[1]
        area = name.partition(".")[0]
        assert f"## {name}\n" in pages[f"methods/{area}.md"]
        assert name in json.loads(pages[f"schema/{area}.json"])["operations"]


def test_params_say_what_must_be_there(pages: dict[str, str]) -> None:
    send = schema(pages, "message", "message.send", "params")
    assert send["required"] == ["to", "payload"]
    assert send["properties"]["ttl"] == {"type": "integer", "default": 0}
    assert "| `to` | string | **required** |" in pages["methods/message.md"]


def test_json_that_is_kept_as_text_is_any_json(pages: dict[str, str]) -> None:
    assert schema(pages, "auth", "auth.aid_login2", "params")["properties"]["client_time"] == {}


def test_an_outcome_shows_the_record_inside(pages: dict[str, str]) -> None:
    assert "capabilities" in schema(pages, "auth", "auth.connect", "result")["properties"]


def test_errors_have_the_numbers_of_their_method(pages: dict[str, str]) -> None:
    connect = pages["methods/auth.md"].partition("## auth.connect")[2].partition("\n## ")[0]
    assert "| `InvalidParams` | 4000 | 400 |" in connect
    assert "| `UnknownAid` | -32008 | 404 |" in pages["methods/message.md"]
