from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from edge.contract.errors import NotAuthenticated
from edge.contract.principal import AGENT_SCOPES, Kind, Principal
from edge.contract.time import SECOND
from edge.protocol.urls import Names
from tests.support.clock import EPOCH_US, FakeClock
from tests.support.identity import ISSUER, desk

ALICE = Principal(Kind.AGENT, f"alice.{ISSUER}", AGENT_SCOPES, via="aun")


@pytest.mark.seed("S0-070")
async def test_a_ping_is_answered_with_our_time_to_anybody(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        clock.advance_to(9 * SECOND)
        found = await made.result("meta.ping", {"timestamp": 7, "target": "x"})
        assert msgspec.to_builtins(found) == {"pong": True, "timestamp": EPOCH_US // SECOND + 9}


@pytest.mark.seed("S0-071")
async def test_status_says_who_the_connection_is_and_since_when(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        found = await made.result("meta.status", {}, ALICE, since_ms=1_750_000_000_123)
        assert msgspec.to_builtins(found) == {
            "mode": "gateway",
            "aid": ALICE.aid,
            "role": "user",
            "connected_at": 1_750_000_000_123,
            "protocol_version": "1.0",
        }
        with pytest.raises(NotAuthenticated):
            await made.ask("meta.status")


async def test_discovery_names_the_gateway_by_how_it_was_reached(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        asked = {"base": "http://127.0.0.1:9010", "address": "127.0.0.1"}
        found = await made.result("meta.gateways", asked, surface="http")
        assert msgspec.to_builtins(found) == {"gateways": [{"url": "ws://127.0.0.1:9010/aun", "priority": 1}]}
        made.names = Names(issuer=ISSUER, public=("https://a.example", "https://b.example"))
        found = await made.result("meta.gateways", asked, surface="http")
        assert [(one.url, one.priority) for one in found.gateways] == [
            ("wss://a.example/aun", 1),
            ("wss://b.example/aun", 2),
        ]
