"""Both public-key infrastructures of the node, as pure builders: keys and dates come in, certificates go out.

AUN: Root → Registry → Issuer (P-384) → services (P-384) and AIDs (P-256). TLS: one CA → one leaf. Profiles: spec
aun-connect §5.2; the SDK looks at names, validity, BasicConstraints, KeyUsage and signatures only, everything else
is there for other verifiers. Importing this module costs some megabytes: do it inside the function that needs it.
"""

from __future__ import annotations

import datetime
import ipaddress
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

from edge.contract.errors import Malformed
from edge.contract.time import iso
from edge.contract.wire import canonical
from edge.protocol import keys

DAY_S = 86_400
BACK_DATE_S = 600
"""Clients have no clock tolerance: certificates begin ten minutes before they are made."""

ROOT_DAYS, REGISTRY_DAYS, ISSUER_DAYS = 25 * 365, 10 * 365, 10 * 365
SERVICE_DAYS, AID_DAYS, TLS_CA_DAYS = 2 * 365, 2 * 365, 10 * 365
TLS_DAYS = 397
"""A year and a month: the longest that every TLS client accepts."""

CRL_S = 86_400
OCSP_S = 3600


class Window(msgspec.Struct, frozen=True):
    """A validity in whole seconds since 1970 UTC; `sure` is False when it was made without knowing the time."""

    start: int
    end: int
    sure: bool = True


def window(now_us: int, floor_us: int, sure: bool, days: int) -> Window:
    """The validity of something issued now.

    While the wall time is unsure it begins a day before the floor (design D12), and it ends as if the later of floor
    and present guess were true: whoever is right about the time finds the certificate valid.
    """
    start = now_us // 1_000_000 - BACK_DATE_S if sure else floor_us // 1_000_000 - DAY_S
    return Window(start, max(now_us, 0 if sure else floor_us) // 1_000_000 + days * DAY_S, sure)


class Authority(msgspec.Struct, frozen=True):
    """A certificate that signs others, with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


class Revoked(msgspec.Struct, frozen=True):
    """A revoked serial number (lower-case hex), when (s UTC), and why (RFC 5280 reason name)."""

    serial: str
    at: int
    reason: str = "unspecified"


def root(key: ec.EllipticCurvePrivateKey, name: str, valid: Window) -> Authority:
    """The self-signed root: path length 2."""
    subject = _name(f"{name[:56]} Root CA", organization=name)
    made = _authority(_builder(subject, subject, key.public_key(), valid), key.public_key(), None, 2)
    return Authority(made.sign(key, keys.hash_of(key)), key)


def subordinate(
    above: Authority, key: ec.EllipticCurvePrivateKey, common_name: str, depth: int, valid: Window
) -> Authority:
    """An authority below `above`, `depth` levels from the leaves."""
    made = _builder(_name(common_name), above.certificate.subject, key.public_key(), valid)
    made = _authority(made, key.public_key(), above, depth)
    return Authority(made.sign(above.key, keys.hash_of(above.key)), key)


def end_certificate(
    issuer: Authority, aid: str, public_key: ec.EllipticCurvePublicKey, valid: Window, base: str = ""
) -> x509.Certificate:
    """A certificate of a service or an AID: CN and SAN are the AID. `base` is where chain, CRL and OCSP are served."""
    made = (
        _builder(_name(aid), issuer.certificate.subject, public_key, valid)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(aid)]), critical=False)
    )
    made = _identifiers(made, public_key, issuer)
    if base:
        made = made.add_extension(
            x509.AuthorityInformationAccess(
                [
                    _access(AuthorityInformationAccessOID.CA_ISSUERS, f"{base}/ca/cert"),
                    _access(AuthorityInformationAccessOID.OCSP, f"{base}/pki/ocsp"),
                ]
            ),
            critical=False,
        ).add_extension(
            x509.CRLDistributionPoints(
                [x509.DistributionPoint([x509.UniformResourceIdentifier(f"{base}/pki/crl")], None, None, None)]
            ),
            critical=False,
        )
    return made.sign(issuer.key, keys.hash_of(issuer.key))


def tls_root(key: ec.EllipticCurvePrivateKey, name: str, valid: Window) -> Authority:
    """The CA of the box's own TLS certificate; no relation to the AUN chain."""
    subject = _name(f"{name[:57]} TLS CA", organization=name)
    made = _authority(_builder(subject, subject, key.public_key(), valid), key.public_key(), None, 0)
    return Authority(made.sign(key, keys.hash_of(key)), key)


def tls_leaf(
    above: Authority, public_key: ec.EllipticCurvePublicKey, names: Sequence[str], valid: Window
) -> x509.Certificate:
    """The box's TLS certificate: `names` are host names, `*.` patterns and IP addresses; the first is its CN."""
    made = (
        _builder(_name(names[0]), above.certificate.subject, public_key, valid)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
    )
    return _identifiers(made, public_key, above).sign(above.key, keys.hash_of(above.key))


def crl(issuer: Authority, revoked: Iterable[Revoked], now_s: int, number: int) -> str:
    """The signed revocation list in PEM; good for a day."""
    made = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.certificate.subject)
        .last_update(_date(now_s - BACK_DATE_S))
        .next_update(_date(now_s + CRL_S))
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(_authority_identifier(issuer), critical=False)
    )
    for entry in revoked:
        made = made.add_revoked_certificate(
            x509.RevokedCertificateBuilder()
            .serial_number(int(entry.serial, 16))
            .revocation_date(_date(entry.at))
            .add_extension(x509.CRLReason(_reason(entry.reason)), critical=False)
            .build()
        )
    return pem(made.sign(issuer.key, keys.hash_of(issuer.key)))


def ocsp_response(
    issuer: Authority,
    serial: int,
    status: str,
    now_s: int,
    *,
    revoked: Revoked | None = None,
    sha1: bool = False,
) -> bytes:
    """DER of an OCSP response signed by the issuer's own key, made for this request (spec §5.4: strict windows).

    `status` is `good`, `revoked` or `unknown`; `sha1` builds the CertID with SHA-1, which old requests use.
    """
    algorithm: hashes.HashAlgorithm = hashes.SHA1() if sha1 else hashes.SHA256()  # noqa: S303  RFC 6960 default
    key_bits = issuer.key.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    made = ocsp.OCSPResponseBuilder().add_response_by_hash(
        issuer_name_hash=_hashed(algorithm, issuer.certificate.subject.public_bytes()),
        issuer_key_hash=_hashed(algorithm, key_bits),
        serial_number=serial,
        algorithm=algorithm,
        cert_status=_STATUS[status],
        this_update=_date(now_s),
        next_update=_date(now_s + OCSP_S),
        revocation_time=_date(revoked.at) if revoked else None,
        revocation_reason=_reason(revoked.reason) if revoked else None,
    )
    made = made.responder_id(ocsp.OCSPResponderEncoding.NAME, issuer.certificate)
    return made.sign(issuer.key, keys.hash_of(issuer.key)).public_bytes(serialization.Encoding.DER)


def ocsp_question(request: bytes) -> tuple[int, bool]:
    """Serial number asked for in an RFC 6960 request, and whether it used SHA-1. Raises `Malformed`."""
    try:
        asked = ocsp.load_der_ocsp_request(request)
        return asked.serial_number, isinstance(asked.hash_algorithm, hashes.SHA1)
    except (ValueError, NotImplementedError):
        raise Malformed("not an OCSP request for one certificate") from None


def trust_list(
    authority: Authority, roots: Sequence[tuple[x509.Certificate, str]], version: int, now_s: int, until_s: int
) -> dict[str, Any]:
    """The signed list of trusted roots (spec §8.2): (certificate, status) pairs, signed by `authority`."""
    body: dict[str, Any] = {
        "version": version,
        "issued_at": iso(now_s),
        "next_update": iso(until_s),
        "root_cas": [_root_entry(certificate, status) for certificate, status in roots],
    }
    return {**body, "authority_signature": keys.sign(authority.key, canonical(body))}


def pem(thing: x509.Certificate | x509.CertificateRevocationList) -> str:
    """PEM text."""
    return thing.public_bytes(serialization.Encoding.PEM).decode()


def parse(text: str | bytes) -> list[x509.Certificate]:
    """The certificates of a PEM bundle that we wrote ourselves."""
    return x509.load_pem_x509_certificates(text if isinstance(text, bytes) else text.encode())


def serial_of(certificate: x509.Certificate) -> str:
    """Lower-case hex, no leading zeros: the form of every URL and table."""
    return format(certificate.serial_number, "x")


def _root_entry(certificate: x509.Certificate, status: str) -> dict[str, str]:
    digest = certificate.fingerprint(hashes.SHA256()).hex()
    return {
        "id": f"root-{digest[:16]}",
        "name": _attribute(certificate.subject, NameOID.COMMON_NAME),
        "organization": _attribute(certificate.subject, NameOID.ORGANIZATION_NAME),
        "certificate": pem(certificate),
        "fingerprint_sha256": digest,
        "status": status,
        "valid_from": iso(int(certificate.not_valid_before_utc.timestamp())),
        "valid_until": iso(int(certificate.not_valid_after_utc.timestamp())),
    }


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, valid: Window
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_date(valid.start))
        .not_valid_after(_date(valid.end))
    )


def _authority(
    made: x509.CertificateBuilder, public_key: ec.EllipticCurvePublicKey, above: Authority | None, depth: int
) -> x509.CertificateBuilder:
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=depth), critical=True)
    usage = _usage(digital_signature=True, key_cert_sign=True, crl_sign=True)
    made = made.add_extension(usage, critical=True)
    if above is None:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(public_key)
        subject = x509.SubjectKeyIdentifier.from_public_key(public_key)
        return made.add_extension(subject, critical=False).add_extension(identifier, critical=False)
    return _identifiers(made, public_key, above)


def _identifiers(
    made: x509.CertificateBuilder, public_key: ec.EllipticCurvePublicKey, above: Authority
) -> x509.CertificateBuilder:
    subject = x509.SubjectKeyIdentifier.from_public_key(public_key)
    return made.add_extension(subject, critical=False).add_extension(_authority_identifier(above), critical=False)


def _authority_identifier(above: Authority) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(above.key.public_key())


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str, organization: str = "") -> x509.Name:
    parts: list[x509.NameAttribute[str | bytes]] = [_common_name(common_name)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization[:64]))
    return x509.Name(parts)


def _common_name(text: str) -> x509.NameAttribute[str]:
    """An AID may be longer than the 64 characters of X.520, and clients want it whole."""
    if len(text) <= 64:
        return x509.NameAttribute(NameOID.COMMON_NAME, text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return x509.NameAttribute(NameOID.COMMON_NAME, text, _validate=False)


def _attribute(name: x509.Name, oid: x509.ObjectIdentifier) -> str:
    found = name.get_attributes_for_oid(oid)
    return str(found[0].value) if found else ""


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _access(method: x509.ObjectIdentifier, url: str) -> x509.AccessDescription:
    return x509.AccessDescription(method, x509.UniformResourceIdentifier(url))


def _hashed(algorithm: hashes.HashAlgorithm, data: bytes) -> bytes:
    digest = hashes.Hash(algorithm)
    digest.update(data)
    return digest.finalize()


def _reason(name: str) -> x509.ReasonFlags:
    try:
        return x509.ReasonFlags(name)
    except ValueError:
        return x509.ReasonFlags.unspecified


def _date(seconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


_STATUS = {
    "good": ocsp.OCSPCertStatus.GOOD,
    "revoked": ocsp.OCSPCertStatus.REVOKED,
    "unknown": ocsp.OCSPCertStatus.UNKNOWN,
}
