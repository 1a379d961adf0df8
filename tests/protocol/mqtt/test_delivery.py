"""Where a message goes: batch, retained, receivers, queues."""

from __future__ import annotations

import pytest

from edge.contract.bus import Admission, Publish
from edge.contract.errors import StorageFull, TooLarge
from edge.contract.principal import NODE
from edge.contract.time import SECOND
from edge.protocol.mqtt.codec import V5, Ack, PublishPacket
from edge.protocol.mqtt.delivery import Delivery
from edge.protocol.mqtt.message import Message, head_of
from edge.protocol.mqtt.properties import Prop
from edge.protocol.mqtt.reasons import Packet, Reason
from tests.protocol.mqtt.box import EVERYTHING, Box

WEEK = {Prop.SESSION_EXPIRY: 604_800}


def publish(box: Box, topic: str, payload: bytes = b"x", qos: int = 0, *, retain: bool = False) -> Publish:
    return Publish(topic, payload, qos, retain, NODE, box.broker.stamp)


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0b"])
def test_the_host_publishes_to_topic_names_only(topic: str) -> None:
    box = Box()
    with pytest.raises(ValueError, match="not a topic name"):
        box.broker.publish(publish(box, topic))
    assert box.heard == []


def test_an_announced_figure_is_for_subscribers_and_later_ones_but_not_for_sinks_or_disk() -> None:
    box = Box(instant=False)
    early = box.client("early")
    early.subscribe("$SYS/x")
    box.broker.announce(publish(box, "$SYS/x", b"1", retain=True))
    box.broker.need_turn()
    assert early.publishes() == [("$SYS/x", b"1", 0)]
    late = box.client("late")
    late.subscribe("$SYS/x")
    assert late.publishes() == [("$SYS/x", b"1", 0)]
    assert (box.heard, box.disk) == ([], [])


def test_a_message_is_handed_out_with_the_smaller_of_both_qos() -> None:
    box = Box()
    readers = [box.client(f"r{qos}") for qos in range(3)]
    for qos, reader in enumerate(readers):
        reader.subscribe("a", qos=qos)
    box.host("a", b"x", 1)
    assert [reader.publishes()[0][2] for reader in readers] == [0, 1, 1]


def test_a_sender_that_wants_no_echo_gets_none_and_everybody_else_does() -> None:
    box = Box()
    client, other = box.client("c", version=V5), box.client("o", version=V5)
    client.subscribe("a", no_local=True)
    other.subscribe("a", no_local=True)
    client.publish("a", b"x")
    assert client.read() == []
    assert [one.payload for one in other.read() if isinstance(one, PublishPacket)] == [b"x"]


def test_a_message_for_an_absent_client_is_kept_before_its_publisher_hears_of_it() -> None:
    box = Box()
    reader = box.client("r", clean=False)
    reader.subscribe("a", qos=1)
    reader.drop()
    box.instant = False
    writer = box.client("w")
    writer.publish("a", b"x", 1, 4)
    assert writer.read() == []
    [(changes, _)] = box.disk
    assert [out.message.publish.payload for out in changes.outgoing.values() if out] == [b"x"]
    box.commit()
    box.turn()
    assert writer.take(Ack).packet_id == 4


def test_a_message_that_expired_before_it_could_be_sent_is_a_loss() -> None:
    box = Box(inflight=1)
    reader = box.client("r", version=V5, clean=False, properties=WEEK)
    reader.subscribe("a", qos=1)
    writer = box.client("w", version=V5)
    writer.publish("a", b"1", 1, 1)
    writer.publish("a", b"2", 1, 2, properties={Prop.MESSAGE_EXPIRY: 5})
    first = reader.take(PublishPacket)
    box.pass_(5)
    reader.puback(first.packet_id)
    assert reader.read() == []
    assert box.broker.counters["dropped.expired"] == 1
    session = reader.connection.session
    assert session is not None
    assert (session.inflight, list(session.queue or ())) == ({}, [])


@pytest.mark.limit("mqtt.queue_messages")
def test_what_a_queue_has_no_room_for_is_a_loss_and_not_on_disk() -> None:
    box = Box(queue_messages=2)
    reader = box.client("r", clean=False)
    reader.subscribe("a", qos=1)
    reader.drop()
    for payload in (b"1", b"2", b"3"):
        box.host("a", payload, 1)
    assert box.broker.counters["dropped.queue_full"] == 1
    assert box.limits.hits == {"mqtt.queue_messages": 1}
    kept: dict[int, bytes] = {}
    for changes in box.written:
        for (_, number), out in changes.outgoing.items():
            kept.pop(number, None)
            if out is not None:
                kept[number] = out.message.publish.payload
    assert sorted(kept.values()) == [b"2", b"3"]


def test_a_queue_is_reviewed_when_its_client_may_read_less() -> None:
    box = Box()
    reader = box.client("r", clean=False)
    reader.subscribe("#", qos=1)
    reader.drop()
    for topic in ("a", "b", "a"):
        box.host(topic, b"x", 1)
    box.users["lamp"] = Admission(EVERYTHING.who, "lamp", ("#",), ("a/#",))
    again = box.client("r", clean=False)
    assert [topic for topic, _, _ in again.publishes()] == ["a", "a"]
    assert box.broker.counters["dropped.not_authorized"] == 1


def test_what_is_in_flight_is_not_sent_again_to_who_may_no_longer_read_it() -> None:
    """With QoS 2 the packet id is given back by PUBREL; a later message under it is not taken for a repeat."""
    box = Box()
    reader = box.client("r", clean=False)
    reader.subscribe("#", qos=2)
    box.host("b", b"one", 1)
    box.host("b", b"two", 2)
    first, second = [packet for packet in reader.read() if isinstance(packet, PublishPacket)]
    reader.drop()
    box.users["lamp"] = Admission(EVERYTHING.who, "lamp", ("#",), ("a/#",))
    again = box.client("r", clean=False)
    assert [(packet.kind, packet.packet_id) for packet in again.read() if isinstance(packet, Ack)] == [
        (Packet.PUBREL, second.packet_id)
    ]
    assert first.packet_id not in box.broker.sessions["lamp", "r"].inflight
    again.send(Ack(Packet.PUBCOMP, second.packet_id))
    box.turn()
    assert not box.broker.sessions["lamp", "r"].inflight
    assert box.broker.counters["dropped.not_authorized"] == 2
    kept = {number for changes in box.written for (_, number), out in changes.outgoing.items() if out is not None}
    gone = {number for changes in box.written for (_, number), out in changes.outgoing.items() if out is None}
    assert kept == gone


def test_what_waits_for_its_packet_id_to_be_on_disk_is_not_sent_when_it_was_withdrawn() -> None:
    box = Box()
    reader = box.client("r", clean=False)
    reader.subscribe("#", qos=2)
    box.instant = False
    box.host("b", b"x", 2)
    reader.drop()
    box.users["lamp"] = Admission(EVERYTHING.who, "lamp", ("#",), ("a/#",))
    box.instant = True
    again = box.client("r", clean=False)
    box.host("a/b", b"y", 2)
    assert again.publishes() == [("a/b", b"y", 2)]
    assert box.broker.counters["dropped.not_authorized"] == 1


def test_a_retained_message_of_the_store_is_taken_up_without_being_written_again() -> None:
    box = Box(instant=False)
    one = publish(box, "a", b"kept", retain=True)
    box.broker.take_up(Message(one, head_of("a"), expires_us=box.now_us + 5 * SECOND))
    client = box.client()
    client.subscribe("a")
    assert client.publishes() == [("a", b"kept", 0)]
    assert box.disk == []
    box.pass_(5)
    assert box.broker.stats()["retained"] == 0
    assert list(box.disk[0][0].retained.items()) == [("a", None)]


def test_an_empty_retained_message_for_a_topic_without_one_writes_nothing() -> None:
    box = Box(instant=False)
    box.host("a", b"", retain=True)
    assert box.disk == []
    assert [one.topic for one in box.heard] == ["a"]


def test_a_pubrel_for_an_unknown_packet_id_is_answered_in_the_words_of_each_version() -> None:
    for version, reason in ((4, Reason.SUCCESS), (V5, Reason.PACKET_ID_NOT_FOUND)):
        box = Box()
        found = box.client(version=version).send(Ack(Packet.PUBREL, 77)).take(Ack)
        assert (found.kind, found.packet_id, found.reason) == (Packet.PUBCOMP, 77, reason)


def test_the_broker_hands_out_as_a_delivery_does() -> None:
    assert isinstance(Box().broker, Delivery)


def test_a_pubrel_sent_again_is_answered_once_its_message_and_packet_id_are_on_disk() -> None:
    """Else a client that goes on under that packet id would meet its old message after a restart."""
    box = Box()
    box.client("s", clean=False).subscribe("a", qos=1)
    publisher = box.client("p", clean=False).publish("a", b"x", 2, 5)
    box.instant = False
    publisher.read()
    publisher.send(Ack(Packet.PUBREL, 5))
    box.commit(StorageFull())
    publisher.send(Ack(Packet.PUBREL, 5))
    assert publisher.read() == []
    box.pass_(1)
    publisher.send(Ack(Packet.PUBREL, 5))
    box.commit()
    box.turn()
    assert not publisher.open, "it is to send again what it had no answer for"
    box.instant = True
    again = box.client("p", clean=False)
    assert again.connack.session_present
    assert again.send(Ack(Packet.PUBREL, 5)).take(Ack) == Ack(Packet.PUBCOMP, 5)


def test_the_host_is_told_when_what_the_sinks_keep_is_on_disk() -> None:
    box = Box()
    box.keeps = lambda message: message.payload == b"kept"
    told: list[object] = []
    box.host("a", b"nobody's", done=lambda error: told.append(error))
    assert told == [None]
    box.host("a", b"kept", done=told.append)
    assert told == [None]
    box.keep()
    assert told == [None, None]


def test_the_host_is_told_when_a_retained_message_and_copies_for_the_absent_are_on_disk() -> None:
    box = Box()
    box.client("c", clean=False).subscribe("a", qos=1)
    box.instant = False
    told: list[object] = []
    box.host("b", b"x", retain=True, done=told.append)
    assert told == []
    box.commit()
    assert told == [None]
    box.turn()
    box.host("a", b"x", 1, done=told.append)
    assert told == [None]
    box.commit()
    assert told == [None, None]


def test_the_host_is_told_what_the_store_refuses() -> None:
    box = Box(instant=False)
    told: list[object] = []
    full = OSError("full")
    box.host("b", b"x", retain=True, done=told.append)
    box.commit(full)
    assert told == [full]


def test_the_host_is_told_what_a_sink_cannot_keep() -> None:
    box = Box()
    box.keeps = lambda message: True
    told: list[object] = []
    full = OSError("full")
    box.host("a", b"x", done=told.append)
    box.keep(full)
    assert told == [full]


def test_a_host_that_waits_is_refused_what_there_is_no_room_to_retain() -> None:
    box = Box(retained_topics=1)
    told: list[object] = []
    box.host("a", b"x", retain=True, done=told.append)
    with pytest.raises(TooLarge, match="retained_topics"):
        box.host("b", b"x", retain=True, done=told.append)
    assert [one.topic for one in box.heard] == ["a"]
    box.host("c", b"", retain=True, done=told.append)
    assert told == [None, None]
    box.host("b", b"x", retain=True)
    assert box.broker.counters["dropped.retained_full"] == 1


def test_the_host_is_told_of_an_alarm_whatever_becomes_of_the_rest_of_its_turn() -> None:
    box = Box()
    box.traffic = lambda topic: "alarm" if topic == "smoke" else "telemetry"
    box.keeps = lambda message: True
    told: list[object] = []
    stamp = box.broker.stamp
    for topic in ("smoke", "t"):
        box.broker.publish(Publish(topic, b"x", 0, False, NODE, stamp), lambda error, topic=topic: told.append(topic))
    box.turn()
    assert len(box.kept) == 2
    box.keep()
    assert told == ["smoke"]
    box.keep(OSError("full"))
    assert told == ["smoke", "t"]


def test_who_subscribes_between_two_retained_messages_gets_the_second_at_once() -> None:
    box = Box()
    writer, reader = box.client("writer"), box.client("reader")
    writer.publish("a", b"first", retain=True)
    reader.subscribe("b")
    writer.publish("a", b"second", retain=True)
    assert reader.read() == []
    reader.subscribe("a")
    assert [payload for _, payload, _ in reader.publishes()] == [b"second"]
    writer.publish("a", b"third", retain=True)
    assert [payload for _, payload, _ in reader.publishes()] == [b"third"]


def test_a_retained_message_removed_twice_is_acknowledged_once_the_disk_has_forgotten_it() -> None:
    """The first removal was refused by a full disk, where the message still is."""
    box = Box()
    client = box.client(version=V5).publish("a", b"x", 1, 1, retain=True)
    client.read()
    box.instant = False
    client.publish("a", b"", 1, 2, retain=True)
    box.commit(StorageFull())
    assert client.take(Ack).reason == Reason.QUOTA_EXCEEDED
    client.publish("a", b"", 1, 3, retain=True)
    assert client.take(Ack).reason == Reason.QUOTA_EXCEEDED
    box.pass_(1)
    client.publish("a", b"", 1, 4, retain=True)
    assert client.read() == []
    box.commit()
    box.turn()
    box.commit()
    assert client.take(Ack) == Ack(Packet.PUBACK, 4)
