"""Any order of packets, lost packets, reconnects and crashes: QoS 1 arrives at least once, QoS 2 exactly once.

The broker is the real one over real SQL; a crash keeps what was committed and nothing else. A full disk takes alarms
only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edge.contract.bus import Done
from edge.contract.errors import StorageFull
from edge.contract.gap import Gap
from edge.contract.time import SECOND, Stamp
from edge.protocol.mqtt import codec
from edge.protocol.mqtt.codec import V5, V311, Ack, Connect, Disconnect, PublishPacket
from edge.protocol.mqtt.journal import Changes
from edge.protocol.mqtt.properties import Prop, Properties
from edge.protocol.mqtt.reasons import Packet, Reason
from edge.protocol.mqtt.router import ALARM
from edge.store import mqtt as tables
from edge.transports.mqtt.restore import WILL_GRACE_US, Restoring
from tests.protocol.mqtt.box import Box, Client
from tests.support.mqtt_rows import load

WEEK: Properties = {Prop.SESSION_EXPIRY: 604_800}


class Disk:
    """The part of a unit that the tables use, on a database in memory."""

    def __init__(self) -> None:
        self.conn = sqlite3.connect(":memory:")
        self.losses: list[Gap] = []
        for migration in tables.MIGRATIONS:
            migration.apply(self)  # type: ignore[arg-type]

    def run(self, sql: str, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.conn.execute(sql, args).fetchall()

    def lose(self, gap: Gap) -> None:
        self.losses.append(gap)


class DiskBox(Box):
    """A box whose commits are rows; `disk` outlives it."""

    def __init__(self, store: Disk, boot: int = 1, **limits: int) -> None:
        self.store = store
        self.work: list[Any] = []
        self.full = False
        super().__init__(instant=False, **limits)
        self.traffic = lambda topic: "alarm" if topic.endswith("/alarm") else "telemetry"
        self.now_us = boot * 1000 * SECOND
        self.broker._now = lambda: Stamp(boot, self.now_us)
        restoring = Restoring(self.broker, self._here)
        restoring.take(load(store))  # type: ignore[arg-type]
        restoring.done()
        self.turn()

    def _here(self, stamp: Stamp) -> int:
        """Boots follow each other on one line of time."""
        return stamp.mono_us

    def _write(self, changes: Changes, done: Done) -> None:
        self.work.append(tables.commit(changes, self.broker.stamp, tables.Texts()))
        super()._write(changes, done)

    def commit(self, error: BaseException | None = None) -> None:
        work = self.work.pop(0)
        if self.full and not self.disk[0][0].urgent:
            error = StorageFull()
        if error is None:
            work(self.store)
        super().commit(error)
        self.turn()

    def settle(self) -> None:
        """Let everything reach the disk."""
        self.turn()
        while self.disk or self.kept:
            if self.disk:
                self.commit()
            if self.kept:
                self.keep()
        self.turn()


class Exchange(RuleBasedStateMachine):
    """One publisher, one subscriber, both durable; each follows the standard, the world between does not."""

    reader: Client | None
    writer: Client | None

    @initialize(version=st.sampled_from([V311, V5]), window=st.integers(1, 3), keeps=st.booleans())
    def start(self, version: int, window: int, keeps: bool) -> None:
        self.version, self.window, self.keeps = version, window, keeps
        self.store = Disk()
        self.boot = 1
        self.sent = 0
        self.unacked: dict[int, tuple[int, bytes, bool]] = {}
        """Of the publisher: packet id → QoS, payload, whether PUBREC came."""
        self.topics: dict[bytes, str] = {}
        self.delivered: list[tuple[bytes, int]] = []
        self.known: set[int] = set()
        """QoS 2 ids that the subscriber has and has not been released of."""
        self.published: list[tuple[bytes, int]] = []
        self.refused: set[bytes] = set()
        """Told so: they may have arrived all the same, but need not."""
        self._boot()
        self._dial("writer").drop()
        reader = self.reader = self._dial("reader")
        reader.send(codec.Subscribe(1, [codec.Wish("t/#", 2)]))
        self.box.settle()
        reader.read()

    def _boot(self) -> None:
        self.box = DiskBox(self.store, self.boot, inflight=self.window)
        self.box.keeps = lambda publish: self.keeps
        self.reader = self.writer = None

    def _dial(self, name: str) -> Client:
        client = self.box.wire()
        client.version = self.version
        found: Properties = WEEK if self.version == V5 else {}
        client.send(Connect(name, clean=False, user="lamp", version=self.version, properties=found))
        self.box.settle()
        first = client.inbox.pop(0)
        assert isinstance(first, codec.Connack)
        return client

    # The publisher.

    @precondition(lambda self: self.writer is None)
    @rule()
    def publisher_connects(self) -> None:
        self.writer = self._dial("writer")
        for packet_id, (qos, payload, received) in self.unacked.items():
            if received:
                self.writer.send(Ack(Packet.PUBREL, packet_id))
            else:
                self.writer.send(PublishPacket(self.topics[payload], payload, qos, dup=True, packet_id=packet_id))

    @precondition(lambda self: self.writer is not None and len(self.unacked) < 5)
    @rule(qos=st.integers(1, 2), retain=st.booleans(), topic=st.sampled_from(["t/x", "t/alarm"]))
    def publishes(self, qos: int, retain: bool, topic: str) -> None:
        assert self.writer is not None
        self.sent += 1
        packet_id = next(at for at in range(1, 100) if at not in self.unacked)
        payload = b"%d\x00\xff" % self.sent
        self.unacked[packet_id] = (qos, payload, False)
        self.topics[payload] = topic
        self.published.append((payload, qos))
        self.writer.send(PublishPacket(topic, payload, qos, retain, packet_id=packet_id))

    @precondition(lambda self: self.writer is not None)
    @rule()
    def publisher_reads(self) -> None:
        assert self.writer is not None
        for packet in self.writer.read():
            if isinstance(packet, Disconnect):
                break
            assert isinstance(packet, Ack), packet
            mine = self.unacked.get(packet.packet_id)
            if mine is None:
                continue
            qos, payload, _ = mine
            if packet.reason == Reason.QUOTA_EXCEEDED:
                self.published.remove((payload, qos))
                self.refused.add(payload)
                del self.unacked[packet.packet_id]
            elif packet.kind == Packet.PUBREC:
                self.unacked[packet.packet_id] = (qos, payload, True)
                self.writer.send(Ack(Packet.PUBREL, packet.packet_id))
            else:
                assert packet.kind == (Packet.PUBACK if qos == 1 else Packet.PUBCOMP)
                del self.unacked[packet.packet_id]
        if not self.writer.open:
            self.writer = None

    # The subscriber.

    @precondition(lambda self: self.reader is None)
    @rule()
    def subscriber_connects(self) -> None:
        self.reader = self._dial("reader")

    @precondition(lambda self: self.reader is not None)
    @rule(answers=st.booleans())
    def subscriber_reads(self, answers: bool) -> None:
        """Without answering: the answers are lost, and so is the connection."""
        assert self.reader is not None
        for packet in self.reader.read():
            if isinstance(packet, Disconnect):
                break
            reply = self._take(packet)
            if answers and reply is not None:
                self.reader.send(reply)
        if not answers or not self.reader.open:
            self.reader.drop()
            self.reader = None

    def _take(self, packet: codec.AnyPacket) -> Ack | None:
        if isinstance(packet, Ack) and packet.kind == Packet.PUBREL:
            self.known.discard(packet.packet_id)
            return Ack(Packet.PUBCOMP, packet.packet_id)
        assert isinstance(packet, PublishPacket), packet
        if packet.qos == 2:
            if packet.packet_id not in self.known:
                self.known.add(packet.packet_id)
                self.delivered.append((packet.payload, 2))
            return Ack(Packet.PUBREC, packet.packet_id)
        self.delivered.append((packet.payload, 1))
        return Ack(Packet.PUBACK, packet.packet_id)

    # The world.

    @rule()
    def disk_finishes(self) -> None:
        if self.box.disk:
            self.box.commit()

    @rule()
    def sinks_finish(self) -> None:
        if self.box.kept:
            self.box.keep()

    @precondition(lambda self: self.box.disk)
    @rule()
    def disk_fails_once(self) -> None:
        self.box.commit(OSError("disk full"))
        self._time_passes()

    @rule(full=st.booleans())
    def disk_gets_full_or_has_room(self, full: bool) -> None:
        self.box.full = full
        self._time_passes()

    def _time_passes(self) -> None:
        """Enough for another try of the store."""
        self.box.now_us += 2 * SECOND
        self.box.broker.tick()
        self.box.turn()

    @rule()
    def publisher_is_cut(self) -> None:
        if self.writer is not None:
            self.writer.drop()
            self.writer = None

    @rule(boots=st.integers(0, 1))
    def node_crashes(self, boots: int) -> None:
        self.boot += boots
        at, full = self.box.now_us, self.box.full
        self._boot()
        self.box.now_us, self.box.full = max(self.box.now_us, at), full

    @invariant()
    def qos_2_comes_once(self) -> None:
        if not hasattr(self, "delivered"):
            return
        twice = [payload for payload, qos in self.delivered if qos == 2]
        assert len(twice) == len(set(twice))

    @invariant()
    def first_deliveries_of_one_qos_are_in_order(self) -> None:
        """MQTT-4.6.0-6: of one topic and QoS; a repeat may come late."""
        if not hasattr(self, "delivered"):
            return
        for qos in (1, 2):
            for topic in ("t/x", "t/alarm"):
                seen = dict.fromkeys(one for one, of in self.delivered if of == qos and self.topics[one] == topic)
                order = [at for payload in seen if (at := self._number(payload)) is not None]
                if qos == 1:
                    assert order == sorted(order)

    def _number(self, payload: bytes) -> int:
        return int(payload.split(b"\x00")[0])

    def teardown(self) -> None:
        if not hasattr(self, "box"):
            return
        self.box.full = False
        for turn in range(200):
            self._time_passes()
            if turn % 20 == 19:
                self.publisher_is_cut()
            if self.writer is None:
                self.publisher_connects()
            if self.reader is None:
                self.subscriber_connects()
            self.box.settle()
            self.publisher_reads()
            self.subscriber_reads(True)
            self.box.settle()
            if not self.unacked and not self.box.broker.stats()["queued"] + self.box.broker.stats()["inflight"]:
                break
        got = {payload for payload, _ in self.delivered}
        assert got - self.refused == {payload for payload, _ in self.published}
        self.qos_2_comes_once()
        for table in ("outgoing", "incoming"):
            assert self.store.run(f"SELECT count(*) FROM mqtt_{table}") == [(0,)]


Exchange.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestExchange = Exchange.TestCase


def test_expiry_goes_on_while_the_node_is_down() -> None:
    """Times of another boot are read through the wall clock: here all boots share one line of time."""
    store = Disk()
    box = DiskBox(store)
    found: Properties = {Prop.SESSION_EXPIRY: 600}
    client = box.wire()
    client.version = V5
    client.send(Connect("c", clean=False, user="lamp", version=V5, properties=found))
    box.settle()
    client.send(codec.Subscribe(1, [codec.Wish("a", 1)]))
    box.settle()
    client.send(Disconnect())
    box.settle()
    sender = box.client("p", version=V5)
    for seconds in (100, 10_000):
        sender.publish("a", b"%d" % seconds, 1, retain=True, properties={Prop.MESSAGE_EXPIRY: seconds})
        box.settle()
    later = DiskBox(store, boot=1)
    later.now_us = box.now_us + 200 * SECOND
    later = DiskBox(store, boot=1)
    assert later.broker.stats()["queued"] == 2
    later.now_us = box.now_us + 200 * SECOND
    later.broker.tick()
    later.settle()
    client = later.wire()
    client.version = V5
    client.send(Connect("c", clean=False, user="lamp", version=V5, properties=found))
    later.settle()
    connack, packet = client.read()
    assert isinstance(connack, codec.Connack)
    assert connack.session_present
    assert isinstance(packet, PublishPacket)
    assert (packet.payload, packet.properties[Prop.MESSAGE_EXPIRY]) == (b"10000", 9800)
    client.send(Disconnect())
    later.settle()
    third = DiskBox(store, boot=2)
    third.now_us = later.now_us + 600 * SECOND
    third.broker.tick()
    third.settle()
    assert not third.broker.sessions
    assert store.run("SELECT count(*) FROM mqtt_session") == [(0,)]
    assert store.run("SELECT count(*) FROM mqtt_retained") == [(1,)]


def test_a_will_waits_for_clients_that_our_own_restart_cut_off() -> None:
    store = Disk()
    box = DiskBox(store)
    for name in ("back", "gone"):
        client = box.wire()
        client.send(Connect(name, clean=False, user="lamp", will=codec.Will(f"w/{name}", b"\x00\xff", 1, True)))
        box.settle()
    box = DiskBox(store, boot=2)
    box.now_us += WILL_GRACE_US // 2
    client = box.wire()
    client.send(Connect("back", clean=False, user="lamp"))
    box.settle()
    assert box.heard == []
    box.now_us += WILL_GRACE_US
    box.broker.tick()
    box.settle()
    assert [(one.topic, one.payload, one.retain) for one in box.heard] == [("w/gone", b"\x00\xff", True)]


def test_a_subscription_comes_back_with_all_its_options() -> None:
    store = Disk()
    box = DiskBox(store)
    client = box.wire()
    client.version = V5
    client.send(Connect("c", clean=False, user="lamp", version=V5, properties=WEEK))
    box.settle()
    client.read()
    wishes = [codec.Wish("a/+", 1, True, True, 2), codec.Wish("$share/g/b", 2)]
    client.send(codec.Subscribe(1, wishes, {Prop.SUBSCRIPTION_IDENTIFIER: 70_000}))
    box.settle()
    before = {wanted: sub for wanted, sub in client.connection.session.subscriptions.items()}  # type: ignore[union-attr]
    after = DiskBox(store).broker.sessions["lamp", "c"].subscriptions
    assert before.keys() == after.keys()
    for wanted, sub in before.items():
        assert sub.same(after[wanted])


def test_numbers_go_on_after_a_restart() -> None:
    store = Disk()
    box = DiskBox(store)
    client = box.wire()
    client.send(Connect("c", clean=False, user="lamp"))
    box.settle()
    client.send(codec.Subscribe(1, [codec.Wish("a", 1)]))
    box.settle()
    box.host("a", b"1", 1)
    box.settle()
    again = DiskBox(store)
    assert again.broker.numbers == box.broker.numbers
    assert again.broker.session_numbers == box.broker.session_numbers


def test_messages_come_back_in_their_traffic_class() -> None:
    """What goes first when a queue is full must not change with a restart."""
    store = Disk()
    box = DiskBox(store)
    client = box.client("c", clean=False)
    box.settle()
    client.send(codec.Subscribe(1, [codec.Wish("#", 1)]))
    box.settle()
    client.drop()
    box.settle()
    for topic in ("t/alarm", "t/x"):
        box.host(topic, b"1", 1, retain=True)
        box.settle()
    again = DiskBox(store, queue_messages=1)
    [alarm, telemetry] = again.broker.sessions["lamp", "c"].queue or ()
    assert [alarm.message.rank, telemetry.message.rank] == [ALARM, 0]
    kept = again.broker.retained.get("t/alarm", 0)
    assert kept is not None
    assert kept.rank == ALARM
    again.host("t/x", b"2", 1)
    again.settle()
    assert [out.message.publish.topic for out in again.broker.sessions["lamp", "c"].queue or ()] == ["t/alarm"]


def test_a_session_on_disk_and_all_that_was_acked_for_it_survive_a_connection_on_a_full_disk() -> None:
    store = Disk()
    box = DiskBox(store)
    client = box.client("c", clean=False)
    box.settle()
    client.send(codec.Subscribe(1, [codec.Wish("#", 1)]))
    box.settle()
    client.drop()
    box.settle()
    for payload in (b"1", b"2"):
        box.host("t/x", payload, 1)
        box.settle()
    box.full = True
    for _ in range(2):
        client = box.wire()
        client.send(Connect("c", clean=False, user="lamp"))
        box.settle()
        connack, *messages = client.read()
        assert connack == codec.Connack(True)
        assert [one.payload for one in messages if isinstance(one, PublishPacket)] == [b"1", b"2"]
        client.drop()
        box.settle()
    again = DiskBox(store)
    assert again.broker.stats()["queued"] + again.broker.stats()["inflight"] == 2


def test_of_two_messages_under_one_packet_id_the_earlier_one_was_acked() -> None:
    """A full disk took the second, an alarm, and not that the first is the client's."""
    store = Disk()
    box = DiskBox(store, inflight=1)
    client = box.client("c", clean=False)
    box.settle()
    client.send(codec.Subscribe(1, [codec.Wish("#", 1)]))
    box.settle()
    box.host("t/x", b"1", 1)
    box.settle()
    box.full = True
    client.connection.receive(codec.encode(Ack(Packet.PUBACK, 1), V311))
    box.broker.sessions["lamp", "c"].next_id = 1
    box.client("p", clean=True).publish("t/alarm", b"2", 1)
    box.settle()
    assert store.run("SELECT packet_id, state > 0 FROM mqtt_outgoing ORDER BY number") == [(1, 1), (1, 1)]
    again = DiskBox(store)
    assert [out.message.publish.payload for out in again.broker.sessions["lamp", "c"].inflight.values()] == [b"2"]
    again.settle()
    assert store.run("SELECT payload FROM mqtt_outgoing") == [(b"2",)]
