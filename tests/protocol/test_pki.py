from __future__ import annotations

import base64
import datetime
import warnings

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtensionOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from edge.contract.errors import Malformed
from edge.contract.wire import canonical
from edge.protocol import keys, pki

NOW_S = 1_750_000_000
NOW_US = NOW_S * 1_000_000
ISSUER = "edge.test"


def valid(days: int = 100) -> pki.Window:
    return pki.window(NOW_US, 0, True, days)


@pytest.fixture(scope="module")
def chain() -> list[pki.Authority]:
    """Issuer, registry, root."""
    root = pki.root(keys.generate("P-384"), ISSUER, valid(pki.ROOT_DAYS))
    registry = pki.subordinate(root, keys.generate("P-384"), f"{ISSUER} Registry CA", 1, valid(pki.REGISTRY_DAYS))
    return [pki.subordinate(registry, keys.generate("P-384"), ISSUER, 0, valid(pki.ISSUER_DAYS)), registry, root]


def test_a_sure_clock_back_dates_by_ten_minutes() -> None:
    assert valid(1) == pki.Window(NOW_S - 600, NOW_S + 86_400, True)


def test_an_unsure_clock_begins_a_day_before_the_floor_and_ends_after_the_guess() -> None:
    floor = NOW_US - 30 * 86_400 * 1_000_000
    found = pki.window(NOW_US, floor, False, 10)
    assert found == pki.Window(NOW_S - 31 * 86_400, NOW_S + 10 * 86_400, False)
    assert pki.window(0, floor, False, 10).end == floor // 1_000_000 + 10 * 86_400


def test_each_level_is_named_signed_and_bounded_as_the_profile_says(chain: list[pki.Authority]) -> None:
    for depth, (below, above) in enumerate(zip(chain, [*chain[1:], chain[-1]], strict=True)):
        certificate = below.certificate
        assert certificate.issuer == above.certificate.subject
        certificate.verify_directly_issued_by(above.certificate)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, depth)
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
        assert usage.critical
        assert usage.value.key_cert_sign
        assert usage.value.crl_sign
        assert certificate.signature_hash_algorithm.name == "sha384"  # type: ignore[union-attr]
        assert isinstance(certificate.public_key().curve, ec.SECP384R1)  # type: ignore[union-attr]
    assert chain[0].certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == ISSUER


@pytest.mark.parametrize("aid", ["alice.edge.test", "x" * 64 + ".edge.test"])
def test_an_aid_certificate_names_the_aid_and_where_to_ask(chain: list[pki.Authority], aid: str) -> None:
    key = keys.generate("P-256")
    made = pki.end_certificate(chain[0], aid, key.public_key(), valid(), "http://edge.test")
    made.verify_directly_issued_by(chain[0].certificate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cryptography's, about names above 64 characters
        assert made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == aid
    found = made.extensions
    assert found.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName) == [aid]
    usage = found.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign
    access = found.get_extension_for_class(x509.AuthorityInformationAccess).value
    assert [one.access_location.value for one in access] == ["http://edge.test/ca/cert", "http://edge.test/pki/ocsp"]
    identifier = found.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    issuer = chain[0].certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert identifier == issuer.digest
    critical = {one.oid for one in found if one.critical}
    assert critical == {ExtensionOID.BASIC_CONSTRAINTS, ExtensionOID.KEY_USAGE}
    assert pki.serial_of(made) == format(made.serial_number, "x")


def test_without_a_base_no_urls_are_promised(chain: list[pki.Authority]) -> None:
    made = pki.end_certificate(chain[0], "a.edge.test", keys.generate("P-384").public_key(), valid())
    with pytest.raises(x509.ExtensionNotFound):
        made.extensions.get_extension_for_class(x509.AuthorityInformationAccess)


def test_the_tls_leaf_passes_a_strict_verifier_for_names_and_addresses() -> None:
    above = pki.tls_root(keys.generate("P-256"), ISSUER, valid(pki.TLS_CA_DAYS))
    names = [ISSUER, f"*.{ISSUER}", "localhost", "127.0.0.1", "::1"]
    leaf = pki.tls_leaf(above, keys.generate("P-256").public_key(), names, valid(pki.TLS_DAYS))
    at = datetime.datetime.fromtimestamp(NOW_S, datetime.UTC)
    builder = PolicyBuilder().store(Store([above.certificate])).time(at)
    for name in (x509.DNSName("gateway.edge.test"), x509.DNSName("edge.test")):
        assert builder.build_server_verifier(name).verify(leaf, [])
    found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one) for one in found.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]


def test_a_revocation_list_names_serials_times_and_reasons(chain: list[pki.Authority]) -> None:
    gone = [pki.Revoked("1f", NOW_S - 5, "keyCompromise"), pki.Revoked("20", NOW_S, "because")]
    made = x509.load_pem_x509_crl(pki.crl(chain[0], gone, NOW_S, 7).encode())
    assert made.is_signature_valid(chain[0].key.public_key())
    assert made.issuer == chain[0].certificate.subject
    assert made.next_update_utc is not None
    assert made.next_update_utc.timestamp() == NOW_S + pki.CRL_S
    assert made.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number == 7
    found = {one.serial_number: one for one in made}
    assert set(found) == {0x1F, 0x20}
    reasons = [found[serial].extensions.get_extension_for_class(x509.CRLReason).value.reason for serial in (0x1F, 0x20)]
    assert reasons == [x509.ReasonFlags.key_compromise, x509.ReasonFlags.unspecified]


@pytest.mark.parametrize("sha1", [False, True])
@pytest.mark.parametrize("status", ["good", "revoked", "unknown"])
def test_an_ocsp_answer_is_signed_by_the_issuer_and_made_now(
    chain: list[pki.Authority], status: str, sha1: bool
) -> None:
    gone = pki.Revoked("abc", NOW_S - 9, "superseded") if status == "revoked" else None
    made = ocsp.load_der_ocsp_response(pki.ocsp_response(chain[0], 0xABC, status, NOW_S, revoked=gone, sha1=sha1))
    assert made.response_status is ocsp.OCSPResponseStatus.SUCCESSFUL
    assert made.certificate_status.name.lower() == status
    assert made.serial_number == 0xABC
    assert made.certificates == []
    assert made.responder_name == chain[0].certificate.subject
    assert (made.this_update_utc.timestamp(), made.next_update_utc.timestamp()) == (NOW_S, NOW_S + 3600)  # type: ignore[union-attr]
    digest = hashes.Hash(hashes.SHA1() if sha1 else hashes.SHA256())
    digest.update(chain[0].certificate.subject.public_bytes())
    assert made.issuer_name_hash == digest.finalize()
    chain[0].key.public_key().verify(made.signature, made.tbs_response_bytes, ec.ECDSA(hashes.SHA384()))


@pytest.mark.parametrize("algorithm", [hashes.SHA1(), hashes.SHA256()])
def test_an_ocsp_request_tells_its_serial_and_hash(chain: list[pki.Authority], algorithm: hashes.HashAlgorithm) -> None:
    leaf = pki.end_certificate(chain[0], "a.edge.test", keys.generate("P-256").public_key(), valid())
    asked = ocsp.OCSPRequestBuilder().add_certificate(leaf, chain[0].certificate, algorithm).build()
    found = pki.ocsp_question(asked.public_bytes(serialization.Encoding.DER))
    assert found == (leaf.serial_number, isinstance(algorithm, hashes.SHA1))


def test_what_is_no_ocsp_request_is_refused() -> None:
    with pytest.raises(Malformed):
        pki.ocsp_question(b"nonsense")


@pytest.mark.seed("S0-073")
def test_the_trust_list_is_signed_over_its_canonical_form(chain: list[pki.Authority]) -> None:
    root = chain[-1]
    listed = pki.trust_list(root, [(root.certificate, "active")], 3, NOW_S, NOW_S + 60)
    signature = listed.pop("authority_signature")
    root.key.public_key().verify(base64.b64decode(signature), canonical(listed), ec.ECDSA(hashes.SHA384()))
    assert (listed["version"], listed["issued_at"]) == (3, "2025-06-15T15:06:40Z")
    entry = listed["root_cas"][0]
    assert entry["fingerprint_sha256"] == root.certificate.fingerprint(hashes.SHA256()).hex()
    assert entry["status"] == "active"
    assert entry["organization"] == ISSUER
    assert pki.parse(entry["certificate"]) == [root.certificate]
