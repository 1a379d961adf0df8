"""The node's bus over a real Mosquitto: heard with the right publisher, sent from disk, back after every cut."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from edge.contract.bus import Done, Publish
from edge.contract.errors import StorageFull
from edge.contract.principal import Kind
from edge.transports.mqtt.foreign import cover
from tests.support.foreign import USERS, device, foreign
from tests.support.mosquitto import Mosquitto, free_port
from tests.transports.mqtt.picky import picky

pytestmark = pytest.mark.needs("mosquitto", "mosquitto_sub")


def mosquitto_sub(broker: Mosquitto, *more: str) -> list[str]:
    """Debian's client, under the id `doomed`."""
    who = ["-h", "127.0.0.1", "-p", str(broker.port), "-u", "device", "-P", USERS["device"], "-i", "doomed"]
    return ["mosquitto_sub", *who, *more]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "mosquitto", users=USERS) as made:
        yield made


async def test_what_devices_publish_is_heard_with_the_principal_of_its_prefix(
    tmp_path: Path, broker: Mosquitto
) -> None:
    table = {"#": "rest", "pump": "pump", "zigbee2mqtt/": "zigbee"}
    async with foreign(tmp_path, broker.port, principals=table) as made, device(broker) as client:
        await made.connected()
        for topic in ("pump/state", "zigbee2mqtt/lamp", "t/other", "homeassistant/sensor/pump/x/config"):
            await client.publish(topic, b"1", qos=1)
        await made.until(lambda: len(made.heard) == 4)
    assert {one.topic: one.who.device_id for one in made.heard} == {
        "pump/state": "pump",
        "zigbee2mqtt/lamp": "zigbee",
        "t/other": "rest",
        "homeassistant/sensor/pump/x/config": "pump",
    }
    assert {(one.who.kind, one.who.via, one.live, one.qos) for one in made.heard} == {(Kind.DEVICE, "mqtt", True, 1)}
    assert made.heard[0].who.aid == "d-pump.test"


async def test_what_belongs_to_nobody_is_not_heard(tmp_path: Path, broker: Mosquitto) -> None:
    async with foreign(tmp_path, broker.port, principals={"pump": "pump"}) as made, device(broker) as client:
        await made.connected()
        await client.publish("t/other", b"1", qos=1)
        await client.publish("pump/x", b"2", qos=1)
        await made.until(lambda: made.heard)
        assert made.foreign() == [("pump/x", b"2")]


async def test_retained_messages_are_old_news_and_wills_are_heard(tmp_path: Path, broker: Mosquitto) -> None:
    async with device(broker) as client:
        await client.publish("t/kept", b"old", qos=1, retain=True)
    async with foreign(tmp_path, broker.port) as made:
        await made.until(lambda: made.heard)
        assert (made.heard[0].payload, made.heard[0].retain, made.heard[0].live) == (b"old", True, False)
        doomed = subprocess.Popen(
            mosquitto_sub(broker, "--will-topic", "t/gone", "--will-payload", "bye", "-t", "t/up")
        )
        while "doomed" not in broker.log:
            await asyncio.sleep(0.01)
        doomed.kill()
        doomed.wait()
        await made.until(lambda: ("t/gone", b"bye") in made.foreign())


@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_the_nodes_own_messages_go_out_and_are_heard_once(
    tmp_path: Path, broker: Mosquitto, version: str
) -> None:
    async with foreign(tmp_path, broker.port, where={"version": version}) as made, device(broker) as client:
        await made.connected()
        await client.subscribe("t/#", qos=2)
        for number in range(30):
            made.publish("t/command", b"%d" % number, number % 3)
        came = [(await anext(client.messages)).payload for _ in range(30)]
        assert sorted(came, key=int) == [b"%d" % number for number in range(30)]
        kept = [one for one in came if int(one) % 3]
        assert kept == sorted(kept, key=int)
        await client.publish("t/last", b"", qos=1)
        await made.until(lambda: any(one.topic == "t/last" for one in made.heard))
        assert [one.topic for one in made.heard] == ["t/command"] * 30 + ["t/last"]
        await made.until(lambda: made.engine.stats()["queued"] == 0)


async def test_topics_that_capabilities_begin_to_read_are_subscribed_to(tmp_path: Path, broker: Mosquitto) -> None:
    async with foreign(tmp_path, broker.port) as made, device(broker) as client:
        await made.connected()
        made.reads |= {"house/t", "t/inside"}
        made.engine.topics_changed()
        await made.until(lambda: "house/t" in made.engine.broker.hearing)
        assert "t/inside" not in made.engine.broker.hearing
        await client.publish("house/t", b"21", qos=1)
        await made.until(lambda: ("house/t", b"21") in made.foreign())


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Mosquitto]:
    """A Mosquitto where the node may use `t/#` and nothing else."""
    folder = tmp_path / "mosquitto"
    folder.mkdir()
    (folder / "acl").write_text("user node\ntopic readwrite t/#\nuser device\ntopic readwrite #\n")
    with Mosquitto(folder, users=USERS, lines=(f"acl_file {folder}/acl",)) as made:
        yield made


async def test_a_filter_that_the_broker_refuses_is_shown_and_the_rest_is_heard(tmp_path: Path) -> None:
    """Mosquitto grants every filter, whatever its ACL says; others do not."""
    async with picky(closed=("secret/#",), greeting="t/x") as broker:
        async with foreign(tmp_path, broker.port, plan=("t/#", "secret/#")) as made:
            await made.until(lambda: made.heard)
            assert made.foreign() == [("t/x", b"hello")]
            assert made.engine.broker.hearing == {"t/#"}
            facts = made.engine.facts()
    assert (facts["state"], facts["not_heard"]) == ("connected", ["secret/#"])


async def test_what_the_broker_does_not_let_us_publish_is_declared_lost(tmp_path: Path, strict: Mosquitto) -> None:
    """Mosquitto answers with PUBACK 0x87, which aiomqtt does not hand on: it was taken for sent."""
    async with foreign(tmp_path, strict.port) as made, device(strict) as client:
        await made.connected()
        await client.subscribe("#", qos=1)
        made.publish("forbidden/x", b"1")
        made.publish("t/x", b"2")
        assert (await anext(client.messages)).payload == b"2"
        await made.until(lambda: made.engine.stats()["queued"] == 0)
        assert await made.drops() == {"broker_not_authorized": 1}
        stats = made.engine.stats()
        assert (stats["sent"], stats["refused"], stats["connected_times"]) == (1, 1, 1)


async def test_what_is_larger_than_the_broker_takes_is_declared_lost_and_keeps_nothing_up(tmp_path: Path) -> None:
    """Mosquitto announces the size in its CONNACK and hangs up on more: it was sent on every connection anew."""
    most = 200
    exact = most - len(b"\x32\0\0" + b"\0\x03t/x" + b"\0\x01" + b"\0")
    with Mosquitto(tmp_path / "mosquitto", users=USERS, lines=(f"max_packet_size {most}",)) as broker:
        async with foreign(tmp_path, broker.port) as made, device(broker) as client:
            await made.connected()
            await client.subscribe("t/#", qos=1)
            made.publish("t/x", b"+" * most)
            made.publish("t/x", b"+" * (exact + 1))
            made.publish("t/x", b"+" * (exact + 3), 0)
            made.publish("t/x", b"=" * exact)
            assert (await anext(client.messages)).payload == b"=" * exact
            await made.until(lambda: made.engine.stats()["queued"] == 0)
            await made.until(lambda: made.engine.stats().get("dropped.broker_packet_too_large") == 3)
            assert await made.drops() == {"broker_packet_too_large": 3}
            assert made.engine.stats()["connected_times"] == 1


async def test_a_broker_of_3_1_1_cannot_say_that_it_refuses(tmp_path: Path, strict: Mosquitto) -> None:
    """PUBACK has no reason code there; docs/engines.md says so."""
    async with foreign(tmp_path, strict.port, where={"version": "3.1.1"}) as made:
        await made.connected()
        made.publish("forbidden/x", b"1")
        await made.until(lambda: made.engine.stats()["queued"] == 0)
        assert (await made.drops(), made.engine.stats()["sent"]) == ({}, 1)


async def test_after_a_kill_the_engine_comes_back_and_subscribes_again(tmp_path: Path, broker: Mosquitto) -> None:
    async with foreign(tmp_path, broker.port) as made:
        await made.connected()
        broker.kill()
        await made.until(lambda: not made.engine.broker.connected)
        await made.until(lambda: "failed.refused" in made.engine.stats())
        broker.start()
        await made.connected(2)
        async with device(broker) as client:
            await client.publish("t/x", b"after", qos=1)
        await made.until(lambda: made.foreign() == [("t/x", b"after")])
        assert made.engine.stats()["failed.lost"] == 1


async def test_a_cut_that_comes_together_with_an_answer_is_noticed(
    tmp_path: Path, broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `asyncio.wait_for` of Python 3.11 does it: the answer is there, so the cancellation is forgotten."""
    subscribe, swallowed = aiomqtt.Client.subscribe, asyncio.Event()

    async def forgetful(client: aiomqtt.Client, *args: Any, **more: Any) -> Any:
        answer = await subscribe(client, *args, **more)
        if not swallowed.is_set():
            broker.kill()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            swallowed.set()
        return answer

    monkeypatch.setattr(aiomqtt.Client, "subscribe", forgetful)
    async with foreign(tmp_path, broker.port) as made:
        await swallowed.wait()
        broker.start()
        await made.connected()
        assert made.engine.broker.connections == 2


async def test_what_the_node_publishes_while_the_broker_is_away_goes_out_later_in_order(
    tmp_path: Path, broker: Mosquitto
) -> None:
    reader = {"identifier": "reader", "clean_session": False}
    async with device(broker, **reader) as client:
        await client.subscribe("t/#", qos=1)
    async with foreign(tmp_path, broker.port) as made:
        await made.connected()
        broker.kill()
        await made.until(lambda: not made.engine.broker.connected)
        for number in range(50):
            made.publish("t/x", b"%d" % number)
        made.publish("t/now", b"", 0)
        assert made.engine.stats()["queued"] == 50
        broker.start()
        async with device(broker, **reader) as client:
            found = [(await anext(client.messages)).payload for _ in range(50)]
        assert found == [b"%d" % number for number in range(50)]
        await made.until(lambda: made.engine.stats()["queued"] == 0)
        assert await made.drops() == {"not_connected": 1}


async def test_the_spool_outlives_the_process(tmp_path: Path, broker: Mosquitto) -> None:
    broker.kill()
    async with foreign(tmp_path, broker.port) as made:
        made.publish("t/x", b"first")
        made.publish("t/x", b"second", retain=True)
    broker.start()
    async with device(broker) as client:
        await client.subscribe("t/#", qos=1)
        async with foreign(tmp_path, broker.port) as made:
            found = [(await anext(client.messages)).payload for _ in range(2)]
            await made.until(lambda: made.engine.stats()["queued"] == 0)
    assert found == [b"first", b"second"]
    async with foreign(tmp_path, broker.port) as made:
        assert made.engine.stats()["queued"] == 0


async def test_a_frozen_broker_is_noticed_and_left_and_nothing_is_lost(tmp_path: Path, broker: Mosquitto) -> None:
    async with foreign(tmp_path, broker.port, where={"keepalive_s": 1}) as made:
        await made.connected()
        broker.freeze()
        try:
            made.publish("t/x", b"into the ice")
            await made.until(lambda: not made.engine.broker.connected)
            assert made.engine.stats()["queued"] == 1
        finally:
            broker.thaw()
        await made.connected(2)
        await made.until(lambda: made.engine.stats()["queued"] == 0)


async def test_messages_for_us_wait_at_the_broker_while_we_are_away(tmp_path: Path, broker: Mosquitto) -> None:
    async with foreign(tmp_path, broker.port) as made:
        await made.connected()
    async with device(broker) as client:
        for number in range(20):
            await client.publish("t/x", b"%d" % number, qos=1)
    async with foreign(tmp_path, broker.port) as made:
        await made.until(lambda: len(made.heard) >= 20)
    assert made.foreign() == [("t/x", b"%d" % number) for number in range(20)]


async def test_a_wrong_password_is_a_cause_of_its_own(tmp_path: Path, broker: Mosquitto) -> None:
    async with foreign(tmp_path, broker.port, where={"password": lambda: "wrong"}) as made:
        await made.until(lambda: "failed.login" in made.engine.stats())
        assert str(made.engine.facts()["state"]).startswith("login, again in ")


class Proxy:
    """A wire between the engine and the broker: `deaf` swallows what the engine says, `cut` breaks it."""

    def __init__(self, target: int) -> None:
        self.deaf = False
        self._target, self._pipes = target, set[asyncio.StreamWriter]()
        self.port = 0

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.cut()
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far = await asyncio.open_connection("127.0.0.1", self._target)
        self._pipes |= {writer, far}
        await asyncio.gather(self._pump(reader, far, mutable=True), self._pump(far_reader, writer, mutable=False))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, mutable: bool) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if not (mutable and self.deaf):
                    writer.write(data)
        writer.close()

    def cut(self) -> None:
        self.deaf = False
        for writer in self._pipes:
            writer.transport.abort()
        self._pipes.clear()


async def test_what_the_broker_sends_again_after_a_lost_ack_is_recognised(tmp_path: Path, broker: Mosquitto) -> None:
    async with Proxy(broker.port) as proxy, foreign(tmp_path, proxy.port) as made, device(broker) as client:
        await made.connected()
        proxy.deaf = True
        for number in range(10):
            await client.publish("t/press", b"pressed", qos=1)
            await made.until(lambda number=number: len(made.heard) == number + 1)
        proxy.cut()
        await made.connected(2)
        await client.publish("t/press", b"pressed", qos=1)
        await client.publish("t/last", b"", qos=1)
        await made.until(lambda: made.heard[-1].topic == "t/last")
        assert len(made.heard) == 12
        assert made.engine.stats()["repeats"] == 10


async def test_what_the_store_refuses_is_declared_lost(tmp_path: Path, broker: Mosquitto) -> None:
    async with foreign(tmp_path, broker.port) as made, device(broker) as client:
        await made.connected()

        def fail(batch: list[Publish], done: Done) -> list[int]:
            asyncio.get_running_loop().call_soon(done, StorageFull())
            return list(range(len(batch)))

        made.engine.attach(fail)
        await client.publish("t/x", b"1", qos=1)
        await made.until(lambda: made.engine.stats().get("dropped.unstored"))
        assert await made.drops() == {"unstored": 1}
        assert made.engine.stats()["uncommitted"] == 0


async def test_how_much_is_between_the_brokers_ack_and_our_commit_is_shown(tmp_path: Path, broker: Mosquitto) -> None:
    waiting: list[Done] = []

    def slow(batch: list[Publish], done: Done) -> list[int]:
        waiting.append(done)
        return [at for at, one in enumerate(batch) if one.qos]

    async with foreign(tmp_path, broker.port) as made, device(broker) as client:
        await made.connected()
        made.engine.attach(slow)
        for _ in range(3):
            await client.publish("t/x", b"1", qos=1)
        await made.until(lambda: len(made.heard) == 3)
        assert made.engine.stats()["uncommitted"] == 3
        for done in waiting:
            done(None)
        stats = made.engine.stats()
        assert (stats["uncommitted"], stats["uncommitted_most"]) == (0, 3)
        assert stats["uncommitted_longest_us"] > 0


async def test_a_broker_that_speaks_no_version_5_is_spoken_to_in_3_1_1(tmp_path: Path) -> None:
    levels: list[int] = []

    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        packet = await reader.read(1024)
        levels.append(packet[packet.index(b"MQTT") + 4])
        writer.write(b"\x20\x03\0\x84\0" if levels[-1] == 5 else b"\x20\x02\0\0")
        await reader.read(1024)
        writer.close()

    server = await asyncio.start_server(old, "127.0.0.1", 0)
    async with server, foreign(tmp_path, server.sockets[0].getsockname()[1]) as made:
        await made.until(lambda: made.engine.broker.connections)
        assert levels[:2] == [5, 4]
        assert made.engine.facts()["version"] == "3.1.1"


async def test_a_broker_that_is_silent_too_long_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not left with a connection that it might take up later."""
    monkeypatch.setattr("edge.transports.mqtt.foreign.TIMEOUT_S", 0.1)
    heard: list[bytes] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            heard.extend([await reader.read(1024), await reader.read(1024)])

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server, foreign(tmp_path, server.sockets[0].getsockname()[1]) as made:
        await made.until(lambda: "failed.silent" in made.engine.stats())
        await made.until(lambda: heard)
        assert [data[:1] for data in heard[:2]] == [b"\x10", b"\xe0"], "CONNECT, then DISCONNECT"


async def test_nobody_there_nowhere_and_a_password_that_cannot_be_read_have_names(tmp_path: Path) -> None:
    port = free_port()

    def unreadable() -> str:
        return (tmp_path / "missing").read_text()

    async with foreign(tmp_path / "a", port) as made:
        await made.until(lambda: made.engine.stats().get("failed.refused", 0) >= 2)
    async with foreign(tmp_path / "b", port, where={"host": "no-such-host.invalid"}) as made:
        await made.until(lambda: "failed.no_such_host" in made.engine.stats())
    async with foreign(tmp_path / "c", port, where={"password": unreadable}) as made:
        await made.until(lambda: "failed.password_file" in made.engine.stats())


async def test_over_tls_the_brokers_certificate_must_be_of_the_right_authority(tmp_path: Path) -> None:
    """The socket of a handshake that failed is closed: what the collector would find open is an error here."""
    right, wrong = authority(tmp_path / "right"), authority(tmp_path / "wrong")
    folder = tmp_path / "right"
    lines = (f"certfile {folder}/server.pem", f"keyfile {folder}/server.key")
    with Mosquitto(tmp_path / "mosquitto", users=USERS, lines=lines) as broker:
        async with foreign(tmp_path / "a", broker.port, where={"tls": right}) as made:
            await made.connected()
        async with foreign(tmp_path / "b", broker.port, where={"tls": wrong}) as made:
            await made.until(lambda: "failed.tls" in made.engine.stats())
    gc.collect()


async def test_the_engine_has_no_door_of_its_own(tmp_path: Path, broker: Mosquitto) -> None:
    async with foreign(tmp_path, broker.port) as made:
        assert not made.engine.listens
        with socket.socket() as sock, pytest.raises(ValueError, match="does not listen"):
            await made.engine.serve(sock)
        assert made.engine.expel("anybody") == 0
        assert made.engine.hang_up("anybody") == 0
        await made.engine.ping()


def test_a_cover_has_no_filter_inside_another() -> None:
    assert cover(["a/b", "a/#", "a/+", "b", "+/c", "b"]) == ["+/c", "a/#", "b"]
    assert cover(["#", "a", "$SYS/x"]) == ["#", "$SYS/x"]


def authority(folder: Path) -> ssl.SSLContext:
    """A certificate for 127.0.0.1 in a folder; the context that trusts it."""
    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "server.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.key").write_bytes(private)
    return ssl.create_default_context(cafile=str(folder / "server.pem"))
