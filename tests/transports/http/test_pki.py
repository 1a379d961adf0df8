from __future__ import annotations

import base64
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509 import ocsp

from edge.protocol import pki
from tests.support.http import request
from tests.support.identity import ISSUER, OWNER, THERMO, desk, served


@pytest.mark.seed("S0-151")
async def test_discovery_answers_on_every_host_with_json(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, served(made) as url:
        for host in ("", ISSUER, f"alice.{ISSUER}", f"gateway.{ISSUER}"):
            found = await request(url, "/.well-known/aun-gateway", host=host)
            assert (found.status, found.headers["content-type"]) == (200, "application/json")
            (gateway,) = found.json["gateways"]
            assert gateway["priority"] == 1
            assert gateway["url"].startswith("ws://")
            assert gateway["url"].endswith("/aun")
        assert (await request(url, "/.well-known/aun-gateway")).json["gateways"][0]["url"] == (
            f"{url.replace('http', 'ws')}/aun"
        )


async def test_a_certificate_is_there_once_it_is_made_and_in_every_spelling(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, served(made) as url:
        assert (await request(url, f"/pki/cert/alice.{ISSUER}")).status == 404
        alice = await made.register("alice")
        print_ = x509.load_pem_x509_certificate(alice.cert.encode()).fingerprint(hashes.SHA256()).hex()
        for query in (
            "",
            f"?cert_fingerprint={print_}",
            f"?cert_fingerprint=sha256:{print_.upper()}",
            f"?cert_fingerprint={print_[:16]}",
        ):
            found = await request(url, f"/pki/cert/{alice.aid}{query}")
            assert (found.status, found.body.decode()) == (200, alice.cert)
        head = await request(url, f"/pki/cert/{alice.aid}", "HEAD")
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(alice.cert)))
        assert (await request(url, f"/pki/cert/{alice.aid}?cert_fingerprint={'0' * 64}")).status == 404
        assert (await request(url, "/pki/cert/no%20aid")).status == 400
        assert (await request(url, f"/pki/cert/{THERMO}")).status == 200


@pytest.mark.seed("S0-076")
async def test_chain_and_roots_are_pem_under_all_their_names(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, served(made) as url:
        for path, pem in (
            ("/pki/chain", made.identity.chain_pem),
            ("/ca/cert", made.identity.chain_pem),
            ("/pki/root.crt", made.identity.root_pem),
            ("/root.crt", made.identity.root_pem),
            ("/pki/tls-root.crt", made.identity.tls_ca_pem),
        ):
            found = await request(url, path, host=f"pki.{ISSUER}")
            assert (found.status, found.body.decode()) == (200, pem)
            assert found.headers["content-type"].startswith("application/x-pem-file")


async def test_revocation_is_shown_as_json_der_and_ocsp(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, served(made) as url:
        alice = await made.register("alice")
        (leaf,) = pki.parse(alice.cert)
        path = f"/pki/ocsp/{pki.serial_of(leaf)}"
        found = await request(url, path)
        assert (found.json["status"], found.headers["content-type"]) == ("good", "application/json")
        await made.ask("agent.revoke", {"name": "alice"}, OWNER, surface="edge")
        found = await request(url, path)
        assert found.json["status"] == "revoked"
        answer = ocsp.load_der_ocsp_response(base64.b64decode(found.json["ocsp_response"]))
        assert answer.certificate_status is ocsp.OCSPCertStatus.REVOKED
        found = await request(url, "/pki/crl.json")
        assert found.headers["content-type"] == "application/json"
        as_pem = x509.load_pem_x509_crl(found.json["crl_pem"].encode())
        der = await request(url, "/pki/crl")
        assert der.headers["content-type"] == "application/pkix-crl"
        assert x509.load_der_x509_crl(der.body) == as_pem
        assert as_pem.get_revoked_certificate_by_serial_number(leaf.serial_number) is not None
        assert (await request(url, "/pki/ocsp/xyz")).status == 400


async def test_a_standard_ocsp_client_is_answered(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, served(made) as url:
        leaf, issuer = pki.parse(made.identity.auth.pem)[0], pki.parse(made.identity.issuer_pem)[0]
        asked = ocsp.OCSPRequestBuilder().add_certificate(leaf, issuer, hashes.SHA1()).build()
        body = asked.public_bytes(serialization.Encoding.DER)
        found = await request(url, "/pki/ocsp", "POST", body=body, content_type="application/ocsp-request")
        assert found.headers["content-type"] == "application/ocsp-response"
        assert ocsp.load_der_ocsp_response(found.body).certificate_status is ocsp.OCSPCertStatus.GOOD
        assert (await request(url, "/pki/ocsp", "POST", body=b"x")).status == 400
        assert (await request(url, "/pki/ocsp", "POST", body=b"x" * 5000)).status == 413


@pytest.mark.seed("S0-075")
async def test_the_trust_list_has_all_its_addresses(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, served(made) as url:
        found = [
            (await request(url, path, host=host)).json
            for path, host in (
                ("/trust-root.json", f"pki.{ISSUER}"),
                ("/pki/trust-roots.json", f"gateway.{ISSUER}"),
                ("/pki/trust-roots", ""),
                ("/pki/trust-root.json", ""),
                ("/.well-known/aun/trust-roots.json", ""),
            )
        ]
        assert all(one == found[0] for one in found)
        assert found[0]["root_cas"][0]["certificate"] == made.identity.root_pem


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_of_the_ca_can_be_written_by_http(tmp_path: Path, method: str) -> None:
    async with desk(tmp_path) as made, served(made) as url:
        for path in ("/pki/chain", "/pki/crl.json", f"/pki/cert/{THERMO}", "/root.crt", "/trust-root.json"):
            assert (await request(url, path, method)).status == 405


async def test_our_tls_chain_is_one_that_openssl_accepts(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        context = ssl.create_default_context(cadata=made.identity.tls_ca_pem)
        assert context.get_ca_certs()[0]["subject"] == (
            (("commonName", f"{ISSUER} TLS CA"),),
            (("organizationName", ISSUER),),
        )
