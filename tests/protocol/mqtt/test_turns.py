"""One turn: the batch to the sinks, one commit, one write for each connection."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from edge.contract.bus import Admission, Done, Publish
from edge.contract.errors import StorageFull
from edge.protocol.mqtt.codec import V5, Ack, Connect, PublishPacket
from edge.protocol.mqtt.properties import Prop
from edge.protocol.mqtt.reasons import Packet
from edge.protocol.mqtt.rights import Rights
from edge.protocol.mqtt.turns import SEARCH_STEPS
from tests.protocol.mqtt.box import EVERYTHING, Box, Client

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


# An alarm while the store takes nothing but alarms.


class FullDisk:
    """A store that takes alarms only, until it is well; who listens has QoS 2 and a lasting session."""

    def __init__(self, inflight: int = 3) -> None:
        self.box = Box(inflight=inflight)
        self.box.traffic = lambda topic: "alarm" if topic.startswith("smoke") else "telemetry"
        self.full = False
        self.dead = False
        """It does not even take alarms."""
        self.listener = self.connect()
        self.listener.subscribe("#", qos=2)
        self.listener.read()
        self.box.instant = False

    def connect(self) -> Client:
        client = self.box.wire()
        client.version = V5
        lasting: dict[int, Any] = {Prop.SESSION_EXPIRY: 604_800}
        client.send(Connect("l", user="lamp", password=b"p", version=V5, clean=False, properties=lasting))
        return client

    def settle(self) -> None:
        """Every commit ends, well or not."""
        self.box.turn()
        while self.box.disk:
            changes, _ = self.box.disk[0]
            self.box.commit(StorageFull() if self.dead or (self.full and not changes.urgent) else None)
            self.box.turn()

    def say(self, *topics: str, qos: int = 2) -> None:
        for topic in topics:
            self.box.host(topic, topic.encode(), qos)
            self.settle()

    def heard(self) -> list[str]:
        """What arrives; the listener takes it."""
        found = []
        while packets := self.listener.read():
            for one in packets:
                if isinstance(one, PublishPacket):
                    found.append(one.payload.decode())
                    kind = Packet.PUBREC if one.qos == 2 else Packet.PUBACK
                    self.listener.send(Ack(kind, one.packet_id))
                elif isinstance(one, Ack) and one.kind == Packet.PUBREL:
                    self.listener.send(Ack(Packet.PUBCOMP, one.packet_id))
            self.settle()
        return found

    def well(self) -> None:
        self.full = self.dead = False
        for _ in range(3):
            self.box.pass_(1.1)
            self.settle()


def test_an_alarm_overtakes_readings_that_cannot_be_sent_while_the_disk_is_full() -> None:
    """They fill the window, and their packet ids do not get to the disk; alarms of other topics go first."""
    disk = FullDisk()
    disk.full = True
    disk.say("a/1", "a/2", "b/1", "b/2", "a/3", "smoke/1", "c/1", "smoke/2")
    assert disk.heard() == ["smoke/1", "smoke/2"]
    disk.well()
    assert disk.heard() == ["a/1", "a/2", "b/1", "b/2", "a/3", "c/1"]
    disk.full = True
    disk.say("smoke/3", "d/1")
    assert disk.heard() == ["smoke/3"]
    assert "dropped.queue_full" not in disk.box.broker.counters


def test_no_message_overtakes_one_of_its_own_topic() -> None:
    """MQTT §4.6: the topic became an alarm's while its messages waited; and QoS 1 does not pass QoS 2."""
    disk = FullDisk()
    disk.full = True
    disk.say("a/1", "b/1", "c/1", "x")
    disk.box.traffic = lambda topic: "alarm" if topic in ("x", "y") else "telemetry"
    disk.box.broker.router.generation += 1
    disk.say("x", "y")
    disk.say("c/1", "d/1", qos=1)
    assert disk.heard() == ["y", "d/1"]
    disk.well()
    assert sorted(disk.heard()) == ["a/1", "b/1", "c/1", "c/1", "x", "x"]


def test_what_gave_way_is_there_after_a_reconnect_and_in_order() -> None:
    disk = FullDisk()
    disk.full = True
    disk.say("a/1", "a/2", "a/3", "a/4")
    disk.listener.drop()
    disk.settle()
    disk.listener = disk.connect()
    disk.settle()
    disk.say("smoke/1", "a/5")
    assert disk.heard() == ["smoke/1"]
    disk.well()
    assert disk.heard() == ["a/1", "a/2", "a/3", "a/4", "a/5"]


def test_where_not_even_alarms_are_taken_everything_waits_for_the_store() -> None:
    """The broker comes to rest meanwhile (`settle` ends), and sends all of it afterwards."""
    disk = FullDisk(inflight=2)
    disk.dead = True
    disk.say("a/1", "a/2", "smoke/1", "smoke/2", "smoke/3", "a/3")
    assert disk.heard() == []
    disk.well()
    heard = disk.heard()
    assert sorted(heard) == ["a/1", "a/2", "a/3", "smoke/1", "smoke/2", "smoke/3"]
    assert [one for one in heard if one.startswith("a/")] == ["a/1", "a/2", "a/3"]


@pytest.mark.parametrize("full", [True, False])
def test_what_was_given_up_meanwhile_does_not_come_back(full: bool) -> None:
    """The listener may not read it any more while its packet id waits for the disk."""
    disk = FullDisk(inflight=1)
    disk.full = full
    disk.box.host("a/1", b"a/1", 2)
    session = disk.listener.connection.session
    assert session is not None
    session.rights = Rights(Admission(EVERYTHING.who, "lamp", ("#",), ("b/#", "smoke/#")), "l")
    disk.box.broker.review(session)
    disk.settle()
    disk.say("b/1", "smoke/1")
    assert disk.heard() == (["smoke/1"] if full else ["b/1", "smoke/1"])
    disk.well()
    assert disk.heard() == (["b/1"] if full else [])
    assert disk.box.broker.counters["dropped.not_authorized"] == 1
