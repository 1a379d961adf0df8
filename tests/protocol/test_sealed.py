"""V2 envelopes: opened by whom they are for and by nobody else; what was changed on the way is refused."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from edge.contract.errors import InvalidParams, Malformed, SignatureInvalid
from edge.contract.wire import canonical, dumps
from edge.protocol import keys, sealed, wraps
from edge.protocol.sealed import Reader, open_sealed, prekey_of, seal

ALICE, LAMP = "alice.edge.test", "d-lamp.edge.test"
HI = {"type": "text", "text": "é\n\u0001", "n": [1, 1.5, None, True]}


def key() -> ec.EllipticCurvePrivateKey:
    return keys.generate("P-256")


def spki(one: ec.EllipticCurvePrivateKey) -> bytes:
    return keys.spki_of(one.public_key())


MINE, THEIRS = key(), key()


def made(**more: Any) -> dict[str, Any]:
    return seal(HI, ALICE, THEIRS, [Reader(LAMP, "", spki(MINE))], "m-1", 1_790_000_000_000) | more


def opened(envelope: dict[str, Any], **more: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {"aid": LAMP, "key": MINE, "sender": ALICE, "sender_key": spki(THEIRS), "message_id": "m-1"}
    return open_sealed(dumps(envelope), **(asked | more))


def test_what_is_sealed_for_an_aid_is_opened_with_its_key() -> None:
    envelope = made()
    assert opened(envelope) == HI
    assert (envelope["type"], envelope["version"], envelope["aad"]["wrap_protocol"]) == (sealed.TYPE, "v2", "1DH")
    assert "text" not in str({name: value for name, value in envelope.items() if name != "ciphertext"})
    assert made()["ciphertext"] != envelope["ciphertext"], "a message has a key of its own"


def test_rows_stand_in_order_and_each_device_has_its_own() -> None:
    prekey, other = key(), key()
    readers = [
        Reader(LAMP, "b", spki(MINE), "sha256:1", spki(prekey)),
        Reader(LAMP, "a", spki(MINE)),
        Reader(LAMP, "", spki(MINE), "no prekey, no id"),
    ]
    envelope = seal(HI, ALICE, THEIRS, readers, "m-1", 7)
    rows = wraps.rows(dumps(envelope["recipients"]))
    assert [(row.device, row.key_source, row.spk_id) for row in rows] == [
        ("", sealed.NO_PREKEY, ""),
        ("a", sealed.NO_PREKEY, ""),
        ("b", sealed.KEY_SOURCE, "sha256:1"),
    ]
    assert envelope["aad"]["wrap_protocol"] == "1DH+3DH"
    assert opened(envelope) == HI
    assert unwrapped(envelope, rows[2], MINE, prekey) == unwrapped(envelope, rows[1], MINE)
    with pytest.raises(InvalidTag):
        unwrapped(envelope, rows[2], MINE, other)


def unwrapped(envelope: dict[str, Any], row: wraps.Row, own: ec.EllipticCurvePrivateKey, prekey: Any = None) -> bytes:
    """The key of the message as a device gets at it, by the words of the specification."""
    der = base64.b64decode(envelope["sender_session_pk"])
    session, theirs = keys.public(der), THEIRS.public_key()
    salt = hashlib.sha256(canonical(envelope["aad"]) + der + envelope["suite"].encode()).digest()[:16]
    shared = own.exchange(ec.ECDH(), session)
    if prekey is not None:
        shared += prekey.exchange(ec.ECDH(), theirs) + prekey.exchange(ec.ECDH(), session)
    info = b"AUN-V2-3DH" if prekey is not None else b"AUN-V2-1DH"
    wrap = HKDF(hashes.SHA256(), 32, salt=salt, info=info).derive(shared)
    return AESGCM(wrap).decrypt(base64.b64decode(row.nonce), base64.b64decode(row.key), None)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"aid": "d-door.edge.test"}, Malformed),
        ({"sender": "bobb.edge.test"}, Malformed),
        ({"message_id": "m-2"}, Malformed),
        ({"sender_key": spki(key())}, SignatureInvalid),
        ({"key": key()}, Malformed),
        ({"key": keys.generate("P-384")}, Malformed),
    ],
)
def test_nobody_else_opens_it_and_for_nobody_else(more: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        opened(made(), **more)


def flip(text: str) -> str:
    raw = bytearray(base64.b64decode(text))
    raw[-1] ^= 1
    return base64.b64encode(bytes(raw)).decode()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda e: e.update(ciphertext=flip(e["ciphertext"])), SignatureInvalid),
        (lambda e: e.update(tag=flip(e["tag"])), SignatureInvalid),
        (lambda e: e["aad"].update(timestamp=8), SignatureInvalid),
        (lambda e: e.update(recipients_digest="00" * 32), SignatureInvalid),
        (lambda e: e.update(sender_signature=flip(e["sender_signature"])), SignatureInvalid),
        (lambda e: e.update(sender_signature="AAAA"), SignatureInvalid),
        (lambda e: e.update(sender_signature="no base64"), InvalidParams),
        (lambda e: e.update(nonce=flip(e["nonce"])), Malformed),
        (lambda e: e.update(nonce=""), Malformed),
        (lambda e: e.update(sender_session_pk=base64.b64encode(spki(key())).decode()), Malformed),
        (lambda e: e.update(sender_session_pk="AAAA"), InvalidParams),
        (lambda e: e.update(suite="ROT13"), Malformed),
        (lambda e: e.update(recipients=[]), InvalidParams),
        (lambda e: e.update(recipients=7), InvalidParams),
        (lambda e: e.pop("aad"), Malformed),
        (lambda e: e["recipients"][0].__setitem__(7, flip(e["recipients"][0][7])), SignatureInvalid),
    ],
)
def test_what_was_changed_on_the_way_is_refused(
    change: Callable[[dict[str, Any]], object], error: type[Exception]
) -> None:
    envelope = made()
    change(envelope)
    with pytest.raises(error):
        opened(envelope)


def test_an_envelope_for_devices_alone_is_not_for_the_aid_itself() -> None:
    for reader in (Reader(LAMP, "b", spki(MINE)), Reader("d-door.edge.test", "", spki(MINE))):
        envelope = seal(HI, ALICE, THEIRS, [reader], "m-1", 7)
        with pytest.raises(Malformed):
            opened(envelope, aid=reader.aid if reader.device else LAMP)
    envelope = seal(HI, ALICE, THEIRS, [Reader(LAMP, "", spki(MINE), "x", spki(key()))], "m-1", 7)
    with pytest.raises(Malformed, match="nothing in the envelope"):
        opened(envelope)


def test_a_payload_is_an_object() -> None:
    envelope = seal([1], ALICE, THEIRS, [Reader(LAMP, "", spki(MINE))], "m-1", 7)  # type: ignore[arg-type]
    with pytest.raises(Malformed, match="no object"):
        opened(envelope)


def test_a_prekey_counts_when_the_aids_key_signed_it() -> None:
    prekey = key()
    der = spki(prekey)

    def signed(one: ec.EllipticCurvePrivateKey, data: bytes) -> str:
        r, s = decode_dss_signature(one.sign(data, ec.ECDSA(hashes.SHA256())))
        return base64.b64encode(r.to_bytes(32, "big") + s.to_bytes(32, "big")).decode()

    text, said = base64.b64encode(der).decode(), der + b"sha256:7" + b"5"
    assert prekey_of(spki(MINE), "sha256:7", text, 5, signed(MINE, said)) == der
    for other in (signed(THEIRS, said), signed(MINE, said + b"5")):
        with pytest.raises(SignatureInvalid):
            prekey_of(spki(MINE), "sha256:7", text, 5, other)
    with pytest.raises(InvalidParams):
        prekey_of(spki(MINE), "sha256:7", "AAAA", 5, signed(MINE, said))
