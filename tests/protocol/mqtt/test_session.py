"""QoS 1 and 2 towards the client: in flight, waiting, sent again; what a durable session outlives."""

from __future__ import annotations

from typing import Any

import pytest

from edge.contract.bus import Admission
from edge.protocol.mqtt import codec
from edge.protocol.mqtt.codec import V5, V311, Ack, Disconnect, PublishPacket
from edge.protocol.mqtt.properties import Prop, Properties
from edge.protocol.mqtt.reasons import Packet, Reason
from tests.protocol.mqtt.box import EVERYTHING, Box, Client

BOTH = pytest.mark.parametrize("version", [V311, V5])
WEEK: Properties = {Prop.SESSION_EXPIRY: 604_800}


def durable(box: Box, version: int = V311, client_id: str = "c", **fields: Any) -> Client:
    """A client whose session outlives its connection."""
    if version == V5:
        fields["properties"] = {**WEEK, **fields.get("properties", {})}
    return box.client(client_id, version=version, clean=False, **fields)


def ids(client: Client) -> list[tuple[int, bytes, bool]]:
    """Packet id, payload and DUP of each PUBLISH received."""
    found = client.read()
    assert all(isinstance(one, PublishPacket) for one in found), found
    return [(one.packet_id, one.payload, one.dup) for one in found if isinstance(one, PublishPacket)]


@BOTH
def test_the_whole_exchange_of_qos_2(version: int) -> None:
    """MQTT-4.3.3."""
    box = Box()
    client = box.client(version=version)
    client.subscribe("a", qos=2)
    box.host("a", b"x", 2)
    packet = client.take(PublishPacket)
    assert (packet.qos, packet.dup) == (2, False)
    client.send(Ack(Packet.PUBREC, packet.packet_id))
    assert client.take(Ack) == Ack(Packet.PUBREL, packet.packet_id)
    client.send(Ack(Packet.PUBREC, packet.packet_id))
    assert client.take(Ack) == Ack(Packet.PUBREL, packet.packet_id)
    client.send(Ack(Packet.PUBCOMP, packet.packet_id))
    assert client.read() == []
    assert box.broker.stats()["inflight"] == 0


@BOTH
def test_unknown_packet_ids_are_answered(version: int) -> None:
    """MQTT 5 §3.6.2.1, §3.7.2.1: 0x92; with 3.1.1 the exchange is finished all the same."""
    client = Box().client(version=version)
    reason = Reason.PACKET_ID_NOT_FOUND if version == V5 else 0
    client.send(Ack(Packet.PUBREC, 5))
    assert client.take(Ack) == Ack(Packet.PUBREL, 5, reason)
    client.send(Ack(Packet.PUBREL, 6))
    assert client.take(Ack) == Ack(Packet.PUBCOMP, 6, reason)
    client.send(Ack(Packet.PUBACK, 7), Ack(Packet.PUBCOMP, 8))
    assert client.read() == []
    assert client.open


@BOTH
def test_a_repeated_publish_of_qos_2_is_heard_once(version: int) -> None:
    """MQTT-4.3.3-2, MQTT-4.3.3-10."""
    box = Box()
    for client in (box.client("clean", version=version), durable(box, version)):
        box.heard.clear()
        for dup in (False, True, True):
            client.publish("a", b"x", 2, 4, dup=dup)
            assert client.take(Ack) == Ack(Packet.PUBREC, 4)
        client.send(Ack(Packet.PUBREL, 4))
        assert client.take(Ack) == Ack(Packet.PUBCOMP, 4)
        assert len(box.heard) == 1
        client.publish("a", b"y", 2, 4)
        client.send(Ack(Packet.PUBREL, 4))
        assert [one.payload for one in box.heard] == [b"x", b"y"]


@BOTH
def test_a_refusing_pubrec_ends_the_exchange(version: int) -> None:
    """MQTT 5 §4.3.3: a PUBREC of 0x80 or above."""
    box = Box()
    client = box.client(version=V5)
    client.subscribe("a", qos=2)
    box.host("a", b"x", 2)
    packet = client.take(PublishPacket)
    client.send(Ack(Packet.PUBREC, packet.packet_id, Reason.QUOTA_EXCEEDED))
    assert client.read() == []
    assert box.broker.stats()["inflight"] == 0


@BOTH
def test_an_absent_client_finds_its_messages_in_order(version: int) -> None:
    """MQTT-3.1.2-5; QoS 0 is not kept. The order is that of each QoS (MQTT-4.6.0-6 of 3.1.1, MQTT-4.6.0-5 of 5)."""
    box = Box()
    durable(box, version).subscribe("a/#", qos=2)
    box.broker.sessions["lamp", "c"].conn.close(None)  # type: ignore[union-attr]
    box.host("a/0", b"live", 0)
    for at in range(3):
        box.host("a/b", b"%d" % at, 1 + at % 2)
    client = durable(box, version)
    assert client.connack.session_present
    assert client.publishes() == [("a/b", b"0", 1), ("a/b", b"2", 1), ("a/b", b"1", 2)]


@BOTH
def test_what_was_not_acknowledged_is_sent_again_with_its_id_and_dup(version: int) -> None:
    """MQTT-4.4.0-1, MQTT-3.3.1-1."""
    box = Box()
    client = durable(box, version)
    client.subscribe("a", qos=2)
    box.host("a", b"1", 1)
    box.host("a", b"2", 2)
    box.host("a", b"3", 2)
    first = ids(client)
    client.send(Ack(Packet.PUBREC, first[1][0]))
    client.drop()
    box.host("a", b"4", 1)
    client = durable(box, version)
    found = client.read()
    assert found[:3] == [
        PublishPacket("a", b"1", 1, dup=True, packet_id=first[0][0]),
        Ack(Packet.PUBREL, first[1][0]),
        PublishPacket("a", b"3", 2, dup=True, packet_id=first[2][0]),
    ]
    assert isinstance(found[3], PublishPacket)
    assert (found[3].payload, found[3].dup) == (b"4", False)


@BOTH
def test_nothing_is_sent_again_while_the_client_stays(version: int) -> None:
    """MQTT 5 §4.4: resend at reconnect only."""
    box = Box()
    client = box.client(version=version)
    client.subscribe("a", qos=1)
    box.host("a", b"x", 1)
    assert len(client.publishes()) == 1
    box.pass_(86_400)
    assert client.read() == []


@pytest.mark.limit("mqtt.inflight")
@BOTH
def test_no_more_are_in_flight_than_the_window(version: int) -> None:
    box = Box(inflight=2)
    client = box.client(version=version)
    client.subscribe("a", qos=2)
    for at in range(5):
        box.host("a", b"%d" % at, 1 + at % 2)
    sent = ids(client)
    assert [payload for _, payload, _ in sent] == [b"0", b"1"]
    client.puback(sent[0][0])
    sent += ids(client)
    assert [payload for _, payload, _ in sent] == [b"0", b"1", b"2"]
    client.send(Ack(Packet.PUBREC, sent[1][0]))
    assert client.take(Ack)
    client.send(Ack(Packet.PUBCOMP, sent[1][0]))
    assert [payload for _, payload, _ in ids(client)] == [b"3"]


def test_a_version_5_clients_receive_maximum_is_kept() -> None:
    """MQTT-3.3.4-9 of 5."""
    box = Box()
    client = box.client(version=V5, properties={Prop.RECEIVE_MAXIMUM: 2})
    client.subscribe("a", qos=2)
    for at in range(4):
        box.host("a", b"%d" % at, 1)
    box.host("a", b"live", 0)
    sent = ids(client)
    assert [payload for _, payload, _ in sent] == [b"0", b"1", b"live"]


def test_a_smaller_receive_maximum_after_reconnect_is_kept_too() -> None:
    box = Box()
    client = durable(box, V5)
    client.subscribe("a", qos=1)
    for at in range(4):
        box.host("a", b"%d" % at, 1)
    client.drop()
    client = durable(box, V5, properties={Prop.RECEIVE_MAXIMUM: 1})
    for at in range(4):
        ((packet_id, payload, dup),) = ids(client)
        assert (payload, dup) == (b"%d" % at, True)
        client.puback(packet_id)
    assert client.read() == []


def test_packet_ids_in_use_are_not_given_again() -> None:
    """MQTT-2.3.1-2 of 3.1.1."""
    box = Box(inflight=3)
    client = box.client()
    client.subscribe("a", qos=1)
    session = client.connection.session
    assert session is not None
    session.next_id = 0xFFFF
    used: list[int] = []
    for at in range(5):
        box.host("a", b"%d" % at, 1)
        used += [packet_id for packet_id, _, _ in ids(client)]
        if at == 2:
            client.puback(used.pop(1))
            used += [packet_id for packet_id, _, _ in ids(client)]
    session.next_id = used[0]
    client.puback(used.pop())
    fresh = [packet_id for packet_id, _, _ in ids(client)]
    assert len(fresh) == 1
    assert fresh[0] not in used
    assert 0 not in used + fresh


@pytest.mark.limit("mqtt.queue_messages")
def test_of_too_many_waiting_messages_the_oldest_goes() -> None:
    box = Box(queue_messages=3)
    durable(box).subscribe("a", qos=1)
    box.broker.sessions["lamp", "c"].conn.close(None)  # type: ignore[union-attr]
    for at in range(3):
        box.host("a", b"%d" % at, 1)
    assert "mqtt.queue_messages" not in box.limits.hits
    box.host("a", b"3", 1)
    assert box.limits.hits["mqtt.queue_messages"] == 1
    assert box.broker.counters["dropped.queue_full"] == 1
    assert [payload for _, payload, _ in durable(box).publishes()] == [b"1", b"2", b"3"]


@pytest.mark.limit("mqtt.queue_octets")
def test_of_too_many_waiting_bytes_the_oldest_go() -> None:
    box = Box(queue_octets=300)
    durable(box).subscribe("a", qos=1)
    box.broker.sessions["lamp", "c"].conn.close(None)  # type: ignore[union-attr]
    for at in range(3):
        box.host("a", b"%d" % at + b"x" * 96, 1)
    assert "mqtt.queue_octets" not in box.limits.hits
    box.host("a", b"3", 1)
    assert box.limits.hits["mqtt.queue_octets"] == 1
    assert [payload[:1] for _, payload, _ in durable(box).publishes()] == [b"1", b"2", b"3"]


def test_when_room_runs_out_telemetry_goes_first_and_alarms_last() -> None:
    box = Box(queue_messages=3)
    box.traffic = lambda topic: topic.split("/")[0]
    durable(box).subscribe("#", qos=1)
    box.broker.sessions["lamp", "c"].conn.close(None)  # type: ignore[union-attr]
    for topic in ("alarm/1", "telemetry/1", "state/1", "state/2", "telemetry/2", "alarm/2", "alarm/3"):
        box.host(topic, b"x", 1)
    assert [topic for topic, _, _ in durable(box).publishes()] == ["alarm/1", "alarm/2", "alarm/3"]
    losses: dict[tuple[str, str, str], int] = {}
    for changes in box.written:
        for key, count in changes.losses.items():
            losses[key] = losses.get(key, 0) + count
    assert losses == {("telemetry", "queue_full", "lamp"): 2, ("state", "queue_full", "lamp"): 2}


def test_messages_expire_while_they_wait() -> None:
    """MQTT-3.3.2-5, MQTT-3.3.2-6: what is left of the interval is passed on."""
    box = Box()
    durable(box, V5).subscribe("a", qos=1)
    box.broker.sessions["lamp", "c"].conn.close(None)  # type: ignore[union-attr]
    sender = box.client("p", version=V5)
    for seconds in (1, 6):
        sender.publish("a", b"%d" % seconds, 1, properties={Prop.MESSAGE_EXPIRY: seconds})
    box.pass_(3)
    client = durable(box, V5)
    packet = client.take(PublishPacket)
    assert (packet.payload, packet.properties) == (b"6", {Prop.MESSAGE_EXPIRY: 3})
    assert box.broker.counters["dropped.expired"] == 1
    assert box.broker.stats()["inflight"] == 1


def test_a_message_that_waits_is_not_for_who_may_no_longer_read_it() -> None:
    box = Box()
    durable(box).subscribe("a/#", qos=1)
    box.broker.sessions["lamp", "c"].conn.close(None)  # type: ignore[union-attr]
    box.host("a/1", b"x", 1)
    box.host("a/2", b"x", 1)
    box.users["lamp"] = Admission(EVERYTHING.who, "lamp", (), ("a/2",))
    assert durable(box).publishes() == [("a/2", b"x", 1)]
    assert box.broker.counters["dropped.not_authorized"] == 1


def test_what_a_session_leaves_unsent_is_counted() -> None:
    box = Box()
    durable(box).subscribe("a", qos=1)
    box.broker.sessions["lamp", "c"].conn.close(None)  # type: ignore[union-attr]
    box.host("a", b"x", 1)
    box.client("c", clean=True)
    assert box.broker.counters["dropped.session_discarded"] == 1


@pytest.mark.parametrize("end", ["clean start", "expiry", "disconnect", "expelled"])
def test_what_a_session_took_and_was_never_told_to_release_is_declared_lost(end: str) -> None:
    """MQTT 5 §4.1: it is state of the session, and ends with it; by its PUBREC it was ours (MQTT-4.3.3-8)."""
    box = Box()
    client = box.client("c", version=V5, properties={Prop.SESSION_EXPIRY: 60})
    client.publish("a", b"never released", 2, 1).publish("a", b"released", 2, 2)
    client.send(Ack(Packet.PUBREL, 2))
    if end == "clean start":
        box.client("c", version=V5, clean=True)
    elif end == "expiry":
        client.drop()
        box.pass_(59)
        assert "dropped.unreleased" not in box.broker.counters
        box.pass_(2)
    elif end == "disconnect":
        client.send(Disconnect(properties={Prop.SESSION_EXPIRY: 0}))
    else:
        box.broker.expel("lamp")
        box.turn()
    assert [publish.payload for publish in box.heard] == [b"released"]
    assert box.broker.counters["dropped.unreleased"] == 1
    box.pass_(60)
    losses = [changes.losses for changes in box.written if changes.losses]
    assert losses == [{("telemetry", "unreleased", "lamp"): 1}]


def test_a_message_whose_release_is_under_way_when_its_session_ends_is_not_lost() -> None:
    box = Box()
    box.keeps = lambda publish: True
    client = box.client("c", version=V5, properties={Prop.SESSION_EXPIRY: 60})
    client.publish("a", b"x", 2, 1).send(Ack(Packet.PUBREL, 1))
    box.client("c", version=V5, clean=True)
    box.keep()
    assert [publish.payload for publish in box.heard] == [b"x"]
    assert "dropped.unreleased" not in box.broker.counters


# Version 5: aliases and sizes towards the client.


def test_topics_are_sent_once_to_a_client_that_takes_aliases() -> None:
    """MQTT 5 §3.3.2.3.4: never above Topic Alias Maximum (MQTT-3.1.2-26)."""
    box = Box()
    client = box.client(version=V5, properties={Prop.TOPIC_ALIAS_MAXIMUM: 1})
    client.subscribe("#", qos=2)
    for qos in range(3):
        box.host("a", b"x", qos)
    box.host("b", b"y", 0)
    found = [(one.topic, one.properties) for one in client.read() if isinstance(one, PublishPacket)]
    alias = {Prop.TOPIC_ALIAS: 1}
    assert found == [("a", alias), ("", alias), ("", alias), ("b", {})]


def test_a_message_too_large_for_the_client_is_not_sent() -> None:
    """MQTT-3.1.2-24, MQTT-3.1.2-25: as if it had been delivered."""
    box = Box()
    client = box.client(version=V5, properties={Prop.MAXIMUM_PACKET_SIZE: 64})
    client.subscribe("a", qos=1)
    box.host("a", b"x" * 64, 0)
    box.host("a", b"x" * 64, 1)
    box.host("a", b"x" * 32, 1)
    assert [len(payload) for _, payload, _ in client.publishes()] == [32]
    assert box.broker.counters["dropped.too_large_for_client"] == 2
    assert box.broker.stats()["inflight"] == 1


def test_an_alias_lost_with_a_large_message_is_not_used() -> None:
    box = Box()
    client = box.client(version=V5, properties={Prop.MAXIMUM_PACKET_SIZE: 64, Prop.TOPIC_ALIAS_MAXIMUM: 5})
    client.subscribe("a")
    box.host("a", b"x" * 64)
    box.host("a", b"y")
    assert client.take(PublishPacket).topic == "a"


# On disk.


def _kept(box: Box) -> dict[tuple[int, int], tuple[bytes, int, int] | None]:
    """Outgoing rows of the commit now waiting: payload, packet id, state."""
    return {
        key: None if out is None else (out.message.publish.payload, out.packet_id, out.state)
        for key, out in box.disk[0][0].outgoing.items()
    }


def on_disk(box: Box, version: int = V311) -> Client:
    """A durable client, all commits done."""
    client = box.wire()
    client.version = version
    found: Properties = WEEK if version == V5 else {}
    client.send(codec.Connect("c", clean=False, user="lamp", version=version, properties=found))
    while box.disk:
        box.commit()
        box.turn()
    client.read()
    return client


def test_qos_2_leaves_only_when_its_packet_id_is_on_disk() -> None:
    """Else a restart would send it under another id, and the client would take it for another message."""
    box = Box(instant=False)
    client = on_disk(box)
    client.send(codec.Subscribe(1, [codec.Wish("a", 2)]))
    box.commit()
    client.take(codec.Suback)
    box.host("a", b"1", 1)
    box.host("a", b"2", 2)
    (first,) = ids(client)
    assert first[1] == b"1"
    assert [row and row[0] for row in _kept(box).values()] == [b"1"]
    box.commit()
    box.turn()
    assert [row and row[:2] for row in _kept(box).values()] == [(b"2", 2)]
    assert client.read() == []
    box.commit()
    assert ids(client) == [(2, b"2", False)]


def test_pubrel_leaves_only_when_its_state_is_on_disk() -> None:
    """MQTT-4.3.3-8."""
    box = Box(instant=False)
    client = on_disk(box)
    client.send(codec.Subscribe(1, [codec.Wish("a", 2)]))
    box.commit()
    client.take(codec.Suback)
    box.host("a", b"2", 2)
    box.commit()
    assert ids(client) == [(1, b"2", False)]
    client.send(Ack(Packet.PUBREC, 1))
    assert client.read() == []
    box.commit()
    assert client.take(Ack) == Ack(Packet.PUBREL, 1)
    client.send(Ack(Packet.PUBCOMP, 1))
    assert list(_kept(box).values()) == [None]


def test_a_row_that_comes_and_goes_between_two_commits_is_never_written() -> None:
    box = Box(instant=False)
    client = on_disk(box)
    client.send(codec.Subscribe(1, [codec.Wish("a", 1)]))
    box.host("other", b"x", 1, retain=True)
    box.host("a", b"1", 1)
    packet_id = next(one for one in client.read() if isinstance(one, PublishPacket)).packet_id
    client.puback(packet_id)
    box.commit()
    box.turn()
    assert not any(changes.outgoing for changes, _ in box.disk)


def test_a_publisher_is_acknowledged_when_the_copy_for_an_absent_client_is_on_disk() -> None:
    """P1."""
    box = Box(instant=False)
    client = on_disk(box)
    client.send(codec.Subscribe(1, [codec.Wish("a", 1)]))
    box.commit()
    client.drop()
    box.commit()
    publisher = box.client("p")
    publisher.publish("b", b"nobody's", 1, 1)
    assert publisher.take(Ack).packet_id == 1
    publisher.publish("a", b"x", 1, 2).publish("b", b"nobody's", 1, 3)
    assert publisher.read() == []
    box.commit()
    assert [one.packet_id for one in publisher.read() if isinstance(one, Ack)] == [2, 3]


def test_a_durable_publisher_of_qos_2_hands_its_message_on_with_pubrel() -> None:
    """PUBREC after the commit of the message; the message goes on, its packet id away, in one commit."""
    box = Box(instant=False)
    reader = box.client("r")
    reader.send(codec.Subscribe(1, [codec.Wish("a", 1)]))
    reader.take(codec.Suback)
    client = on_disk(box)
    client.publish("a", b"x", 2, 7)
    assert client.read() == []
    assert box.heard == []
    box.commit()
    assert client.take(Ack) == Ack(Packet.PUBREC, 7)
    client.send(Ack(Packet.PUBREL, 7))
    assert [one.payload for one in box.heard] == [b"x"]
    assert client.read() == []
    assert box.disk[0][0].incoming == {(client.connection.session.number, 7): False}  # type: ignore[union-attr]
    box.commit()
    assert client.take(Ack) == Ack(Packet.PUBCOMP, 7)
    assert reader.publishes() == [("a", b"x", 1)]


def test_where_a_sink_keeps_the_message_the_packet_id_goes_after_the_sinks_commit() -> None:
    box = Box(instant=False)
    box.keeps = lambda publish: True
    client = on_disk(box)
    client.publish("a", b"x", 2, 7)
    box.commit()
    client.take(Ack)
    client.send(Ack(Packet.PUBREL, 7))
    (message,) = box.disk[0][0].incoming.values()
    assert message is not False
    assert message is not True
    assert message.routed
    box.commit()
    assert client.read() == []
    box.keep()
    assert client.read() == []
    assert list(box.disk[0][0].incoming.values()) == [False]
    box.commit()
    assert client.take(Ack) == Ack(Packet.PUBCOMP, 7)
    assert len(box.heard) == 1


def test_a_pubrel_repeated_after_reconnect_routes_nothing_twice() -> None:
    box = Box()
    box.keeps = lambda publish: True
    client = durable(box)
    client.publish("a", b"x", 2, 7)
    client.send(Ack(Packet.PUBREL, 7))
    client.drop()
    client = durable(box)
    client.send(Ack(Packet.PUBREL, 7))
    assert client.read() == []
    box.keep()
    assert client.take(Ack) == Ack(Packet.PUBCOMP, 7)
    assert len(box.heard) == 1


def _fill(box: Box, version: int) -> Client:
    """A client whose two QoS 2 messages (3 bytes of topic, 10 of payload) leave room for one byte more."""
    client = durable(box, version)
    client.publish("a", b"x" * 10, 2, 1).publish("a", b"x" * 10, 2, 2)
    assert [one.reason for one in client.read() if isinstance(one, Ack)] == [0, 0]
    return client


@pytest.mark.limit("mqtt.unreleased_octets")
def test_version_5_is_refused_more_qos_2_messages_than_may_wait_for_pubrel() -> None:
    """MQTT 5 §3.5.2.1: PUBREC with 0x97, and the packet id is free again."""
    box = Box(unreleased_octets=2 * (256 + 13) + 1)
    client = _fill(box, V5)
    client.publish("a", b"more", 2, 3)
    assert client.take(Ack) == Ack(Packet.PUBREC, 3, Reason.QUOTA_EXCEEDED)
    assert box.limits.hits == {"mqtt.unreleased_octets": 1}
    client.publish("a", b"x" * 10, 2, 2, dup=True)  # a repeat is not one more
    assert client.take(Ack) == Ack(Packet.PUBREC, 2)
    client.send(Ack(Packet.PUBREL, 1))
    assert client.take(Ack) == Ack(Packet.PUBCOMP, 1)
    client.publish("a", b"more", 2, 3)
    assert client.take(Ack) == Ack(Packet.PUBREC, 3)
    client.send(Ack(Packet.PUBREL, 2), Ack(Packet.PUBREL, 3))
    assert [publish.payload for publish in box.heard] == [b"x" * 10, b"x" * 10, b"more"]
    assert box.broker.sessions["lamp", "c"].unreleased_octets == 0


@pytest.mark.limit("mqtt.unreleased_octets")
def test_version_3_is_closed_for_more_qos_2_messages_than_may_wait_for_pubrel_and_goes_on_when_it_is_back() -> None:
    box = Box(unreleased_octets=2 * (256 + 13) + 1)
    client = _fill(box, V311)
    client.publish("a", b"more", 2, 3)
    assert not client.open
    assert box.limits.hits == {"mqtt.unreleased_octets": 1}
    client = durable(box)
    client.send(Ack(Packet.PUBREL, 1), Ack(Packet.PUBREL, 2)).publish("a", b"more", 2, 3).send(Ack(Packet.PUBREL, 3))
    assert [publish.payload for publish in box.heard] == [b"x" * 10, b"x" * 10, b"more"]


def test_one_qos_2_message_is_taken_whatever_it_weighs_and_of_a_passing_session_none_is_kept() -> None:
    box = Box(unreleased_octets=1)
    durable(box, client_id="lasting").publish("a", b"x", 2, 1)
    passing = box.client("passing")
    passing.publish("a", b"x", 2, 1).publish("a", b"x", 2, 2)
    assert passing.open
    assert box.limits.hits == {}
    assert box.broker.sessions["lamp", "lasting"].unreleased_octets == 3 + 1 + 256


def test_a_released_message_is_retained_and_goes_into_queues() -> None:
    box = Box()
    durable(box, client_id="reader").subscribe("a", qos=2)
    box.broker.sessions["lamp", "reader"].conn.close(None)  # type: ignore[union-attr]
    writer = durable(box, client_id="writer")
    writer.send(PublishPacket("a", b"x", 2, True, packet_id=3), Ack(Packet.PUBREL, 3))
    assert [one.kind for one in writer.read() if isinstance(one, Ack)] == [Packet.PUBREC, Packet.PUBCOMP]
    assert box.broker.stats()["retained"] == 1
    assert box.broker.stats()["queued"] == 1


def test_a_pubrel_repeated_in_the_same_turn_is_answered_on_the_newer_connection() -> None:
    box = Box()
    old = durable(box)
    old.publish("a", b"x", 2, 3)
    old.read()
    old.connection.receive(codec.encode(Ack(Packet.PUBREL, 3), V311))
    new = box.wire()
    new.connection.receive(codec.encode(codec.Connect("c", clean=False, user="lamp"), V311))
    session = box.broker.sessions["lamp", "c"]
    box.broker.release(new.connection, 3)
    assert session.conn is new.connection
    box.turn()
    assert [type(one) for one in new.read()] == [codec.Connack, Ack]
    assert len(box.heard) == 1


def test_what_the_sinks_could_not_keep_is_offered_to_them_again() -> None:
    """And to nobody else: subscribers have it."""
    box = Box()
    reader = box.client("r")
    reader.subscribe("a", qos=1)
    box.keeps = lambda publish: True
    client = durable(box)
    client.publish("a", b"x", 2, 3)
    client.send(Ack(Packet.PUBREL, 3))
    box.keep(OSError("disk full"))
    client.drop()
    client = durable(box)
    client.send(Ack(Packet.PUBREL, 3))
    box.keep()
    assert client.take(Ack) == Ack(Packet.PUBCOMP, 3)
    assert len(box.heard) == 2
    assert len(reader.publishes()) == 1


def test_a_session_that_ends_while_its_message_is_on_its_way_is_no_matter() -> None:
    box = Box()
    box.keeps = lambda publish: True
    client = durable(box)
    client.publish("a", b"x", 2, 3)
    client.send(Ack(Packet.PUBREL, 3))
    box.client("c", clean=True)
    box.keep()
    assert box.broker.quiet


def test_a_session_forgets_the_ids_it_owes() -> None:
    box = Box(instant=False)
    client = on_disk(box)
    client.publish("a", b"x", 2, 3)
    box.commit()
    box.turn()
    number = client.connection.session.number  # type: ignore[union-attr]
    box.wire().send(codec.Connect("c", user="lamp"))
    box.turn()
    assert box.disk[-1][0].incoming == {(number, 3): False}


def test_acks_of_what_waits_to_be_sent_again_count() -> None:
    """PUBACK on the new connection for a message not yet sent on it."""
    box = Box()
    client = durable(box, V5)
    client.subscribe("a", qos=1)
    for at in range(3):
        box.host("a", b"%d" % at, 1)
    old = ids(client)
    client.drop()
    client = durable(box, V5, properties={Prop.RECEIVE_MAXIMUM: 1})
    client.puback(old[2][0])
    client.puback(old[0][0])
    assert [payload for _, payload, _ in ids(client)] == [b"0", b"1"]
    assert box.broker.stats()["inflight"] == 1


def test_a_refusing_puback_settles_too() -> None:
    """MQTT 5 §4.4."""
    box = Box()
    client = box.client(version=V5)
    client.subscribe("a", qos=1)
    box.host("a", b"x", 1)
    (one,) = ids(client)
    client.send(Ack(Packet.PUBACK, one[0], Reason.QUOTA_EXCEEDED))
    assert box.broker.stats()["inflight"] == 0
    assert box.broker.counters["refused_by_client.quota_exceeded"] == 1


def test_qos_2_that_the_disk_refused_goes_out_when_it_is_back() -> None:
    box = Box(instant=False)
    client = on_disk(box)
    client.send(codec.Subscribe(1, [codec.Wish("a", 2)]))
    box.commit()
    client.read()
    box.host("a", b"x", 2)
    box.commit(OSError("disk full"))
    box.turn()
    assert client.read() == []
    box.pass_(1)
    box.commit()
    assert [payload for _, payload, _ in ids(client)] == [b"x"]


def test_qos_2_that_became_durable_while_its_client_was_away_is_sent_once() -> None:
    box = Box(instant=False)
    client = on_disk(box)
    client.send(codec.Subscribe(1, [codec.Wish("a", 2)]))
    box.commit()
    client.read()
    box.host("a", b"x", 2)
    client.drop()
    while box.disk:
        box.commit()
        box.turn()
    client = box.wire().send(codec.Connect("c", clean=False, user="lamp"))
    while box.disk:
        box.commit()
        box.turn()
    found = client.read()
    assert found[1:] == [PublishPacket("a", b"x", 2, packet_id=1)]


def test_qos_2_not_yet_durable_at_reconnect_is_sent_when_it_is() -> None:
    box = Box(instant=False)
    client = on_disk(box)
    client.send(codec.Subscribe(1, [codec.Wish("a", 2)]))
    box.commit()
    client.read()
    box.host("a", b"x", 2)
    box.commit(OSError("disk full"))
    box.turn()
    client.drop()
    client = box.wire().send(codec.Connect("c", clean=False, user="lamp"))
    box.pass_(1)
    while box.disk:
        box.commit()
        box.turn()
    assert client.read()[1:] == [PublishPacket("a", b"x", 2, packet_id=1)]


def test_a_session_knows_its_client() -> None:
    box = Box()
    session = durable(box).connection.session
    assert session is not None
    assert (session.user, session.client_id) == ("lamp", "c")


def test_an_id_in_flight_is_skipped_on_the_short_way_too() -> None:
    box = Box()
    client = box.client()
    client.subscribe("a", qos=1)
    for at in range(3):
        box.host("a", b"%d" % at, 1)
    sent = ids(client)
    session = client.connection.session
    assert session is not None
    session.next_id = sent[0][0]
    box.host("a", b"3", 1)
    assert ids(client)[0][0] not in [packet_id for packet_id, _, _ in sent]


def test_a_session_that_ends_in_the_turn_of_its_pubrel_leaves_no_row() -> None:
    """The sinks keep the message; there is no session any more whose packet id could be noted."""
    box = Box()
    box.keeps = lambda publish: True
    client = durable(box)
    client.publish("a", b"x", 2, 3)
    client.read()
    client.connection.receive(codec.encode(Ack(Packet.PUBREL, 3), V311))
    box.wire().connection.receive(codec.encode(codec.Connect("c", user="lamp"), V311))
    box.written.clear()
    box.turn()
    box.keep()
    rows = {key: row for changes in box.written for key, row in changes.incoming.items()}
    assert set(rows.values()) <= {False}


def test_qos_2_that_becomes_durable_while_earlier_messages_are_sent_again_keeps_its_place() -> None:
    """Receive Maximum 1: the message waits behind what was in flight before."""
    box = Box(instant=False)
    client = on_disk(box, V5)
    client.send(codec.Subscribe(1, [codec.Wish("a", 2)]))
    box.commit()
    client.read()
    box.host("a", b"1", 1)
    box.host("a", b"2", 2)
    box.commit(OSError("disk full"))
    box.turn()
    (first,) = ids(client)
    client.drop()
    found = {**WEEK, Prop.RECEIVE_MAXIMUM: 1}
    client = box.wire()
    client.version = V5
    client.send(codec.Connect("c", clean=False, user="lamp", version=V5, properties=found))
    box.pass_(1)
    while box.disk:
        box.commit()
        box.turn()
    client.inbox.pop(0)
    assert ids(client) == [(first[0], b"1", True)]
    client.puback(first[0])
    assert [payload for _, payload, _ in ids(client)] == [b"2"]
