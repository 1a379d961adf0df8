"""The engine on real sockets: field clients, limits of sockets, order of stopping, what a restart finds."""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial
from pathlib import Path

import pytest

from edge.contract.bus import Admission, Publish
from edge.contract.limit import Limits
from edge.contract.principal import NODE, Kind, Principal
from edge.contract.store import Unit
from edge.protocol.mqtt import codec
from edge.protocol.mqtt.codec import V5, V311, Ack, Disconnect, PublishPacket, Will
from edge.protocol.mqtt.properties import Prop, Properties
from edge.protocol.mqtt.reasons import Packet, Reason
from edge.store import ledger
from edge.store.mqtt import PAGE_ROWS
from edge.system.clock import SystemClock
from tests.support.store import database
from tests.transports.mqtt.conftest import Rig, rig, run
from tests.transports.mqtt.raw import dial, dial_raw

BOTH = pytest.mark.parametrize("version", [V311, V5])
WORDS = {V311: "mqttv311", V5: "mqttv5"}


def mosquitto(tool: str, made: Rig, version: int, *more: str) -> tuple[str, ...]:
    return (f"mosquitto_{tool}", "-p", str(made.port), "-u", "lamp", "-P", "secret", "-V", WORDS[version], *more)


@BOTH
async def test_mosquittos_clients_pass_messages_of_every_qos(engine: Rig, version: int) -> None:
    listening = asyncio.ensure_future(
        run(*mosquitto("sub", engine, version, "-t", "a/#", "-q", "2", "-C", "3", "-F", "%t %p %q"))
    )
    await engine.until(lambda: engine.engine.stats()["subscriptions"])
    for qos in "012":
        assert await run(*mosquitto("pub", engine, version, "-t", f"a/{qos}", "-m", "x", "-q", qos)) == (0, "")
    assert await listening == (0, "a/0 x 0\na/1 x 1\na/2 x 2\n")
    assert [one.topic for one in engine.heard] == ["a/0", "a/1", "a/2"]


@BOTH
async def test_mosquittos_client_gets_a_retained_message(engine: Rig, version: int) -> None:
    assert (await run(*mosquitto("pub", engine, version, "-t", "a", "-m", "kept", "-q", "1", "-r")))[0] == 0
    got = await run(*mosquitto("sub", engine, version, "-t", "a", "-C", "1", "-F", "%r %p"))
    assert got == (0, "1 kept\n")


async def test_the_host_can_look_at_what_is_retained(engine: Rig) -> None:
    """One by one, as it is asked for: what is gone meanwhile is left out; `$SYS` only by its name."""
    for topic in ("a/1", "a/2", "b"):
        assert (await run(*mosquitto("pub", engine, V5, "-t", topic, "-m", topic, "-q", "1", "-r")))[0] == 0
    looking = engine.engine.kept("a/+")
    first = next(looking)
    assert (first.topic, first.payload, first.retain, first.live) == ("a/1", b"a/1", True, False)
    assert (await run(*mosquitto("pub", engine, V5, "-t", "a/2", "-n", "-q", "1", "-r")))[0] == 0
    assert list(looking) == []
    assert sorted(one.topic for one in engine.engine.kept("#")) == ["a/1", "b"]
    assert "$SYS/broker/version" in [one.topic for one in engine.engine.kept("$SYS/#")]


async def test_mosquitto_rr_gets_its_response(engine: Rig) -> None:
    """Request and response of version 5."""
    peer = await dial(engine.port, version=V5)
    await peer.subscribe("ask")
    asking = asyncio.ensure_future(run(*mosquitto("rr", engine, V5, "-t", "ask", "-e", "answer/1", "-m", "what?")))
    packet = await peer.take(PublishPacket)
    assert packet.payload == b"what?"
    peer.send(PublishPacket(packet.properties[Prop.RESPONSE_TOPIC], b"that"))
    assert await asking == (0, "that\n")
    await peer.close()


@BOTH
async def test_mosquittos_client_is_told_of_a_wrong_password(engine: Rig, version: int) -> None:
    command = ("mosquitto_pub", "-p", str(engine.port), "-u", "lamp", "-P", "wrong", "-V", WORDS[version])
    status, text = await run(*command, "-t", "a", "-m", "x")
    assert status != 0
    assert "refused" in text.lower() or "bad user" in text.lower()


async def test_puback_leaves_after_the_commit(engine: Rig) -> None:
    engine.keeps = lambda publish: True
    peer = await dial(engine.port)
    peer.send(*[PublishPacket("a", b"x", 1, packet_id=at) for at in range(1, 201)])
    assert [(await peer.take(Ack)).packet_id for _ in range(200)] == list(range(1, 201))
    await peer.close()


async def test_the_host_publishes_to_a_client(engine: Rig) -> None:
    peer = await dial(engine.port)
    await peer.subscribe("cmd", 1)
    engine.engine.publish(Publish("cmd", b"on", 1, False, NODE, engine.clock.now()))
    assert (await peer.take(PublishPacket)).payload == b"on"
    await peer.close()


async def test_a_lost_socket_publishes_the_will(engine: Rig) -> None:
    peer = await dial(engine.port, will=Will("gone", b"1"))
    peer.writer.transport.abort()
    await engine.until(lambda: engine.heard)
    assert engine.heard[0].topic == "gone"


async def test_the_keep_alive_is_watched_by_the_clock(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        peer = await dial(made.port, keep_alive=1)
        assert await peer.next() is None
        assert made.engine.stats()["closed.keep_alive"] == 1
        await peer.close()


@pytest.mark.limit("mqtt.connections")
async def test_more_connections_than_the_limit_are_closed_at_accept(tmp_path: Path) -> None:
    async with rig(tmp_path, connections=2) as made:
        peers = [await dial(made.port, f"c{at}") for at in range(2)]
        third = await dial_raw(made.port)
        assert await third.next() is None
        assert made.limits.hits["mqtt.connections"] == 1
        await peers[0].close()
        await made.until(lambda: made.engine.stats()["sockets"] == 1)
        for peer in (third, peers[1], await dial(made.port, "again")):
            await peer.close()


@pytest.mark.limit("mqtt.per_address")
async def test_one_address_has_a_limit_and_loopback_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path, per_address=2) as made:
        peers = [await dial(made.port, f"c{at}") for at in range(3)]
        monkeypatch.setattr("edge.transports.mqtt.builtin.is_loopback", lambda address: False)
        refused = await dial_raw(made.port)
        assert await refused.next() is None
        assert made.limits.hits["mqtt.per_address"] == 1
        for peer in peers[:2]:
            await peer.close()
        await made.until(lambda: made.engine.stats()["sockets"] == 1)
        again = await dial(made.port, "again")
        for peer in (peers[2], refused, again):
            await peer.close()


async def test_broken_connections_leave_no_descriptors(engine: Rig) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for at in range(60):
        peer = await dial_raw(engine.port)
        peer.writer.write(b"\x10\x20\x00\x04MQ"[: at % 7])
        await peer.writer.drain()
        await peer.close()
    await engine.until(lambda: engine.engine.stats()["sockets"] == 0)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.mark.limit("mqtt.read_octets")
async def test_a_flood_does_not_stop_a_quiet_pair(tmp_path: Path) -> None:
    """By count: between two turns of the pair no more than one read of the flood is taken.

    A read may be as large as the loop's buffer (256 KiB), once, before the budget stops it.
    """
    async with rig(tmp_path, read_octets=4096) as made:
        quiet = await dial(made.port, "quiet")
        await quiet.subscribe("q")
        flood = await dial(made.port, "flood")
        frame = codec.encode(PublishPacket("f", b"x" * 1000), V311)
        flood.writer.write(frame * 4000)
        taken = []
        for at in range(8):
            quiet.send(PublishPacket("q", b"%d" % at))
            assert (await quiet.take(PublishPacket)).payload == b"%d" % at
            taken.append(sum(one.topic == "f" for one in made.heard))
        await made.until(lambda: sum(one.topic == "f" for one in made.heard) == 4000)
        steps = [after - before for before, after in zip([0, *taken], taken, strict=False)]
        assert max(steps) * len(frame) <= 4 * 262_144
        for peer in (quiet, flood):
            await peer.close()


async def test_a_slow_reader_costs_others_nothing_and_little_memory(tmp_path: Path) -> None:
    async with rig(tmp_path, write_octets=65_536) as made:
        slow = await dial(made.port, "slow")
        slow.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await slow.subscribe("a")
        slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
        good = await dial(made.port, "good")
        await good.subscribe("a")
        publisher = await dial(made.port, "p")
        for _ in range(300):
            publisher.send(*[PublishPacket("a", b"x" * 1000)] * 50)
            for _ in range(50):
                await good.take(PublishPacket)
        assert made.engine.stats()["dropped.no_room"] > 0
        for peer in (slow, good, publisher):
            peer.writer.transport.abort()


# Stopping.


async def test_stopping_lets_acks_out_before_it_closes(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        made.keeps = lambda publish: True
        peer = await dial(made.port, version=V5)
        peer.send(*[PublishPacket("a", b"x", 1, packet_id=at) for at in range(1, 51)])
        await made.until(lambda: len(made.heard) == 50)
        made.engine.stop_accepting()
        made.engine.stop_reading()
        peer.send(PublishPacket("late", b"x", 1, packet_id=99))
        await made.engine.close()
        got = [await peer.next() for _ in range(51)]
        assert [one.packet_id for one in got[:50] if isinstance(one, Ack)] == list(range(1, 51))
        assert isinstance(got[50], Disconnect)
        assert got[50].reason == Reason.SERVER_SHUTTING_DOWN
        assert await peer.next() is None
        with pytest.raises(ConnectionRefusedError):
            await dial_raw(made.port)
        await peer.close()


async def test_ping_answers_after_a_turn(engine: Rig) -> None:
    await engine.engine.ping()


# Restarting.


async def test_retained_messages_survive_a_restart(tmp_path: Path) -> None:
    payload = bytes(range(256))
    async with rig(tmp_path) as made:
        peer = await dial(made.port, version=V5)
        found: Properties = {Prop.CONTENT_TYPE: "x/y", Prop.USER_PROPERTY: [("a", "b")]}
        peer.send(PublishPacket("a/b", payload, 1, True, packet_id=1, properties=found))
        peer.send(PublishPacket("a/gone", b"x", 1, True, packet_id=2))
        peer.send(PublishPacket("a/gone", b"", 1, True, packet_id=3))
        for _ in range(3):
            await peer.take(Ack)
        await peer.close()
    async with rig(tmp_path) as made:
        assert made.heard == []
        peer = await dial(made.port, version=V5)
        await peer.subscribe("#", 1)
        packet = await peer.take(PublishPacket)
        assert (packet.topic, packet.payload, packet.retain, packet.properties) == ("a/b", payload, True, found)
        assert made.engine.stats()["retained"] == 1
        await peer.close()


async def test_a_start_reads_many_rows_page_by_page_and_loses_only_what_cannot_be_read(tmp_path: Path) -> None:
    """However many there are, and whichever a flipped bit has spoilt: promises P2 and P3."""
    topics = [f"a/{number}" for number in range(2 * PAGE_ROWS + 7)]
    week: Properties = {Prop.SESSION_EXPIRY: 604_800}
    async with rig(tmp_path) as made:
        for name in ("spoilt", "well"):
            peer = await dial(made.port, name, version=V5, clean=False, properties=week)
            await peer.subscribe("b", 1)
            await peer.close()
        peer = await dial(made.port, "p", version=V5)
        for part in (topics[at : at + 20] for at in range(0, len(topics), 20)):
            peer.send(*(PublishPacket(topic, b"x", 1, True, packet_id=at) for at, topic in enumerate(part, 1)))
            for _ in part:
                await peer.take(Ack)
        peer.send(PublishPacket("b", b"waiting", 1, packet_id=1))
        await peer.take(Ack)
        await peer.close()
    async with database(tmp_path, "hot", SystemClock(1)) as hot:
        for sql in (
            "UPDATE mqtt_retained SET who = '{' WHERE topic = 'a/700'",
            "UPDATE mqtt_session SET who = '{' WHERE client_id = 'spoilt'",
        ):
            await hot.commit(partial(_run, sql=sql))
    for _ in range(2):
        async with rig(tmp_path) as made:
            assert made.engine.stats()["retained"] == len(topics) - 1
            gaps = await made.hot.read(ledger.recent)
            assert sorted((gap.key, gap.reason) for gap in gaps) == [
                ("mqtt_retained", "unreadable"),
                ("mqtt_session", "unreadable"),
            ]
            assert not await made.hot.read(partial(_run, sql="SELECT 1 FROM mqtt_subscription WHERE session = 1"))
            spoilt = await dial(made.port, "spoilt", version=V5, clean=False)
            assert not spoilt.connack.session_present
            await spoilt.close()
            peer = await dial(made.port, "well", version=V5, clean=False, properties=week)
            assert peer.connack.session_present
            assert (await peer.take(PublishPacket)).payload == b"waiting"
            await peer.close()


async def test_a_full_disk_does_not_keep_the_engine_down_because_of_a_row_that_cannot_be_read(tmp_path: Path) -> None:
    async with database(tmp_path, "hot", SystemClock(1)) as hot:
        made = Rig(tmp_path, hot, Limits())
        await hot.commit(partial(_run, sql="INSERT INTO mqtt_retained VALUES ('a', x'01', 1, '{', x'', 1, 1, NULL)"))
        hot.control(lambda writer: writer.conn.execute("PRAGMA query_only = ON").fetchall(), lambda done: None)
        await made.start()
        assert made.engine.stats()["retained"] == 0
        assert hot.read_only
        await made.engine.close()


def _run(unit: Unit, sql: str) -> list[tuple[object, ...]]:
    return unit.run(sql)


@BOTH
async def test_a_durable_session_survives_a_restart(tmp_path: Path, version: int) -> None:
    week = {Prop.SESSION_EXPIRY: 604_800} if version == V5 else {}
    async with rig(tmp_path) as made:
        peer = await dial(made.port, version=version, clean=False, properties=week)
        await peer.subscribe("a/+", 2)
        other = await dial(made.port, "p")
        other.send(PublishPacket("a/b", b"\x00in flight", 1, packet_id=1))
        first = await peer.take(PublishPacket)
        await peer.close()
        other.send(PublishPacket("a/b", b"\xffwaiting", 1, packet_id=2), PublishPacket("a/b", b"two", 2, packet_id=3))
        assert [(await other.take(Ack)).packet_id for _ in range(3)] == [1, 2, 3]
        other.send(Ack(Packet.PUBREL, 3))
        await other.take(Ack)
        await other.close()
    for again in (False, True):
        async with rig(tmp_path) as made:
            peer = await dial(made.port, version=version, clean=False, properties=week)
            assert peer.connack.session_present
            got = [await peer.take(PublishPacket) for _ in range(3)]
            assert [(one.payload, one.qos) for one in got] == [(b"\x00in flight", 1), (b"\xffwaiting", 1), (b"two", 2)]
            assert (got[0].packet_id, got[0].dup) == (first.packet_id, True)
            assert [one.dup for one in got[1:]] == [again, again]
            await peer.close()
    async with rig(tmp_path) as made:
        peer = await dial(made.port, version=version, clean=False, properties=week)
        got = [await peer.take(PublishPacket) for _ in range(3)]
        peer.send(*[Ack(Packet.PUBACK, one.packet_id) for one in got[:2]], Ack(Packet.PUBREC, got[2].packet_id))
        assert (await peer.take(Ack)).kind == Packet.PUBREL
        await peer.close()
    async with rig(tmp_path) as made:
        peer = await dial(made.port, version=version, clean=False, properties=week)
        assert await peer.take(Ack) == Ack(Packet.PUBREL, got[2].packet_id)
        peer.send(Ack(Packet.PUBCOMP, got[2].packet_id), codec.Ping())
        await peer.take(codec.Ping)
        await peer.close()
    async with rig(tmp_path) as made:
        peer = await dial(made.port, version=version, clean=False, properties=week)
        peer.send(codec.Ping())
        await peer.take(codec.Ping)
        await peer.close()


async def test_a_qos_2_message_taken_before_a_restart_is_released_after_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        peer = await dial(made.port, clean=False)
        peer.send(PublishPacket("a", b"once", 2, packet_id=5))
        assert (await peer.take(Ack)).kind == Packet.PUBREC
        await peer.close()
    async with rig(tmp_path) as made:
        reader = await dial(made.port, "r")
        await reader.subscribe("a", 1)
        peer = await dial(made.port, clean=False)
        peer.send(PublishPacket("a", b"once", 2, dup=True, packet_id=5), Ack(Packet.PUBREL, 5))
        assert [(await peer.take(Ack)).kind for _ in range(2)] == [Packet.PUBREC, Packet.PUBCOMP]
        assert (await reader.take(PublishPacket)).payload == b"once"
        assert [one.payload for one in made.heard] == [b"once"]
        for each in (peer, reader):
            await each.close()


async def test_a_clean_session_leaves_no_rows(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        peer = await dial(made.port, clean=False)
        await peer.subscribe("a", 1)
        peer.send(PublishPacket("a", b"x", 1, packet_id=1))
        await peer.take(PublishPacket)
        await peer.close()
        await made.until(lambda: made.engine.stats()["connections"] == 0)
        peer = await dial(made.port, clean=True)
        await peer.close()
    async with rig(tmp_path) as made:
        for table in ("session", "subscription", "outgoing", "incoming"):
            sql = f"SELECT count(*) FROM mqtt_{table}"
            assert await made.hot.read(lambda unit, sql=sql: unit.run(sql)) == [(0,)]  # type: ignore[misc]


async def test_the_will_of_a_durable_session_survives_a_restart(tmp_path: Path) -> None:
    """It goes out when the client does not come back in time."""
    async with rig(tmp_path) as made:
        peer = await dial(made.port, clean=False, will=Will("gone", b"\x00\xff", 1))
        hot = made.hot
        rows = await hot.read(lambda unit: unit.run("SELECT count(*) FROM mqtt_session WHERE will IS NOT NULL"))
        assert rows == [(1,)]
        peer.writer.transport.abort()
        await made.until(lambda: made.heard)
        assert made.heard[0].payload == b"\x00\xff"


async def test_losses_are_in_the_ledger_when_the_ack_is_out(tmp_path: Path) -> None:
    async with rig(tmp_path, queue_messages=2) as made:
        who = Principal(Kind.DEVICE, "d-lamp.test", via="mqtt")
        made.gate.admissions["lamp"] = Admission(who, "lamp", ("a",), ("#",))
        sleeper = await dial(made.port, "s", clean=False)
        await sleeper.subscribe("a", 1)
        sleeper.send(Disconnect())
        assert await sleeper.next() is None
        peer = await dial(made.port)
        for at in range(1, 6):
            peer.send(PublishPacket("a", b"x", 1, packet_id=at))
            await peer.take(Ack)
        peer.send(PublishPacket("forbidden", b"x", 1, packet_id=9))
        await peer.take(Ack)
        lost = {(drop.log, drop.reason): drop.count for drop in await made.hot.read(ledger.drops)}
        assert lost == {("mqtt", "queue_full"): 3, ("mqtt", "refused_not_authorized"): 1}
        rows = await made.hot.read(ledger.recent)
        assert {(row.key, row.who) for row in rows} == {("telemetry", "lamp")}
        for each in (sleeper, peer):
            await each.close()


@pytest.mark.limit("mqtt.linger_s")
async def test_a_client_that_does_not_hang_up_is_cut(tmp_path: Path) -> None:
    async with rig(tmp_path, linger_s=1) as made:
        peer = await dial(made.port)
        peer.writer.write(b"\x36\x00")
        await made.until(lambda: not made.engine.stats()["connections"])
        assert made.engine.stats()["sockets"] == 1
        assert not made.limits.hits
        await made.until(lambda: not made.engine.stats()["sockets"])
        assert made.limits.hits["mqtt.linger_s"] == 1
        await peer.close()


async def test_a_flood_after_the_goodbye_is_cut(engine: Rig) -> None:
    peer = await dial(engine.port)
    peer.writer.write(b"\x36\x00" + b"x" * 4_000_000)
    await engine.until(lambda: not engine.engine.stats()["sockets"])
    assert not engine.limits.hits
    await peer.close()


async def test_version_5_reads_the_reason_although_it_had_more_to_say(engine: Rig) -> None:
    peer = await dial(engine.port, version=V5)
    peer.writer.write(b"\x36\x00" + b"x" * 200_000)
    assert (await peer.take(Disconnect)).reason == Reason.MALFORMED_PACKET
    assert await peer.next() is None
    await peer.close()
