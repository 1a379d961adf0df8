from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from edge.contract.errors import CertificateInvalid, InvalidParams, SignatureInvalid
from edge.protocol import keys

P256, P384 = keys.generate("P-256"), keys.generate("P-384")


@pytest.mark.parametrize(("key", "digest"), [(P256, "sha256"), (P384, "sha384")])
def test_the_hash_follows_the_curve_of_the_signer(key: ec.EllipticCurvePrivateKey, digest: str) -> None:
    assert keys.hash_of(key).name == digest
    spki = keys.spki_of(key.public_key())
    keys.verify(spki, b"text", keys.sign(key, b"text"))
    with pytest.raises(SignatureInvalid):
        keys.verify(spki, b"other", keys.sign(key, b"text"))


@pytest.mark.parametrize("signature", ["", "!", "AAAA", base64.b64encode(b"x" * 72).decode()])
def test_what_is_no_signature_does_not_verify(signature: str) -> None:
    with pytest.raises(SignatureInvalid):
        keys.verify(keys.spki_of(P256.public_key()), b"text", signature)


def test_a_device_key_is_the_same_again_and_another_per_aid_seed_and_generation() -> None:
    seed = bytes(range(32))
    found = {
        keys.save(keys.derive(*given))
        for given in [
            (seed, "d-a.x", 0),
            (seed, "d-a.x", 0),
            (seed, "d-b.x", 0),
            (seed, "d-a.x", 1),
            (bytes(32), "d-a.x", 0),
        ]
    }
    assert len(found) == 4
    assert keys.derive(seed, "d-a.x", 0).curve.name == "secp256r1"


def test_a_saved_key_is_loaded_again_and_nothing_else_is() -> None:
    assert keys.load(keys.save(P384)).private_numbers() == P384.private_numbers()
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for pem in (other, b"nonsense"):
        with pytest.raises(ValueError, match=r"."):
            keys.load(pem)


def test_a_public_key_param_must_be_a_point_on_the_curve_asked() -> None:
    spki = keys.spki_of(P256.public_key())
    text = base64.b64encode(spki).decode()
    assert keys.public_of(text) == spki
    foreign = ed25519.Ed25519PrivateKey.generate().public_key()
    k256 = ec.generate_private_key(ec.SECP256K1()).public_key()
    der = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    for bad in (
        "%%%",
        base64.b64encode(b"not der").decode(),
        base64.b64encode(keys.spki_of(P384.public_key())).decode(),
        base64.b64encode(foreign.public_bytes(*der)).decode(),
        base64.b64encode(k256.public_bytes(*der)).decode(),
        base64.b64encode(spki[:-1] + bytes((spki[-1] ^ 1,))).decode(),
    ):
        with pytest.raises(InvalidParams):
            keys.public_of(bad)


def test_der_comes_out_of_pem_and_nothing_else_passes() -> None:
    body = base64.b64encode(b"certificate").decode()
    assert keys.der_of(f"noise\n-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n") == b"certificate"
    for bad in (
        "",
        "-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----",
        "x" * (keys.MAX_PEM + 1),
    ):
        with pytest.raises(CertificateInvalid):
            keys.der_of(bad)


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("sha256:" + "A" * 64, "a" * 64),
        ("0123456789abcdef", "0123456789abcdef"),
        ("01:23:45:67:89:ab:cd:ef", "0123456789abcdef"),
        ("abc", ""),
        ("g" * 64, ""),
    ],
)
def test_fingerprints_come_in_many_spellings(text: str, bare: str) -> None:
    assert keys.fingerprint(text) == bare
