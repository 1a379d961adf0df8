from __future__ import annotations

from typing import Any

import pytest

from edge.protocol.discovery.config import Config, Part, component, slug, topic_ok
from edge.protocol.discovery.record import Bounds, Refusal


def config(**fields: Any) -> Config:
    return Config("sensor", "sensor key", "key", fields, Bounds(text=8))


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("Living Room", "living_room"),
        ("  A--b  ", "a_b"),
        ("温度", ""),
        ("Ä1", "1"),
        ("x" * 50, "x" * 40),
        ("a" * 39 + " b", "a" * 39),
    ],
)
def test_a_slug_is_plain_ascii_and_short(text: str, made: str) -> None:
    assert slug(text) == made


def test_a_slug_may_be_joined_by_hyphens() -> None:
    assert slug("Living Room", "-") == "living-room"


@pytest.mark.parametrize(
    ("topic", "good"),
    [
        ("a/b", True),
        ("", False),
        (7, False),
        ("a/+", False),
        ("a/#", False),
        ("$SYS", False),
        ("a\0", False),
        ("abcdefgh", True),
        ("abcdefghi", False),
    ],
)
def test_a_topic_that_may_be_named(topic: object, good: bool) -> None:
    assert topic_ok(topic, 8) is good


def test_fields_are_looked_at_with_their_type() -> None:
    fields = config(a="x", b=True, c=1.5, d=None, on="yes", list=["a"], long="x" * 9, bad=["x", 1])
    assert (fields.text("a"), fields.text("b"), fields.text("c"), fields.text("d", "e")) == ("x", "True", "1.5", "e")
    assert (fields.number("c"), fields.number("none", 2.0)) == (1.5, 2.0)
    assert (fields.flag("b"), fields.flag("on"), fields.flag("none"), fields.flag("a")) == (True, True, False, False)
    assert (fields.texts("list"), fields.texts("none", ("z",))) == (("a",), ("z",))
    for look in (lambda: fields.text("long"), lambda: fields.number("a"), lambda: fields.texts("bad")):
        with pytest.raises(Refusal, match="bad field"):
            look()


def test_a_part_without_topics_is_nothing_unless_it_has_to_be() -> None:
    assert component(config(name="x"), Part()) is None
    with pytest.raises(Refusal, match="incomplete"):
        component(config(name="x"), Part(always=True))


def test_a_part_has_a_name_and_an_identity_of_its_own() -> None:
    made = component(config(name="Lamp", unique_id="u", brightness_t="b"), Part("level", says="brightness_t"))
    assert made is not None
    assert (made.uid, made.cap.name, made.cap.title) == ("sensor:u/level", "lamp_level", "Lamp level")
