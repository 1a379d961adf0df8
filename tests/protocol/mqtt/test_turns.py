"""One turn: the batch to the sinks, one commit, one write for each connection."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from edge.contract.bus import Done, Publish
from edge.contract.errors import StorageFull
from edge.protocol.mqtt.codec import V5, Ack, PublishPacket
from edge.protocol.mqtt.properties import Prop
from edge.protocol.mqtt.turns import SEARCH_STEPS
from tests.protocol.mqtt.box import Box

WEEK = {Prop.SESSION_EXPIRY: 604_800}


def test_what_several_clients_sent_in_one_turn_is_one_batch_in_order() -> None:
    box = Box()
    first, second = box.client("a"), box.client("b")
    for client, topic in ((first, b"1"), (second, b"2"), (first, b"3")):
        client.connection.receive(b"\x30\x04\x00\x01" + topic + b"x")
    box.turn()
    assert [[one.topic for one in batch] for batch in box.batches] == [["1", "2", "3"]]
    assert box.broker.messages_in == 3


def test_a_turn_without_messages_calls_no_sink() -> None:
    box = Box()
    box.client().subscribe("a")
    assert box.batches == []


def test_only_what_a_sink_keeps_waits_for_it() -> None:
    box = Box()
    box.keeps = lambda publish: publish.topic == "keep"
    first, second = box.client("a"), box.client("b")
    first.connection.receive(b"\x32\x08\x00\x04keep\x00\x01")
    second.connection.receive(b"\x32\x05\x00\x01x\x00\x02")
    box.turn()
    assert second.take(Ack).packet_id == 2
    assert first.read() == []
    box.keep()
    assert first.take(Ack).packet_id == 1


def test_a_sink_that_fails_costs_its_messages_their_acks_and_the_other_sinks_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    box, heard = Box(), []

    def broken(batch: list[Publish], done: Done) -> Collection[int]:
        raise RuntimeError("a bug")

    def good(batch: list[Publish], done: Done) -> Collection[int]:
        heard.extend(batch)
        return ()

    box.broker.attach(broken)
    box.broker.attach(good)
    client = box.client(version=V5)
    client.publish("a", b"x", 1, 1)
    assert client.take(Ack).reason == 0x97
    assert (len(box.heard), len(heard)) == (1, 1)
    assert "a sink of the bus raised" in caplog.text


def test_one_commit_carries_what_a_turn_noted() -> None:
    box = Box(instant=False)
    client = box.client()
    client.send(*(PublishPacket(topic, b"x", 1, retain=True, packet_id=at) for at, topic in enumerate("abc", 1)))
    [(changes, _)] = box.disk
    assert sorted(changes.retained) == ["a", "b", "c"]
    assert client.read() == []
    box.commit()
    assert len(client.read()) == 3


def test_a_qos_2_message_leaves_after_its_packet_id_is_on_disk_or_after_the_next_try() -> None:
    box = Box()
    reader = box.client("r", version=V5, clean=False, properties=WEEK)
    reader.subscribe("a", qos=2)
    box.instant = False
    box.host("a", b"x", 2)
    assert reader.read() == []
    box.commit(StorageFull("full"))
    box.turn()
    assert reader.read() == []
    box.pass_(1)
    box.commit()
    box.turn()
    assert reader.take(PublishPacket).payload == b"x"


def test_searches_among_many_retained_messages_let_others_have_their_turn() -> None:
    box = Box()
    for at in range(SEARCH_STEPS):
        box.broker.publish(Publish(f"t/{at}/x", b"x", 0, True, box.users["lamp"].who, box.broker.stamp))
    box.turn()
    readers = [box.client(f"r{at}") for at in range(3)]
    for reader in readers:
        reader.connection.receive(b"\x82\x0a\x00\x01\x00\x05t/+/y\x00")
    box.broker.publish(Publish("now", b"x", 0, False, box.users["lamp"].who, box.broker.stamp))
    turns, heard_after = 0, 0
    while box._turns:
        box._turns = 0
        box.broker.turn()
        turns += 1
        heard_after = heard_after or (turns if box.heard[-1].topic == "now" else 0)
    assert heard_after == 1
    assert turns > len(readers)
    assert all(len(reader.read()) == 1 for reader in readers)


def test_a_failed_commit_arms_one_retry() -> None:
    box = Box(instant=False)
    box.host("a", b"x", retain=True)
    box.commit(StorageFull("full"))
    box.turn()
    armed = box.broker.retrying
    assert armed is not None
    box.host("b", b"x", retain=True)
    assert box.broker.retrying is armed
    box.pass_(1)
    assert box.broker.retrying is None
    assert sorted(box.disk[0][0].retained) == ["a", "b"]


def test_a_broker_is_quiet_when_no_batch_no_ack_and_no_commit_is_left() -> None:
    box = Box(instant=False)
    assert box.broker.quiet
    box.broker.publish(Publish("a", b"x", 0, True, box.users["lamp"].who, box.broker.stamp))
    assert not box.broker.quiet
    box.turn()
    assert not box.broker.quiet
    box.commit()
    assert box.broker.quiet
