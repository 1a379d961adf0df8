"""Wills, retained messages, the host's own messages, figures."""

from __future__ import annotations

import pytest

from edge.contract.bus import Admission, Publish
from edge.contract.principal import NODE, Kind, Principal
from edge.protocol.mqtt.codec import V5, V311, Ack, Disconnect, PublishPacket, Will
from edge.protocol.mqtt.message import Message, head_of
from edge.protocol.mqtt.properties import Prop, Properties
from edge.protocol.mqtt.reasons import Reason
from tests.protocol.mqtt.box import Box

WEEK = {Prop.SESSION_EXPIRY: 604_800}


def test_a_new_subscriber_gets_the_last_retained_message() -> None:
    """MQTT-3.3.1-5 of 3.1.1."""
    box = Box()
    for payload in (b"1", b"2"):
        box.client("p").publish("a", payload, retain=True)
    client = box.client("s")
    client.subscribe("a")
    assert client.publishes() == [("a", b"2", 0)]


def test_an_empty_retained_message_forgets_and_is_forwarded() -> None:
    """MQTT-3.3.1-10, MQTT-3.3.1-11 of 3.1.1."""
    box = Box()
    box.host("a", b"1", retain=True)
    watcher = box.client("w")
    watcher.subscribe("a")
    watcher.read()
    box.client("p").publish("a", b"", 1, retain=True)
    assert watcher.publishes() == [("a", b"", 0)]
    assert box.broker.stats()["retained"] == 0
    late = box.client("s")
    late.subscribe("a")
    assert late.read() == []


def test_what_is_not_retained_changes_nothing_of_what_is() -> None:
    """MQTT-3.3.1-12 of 3.1.1."""
    box = Box()
    box.host("a", b"1", retain=True)
    box.host("a", b"2")
    client = box.client()
    client.subscribe("a")
    assert client.publishes() == [("a", b"1", 0)]


def test_a_retained_message_expires() -> None:
    """MQTT-3.3.2-5 of 5; what is left is passed on."""
    box = Box()
    box.client("p", version=V5).publish("a", b"x", retain=True, properties={Prop.MESSAGE_EXPIRY: 10})
    box.pass_(4)
    client = box.client(version=V5)
    client.subscribe("a")
    assert client.take(PublishPacket).properties == {Prop.MESSAGE_EXPIRY: 6}
    box.pass_(6)
    assert box.broker.stats()["retained"] == 0


@pytest.mark.limit("mqtt.retained_topics")
def test_more_retained_topics_than_the_limit_are_not_kept() -> None:
    box = Box(retained_topics=2)
    reader = box.client("r")
    reader.subscribe("#")
    for topic in ("a", "b", "c"):
        box.host(topic, b"x", 1, retain=True)
    box.host("a", b"y", 1, retain=True)
    assert box.broker.stats()["retained"] == 2
    assert box.limits.hits["mqtt.retained_topics"] == 1
    assert box.broker.counters["dropped.retained_full"] == 1
    assert len(reader.publishes()) == 4


@pytest.mark.limit("mqtt.retained_octets")
def test_more_retained_bytes_than_the_limit_are_not_kept() -> None:
    """A message weighs its topic with its length, and its payload."""
    box = Box(retained_octets=100)
    box.host("a", b"x" * 47, retain=True)
    box.host("b", b"x" * 47, retain=True)
    assert box.broker.stats()["retained_octets"] == 100
    box.host("b", b"x" * 48, retain=True)
    assert box.limits.hits["mqtt.retained_octets"] == 1
    box.host("b", b"", retain=True)
    box.host("c", b"x" * 47, retain=True)
    assert box.broker.stats()["retained_octets"] == 100


def _users(box: Box) -> None:
    for name in ("lamp", "porch"):
        who = Principal(Kind.DEVICE, f"d-{name}", via="mqtt")
        box.users[name] = Admission(who, name, ("#",), ("#",))


@pytest.mark.limit("mqtt.retained_topics_per_user")
def test_one_user_cannot_use_up_the_room_of_all() -> None:
    box = Box(retained_topics=10, retained_topics_per_user=3)
    _users(box)
    greedy, other = box.client("g", user="porch"), box.client("o")
    for at in range(5):
        greedy.publish(f"g/{at}", b"x", retain=True)
    assert box.broker.stats()["retained"] == 3
    assert box.limits.hits["mqtt.retained_topics_per_user"] == 2
    greedy.publish("g/0", b"y", retain=True)
    other.publish("o", b"x", retain=True)
    assert box.broker.stats()["retained"] == 4
    greedy.publish("g/1", b"", retain=True)
    greedy.publish("g/4", b"x", retain=True)
    other.publish("g/0", b"mine now", retain=True)
    greedy.publish("g/3", b"x", retain=True)
    assert box.broker.stats()["retained"] == 5
    for at in range(6):
        box.host(f"h/{at}", b"x", retain=True)
    assert box.limits.hits["mqtt.retained_topics"] == 1


@pytest.mark.limit("mqtt.retained_octets_per_user")
def test_one_user_cannot_use_up_the_bytes_of_all() -> None:
    box = Box(retained_octets_per_user=100)
    _users(box)
    client = box.client("g", version=V5, user="porch")
    for topic in ("a", "b"):
        client.publish(topic, b"x" * 47, 1, retain=True)
    client.read()
    client.publish("b", b"x" * 48, 1, retain=True)
    assert client.take(Ack).reason == Reason.QUOTA_EXCEEDED
    client.publish("b", b"y" * 47, 1, retain=True)
    assert client.take(Ack).reason == 0
    box.client("o").publish("c", b"x" * 47, retain=True)
    assert box.broker.stats()["retained_octets"] == 150


def test_a_will_waits_for_its_delay() -> None:
    """MQTT 5 §3.1.3.2.2."""
    box = Box()
    client = box.client("c", version=V5, properties=WEEK, will=Will("w", b"late", properties={Prop.WILL_DELAY: 5}))
    client.drop()
    box.pass_(4.9)
    assert box.heard == []
    box.pass_(0.1)
    assert [one.payload for one in box.heard] == [b"late"]


def test_a_client_that_is_back_in_time_leaves_no_will() -> None:
    """MQTT-3.1.3-9."""
    box = Box()
    will = Will("w", b"late", properties={Prop.WILL_DELAY: 5})
    box.client("c", version=V5, properties=WEEK, will=will).drop()
    box.pass_(4)
    box.client("c", version=V5, clean=False, properties=WEEK)
    box.pass_(10)
    assert box.heard == []


def test_a_will_goes_out_when_its_session_ends_first() -> None:
    """MQTT 5 §3.1.3.2.2: whichever happens first."""
    box = Box()
    will = Will("w", b"late", properties={Prop.WILL_DELAY: 60})
    box.client("c", version=V5, properties={Prop.SESSION_EXPIRY: 3}, will=will).drop()
    box.pass_(3)
    assert [one.payload for one in box.heard] == [b"late"]
    box.client("d", version=V5, will=will).drop()
    assert len(box.heard) == 2
    box.client("e", version=V5, properties=WEEK, will=will).drop()
    box.client("e", version=V5, clean=True)
    assert len(box.heard) == 3


def test_a_will_has_its_properties_but_not_its_delay() -> None:
    """MQTT 5 §3.1.3.2."""
    box = Box()
    reader = box.client("r", version=V5)
    reader.subscribe("w")
    found: Properties = {Prop.WILL_DELAY: 1, Prop.CONTENT_TYPE: "x", Prop.USER_PROPERTY: [("a", "b")]}
    box.client("c", version=V5, properties=WEEK, will=Will("w", b"1", properties=found)).drop()
    box.pass_(1)
    assert reader.take(PublishPacket).properties == {Prop.CONTENT_TYPE: "x", Prop.USER_PROPERTY: [("a", "b")]}


def test_a_will_is_retained_when_it_says_so() -> None:
    """MQTT-3.1.2-17 of 3.1.1."""
    box = Box()
    box.client("c", will=Will("w", b"gone", retain=True)).drop()
    client = box.client("s")
    client.subscribe("w")
    assert client.take(PublishPacket).retain


def test_a_new_connect_replaces_the_will() -> None:
    box = Box()
    client = box.client("c", clean=False, will=Will("w", b"old"))
    client.send(Disconnect())
    box.client("c", clean=False).drop()
    assert box.heard == []


def test_the_host_publishes_like_a_client() -> None:
    box = Box()
    client = box.client()
    client.subscribe("cmd/+", qos=1)
    box.host("cmd/lamp", b"on", 1, retain=True)
    assert client.publishes() == [("cmd/lamp", b"on", 1)]
    assert [one.topic for one in box.heard] == ["cmd/lamp"]
    assert box.broker.stats()["retained"] == 1


def test_the_host_cannot_publish_to_a_filter() -> None:
    with pytest.raises(ValueError, match="topic name"):
        Box().host("cmd/+")


def test_a_sink_may_publish_in_answer() -> None:
    box = Box()
    answered = []

    def sink(batch, done):  # type: ignore[no-untyped-def]
        for one in batch:
            if one.topic == "ask":
                answered.append(one.payload)
                box.broker.publish(type(one)("answer", one.payload, 0, False, one.who, one.at))
        return ()

    box.broker.attach(sink)
    client = box.client()
    client.subscribe("answer")
    client.publish("ask", b"1")
    assert client.publishes() == [("answer", b"1", 0)]
    assert [one.topic for one in box.heard] == ["ask", "answer"]


@pytest.mark.limit("mqtt.routes")
def test_the_routing_cache_starts_anew_at_its_limit() -> None:
    box = Box(routes=10)
    client = box.client()
    client.subscribe("t/#")
    for at in range(100):
        box.host(f"t/{at}", b"x")
        assert len(box.broker.router._routes) <= 10
    assert len(client.publishes()) == 100


def test_ten_thousand_reconnects_leave_nothing_behind() -> None:
    box = Box()
    for at in range(10_000):
        box.client(f"c{at}", keep_alive=60000).drop()
    assert not box.broker.sessions
    assert not box.broker.connections
    assert len(box.broker.deadlines._heap) < 200


@pytest.mark.parametrize("version", [V311, V5])
def test_figures_add_up(version: int) -> None:
    box = Box()
    client = box.client("s", version=version)
    client.subscribe("a", qos=1)
    box.host("a", b"x", 1)
    stats = box.broker.stats()
    assert (stats["connections"], stats["sessions"], stats["subscriptions"], stats["inflight"]) == (1, 1, 1, 1)


def test_appointments_do_not_pile_up() -> None:
    """Of retained messages that expire, of sessions and wills whose clients come and go."""
    box = Box()
    will = Will("w", properties={Prop.WILL_DELAY: 5000})
    for _ in range(300):
        client = box.client("c", version=V5, clean=False, properties=WEEK, will=will)
        client.publish("a", b"x", retain=True, properties={Prop.MESSAGE_EXPIRY: 50_000})
        client.drop()
    assert len(box.broker.deadlines._heap) < 200
    box.client("c", version=V5, clean=False, properties=WEEK)
    box.client("p").publish("a", b"", retain=True)
    box.pass_(60)
    assert box.broker.deadlines.next() is None


def test_losses_reach_the_ledger_in_seconds_without_other_traffic() -> None:
    box = Box(instant=False, write_octets=100)
    client = box.client()
    client.subscribe("a")
    client.fill()
    for _ in range(3):
        box.host("a", b"x" * 60)
    assert box.disk == []
    box.pass_(2.9)
    assert box.disk == []
    box.pass_(0.1)
    assert box.disk[0][0].losses == {("telemetry", "no_room", "lamp"): 2}
    box.host("a", b"x" * 60)
    box.pass_(3)
    box.commit()
    box.pass_(3)
    assert box.disk[0][0].losses == {("telemetry", "no_room", "lamp"): 1}
    box.commit()
    box.broker.declare()
    assert box.disk == []


def test_a_store_that_failed_is_tried_again_without_traffic() -> None:
    box = Box(instant=False)
    box.host("a", b"x", 1, retain=True)
    box.commit(OSError("disk full"))
    box.turn()
    box.pass_(0.9)
    assert box.disk == []
    box.pass_(0.1)
    assert list(box.disk[0][0].retained) == ["a"]
    assert not box.broker.quiet
    box.commit()
    assert box.broker.quiet


def test_quiet_is_when_nothing_waits() -> None:
    box = Box()
    box.keeps = lambda publish: True
    client = box.client()
    assert box.broker.quiet
    client.connection.receive(b"\x32\x05\x00\x01a\x00\x01")
    assert not box.broker.quiet
    box.turn()
    assert not box.broker.quiet
    box.keep()
    assert box.broker.quiet


def test_what_the_store_had_is_retained_and_expires() -> None:
    box = Box()
    publish = Publish("a", b"x", 1, True, NODE, box.broker.stamp, live=False)
    box.broker.take_up(Message(publish, head_of("a"), expires_us=box.now_us + 5_000_000))
    assert box.heard == []
    client = box.client()
    client.subscribe("a", qos=1)
    assert client.take(PublishPacket).retain
    box.pass_(5)
    assert box.broker.stats()["retained"] == 0
