"""Who gets a message, and what is retained: the router without a broker around it."""

from __future__ import annotations

import pytest

from edge.contract.bus import Admission, Publish
from edge.contract.limit import Limits
from edge.contract.principal import GUEST, NODE, Kind, Principal
from edge.contract.time import SECOND, Stamp
from edge.protocol.mqtt import limits
from edge.protocol.mqtt.message import Message, head_of
from edge.protocol.mqtt.rights import Rights
from edge.protocol.mqtt.router import CLASSES, Retained, Router, rank_of
from edge.protocol.mqtt.session import Session, Subscription
from tests.protocol.mqtt.box import Box

LAMP, SENSOR = (Principal(Kind.DEVICE, f"d-{name}.test", via="mqtt") for name in ("lamp", "sensor"))


def session(number: int, *allowed: str) -> Session:
    rights = Rights(Admission(GUEST, "u", (), allowed or ("#",)), "c")
    return Session(("u", str(number)), number, rights, GUEST)


def router(**bounds: int) -> Router:
    traffic = {"alarm/smoke": "alarm", "odd": "unheard-of"}
    return Router(Limits(bounds), lambda topic: traffic.get(topic, "state"))


def message(topic: str, payload: bytes = b"x", who: Principal = LAMP, expires_us: int | None = None) -> Message:
    return Message(Publish(topic, payload, 0, True, who, Stamp(1, 0)), head_of(topic), expires_us=expires_us)


def test_a_route_is_looked_for_again_only_when_somebody_subscribed_or_left() -> None:
    found, one = router(), Subscription(session(1), "a/+", 1)
    empty = found.route("a/b")
    assert found.route("a/b") is empty
    assert empty.plain == []
    found.put(one)
    assert found.route("a/b").plain == [one]
    assert (found.subscriptions, found.heard("a"), found.heard("b")) == (1, True, False)
    found.take(one)
    assert (found.route("a/b").plain, found.subscriptions) == ([], 0)


def test_a_subscription_to_the_same_filter_takes_the_place_of_the_first() -> None:
    found, mine = router(), session(1)
    found.put(Subscription(mine, "a", 0))
    found.put(Subscription(mine, "a", 2))
    assert [(one.session.number, one.qos) for one in found.route("a").plain] == [(1, 2)]
    assert found.subscriptions == 1


def test_the_class_of_a_topic_ranks_its_messages_and_an_unknown_class_is_the_least() -> None:
    assert [rank_of(klass) for klass in (*CLASSES, "unheard-of")] == [0, 1, 2, 0]
    found = router()
    assert [found.route(topic).rank for topic in ("alarm/smoke", "a", "odd")] == [2, 1, 0]


def test_who_may_not_read_a_topic_is_no_receiver_of_it() -> None:
    found = router()
    found.put(Subscription(session(1, "a/#"), "#", 0))
    assert len(found.route("a/b").plain) == 1
    assert found.route("b").plain == []


def test_overlapping_subscriptions_are_one_receiver_with_the_sum_of_their_options() -> None:
    """MQTT-3.3.4-2 and MQTT-3.3.4-4 of 5: the highest QoS, every identifier."""
    found, mine = router(), session(1)
    found.put(Subscription(mine, "a/+", 1, ids=(7,), no_local=True))
    found.put(Subscription(mine, "a/#", 2, ids=(9,), retain_as_published=True))
    [one] = found.route("a/b").special
    assert (one.qos, sorted(one.ids), one.no_local, one.retain_as_published) == (2, [7, 9], False, True)
    assert found.route("a/b").plain == []


def test_the_members_of_a_shared_subscription_take_turns_and_those_connected_come_first() -> None:
    """MQTT 5 §4.8.2."""
    found = router()
    members = [Subscription(session(number), "a", 0, group="g") for number in (1, 2, 3)]
    for one in members:
        found.put(one)
    route = found.route("a")
    [group] = route.groups
    assert {found.pick(route, group).session.number for _ in range(3)} == {1, 2, 3}
    box = Box()
    members[1].session.conn = box.client("there").connection
    assert {found.pick(route, group).session.number for _ in range(6)} == {2}


def test_groups_of_the_same_name_with_other_filters_are_other_groups() -> None:
    found = router()
    for number, wanted in enumerate(("a", "#", "a")):
        found.put(Subscription(session(number), wanted, 0, group="g"))
    assert sorted(len(group) for group in found.route("a").groups) == [1, 2]


@pytest.mark.limit("mqtt.routes")
def test_the_cache_of_routes_holds_no_more_than_its_limit() -> None:
    found = router(**{limits.ROUTES.name: 3})
    first = found.route("1")
    assert [found.route(topic) is first for topic in ("2", "3", "1")] == [False, False, True]
    found.route("4")
    assert found.route("1") is not first


def test_the_last_message_of_a_topic_is_the_one_retained() -> None:
    kept = Retained(Limits())
    for topic, payload in (("a", b"1"), ("a", b"22"), ("b/c", b"3")):
        kept.put(message(topic, payload))
    assert len(kept) == 2
    assert kept.octets == len(b"\0\1a22") + len(b"\0\3b/c3")
    found = kept.get("a", 0)
    assert found is not None
    assert found.publish.payload == b"22"
    assert sorted(kept.find("#")[0]) == ["a", "b/c"]
    assert kept.take("a") is found
    assert (kept.take("a"), len(kept), kept.octets) == (None, 1, len(b"\0\3b/c3"))


def test_an_expired_message_is_not_handed_out() -> None:
    kept = Retained(Limits())
    kept.put(message("a", expires_us=SECOND))
    assert kept.get("a", SECOND - 1) is not None
    assert kept.get("a", SECOND) is None
    assert kept.get("b", 0) is None


@pytest.mark.limit("mqtt.retained_topics", "mqtt.retained_topics_per_user")
def test_a_new_topic_over_a_limit_is_refused_and_an_old_one_is_not() -> None:
    kept = Retained(Limits({limits.RETAINED_TOPICS.name: 3, limits.RETAINED_TOPICS_PER_USER.name: 2}))
    for topic in ("1", "2"):
        assert kept.refuses(topic, 9, LAMP) is None
        kept.put(message(topic))
    assert kept.refuses("3", 9, LAMP) is limits.RETAINED_TOPICS_PER_USER
    assert kept.refuses("1", 9, LAMP) is None
    assert kept.refuses("3", 9, SENSOR) is None
    kept.put(message("3", who=SENSOR))
    assert kept.refuses("4", 9, SENSOR) is limits.RETAINED_TOPICS
    kept.take("3")
    assert kept.refuses("4", 9, SENSOR) is None


@pytest.mark.limit("mqtt.retained_octets", "mqtt.retained_octets_per_user")
def test_bytes_over_a_limit_are_refused_and_what_is_replaced_makes_room() -> None:
    kept = Retained(Limits({limits.RETAINED_OCTETS.name: 30, limits.RETAINED_OCTETS_PER_USER.name: 20}))
    weight = message("1", b"x" * 7).octets
    assert weight == 10
    kept.put(message("1", b"x" * 7))
    assert kept.refuses("2", 10, LAMP) is None
    assert kept.refuses("2", 11, LAMP) is limits.RETAINED_OCTETS_PER_USER
    assert kept.refuses("1", 20, LAMP) is None
    assert kept.refuses("1", 21, LAMP) is limits.RETAINED_OCTETS_PER_USER
    assert kept.refuses("2", 20, SENSOR) is None
    kept.put(message("2", b"x" * 7, SENSOR))
    assert kept.refuses("3", 10, SENSOR) is None
    assert kept.refuses("1", 11, SENSOR) is limits.RETAINED_OCTETS_PER_USER
    kept.put(message("3", b"x" * 7, SENSOR))
    assert kept.refuses("4", 1, LAMP) is limits.RETAINED_OCTETS


def test_the_nodes_own_messages_have_no_share() -> None:
    kept = Retained(Limits({limits.RETAINED_TOPICS_PER_USER.name: 0, limits.RETAINED_OCTETS_PER_USER.name: 0}))
    for topic in ("1", "2", "2"):
        assert kept.refuses(topic, 9, NODE) is None
        kept.put(message(topic, who=NODE))
    assert kept.refuses("3", 9, LAMP) is limits.RETAINED_TOPICS_PER_USER
