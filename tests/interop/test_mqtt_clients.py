"""The field's MQTT clients, unmodified, in processes of their own, against a real node: over TCP, TLS and WebSocket
with and without TLS, in the versions that each speaks; Mosquitto as a bridge to the node and from it.

What the Python and npm clients do is in `mqtt/scenario.md`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.plugins.needs import peer
from tests.support.mosquitto import Mosquitto
from tests.support.process import NodeProcess

pytestmark = pytest.mark.interop

SCRIPTS = Path(__file__).with_name("mqtt")
OCTETS = (bytes(range(256)) + bytes(44)).hex()
CLIENT_S = 90.0
NAMES = {4: "mqttv311", 5: "mqttv5"}
"""What Mosquitto's clients call the versions."""

SCHEMES = pytest.mark.parametrize("scheme", ["mqtt", "mqtts", "ws", "wss"])
SAFE = ("mqtts", "wss")
SECURE = pytest.mark.parametrize("scheme", ["mqtt", "mqtts"])
VERSIONS = pytest.mark.parametrize("version", [4, 5])


class Door:
    """A listener and a user of its own."""

    def __init__(self, scheme: str, port: int, user: str, password: str, ca: str = "") -> None:
        self.scheme, self.port, self.user, self.password, self.ca = scheme, port, user, password, ca
        self.host = "localhost" if ca else "127.0.0.1"

    def asked(self, version: int) -> str:
        """The argument of a script."""
        return json.dumps({**vars(self), "version": version})


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    doors = [word for name in ("tls", "ws", "wss") for word in ("--set", f"mqtt.{name}_listen=127.0.0.1:0")]
    with NodeProcess(tmp_path_factory.mktemp("mqtt") / "state", *doors) as made:
        yield made


@pytest.fixture
def door(node: NodeProcess, scheme: str, tmp_path: Path) -> Door:
    """A door of a scheme, and a fresh user."""
    return node_door(node, scheme, tmp_path.name)


def node_door(node: NodeProcess, scheme: str, name: str) -> Door:
    """A door of the node."""
    name = "".join(letter if letter.isalnum() else "-" for letter in name).strip("-")[:40]
    made = node.cli("device", "add", name)
    port = urlsplit(node.ready["endpoints"][f"mqtt_{scheme}" if scheme.startswith("ws") else scheme]).port
    assert port is not None
    return Door(scheme, port, made["username"], made["password"], node.ready["tls_ca"] if scheme in SAFE else "")


async def output(*command: str, **environment: str) -> str:
    """What a client prints; it must end well."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    async with asyncio.timeout(CLIENT_S):
        out, err = await process.communicate()
    assert process.returncode == 0, f"{command[0]}: {process.returncode}\n{out.decode()}\n{err.decode()}"
    return out.decode()


async def script(*command: str, **environment: str) -> Any:
    """What a script says on its last line."""
    return json.loads((await output(*command, **environment)).splitlines()[-1])


def check(said: dict[str, Any], user: str) -> None:
    """What every client has to see."""
    place = f"{user}/in"
    assert said["granted"] == [2]
    assert said["live"] == [
        [f"{place}/0", b"zero".hex(), 0, False],
        [f"{place}/1", b"one".hex(), 1, False],
        [f"{place}/2", OCTETS, 2, False],
    ]
    assert said["away"] == [[f"{place}/3", b"away1".hex(), 1, False], [f"{place}/3", b"away2".hex(), 2, False]]
    assert said["kept"] == [[f"{place}/2", OCTETS, 1, True]]


@SCHEMES
@VERSIONS
async def test_aiomqtt(door: Door, version: int) -> None:
    check(await script(sys.executable, str(SCRIPTS / "aiomqtt_client.py"), door.asked(version)), door.user)


@SCHEMES
@pytest.mark.needs("peer:amqtt")
async def test_the_client_of_amqtt(door: Door) -> None:
    """It speaks 3.1.1 only."""
    where = peer("amqtt")
    assert where is not None
    python = str(where / "bin" / "python")
    check(await script(python, str(SCRIPTS / "amqtt_client.py"), door.asked(4)), door.user)


@SCHEMES
@VERSIONS
@pytest.mark.needs("node", "peer:mqttjs")
async def test_mqtt_from_npm(door: Door, version: int) -> None:
    where = peer("mqttjs")
    modules = {"NODE_PATH": str(where) + "/node_modules"}
    said = await script("node", str(SCRIPTS / "mqttjs_client.cjs"), door.asked(version), **modules)
    check(said, door.user)
    assert said["present"] == [False, True]


# Mosquitto's own clients.


def options(door: Door, version: int) -> list[str]:
    """How to reach a door."""
    found = ["-h", door.host, "-p", str(door.port), "-u", door.user, "-P", door.password, "-V", NAMES[version]]
    return [*found, "--cafile", door.ca] if door.ca else found


@SECURE
@VERSIONS
@pytest.mark.needs("mosquitto_pub", "mosquitto_sub")
async def test_mosquitto_pub_and_sub(door: Door, version: int) -> None:
    """A session that lasts: subscribe, leave, publish with every QoS, come back and read; then what is retained."""
    how, place = options(door, version), f"{door.user}/in"
    lasting = ["-i", "sub", "-q", "2", "-c", *(["-x", "300"] if version == 5 else [])]
    await output("mosquitto_sub", *how, *lasting, "-t", f"{place}/+", "-E")
    for qos in ("1", "2"):
        await output("mosquitto_pub", *how, "-t", f"{place}/{qos}", "-m", f"with {qos}", "-q", qos, "-r")
    line = "%t %q %r %p"
    read = await output("mosquitto_sub", *how, *lasting, "-t", f"{place}/none", "-C", "2", "-W", "60", "-F", line)
    assert read.splitlines() == [f"{place}/1 1 0 with 1", f"{place}/2 2 0 with 2"]
    kept = await output("mosquitto_sub", *how, "-q", "1", "-t", f"{place}/+", "-C", "2", "-W", "60", "-F", line)
    assert kept.splitlines() == [f"{place}/1 1 1 with 1", f"{place}/2 1 1 with 2"]


@SECURE
@pytest.mark.needs("mosquitto_rr", "mosquitto_sub", "mosquitto_pub")
async def test_mosquitto_rr(door: Door) -> None:
    """Request and response of version 5: the response topic and the correlation data reach the other side."""
    how, place = options(door, 5), f"{door.user}/rr"
    line = "%R %D %p"
    listening = asyncio.ensure_future(
        output("mosquitto_sub", *how, "-q", "1", "-t", f"{place}/ask", "-C", "1", "-W", "60", "-F", line)
    )
    asking = asyncio.ensure_future(
        output(
            "mosquitto_rr", *how, "-q", "1", "-t", f"{place}/ask", "-e", f"{place}/answer", "-m", "what?", "-W", "60"
        )
    )
    ask = ["-q", "1", "-t", f"{place}/ask", "-m", "ping", "-D", "publish", "response-topic", f"{place}/answer"]
    while not listening.done():
        await output("mosquitto_pub", *how, *ask, "-D", "publish", "correlation-data", "c-1")
        await asyncio.sleep(0.1)
    topic, rest = (await listening).split(" ", 1)
    assert topic == f"{place}/answer"
    assert rest.strip().endswith(("what?", "ping"))
    while not asking.done():
        await output("mosquitto_pub", *how, "-q", "1", "-t", f"{place}/answer", "-m", "that")
        await asyncio.sleep(0.1)
    assert (await asking).strip() == "that"


# Mosquitto as a bridge.


@SECURE
@pytest.mark.parametrize("version", ["mqttv311", "mqttv50"])
@pytest.mark.needs("mosquitto", "mosquitto_pub", "mosquitto_sub")
async def test_mosquitto_bridges_to_the_node_and_from_it(door: Door, tmp_path: Path, version: str) -> None:
    """With 3.1.1 its bridge has a session with the node: what is published while it is down arrives afterwards.
    With 5 it asks for none (no session expiry interval in its CONNECT), whatever `cleansession` says."""
    lines = (
        "connection ours",
        f"address {door.host}:{door.port}",
        f"remote_username {door.user}",
        f"remote_password {door.password}",
        f"remote_clientid {door.user}-bridge",
        f"bridge_protocol_version {version}",
        f"topic # out 2 there/ {door.user}/there/",
        f"topic # in 2 here/ {door.user}/here/",
        "cleansession false",
        "restart_timeout 1",
        "notifications false",
        *([f"bridge_cafile {door.ca}"] if door.ca else []),
    )
    how = options(door, 5)
    with Mosquitto(tmp_path / "bridge", lines=lines) as broker:
        local = ["-h", "127.0.0.1", "-p", str(broker.port)]
        await arrives([*local, "-t", "there/a", "-m", "to the node"], [*how, "-t", f"{door.user}/there/a"])
        await arrives([*how, "-t", f"{door.user}/here/a", "-m", "from the node"], [*local, "-t", "here/a"])
        if version == "mqttv50":
            return
        waiting = [*local, "-i", "late", "-c", "-q", "2", "-t", "here/late"]
        await output("mosquitto_sub", *waiting, "-E")
        broker.stop()
        await output("mosquitto_pub", *how, "-q", "2", "-t", f"{door.user}/here/late", "-m", "while away")
        broker.start()
        late = await output("mosquitto_sub", *waiting, "-C", "1", "-W", "60")
        assert late.strip() == "while away"


async def arrives(there: list[str], here: list[str]) -> None:
    """Publish again and again on one side until it is heard on the other."""
    hearing = asyncio.ensure_future(output("mosquitto_sub", *here, "-q", "1", "-C", "1", "-W", "60"))
    while not hearing.done():
        await output("mosquitto_pub", *there, "-q", "1")
        await asyncio.sleep(0.1)
    assert (await hearing).strip() == there[-1]
