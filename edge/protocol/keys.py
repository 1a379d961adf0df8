"""Elliptic-curve keys as AUN uses them: P-256 for AIDs, P-384 for authorities; the hash follows the signer's curve.

Signatures are ASN.1 DER in base64, public keys base64 of DER SubjectPublicKeyInfo (spec aun-connect §4.2).
`cryptography` is imported inside the functions: an idle node must not pay for it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import TYPE_CHECKING, Any

from edge.contract.errors import CertificateInvalid, InvalidParams, SignatureInvalid

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

MAX_PEM = 16_384
"""A certificate in PEM is a few kilobytes; more is refused unread."""

CURVES = {"secp256r1": "P-256", "secp384r1": "P-384"}
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+?)-----END CERTIFICATE-----")
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def generate(curve: str) -> ec.EllipticCurvePrivateKey:
    """A new private key on `P-256` or `P-384`."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1() if curve == "P-384" else ec.SECP256R1())


def derive(seed: bytes, aid: str, generation: int) -> ec.EllipticCurvePrivateKey:
    """The P-256 key of a device or service: HKDF of the identity seed, the AID and its generation; never stored."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = f"aun-edge aid key v1|{aid}|{generation}".encode()
    material = HKDF(hashes.SHA256(), 48, salt=b"aun-edge", info=info).derive(seed)
    return ec.derive_private_key(int.from_bytes(material, "big") % (_P256_ORDER - 1) + 1, ec.SECP256R1())


def save(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS#8 PEM, not encrypted: the file's mode protects it."""
    from cryptography.hazmat.primitives import serialization as s

    return key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())


def load(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """A private key that `save` wrote. Raises `ValueError` for anything else."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic-curve key")
    return key


def public(spki: bytes) -> ec.EllipticCurvePublicKey:
    """A P-256 or P-384 public key of DER SubjectPublicKeyInfo. Raises `InvalidParams`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key = serialization.load_der_public_key(spki)
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidParams("public_key is not a DER SubjectPublicKeyInfo") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in CURVES:
        raise InvalidParams("public_key must be on curve P-256 or P-384")
    return key


def public_of(text: str, curve: str = "P-256") -> bytes:
    """The DER behind a base64 `public_key` param, checked to be a point on `curve`. Raises `InvalidParams`."""
    try:
        spki = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParams("public_key is not base64") from None
    key = public(spki)
    if CURVES[key.curve.name] != curve:
        raise InvalidParams(f"public_key must be on curve {curve}")
    return spki_of(key)


def spki_of(key: ec.EllipticCurvePublicKey) -> bytes:
    """DER SubjectPublicKeyInfo."""
    from cryptography.hazmat.primitives import serialization as s

    return key.public_bytes(s.Encoding.DER, s.PublicFormat.SubjectPublicKeyInfo)


def hash_of(key: ec.EllipticCurvePublicKey | ec.EllipticCurvePrivateKey) -> Any:
    """SHA-384 for P-384, SHA-256 for everything else."""
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA384() if key.curve.name == "secp384r1" else hashes.SHA256()


def sign(key: ec.EllipticCurvePrivateKey, data: bytes) -> str:
    """Base64 DER signature."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return base64.b64encode(key.sign(data, ec.ECDSA(hash_of(key)))).decode()


def verify(spki: bytes, data: bytes, signature: str) -> None:
    """Check a base64 DER signature. Raises `SignatureInvalid`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec

    key = public(spki)
    try:
        key.verify(base64.b64decode(signature, validate=True), data, ec.ECDSA(hash_of(key)))
    except (InvalidSignature, binascii.Error, ValueError):
        raise SignatureInvalid from None


def der_of(pem: str) -> bytes:
    """The DER of the first certificate in PEM text. Raises `CertificateInvalid`."""
    found = _CERTIFICATE.search(pem) if len(pem) <= MAX_PEM else None
    if found is None:
        raise CertificateInvalid("certificate invalid: not PEM")
    try:
        return base64.b64decode("".join(found[1].split()), validate=True)
    except (binascii.Error, ValueError):
        raise CertificateInvalid("certificate invalid: not base64") from None


def sha256(data: bytes) -> str:
    """Lower-case hex SHA-256: the fingerprint of a certificate's or key's DER."""
    return hashlib.sha256(data).hexdigest()


def fingerprint(text: str) -> str:
    """A fingerprint as stored: 16 or 64 lower-case hex digits, without `sha256:` and colons; "" when it is none."""
    bare = text.strip().lower().removeprefix("sha256:").replace(":", "")
    return bare if re.fullmatch(r"[0-9a-f]{16}|[0-9a-f]{64}", bare) else ""
