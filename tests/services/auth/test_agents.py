from __future__ import annotations

from pathlib import Path

import pytest

from edge.contract.errors import InvalidParams, NotPermitted, RegistrationClosed, TokenExpired
from edge.contract.principal import AGENT_SCOPES, Kind, Principal
from edge.contract.time import SECOND
from edge.store import devices
from tests.support.clock import FakeClock
from tests.support.identity import ISSUER, OWNER, Agent, Desk, desk, new_key


def create(aid: str, key: str = "alice") -> dict[str, str]:
    return {"aid": aid, "public_key": Agent(aid, new_key(key)).public, "curve": "P-256"}


async def reserve(made: Desk, name: str = "alice") -> None:
    await made.result("agent.add", {"name": name}, OWNER, surface="edge")


async def test_adding_reserves_the_name_and_shows_the_token_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        added = await made.result("agent.add", {"name": "alice"}, OWNER, surface="edge")
        assert (added.name, added.aid, added.registered, added.minutes) == ("alice", f"alice.{ISSUER}", False, 60)
        assert added.token.startswith("aet_")
        assert len(added.token) == 4 + 43
        (line,) = await made.result("agent.list", {}, OWNER, surface="edge")
        assert (line.state, line.token, line.expires) == ("reserved", f"{added.token[:12]}…", "never")
        stored = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
        assert added.token.encode() not in stored


async def test_a_node_token_is_a_principal_until_it_expires(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        added = await made.result("agent.add", {"name": "alice", "expires_s": 3600}, OWNER, surface="edge")
        assert added.expires.endswith("Z")
        expected = Principal(Kind.AGENT, f"alice.{ISSUER}", AGENT_SCOPES, via="token")
        assert await made.auth.principal(added.token) == expected
        clock.advance(3600 * SECOND)
        assert await made.auth.principal(added.token) == expected
        clock.advance(10 * SECOND)
        with pytest.raises(TokenExpired):
            await made.auth.principal(added.token)


async def test_adding_a_registered_name_makes_a_further_token(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.register("alice")
        added = await made.result("agent.add", {"name": f"alice.{ISSUER}"}, OWNER, surface="edge")
        assert (added.registered, added.minutes) == (True, 0)
        (line,) = await made.result("agent.list", {}, OWNER, surface="edge")
        assert line.state == "registered"
        assert line.token.count("aet_") == 2
        assert line.certificate.endswith("Z")


@pytest.mark.limit("agent.tokens_per_name")
async def test_tokens_of_one_name_are_limited(tmp_path: Path) -> None:
    async with desk(tmp_path, limits={"agent.tokens_per_name": 2}) as made:
        await reserve(made)
        await reserve(made)
        with pytest.raises(Exception, match=r"agent\.tokens_per_name: over 2 tokens"):
            await reserve(made)
        await reserve(made, "bobby")
        assert made.limits.hits == {"agent.tokens_per_name": 1}


async def test_revoking_ends_certificates_tokens_and_connections(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        tokens = await made.login(alice)
        added = await made.result("agent.add", {"name": "alice"}, OWNER, surface="edge")
        await made.auth.principal(tokens.access_token)
        ended = await made.result("agent.revoke", {"name": "alice"}, OWNER, surface="edge")
        assert (ended.certificates, ended.connections) == (1, 1)
        assert made.seats.expelled == [(alice.aid, 4003, "revoked")]
        for token in (tokens.access_token, added.token):
            with pytest.raises(Exception, match="token invalid"):
                await made.auth.principal(token)
        refreshed = await made.result("auth.refresh_token", {"refresh_token": tokens.refresh_token})
        assert refreshed.relogin_required
        with pytest.raises(Exception, match="revoked"):
            await made.first(alice)
        (line,) = await made.result("agent.list", {}, OWNER, surface="edge")
        assert line.state == "revoked"


async def test_a_revoked_name_can_be_given_out_again(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        old = await made.register("alice")
        await made.ask("agent.revoke", {"name": "alice"}, OWNER, surface="edge")
        with pytest.raises(RegistrationClosed):
            await made.ask("auth.create_aid", create(old.aid, "second"))
        await reserve(made)
        again = await made.result("auth.create_aid", create(old.aid, "second"))
        new = Agent(old.aid, new_key("second"), again.cert)
        assert (await made.login(new)).aid == old.aid
        with pytest.raises(Exception, match="revoked"):
            await made.first(old)


async def test_revoking_takes_grants_back_even_of_a_name_that_nobody_has(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        for name in ("alice", "ghost"):
            await made.store.commit(lambda unit, name=name: devices.grant(unit, "hall.lock", f"{name}.{ISSUER}"))
        await reserve(made)
        for name in ("alice", "ghost"):
            await made.ask("agent.revoke", {"name": name}, OWNER, surface="edge")
        assert await made.store.read(devices.grants) == []


async def test_revoking_nobody_is_told(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        with pytest.raises(Exception, match="no agent nobody"):
            await made.ask("agent.revoke", {"name": "nobody"}, OWNER, surface="edge")
        with pytest.raises(InvalidParams, match="not of this node"):
            await made.ask("agent.revoke", {"name": "bob.aid.pub"}, OWNER, surface="edge")
        await reserve(made)
        await made.ask("agent.revoke", {"name": "alice"}, OWNER, surface="edge")
        assert await made.result("agent.list", {}, OWNER, surface="edge") == []


@pytest.mark.parametrize("params", [{"name": "auth"}, {"name": "ab"}, {"name": "alice", "expires_s": -1}])
async def test_a_bad_name_or_time_is_refused(tmp_path: Path, params: dict[str, object]) -> None:
    async with desk(tmp_path) as made:
        with pytest.raises(InvalidParams):
            await made.ask("agent.add", params, OWNER, surface="edge")


async def test_an_agent_may_not_add_agents(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        who = Principal(Kind.AGENT, f"alice.{ISSUER}", AGENT_SCOPES)
        with pytest.raises(NotPermitted):
            await made.ask("agent.add", {"name": "bobby"}, who, surface="edge")
