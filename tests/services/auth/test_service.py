from __future__ import annotations

import asyncio
import base64
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.contract.errors import (
    CertificateInvalid,
    EdgeError,
    InvalidParams,
    NonceInvalid,
    NotAuthenticated,
    NotFound,
    ProtocolVersion,
    RateLimited,
    SignatureInvalid,
    TokenExpired,
    TooLarge,
)
from edge.contract.op import Outcome
from edge.contract.principal import AGENT_SCOPES, Kind, Principal
from edge.contract.time import SECOND
from edge.contract.wire import loads
from edge.protocol import keys, pki
from edge.store import identity as tables
from tests.support.clock import FakeClock
from tests.support.identity import ISSUER, NONCE, OWNER, Agent, Desk, desk, new_key

DAY = 86_400 * SECOND


async def connect(made: Desk, token: str, **more: Any) -> Outcome:
    params = {"nonce": NONCE, "auth": {"method": "kite_token", "token": token}, **more}
    return await made.ask("auth.connect", params)


# -- login ------------------------------------------------------------------------------------------------------------


@pytest.mark.seed("S0-166")
async def test_a_login_proves_both_sides_and_gives_tokens(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        first = await made.first(alice)
        (auth,) = pki.parse(first.auth_cert)
        auth.verify_directly_issued_by(pki.parse(made.identity.issuer_pem)[0])
        keys.verify(keys.spki_of(auth.public_key()), b"Y2xpZW50", first.client_nonce_signature)  # type: ignore[arg-type]
        tokens = await made.result("auth.aid_login2", alice.proof(first))
        assert tokens.token == tokens.access_token
        assert (tokens.aid, tokens.expires_in, tokens.success, tokens.new_cert) == (alice.aid, 3600, True, "")
        assert (await made.auth.principal(tokens.access_token)).aid == alice.aid


@pytest.mark.parametrize("client_time", ["1795150236.070368", "1750000000", 1750000000, 1750000000.5, ""])
async def test_the_signed_time_is_taken_as_it_was_sent(tmp_path: Path, client_time: object) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        proof = alice.proof(await made.first(alice), client_time)
        assert (await made.result("auth.aid_login2", proof)).aid == alice.aid


@pytest.mark.parametrize("client_time", [True, None, [1], {"a": 1}])
async def test_a_time_of_another_type_is_refused(tmp_path: Path, client_time: object) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        with pytest.raises(InvalidParams):
            await made.ask("auth.aid_login2", alice.proof(await made.first(alice), client_time))


async def test_both_halves_may_come_on_different_sockets(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        first = await made.result(
            "auth.aid_login1",
            {"aid": alice.aid, "cert": alice.cert, "client_nonce": "x"},
            channel="c7",
            nonce="one",
            address="192.0.2.1",
        )
        assert (await made.result("auth.aid_login2", alice.proof(first), channel="c8", nonce="two")).aid == alice.aid


async def test_an_unknown_aid_is_told_that_it_is_not_registered(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        with pytest.raises(NotAuthenticated, match="not registered"):
            await made.first(Agent(f"nobody.{ISSUER}", alice.key, alice.cert))


async def test_another_nodes_certificate_does_not_log_in(tmp_path: Path) -> None:
    async with desk(tmp_path / "a") as made, desk(tmp_path / "b") as other:
        alice, double = await made.register("alice"), await other.register("alice")
        assert double.cert != alice.cert
        with pytest.raises(CertificateInvalid, match="not the registered one"):
            await made.first(double)
        service = Agent(f"auth.{ISSUER}", alice.key, made.identity.auth.pem)
        with pytest.raises(NotAuthenticated, match="not registered"):
            await made.first(service)


@pytest.mark.parametrize("nonce", ["", "x" * 257])
async def test_a_client_nonce_must_be_there_and_short(tmp_path: Path, nonce: str) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        with pytest.raises(InvalidParams):
            await made.ask("auth.aid_login1", {"aid": alice.aid, "cert": alice.cert, "client_nonce": nonce})


async def test_a_wrong_signature_is_refused_and_uses_the_nonce_up(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        first = await made.first(alice)
        proof = alice.proof(first)
        with pytest.raises(SignatureInvalid):
            await made.ask("auth.aid_login2", {**proof, "client_time": "2"})
        with pytest.raises(NonceInvalid):
            await made.ask("auth.aid_login2", proof)


async def test_a_nonce_is_good_once_for_a_minute_and_for_its_aid(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        alice, bobby = await made.register("alice"), await made.register("bobby")
        proof = alice.proof(await made.first(alice))
        await made.ask("auth.aid_login2", proof)
        with pytest.raises(NonceInvalid):
            await made.ask("auth.aid_login2", proof)
        stale = await made.first(alice)
        clock.advance(60 * SECOND)
        with pytest.raises(NonceInvalid):
            await made.ask("auth.aid_login2", alice.proof(stale))
        theirs = await made.first(bobby)
        with pytest.raises(NonceInvalid):
            await made.ask("auth.aid_login2", alice.proof(theirs))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cert=st.text(max_size=200) | st.just("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"))
async def test_whatever_comes_as_a_certificate_is_refused_by_name(tmp_path_factory: Any, cert: str) -> None:
    async with desk(tmp_path_factory.mktemp("desk")) as made:
        alice = await made.register("alice")
        with pytest.raises(EdgeError):
            await made.ask("auth.aid_login1", {"aid": alice.aid, "cert": cert, "client_nonce": "x"})


@pytest.mark.limit("auth.logins_per_aid")
async def test_the_least_used_login_of_an_aid_ends_when_there_are_too_many(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock, limits={"auth.logins_per_aid": 2}) as made:
        alice, tokens = await made.register("alice"), []
        for _ in range(3):
            clock.advance(SECOND)
            tokens.append(await made.login(alice))
        answers = [
            (await made.result("auth.refresh_token", {"refresh_token": one.refresh_token})).success for one in tokens
        ]
        assert answers == [False, True, True]
        assert made.limits.hits == {"auth.logins_per_aid": 1}


# -- access and refresh tokens ----------------------------------------------------------------------------------------


async def test_tokens_survive_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        alice = await made.register("alice")
        tokens = await made.login(alice)
    async with desk(tmp_path, clock) as made:
        assert (await connect(made, tokens.access_token)).become is not None
        assert (await made.result("auth.refresh_token", {"refresh_token": tokens.refresh_token})).success


async def test_refreshing_turns_the_token_and_counts(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        token = (await made.login(alice)).refresh_token
        for count in (1, 2):
            params = {"refresh_token": token, "aid": alice.aid, "device_id": "d", "slot_id": "s", "sdk_lang": "python"}
            found = await made.result("auth.refresh_token", params)
            assert (found.success, found.aid, found.refresh_count, found.expires_in) == (True, alice.aid, count, 3600)
            assert (await made.auth.principal(found.access_token)).aid == alice.aid
            assert found.refresh_token != token
            token = found.refresh_token


async def test_a_lost_answer_can_be_asked_for_again_for_a_short_while(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        old = (await made.login(await made.register("alice"))).refresh_token
        lost = await made.result("auth.refresh_token", {"refresh_token": old})
        clock.advance(120 * SECOND)
        again = await made.result("auth.refresh_token", {"refresh_token": old})
        assert again.success
        assert not (await made.result("auth.refresh_token", {"refresh_token": lost.refresh_token})).success
        clock.advance(121 * SECOND)
        assert not (await made.result("auth.refresh_token", {"refresh_token": old})).success
        assert (await made.result("auth.refresh_token", {"refresh_token": again.refresh_token})).success


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({}, "missing refresh_token"),
        ({"refresh_token": "art_unknown"}, "invalid_or_expired_refresh_token"),
        ({"refresh_token": "other"}, "invalid_or_expired_refresh_token"),
        ({"refresh_token": "art_" + "x" * 300}, "invalid_or_expired_refresh_token"),
    ],
)
async def test_a_refresh_that_fails_is_a_result_that_sends_to_login(
    tmp_path: Path, params: dict[str, str], error: str
) -> None:
    async with desk(tmp_path) as made:
        found = await made.result("auth.refresh_token", params)
        assert (found.success, found.relogin_required, found.retryable, found.error) == (False, True, False, error)


async def test_a_refresh_token_is_good_for_its_own_aid_only(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        token = (await made.login(await made.register("alice"))).refresh_token
        found = await made.result("auth.refresh_token", {"refresh_token": token, "aid": f"bobby.{ISSUER}"})
        assert not found.success
        assert (await made.result("auth.refresh_token", {"refresh_token": token})).success


@pytest.mark.limit("auth.refresh_days")
async def test_a_login_must_be_repeated_after_some_days(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock, limits={"auth.refresh_days": 2}) as made:
        token = (await made.login(await made.register("alice"))).refresh_token
        clock.advance(2 * DAY)
        token = (await made.result("auth.refresh_token", {"refresh_token": token})).refresh_token
        clock.advance(1)
        assert not (await made.result("auth.refresh_token", {"refresh_token": token})).success
        assert made.limits.hits == {"auth.refresh_days": 1}


@pytest.mark.limit("auth.refresh_turns")
async def test_a_login_must_be_repeated_after_some_refreshes(tmp_path: Path) -> None:
    async with desk(tmp_path, limits={"auth.refresh_turns": 2}) as made:
        token = (await made.login(await made.register("alice"))).refresh_token
        for success in (True, True, False):
            found = await made.result("auth.refresh_token", {"refresh_token": token})
            assert found.success is success
            token = found.refresh_token
        assert made.limits.hits == {"auth.refresh_turns": 1}


# -- certificates -----------------------------------------------------------------------------------------------------


async def test_renewing_keeps_the_key_and_the_old_certificate_readable(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        alice = await made.register("alice")
        clock.advance(DAY)
        first = await made.first(alice)
        asked = {"aid": alice.aid, "request_id": first.request_id, "nonce": first.nonce}
        renewed = await made.result("auth.renew_cert", {**asked, "signature": alice.sign(first.nonce)})
        assert renewed.status == "renewed"
        old, new = pki.parse(alice.cert + renewed.cert)
        assert old.public_key() == new.public_key()
        assert old.serial_number != new.serial_number
        assert (await made.result("ca.get_cert", {"aid": alice.aid})).cert == renewed.cert
        by_print = await made.result(
            "ca.get_cert", {"aid": alice.aid, "cert_fingerprint": keys.sha256(keys.der_of(alice.cert))}
        )
        assert (by_print.cert, by_print.state) == (alice.cert, "verify_only")
        assert (await made.login(alice)).aid == alice.aid
        with pytest.raises(NonceInvalid):
            await made.ask("auth.renew_cert", {**asked, "signature": alice.sign(first.nonce)})


async def test_rekeying_moves_the_name_to_a_new_key(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        old = await made.register("alice")
        tokens = await made.login(old)
        new = Agent(old.aid, new_key("alice-2"))
        first = await made.first(old)
        answer = await made.result(
            "auth.rekey",
            {
                "aid": old.aid,
                "request_id": first.request_id,
                "nonce": first.nonce,
                "new_public_key": new.public,
                "signature": old.sign(first.nonce + new.public),
            },
        )
        assert answer.status == "rekeyed"
        new.cert = answer.cert
        assert (await made.login(new)).aid == old.aid
        with pytest.raises(CertificateInvalid, match="not the registered one"):
            await made.first(old)
        assert (await made.auth.principal(tokens.access_token)).aid == old.aid
        assert not (await made.result("auth.refresh_token", {"refresh_token": tokens.refresh_token})).success
        entries = await made.store.read(lambda unit: tables.ct_entries(unit, 0, 9))
        assert [loads(entry.entry)["operation"] for entry in entries[1:]] == ["agent_cert_issue", "agent_cert_rekey"]


async def test_of_two_changes_of_one_key_at_once_the_first_wins(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        old = await made.register("alice")
        one, two, three = [await made.first(old) for _ in range(3)]

        def rekey(first: Any, key: str) -> dict[str, str]:
            public = Agent(old.aid, new_key(key)).public
            asked = {"aid": old.aid, "request_id": first.request_id, "nonce": first.nonce, "new_public_key": public}
            return {**asked, "signature": old.sign(first.nonce + public)}

        renew = {"aid": old.aid, "request_id": three.request_id, "nonce": three.nonce}
        found = await asyncio.gather(
            made.result("auth.rekey", rekey(one, "first")),
            made.result("auth.rekey", rekey(two, "second")),
            made.result("auth.renew_cert", {**renew, "signature": old.sign(three.nonce)}),
            return_exceptions=True,
        )
        assert sum(isinstance(one, CertificateInvalid) for one in found) in (1, 2)
        known = await made.store.read(lambda unit: tables.aid(unit, old.aid))
        current = await made.store.read(lambda unit: tables.current(unit, old.aid))
        assert known is not None
        assert current is not None
        assert current.spki_sha256 == keys.sha256(known.spki)


async def test_a_rekey_must_be_signed_over_the_new_key(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        old, thief = await made.register("alice"), Agent("x", new_key("thief"))
        first = await made.first(old)
        asked = {"aid": old.aid, "request_id": first.request_id, "nonce": first.nonce}
        with pytest.raises(SignatureInvalid):
            await made.ask("auth.rekey", {**asked, "new_public_key": thief.public, "signature": old.sign(first.nonce)})


async def test_a_login_past_half_of_the_certificates_life_renews_it(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        alice = await made.register("alice")
        clock.advance(364 * DAY)
        assert (await made.login(alice)).new_cert == ""
        clock.advance(2 * DAY)
        renewed = (await made.login(alice)).new_cert
        assert pki.parse(renewed)[0].serial_number != pki.parse(alice.cert)[0].serial_number
        alice.cert = renewed
        assert (await made.login(alice)).new_cert == ""


async def test_an_expired_certificate_renews_for_ninety_days_but_does_not_log_in(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        alice = await made.register("alice")
        clock.advance((730 + 89) * DAY)
        first = await made.first(alice)
        with pytest.raises(CertificateInvalid, match="renew"):
            await made.ask("auth.aid_login2", alice.proof(first))
        clock.advance(2 * DAY)
        with pytest.raises(CertificateInvalid, match="90 days"):
            await made.first(alice)


async def test_a_certificate_made_without_the_time_is_replaced_at_the_first_login_with_it(tmp_path: Path) -> None:
    clock = FakeClock()
    clock.uncertainty_us = 10**15
    async with desk(tmp_path, clock) as made:
        alice = await made.register("alice")
        assert (await made.login(alice)).new_cert == ""
        clock.uncertainty_us = 0
        assert (await made.login(alice)).new_cert


def forgotten(made: Desk, agent: Agent, aid: str = "") -> Agent:
    """A client with a certificate of this issuer that stands in no table, as after a restore."""
    now_us, _ = made.clock.wall(made.clock.now())
    return Agent(agent.aid, agent.key, made.identity.issue(aid or agent.aid, agent.spki, now_us, 0).pem)


async def operations(made: Desk) -> list[str]:
    entries = await made.store.read(lambda unit: tables.ct_entries(unit, 0, 99))
    return [loads(entry.entry)["operation"] for entry in entries[1:]]


async def test_a_certificate_that_a_restore_forgot_logs_in_and_is_known_again(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = forgotten(made, await made.register("alice"))
        for _ in range(2):
            assert (await made.login(alice)).new_cert == ""
            assert await operations(made) == ["agent_cert_issue", "agent_cert_renew"]
        asked = {"aid": alice.aid, "cert_fingerprint": keys.sha256(keys.der_of(alice.cert))}
        assert (await made.result("ca.get_cert", asked)).cert == alice.cert
        assert (await made.result("ca.get_cert", {"aid": alice.aid})).cert == alice.cert

        alice = forgotten(made, alice)
        first = await made.first(alice)
        asked = {"aid": alice.aid, "request_id": first.request_id, "nonce": first.nonce}
        alice.cert = (await made.result("auth.renew_cert", {**asked, "signature": alice.sign(first.nonce)})).cert
        assert (await operations(made))[2:] == ["agent_cert_renew", "agent_cert_renew"]
        assert (await made.login(alice)).new_cert == ""

        alice, fresh = forgotten(made, alice), Agent(alice.aid, new_key("alice-2"))
        first = await made.first(alice)
        asked = {"aid": alice.aid, "request_id": first.request_id, "nonce": first.nonce}
        asked |= {"new_public_key": fresh.public, "signature": alice.sign(first.nonce + fresh.public)}
        fresh.cert = (await made.result("auth.rekey", asked)).cert
        assert (await made.login(fresh)).new_cert == ""


async def test_a_forgotten_certificate_proves_nothing_without_the_present_key(tmp_path: Path) -> None:
    async with desk(tmp_path / "a") as made, desk(tmp_path / "b") as other:
        alice, bobby = await made.register("alice"), await made.register("bobby")
        thief = Agent(alice.aid, new_key("thief"))
        bad = [forgotten(made, thief), forgotten(made, alice, bobby.aid), forgotten(other, alice)]
        for one in (*bad, forgotten(made, bobby, alice.aid)):
            with pytest.raises(CertificateInvalid, match=f"not the registered one of {one.aid}"):
                await made.first(one)
        shown = forgotten(made, alice)
        first = await made.first(shown)
        with pytest.raises(SignatureInvalid):
            await made.ask("auth.aid_login2", Agent(alice.aid, thief.key).proof(first))
        assert await operations(made) == ["agent_cert_issue"] * 2
        await made.ask("agent.revoke", {"name": "alice"}, OWNER, surface="edge")
        with pytest.raises(CertificateInvalid, match="revoked"):
            await made.first(shown)


async def test_a_name_that_is_let_in_again_is_free_for_its_next_key(tmp_path: Path) -> None:
    """Clients take a certificate at the name for somebody else's registration; by fingerprint it stays."""
    async with desk(tmp_path) as made:
        old = await made.register("alice")
        await made.ask("agent.revoke", {"name": "alice"}, OWNER, surface="edge")
        with pytest.raises(NotFound):
            await made.ask("ca.get_cert", {"aid": old.aid})
        by_print = {"aid": old.aid, "cert_fingerprint": keys.sha256(keys.der_of(old.cert))}
        assert (await made.result("ca.get_cert", by_print)).state == "revoked"
        await made.result("agent.add", {"name": "alice"}, OWNER, surface="edge")
        new = Agent(old.aid, new_key("alice-2"))
        new.cert = (await made.result("auth.create_aid", {"aid": new.aid, "public_key": new.public})).cert
        assert (await made.result("ca.get_cert", {"aid": new.aid})).cert == new.cert
        assert (await made.login(new)).aid == new.aid


async def test_a_further_certificate_on_another_curve_leaves_the_first(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        who = Principal(Kind.AGENT, alice.aid, AGENT_SCOPES)
        key = keys.generate("P-384")
        public = base64.b64encode(keys.spki_of(key.public_key())).decode()
        params = {"aid": alice.aid, "public_key": public, "curve": "P-384"}
        found = await made.result("auth.request_cert", params, who)
        assert (found.status, found.curve) == ("issued", "P-384")
        assert (await made.result("ca.get_cert", {"aid": alice.aid})).cert == alice.cert
        assert (await made.login(alice)).aid == alice.aid
        for bad in ({"aid": f"bobby.{ISSUER}"}, {"curve": "P-521"}, {"curve": "P-256"}):
            with pytest.raises(InvalidParams):
                await made.ask("auth.request_cert", {**params, **bad}, who)


async def test_certificates_are_downloaded_by_serial_or_as_root(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        serial = pki.serial_of(pki.parse(alice.cert)[0])
        found = await made.result("auth.download_cert", {"cert_sn": f"0x{serial.upper()}"})
        assert (found.cert, found.ca_cert) == (alice.cert, made.identity.issuer_pem)
        assert "".join(found.cert_chain) == made.identity.chain_pem
        assert (await made.result("auth.download_cert", {"cert_sn": "root"})).cert == made.identity.root_pem
        with pytest.raises(NotFound):
            await made.ask("auth.download_cert", {"cert_sn": "12"})


# -- session ----------------------------------------------------------------------------------------------------------


@pytest.mark.seed("S0-166")
async def test_connecting_makes_the_channel_the_agents(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        tokens = await made.login(alice)
        outcome = await connect(
            made,
            tokens.access_token,
            device={"id": "dev-1", "type": "sdk"},
            client={"slot_id": "work/a", "sdk_lang": "python"},
            delivery_mode={"mode": "queue", "routing": "round_robin", "affinity_ttl_ms": 5},
            capabilities={"p2p_peer_pull_v1": True},
            options={"kind": "short", "short_ttl_ms": 900},
            extra_info={"a": 1, "_secret": 2},
        )
        assert outcome.become == Principal(Kind.AGENT, alice.aid, AGENT_SCOPES, "aun", "dev-1", "work")
        found: Any = outcome.result
        assert (found.status, found.protocol, found.authenticated) == ("ok", "1.0", True)
        assert found.capabilities["p2p_peer_pull_v1"] is True
        assert found.connection == {"id": "c1", "device_id": "dev-1", "kind": "short"}
        assert found.identity["aid"] == alice.aid
        hello = loads(outcome.hello)
        assert hello["delivery_mode"] == {"mode": "queue", "routing": "round_robin", "affinity_ttl_ms": 5}
        assert hello["options"] == {"kind": "short", "short_ttl_ms": 900}
        assert (hello["slot"], hello["slot_key"], hello["device"]) == (
            "work/a",
            "work",
            {"id": "dev-1", "type": "sdk"},
        )
        assert hello["capabilities"] == {"p2p_peer_pull_v1": True}
        assert hello["extra_info"] == {"a": 1}


async def test_an_old_client_that_announces_little_connects_by_fanout(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        tokens = await made.login(await made.register("alice"))
        outcome = await connect(made, tokens.access_token, device={"id": "d"}, client={"slot_id": ""})
        hello = loads(outcome.hello)
        assert hello["delivery_mode"] == {"mode": "fanout", "routing": "", "affinity_ttl_ms": 0}
        assert hello["kind"] == "long"
        assert hello["capabilities"] == {}


async def test_a_node_token_connects_too(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        added = await made.result("agent.add", {"name": "alice"}, OWNER, surface="edge")
        outcome = await connect(made, added.token)
        assert outcome.become is not None
        assert outcome.become.aid == f"alice.{ISSUER}"


async def test_a_login_nonce_connects_without_tokens(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        first = await made.first(alice)
        proof = {
            "method": "aid",
            "aid": alice.aid,
            "request_id": first.request_id,
            "nonce": first.nonce,
            "client_time": 1_750_000_000_000,
            "signature": alice.sign(first.nonce),
        }
        outcome = await made.ask("auth.connect", {"nonce": NONCE, "auth": proof})
        assert outcome.become is not None
        assert outcome.become.aid == alice.aid
        with pytest.raises(NonceInvalid):
            await made.ask("auth.connect", {"nonce": NONCE, "auth": proof})


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"nonce": ""}, InvalidParams),
        ({"auth": {}}, InvalidParams),
        ({"auth": {"method": "pairing_code", "code": "1"}}, InvalidParams),
        ({"nonce": "other"}, NonceInvalid),
        ({"auth": {"method": "kite_token", "token": ""}}, NotAuthenticated),
        ({"auth": {"method": "kite_token", "token": "no token"}}, NotAuthenticated),
        ({"auth": {"method": "kite_token", "token": "aet_" + "x" * 43}}, NotAuthenticated),
        ({"auth": {"method": "aid", "aid": f"alice.{ISSUER}"}}, NonceInvalid),
        ({"protocol": {"min": "2.0", "max": "3.0"}}, ProtocolVersion),
        ({"protocol": {"min": "0.1", "max": "0.9"}}, ProtocolVersion),
        ({"protocol": {"min": "one"}}, InvalidParams),
        ({"device": {"id": "a b"}}, InvalidParams),
        ({"device": {"id": "x" * 129}}, InvalidParams),
        ({"client": {"slot_id": "s"}}, InvalidParams),
        ({"device": {"id": "d"}, "client": {"slot_id": "/s"}}, InvalidParams),
        ({"delivery_mode": {"mode": "mail"}}, InvalidParams),
        ({"delivery_mode": {"routing": "best"}}, InvalidParams),
        ({"delivery_mode": {"affinity_ttl_ms": -1}}, InvalidParams),
        ({"delivery_mode": {"affinity_ttl_ms": True}}, InvalidParams),
        ({"options": {"kind": "medium"}}, InvalidParams),
        ({"capabilities": 7}, InvalidParams),
    ],
)
async def test_a_connect_that_fails_leaves_socket_and_nonce_usable(
    tmp_path: Path, changed: dict[str, Any], error: type[Exception]
) -> None:
    async with desk(tmp_path) as made:
        tokens = await made.login(await made.register("alice"))
        good = {"nonce": NONCE, "auth": {"method": "kite_token", "token": tokens.access_token}}
        with pytest.raises(error):
            await made.ask("auth.connect", {**good, **changed})
        assert (await made.ask("auth.connect", good)).become is not None


async def test_a_version_mismatch_names_both_ranges(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        with pytest.raises(ProtocolVersion) as caught:
            await connect(made, "", protocol={"min": "2.0", "max": "2.1"})
        assert caught.value.data == {
            "server_range": {"min": "1.0", "max": "1.0"},
            "client_range": {"min": "2.0", "max": "2.1"},
        }


async def test_a_socket_without_a_challenge_cannot_connect(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        with pytest.raises(NonceInvalid):
            await made.ask("auth.connect", {"nonce": "x", "auth": {"method": "aid"}}, nonce="")


async def test_an_expired_token_is_told_apart(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        tokens = await made.login(await made.register("alice"))
        clock.advance(3607 * SECOND)
        with pytest.raises(TokenExpired):
            await connect(made, tokens.access_token)


@pytest.mark.limit("auth.hello_octets")
async def test_an_announcement_has_a_limit(tmp_path: Path) -> None:
    async with desk(tmp_path, limits={"auth.hello_octets": 500}) as made:
        tokens = await made.login(await made.register("alice"))
        size = len((await connect(made, tokens.access_token, extra_info={"x": ""})).hello)
        assert (await connect(made, tokens.access_token, extra_info={"x": "y" * (500 - size)})).become is not None
        with pytest.raises(TooLarge):
            await connect(made, tokens.access_token, extra_info={"x": "y" * (501 - size)})
        assert made.limits.hits == {"auth.hello_octets": 1}


async def test_failed_proofs_close_the_door_for_an_address_only(tmp_path: Path) -> None:
    async with desk(tmp_path, limits={"auth.failures_per_minute": 2}) as made:
        alice = await made.register("alice")
        for _ in range(2):
            with pytest.raises(NotAuthenticated):
                await connect(made, "no token")
        with pytest.raises(RateLimited):
            await made.first(alice)
        found = await made.result(
            "auth.aid_login1",
            {"aid": alice.aid, "cert": alice.cert, "client_nonce": "x"},
            address="192.0.2.99",
        )
        assert found.nonce


def test_records_have_no_hidden_defaults() -> None:
    """Params are frozen: two calls never share a dict."""
    from edge.services.auth.records import Connect

    assert Connect().capabilities is not Connect().capabilities
    assert not dataclasses.is_dataclass(Connect)
