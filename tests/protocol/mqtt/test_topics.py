"""Topics and filters against a model that tries every topic of a small world."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.mqtt.topics import FilterTree, TopicTree, matches, share_of, valid_filter, valid_topic, within

WORLD = ["/".join(names) for depth in (1, 2, 3) for names in product(("a", "b", "", "$x"), repeat=depth)]
LEVELS = st.sampled_from(["a", "b", "", "+", "$x"])
FILTERS = st.builds(
    lambda levels, tail: "/".join([*levels, "#"] if tail else levels),
    st.lists(LEVELS, min_size=1, max_size=3),
    st.booleans(),
) | st.just("#")


def covered(wanted: str) -> set[str]:
    """Every topic of the world that a filter matches, by the words of the standard."""
    found = set()
    for topic in WORLD:
        levels, names = wanted.split("/"), topic.split("/")
        if levels[-1] == "#":
            levels = levels[:-1]
            fits = len(names) >= len(levels)
            names = names[: len(levels)]
        else:
            fits = len(names) == len(levels)
        if fits and all(level in ("+", name) for level, name in zip(levels, names, strict=True)):
            if not (topic.startswith("$") and wanted[0:1] in ("+", "#")):
                found.add(topic)
    return found


@given(FILTERS)
def test_matches_agrees_with_the_model(wanted: str) -> None:
    assert {topic for topic in WORLD if matches(wanted, topic)} == covered(wanted)


@given(FILTERS, FILTERS)
def test_a_filter_within_another_matches_nothing_outside_it(wanted: str, allowed: str) -> None:
    if within(wanted, allowed):
        assert covered(wanted) <= covered(allowed)


@given(FILTERS, FILTERS)
def test_within_is_not_stricter_than_the_model(wanted: str, allowed: str) -> None:
    """The world is three levels deep, so a filter may reach out of it only where it has a `#`."""
    inside = covered(wanted) <= covered(allowed) and bool(covered(wanted))
    if inside and "#" not in wanted and wanted.count("/") < 3:
        assert within(wanted, allowed)


@pytest.mark.parametrize(
    ("wanted", "allowed", "inside"),
    [
        ("secret/#", "+/+", False),
        ("+/#", "+/+", False),
        ("#", "a/#", False),
        ("a/b", "a/#", True),
        ("a", "a/#", True),
        ("a/#", "a/#", True),
        ("a/#", "a/+/#", False),
        ("a/+/#", "a/#", True),
        ("+", "#", True),
        ("#", "#", True),
        ("$SYS/#", "#", False),
        ("$SYS/#", "$SYS/#", True),
        ("$SYS/x", "+/x", False),
        ("+/x", "$SYS/x", False),
    ],
)
def test_a_subscription_is_granted_only_inside_an_allowed_filter(wanted: str, allowed: str, inside: bool) -> None:
    assert within(wanted, allowed) is inside


@given(st.lists(st.tuples(FILTERS, st.integers(0, 2)), max_size=12), st.lists(st.integers(0, 11), max_size=12))
def test_the_filter_tree_finds_what_the_model_finds(puts: list[tuple[str, int]], takes: list[int]) -> None:
    tree: FilterTree[int, tuple[str, int]] = FilterTree()
    model: dict[tuple[str, int], tuple[str, int]] = {}
    for wanted, key in puts:
        tree.put(wanted, key, (wanted, key))
        model[wanted, key] = (wanted, key)
    for at in takes:
        if at < len(puts):
            wanted, key = puts[at]
            assert tree.take(wanted, key) == model.pop((wanted, key), None)
    assert tree.size == len(model)
    for topic in WORLD:
        assert sorted(tree.find(topic)) == sorted(pair for pair in model.values() if matches(pair[0], topic))


@given(st.lists(st.tuples(st.sampled_from(WORLD), st.booleans()), max_size=20), FILTERS)
def test_the_topic_tree_finds_what_the_model_finds(steps: list[tuple[str, bool]], wanted: str) -> None:
    tree: TopicTree[str] = TopicTree()
    model: set[str] = set()
    for topic, put in steps:
        if put:
            tree.put(topic, topic)
            model.add(topic)
        else:
            assert tree.take(topic) == (topic if topic in model else None)
            model.discard(topic)
    assert len(tree) == len(model)
    assert set(tree) == model
    found, taken = tree.find(wanted)
    assert sorted(found) == sorted(topic for topic in model if matches(wanted, topic))
    assert len(found) <= taken <= 3 + 4 * len(model)


def test_an_emptied_filter_tree_keeps_no_branches() -> None:
    tree: FilterTree[int, int] = FilterTree()
    tree.put("a/b/c", 1, 1)
    tree.take("a/b/c", 1)
    assert tree._root.children is None


@pytest.mark.parametrize("topic", ["a", "/", "a/b", " ", "/a", "a//b", "$SYS/x"])
def test_topic_names_that_are_valid(topic: str) -> None:
    assert valid_topic(topic)


@pytest.mark.parametrize("topic", ["", "+", "a/#", "a+", "a\0", "ä" * 40_000])
def test_topic_names_that_are_not(topic: str) -> None:
    assert not valid_topic(topic)


@pytest.mark.parametrize("wanted", ["#", "+", "a/+/b", "+/+", "/#", "a/#", "/+"])
def test_filters_that_are_valid(wanted: str) -> None:
    """MQTT 3.1.1 §4.7.1."""
    assert valid_filter(wanted)


@pytest.mark.parametrize("wanted", ["", "a#", "#/a", "a/#/b", "a+/b", "++", "+a", "a\0", "#a"])
def test_filters_that_are_not(wanted: str) -> None:
    assert not valid_filter(wanted)


def test_shares_have_a_group_and_a_filter() -> None:
    """MQTT-4.8.2-1, MQTT-4.8.2-2."""
    assert share_of("$share/g/a/+") == ("g", "a/+")
    assert share_of("$share/g//") == ("g", "/")
    for wrong in ("$share/", "$share/g", "$share//a", "$share/+/a", "$share/g/", "$share/g#/a", "$share/g/a#"):
        assert share_of(wrong) is None
