"""What a client sends, and what it is answered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edge.contract.bus import Admission, Refusal
from edge.contract.principal import Kind, Principal
from edge.protocol.mqtt import codec, fields, limits
from edge.protocol.mqtt.codec import V5, V311, Ack, Connect, Disconnect, PublishPacket, Will
from edge.protocol.mqtt.properties import Prop
from edge.protocol.mqtt.reasons import Packet, Reason
from tests.protocol.mqtt.box import EVERYTHING, Box, Client

BOTH = pytest.mark.parametrize("version", [V311, V5])


@BOTH
def test_ping_is_answered(version: int) -> None:
    """MQTT-3.12.4-1."""
    client = Box().client(version=version).send(codec.Ping())
    assert client.take(codec.Ping).kind == Packet.PINGRESP


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_reaches_a_subscriber_with_the_qos_of_both(version: int, qos: int) -> None:
    """MQTT-3.8.4-6: the smaller of published and granted QoS."""
    box = Box()
    subs = [box.client(f"s{granted}", version=version) for granted in range(3)]
    for granted, sub in enumerate(subs):
        assert sub.subscribe("a/+", qos=granted) == [granted]
    publisher = box.client("p", version=version)
    for payload in (b"first", b"second"):
        publisher.publish("a/b", payload, qos)
        if qos == 2:
            publisher.send(Ack(Packet.PUBREL, 9))
    for granted, sub in enumerate(subs):
        least = min(qos, granted)
        assert sub.publishes() == [("a/b", b"first", least), ("a/b", b"second", least)]


@BOTH
def test_the_bus_hears_every_message_once_with_its_publisher(version: int) -> None:
    box = Box()
    client = box.client("p", version=version)
    client.publish("a", b"0")
    client.publish("a", b"1", 1)
    client.publish("a", b"2", 2)
    client.send(Ack(Packet.PUBREL, 9))
    box.host("a", b"host")
    assert [(one.payload, one.who.aid) for one in box.heard] == [
        (b"0", "d-lamp.test"),
        (b"1", "d-lamp.test"),
        (b"2", "d-lamp.test"),
        (b"host", ""),
    ]


def test_messages_of_one_turn_come_in_one_batch() -> None:
    box = Box()
    one, two = box.client("one"), box.client("two")
    one.connection.receive(codec.encode(PublishPacket("a", b"1"), V311) * 3)
    two.connection.receive(codec.encode(PublishPacket("a", b"2"), V311))
    box.host("a", b"3")
    assert [[one.payload for one in batch] for batch in box.batches] == [[b"1", b"1", b"1", b"2", b"3"]]


@BOTH
def test_frames_may_come_in_any_pieces(version: int) -> None:
    box = Box()
    sub = box.client("s", version=version)
    sub.subscribe("a", qos=1)
    client = box.client("p", version=version)
    raw = b"".join(
        codec.encode(PublishPacket("a", bytes([65 + at]) * 300, at % 2, packet_id=at % 2), version) for at in range(4)
    )
    for at in range(0, len(raw), 7):
        client.raw(raw[at : at + 7])
    assert [payload[:1] for _, payload, _ in sub.publishes()] == [b"A", b"B", b"C", b"D"]
    assert [type(one) for one in client.read()] == [Ack, Ack]


@BOTH
def test_a_retained_flag_is_0_on_live_delivery(version: int) -> None:
    """MQTT 3.1.1 MQTT-3.3.1-9; MQTT 5 MQTT-3.3.1-12."""
    box = Box()
    sub = box.client("s", version=version)
    sub.subscribe("a")
    for _ in range(2):
        box.client("p", version=version).publish("a", b"x", retain=True)
        assert not sub.take(PublishPacket).retain


@BOTH
def test_disconnect_throws_the_will_away(version: int) -> None:
    """MQTT-3.14.4-3."""
    box = Box()
    client = box.client(version=version, will=Will("w", b"gone"))
    client.send(Disconnect())
    assert not client.open
    assert box.heard == []


@BOTH
def test_a_lost_connection_publishes_the_will(version: int) -> None:
    """MQTT-3.1.2-8."""
    box = Box()
    watcher = box.client("w", version=version)
    watcher.subscribe("w", qos=2)
    box.client("c", version=version, will=Will("w", b"gone", 1, True)).drop()
    packet = watcher.take(PublishPacket)
    assert (packet.payload, packet.qos, packet.retain) == (b"gone", 1, False)
    assert [(one.payload, one.who.aid) for one in box.heard] == [(b"gone", "d-lamp.test")]
    assert box.broker.stats()["retained"] == 1


def test_version_5_may_disconnect_with_its_will() -> None:
    """MQTT 5 §3.14.2.1: 0x04."""
    box = Box()
    box.client(version=V5, will=Will("w", b"gone")).send(Disconnect(4))
    assert [one.payload for one in box.heard] == [b"gone"]


@BOTH
def test_a_protocol_error_publishes_the_will(version: int) -> None:
    """MQTT-3.1.2-8 of 3.1.1: closed by the server because of a protocol error."""
    box = Box()
    client = box.client(version=version, will=Will("w", b"gone")).raw(b"\x36\x00")
    assert not client.open
    assert [one.payload for one in box.heard] == [b"gone"]


@BOTH
def test_a_taken_over_client_leaves_its_will(version: int) -> None:
    box = Box()
    box.client("c", version=version, will=Will("w", b"gone"))
    box.client("c", version=version)
    assert [one.payload for one in box.heard] == [b"gone"]


@BOTH
def test_a_client_silent_for_one_and_a_half_keep_alives_is_closed(version: int) -> None:
    """MQTT-3.1.2-24 of 3.1.1, MQTT-3.1.2-22 of 5."""
    box = Box()
    client = box.client(version=version, keep_alive=10, will=Will("w", b"silent"))
    box.pass_(14)
    client.send(codec.Ping())
    box.pass_(14.9)
    assert client.open
    box.pass_(0.1)
    assert not client.open
    assert [one.payload for one in box.heard] == [b"silent"]


def test_half_a_packet_keeps_nobody_alive() -> None:
    box = Box()
    client = box.client(keep_alive=10)
    raw = codec.encode(PublishPacket("a", b"x" * 100), V311)
    for at in range(15):
        assert client.open
        client.raw(raw[at : at + 1])
        box.pass_(1)
    assert not client.open


def test_keep_alive_0_never_ends() -> None:
    """MQTT 3.1.1 §3.1.2.10."""
    box = Box()
    client = box.client()
    box.pass_(86_400)
    assert client.open


@pytest.mark.parametrize(
    "raw",
    [
        "36 05 0001 61 0001",
        "30 04 0002 c328",
        "30 05 0003 610062",
        "30 04 0009 6162",
        "30 05 0003 612f2b",
        "82 02 0001",
        "82 06 0001 0001 61 03",
        "80 06 0001 0001 61 00",
        "60 02 0001",
        "00 00",
        "20 02 0000",
        "90 03 0001 00",
        "d0 00",
    ],
)
def test_what_breaks_the_protocol_closes_and_changes_nothing(raw: str) -> None:
    box = Box()
    client = box.client()
    client.raw(bytes.fromhex(raw))
    assert not client.open
    assert client.read() == []
    assert box.heard == []
    assert not box.broker.sessions
    assert any(name.startswith("fault.") for name in box.broker.counters)


def test_version_5_is_told_what_it_broke() -> None:
    """MQTT 5 §4.13."""
    client = Box().client(version=V5).raw(bytes.fromhex("36 05 0001 61 0001"))
    packet = client.take(Disconnect)
    assert packet.reason == Reason.MALFORMED_PACKET
    assert "MQTT-3.3.1-4" in packet.properties[Prop.REASON_STRING]
    assert not client.open


def test_messages_before_the_broken_packet_count() -> None:
    box = Box()
    client = box.client()
    client.raw(codec.encode(PublishPacket("a", b"good"), V311) + b"\x36\x00" + codec.encode(PublishPacket("a"), V311))
    assert [one.payload for one in box.heard] == [b"good"]


# Permission.


def _garden(box: Box) -> None:
    who = Principal(Kind.DEVICE, "d-garden")
    box.users["garden"] = Admission(who, "garden", ("garden/#", "own/%c/#"), ("garden/cmd/#",))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_device_publishes_inside_its_own_topics_only(qos: int) -> None:
    """3.1.1 has no refusal: the message is acknowledged, counted, and goes nowhere (MQTT-3.3.5-2)."""
    box = Box()
    _garden(box)
    watcher = box.client("w")
    watcher.subscribe("#")
    client = box.client("c", user="garden")
    client.publish("house/lock", b"open", qos)
    if qos:
        assert client.take(Ack).packet_id == 9
    assert client.open
    assert watcher.read() == []
    assert box.heard == []
    assert box.broker.counters["refused.not_authorized"] == 1
    client.publish("garden/soil", b"wet", qos)
    if qos == 2:
        client.send(Ack(Packet.PUBREL, 9))
    assert watcher.publishes() == [("garden/soil", b"wet", 0)]


@pytest.mark.parametrize(("qos", "kind"), [(1, Packet.PUBACK), (2, Packet.PUBREC)])
def test_version_5_is_told_that_it_may_not(qos: int, kind: int) -> None:
    """MQTT 5 §3.4.2.1, §3.5.2.1: 0x87."""
    box = Box()
    _garden(box)
    client = box.client("c", user="garden", version=V5).publish("house/lock", b"open", qos)
    assert client.take(Ack) == Ack(kind, 9, Reason.NOT_AUTHORIZED)
    client.publish("house/lock", b"open", qos)
    assert client.take(Ack).reason == Reason.NOT_AUTHORIZED


def test_dollar_topics_are_nobodys_to_publish() -> None:
    """MQTT 3.1.1 §4.7.2."""
    box = Box()
    client = box.client()
    client.publish("$SYS/broker/uptime", b"0", 1)
    assert client.open
    assert client.take(Ack)
    assert box.heard == []


def test_a_pattern_is_filled_in_with_the_client_id() -> None:
    box = Box()
    _garden(box)
    box.client("c1", user="garden").publish("own/c1/x", b"1")
    box.client("c2", user="garden").publish("own/c1/x", b"2")
    assert [one.payload for one in box.heard] == [b"1"]


def test_a_will_is_checked_again_when_it_goes_out() -> None:
    box = Box()
    _garden(box)
    client = box.client("c", user="garden", will=Will("garden/gone", b"1"))
    assert client.connection.session is not None
    client.connection.session.rights = box.client("x", user="garden").connection.session.rights  # type: ignore[union-attr]
    client.drop()
    assert [one.topic for one in box.heard] == ["garden/gone"]


# Version 5.


def test_properties_that_are_the_receivers_business_are_passed_on() -> None:
    """MQTT 5 §3.3.2.3: payload format, content type, response topic, correlation data, user properties in order."""
    box = Box()
    sub = box.client("s", version=V5)
    old = box.client("o")
    sub.subscribe("a", qos=2)
    old.subscribe("a", qos=2)
    passed = {
        Prop.PAYLOAD_FORMAT: 1,
        Prop.CONTENT_TYPE: "text/plain",
        Prop.RESPONSE_TOPIC: "r",
        Prop.CORRELATION_DATA: b"\x00\x01",
        Prop.USER_PROPERTY: [("b", "1"), ("a", "2"), ("b", "3")],
    }
    client = box.client("p", version=V5)
    for qos in (0, 1):
        client.publish("a", b"x", qos, properties={**passed, Prop.TOPIC_ALIAS: 1})
        assert sub.take(PublishPacket).properties == passed
        assert old.publishes() == [("a", b"x", qos)]


def test_a_payload_that_is_not_the_text_it_claims_to_be_is_refused() -> None:
    """MQTT 5 §3.3.2.3.2: 0x99."""
    box = Box()
    client = box.client(version=V5).publish("a", b"\xff", 1, properties={Prop.PAYLOAD_FORMAT: 1})
    assert client.take(Ack).reason == Reason.PAYLOAD_FORMAT_INVALID
    assert box.heard == []


def test_a_topic_alias_stands_for_its_topic() -> None:
    """MQTT 5 §3.3.2.3.4."""
    box = Box()
    client = box.client(version=V5)
    client.publish("a", b"1", properties={Prop.TOPIC_ALIAS: 1})
    client.publish("", b"2", properties={Prop.TOPIC_ALIAS: 1})
    client.publish("b", b"3", 1, properties={Prop.TOPIC_ALIAS: 1})
    client.publish("", b"4", properties={Prop.TOPIC_ALIAS: 1})
    assert [(one.topic, one.payload) for one in box.heard] == [("a", b"1"), ("a", b"2"), ("b", b"3"), ("b", b"4")]


@pytest.mark.limit("mqtt.topic_aliases")
@pytest.mark.parametrize(("alias", "good"), [(0, False), (1, True), (3, True), (4, False)])
def test_a_topic_alias_over_the_maximum_closes(alias: int, good: bool) -> None:
    """MQTT-3.3.2-8, MQTT-3.3.2-9."""
    client = Box(topic_aliases=3).client(version=V5)
    client.publish("a", b"1", properties={Prop.TOPIC_ALIAS: alias})
    assert client.open is good
    if not good:
        assert client.take(Disconnect).reason == Reason.TOPIC_ALIAS_INVALID


def test_an_alias_does_not_outlive_its_connection() -> None:
    """MQTT-3.3.2-7."""
    box = Box()
    box.client(version=V5).publish("a", b"1", properties={Prop.TOPIC_ALIAS: 1})
    client = box.client(version=V5).publish("", b"2", properties={Prop.TOPIC_ALIAS: 1})
    assert client.take(Disconnect).reason == Reason.PROTOCOL_ERROR


def test_a_clients_subscription_identifier_in_publish_is_a_protocol_error() -> None:
    """MQTT-3.3.4-6."""
    client = Box().client(version=V5).publish("a", properties={Prop.SUBSCRIPTION_IDENTIFIER: [1]})
    assert client.take(Disconnect).reason == Reason.PROTOCOL_ERROR


@pytest.mark.limit("mqtt.receive_maximum")
@pytest.mark.parametrize("qos", [1, 2])
def test_more_unacknowledged_than_receive_maximum_closes(qos: int) -> None:
    """MQTT-3.3.4-7, MQTT-3.3.4-9: 0x93."""
    box = Box(receive_maximum=3)
    box.keeps = lambda publish: True
    client = box.client(version=V5)
    for packet_id in (1, 2, 3):
        client.publish("a", b"x", qos, packet_id)
    assert client.open
    client.publish("a", b"x", qos, 4)
    assert client.read()[-1].reason == Reason.RECEIVE_MAXIMUM_EXCEEDED  # type: ignore[union-attr]
    assert not client.open
    assert box.limits.hits["mqtt.receive_maximum"] == 1


def test_acknowledged_messages_make_room_again() -> None:
    box = Box(receive_maximum=3)
    client = box.client(version=V5)
    for packet_id in range(1, 10):
        client.publish("a", b"x", 1, packet_id)
        client.publish("a", b"x", 2, packet_id + 100)
        client.send(Ack(Packet.PUBREL, packet_id + 100))
    assert client.open


@pytest.mark.limit("mqtt.receive_maximum")
def test_a_client_of_3_1_1_is_left_unread_meanwhile() -> None:
    box = Box(receive_maximum=3)
    box.keeps = lambda publish: True
    client = box.client()
    client.publish("a", b"x", 1, 1).publish("a", b"x", 1, 2)
    assert client.reading
    client.publish("a", b"x", 1, 3)
    assert not client.reading
    box.keep()
    assert client.reading
    assert client.open


@pytest.mark.limit("mqtt.packet_octets")
@pytest.mark.parametrize("most", [limits.PACKET_OCTETS.least, 200])
@BOTH
def test_a_packet_over_the_limit_closes_by_its_header(version: int, most: int) -> None:
    """MQTT 5 §3.2.2.3.6: 0x95. The least limit is the largest packet of one length byte."""
    box = Box(packet_octets=most)
    sub = box.client("s", version=version)
    sub.subscribe("a")
    client = box.client("p", version=version)
    header = 2 if most == limits.SHORT_OCTETS else 3
    good = codec.encode(PublishPacket("a", b"x" * (most - header - 3 - (version == V5))), version)
    assert len(good) == most
    client.raw(good)
    assert len(sub.publishes()) == 1
    client.raw(b"\x30" + fields.put_varint(most - header + 1))
    assert not client.open
    assert box.limits.hits["mqtt.packet_octets"] == 1
    if version == V5:
        assert client.take(Disconnect).reason == Reason.PACKET_TOO_LARGE


def test_a_header_of_256_megabytes_costs_nothing() -> None:
    box = Box()
    client = box.client().raw(b"\x30\xff\xff\xff\x7f")
    assert not client.open


@pytest.mark.limit("mqtt.topic_octets", "mqtt.topic_levels")
@pytest.mark.parametrize(
    ("topic", "good"), [("a" * 64, True), ("a" * 65, False), ("a/b/c/d", True), ("a/b/c/d/e", False)]
)
def test_a_topic_too_long_or_too_deep_closes(topic: str, good: bool) -> None:
    box = Box(topic_octets=64, topic_levels=4)
    for version in (V311, V5):
        client = box.client("p", version=version).publish(topic, b"x")
        assert client.open is good
    with_will = box.wire().send(Connect("w", user="lamp", will=Will(topic)))
    assert with_will.open is good
    assert sum(box.limits.hits.values()) == (0 if good else 3)


@pytest.mark.limit("mqtt.topic_octets", "mqtt.topic_levels")
@pytest.mark.parametrize(("version", "refusal"), [(V311, 0x80), (V5, Reason.TOPIC_FILTER_INVALID)])
@pytest.mark.parametrize(
    ("wanted", "good"), [("a" * 64, True), ("a" * 65, False), ("a/b/c/#", True), ("a/b/c/d/#", False)]
)
def test_a_filter_too_long_or_too_deep_is_refused_and_the_others_of_its_packet_are_not(
    wanted: str, good: bool, version: int, refusal: int
) -> None:
    """MQTT-3.8.4-5 of 3.1.1, MQTT-3.8.4-6 of 5: one answer for each filter."""
    box = Box(topic_octets=64, topic_levels=4)
    client = box.client("s", version=version)
    assert client.subscribe("first", wanted, "last") == [0, 0 if good else refusal, 0]
    assert sorted(box.broker.sessions["lamp", "s"].subscriptions) == sorted({"first", "last", *[wanted] * good})
    assert sum(box.limits.hits.values()) == (not good)


def test_reason_codes_of_a_server_are_not_a_clients() -> None:
    """MQTT 5 §3.14.2.1."""
    client = Box().client(version=V5).send(Disconnect(Reason.SERVER_SHUTTING_DOWN))
    assert client.take(Disconnect).reason == Reason.PROTOCOL_ERROR


def test_a_topic_seen_before_is_refused_when_the_short_way_does_not_apply() -> None:
    """The short ways of QoS 0 and 1 are for whole, plain packets only."""
    for version in (V311, V5):
        box = Box()
        client = box.client(version=version)
        client.publish("a", b"x").publish("a", b"x", 1)
        client.read()
        for raw in ("32 05 0001 61 0000", "32 03 0001 61", "30 01 00"):
            client = box.client(version=version).publish("a", b"x")
            client.raw(bytes.fromhex(raw))
            assert not client.open


@pytest.mark.limit("mqtt.turn_work")
@pytest.mark.parametrize("packet", [codec.Ping(), PublishPacket("new", b"x"), PublishPacket("a", b"x", 1, packet_id=1)])
def test_a_flood_in_one_chunk_lets_others_have_their_turn(packet: codec.AnyPacket) -> None:
    """By count: a quiet client's message goes through after at most `turn_work` packets of the flood."""
    box = Box(turn_work=100)
    flood, quiet = box.client("flood"), box.client("quiet")
    quiet.subscribe("q")
    chunk = codec.encode(packet, V311) * 1000
    flood.connection.receive(chunk)
    quiet.connection.receive(codec.encode(PublishPacket("q", b"x"), V311))
    box.broker.turn()
    assert not flood.reading
    assert len(box.heard) <= 101
    assert [type(one) for one in quiet.inbox] == [PublishPacket]
    flood.connection.receive(codec.encode(PublishPacket("end", b"x"), V311))
    box.turn()
    assert flood.reading
    assert box.heard[-1].topic == "end"
    count = sum(not isinstance(one, PublishPacket) for one in flood.read())
    assert count == (0 if isinstance(packet, PublishPacket) and not packet.qos else 1000)
    assert box.limits.hits["mqtt.turn_work"] >= 9


@pytest.mark.limit("mqtt.rate")
def test_a_client_above_its_rate_is_left_unread_until_it_has_made_up_for_it() -> None:
    box = Box(rate=10)
    client = box.client()
    for _ in range(10):
        client.publish("a", b"x")
    assert client.reading
    client.publish("a", b"x")
    assert not client.reading
    assert box.limits.hits["mqtt.rate"] == 1
    box.pass_(0.1)
    assert client.reading
    client.send(*[PublishPacket("a", b"x")] * 20)
    box.pass_(1.9)
    assert not client.reading
    box.pass_(0.1)
    assert client.reading
    assert len(box.heard) == 31
    client.publish("a", b"x").drop()
    box.pass_(10)


def test_without_a_rate_nobody_waits() -> None:
    box = Box()
    client = box.client().send(*[PublishPacket("a", b"x")] * 1000)
    assert client.reading


def test_a_client_cut_in_the_middle_of_its_flood_is_gone() -> None:
    box = Box(turn_work=10)
    flood = box.client("flood")
    flood.connection.receive(codec.encode(codec.Ping(), V311) * 1000)
    flood.drop()
    box.turn()
    assert not box.broker.connections


def test_what_is_no_mqtt_at_all_is_closed_by_its_first_byte() -> None:
    """MQTT-3.1.0-1."""
    assert not Box().wire().raw(b"G").open
    assert Box().wire().raw(b"").open
    assert Box().wire().raw(b"\x10").open


# The short ways, when something changed since the topic was first seen.


@BOTH
@pytest.mark.parametrize("qos", [0, 1])
def test_the_short_way_sees_who_came_and_who_went(version: int, qos: int) -> None:
    box = Box()
    publisher = box.client("p", version=version)
    publisher.publish("a", b"1", qos)
    reader = box.client("r", version=version)
    reader.subscribe("a", qos=qos)
    publisher.publish("a", b"2", qos)
    assert reader.publishes() == [("a", b"2", qos)]
    reader.drop()
    publisher.publish("a", b"3", qos)
    absent = box.client("d", version=version, clean=False, properties=WEEK if version == V5 else {})
    absent.subscribe("a", qos=0)
    publisher.publish("a", b"4", qos)
    absent.drop()
    publisher.publish("a", b"5", qos)
    special = box.client("s", version=V5)
    special.subscribe("a", qos=1, ident=7)
    publisher.publish("a", b"6", qos)
    assert special.take(PublishPacket).properties == {Prop.SUBSCRIPTION_IDENTIFIER: [7]}
    assert [one.payload for one in box.heard] == [b"1", b"2", b"3", b"4", b"5", b"6"]


WEEK = {Prop.SESSION_EXPIRY: 604_800}


@pytest.mark.parametrize("raw", ["32 01 00", "32 03 0001 61", "30 01 00", "32 04 0001 61 00", "30 03 0002 61"])
def test_a_short_frame_is_not_read_past_its_end(raw: str) -> None:
    for version in (V311, V5):
        client = Box().client(version=version).publish("a", b"x").publish("a", b"x", 1)
        client.raw(bytes.fromhex(raw) + b"\0\1ab")
        assert not client.open


@pytest.mark.parametrize("raw", ["30 03 0001 61", "32 05 0001 61 0001"])
def test_a_frame_of_version_5_needs_its_properties(raw: str) -> None:
    client = Box().client(version=V5).publish("a", b"x").publish("a", b"x", 1)
    client.raw(bytes.fromhex(raw))
    assert not client.open


def test_the_short_cut_of_a_connection_starts_anew() -> None:
    box = Box()
    client = box.client()
    for at in range(600):
        client.publish(f"t/{at}", b"x")
    assert len(client.connection._routes) <= 256
    assert len(box.heard) == 600


def test_a_reason_too_long_for_the_client_is_left_out() -> None:
    """MQTT-3.14.2-3."""
    client = Box().client(version=V5, properties={Prop.MAXIMUM_PACKET_SIZE: 20}).raw(b"\x36\x00")
    assert client.take(Disconnect) == Disconnect(Reason.MALFORMED_PACKET)


def test_bytes_that_come_while_the_connack_waits_are_kept() -> None:
    box = Box(instant=False)
    client = box.wire().send(Connect("c", clean=False, user="lamp"))
    client.raw(b"\xc0").raw(b"\x00")
    box.commit()
    assert [type(one) for one in client.read()] == [codec.Connack, codec.Ping]


def test_a_client_that_leaves_before_its_connack_leaves_nothing() -> None:
    box = Box(instant=False)
    client = box.wire().send(Connect("c", user="lamp", clean=False))
    client.drop()
    box.commit()
    assert client.read() == []
    assert not box.broker.connections


def test_a_qos_0_copy_of_a_qos_1_message_waits_for_nobody() -> None:
    box = Box()
    reader = box.client("r", clean=False)
    reader.subscribe("a", qos=0)
    reader.drop()
    publisher = box.client("p")
    for at in (1, 2):
        publisher.publish("a", b"x", 1, at)
    assert box.broker.stats()["queued"] == 0


def test_reading_goes_on_only_when_no_reason_is_left_against_it() -> None:
    """Too much work for one turn, and acks that wait for the store."""
    box = Box(turn_work=10, receive_maximum=4)
    box.keeps = lambda publish: True
    client = box.client()
    raw = b"".join(codec.encode(PublishPacket("a", b"x", 1, packet_id=at), V311) for at in range(1, 31))
    client.connection.receive(raw)
    box.broker.turn()
    assert not client.reading
    box.turn()
    assert not client.reading
    while box.kept:
        box.keep()
    assert client.reading
    assert [one.packet_id for one in client.read() if isinstance(one, Ack)] == list(range(1, 31))


def test_answers_later_than_the_client_stayed_are_no_matter() -> None:
    """A gatekeeper may take its time; the client need not."""
    box = Box()
    asked: list[Callable[[Admission | Refusal], None]] = []
    box.broker.ask = lambda connection, packet, then: asked.append(then)
    client = box.wire().send(Connect("c", user="lamp"))
    assert client.read() == []
    client.drop()
    asked[0](EVERYTHING)
    box.turn()
    assert not box.broker.sessions


def test_a_bad_packet_behind_a_connect_that_waits_closes_after_the_connack() -> None:
    box = Box(instant=False)
    client = box.wire()
    client.raw(codec.encode(Connect("c", clean=False, user="lamp"), V311) + b"\x36\x00")
    assert client.open
    box.commit()
    assert [type(one) for one in client.read()] == [codec.Connack]
    assert not client.open


def test_the_short_way_waits_for_copies_of_absent_clients_too() -> None:
    box = Box(instant=False)
    client = box.wire().send(Connect("d", clean=False, user="lamp"))
    box.commit()
    client.send(codec.Subscribe(1, [codec.Wish("a", 1)]))
    box.commit()
    client.drop()
    publisher = box.client("p")
    for at in (1, 2):
        while box.disk:
            box.commit()
            box.turn()
        publisher.publish("a", b"x", 1, at)
        assert publisher.read() == []
        box.commit()
        assert publisher.take(Ack).packet_id == at


@BOTH
@pytest.mark.parametrize(
    ("qos", "kind"),
    [(1, Packet.PUBREC), (1, Packet.PUBCOMP), (2, Packet.PUBACK), (2, Packet.PUBCOMP)],
)
def test_an_ack_of_another_kind_than_awaited_closes(version: int, qos: int, kind: Packet) -> None:
    """MQTT-4.8.0-1 of 3.1.1, MQTT-4.13.1-1 of 5: what §4.3 does not foresee is a violation, and settles nothing."""
    box = Box()
    client = box.client(version=version, clean=False, properties={Prop.SESSION_EXPIRY: 60} if version == V5 else {})
    client.subscribe("a", qos=2)
    box.host("a", b"x", qos)
    packet_id = client.take(PublishPacket).packet_id
    client.send(Ack(kind, packet_id))
    assert not client.open
    if version == V5:
        assert client.take(Disconnect).reason == Reason.PROTOCOL_ERROR
    again = box.client(version=version, clean=False)
    assert again.take(PublishPacket) == PublishPacket("a", b"x", qos, dup=True, packet_id=packet_id)


@BOTH
def test_puback_after_pubrec_closes(version: int) -> None:
    """MQTT-4.3.3-1 of 3.1.1, §4.3.3 of 5: PUBREL is answered by PUBCOMP."""
    box = Box()
    client = box.client(version=version)
    client.subscribe("a", qos=2)
    box.host("a", b"x", 2)
    packet_id = client.take(PublishPacket).packet_id
    assert client.send(Ack(Packet.PUBREC, packet_id)).take(Ack).kind == Packet.PUBREL
    assert client.send(Ack(Packet.PUBREC, packet_id)).take(Ack).kind == Packet.PUBREL
    assert not client.send(Ack(Packet.PUBACK, packet_id)).open


@BOTH
def test_acks_for_packet_ids_that_nobody_knows_do_no_harm(version: int) -> None:
    """After a server has lost its state; PUBREC is answered, by 0x92 in 5 (§3.6.2.1)."""
    client = Box().client(version=version)
    client.send(Ack(Packet.PUBACK, 5), Ack(Packet.PUBCOMP, 6), Ack(Packet.PUBREC, 7))
    found = client.take(Ack)
    assert (found.kind, found.packet_id, found.reason) == (Packet.PUBREL, 7, 0x92 if version == V5 else 0)
    assert client.open


def _carrying(box: Box, unreleased: int) -> Client:
    """A client back with its session, which has this many packet ids that wait for PUBREL."""
    keep = {Prop.SESSION_EXPIRY: 60}
    client = box.client(version=V5, clean=False, properties=keep)
    for packet_id in range(1, unreleased + 1):
        client.publish("a", b"x", 2, packet_id)
    client.drop()
    return box.client(version=V5, clean=False, properties=keep)


@pytest.mark.limit("mqtt.receive_maximum")
def test_each_connection_may_send_as_many_as_receive_maximum_says() -> None:
    """MQTT 5 §4.9: the quota is not kept across connections; sending again after a reconnect is not sending more."""
    box = Box(receive_maximum=3)
    client = _carrying(box, 3)
    client.publish("a", b"x", 2, 1, dup=True).publish("a", b"x", 2, 2, dup=True).publish("a", b"new", 2, 4)
    assert client.open
    assert [one.packet_id for one in client.read() if isinstance(one, Ack)] == [1, 2, 4]
    client.publish("a", b"more", 2, 5)
    assert client.take(Disconnect).reason == Reason.RECEIVE_MAXIMUM_EXCEEDED


@pytest.mark.limit("mqtt.receive_maximum")
def test_reconnecting_does_not_gather_messages_without_end() -> None:
    box = Box(receive_maximum=2)
    client = _carrying(box, 2)
    client.publish("a", b"x", 2, 11).publish("a", b"x", 2, 12)
    assert client.open
    client.drop()
    client = box.client(version=V5, clean=False, properties={Prop.SESSION_EXPIRY: 60})
    client.publish("a", b"x", 2, 13)
    assert client.take(Disconnect).reason == Reason.RECEIVE_MAXIMUM_EXCEEDED
    session = box.broker.sessions["lamp", "c"]
    assert len(session.incoming or ()) == 4


def test_a_client_whom_we_leave_unread_is_not_silent() -> None:
    """MQTT-3.1.2-24 of 3.1.1: the keep-alive is about what the client does not send, not about what we do not read."""
    box = Box(receive_maximum=1, held_ack_s=600)
    box.keeps = lambda publish: True
    client = box.client(keep_alive=10)
    client.publish("a", b"x", 1, 1)
    assert not client.reading
    box.pass_(40)
    assert client.open
    box.keep()
    assert client.reading
    client.send(codec.Ping())
    box.pass_(14)
    assert client.open
    box.pass_(2)
    assert not client.open
