"""Which doors of a node open, which wait for a device, which are left off and why; whole nodes on loopback."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

import pytest

from edge.contract.principal import Kind, Principal
from edge.node.failure import StartFailed
from edge.system.ports import bind_tcp
from tests.support.node import SETS, running

OWNER = Principal(kind=Kind.OPERATOR, aid="", scopes=frozenset({"*"}), via="control")


async def test_ports_picked_once_stay(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        first = dict(node.endpoints)
    async with running(tmp_path / "state") as node:
        assert node.endpoints == first


async def test_an_explicit_listener_whose_port_is_taken_stops_the_start(tmp_path: Path) -> None:
    with bind_tcp("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartFailed, match=f"(?s)http.listen = 127.0.0.1:{port} .*next: free it, or choose another"):
            async with running(tmp_path / "state", f"http.listen=127.0.0.1:{port}"):
                pass
    assert not (tmp_path / "state" / "run" / "ready.json").exists()


async def test_a_certificate_that_cannot_be_read_stops_an_explicit_listener_with_a_reason(tmp_path: Path) -> None:
    cert, none = tmp_path / "cert.pem", tmp_path / "none.pem"
    cert.write_text("no certificate")
    for key, said in ((cert, f"tls.cert = {cert}, tls.key = {cert}"), (none, f"No such file or directory: '{none}'")):
        files = [f"tls.cert={cert}", f"tls.key={key}"]
        with pytest.raises(StartFailed) as told:
            async with running(tmp_path / "state", "http.tls_listen=127.0.0.1:0", *files):
                pass
        what, _, step = str(told.value).partition("\n  next: ")
        assert what.startswith("http.tls_listen = 127.0.0.1:0 cannot be used: its certificate: ")
        assert what.endswith(said)
        assert step.startswith("mend tls.cert")


@pytest.mark.parametrize(
    ("asked", "what"), [("mqtt.ws_listen=127.0.0.1:0", "for WebSocket"), ("mqtt.unix_socket=s", "on unix sockets")]
)
async def test_a_listener_that_the_engine_cannot_have_stops_the_start_and_why(
    tmp_path: Path, asked: str, what: str
) -> None:
    with pytest.raises(
        StartFailed, match=rf"{asked.split('=')[0]} = the amqtt engine does not listen {what}\n  next: "
    ):
        async with running(tmp_path / "state", asked, "mqtt.engine=amqtt"):
            pass
    assert not (tmp_path / "state" / "s").exists()


def taken_port(port: int) -> AbstractContextManager[object]:
    """A port that is taken: by us, or already by somebody else."""
    try:
        made = bind_tcp("127.0.0.1", port)
    except OSError:
        return nullcontext()
    made.listen()
    return made


async def test_a_default_listener_whose_port_is_taken_is_left_off_and_named(tmp_path: Path) -> None:
    with taken_port(1883):
        base = [one for one in SETS if not one.startswith("mqtt")]
        async with running(tmp_path / "state", base=base) as node:
            assert "127.0.0.1:1883 cannot be used" in node.facts()["left_off"]["mqtt"]
            assert "mqtt" not in node.endpoints


async def test_the_lan_door_waits_for_the_first_device(tmp_path: Path) -> None:
    with taken_port(9443):  # so that nothing here listens beyond loopback
        base = [one for one in SETS if not one.startswith("http.tls")]
        async with running(tmp_path / "state", base=base) as node:
            assert node.listeners.left_off["https"].startswith("opens once a device exists")
            assert node.facts()["waiting"] == ["https"]
            await node.house.dispatcher.call("edge", "device.add", b'{"name":"house"}', OWNER)
            async with asyncio.timeout(60):
                while "opens once" in node.listeners.left_off["https"]:
                    await asyncio.sleep(0.01)
            assert "0.0.0.0:9443 cannot be used" in node.listeners.left_off["https"]
            assert node.facts()["waiting"] == []


async def test_with_a_broker_of_ones_own_no_door_of_mqtt_waits_for_a_device(tmp_path: Path) -> None:
    base = [one for one in SETS if not one.startswith("mqtt.tls")]
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen: the broker is not there yet
        port = nobody.getsockname()[1]
        async with running(tmp_path / "state", "mqtt.engine=external", f"mqtt.external.port={port}", base=base) as node:
            facts = node.facts()
            assert facts["waiting"] == []
            assert facts["left_off"]["mqtts"] == facts["left_off"]["mqtt"]
            assert "broker of mqtt.external" in facts["left_off"]["mqtts"]


async def test_what_other_machines_can_reach_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with running(tmp_path / "state", "http.tls_listen=0.0.0.0:0") as node:
            port = node.endpoints["https"].rsplit(":", 1)[1]
            assert node.endpoints["https"] == f"https://127.0.0.1:{port}"
            assert node.facts()["to_network"] == {"https": f"0.0.0.0:{port}"}
    assert f"listener https is open to other machines at 0.0.0.0:{port}" in caplog.text


async def test_https_is_served_with_our_own_authority_and_reloaded_without_a_drop(tmp_path: Path) -> None:
    async with running(tmp_path / "state", "http.tls_listen=127.0.0.1:0") as node:
        trust = ssl.create_default_context(cafile=str(node.house.identity.tls_ca))
        port = int(node.endpoints["https"].rsplit(":", 1)[1])

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: edge.test\r\n\r\n")
            return await reader.readline()

        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="edge.test")
        with closing(writer):
            assert (await talk(reader, writer)).startswith(b"HTTP/1.1 200")
            assert not await node.house.renewal.look()
            node.house.renewal._names.append("box.lan")
            assert await node.house.renewal.look()
            reader, fresh = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="box.lan")
            with closing(fresh):
                assert (await talk(reader, fresh)).startswith(b"HTTP/1.1 200")
                assert not writer.is_closing()
