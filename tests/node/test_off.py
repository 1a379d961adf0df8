"""Services that are switched off: gone from capabilities, methods and cards, and answered by their own code (G34)."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.config import ConfigError, load_config
from tests.support.http import request
from tests.support.node import Agent, RpcError, agent, running
from tests.support.process import NodeProcess


async def namespaces(made: Agent) -> list[str]:
    async with made.connected() as wire:
        found: list[str] = wire.connected["capabilities"]["namespaces"]
        return found


@pytest.mark.seed("S0-011", "S0-105")
async def test_what_is_off_is_gone_and_says_so(tmp_path: Path) -> None:
    async with running(tmp_path / "state", "node.off=task,search,group") as node:
        alice = await agent(node, "alice")
        assert {"auth", "message", "meta", "push"} <= set(await namespaces(alice))
        assert not {"task", "search", "group"} & set(await namespaces(alice))
        async with alice.connected() as wire:
            for method, code in (("task.list", -32601), ("search.query", -32160), ("no.such", -32601)):
                with pytest.raises(RpcError) as refused:
                    await wire.call(method)
                assert refused.value.code == code
                assert ((refused.value.data or {}).get("disabled") or "no") == method.partition(".")[0]
            listed = (await wire.call("debug.diag", {"action": "list"}))["methods"]
        names = [name for method in node.house.methods() for name in method.wire.get("aun", ())]
        assert not [name for name in (*names, *listed) if name.startswith("task.")]
        card = await request(node.endpoints["http"], "/agent.md", host=f"search.{node.issuer}")
        assert card.status == 404


@pytest.mark.seed("S0-002")
async def test_nothing_is_off_by_default(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        alice = await agent(node, "alice")
        async with alice.connected() as wire:
            assert wire.connected["identity"]["aid"] == alice.aid
            assert (await wire.call("message.query_online", {"aids": [alice.aid]}))["online"] == {alice.aid: True}
            assert (await wire.call("meta.status"))["aid"] == alice.aid
        found = await namespaces(alice)
        assert found == sorted(found)
        assert {"auth", "event", "message", "meta", "push", "task"} <= set(found)
        card = await request(node.endpoints["http"], "/agent.md", host=f"search.{node.issuer}")
        assert card.status == 200


def test_a_device_still_works_when_tasks_are_off(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "state", "--set", "node.off=task") as node:
        node.cli("device", "add", "lamp")
        assert node.cli("skill", "list") == []
        listed = {one["name"]: one for one in node.cli("methods", "--surface", "aun")}
        assert "aun" not in listed["task.create"]["wire"]
        assert listed["task.create"]["off"] == {"aun": ["task.create"]}
        assert "off" not in listed["meta.ping"]

        def states(*line: str) -> dict[str, str]:
            rows = [row.split() for row in node.run("methods", *line).stdout.splitlines()[1:]]
            return {row[0]: " ".join(row[1:4]) for row in rows}

        assert states("--surface", "aun")["task.create"].startswith("off ")
        assert not states("--surface", "aun")["task.create"].startswith("off in")
        assert states()["task.create"] == "off in aun"
        assert states()["meta.ping"].startswith("on ")


def test_only_what_can_be_off_may_be_named(tmp_path: Path) -> None:
    for word in ("meta", "auth", "nonsense"):
        with pytest.raises(ConfigError) as refused:
            load_config(state_dir=tmp_path, sets=[f"node.off={word}"], environ={})
        assert "collab, debug, event, group" in str(refused.value)
