from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import edge.node.house  # noqa: F401  declares every limit
from edge.config import PORTS, declared
from edge.config.declared import Setting, settings
from edge.contract import limit
from tests.support.wrong_settings import wrong

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


WRONG = [(one.key, value) for one in DECLARED for value in wrong(declared.hint_of(one.key))]


@pytest.mark.parametrize(("key", "value"), WRONG, ids=[f"{key} {value!r:.30}" for key, value in WRONG])
def test_every_setting_refuses_what_it_cannot_mean_and_says_what_is_allowed(key: str, value: object) -> None:
    hint = declared.hint_of(key)
    assert not declared.fits(value, hint)
    item, words = declared.culprit(value, hint)
    assert words
    held = list(value.values()) if isinstance(value, dict) else value
    assert item is value or (isinstance(held, list) and item in held)


@pytest.mark.parametrize("setting", DECLARED, ids=lambda one: one.key)
def test_every_setting_has_wrong_values_of_its_own(setting: Setting) -> None:
    """A text without a shape would take anything."""
    assert wrong(declared.hint_of(setting.key))


def test_a_limit_is_a_number_that_the_database_can_hold() -> None:
    for value in (0, -1, (1 << 40) + 1, "x", True, 1.5):
        assert not declared.fits(value, declared.LIMIT)
    assert declared.fits(1 << 40, declared.LIMIT)


def test_a_limit_starts_at_its_least() -> None:
    for one in limit.REGISTRY.values():
        kind = declared.limit_type(one)
        assert declared.fits(one.least, kind)
        assert not declared.fits(one.least - 1, kind)
        assert one.default >= one.least or one.default == 0


def test_a_limit_within_another_starts_within_it() -> None:
    for one in limit.REGISTRY.values():
        assert not one.within or one.default <= limit.REGISTRY[one.within].default


RIGHT: dict[str, list[object]] = {
    "node.public_url": [["http://box.lan:9010"], ["https://[::1]:9443/x/"], ["192.0.2.0/24=https://Box.lan:9443"]],
    "node.issuer": ["", "home.test", "Home.Test.", "n0.aun-edge.internal"],
    "http.hosts": [["box.lan", "192.0.2.7", "::1", "box_1"]],
    "tls.names": [["*.box.lan", "2001:db8::1"]],
    "mqtt.external.filters": [["#", "+/a/#", "a", "/", "$share/g/a"]],
    "devices.discovery_prefix": ["homeassistant", "ha-2"],
    "agents.default_skill": ["", "hall.light", "hall.light.level"],
}


def test_what_is_right_is_taken() -> None:
    for key, values in RIGHT.items():
        for value in values:
            assert declared.fits(value, declared.hint_of(key)), (key, value)


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
