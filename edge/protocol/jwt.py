"""Access tokens: JSON Web Tokens with ES256 or ES384, and nothing else (spec aun-connect §11).

The algorithm comes from the *key* that `kid` names, never from the token: a header that says otherwise is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from edge.contract.errors import Malformed, NotAuthenticated, TooLarge
from edge.contract.wire import JsonLimits, canonical, loads
from edge.protocol.keys import hash_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

MAX_OCTETS = 4096
"""A longer token is not one of ours."""

AUDIENCE = "aun"
_JSON = JsonLimits(octets=MAX_OCTETS, depth=4)
_WIDTH = {"secp256r1": ("ES256", 32), "secp384r1": ("ES384", 48)}


class Claims(msgspec.Struct, frozen=True):
    """What a token says. Times are whole seconds since 1970 UTC.

    `boot` and `up` (boot number, seconds of its monotonic clock at issue) let the issuer tell a token's age even when
    it learned the time only after issuing it (design D12).
    """

    aid: str
    sub: str
    iss: str
    aud: str
    iat: int
    exp: int
    jti: str = ""
    boot: int = 0
    up: int = 0


def sign(claims: Claims, key: ec.EllipticCurvePrivateKey, kid: str) -> str:
    """The token. Its signature is raw r‖s (JOSE), not DER."""
    from cryptography.hazmat.primitives.asymmetric import ec, utils

    alg, width = _WIDTH[key.curve.name]
    head = _b64(canonical({"alg": alg, "kid": kid, "typ": "JWT"}))
    text = f"{head}.{_b64(canonical(msgspec.to_builtins(claims)))}"
    r, s = utils.decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hash_of(key))))
    return f"{text}.{_b64(r.to_bytes(width, 'big') + s.to_bytes(width, 'big'))}"


def verify(token: str, key_of: Callable[[str], ec.EllipticCurvePublicKey | None], *, issuer: str) -> Claims:
    """The claims of a token whose signature is good; whether it has expired is the caller's to tell.

    `key_of` finds the public key of a `kid`. Raises `NotAuthenticated`.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, utils

    parts = token.split(".")
    if len(token) > MAX_OCTETS or len(parts) != 3:
        raise NotAuthenticated("token invalid")
    head, body = _object(parts[0]), _object(parts[1])
    kid = head.get("kid")
    key = key_of(kid) if isinstance(kid, str) else None
    if key is None or key.curve.name not in _WIDTH:
        raise NotAuthenticated("token invalid: unknown key")
    alg, width = _WIDTH[key.curve.name]
    raw = _bytes(parts[2])
    if head.get("alg") != alg or head.get("typ", "JWT") != "JWT" or "crit" in head or len(raw) != 2 * width:
        raise NotAuthenticated("token invalid: wrong algorithm")
    der = utils.encode_dss_signature(int.from_bytes(raw[:width], "big"), int.from_bytes(raw[width:], "big"))
    try:
        key.verify(der, f"{parts[0]}.{parts[1]}".encode(), ec.ECDSA(hash_of(key)))
        claims = msgspec.convert(body, Claims)
    except (InvalidSignature, msgspec.ValidationError):
        raise NotAuthenticated("token invalid") from None
    if claims.iss != issuer or claims.aud != AUDIENCE or claims.aid != claims.sub:
        raise NotAuthenticated("token invalid: not for this node")
    return claims


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise NotAuthenticated("token invalid") from None
    if _b64(raw) != text:
        raise NotAuthenticated("token invalid")
    return raw


def _object(part: str) -> dict[str, object]:
    try:
        value = loads(_bytes(part), _JSON)
    except (Malformed, TooLarge):
        raise NotAuthenticated("token invalid") from None
    if not isinstance(value, dict):
        raise NotAuthenticated("token invalid")
    return value
