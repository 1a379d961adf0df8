"""The field's clients, unmodified: paho over every transport, aiomqtt, Mosquitto as a bridge both ways."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import aiomqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edge.protocol.mqtt.codec import Ack, PublishPacket
from tests.transports.mqtt.certificates import Authority
from tests.transports.mqtt.conftest import Rig
from tests.transports.mqtt.raw import dial

MOSQUITTO = "/usr/sbin/mosquitto"

BOTH = pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])


class Paho:
    """A paho client in its own thread; `messages` as they came."""

    def __init__(
        self, version: MQTTProtocolVersion, *, transport: Literal["tcp", "websockets"] = "tcp", **options: Any
    ) -> None:
        self.client = paho.Client(CallbackAPIVersion.VERSION2, "paho", protocol=version, transport=transport, **options)
        self.client.username_pw_set("lamp", "secret")
        self.messages: list[paho.MQTTMessage] = []
        self.granted = threading.Event()
        self.published = 0
        self.options: dict[str, Any] = {}
        self.client.on_message = lambda client, data, message: self.messages.append(message)
        self.client.on_subscribe = lambda *args: self.granted.set()
        self.client.on_publish = self._published

    def _published(self, *args: Any) -> None:
        self.published += 1


@asynccontextmanager
async def running(client: Paho, port: int, host: str = "127.0.0.1") -> AsyncIterator[Paho]:
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, lambda: client.client.connect(host, port, **client.options))
    client.client.loop_start()
    try:
        yield client
    finally:
        client.client.disconnect()
        await loop.run_in_executor(None, client.client.loop_stop)


async def exchange(made: Rig, client: Paho) -> None:
    """Every QoS there and back."""
    client.client.subscribe("t/#", qos=2)
    await made.until(client.granted.is_set)
    for qos in range(3):
        for at in range(20):
            client.client.publish(f"t/{qos}", b"\x00%d" % at, qos=qos)
    await made.until(lambda: len(client.messages) == 60 and client.published == 60)
    for qos in range(3):
        assert [one.payload for one in client.messages if one.qos == qos] == [b"\x00%d" % at for at in range(20)]


@BOTH
async def test_paho_exchanges_messages_over_tcp(engine: Rig, version: MQTTProtocolVersion) -> None:
    async with running(Paho(version), engine.port) as client:
        await exchange(engine, client)


@BOTH
async def test_paho_exchanges_messages_over_websocket(engine: Rig, version: MQTTProtocolVersion) -> None:
    port = await engine.engine.listen_ws("127.0.0.1", 0)
    client = Paho(version, transport="websockets")
    client.client.ws_set_options(path="/mqtt")
    async with running(client, port):
        await exchange(engine, client)


@BOTH
async def test_paho_exchanges_messages_over_tls(engine: Rig, tmp_path: Path, version: MQTTProtocolVersion) -> None:
    authority = Authority(tmp_path)
    port = await engine.engine.listen("127.0.0.1", 0, ssl=authority.server())
    client = Paho(version)
    client.client.tls_set(str(authority.file))
    async with running(client, port, "localhost"):
        await exchange(engine, client)


async def test_paho_exchanges_messages_over_secure_websocket(engine: Rig, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    port = await engine.engine.listen_ws("127.0.0.1", 0, ssl=authority.server())
    client = Paho(paho.MQTTv5, transport="websockets")
    client.client.ws_set_options(path="/mqtt")
    client.client.tls_set(str(authority.file))
    async with running(client, port, "localhost"):
        await exchange(engine, client)


async def test_paho_finds_its_session_again(engine: Rig) -> None:
    present: list[bool] = []
    async with running(_lasting(present), engine.port) as client:
        client.client.subscribe("t", qos=2)
        await engine.until(client.granted.is_set)
    await engine.until(lambda: engine.engine.stats()["connections"] == 0)
    peer = await dial(engine.port, "p")
    peer.send(PublishPacket("t", b"while you were away", 1, packet_id=1))
    await peer.take(Ack)
    await peer.close()
    async with running(_lasting(present), engine.port) as client:
        await engine.until(lambda: client.messages)
    assert present == [False, True]
    assert client.messages[0].payload == b"while you were away"


def _lasting(present: list[bool]) -> Paho:
    """A client whose session lasts a minute; it notes whether there was one."""
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = 60
    client = Paho(paho.MQTTv5)
    client.client.on_connect = lambda c, data, flags, reason, found: present.append(flags.session_present)
    client.options = {"clean_start": False, "properties": properties}
    return client


@pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5])
async def test_aiomqtt_exchanges_messages(engine: Rig, version: aiomqtt.ProtocolVersion) -> None:
    options: dict[str, Any] = {"username": "lamp", "password": "secret", "protocol": version}
    async with aiomqtt.Client("127.0.0.1", engine.port, **options) as client:
        await client.subscribe("t/#", qos=2)
        for qos in range(3):
            await client.publish(f"t/{qos}", b"x", qos=qos)
        found = []
        async for message in client.messages:
            found.append(message.qos)
            if len(found) == 3:
                break
        assert sorted(found) == [0, 1, 2]


@asynccontextmanager
async def mosquitto(folder: Path, bridge: str) -> AsyncIterator[int]:
    """A Mosquitto of its own with a bridge; its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    conf = folder / "mosquitto.conf"
    conf.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n{bridge}")
    process = await asyncio.create_subprocess_exec(
        MOSQUITTO, "-c", str(conf), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield port
    finally:
        process.terminate()
        await process.wait()


def bridge(made: Rig, version: str) -> str:
    return (
        f"connection ours\naddress 127.0.0.1:{made.port}\nremote_username lamp\nremote_password secret\n"
        f"bridge_protocol_version {version}\ntopic out/# out 1\ntopic in/# in 1\nrestart_timeout 1\n"
        "cleansession false\nbridge_attempt_unsubscribe false\n"
    )


@pytest.mark.parametrize("version", ["mqttv311", "mqttv50"])
async def test_mosquitto_bridges_to_us_both_ways(engine: Rig, tmp_path: Path, version: str) -> None:
    async with mosquitto(tmp_path, bridge(engine, version)) as port:
        await engine.until(lambda: engine.engine.stats()["subscriptions"])
        async with aiomqtt.Client("127.0.0.1", port) as client:
            await client.subscribe("in/#", qos=1)
            await client.publish("out/a", b"there", qos=1)
            await engine.until(lambda: _heard(engine, "out/a"))
            peer = await dial(engine.port, "p")

            peer.send(PublishPacket("in/a", b"and back", 1, packet_id=1))
            async for message in client.messages:
                assert (str(message.topic), message.payload) == ("in/a", b"and back")
                break
            await peer.close()


def _heard(made: Rig, topic: str) -> bool:
    return any(one.topic == topic for one in made.heard)
