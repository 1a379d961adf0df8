"""Whose a topic is: the longest prefix, a device's usual topics, the rest; and what is no prefix."""

from __future__ import annotations

import pytest

from edge.protocol.mqtt import prefixes
from edge.protocol.mqtt.prefixes import Prefixes
from edge.store.credentials import own_topics


def table(**more: str) -> Prefixes:
    return Prefixes(more, own_topics, lambda name: f"d-{name}.test")


def whose(found: Prefixes, topic: str) -> str:
    by = found.whose(topic)
    return "" if by is None else by.user


def test_the_longest_prefix_wins() -> None:
    found = Prefixes({"#": "rest", "a/": "a", "a/b": "b"}, own_topics, lambda name: name)
    assert [whose(found, topic) for topic in ("a/b/c", "a/b", "a/c", "a", "z")] == ["b", "b", "a", "a", "rest"]


def test_one_level_stands_for_everything_a_device_uses() -> None:
    found = table(pump="p")
    for topic in ("pump/x", "aun/v1/pump/announce", "homeassistant/sensor/pump/y/config", "stat/pump/POWER"):
        assert whose(found, topic) == "p"
    assert whose(found, "homeassistant/sensor/other/y/config") == ""
    assert found.admission("p") is not None


def test_with_a_slash_it_is_only_what_is_below() -> None:
    found = Prefixes({"zigbee2mqtt/": "z"}, own_topics, lambda name: name)
    assert found.filters == ("zigbee2mqtt/#",)
    assert whose(found, "homeassistant/sensor/zigbee2mqtt/y/config") == ""


def test_a_name_may_have_several_prefixes_and_the_rights_to_all_of_them() -> None:
    found = Prefixes({"a/": "x", "b/c": "x"}, own_topics, lambda name: f"d-{name}.test")
    by = found.whose("b/c/d")
    assert by is not None
    assert (by.publish, by.subscribe, by.who.aid) == (("a/#", "b/c/#"), ("a/#", "b/c/#"), "d-x.test")
    assert by is found.whose("a/b")


def test_what_belongs_to_nobody_is_nobodys_and_the_rest_has_no_dollar_topics() -> None:
    assert whose(table(a="a"), "b") == ""
    assert whose(Prefixes({"#": "rest"}, own_topics, str), "$SYS/broker/uptime") == ""


@pytest.mark.parametrize("prefix", ["", "/", "+/x", "a/#/b", "a/+", "$SYS/x", "a\0"])
def test_what_is_no_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="no topic prefix"):
        Prefixes({prefix: "x"}, own_topics, str)


def test_what_is_remembered_of_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "MOST_REMEMBERED", 3)
    found = table(a="a")
    for number in range(10):
        assert whose(found, f"a/{number}") == "a"
    assert len(found._known) <= 3
