"""Agent identifiers: `{name}.{issuer}` (spec aun-connect §4.1, settled G42).

New names obey the strict rule (`new_name`); everything that only *mentions* an AID takes any syntactically valid
one, so `bob.aid.pub` is merely unknown.
"""

from __future__ import annotations

import re

from edge.contract.errors import InvalidParams

RESERVED = frozenset(
    {
        "auth",
        "gateway",
        "msg",
        "message",
        "group",
        "storage",
        "stream",
        "mail",
        "meta",
        "search",
        "relay",
        "proxy",
        "pki",
        "ct",
        "ca",
        "nameservice",
        "aid_custody",
        "www",
    }
)
"""Names of the node's own services; nobody may register them."""

RESERVED_PREFIXES = ("guest", "d-")
"""`guest…` belongs to the protocol, `d-…` to devices (design D15)."""

SERVICES = ("auth", "group", "storage", "mail", "stream", "search", "relay")
"""Services that have an AID, a certificate and an agent.md of their own (settled G19)."""

_NEW = re.compile(r"[a-z0-9_][a-z0-9_-]{3,63}")
_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]{0,63}")
_ISSUER = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?")


def normal(aid: str) -> str:
    """The form that is stored and compared: lower case. Raises `InvalidParams` when it is no AID."""
    lower = aid.strip().lower()
    name, _, issuer = lower.partition(".")
    if len(lower) > 253 or not _NAME.fullmatch(name) or not valid_issuer(issuer):
        raise InvalidParams(f"not an AID: {aid[:80]!r}")
    return lower


def split(aid: str) -> tuple[str, str]:
    """Name and issuer. Raises `InvalidParams`."""
    name, _, issuer = normal(aid).partition(".")
    return name, issuer


def valid_issuer(issuer: str) -> bool:
    """Whether `issuer` can stand behind the first dot of an AID."""
    return len(issuer) <= 188 and ".." not in issuer and _ISSUER.fullmatch(issuer) is not None


def new_name(name: str) -> str:
    """A name that somebody may register: 4 to 64 characters, not one of ours. Raises `InvalidParams`."""
    if not _NEW.fullmatch(name):
        raise InvalidParams(f"invalid aid name {name[:80]!r}: 4 to 64 of a-z 0-9 _ - and no leading -")
    if name in RESERVED or name.startswith(RESERVED_PREFIXES):
        raise InvalidParams(f"invalid aid name {name!r}: reserved")
    return name


def host(header: str) -> str:
    """The host of a `Host` header: lower case, without port and trailing dot."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1 : text.find("]")] if "]" in text else ""
    return text.partition(":")[0].rstrip(".")
