"""P1: an ack leaves when what it waits for is on disk, in the order of MQTT 3.1.1 §4.6."""

from __future__ import annotations

import pytest

from edge.contract.errors import StorageFull
from edge.protocol.mqtt.codec import V5, V311, Ack, Connect, Disconnect, Ping, PublishPacket
from edge.protocol.mqtt.message import Message
from edge.protocol.mqtt.properties import Prop
from edge.protocol.mqtt.reasons import Packet, Reason
from tests.protocol.mqtt.box import Box, Client

BOTH = pytest.mark.parametrize("version", [V311, V5])


def acked(client: Client) -> list[int]:
    """Packet ids of the acks received."""
    found = client.read()
    assert all(isinstance(one, Ack) for one in found), found
    return [one.packet_id for one in found if isinstance(one, Ack)]


def kept(box: Box) -> None:
    """The sinks keep what lies under `keep/`."""
    box.keeps = lambda publish: publish.topic.startswith("keep/")


@BOTH
def test_an_ack_waits_for_the_sinks_commit(version: int) -> None:
    box = Box()
    kept(box)
    client = box.client(version=version).publish("keep/a", b"x", 1, 1)
    assert acked(client) == []
    box.keep()
    assert acked(client) == [1]


@BOTH
def test_a_message_nobody_keeps_waits_only_for_earlier_acks(version: int) -> None:
    """Within one turn and over several."""
    box = Box()
    kept(box)
    client = box.client(version=version)
    client.send(
        PublishPacket("a", b"", 1, packet_id=1),
        PublishPacket("keep/a", b"", 1, packet_id=2),
        PublishPacket("a", b"", 1, packet_id=3),
    )
    assert acked(client) == [1]
    client.publish("a", b"", 1, 4)
    assert acked(client) == []
    box.keep()
    assert acked(client) == [2, 3, 4]


def test_acks_leave_in_order_although_commits_do_not() -> None:
    """MQTT-4.6.0-2 of 3.1.1."""
    box = Box()
    kept(box)
    client = box.client()
    client.publish("keep/a", b"", 1, 1).publish("keep/b", b"", 2, 2)
    box.kept.pop(1)(None)
    box.turn()
    assert acked(client) == []
    box.keep()
    assert acked(client) == [1, 2]


def test_connections_do_not_wait_for_each_other() -> None:
    box = Box()
    kept(box)
    one, two = box.client("1"), box.client("2")
    one.publish("keep/a", b"", 1, 1)
    two.publish("a", b"", 1, 1)
    assert acked(two) == [1]


def test_live_forwarding_does_not_wait() -> None:
    box = Box()
    kept(box)
    reader = box.client("r")
    reader.subscribe("keep/#", qos=1)
    box.client("p").publish("keep/a", b"x", 1)
    assert reader.publishes() == [("keep/a", b"x", 1)]


def test_every_sink_that_keeps_is_waited_for() -> None:
    box = Box()
    kept(box)
    second = []
    box.broker.attach(lambda batch, done: [second.append(done) or 0])  # type: ignore[func-returns-value,list-item]
    client = box.client().publish("keep/a", b"", 1, 1)
    box.keep()
    assert acked(client) == []
    second[0](None)
    assert acked(client) == [1]


def test_a_sink_may_be_done_at_once() -> None:
    box = Box()

    def sink(batch, done):  # type: ignore[no-untyped-def]
        done(None)
        return [0]

    box.broker.attach(sink)
    assert acked(box.client().publish("a", b"", 1, 1)) == [1]


def test_a_sink_that_raises_acknowledges_nothing_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    box = Box()

    def sink(batch, done):  # type: ignore[no-untyped-def]
        raise RuntimeError("broken sink")

    box.broker.attach(sink)
    reader = box.client("r")
    reader.subscribe("a")
    client = box.client().publish("a", b"x", 1, 1)
    assert acked(client) == []
    assert reader.publishes() == [("a", b"x", 0)]
    assert "broken sink" in caplog.text


def test_a_retained_message_is_acknowledged_when_it_is_on_disk() -> None:
    box = Box(instant=False)
    client = box.client().publish("a", b"x", 1, 1, retain=True)
    assert acked(client) == []
    box.commit()
    assert acked(client) == [1]


def test_version_5_is_told_what_the_store_refuses() -> None:
    """MQTT 5 §3.4.2.1: 0x97 quota exceeded; it need not be sent again."""
    box = Box()
    kept(box)
    client = box.client(version=V5).publish("keep/a", b"", 1, 1).publish("keep/a", b"", 2, 2)
    client.publish("a", b"", 1, 3)
    box.keep(StorageFull())
    box.keep()
    assert client.read() == [
        Ack(Packet.PUBACK, 1, Reason.QUOTA_EXCEEDED),
        Ack(Packet.PUBREC, 2),
        Ack(Packet.PUBACK, 3),
    ]
    box.pass_(3)
    [changes] = box.written
    assert changes.losses == {("telemetry", "refused_store_full", "lamp"): 1}


def test_a_client_of_3_1_1_gets_no_ack_for_what_the_store_refuses() -> None:
    """What came after it is acked, still in order (MQTT-4.6.0-2): that one ack never leaves here."""
    box = Box()
    kept(box)
    client = box.client().publish("keep/a", b"", 1, 1).publish("a", b"", 1, 2)
    box.keep(StorageFull())
    assert acked(client) == [2]
    assert client.open
    assert client.connection.owed == 1


def test_who_goes_without_an_ack_is_closed_in_time_to_send_again() -> None:
    """From the first ack that the client does not get, whatever else is acked meanwhile."""
    box = Box()
    kept(box)
    client = box.client().publish("keep/a", b"", 1, 1)
    box.keep(StorageFull())
    box.pass_(20)
    client.publish("a", b"", 1, 2).publish("keep/a", b"", 1, 3)
    box.keep(StorageFull())
    assert acked(client) == [2]
    box.pass_(9.9)
    assert client.open
    box.pass_(0.1)
    assert not client.open
    assert box.limits.hits["mqtt.held_ack_s"] == 1


def test_once_the_store_is_well_again_who_went_without_an_ack_is_closed_at_once() -> None:
    """A client of 3.1.1 sends again only after a reconnect (MQTT-4.4.0-1); others stay."""
    box = Box(instant=False)
    client, other = box.client("c"), box.client("o")
    client.publish("a", b"x", 1, 1, retain=True)
    box.commit(StorageFull())
    assert acked(client) == []
    box.pass_(1)
    assert client.open
    box.commit()
    box.turn()
    assert not client.open
    assert other.open
    assert box.broker.counters["closed.store_well_again"] == 1


def alarms(box: Box) -> None:
    """What lies under `alarm/` is of that class, and kept by the sinks like what lies under `keep/`."""
    box.traffic = lambda topic: "alarm" if topic.startswith("alarm/") else "telemetry"
    box.keeps = lambda publish: publish.topic.startswith(("keep/", "alarm/"))


@pytest.mark.parametrize("together", [True, False])
def test_an_alarm_does_not_wait_for_what_the_sinks_refuse_in_the_same_turn(together: bool) -> None:
    """On one connection or two; the sinks see alarms as a batch of their own."""
    box = Box()
    alarms(box)
    one = box.client("1")
    two = one if together else box.client("2")
    for client, topic, packet_id in ((one, b"keep/a", 1), (two, b"alarm/a", 2), (one, b"keep/b", 3)):
        client.connection.receive(b"\x32" + bytes((len(topic) + 4, 0, len(topic))) + topic + bytes((0, packet_id)))
    box.turn()
    assert [[one.topic for one in batch] for batch in box.batches] == [["alarm/a"], ["keep/a", "keep/b"]]
    box.kept.pop(1)(StorageFull())
    box.turn()
    assert acked(two) == []
    box.keep()
    assert acked(two) == [2]
    assert one.connection.owed == 2


@pytest.mark.parametrize("qos", [1, 2])
def test_an_alarm_for_a_stored_session_is_acked_while_the_store_refuses_everything_else(qos: int) -> None:
    """Its copy goes down alone; what a full disk refused waits in memory and goes down once there is room."""
    box = Box()
    box.traffic = lambda topic: topic
    box.client("s", clean=False).subscribe("#", qos=2)
    publisher, other = box.client("p", clean=False), box.client("o", clean=False)
    box.instant = False
    for client, topic in ((publisher, "alarm"), (other, "telemetry")):
        client.connection.receive(
            b"".join((bytes((0x30 | qos << 1, len(topic) + 5, 0, len(topic))), topic.encode(), b"\0\7x"))
        )
    box.turn()
    box.commit(StorageFull())
    box.turn()
    [(changes, _)] = box.disk
    assert changes.urgent
    rows = [row.message for row in changes.outgoing.values() if row is not None]
    rows += [row for row in changes.incoming.values() if isinstance(row, Message)]
    assert [row.publish.topic for row in rows] == ["alarm"]
    box.commit()
    assert acked(publisher) == [7]
    assert acked(other) == []
    box.pass_(1)
    [(changes, _)] = box.disk
    assert not changes.urgent
    assert len(changes.outgoing) + len(changes.incoming) >= 1
    box.commit()
    assert box.broker.journal.idle


@pytest.mark.limit("mqtt.held_acks")
def test_with_too_many_acks_held_by_a_failing_store_the_connection_closes() -> None:
    """Design §1: 64 acks of a connection."""
    box = Box(held_acks=4)
    kept(box)
    client = box.client()
    for packet_id in range(1, 4):
        client.publish("keep/a", b"", 1, packet_id)
        box.keep(StorageFull())
    assert client.open
    client.publish("keep/a", b"", 1, 4)
    box.keep(StorageFull())
    assert not client.open
    assert acked(client) == []
    assert box.limits.hits["mqtt.held_acks"] == 1


def test_many_acks_may_wait_for_a_store_that_works() -> None:
    box = Box(held_acks=4)
    kept(box)
    client = box.client()
    for packet_id in range(1, 21):
        client.publish("keep/a", b"", 1, packet_id)
    assert client.open
    for _ in range(20):
        box.keep()
    assert acked(client) == list(range(1, 21))


@pytest.mark.limit("mqtt.held_ack_s")
@pytest.mark.parametrize("failing", [True, False])
def test_with_an_ack_held_too_long_the_connection_closes(failing: bool) -> None:
    """Design §1: one for 30 s."""
    box = Box()
    kept(box)
    client = box.client()
    client.publish("keep/a", b"", 1, 1)
    box.pass_(20)
    box.keep()
    client.publish("keep/a", b"", 1, 2)
    if failing:
        box.keep(StorageFull())
    assert acked(client) == [1]
    box.pass_(29.9)
    assert client.open
    box.pass_(0.1)
    assert not client.open
    assert box.limits.hits["mqtt.held_ack_s"] == 1


def test_version_5_hears_why_it_is_closed() -> None:
    box = Box()
    kept(box)
    client = box.client(version=V5).publish("keep/a", b"", 1, 1)
    box.pass_(30)
    assert client.take(Disconnect).reason == Reason.SERVER_BUSY


def test_a_commit_after_the_connection_has_gone_is_no_matter() -> None:
    box = Box()
    kept(box)
    client = box.client().publish("keep/a", b"", 1, 1)
    client.drop()
    box.keep()
    assert client.read() == []


def test_qos_2_refused_by_the_store_frees_its_packet_id() -> None:
    """A clean session of version 5: the same id may carry the next message."""
    box = Box()
    kept(box)
    client = box.client(version=V5).publish("keep/a", b"1", 2, 5)
    box.keep(StorageFull())
    assert client.take(Ack) == Ack(Packet.PUBREC, 5, Reason.QUOTA_EXCEEDED)
    client.publish("keep/a", b"2", 2, 5)
    assert [one.payload for one in box.heard] == [b"1", b"2"]


def test_qos_2_of_a_durable_session_is_not_refused_but_kept_waiting() -> None:
    """Its packet id may be on disk."""
    box = Box(instant=False)
    client = box.wire()
    client.version = V5
    client.send(Connect("c", version=V5, user="lamp", properties={Prop.SESSION_EXPIRY: 60}))
    box.commit()
    client.read()
    client.publish("a", b"x", 2, 5)
    box.commit(StorageFull())
    assert client.read() == []
    assert client.open


def test_an_ack_in_time_ends_the_watch() -> None:
    box = Box()
    kept(box)
    client = box.client().publish("keep/a", b"", 1, 1)
    box.pass_(10)
    box.keep()
    box.pass_(60)
    assert client.open
    assert not client.connection.holds_acks


def test_one_failure_closes_and_the_rest_of_the_line_goes_with_it() -> None:
    box = Box(held_acks=1)
    kept(box)
    client = box.client().publish("keep/a", b"", 1, 1).publish("keep/a", b"", 1, 2)
    box.kept.pop(0)(StorageFull())
    box.turn()
    assert not client.open
    box.keep()
    assert client.read() == []


def test_unkept_acks_behind_a_refused_one_are_no_refusals() -> None:
    box = Box()
    kept(box)
    client = box.client(version=V5)
    client.send(PublishPacket("keep/a", b"", 1, packet_id=1), PublishPacket("a", b"", 1, packet_id=2), Ping())
    box.keep(StorageFull())
    assert client.read() == [Ack(Packet.PUBACK, 1, Reason.QUOTA_EXCEEDED), Ack(Packet.PUBACK, 2), Ping(Packet.PINGRESP)]
