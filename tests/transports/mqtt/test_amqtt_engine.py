"""amqtt as the bus: what its broker leaves open is closed here, what it does not promise is shown."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

pytest.importorskip("amqtt")

from edge.contract.bus import Done, Publish
from edge.contract.errors import StorageFull
from edge.contract.limit import Limits
from edge.contract.principal import NODE, PLAIN_LAN
from edge.protocol.mqtt import limits as bounds
from edge.protocol.mqtt.rights import Rights
from edge.store import ledger
from edge.store.losses import Losses
from edge.system.clock import SystemClock
from edge.transports.mqtt.amqtt_engine import MISSES, AmqttEngine
from edge.transports.mqtt.amqtt_porter import Writer, topic_of
from edge.transports.mqtt.tcp import Entrance
from tests.support.engines import Gate
from tests.support.login import let_in
from tests.support.patience import PATIENCE_S, until
from tests.support.store import database


class Rig:
    def __init__(self, engine: AmqttEngine, losses: Losses, hot: Any, limits: Limits, clock: SystemClock) -> None:
        self.engine, self.losses, self.hot, self.limits, self.clock = engine, losses, hot, limits, clock
        self.heard: list[Publish] = []
        self.port = 0

    def sink(self, batch: list[Publish], done: Done) -> list[int]:
        self.heard += batch
        return []

    def client(self, user: str, **more: Any) -> aiomqtt.Client:
        return aiomqtt.Client(
            "127.0.0.1", self.port, username=user, password=f"{user}-secret", **{"timeout": PATIENCE_S, **more}
        )

    async def until(self, reached: Callable[[], Any]) -> None:
        await until(reached)


def bound() -> socket.socket:
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    return sock


@asynccontextmanager
async def rig(folder: Path, *, entrance: Entrance | None = None, **limits: int) -> AsyncIterator[Rig]:
    clock, bounded = SystemClock(1), Limits({f"mqtt.{name}": value for name, value in limits.items()})
    async with database(folder, "hot", clock) as hot, asyncio.TaskGroup() as group:
        losses = Losses(hot, clock)
        tasks: list[Any] = []
        engine = AmqttEngine(
            clock=clock,
            gatekeeper=Gate(),
            limits=bounded,
            losses=losses,
            spawn=lambda work: tasks.append(group.create_task(work)),
        )
        made = Rig(engine, losses, hot, bounded, clock)
        engine.attach(made.sink)
        await engine.load()
        made.port = await engine.serve(bound(), entrance=entrance)
        try:
            yield made
        finally:
            await engine.close()


async def test_it_says_what_it_does_not_promise(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        assert made.engine.promise.startswith("none")
        assert made.engine.facts() == {"misses": list(MISSES)}
        await made.engine.ping()


async def test_what_is_not_stored_is_declared_lost(tmp_path: Path) -> None:
    def fail(batch: list[Publish], done: Done) -> list[int]:
        asyncio.get_running_loop().call_soon(done, StorageFull())
        return list(range(len(batch)))

    async with rig(tmp_path) as made, made.client("alice") as alice:
        made.engine.attach(fail)
        await alice.publish("alice/x", b"1", qos=1)
        await made.until(lambda: made.engine.stats().get("dropped.unstored"))
        made.losses.flush()
        await made.hot.commit(lambda unit: None)
        assert [(one.reason, one.who) for one in await made.hot.read(ledger.recent)] == [("unstored", "alice")]


async def test_a_user_who_is_expelled_is_cut_off_without_a_will(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        async with made.client("bob") as bob:
            await bob.subscribe("shared/#", qos=1)
            alice = made.client("alice", will=aiomqtt.Will("shared/gone", b"1"))
            await alice.__aenter__()
            assert made.engine.stats()["connections"] == 2
            assert made.engine.expel("alice") == 1
            with pytest.raises(aiomqtt.MqttError):
                await anext(alice.messages)
            await bob.publish("shared/end", b"", qos=1)
            assert str((await anext(bob.messages)).topic) == "shared/end"
        assert [one.topic for one in made.heard] == ["shared/end"]
        assert made.engine.expel("alice") == 0
        await made.until(lambda: not made.engine.stats()["connections"])


async def test_only_networks_that_may_come_in_do(tmp_path: Path) -> None:
    async with rig(tmp_path, entrance=Entrance(networks=(ip_network("192.0.2.0/24"),))) as made:
        with pytest.raises(aiomqtt.MqttError):
            async with made.client("alice", timeout=0.5):
                pass


async def test_principals_carry_the_door_they_came_by(tmp_path: Path) -> None:
    async with rig(tmp_path, entrance=Entrance(via="mqtt-plain")) as made, made.client("alice") as alice:
        await alice.publish("alice/x", b"1", qos=1)
        await made.until(lambda: made.heard)
        assert made.heard[0].who.via == "mqtt-plain"


async def test_connections_are_bounded(tmp_path: Path) -> None:
    async with rig(tmp_path, connections=1) as made, made.client("alice"):
        with pytest.raises(aiomqtt.MqttError):
            async with made.client("bob", timeout=0.5):
                pass
        assert made.limits.hits == {bounds.CONNECTIONS.name: 1}


async def test_a_packet_too_large_is_counted(tmp_path: Path) -> None:
    async with rig(tmp_path, packet_octets=1000) as made:
        with pytest.raises(aiomqtt.MqttError):
            async with made.client("alice") as alice:
                await alice.publish("alice/x", b"x" * 2000, qos=1, timeout=0.5)
        await made.until(lambda: made.limits.hits)
        assert made.limits.hits == {bounds.PACKET_OCTETS.name: 1}


async def test_the_nodes_retained_message_waits_for_subscribers(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        made.engine.publish(Publish("shared/x", b"1", 1, True, NODE, made.clock.now()))
        with pytest.raises(ValueError, match="not a topic"):
            made.engine.publish(Publish("a/+", b"1", 1, True, NODE, made.clock.now()))
        await made.until(lambda: made.engine.stats()["retained"])
        async with made.client("alice") as alice:
            await alice.subscribe("shared/x", qos=1)
            assert (await anext(alice.messages)).payload == b"1"


async def test_web_sockets_are_refused_in_words(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        with bound() as sock, pytest.raises(ValueError, match="WebSocket"):
            await made.engine.serve(sock, ws=True)


class Sent:
    """A stream writer that only writes down."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


def test_a_message_that_somebody_may_not_read_is_withheld() -> None:
    admission = let_in(Gate(), "alice", b"alice-secret")
    assert admission is not None
    sent = Sent()
    writer = Writer(sent)  # type: ignore[arg-type]
    mine, other = b"\x30\x09\0\x07alice/x", b"\x32\x0a\0\x05bob/x\0\x01!"
    writer.write(mine)
    writer.rights = Rights(admission, "")
    for packet in (mine, other, b"\xd0\0"):
        writer.write(packet)
    assert (sent.data, writer.withheld) == (mine + b"\xd0\0", 2)
    assert topic_of(b"\x30\x84\x01\0\x03a/b" + b"x" * 127) == "a/b"


async def test_a_client_without_tls_cannot_use_a_closed_topic(tmp_path: Path) -> None:
    """Settled G14."""
    async with rig(tmp_path, entrance=Entrance(via=PLAIN_LAN)) as made, made.client("alice") as alice:
        made.engine._closed = lambda topic: topic == "alice/lock"
        async with made.client("alice", identifier="later") as later:
            await later.publish("alice/lock", b"open")
            await later.publish("alice/else", b"1", qos=1)
        await alice.publish("alice/end", b"1", qos=1)
        await made.until(lambda: len(made.heard) == 2)
        assert [one.topic for one in made.heard] == ["alice/else", "alice/end"]


async def test_a_user_whose_password_changed_is_cut_off(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        async with made.client("alice") as alice:
            assert made.engine.hang_up("alice") == 1
            with pytest.raises(aiomqtt.MqttError):
                await anext(alice.messages)
        await made.until(lambda: not made.engine.stats()["connections"])
