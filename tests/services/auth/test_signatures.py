from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import SignatureInvalid
from edge.contract.principal import AGENT_SCOPES, Kind, Principal
from edge.contract.time import SECOND
from edge.contract.wire import canonical, dumps
from edge.protocol import keys
from tests.support.clock import EPOCH_US, FakeClock
from tests.support.identity import OWNER, Agent, Desk, desk, new_key

PARAMS: dict[str, Any] = {"to": "bob.edge.test", "payload": {"text": "hé", "n": [1.0, 2, 1e15, 1e-7, -0.5]}, "z": None}
NOW_S = EPOCH_US // SECOND + 1


def sign(agent: Agent, params: dict[str, Any], method: str = "message.send", at_s: int = NOW_S) -> dict[str, Any]:
    hashed = {name: value for name, value in params.items() if not name.startswith("_")}
    digest = hashlib.sha256(canonical(hashed)).hexdigest()
    return {
        "aid": agent.aid,
        "cert_fingerprint": f"sha256:{keys.sha256(keys.der_of(agent.cert))}",
        "timestamp": str(at_s),
        "params_hash": digest,
        "signature": agent.sign(f"{method}|{agent.aid}|{at_s}|{digest}"),
    }


async def check(made: Desk, agent: Agent, params: dict[str, Any], method: str = "message.send") -> None:
    who = Principal(Kind.AGENT, agent.aid, AGENT_SCOPES)
    await made.auth.signatures.check(method, dumps(params), who)


async def test_a_good_signature_and_none_at_all_pass(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        signed = {**PARAMS, "client_signature": sign(alice, PARAMS)}
        for _ in range(2):
            await check(made, alice, signed)
        await check(made, alice, PARAMS)
        await check(made, alice, {"payload": {"client_signature": "mine"}})
        await check(made, alice, {**signed, "_trace": {"mode": "log"}})


async def test_a_bad_signature_is_refused(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice, bobby = await made.register("alice"), await made.register("bobby")
        good = sign(alice, PARAMS)
        bad: list[dict[str, Any]] = [
            {**PARAMS, "to": "eve.edge.test", "client_signature": good},
            {**PARAMS, "client_signature": {**good, "aid": bobby.aid}},
            {**PARAMS, "client_signature": {**good, "signature": sign(bobby, PARAMS)["signature"]}},
            {**PARAMS, "client_signature": {**good, "cert_fingerprint": sign(bobby, PARAMS)["cert_fingerprint"]}},
            {**PARAMS, "client_signature": {**good, "cert_fingerprint": ""}},
            {**PARAMS, "client_signature": {**good, "timestamp": "soon"}},
            {**PARAMS, "client_signature": {**good, "timestamp": str(NOW_S + 1)}},
            {**PARAMS, "client_signature": "yes"},
            {**PARAMS, "client_signature": {"aid": alice.aid}},
        ]
        for params in bad:
            with pytest.raises(SignatureInvalid):
                await check(made, alice, params)
        with pytest.raises(SignatureInvalid):
            await check(made, alice, {**PARAMS, "client_signature": good}, "message.recall")


@pytest.mark.limit("auth.signature_skew_s")
async def test_a_signature_must_be_recent_as_far_as_we_know(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        alice = await made.register("alice")
        for at_s in (NOW_S - 300, NOW_S + 300):
            await check(made, alice, {**PARAMS, "client_signature": sign(alice, PARAMS, at_s=at_s)})
        old = {**PARAMS, "client_signature": sign(alice, PARAMS, at_s=NOW_S - 301)}
        with pytest.raises(SignatureInvalid, match="clock"):
            await check(made, alice, old)
        assert made.limits.hits == {"auth.signature_skew_s": 1}
        clock.uncertainty_us = 10**15
        await check(made, alice, old)


async def test_a_replaced_or_revoked_key_no_longer_signs(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        signed = {**PARAMS, "client_signature": sign(alice, PARAMS)}
        await check(made, alice, signed)
        fresh = Agent(alice.aid, new_key("fresh"))
        first = await made.first(alice)
        asked = {"aid": alice.aid, "request_id": first.request_id, "nonce": first.nonce}
        proof = {"new_public_key": fresh.public, "signature": alice.sign(first.nonce + fresh.public)}
        fresh.cert = (await made.result("auth.rekey", {**asked, **proof})).cert
        with pytest.raises(SignatureInvalid, match="replaced"):
            await check(made, alice, signed)
        again = {**PARAMS, "client_signature": sign(fresh, PARAMS)}
        await check(made, fresh, again)
        await made.ask("agent.revoke", {"name": "alice"}, OWNER, surface="edge")
        with pytest.raises(SignatureInvalid, match="no certificate"):
            await check(made, fresh, again)


async def test_a_certificate_that_a_restore_forgot_signs_by_its_key(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        now_us, _ = made.clock.wall(made.clock.now())
        alice.cert = made.identity.issue(alice.aid, alice.spki, now_us, 0).pem
        good = sign(alice, PARAMS)
        await check(made, alice, {**PARAMS, "client_signature": good})
        thief = Agent(alice.aid, new_key("thief"), alice.cert)
        with pytest.raises(SignatureInvalid):
            await check(made, alice, {**PARAMS, "client_signature": sign(thief, PARAMS)})
        await made.ask("agent.revoke", {"name": "alice"}, OWNER, surface="edge")
        with pytest.raises(SignatureInvalid, match="no certificate"):
            await check(made, alice, {**PARAMS, "client_signature": good})


@pytest.mark.limit("auth.cached_signers")
async def test_remembered_signers_are_limited(tmp_path: Path) -> None:
    async with desk(tmp_path, limits={"auth.cached_signers": 1}) as made:
        alice, bobby = await made.register("alice"), await made.register("bobby")
        for agent in (alice, bobby, alice):
            await check(made, agent, {**PARAMS, "client_signature": sign(agent, PARAMS)})
        assert made.limits.hits == {"auth.cached_signers": 2}
