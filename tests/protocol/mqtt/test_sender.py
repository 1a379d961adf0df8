"""Slow readers, full windows, retained messages that have to wait for room."""

from __future__ import annotations

import pytest

from edge.contract.bus import Publish
from edge.contract.principal import NODE
from edge.protocol.mqtt.codec import V5, V311, Ack, Connect, PublishPacket, Suback, Subscribe, Wish, encode
from edge.protocol.mqtt.message import Message, head_of
from edge.protocol.mqtt.properties import Prop
from edge.protocol.mqtt.reasons import Packet
from tests.protocol.mqtt.box import Box


@pytest.mark.limit("mqtt.write_octets")
def test_qos_0_is_dropped_and_counted_when_the_client_takes_nothing() -> None:
    """Packets of 103 bytes: nine fit 1 000, the tenth does not."""
    box = Box(write_octets=1000)
    slow, quick = box.client("slow"), box.client("quick")
    slow.subscribe("a")
    quick.subscribe("a")
    slow.fill()
    publisher = box.client("p")
    for _ in range(9):
        publisher.publish("a", b"x" * 98)
    assert "dropped.no_room" not in box.broker.counters
    publisher.publish("a", b"x" * 98)
    assert box.broker.counters["dropped.no_room"] == 1
    assert box.limits.hits["mqtt.write_octets"] == 1
    assert len(quick.publishes()) == 10


def test_a_burst_of_one_turn_is_written_before_it_is_dropped() -> None:
    """A healthy reader's socket takes it: the buffer is of what the kernel did not take, not of one turn."""
    box = Box(write_octets=1000)
    reader = box.client("r")
    reader.subscribe("a")
    publisher = box.client("p")
    publisher.send(*[PublishPacket("a", b"x" * 98)] * 100)
    assert len(reader.publishes()) == 100


@pytest.mark.parametrize("version", [V311, V5])
def test_qos_1_waits_for_room_instead(version: int) -> None:
    box = Box(write_octets=1000, inflight=100)
    slow = box.client("slow", version=version)
    slow.subscribe("a", qos=1)
    slow.fill()
    for at in range(30):
        box.host("a", b"%02d" % at + b"x" * 96, 1)
    assert box.broker.stats()["queued"] > 10
    assert slow.stuck < 1200
    slow.drain()
    got = [payload[:2] for _, payload, _ in slow.publishes()]
    assert got[-1] == b"29"
    assert got == sorted(got)


@pytest.mark.limit("mqtt.blocked_s")
def test_a_client_that_takes_nothing_for_too_long_is_cut() -> None:
    box = Box(blocked_s=30)
    client = box.client()
    client.fill()
    client.connection.blocked()
    box.pass_(29.9)
    assert client.open
    box.pass_(0.1)
    assert client.aborted
    assert box.limits.hits["mqtt.blocked_s"] == 1
    assert not box.broker.sessions


def test_a_client_that_takes_something_in_time_stays() -> None:
    box = Box(blocked_s=30)
    client = box.client()
    client.connection.blocked()
    box.pass_(29)
    client.drain()
    box.pass_(29)
    assert client.open


@pytest.mark.parametrize("qos", [0, 1])
def test_all_retained_messages_arrive_however_many_there_are(qos: int) -> None:
    """More than the write buffer, the window and the queue hold."""
    box = Box(write_octets=1000, inflight=5, queue_messages=10)
    for at in range(200):
        box.host(f"t/{at}", b"x" * 90, 1, retain=True)
    client = box.client()
    client.subscribe("t/#", qos=qos)
    got = []
    while found := [one for one in client.read() if isinstance(one, PublishPacket)]:
        got += [one.topic for one in found]
        assert all(one.retain for one in found)
        for one in found:
            if qos:
                client.puback(one.packet_id)
    assert sorted(got) == sorted(f"t/{at}" for at in range(200))
    assert not any(name.startswith("dropped") for name in box.broker.counters)


def test_a_retained_message_that_waited_comes_as_it_then_is() -> None:
    box = Box(inflight=1)
    for at in range(3):
        box.host(f"t/{at}", b"old", 1, retain=True)
    client = box.client()
    client.subscribe("t/#", qos=1)
    (first,) = client.read()
    assert isinstance(first, PublishPacket)
    others = sorted({"t/0", "t/1", "t/2"} - {first.topic})
    box.broker.retained.take(others[0])
    client.puback(first.packet_id)
    ((topic, payload, _),) = client.publishes()
    assert (topic, payload) == (others[1], b"old")


def test_retained_messages_are_looked_for_by_turns() -> None:
    """One filter after the other, however many match: nobody else waits for the search."""
    box = Box(inflight=1)
    for at in range(300):
        box.host(f"t/{at}/{at}", b"x", 1, retain=True)
    client = box.client("greedy")
    filters = [f"+/{at}/#" for at in range(150)]
    assert client.subscribe(*filters) == [0] * 150
    other = box.client("other")
    other.subscribe("t/7/7")
    assert other.publishes() == [("t/7/7", b"x", 0)]
    assert sorted(topic for topic, _, _ in client.publishes()) == sorted(f"t/{at}/{at}" for at in range(150))


@pytest.mark.limit("mqtt.subscriptions")
def test_more_searches_than_subscriptions_are_refused() -> None:
    """Subscribing again and again costs the client, not the node."""
    box = Box(subscriptions=3, inflight=1)
    for at in range(10):
        box.host(f"t/{at}", b"x", 1, retain=True)
    client = box.client()
    assert client.subscribe("t/#", qos=1) == [1]
    for _ in range(3):
        assert client.subscribe("t/#", qos=1) == [1]
    assert client.subscribe("t/#", qos=1) == [0x80]
    while found := [one for one in client.read() if isinstance(one, PublishPacket)]:
        for one in found:
            client.puback(one.packet_id)
    assert client.subscribe("t/#", qos=1) == [1]


def test_a_packet_goes_out_once_for_all_receivers() -> None:
    """The bytes of a plain QoS 0 packet are passed through unchanged."""
    box = Box()
    readers = [box.client(f"r{at}") for at in range(3)]
    for reader in readers:
        reader.subscribe("a")
    raw = b"\x30\x04\x00\x01ax"
    box.client("p").raw(raw).raw(raw)
    for reader in readers:
        assert reader.publishes() == [("a", b"x", 0)] * 2


def test_versions_are_translated_both_ways() -> None:
    box = Box()
    old, new = box.client("old"), box.client("new", version=V5)
    for client in (old, new):
        client.subscribe("a", qos=1)
    for publisher in (box.client("p4"), box.client("p5", version=V5)):
        for qos in (0, 0, 1, 1):
            publisher.publish("a", b"x", qos)
    for client in (old, new):
        assert client.publishes() == [("a", b"x", qos) for qos in (0, 0, 1, 1)] * 2


def test_a_size_limit_of_the_client_holds_for_the_short_way_too() -> None:
    box = Box()
    client = box.client("c", version=V5, properties={Prop.MAXIMUM_PACKET_SIZE: 20})
    client.subscribe("a")
    publisher = box.client("p", version=V5)
    for size in (3, 30, 3):
        publisher.publish("a", b"x" * size)
    assert [len(payload) for _, payload, _ in client.publishes()] == [3, 3]


def test_a_client_that_is_coming_back_gets_no_qos_0_yet() -> None:
    box = Box(instant=False)
    client = box.wire().send(Connect("c", clean=False, user="lamp"))
    box.commit()
    client.send(Subscribe(1, [Wish("a", 1)]))
    box.commit()
    client.drop()
    again = box.wire().send(Connect("c", clean=False, user="lamp"))
    box.host("a", b"0", 0)
    box.host("a", b"1", 1)
    again.connection.blocked()
    again.connection.blocked()
    again.connection.unblocked()
    while box.disk:
        box.commit()
        box.turn()
    assert [one.payload for one in again.read() if isinstance(one, PublishPacket)] == [b"1"]
    again.drop()
    again.connection.blocked()
    assert again.read() == []


def test_a_search_of_more_than_a_turn_is_worth_goes_on_in_the_next() -> None:
    box = Box()
    for at in range(4100):
        box.host(f"t/{at}", b"", retain=False)
        box.broker.retained.put(_retained(box, f"t/{at}"))
    client = box.client()
    client.connection.receive(encode(Subscribe(1, [Wish("t/+/x"), Wish("t/7")]), V311))
    box.broker.turn()
    box.broker.turn()
    assert [type(one) for one in client.inbox] == [Suback]
    box.turn()
    assert [one.topic for one in client.read() if isinstance(one, PublishPacket)] == ["t/7"]


def _retained(box: Box, topic: str) -> Message:
    return Message(Publish(topic, b"x", 0, True, NODE, box.broker.stamp), head_of(topic))


def test_a_client_that_leaves_during_its_search_is_no_matter() -> None:
    box = Box()
    box.host("a", b"x", retain=True)
    client = box.client()
    client.connection.receive(encode(Subscribe(1, [Wish("a")]), V311))
    box.broker.turn()
    client.drop()
    assert box.broker.quiet


def test_an_alias_whose_first_packet_is_dropped_is_not_used() -> None:
    """MQTT 5 §3.3.2.3.4: the client knows an alias only from a packet that also has the topic."""
    box = Box(write_octets=1000)
    slow = box.client("slow", version=V5, properties={Prop.TOPIC_ALIAS_MAXIMUM: 5})
    slow.subscribe("#")
    box.host("a", b"x")
    assert slow.take(PublishPacket).properties == {Prop.TOPIC_ALIAS: 1}
    slow.fill()
    box.host("a", b"y" * 990)
    box.host("b", b"z" * 98)
    box.host("a", b"z" * 98)
    assert box.broker.counters["dropped.no_room"] == 2
    slow.drain()
    box.host("c", b"1")
    box.host("a", b"2")
    box.host("b", b"3")
    found = [(one.topic, one.properties[Prop.TOPIC_ALIAS]) for one in slow.read() if isinstance(one, PublishPacket)]
    assert found == [("c", 2), ("", 1), ("b", 3)]


def test_pubrel_waits_for_no_window_after_a_reconnect() -> None:
    """MQTT-3.3.4-10: Receive Maximum holds back PUBLISH and nothing else."""
    box = Box()
    keep = {Prop.SESSION_EXPIRY: 60}
    client = box.client(version=V5, clean=False, properties=keep)
    client.subscribe("a", qos=2)
    for payload in (b"1", b"2", b"3"):
        box.host("a", payload, 2)
    sent = [one.packet_id for one in client.read() if isinstance(one, PublishPacket)]
    client.send(Ack(Packet.PUBREC, sent[2]))
    client.drop()
    client = box.client(version=V5, clean=False, properties={**keep, Prop.RECEIVE_MAXIMUM: 1})
    found = client.read()
    assert found == [
        PublishPacket("a", b"1", 2, dup=True, packet_id=sent[0]),
        Ack(Packet.PUBREL, sent[2]),
    ]
    client.send(Ack(Packet.PUBCOMP, sent[2]))
    assert client.read() == []
    client.send(Ack(Packet.PUBREC, sent[0]), Ack(Packet.PUBCOMP, sent[0]))
    assert [one for one in client.read() if isinstance(one, PublishPacket)] == [
        PublishPacket("a", b"2", 2, dup=True, packet_id=sent[1])
    ]
