"""What groups are called: every accepted form, and the one that is stored (spec aun-services 2.G-1, C-8).

`g-slug`, `g-slug.issuer`, `g-slug@issuer`, `base.issuer` and `group.issuer/base` name the same group `<base>.<issuer>`.
"""

from __future__ import annotations

import re

from edge.contract.errors import InvalidParams
from edge.protocol import aid as aids

_BASE = re.compile(r"[a-z0-9][a-z0-9_-]{3,63}")
_SLUG = re.compile(r"g-[a-z0-9]{4,32}")
_NAMED = re.compile(r"[a-z0-9_-]{4,64}")


def canonical(text: str, issuer: str) -> str:
    """`<base>.<issuer>` of any form, trimmed and in lower case. Raises `InvalidParams` when it is none."""
    given = text.strip().strip("/").lower()
    if given.startswith("group.") and "/" in given:
        domain, _, base = given.removeprefix("group.").partition("/")
    elif "@" in given:
        base, _, domain = given.partition("@")
    else:
        base, _, domain = given.partition(".")
    domain = domain.strip(".") or issuer
    if not _BASE.fullmatch(base) or not aids.valid_issuer(domain) or len(base) + len(domain) > 252:
        raise InvalidParams(f"not a group id: {text[:80]!r}")
    return f"{base}.{domain}"


def custom(text: str, issuer: str) -> str:
    """A name that a creator chose. Raises `InvalidParams` for digits only, a bad `g-` slug, a foreign issuer."""
    gid = canonical(text, issuer)
    base, _, domain = gid.partition(".")
    if domain != issuer:
        raise InvalidParams(f"groups of this node end in .{issuer}, not in .{domain}")
    if base.isdigit():
        raise InvalidParams("a group id of digits only is not given to groups that choose theirs")
    if base.startswith("g-"):
        if not _SLUG.fullmatch(base):
            raise InvalidParams("after g- come 4 to 32 of a-z 0-9")
        return gid
    return _free(base, gid)


def named(name: str, issuer: str) -> str:
    """The AID of a named group. Raises `InvalidParams`."""
    base = name.strip().lower()
    if not _NAMED.fullmatch(base) or not _BASE.fullmatch(base) or base.startswith("g-"):
        raise InvalidParams(f"invalid group_name {name[:80]!r}: 4 to 64 of a-z 0-9 _ -, not beginning with g-")
    return _free(base, f"{base}.{issuer}")


def generated(token: str, issuer: str) -> str:
    """The AID of a group that chose none; `token` is lower-case hex."""
    return f"g-{token}.{issuer}"


def _free(base: str, gid: str) -> str:
    """A group is an AID too: what no agent may be called, no group may."""
    aids.new_name(base)
    return gid
