"""What a group shows at the doors of a whole node: the private-looking key of its creation, the headers of its card."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from edge.protocol import keys
from tests.support.http import request
from tests.support.identity import new_key
from tests.support.node import RpcError, agent, running

NONE: dict[str, Any] = {}
CHECK: dict[str, Any] = {"x_aun_ownership_check": "1"}


@pytest.mark.seed("S0-160")
async def test_a_creation_repeated_over_the_wire_and_after_a_restart_is_one_group(tmp_path: Path) -> None:
    """The codec drops params that begin with an underscore, but not this one."""
    key = "anon:" + hashlib.sha256(b"Team|private").hexdigest()
    asked = {"name": "Team", "_create_request_id": key, "_other": "dropped"}
    async with running(tmp_path / "state") as node:
        alice = await agent(node, "alice")
        async with alice.connected() as wire:
            first = await wire.call("group.create", asked)
            assert await wire.call("group.create", asked) == first
            other = await wire.call("group.create", {**asked, "_create_request_id": key + "0"})
            assert other["group_id"] != first["group_id"]
    async with running(tmp_path / "state") as node:
        alice.node = node
        await alice.login()
        async with alice.connected() as wire:
            assert (await wire.call("group.create", asked))["group_id"] == first["group_id"]
            assert (await wire.call("group.list_my"))["total"] == 2


@pytest.mark.seed("S0-143")
async def test_a_client_that_cannot_encrypt_for_groups_is_told_so_by_number(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        alice, bob = await agent(node, "alice"), await agent(node, "bobby")
        async with alice.connected() as wire:
            made = await wire.call(
                "group.create", {"name": "Sealed", "join_mode": "open", "metadata": {"e2ee": "required"}}
            )
            asked = {"group_id": made["group_id"]}
        async with bob.connected(capabilities={"group_e2ee": False}) as wire:
            with pytest.raises(RpcError) as refused:
                await wire.call("group.request_join", asked)
            assert refused.value.code == -32604
        async with bob.connected(capabilities={"group_e2ee": True}) as wire:
            assert (await wire.call("group.request_join", asked))["status"] == "joined"


async def test_the_card_of_a_certified_group_says_whose_it_is_to_those_who_ask(tmp_path: Path) -> None:
    public = base64.b64encode(keys.spki_of(new_key("team").public_key())).decode()
    async with running(tmp_path / "state") as node:
        alice, url = await agent(node, "alice"), node.endpoints["http"]
        async with alice.connected() as wire:
            made = await wire.call("group.create", {"name": "Team", "group_name": "porchteam", "public_key": public})
            plain = await wire.call("group.create", {"name": "Plain"})
        gid = made["group_id"]
        leaf = x509.load_pem_x509_certificate(made["aid_cert"]["cert"].encode())
        digest = hashlib.sha256(leaf.public_bytes(Encoding.DER)).hexdigest()
        found = await request(url, "/agent.md", "HEAD", host=gid, **CHECK)
        assert found.status == 404  # no card yet, and its owner is known all the same
        assert {name: value for name, value in found.headers.items() if name.startswith(("x-aun-e", "x-aun-o"))} == {
            "x-aun-entity-owner-aid": alice.aid,
            "x-aun-entity-cert-fingerprint": f"sha256:{digest}",
            "x-aun-entity-verification-status": "current",
            "x-aun-ownership-status": "not_applicable",
        }
        for host, headers in ((gid, NONE), (gid, {"x_aun_ownership_check": "0"}), (plain["group_id"], CHECK)):
            found = await request(url, "/agent.md", host=host, **headers)
            assert not [name for name in found.headers if name.startswith("x-aun-entity")], host
        async with alice.connected() as wire:
            await wire.call("group.dissolve", {"group_id": gid})
            with pytest.raises(RpcError):
                await wire.call("group.get_members", {"group_id": gid})
        found = await request(url, "/agent.md", host=gid, **CHECK)
        assert "x-aun-entity-owner-aid" not in found.headers
