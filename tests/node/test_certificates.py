"""Client certificates on HTTPS (settled G02): right authority, wrong authority, revoked, expired, none."""

from __future__ import annotations

import asyncio
import datetime
import json
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from edge.contract.principal import Kind, Principal
from edge.node.life import Node
from tests.support.node import Agent, agent, running
from tests.support.process import NodeProcess
from tests.transports.mqtt.certificates import Authority

OWNER = Principal(kind=Kind.OPERATOR, aid="", scopes=frozenset({"*"}), via="control")
SETS = ("http.tls_listen=127.0.0.1:0", "tls.client_cert=optional")
TASK = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}}


def trust(node: Node, tmp_path: Path, who: Agent | None = None) -> ssl.SSLContext:
    """A client's context, with its certificate if it has one."""
    made = ssl.create_default_context(cafile=str(node.house.identity.tls_ca))
    if who is not None:
        key = who.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = tmp_path / f"{who.name}.pem"
        path.write_bytes(key + who.cert.encode())
        made.load_cert_chain(path)
    return made


async def status(node: Node, context: ssl.SSLContext) -> int:
    """The HTTP status of an A2A request."""
    port = int(node.endpoints["https"].rsplit(":", 1)[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="edge.test")
    body = json.dumps(TASK).encode()
    head = f"POST /a2a HTTP/1.1\r\nHost: edge.test\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
    line = await reader.readline()
    writer.close()
    if not line:
        raise ConnectionResetError
    return int(line.split()[1])


@pytest.mark.seed("S2-031")
async def test_a_certificate_of_ours_is_who_it_names(tmp_path: Path) -> None:
    async with running(tmp_path / "state", *SETS) as node:
        alice = await agent(node, "alice")
        assert await status(node, trust(node, tmp_path, alice)) == 200


async def test_without_a_certificate_a_token_is_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path / "state", *SETS) as node:
        assert await status(node, trust(node, tmp_path)) == 401


async def test_a_revoked_certificate_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path / "state", *SETS) as node:
        alice = await agent(node, "alice")
        await node.house.dispatcher.call("edge", "agent.revoke", b'{"name":"alice"}', OWNER)
        assert await status(node, trust(node, tmp_path, alice)) == 401


async def test_a_certificate_of_another_authority_does_not_get_through_the_handshake(tmp_path: Path) -> None:
    async with running(tmp_path / "other") as other:
        mallory = await agent(other, "mallory")
    async with running(tmp_path / "state", *SETS) as node:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await status(node, trust(node, tmp_path, mallory))


async def test_where_a_certificate_is_required_nobody_comes_without(tmp_path: Path) -> None:
    async with running(tmp_path / "state", SETS[0], "tls.client_cert=required") as node:
        alice = await agent(node, "alice")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await status(node, trust(node, tmp_path))
        assert await status(node, trust(node, tmp_path, alice)) == 200


async def test_the_card_names_mutual_tls(tmp_path: Path) -> None:
    async with running(tmp_path / "state", *SETS) as node:
        host, port = node.endpoints["http"].removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        card = json.loads((await reader.read()).split(b"\r\n\r\n", 1)[1])
        writer.close()
        assert card["securitySchemes"]["certificate"]["type"] == "mutualTLS"
        assert {"certificate": []} in card["security"]


# The same on MQTT: a device's certificate of the operator's authority instead of its password.


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    folder = tmp_path / "authority"
    folder.mkdir()
    return Authority(folder)


@contextmanager
def mqtt_node(tmp_path: Path, authority: Authority, asked: str) -> Iterator[NodeProcess]:
    sets = ("mqtt.tls_listen=127.0.0.1:0", f"mqtt.client_cert={asked}", f"tls.client_ca={authority.file}")
    with NodeProcess(tmp_path / "state", *(word for one in sets for word in ("--set", one))) as made:
        yield made


def mosquitto(node: NodeProcess, *more: str | Path) -> subprocess.CompletedProcess[str]:
    """A publish of `mosquitto_pub`."""
    port = node.ready["endpoints"]["mqtts"].rsplit(":", 1)[1]
    where = ["-h", "localhost", "-p", port, "--cafile", node.ready["tls_ca"]]
    what = ["-q", "1", "-t", "lamp/x", "-m", "1"]
    command = ["mosquitto_pub", *where, *what, *map(str, more)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def shown(files: tuple[Path, Path]) -> list[str | Path]:
    return ["--cert", files[0], "--key", files[1]]


@pytest.mark.needs("mosquitto_pub")
def test_a_device_shows_its_certificate_instead_of_a_password(tmp_path: Path, authority: Authority) -> None:
    """Settled G02, G32: the name in it is the user; one that nobody has, and one that is forgotten, is not let in."""
    lamp, stranger = authority.issue("lamp"), authority.issue("stranger")
    with mqtt_node(tmp_path, authority, "optional") as node:
        password = node.cli("device", "add", "lamp")["password"]
        assert mosquitto(node, *shown(lamp)).returncode == 0
        assert mosquitto(node, "-u", "lamp", "-P", password).returncode == 0, "a password will do"
        assert "not authorised" in mosquitto(node, *shown(stranger)).stderr.lower()
        assert mosquitto(node, *shown(stranger), "-V", "5").returncode == 0x87
        assert mosquitto(node, "-V", "5").returncode == 0x87, "neither"
        assert node.run("device", "forget", "lamp").returncode == 0
        assert mosquitto(node, *shown(lamp), "-V", "5").returncode == 0x87
        assert "unknown certificate" in node.run("queue", "drops").stdout


@pytest.mark.needs("mosquitto_pub")
def test_where_mqtt_requires_a_certificate_tls_lets_in_only_a_good_one(tmp_path: Path, authority: Authority) -> None:
    """Expired, of another authority, none: none of them gets past TLS; HTTPS is asked for nothing."""
    past = datetime.datetime(2021, 1, 1, tzinfo=datetime.UTC)
    expired = authority.issue("lamp", file="expired", end=past)
    (tmp_path / "elsewhere").mkdir()
    foreign = Authority(tmp_path / "elsewhere").issue("lamp")
    with mqtt_node(tmp_path, authority, "required") as node:
        password = node.cli("device", "add", "lamp")["password"]
        assert mosquitto(node, *shown(authority.issue("lamp"))).returncode == 0
        for bad in ([], shown(expired), shown(foreign)):
            done = mosquitto(node, "-u", "lamp", "-P", password, *bad)
            assert done.returncode not in (0, 4, 5), done
