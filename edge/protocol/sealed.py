"""V2 envelopes of point-to-point messages, for the AIDs whose key this node holds: opened and made (spec §5.2).

Each message has a key of its own (AES-256-GCM). Every reader's device gets it wrapped: by Diffie-Hellman between a
key made for this message and the reader's AID key (1DH), and with the prekey of the device where there is one (3DH).
The sender signs the ciphertext, the associated data and the root over all wraps. `cryptography` is imported inside
the functions: an idle node must not pay for it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from edge.contract.errors import InvalidParams, Malformed, SignatureInvalid
from edge.contract.wire import JsonLimits, canonical, decode, loads
from edge.protocol import keys, wraps

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

TYPE, VERSION, SUITE = "e2ee.p2p_encrypted", "v2", "P256_HKDF_SHA256_AES_256_GCM"
KEY_SOURCE, NO_PREKEY = "peer_device_prekey", "aid_master"
"""Where the key of a wrap comes from: a device's prekey, or the AID's own key alone."""

_INFO = {False: b"AUN-V2-1DH", True: b"AUN-V2-3DH"}
_KEY, _NONCE, _TAG, _HALF = 32, 12, 16, 32
_PAYLOAD = JsonLimits(octets=2_000_000)


class Reader(msgspec.Struct, frozen=True):
    """One device that an envelope is for: the key of its AID and, if it has one, its prekey (DER public keys)."""

    aid: str
    device: str
    key: bytes
    prekey_id: str = ""
    prekey: bytes = b""


class _Envelope(msgspec.Struct):
    """What opening one needs."""

    suite: str
    nonce: str
    ciphertext: str
    tag: str
    sender_signature: str
    sender_session_pk: str
    recipients_digest: str
    recipients: msgspec.Raw
    aad: dict[str, Any]


def open_sealed(
    raw: bytes, aid: str, key: ec.EllipticCurvePrivateKey, sender: str, sender_key: bytes, message_id: str
) -> dict[str, Any]:
    """The payload of an envelope to `aid`, wrapped for its key without a prekey.

    Raises `SignatureInvalid` when it is not what the sender signed, `Malformed` or `InvalidParams` when it is not for
    this AID or cannot be read.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    found = decode(raw, _Envelope)
    if found.suite != SUITE:
        raise Malformed(f"suite {found.suite[:40]!r} is not known")
    said = found.aad
    if (said.get("from"), said.get("to"), said.get("message_id")) != (sender, aid, message_id):
        raise Malformed("the envelope is of another message")
    rows, aad = wraps.rows(bytes(found.recipients)), canonical(said)
    ciphertext, tag, session = _octets(found.ciphertext), _octets(found.tag), _octets(found.sender_session_pk)
    if wraps.root([wraps.leaf(row) for row in rows]) != found.recipients_digest:
        raise SignatureInvalid("the digest is not of these recipients")
    _verify(sender_key, ciphertext + tag + aad + bytes.fromhex(found.recipients_digest), found.sender_signature)
    mine = next((row for row in rows if (row.aid, row.device, row.spk_id) == (aid, "", "")), None)
    if mine is None:
        raise Malformed(f"nothing in the envelope is for {aid} itself")
    wrap = _wrap_key(_salt(aad, session), [(key, keys.public(session))])
    try:
        master = AESGCM(wrap).decrypt(_octets(mine.nonce), _octets(mine.key), None)
        plain = AESGCM(master).decrypt(_octets(found.nonce), ciphertext + tag, aad)
    except (InvalidTag, ValueError):
        raise Malformed("the envelope cannot be opened with this key") from None
    payload = loads(plain, _PAYLOAD)
    if not isinstance(payload, dict):
        raise Malformed("the payload is no object")
    return payload


def seal(
    payload: dict[str, Any],
    aid: str,
    key: ec.EllipticCurvePrivateKey,
    readers: Sequence[Reader],
    message_id: str,
    at_ms: int,
) -> dict[str, Any]:
    """An envelope of `aid`, whose key this is, to the devices of one other AID. There must be readers."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    aad = {
        "from": aid,
        "from_device": "",
        "to": readers[0].aid,
        "message_id": message_id,
        "timestamp": at_ms,
        "suite": SUITE,
        "wrap_protocol": "+".join(sorted({"3DH" if one.prekey else "1DH" for one in readers})),
    }
    bound, master, nonce = canonical(aad), os.urandom(_KEY), os.urandom(_NONCE)
    body = AESGCM(master).encrypt(nonce, canonical(payload), bound)
    session = keys.generate("P-256")
    session_key = keys.spki_of(session.public_key())
    salt = _salt(bound, session_key)
    rows = sorted((_wrapped(one, master, salt, key, session) for one in readers), key=lambda row: (row.aid, row.device))
    digest = wraps.root([wraps.leaf(row) for row in rows])
    return {
        "type": TYPE,
        "version": VERSION,
        "suite": SUITE,
        "msg_type": "original",
        "t_send": at_ms,
        "nonce": _text(nonce),
        "ciphertext": _text(body[:-_TAG]),
        "tag": _text(body[-_TAG:]),
        "sender_signature": _signed(key, body + bound + bytes.fromhex(digest)),
        "sender_cert_fingerprint": _fingerprint(keys.spki_of(key.public_key())),
        "sender_session_pk": _text(session_key),
        "recipients_digest": digest,
        "recipients": [list(msgspec.structs.astuple(row)) for row in rows],
        "aad": aad,
    }


def prekey_of(aid_key: bytes, spk_id: str, spk: str, made_s: int, signature: str) -> bytes:
    """A device's prekey (DER), once its signature by the AID's key is checked.

    `signature` is 64 bytes r‖s in base64, over the key, its id and when it was made. Raises `SignatureInvalid`,
    `InvalidParams`.
    """
    der = keys.public_of(spk)
    _verify(aid_key, der + spk_id.encode() + str(made_s).encode(), signature)
    return der


def _wrapped(
    one: Reader,
    master: bytes,
    salt: bytes,
    key: ec.EllipticCurvePrivateKey,
    session: ec.EllipticCurvePrivateKey,
) -> wraps.Row:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    pairs = [(session, keys.public(one.key))]
    if one.prekey:
        pairs += [(key, keys.public(one.prekey)), (session, keys.public(one.prekey))]
    nonce = os.urandom(_NONCE)
    return wraps.Row(
        aid=one.aid,
        device=one.device,
        role="peer",
        key_source=KEY_SOURCE if one.prekey else NO_PREKEY,
        fp=_fingerprint(one.key),
        spk_id=one.prekey_id if one.prekey else "",
        nonce=_text(nonce),
        key=_text(AESGCM(_wrap_key(salt, pairs)).encrypt(nonce, master, None)),
    )


def _wrap_key(salt: bytes, pairs: Sequence[tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]]) -> bytes:
    """The key of a wrap: HKDF over the shared secrets, one for 1DH or three for 3DH."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    try:
        secret = b"".join(own.exchange(ec.ECDH(), theirs) for own, theirs in pairs)
    except ValueError:
        raise Malformed("a key of the envelope is on another curve") from None
    return HKDF(hashes.SHA256(), _KEY, salt=salt, info=_INFO[len(pairs) > 1]).derive(secret)


def _salt(aad: bytes, session: bytes) -> bytes:
    return hashlib.sha256(aad + session + SUITE.encode()).digest()[:16]


def _signed(key: ec.EllipticCurvePrivateKey, data: bytes) -> str:
    """r‖s of 32 bytes each, base64."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
    return _text(r.to_bytes(_HALF, "big") + s.to_bytes(_HALF, "big"))


def _verify(spki: bytes, data: bytes, signature: str) -> None:
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    raw = _octets(signature)
    if len(raw) != 2 * _HALF:
        raise SignatureInvalid("the signature must be 64 bytes")
    der = encode_dss_signature(int.from_bytes(raw[:_HALF], "big"), int.from_bytes(raw[_HALF:], "big"))
    keys.verify(spki, data, _text(der))


def _fingerprint(spki: bytes) -> str:
    return f"sha256:{keys.sha256(spki)[:16]}"


def _octets(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParams("the envelope is not base64") from None


def _text(octets: bytes) -> str:
    return base64.b64encode(octets).decode()
