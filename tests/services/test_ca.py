from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509 import ocsp

from edge.contract.errors import InvalidParams, NotAuthenticated, NotFound, TooLarge
from edge.contract.principal import GUEST, NODE
from edge.contract.time import SECOND
from edge.contract.wire import canonical
from edge.protocol import keys, pki
from edge.store import identity as tables
from tests.support.clock import FakeClock
from tests.support.identity import ISSUER, OWNER, THERMO, desk


def serial(pem: str) -> str:
    return pki.serial_of(pki.parse(pem)[0])


def answer(found: Any) -> ocsp.OCSPResponse:
    return ocsp.load_der_ocsp_response(base64.b64decode(found.ocsp_response))


async def test_status_is_good_then_revoked_in_list_and_ocsp(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        alice = await made.register("alice")
        number = serial(alice.cert)
        good = await made.result("ca.ocsp", {"serial": number}, surface="http")
        assert (good.status, answer(good).certificate_status) == ("good", ocsp.OCSPCertStatus.GOOD)
        await made.ask("agent.revoke", {"name": "alice", "reason": "keyCompromise"}, OWNER, surface="edge")
        gone = await made.result("ca.ocsp", {"serial": number}, surface="http")
        assert (gone.status, answer(gone).revocation_reason) == ("revoked", x509.ReasonFlags.key_compromise)
        listed = x509.load_pem_x509_crl((await made.result("ca.get_crl")).crl_pem.encode())
        assert [one.serial_number for one in listed] == [int(number, 16)]
        assert listed.is_signature_valid(made.identity.authority.key.public_key())
        entries = await made.store.read(lambda unit: tables.ct_entries(unit, 2, 1))
        assert b'"operation":"agent_cert_revoke"' in entries[0].entry
        assert b'"reason":"keyCompromise"' in entries[0].entry


async def test_the_auth_services_own_certificate_is_good_and_others_unknown(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        own = await made.result("ca.ocsp", {"serial": made.identity.auth.serial}, surface="http")
        assert own.status == "good"
        other = await made.result("ca.ocsp", {"serial": "00ab"}, surface="http")
        assert (other.status, answer(other).certificate_status) == ("unknown", ocsp.OCSPCertStatus.UNKNOWN)
        for bad in ("", "0", "xyz", "f" * 41, "-1"):
            with pytest.raises(InvalidParams):
                await made.ask("ca.ocsp", {"serial": bad}, surface="http")


async def test_an_ocsp_answer_is_fresh_within_the_strict_window(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        asked = {"serial": made.identity.auth.serial}
        for _ in range(5):
            clock.advance(7 * SECOND)
            found = answer(await made.result("ca.ocsp", asked, surface="http"))
            now_s = clock.wall(clock.now())[0] // SECOND
            assert now_s - 30 <= found.this_update_utc.timestamp() <= now_s
            assert found.next_update_utc is not None
            assert found.next_update_utc.timestamp() > now_s


async def test_while_the_time_is_unknown_answers_are_not_dated_before_the_floor(tmp_path: Path) -> None:
    clock = FakeClock(wall_at_zero_us=0)
    clock.uncertainty_us = 10**15
    async with desk(tmp_path, clock) as made:
        found = answer(await made.result("ca.ocsp", {"serial": made.identity.auth.serial}, surface="http"))
        assert found.this_update_utc.timestamp() == made.identity.floor_us // SECOND


@pytest.mark.parametrize("algorithm", [hashes.SHA1(), hashes.SHA256()])
async def test_an_rfc_6960_request_is_answered_with_its_own_hash(
    tmp_path: Path, algorithm: hashes.HashAlgorithm
) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        leaf, issuer = pki.parse(alice.cert)[0], pki.parse(made.identity.issuer_pem)[0]
        asked = ocsp.OCSPRequestBuilder().add_certificate(leaf, issuer, algorithm).build()
        text = base64.b64encode(asked.public_bytes(serialization.Encoding.DER)).decode()
        found = await made.result("ca.ocsp_request", {"request": text}, surface="http")
        response = ocsp.load_der_ocsp_response(base64.b64decode(found.response))
        assert response.certificate_status is ocsp.OCSPCertStatus.GOOD
        assert response.issuer_key_hash == asked.issuer_key_hash
        assert response.issuer_name_hash == asked.issuer_name_hash


@pytest.mark.parametrize("request_", ["", "AAAA", "%"])
async def test_a_bad_ocsp_request_is_refused(tmp_path: Path, request_: str) -> None:
    async with desk(tmp_path) as made:
        with pytest.raises(InvalidParams):
            await made.ask("ca.ocsp_request", {"request": request_}, surface="http")


@pytest.mark.limit("ca.ocsp_request_octets")
async def test_an_ocsp_request_has_a_limit(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        for size, error in ((4096, InvalidParams), (5000, TooLarge)):
            with pytest.raises(error):
                await made.ask("ca.ocsp_request", {"request": base64.b64encode(bytes(size)).decode()}, surface="http")
        assert made.limits.hits == {"ca.ocsp_request_octets": 1}


@pytest.mark.limit("ca.signed_answers")
async def test_signed_answers_are_kept_within_a_limit(tmp_path: Path) -> None:
    async with desk(tmp_path, limits={"ca.signed_answers": 2}) as made:
        for number in ("1", "2", "3", "1"):
            await made.ask("ca.ocsp", {"serial": number}, surface="http")
        assert made.limits.hits == {"ca.signed_answers": 2}


@pytest.mark.seed("S0-073", "S0-074")
async def test_the_trust_list_names_our_root_and_its_version_never_goes_back(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        first = await made.result("meta.trust_roots")
        clock.advance(7200 * SECOND)
        later = await made.result("meta.trust_roots")
        assert later["version"] >= first["version"]
        assert later["issued_at"] > first["issued_at"]
        (entry,) = later["root_cas"]
        assert (entry["certificate"], entry["status"]) == (made.identity.root_pem, "active")
        assert entry["fingerprint_sha256"] == keys.sha256(keys.der_of(made.identity.root_pem))
        assert "roots" not in later
        signature = later.pop("authority_signature")
        keys.verify(keys.spki_of(made.identity.root.key.public_key()), canonical(later), signature)


async def test_a_device_gets_its_certificate_when_first_asked_for(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        assert await made.store.read(lambda unit: tables.aids(unit, "device")) == []
        found = await made.result("ca.get_cert", {"aid": THERMO}, surface="http")
        expected = keys.spki_of(made.identity.key_of(THERMO, 0).public_key())
        assert found.spki_sha256 == keys.sha256(expected)
        assert (await made.result("ca.get_cert", {"aid": THERMO})).serial == found.serial
        assert await made.store.read(tables.ct_size) == 2
    async with desk(tmp_path, clock) as made:
        assert (await made.result("ca.get_cert", {"aid": THERMO})).serial == found.serial


async def test_a_thousand_askers_make_one_certificate(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        found = await asyncio.gather(*(made.result("ca.get_cert", {"aid": THERMO}) for _ in range(20)))
        assert len({one.serial for one in found}) == 1
        assert await made.store.read(tables.ct_size) == 2


async def test_a_devices_certificate_is_renewed_before_it_ends(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        first = await made.result("ca.get_cert", {"aid": THERMO})
        clock.advance(400 * 86_400 * SECOND)
        assert (await made.result("ca.get_cert", {"aid": THERMO})).serial == first.serial
        clock.advance(200 * 86_400 * SECOND)
        later = await made.result("ca.get_cert", {"aid": THERMO})
        assert later.serial != first.serial
        assert later.spki_sha256 == first.spki_sha256
        old = await made.result("ca.get_cert", {"aid": THERMO, "cert_fingerprint": first.cert_sha256})
        assert (old.serial, old.state) == (first.serial, "verify_only")


@pytest.mark.parametrize("name", ["auth", "group", "storage", "mail", "stream", "search", "relay"])
async def test_every_service_has_a_certificate_that_signs(tmp_path: Path, name: str) -> None:
    async with desk(tmp_path) as made:
        own = await made.dispatcher.run("ca.own_cert", {"aid": f"{name}.{ISSUER}"}, NODE)
        found = await made.result("ca.get_cert", {"aid": f"{name}.{ISSUER}", "cert_fingerprint": own.cert_sha256})
        assert pki.parse(found.cert)[0].public_key().curve.name == "secp256r1"  # type: ignore[union-attr]
        present = await made.result("ca.get_cert", {"aid": f"{name}.{ISSUER}"})
        assert (present.cert == made.identity.auth.pem) is (name == "auth")


@pytest.mark.parametrize("aid", [f"nobody.{ISSUER}", f"d-other.{ISSUER}", "bob.aid.pub"])
async def test_nobody_has_no_certificate(tmp_path: Path, aid: str) -> None:
    async with desk(tmp_path) as made:
        for params in ({"aid": aid}, {"aid": aid, "cert_fingerprint": "a" * 64}, {"aid": aid, "cert_fingerprint": "z"}):
            with pytest.raises(NotFound):
                await made.ask("ca.get_cert", params, surface="http")
        with pytest.raises(NotFound):
            await made.dispatcher.run("ca.own_cert", {"aid": aid}, NODE)


async def test_own_certificates_are_the_nodes_business(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        assert made.dispatcher.find("aun", "ca.own_cert") is None
        assert made.dispatcher.find("http", "ca.own_cert") is None
        with pytest.raises(NotAuthenticated):
            await made.dispatcher.run("ca.own_cert", {"aid": THERMO}, GUEST)


async def test_the_chain_comes_in_parts_and_as_a_bundle(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        found = await made.result("ca.get_cert_chain", surface="http")
        assert "".join(found.cert_chain) == found.bundle == made.identity.chain_pem
        assert len(found.cert_chain) == 3
        assert (found.root, found.tls_root) == (made.identity.root_pem, made.identity.tls_ca_pem)


async def test_a_new_auth_certificate_is_entered_at_the_next_start(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        first = made.identity.auth.serial
    clock.advance(600 * 86_400 * SECOND)
    async with desk(tmp_path, clock) as made:
        assert made.identity.auth.serial != first
        for number in (first, made.identity.auth.serial):
            assert (await made.result("ca.ocsp", {"serial": number}, surface="http")).status == "good"
        assert await made.store.read(tables.ct_size) == 2


async def test_a_leaf_made_again_while_we_run_is_entered_too(tmp_path: Path) -> None:
    clock = FakeClock()
    clock.uncertainty_us = 10**15
    async with desk(tmp_path, clock) as made:
        first = made.identity.auth.serial
        clock.uncertainty_us = 0
        assert made.identity.renew_leafs(clock.wall(clock.now())[0], 0) == ["auth", "tls"]
        await made.ca.start()
        await made.ca.start()
        assert made.identity.auth.serial != first
        assert (await made.result("ca.ocsp", {"serial": made.identity.auth.serial}, surface="http")).status == "good"
        assert await made.store.read(tables.ct_size) == 2
        assert (await made.login(await made.register("alice"))).access_token
