from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.node import RpcError, agent, running


async def ask(tmp_path: Path, *params: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    async with running(tmp_path / "state") as node:
        alice = await agent(node, "alice")
        async with alice.connected() as wire:
            for one in params:
                try:
                    found.append(await wire.call("debug.diag", one))
                except RpcError as error:
                    found.append(error.code)
            found.append((await wire.call("message.pull"))["messages"])
    return found


async def test_a_dry_run_looks_and_does_nothing(tmp_path: Path) -> None:
    message = {"to": "alice.edge.test", "payload": {"type": "text", "text": "echo"}}
    listed, looked, wrong, unknown, real, empty, inbox = await ask(
        tmp_path,
        {"dry_run": True, "action": "list"},
        {"dry_run": True, "method": "message.send", "params": message},
        {"dry_run": True, "method": "message.send", "params": {"to": 7}},
        {"dry_run": True, "method": "no.such"},
        {"dry_run": False, "method": "message.send", "params": message},
        {"dry_run": True},
    )
    assert listed == {**listed, "dry_run": True, "executed": False}
    assert {"message.send", "meta.ping", "push.register", "debug.diag"} <= set(listed["methods"])
    assert (looked["method"], looked["executed"]) == ("message.send", False)
    assert [stage["status"] for stage in looked["stages"]] == ["passed"] * 3
    assert (wrong["status"], wrong["stages"][-1]["stage"]) == ("skipped", "params")
    assert "`$.to`" in wrong["reason"]
    assert (unknown, real, empty) == (-32601, -32602, -32602)
    assert not [name for name in listed["methods"] if "/" in name]
    assert inbox == []


async def test_there_is_no_service_proxy_and_it_is_said(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        alice = await agent(node, "alice")
        async with alice.connected() as wire:
            assert await wire.call("proxy.list_services", {"provider_aid": alice.aid}) == {"services": []}
            for name in ("proxy.register_services", "proxy.unregister_services"):
                with pytest.raises(RpcError) as refused:
                    await wire.call(name, {"services": [{"service_name": "x"}]})
                assert refused.value.code == -32601
                assert "no service proxy" in refused.value.message
