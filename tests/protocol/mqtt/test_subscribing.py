"""SUBSCRIBE and UNSUBSCRIBE."""

from __future__ import annotations

import pytest

from edge.contract.bus import Admission
from edge.contract.principal import Kind, Principal
from edge.protocol.mqtt import codec
from edge.protocol.mqtt.codec import V5, V311, PublishPacket, Suback, Unsuback
from edge.protocol.mqtt.properties import Prop
from edge.protocol.mqtt.reasons import Reason
from tests.protocol.mqtt.box import Box

BOTH = pytest.mark.parametrize("version", [V311, V5])


@BOTH
def test_every_filter_has_its_answer_in_order(version: int) -> None:
    """MQTT-3.8.4-5, MQTT-3.9.3-1."""
    client = Box().client(version=version)
    client.send(codec.Subscribe(7, [codec.Wish("a", 2), codec.Wish("b", 0), codec.Wish("c", 1)]))
    assert client.take(Suback) == Suback(7, [2, 0, 1])


@pytest.mark.parametrize(("version", "code"), [(V311, 0x80), (V5, Reason.NOT_AUTHORIZED)])
def test_a_filter_that_reaches_out_of_the_allowed_is_refused_whole(version: int, code: int) -> None:
    box = Box()
    who = Principal(Kind.DEVICE, "d-garden")
    box.users["garden"] = Admission(who, "garden", (), ("garden/#", "+/public"))
    client = box.client(version=version, user="garden")
    asked = ["garden/+", "#", "+/#", "+/public", "+/+", "garden", "$share/g/#", "$x/#"]
    assert client.subscribe(*asked) == [0, code, code, 0, code, 0, code, code]
    box.host("house/lock", b"x")
    assert client.read() == []
    assert box.broker.counters[f"refused_subscribe.{Reason.NOT_AUTHORIZED.name.lower()}"] == 5


@pytest.mark.parametrize(("version", "code"), [(V311, 0x80), (V5, Reason.QUOTA_EXCEEDED)])
def test_a_withheld_filter_is_refused_by_its_code(version: int, code: int) -> None:
    """MQTT-3.9.3-2: 3.1.1 has one code for every refusal."""
    box = Box()
    who = Principal(Kind.DEVICE, "d-garden")
    box.users["garden"] = Admission(who, "garden", (), ("#",), (("a/b", Reason.QUOTA_EXCEEDED),))
    client = box.client(version=version, user="garden")
    assert client.subscribe("a/b", "a/c", "$share/g/a/b") == [code, 0, code]


@pytest.mark.parametrize(("version", "code"), [(V311, 0x80), (V5, Reason.TOPIC_FILTER_INVALID)])
def test_a_share_that_is_none_is_refused_alone(version: int, code: int) -> None:
    """MQTT-4.8.2-1, MQTT-4.8.2-2. In 3.1.1 such a filter is well formed, and every SUBSCRIBE has its SUBACK
    (MQTT-3.8.4-1)."""
    box = Box()
    client = box.client(version=version)
    wrong = (
        "$share/",
        "$share/g",
        "$share//a",
        "$share/+/a",
        "$share/g+h/a",
        "$share/g#/a",
        "$share/g/",
        "$share/g/a#",
    )
    assert client.subscribe("a", *wrong, "$share/g/a") == [0, *[code] * len(wrong), 0]
    assert client.open
    session = client.connection.session
    assert session is not None
    assert list(session.subscriptions) == ["a", "$share/g/a"]
    client.send(codec.Unsubscribe(9, list(wrong)))
    gone: list[int] = [Reason.NO_SUBSCRIPTION_EXISTED] * len(wrong) if version == V5 else []
    assert client.take(Unsuback) == Unsuback(9, gone)


@BOTH
def test_delivery_is_checked_again(version: int) -> None:
    box = Box()
    client = box.client("c", version=version)
    client.subscribe("a/#")
    session = client.connection.session
    assert session is not None
    session.rights = box.client("d", version=version, user="lamp").connection.session.rights  # type: ignore[union-attr]
    box.users["lamp"] = Admission(session.who, "lamp", (), ("a/ok",))
    from edge.protocol.mqtt.rights import Rights

    session.rights = Rights(box.users["lamp"], "c")
    box.broker.router.generation += 1
    box.host("a/ok", b"1")
    box.host("a/secret", b"2")
    assert client.publishes() == [("a/ok", b"1", 0)]


@BOTH
def test_a_second_subscription_to_a_filter_replaces_the_first(version: int) -> None:
    """MQTT-3.8.4-3."""
    box = Box()
    client = box.client(version=version)
    client.subscribe("a", qos=0)
    assert client.subscribe("a", qos=1) == [1]
    box.host("a", b"x", 2)
    assert client.publishes() == [("a", b"x", 1)]
    assert box.broker.stats()["subscriptions"] == 1


@BOTH
def test_overlapping_subscriptions_give_one_copy_with_the_highest_qos(version: int) -> None:
    """MQTT-3.3.5-1 of 3.1.1, MQTT-3.3.4-2 of 5."""
    box = Box()
    client = box.client(version=version)
    client.subscribe("a/#", qos=2)
    client.subscribe("a/+", qos=1)
    box.host("a/b", b"x", 2)
    assert client.publishes() == [("a/b", b"x", 2)]


def test_one_copy_carries_every_identifier() -> None:
    """MQTT-3.3.4-3, MQTT-3.3.4-4."""
    box = Box()
    client = box.client(version=V5)
    client.subscribe("a/#", qos=1, ident=2)
    client.subscribe("a/+", qos=1, ident=268_435_455)
    client.subscribe("+/b", qos=0)
    for qos in (0, 1):
        box.host("a/b", b"x", qos)
        assert sorted(client.take(PublishPacket).properties[Prop.SUBSCRIPTION_IDENTIFIER]) == [2, 268_435_455]


def test_a_replaced_subscription_has_its_new_identifier() -> None:
    """MQTT 5 §3.8.4."""
    box = Box()
    client = box.client(version=V5)
    client.subscribe("a", ident=1)
    client.subscribe("a", ident=2)
    box.host("a", b"x")
    assert client.take(PublishPacket).properties == {Prop.SUBSCRIPTION_IDENTIFIER: [2]}
    client.subscribe("a")
    box.host("a", b"x")
    assert client.take(PublishPacket).properties == {}


def test_no_local_keeps_a_clients_own_messages_from_it() -> None:
    """MQTT 5 §3.8.3.1."""
    box = Box()
    one, two = box.client("one", version=V5), box.client("two", version=V5)
    for client in (one, two):
        client.subscribe("a", qos=2, no_local=True)
    for qos in (0, 1):
        one.publish("a", b"x", qos)
        assert [type(packet).__name__ for packet in one.read()] == ["Ack"] * qos
        assert two.publishes() == [("a", b"x", qos)]


def test_a_bridge_gets_nothing_of_its_own_and_the_flag_as_published() -> None:
    """Mosquitto's `try_private`: bit 7 of the protocol level."""
    box = Box()
    client = box.client("b", bridge=True)
    client.subscribe("a")
    client.publish("a", b"mine")
    assert client.read() == []
    box.host("a", b"x", retain=True)
    assert client.take(PublishPacket).retain


def test_retain_as_published_keeps_the_flag() -> None:
    """MQTT-3.3.1-12, MQTT-3.3.1-13."""
    box = Box()
    client = box.client(version=V5)
    client.subscribe("a", qos=1, retain_as_published=True)
    for retain in (True, False):
        box.host("a", b"x", 0, retain=retain)
        assert client.take(PublishPacket).retain is retain
        box.host("a", b"x", 1, retain=retain)
        assert client.take(PublishPacket).retain is retain


@pytest.mark.parametrize(("handling", "first", "again"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retain_handling_says_when_retained_messages_come(handling: int, first: int, again: int) -> None:
    """MQTT-3.3.1-9 to MQTT-3.3.1-11."""
    box = Box()
    box.host("a", b"x", 1, retain=True)
    client = box.client(version=V5)
    for count in (first, again):
        client.subscribe("a", qos=1, retain_handling=handling)
        found = client.read()
        assert len(found) == count
        for packet in found:
            assert isinstance(packet, PublishPacket)
            assert packet.retain
            client.puback(packet.packet_id)


@BOTH
def test_retained_messages_come_with_the_flag_and_the_smaller_qos(version: int) -> None:
    """MQTT 3.1.1 MQTT-3.3.1-6, MQTT-3.3.1-8."""
    box = Box()
    for qos in range(3):
        box.host(f"t/{qos}", b"x", qos, retain=True)
    client = box.client(version=version)
    client.subscribe("t/+", qos=1)
    found = {one.topic: (one.qos, one.retain) for one in client.read() if isinstance(one, PublishPacket)}
    assert found == {"t/0": (0, True), "t/1": (1, True), "t/2": (1, True)}


@BOTH
def test_subscribing_again_brings_the_retained_messages_again(version: int) -> None:
    """MQTT-3.8.4-3."""
    box = Box()
    box.host("a", b"x", retain=True)
    client = box.client(version=version)
    for _ in range(2):
        client.subscribe("a")
        assert client.publishes() == [("a", b"x", 0)]


def test_wildcards_at_the_top_do_not_match_dollar_topics() -> None:
    """MQTT-4.7.2-1."""
    box = Box()
    box.host("$x/old", b"x", retain=True)
    client = box.client()
    client.subscribe("#", "+/old", "+/new")
    box.host("$x/new", b"x")
    assert client.read() == []
    client.subscribe("$x/#")
    box.host("$x/new", b"y")
    assert client.publishes() == [("$x/old", b"x", 0), ("$x/new", b"y", 0)]


def test_a_retained_message_the_reader_may_not_have_is_left_out() -> None:
    """Spec/mqtt.md S10."""
    box = Box()
    box.users["x"] = Admission(Principal(Kind.DEVICE, "d-x"), "x", (), ("a/+",))
    box.host("a/b", b"1", retain=True)
    box.host("a/b/c", b"2", retain=True)
    client = box.client(user="x")
    client.subscribe("a/+")
    assert client.publishes() == [("a/b", b"1", 0)]


def test_nothing_retained_comes_on_connect() -> None:
    """Spec/mqtt.md S1: only SUBSCRIBE brings retained messages."""
    box = Box()
    box.host("a", b"x", retain=True)
    box.client("other").subscribe("#")
    client = box.client("c", clean=False)
    client.subscribe("a")
    client.read()
    client.drop()
    assert box.client("c", clean=False).read() == []


@BOTH
def test_an_ended_subscription_brings_nothing_more(version: int) -> None:
    """MQTT-3.10.4-1 to MQTT-3.10.4-5."""
    box = Box()
    client = box.client(version=version)
    client.subscribe("a", "a/+")
    client.send(codec.Unsubscribe(8, ["a", "a/b", "a/#"]))
    reasons = [0, Reason.NO_SUBSCRIPTION_EXISTED, Reason.NO_SUBSCRIPTION_EXISTED] if version == V5 else []
    assert client.take(Unsuback) == Unsuback(8, reasons)
    box.host("a", b"1")
    box.host("a/b", b"2")
    assert client.publishes() == [("a/b", b"2", 0)]


@pytest.mark.limit("mqtt.subscriptions")
@pytest.mark.parametrize(("version", "code"), [(V311, 0x80), (V5, Reason.QUOTA_EXCEEDED)])
def test_more_filters_than_the_limit_are_refused(version: int, code: int) -> None:
    box = Box(subscriptions=2)
    client = box.client(version=version)
    assert client.subscribe("a", "b", "c") == [0, 0, code]
    assert client.subscribe("a", qos=1) == [1]
    assert box.limits.hits["mqtt.subscriptions"] == 1


@pytest.mark.limit("mqtt.subscriptions")
def test_filters_of_one_packet_above_the_limit_are_not_looked_at() -> None:
    box = Box(subscriptions=5)
    for at in range(50):
        box.host(f"t/{at}", b"x", retain=True)
    client = box.client()
    assert client.subscribe(*["t/#"] * 1000) == [0] * 5 + [0x80] * 995
    assert len(client.publishes()) == 50 * 5
    assert box.limits.hits["mqtt.subscriptions"] == 995


@pytest.mark.limit("mqtt.subscribe_octets")
@pytest.mark.parametrize("version", [V311, V5])
def test_a_subscribe_over_its_limit_closes(version: int) -> None:
    box = Box(subscribe_octets=100)
    client = box.client(version=version)
    room = 100 - 2 - (version == V5)
    assert client.subscribe("t" * (room - 3)) == [0]
    client.send(codec.Subscribe(1, [codec.Wish("t" * (room - 2))]))
    assert not client.open
    assert box.limits.hits["mqtt.subscribe_octets"] == 1
    client = box.client(version=version).send(codec.Unsubscribe(1, ["t" * room]))
    assert not client.open


# Shared subscriptions (MQTT 5 §4.8.2).


def test_one_member_of_a_group_gets_each_message() -> None:
    """MQTT-4.8.2-4: members take turns; others are not touched."""
    box = Box()
    members = [box.client(f"m{at}", version=V5) for at in range(3)]
    for member in members:
        member.subscribe("$share/g/a/+", qos=1)
    loner = box.client("l", version=V5)
    loner.subscribe("a/+")
    for at in range(9):
        box.host("a/b", b"%d" % at)
    assert [len(member.publishes()) for member in members] == [3, 3, 3]
    assert len(loner.publishes()) == 9


def test_groups_are_separate_and_so_are_filters_of_a_group() -> None:
    box = Box()
    client = box.client(version=V5)
    client.subscribe("$share/g/a", "$share/h/a", "$share/g/+", "a")
    box.host("a", b"x")
    assert len(client.publishes()) == 4


def test_a_connected_member_is_preferred() -> None:
    box = Box()
    for name in ("one", "two"):
        client = box.client(name, version=V5, properties={Prop.SESSION_EXPIRY: 60})
        client.subscribe("$share/g/a", qos=1)
        if name == "one":
            client.drop()
    for _ in range(4):
        box.host("a", b"x", 1)
    assert len(client.publishes()) == 4


def test_a_group_without_anybody_connected_keeps_messages_for_one() -> None:
    box = Box()
    for name in ("one", "two"):
        client = box.client(name, version=V5, properties={Prop.SESSION_EXPIRY: 60})
        client.subscribe("$share/g/a", qos=1)
        client.drop()
    box.host("a", b"x", 1)
    assert box.broker.stats()["queued"] == 1


def test_a_shared_subscription_brings_no_retained_messages() -> None:
    """MQTT 5 §4.8.2."""
    box = Box()
    box.host("a", b"x", retain=True)
    client = box.client(version=V5)
    assert client.subscribe("$share/g/a") == [0]
    assert client.read() == []


def test_a_shared_subscription_ends_by_its_whole_name() -> None:
    box = Box()
    client = box.client(version=V5)
    client.subscribe("$share/g/a", "a")
    client.send(codec.Unsubscribe(8, ["$share/g/a"]))
    client.take(Unsuback)
    box.host("a", b"x")
    assert len(client.publishes()) == 1


# On disk.


def test_suback_of_a_durable_session_leaves_after_the_commit() -> None:
    box = Box(instant=False)
    client = box.wire()
    client.send(codec.Connect("c", clean=False, user="lamp"))
    box.commit()
    client.take(codec.Connack)
    client.send(codec.Subscribe(1, [codec.Wish("a", 1)]))
    assert client.read() == []
    box.commit()
    assert client.take(Suback) == Suback(1, [1])
    client.send(codec.Subscribe(2, [codec.Wish("a", 1)]))
    assert client.take(Suback) == Suback(2, [1])
    client.send(codec.Unsubscribe(3, ["a"]))
    assert client.read() == []
    box.commit()
    assert client.take(Unsuback).packet_id == 3


def test_suback_of_a_clean_session_does_not_wait() -> None:
    box = Box(instant=False)
    client = box.client("c")
    client.send(codec.Subscribe(1, [codec.Wish("a", 1)]))
    assert client.take(Suback) == Suback(1, [1])
    assert box.disk == []


def test_a_subscription_that_cannot_be_kept_is_refused() -> None:
    box = Box(instant=False)
    client = box.wire()
    client.send(codec.Connect("c", clean=False, user="lamp"))
    box.commit()
    client.take(codec.Connack)
    client.send(codec.Subscribe(1, [codec.Wish("a", 1)]))
    box.commit(OSError("disk full"))
    assert client.take(Suback) == Suback(1, [0x80])
    box.host("a", b"x")
    assert client.read() == []


def test_of_what_cannot_be_kept_the_old_subscription_stays() -> None:
    """And a filter that did not change is granted as before."""
    box = Box(instant=False)
    client = box.wire()
    client.send(codec.Connect("c", clean=False, user="lamp"))
    box.commit()
    client.send(codec.Subscribe(1, [codec.Wish("a", 0), codec.Wish("b", 1)]))
    box.commit()
    client.read()
    client.send(codec.Subscribe(2, [codec.Wish("a", 2), codec.Wish("b", 1), codec.Wish("c", 1)]))
    box.commit(OSError("disk full"))
    assert client.take(Suback) == Suback(2, [0x80, 1, 0x80])
    for topic in "abc":
        box.host(topic, b"x", 2)
    assert client.publishes() == [("a", b"x", 0), ("b", b"x", 1)]


@pytest.mark.limit("mqtt.subscriptions")
def test_filters_above_the_limit_are_refused_in_later_packets_too() -> None:
    box = Box(subscriptions=2)
    client = box.client()
    assert client.subscribe("a", "b") == [0, 0]
    assert client.subscribe("c") == [0x80]
    client.send(codec.Unsubscribe(1, ["a"]))
    client.read()
    assert client.subscribe("c") == [0]


def test_a_subscription_ended_before_its_commit_failed_stays_ended() -> None:
    box = Box(instant=False)
    client = box.wire().send(codec.Connect("c", clean=False, user="lamp"))
    box.commit()
    client.read()
    client.send(codec.Subscribe(1, [codec.Wish("a", 1)]), codec.Unsubscribe(2, ["a"]))
    box.commit(OSError("disk full"))
    box.host("a", b"x", 1)
    assert [one for one in client.read() if isinstance(one, PublishPacket)] == []
    assert box.broker.stats()["subscriptions"] == 0


@pytest.mark.parametrize("kind", ["subscribe", "unsubscribe"])
def test_a_request_whose_answer_is_larger_than_the_client_takes_closes(kind: str) -> None:
    """MQTT-3.1.2-24: SUBACK and UNSUBACK are packets too; nothing of the request is done."""
    box = Box()
    client = box.client(version=V5, properties={Prop.MAXIMUM_PACKET_SIZE: 40})
    names = [f"t{at}" for at in range(36)]

    def ask(count: int) -> codec.AnyPacket:
        if kind == "subscribe":
            return codec.Subscribe(1, [codec.Wish(name) for name in names[:count]])
        return codec.Unsubscribe(1, names[:count])

    client.send(ask(35))
    assert len(client.take(Suback if kind == "subscribe" else Unsuback).reasons) == 35
    client.send(ask(36))
    assert client.take(codec.Disconnect).reason == Reason.PACKET_TOO_LARGE
    assert not client.open
