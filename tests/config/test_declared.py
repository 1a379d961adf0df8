from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from edge.config import PORTS, declared
from edge.config.declared import Setting, settings

EDGE = Path(__file__).resolve().parents[2] / "edge"

DECLARED = [one for one in settings() if not one.key.startswith("limits.")]


@pytest.mark.parametrize("setting", DECLARED, ids=lambda one: one.key)
def test_every_setting_says_what_it_is_and_its_example_and_default_are_allowed(setting: Setting) -> None:
    assert setting.about.endswith(".")
    assert setting.allowed
    assert setting.example != setting.default
    hint = declared.hint_of(setting.key)
    assert msgspec.convert(setting.example, hint) == setting.example
    assert msgspec.convert(setting.default, hint) == setting.default


def test_a_key_belongs_to_the_longest_section_that_it_begins_with() -> None:
    assert declared.split("mqtt.listen") == ("mqtt", "listen")
    assert declared.split("mqtt.external.host") == ("mqtt.external", "host")
    assert declared.split("mqtt.external.principals.a.b") == ("mqtt.external", "principals.a.b")
    assert declared.split("limits.mqtt.external_x") == ("limits", "mqtt.external_x")


def test_no_two_settings_share_a_variable() -> None:
    names = [key.replace(".", "_").upper() for key in declared.keys()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("key", ["mqtt", "mqtt.", "mqtt.listen.x", "nowhere.x", "limits.nowhere", "log.levels."])
def test_a_key_that_is_not_declared_has_no_type(key: str) -> None:
    with pytest.raises(KeyError):
        declared.hint_of(key)


def test_every_setting_is_read_by_the_node() -> None:
    listeners = {port.key for port in PORTS} | {"node.port_aliases"}  # `Config.listeners` reads these
    words = "\n".join(path.read_text(encoding="utf-8") for path in (EDGE / "node").glob("*.py"))
    unread = [
        one.key
        for one in DECLARED
        if one.key not in listeners
        and f".{one.key}" not in words
        and not (one.key.startswith(("log.", "mqtt.external.")) and f"asked.{one.key.rpartition('.')[2]}" in words)
    ]
    assert unread == []
