from __future__ import annotations

import logging
import shutil
import sqlite3
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from edge.config import load_config
from edge.contract.principal import Kind, Principal
from edge.node.life import Node
from edge.system.files import DirectoryInUse
from tests.support.node import SETS, RpcError, agent, running, socket

OWNER = Principal(kind=Kind.OPERATOR, aid="", scopes=frozenset({"*"}), via="control")


async def test_one_node_per_state_directory(node: Node) -> None:
    with pytest.raises(DirectoryInUse):
        async with running(node.config.state_dir):
            pass


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
