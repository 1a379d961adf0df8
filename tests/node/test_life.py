from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sqlite3
import ssl
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from edge.config import load_config
from edge.contract.principal import Kind, Principal
from edge.node.life import Node, StartFailed
from edge.system.files import DirectoryInUse
from edge.system.notify import ServiceManager
from edge.system.ports import bind_tcp
from tests.support.node import ISSUER, SETS, RpcError, agent, running, socket

OWNER = Principal(kind=Kind.OPERATOR, aid="", scopes=frozenset({"*"}), via="control")


async def test_the_ready_file_is_there_while_the_node_answers(node: Node) -> None:
    path = node.config.state_dir / "run" / "ready.json"
    ready = json.loads(path.read_bytes())
    assert ready["pid"] == os.getpid()
    assert ready["issuer"] == ISSUER
    assert ready["endpoints"] == node.endpoints
    assert Path(ready["tls_ca"]).read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert Path(ready["aun_root"]).read_text().startswith("-----BEGIN CERTIFICATE-----")


async def test_a_node_that_left_takes_its_ready_file_along(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        path = node.config.state_dir / "run" / "ready.json"
        assert path.exists()
    assert not path.exists()
    assert not (tmp_path / "state" / "store" / "node.db-wal").exists()


async def test_ports_picked_once_stay(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        first = dict(node.endpoints)
    async with running(tmp_path / "state") as node:
        assert node.endpoints == first


async def test_one_node_per_state_directory(node: Node) -> None:
    with pytest.raises(DirectoryInUse):
        async with running(node.config.state_dir):
            pass


async def test_an_explicit_listener_whose_port_is_taken_stops_the_start(tmp_path: Path) -> None:
    with bind_tcp("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartFailed, match=f"(?s)http.listen = 127.0.0.1:{port} .*next: free it, or choose another"):
            async with running(tmp_path / "state", f"http.listen=127.0.0.1:{port}"):
                pass
    assert not (tmp_path / "state" / "run" / "ready.json").exists()


async def test_a_certificate_that_cannot_be_read_stops_an_explicit_listener_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    files = [f"tls.{name}={tmp_path / 'cert.pem'}" for name in ("cert", "key")]
    with pytest.raises(StartFailed, match=r"http.tls_listen = its certificate cannot be used"):
        async with running(tmp_path / "state", "http.tls_listen=127.0.0.1:0", *files):
            pass


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
        config = load_config(
            state_dir=tmp_path / "state",
            sets=[one for one in SETS if not one.startswith("mqtt")],
            environ={},
            system_file=tmp_path / "none.toml",
        )
        node = Node(config, ISSUER, ServiceManager({}))
        run = asyncio.ensure_future(node.run())
        await node.started.wait()
        assert "127.0.0.1:1883 cannot be used" in node.facts()["left_off"]["mqtt"]
        assert "mqtt" not in node.endpoints
        node.stop()
        await run


async def test_a_restart_closes_sockets_with_1012_and_no_disconnect_event(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        alice = await agent(node, "alice")
        async with alice.connected() as wire:
            node.stop()
            with pytest.raises(ConnectionClosed) as closed:
                await wire.event("event/gateway.disconnect")
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
            assert wire.events == []


@pytest.mark.seed("S0-166")
async def test_a_token_survives_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        alice = await agent(node, "alice")
    async with running(tmp_path / "state") as node:
        alice.node = node
        async with alice.connected() as wire:
            assert (await wire.call("meta.ping"))["pong"] is True


async def test_the_lan_door_waits_for_the_first_device(tmp_path: Path) -> None:
    with taken_port(9443):  # so that nothing here listens beyond loopback
        sets = [one for one in SETS if not one.startswith("http.tls")]
        config = load_config(state_dir=tmp_path / "state", sets=sets, environ={}, system_file=tmp_path / "none.toml")
        node = Node(config, ISSUER, ServiceManager({}))
        run = asyncio.ensure_future(node.run())
        await node.started.wait()
        assert node.left_off["https"].startswith("opens once a device exists")
        assert node.facts()["waiting"] == ["https"]
        await node.house.dispatcher.call("edge", "device.add", b'{"name":"house"}', OWNER)
        while "opens once" in node.left_off["https"]:
            await asyncio.sleep(0)
        assert "0.0.0.0:9443 cannot be used" in node.left_off["https"]
        assert node.facts()["waiting"] == []
        node.stop()
        await run


async def test_what_other_machines_can_reach_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with running(tmp_path / "state", "http.tls_listen=0.0.0.0:0") as node:
            port = node.endpoints["https"].rsplit(":", 1)[1]
            assert node.endpoints["https"] == f"https://127.0.0.1:{port}"
            assert node.facts()["to_network"] == {"https": f"0.0.0.0:{port}"}
    assert f"listener https is open to other machines at 0.0.0.0:{port}" in caplog.text


async def test_to_let_this_machine_in_without_tokens_is_said_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path / "state", "http.insecure_local=true") as node:
        assert node.facts()["insecure_local"] is True
        assert node.facts()["to_network"] == {}
    assert "--insecure-local: whoever runs a program on this machine is let in" in caplog.text


async def test_every_part_is_asked_and_answers(node: Node) -> None:
    assert await node.watchdog.ask()
    assert node.well() == {"started": True, "node.db": True, "hot.db": True, "bus": True}


@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_nothing_is_acknowledged_into_a_state_directory_that_is_gone(tmp_path: Path, how: str) -> None:
    state = tmp_path / "state"
    async with running(state) as node:
        assert node.facts()["state"] == "well"
        alice = await agent(node, "alice")
        async with alice.connected() as wire:
            if how == "removed":
                shutil.rmtree(state)
            else:
                state.rename(tmp_path / "aside")
                shutil.copytree(tmp_path / "aside", state, ignore=shutil.ignore_patterns("run"))
            with pytest.raises(RpcError, match="read-only"):
                await wire.call("message.send", {"to": alice.aid, "payload": {"type": "text", "text": "hi"}})
        await node.watchdog.ask()
        assert node.well() == {"started": True, "node.db": False, "hot.db": False, "bus": True}
        facts = node.facts()
        assert facts["state"] == "degraded"
        for store in facts["stores"].values():
            assert (store["read_only"], f"was {how} while the node runs" in store["failure"]) == (True, True)


async def test_https_is_served_with_our_own_authority_and_reloaded_without_a_drop(tmp_path: Path) -> None:
    async with running(tmp_path / "state", "http.tls_listen=127.0.0.1:0") as node:
        trust = ssl.create_default_context(cafile=str(node.house.identity.tls_ca))
        port = int(node.endpoints["https"].rsplit(":", 1)[1])

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: edge.test\r\n\r\n")
            return await reader.readline()

        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="edge.test")
        assert (await talk(reader, writer)).startswith(b"HTTP/1.1 200")
        assert not await node.house.renewal.look()
        node.house.renewal._names.append("box.lan")
        assert await node.house.renewal.look()
        other = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="box.lan")
        assert (await talk(*other)).startswith(b"HTTP/1.1 200")
        assert not writer.is_closing()
        for one in (writer, other[1]):
            one.close()


async def test_a_changed_log_level_is_in_force_at_once_and_a_port_at_the_next_start(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        changed = load_config(
            state_dir=tmp_path / "state",
            sets=[*SETS, "log.level=debug", "a2a.enabled=false"],
            environ={},
            system_file=tmp_path / "none.toml",
        )
        node._reread = lambda: changed
        answer = node.reload()
        assert (answer.now, answer.next_start) == (["log.level"], ["a2a.enabled"])
        assert logging.getLogger().level == logging.DEBUG


async def test_an_unauthenticated_socket_may_ping_and_no_more(node: Node) -> None:
    async with socket(node) as wire:
        assert (await wire.call("meta.ping"))["pong"] is True
        with pytest.raises(Exception, match="-32013"):
            await wire.call("message.pull")


async def test_damage_that_shows_while_the_tables_are_loaded_costs_the_file_and_not_the_start(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        await node.house.dispatcher.call("edge", "device.add", b'{"name":"porch"}', OWNER)
    file = tmp_path / "state" / "store" / "node.db"
    with sqlite3.connect(file) as conn:
        [(page,)] = conn.execute("SELECT rootpage FROM sqlite_master WHERE name = 'mqtt_user'")
    conn.close()
    content = bytearray(file.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = b"\xaa" * 4096
    file.write_bytes(content)
    async with running(tmp_path / "state") as node:
        facts = node.facts()["stores"]
        assert facts["node"]["damage"]
        assert not facts["node"]["read_only"]
        assert not facts["hot"]["damage"]
        assert len(list((tmp_path / "state" / "quarantine").iterdir())) == 1
        await node.house.dispatcher.call("edge", "device.add", b'{"name":"porch"}', OWNER)
