from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import stat
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from edge.config import PORTS, Port
from edge.system.ports import bind_unix
from tests.support.node import running
from tests.support.patience import PATIENCE_S
from tests.support.process import NodeProcess

ANONYMOUS = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01x"
"""CONNECT of MQTT 3.1.1 without a user."""
ALL = [word for port in PORTS for word in ("--set", f"{port.key}=127.0.0.1:0")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with every listener of the port table on a port of its own."""
    with NodeProcess(tmp_path_factory.mktemp("doors") / "state", *ALL) as running:
        yield running


@pytest.mark.seed("S4-086")
@pytest.mark.parametrize("port", PORTS, ids=[port.name for port in PORTS])
async def test_every_listener_of_the_port_table_answers(node: NodeProcess, port: Port) -> None:
    number = json.loads((node.state_dir / "ports.json").read_text())[port.name]
    if port.ws:
        assert await refused_by_websocket(number, node.ready["tls_ca"] if port.tls else "")
        return
    if port.name.startswith("mqtt"):
        assert refused_by_mqtt(number, node.ready["tls_ca"] if port.tls else "")
        return
    scheme = "https" if port.tls else "http"
    trust = ssl.create_default_context(cafile=node.ready["tls_ca"]) if port.tls else None
    with urllib.request.urlopen(f"{scheme}://127.0.0.1:{number}/healthz", timeout=PATIENCE_S, context=trust) as answer:
        assert answer.status == 200


async def refused_by_websocket(port: int, ca: str) -> bool:
    """Whether an anonymous CONNECT inside a WebSocket is refused. Not with the library's client of two threads: what
    one thread writes to a TLS socket while another reads from it gets lost now and then."""
    scheme, trust = ("wss", ssl.create_default_context(cafile=ca)) if ca else ("ws", None)
    url = f"{scheme}://localhost:{port}/mqtt"
    async with asyncio.timeout(PATIENCE_S), connect(url, ssl=trust, subprotocols=[Subprotocol("mqtt")]) as door:
        await door.send(ANONYMOUS)
        answer = await door.recv()
    assert isinstance(answer, bytes)
    return answer[:3] == b"\x20\x02\x00" and answer[3] in (4, 5)


def refused_by_mqtt(port: int, ca: str) -> bool:
    """Whether an anonymous CONNECT of MQTT 3.1.1 gets its CONNACK with a refusal."""
    with contextlib.ExitStack() as stack:
        door = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
        if ca:
            trust = ssl.create_default_context(cafile=ca)
            door = stack.enter_context(trust.wrap_socket(door, server_hostname="127.0.0.1"))
        door.sendall(ANONYMOUS)
        answer = door.recv(4)
    return answer[:3] == b"\x20\x02\x00" and answer[3] in (4, 5)


def test_the_box_answers_to_its_machine_name_and_its_public_url(tmp_path: Path) -> None:
    tls = ("--set", "http.tls_listen=127.0.0.1:0", "--set", "node.public_url=https://edge.example.org")
    with NodeProcess(tmp_path / "state", *tls) as running:
        port = urlsplit(running.ready["endpoints"]["https"]).port
        for name in ("edge.example.org", f"{socket.gethostname()}.local".lower()):
            assert status(port, running.ready["tls_ca"], name, name) == 200
        assert status(port, running.ready["tls_ca"], "localhost", "elsewhere.example.org") == 403


def status(port: int | None, ca: str, certified: str, host: str) -> int:
    """The HTTP status of /healthz over TLS to a name that the certificate must hold, with a Host header."""
    trust = ssl.create_default_context(cafile=ca)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as door:
        with trust.wrap_socket(door, server_hostname=certified) as wire:
            wire.sendall(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return int(wire.recv(64).split()[1])


def mosquitto(path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["mosquitto_pub", "--unix", str(path), *args], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@pytest.mark.needs("mosquitto_pub")
def test_programs_of_this_machine_come_in_by_a_unix_socket(tmp_path: Path) -> None:
    """With a password like everybody; a socket that a killed node left is replaced; at the end it is gone."""
    path = tmp_path / "state" / "run" / "mqtt.sock"
    with NodeProcess(tmp_path / "state", "--set", "mqtt.unix_socket=run/mqtt.sock") as running:
        assert running.ready["endpoints"]["mqtt_unix"] == str(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        lamp = running.cli("device", "add", "lamp")
        who = ("-u", "lamp", "-P", lamp["password"], "-q", "1", "-t", "lamp/x", "-m", "1")
        assert mosquitto(path, *who).returncode == 0
        assert mosquitto(path, "-u", "lamp", "-P", "wrong", *who[4:]).returncode == 4
        running.kill()
        running.start()
        assert mosquitto(path, *who).returncode == 0
        assert running.stop() == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("taken", "why"), [("a file", "something else of that name"), ("a socket", "somebody listens")]
)
def test_a_path_that_is_taken_stops_the_start(tmp_path: Path, taken: str, why: str) -> None:
    path = tmp_path / "taken"
    with contextlib.ExitStack() as stack:
        if taken == "a file":
            path.touch()
        else:
            stack.enter_context(bind_unix(path)).listen()
        with pytest.raises(AssertionError, match=rf"mqtt.unix_socket = {path} cannot be used: .*{why}"):
            NodeProcess(tmp_path / "state", "--set", f"mqtt.unix_socket={path}").start()
    assert path.exists()


async def test_invented_ports_make_no_new_card(tmp_path: Path) -> None:
    """Each card is signed and committed once for each way in that there is, whatever ports a stranger names."""
    async with running(tmp_path / "state") as node:
        url, aid = urlsplit(node.endpoints["http"]), f"auth.{node.issuer}"
        assert url.port is not None
        hosts = [aid, f"{aid}:{url.port}", *(f"{aid}:{port}" for port in range(20_000, 20_040)), f"{aid}.:{url.port}"]
        answers = [await asyncio.to_thread(card, url.port, host) for host in hosts]
        rows = await node.house.node.read(
            lambda unit: unit.run("SELECT count(*) FROM generated_md WHERE aid = ?", (aid,))
        )
        assert rows == [(len(set(answers)),)]
        assert len(set(answers)) <= 4
        before = node.house.node.figures().commits
        for port in range(30_000, 30_040):
            await asyncio.to_thread(card, url.port, f"{aid}:{port}")
        assert node.house.node.figures().commits == before


def card(port: int, host: str) -> str:
    """The agent.md that a Host header gives."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/agent.md", headers={"Host": host})
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())
