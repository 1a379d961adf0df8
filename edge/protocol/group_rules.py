"""Rules of groups that need no table: roles, ways in, settings, patterns (spec aun-services §1.3, G-3, G-14, G-18)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from edge.contract.errors import InvalidParams

OWNER, ADMIN, MEMBER = "owner", "admin", "member"
RANKS: Mapping[str, int] = {MEMBER: 1, ADMIN: 2, OWNER: 3}

OPEN, APPROVAL, INVITE_ONLY, CLOSED = "open", "approval", "invite_only", "closed"
JOIN_MODES = (OPEN, APPROVAL, INVITE_ONLY, CLOSED)
PUBLIC, PRIVATE = "public", "private"

MENTION_MODES: Mapping[str, str] = {
    "disabled": "disabled",
    "broadcast": "disabled",
    "mention-only": "mention-only",
    "mention": "mention-only",
}
"""Present names and those of earlier servers."""

INDEX = "group.index"
CORE = ("name", "description", "visibility")
"""Settings that are columns of the group itself."""

MAX_PENDING = 100

_DOCUMENT = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,63})\.(content|attachments)")
_JOIN = {"join.mode", "join.question", "join.auto_approve_patterns", "join.max_pending", "join.attachments"}
_RESERVED = {"join", "group", "name", "description", "visibility", "mention_mode"}
_LITERAL = re.compile(r"[A-Za-z0-9_@-]")


def outranks(role: str, other: str) -> bool:
    """Whether one role may act on somebody of the other."""
    return RANKS[role] > RANKS[other]


def default_mode(visibility: str) -> str:
    """The way in of a group that set none."""
    return OPEN if visibility == PUBLIC else APPROVAL


def mention_mode(value: object) -> str:
    """Raises `InvalidParams`."""
    mode = MENTION_MODES.get(str(value))
    if mode is None:
        raise InvalidParams("mention_mode is disabled or mention-only")
    return mode


def visibility(value: object) -> str:
    """`invite_only` is an earlier word for private. Raises `InvalidParams`."""
    if value == INVITE_ONLY:
        return PRIVATE
    if value not in (PUBLIC, PRIVATE):
        raise InvalidParams("visibility is public or private")
    return str(value)


def indexed(key: str) -> bool:
    """Whether a setting stands in the signed `group.index`."""
    found = _DOCUMENT.fullmatch(key)
    return key in _JOIN or (found is not None and found[1].lower() not in _RESERVED)


def setting(key: str, value: Any) -> Any:
    """A setting as it is stored. Raises `InvalidParams` for an unknown key or a value that does not fit it."""
    checked = _CHECKS.get(key)
    if checked is not None:
        return checked(value)
    if key == "join.attachments" or (indexed(key) and key.endswith(".attachments")):
        return _array(value)
    if indexed(key):
        return _text(value)
    raise InvalidParams(f"unknown setting {key[:80]!r}")


def patterns(value: Any) -> list[str]:
    """AID patterns that let somebody in unasked. Raises `InvalidParams`."""
    found = _array(value)
    if not all(isinstance(one, str) for one in found):
        raise InvalidParams("auto_approve_patterns is an array of strings")
    for one in found:
        _pieces(one)
    return found


def approved(aid: str, allowed: list[str]) -> bool:
    """Whether an AID matches one of the patterns, as a whole."""
    return any(_matches(_pieces(one), aid) for one in allowed)


def _pieces(pattern: str) -> list[str]:
    r"""The literal parts between wildcards.

    Patterns are globs (`*`), or the plain part of regular expressions (`^`, `$`, `.*`, `\.`, `.+`): anything that could
    make matching slow is refused, because it would run on the node's writer thread.
    """
    body = pattern.strip().lower().removeprefix("^").removesuffix("$")
    body = body.replace(".*", "*").replace(".+", "*").replace("\\.", ".").replace("\\-", "-")
    if not body or len(body) > 253 or not all(char in "*." or _LITERAL.fullmatch(char) for char in body):
        raise InvalidParams(f"auto_approve_patterns: {pattern[:80]!r} is more than an AID with * in it")
    return body.split("*")


def _matches(pieces: list[str], text: str) -> bool:
    if len(pieces) == 1:
        return text == pieces[0]
    first, *middle, last = pieces
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidParams("must be a string")
    return value


def _array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidParams("must be an array")
    return value


def join_mode(value: Any) -> str:
    """Raises `InvalidParams`."""
    if value not in JOIN_MODES:
        raise InvalidParams(f"join mode is one of {', '.join(JOIN_MODES)}")
    return str(value)


def max_pending(value: Any) -> int:
    """Raises `InvalidParams`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 1000:
        raise InvalidParams("max_pending is 1 to 1000")
    return value


def _index(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("body"), str):
        raise InvalidParams("group.index is an object with a body")
    return value


_CHECKS: Mapping[str, Any] = {
    "name": _text,
    "description": _text,
    "visibility": visibility,
    "mention_mode": mention_mode,
    "join.mode": join_mode,
    "join.question": _text,
    "join.auto_approve_patterns": patterns,
    "join.max_pending": max_pending,
    INDEX: _index,
}
