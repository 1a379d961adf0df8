from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from edge.contract.errors import NotAuthenticated
from edge.contract.wire import dumps
from edge.protocol import jwt, keys

P256, P384 = keys.generate("P-256"), keys.generate("P-384")
CLAIMS = jwt.Claims("a.x", "a.x", "auth.x", "aun", 1000, 4600, "id", 1, 5)


def verify(token: str, key: object = P384) -> jwt.Claims:
    known = {"k1": key.public_key()}  # type: ignore[attr-defined]
    return jwt.verify(token, known.get, issuer="auth.x")


def part(value: object) -> str:
    raw = value if isinstance(value, bytes) else dumps(value)
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@pytest.mark.parametrize(("key", "alg", "width"), [(P256, "ES256", 64), (P384, "ES384", 96)])
def test_a_token_comes_back_with_raw_r_and_s(key: object, alg: str, width: int) -> None:
    token = jwt.sign(CLAIMS, key, "k1")  # type: ignore[arg-type]
    head, _, signature = token.split(".")
    assert base64.urlsafe_b64decode(head + "==") == f'{{"alg":"{alg}","kid":"k1","typ":"JWT"}}'.encode()
    assert len(base64.urlsafe_b64decode(signature + "==")) == width
    assert verify(token, key) == CLAIMS


@pytest.mark.parametrize(
    "head",
    [
        {"alg": "none", "kid": "k1"},
        {"alg": "HS256", "kid": "k1"},
        {"alg": "ES256", "kid": "k1"},
        {"alg": "ES384", "kid": "other"},
        {"alg": "ES384", "kid": 7},
        {"alg": "ES384"},
        {"alg": "ES384", "kid": "k1", "typ": "JOSE"},
        {"alg": "ES384", "kid": "k1", "crit": ["exp"]},
        [],
    ],
)
def test_only_the_algorithm_of_a_known_key_is_accepted(head: object) -> None:
    _, body, signature = jwt.sign(CLAIMS, P384, "k1").split(".")
    with pytest.raises(NotAuthenticated):
        verify(f"{part(head)}.{body}.{signature}")


def test_claims_cannot_be_changed() -> None:
    head, _, signature = jwt.sign(CLAIMS, P384, "k1").split(".")
    more = part({**msgspec.to_builtins(CLAIMS), "exp": 10**9})
    with pytest.raises(NotAuthenticated):
        verify(f"{head}.{more}.{signature}")


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "auth.y"},
        {"aud": "web"},
        {"sub": "b.x"},
        {"exp": "soon"},
    ],
)
def test_a_token_for_somebody_else_is_refused(changed: dict[str, object]) -> None:
    fields = {**msgspec.to_builtins(CLAIMS), **changed}

    claims: Any = msgspec.defstruct("Claims", [(name, type(value)) for name, value in fields.items()])(**fields)
    with pytest.raises(NotAuthenticated):
        verify(jwt.sign(claims, P384, "k1"))


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c.d",
        "!.!.!",
        "a.b.c",
        "." * (jwt.MAX_OCTETS + 1),
        f"{part(b'[')}.e30.AA",
        f"{part({'alg': 'ES384', 'kid': 'k1'})}.{part(b'{')}.AA",
        f"{part({'alg': 'ES384', 'kid': 'k1'})}.e30.AB",
        f"{part(b'{' + b' ' * 4096)}.e30.AA",
    ],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(NotAuthenticated):
        verify(token)


def test_a_signature_has_one_spelling_only() -> None:
    token = jwt.sign(CLAIMS, P384, "k1")
    with pytest.raises(NotAuthenticated):
        verify(token + "=")
