"""What the acks of a turn wait for, and the ack that ends QoS 2 from a durable session."""

from __future__ import annotations

from edge.contract.errors import StorageFull
from edge.protocol.mqtt.codec import V5, Ack, PublishPacket
from edge.protocol.mqtt.delivery import Release
from edge.protocol.mqtt.hold import Hold
from edge.protocol.mqtt.properties import Prop, Properties
from edge.protocol.mqtt.reasons import Packet
from tests.protocol.mqtt.box import Box, Client

WEEK: Properties = {Prop.SESSION_EXPIRY: 604_800}


def durable(box: Box) -> Client:
    """A durable publisher of version 5 that has sent a QoS 2 message under packet id 5 and read PUBREC."""
    client = box.client(version=V5, clean=False, properties=WEEK)
    client.publish("keep/a", b"x", 2, 5)
    assert client.take(Ack).kind == Packet.PUBREC
    return client


def test_a_hold_is_over_when_everything_that_it_waits_for_is_in() -> None:
    hold, told = Hold(), []
    hold.calls.append(told.append)
    hold.open += 2
    hold.done()
    hold.done()
    assert told == []
    hold.done()
    assert told == [None]


def test_the_first_error_of_a_hold_is_its_error() -> None:
    hold, told = Hold(), []
    hold.calls.append(told.append)
    hold.open += 2
    first = StorageFull("full")
    for error in (None, first, StorageFull("still full")):
        hold.done(error)
    assert told == [first]
    assert hold.error is first


def test_connections_are_released_once_for_all_their_acks() -> None:
    box = Box()
    box.keeps = lambda publish: True
    client = box.client()
    client.send(*(PublishPacket("a", b"", 1, packet_id=at) for at in (1, 2)))
    assert client.read() == []
    box.keep()
    assert [one.packet_id for one in client.read() if isinstance(one, Ack)] == [1, 2]


def test_a_release_says_nothing_until_its_turn_decided_what_it_waits_for() -> None:
    box = Box()
    client = durable(box)
    session = client.connection.session
    assert session is not None
    release = Release(box.broker, session, 5, b"pubcomp")
    box.broker.releasing[session.number, 5] = client.connection
    assert release.kept() == b""
    release.decide(False, Hold(), client.connection)
    assert release.kept() == b"pubcomp"
    assert session.incoming == {}


def test_a_release_whose_message_a_sink_keeps_leaves_the_packet_id_until_the_sink_is_done() -> None:
    box = Box()
    client = durable(box)
    session = client.connection.session
    assert session is not None
    release, hold = Release(box.broker, session, 5, b"pubcomp"), Hold()
    box.broker.releasing[session.number, 5] = client.connection
    release.decide(True, hold, client.connection)
    assert (list(session.incoming or ()), len(hold.calls)) == ([5], 1)
    hold.done(StorageFull("full"))
    assert list(session.incoming or ()) == [5]
    again = Hold()
    box.broker.releasing[session.number, 5] = client.connection
    release.decide(True, again, client.connection)
    again.done()
    assert (session.incoming, release.kept()) == ({}, b"")
