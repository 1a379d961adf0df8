"""The one door for JSON from outside (design D3a), and the one way out.

What passes `loads` can be read by every published SDK: no duplicate keys, no number above
2^53−1, no lone surrogates, bounded in size and depth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

import msgspec

from edge.contract.errors import Malformed, TooLarge

T = TypeVar("T")

SAFE_INTEGER = 2**53 - 1
"""The largest magnitude a JSON number may have: above it JavaScript and the AUN SDK drop the connection."""


dumps: Callable[[Any], bytes] = msgspec.json.Encoder().encode
"""Compact JSON, UTF-8, of plain values and records."""


class JsonLimits(msgspec.Struct, frozen=True):
    """How much JSON one reader accepts: bytes of the whole text, levels of nesting."""

    octets: int = 1_048_576
    depth: int = 32


DEFAULT = JsonLimits()


def loads(data: bytes | bytearray | memoryview | str, limits: JsonLimits = DEFAULT) -> Any:
    """Read one JSON value.

    Raises `TooLarge` over `limits.octets`, `Malformed` for anything else that is not clean JSON.
    """
    if type(data) is bytes:
        raw = data
    elif isinstance(data, str):
        try:
            raw = data.encode()
        except UnicodeEncodeError:
            raise Malformed("lone surrogate in JSON text") from None
    else:
        raw = bytes(data)
    if len(raw) > limits.octets:
        raise TooLarge(f"JSON text over {limits.octets} bytes", data={"max": limits.octets})
    value = _clean(raw, limits.depth)
    if value is not _UNSURE:
        return value
    _check_depth(raw, limits.depth)
    try:
        value = _DECODER.decode(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise Malformed("not valid UTF-8") from None
    except RecursionError:
        raise Malformed("JSON nested too deep") from None
    except ValueError as error:
        raise Malformed(str(error) or "malformed JSON") from None
    if b"\\ud" in raw or b"\\uD" in raw:
        try:
            dumps(value)
        except UnicodeEncodeError:
            raise Malformed("lone surrogate in JSON text") from None
    return value


def decode(raw: bytes | memoryview, kind: type[T]) -> T:
    """Read already-vetted JSON (it has passed `loads` once) into a record. Raises `Malformed`."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Malformed(str(error)) from None


def canonical(value: object) -> bytes:
    """JSON with sorted keys, `,` and `:` separators, non-ASCII unescaped: the form that AUN signatures hash."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _clean(raw: bytes, depth: int) -> Any:
    """The short way for what is plainly clean JSON; `_UNSURE` where only the strict parser can tell.

    No key is twice in an object when the text has no more colons than its objects have members: each pair has one.
    """
    try:
        value = _plain(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _UNSURE
    kind = type(value)
    if kind is dict or kind is list:
        return value if _members(value, depth) == raw.count(b":") else _UNSURE
    if kind is int or kind is float:
        return value if _LEAST <= value <= SAFE_INTEGER else _UNSURE
    return value


def _members(value: dict[str, Any] | list[Any], depth: int) -> int:
    """How many members the objects in it have; negative when it nests deeper than `depth` or has a number above
    2^53−1."""
    if depth <= 0:
        return _UNCLEAN
    items: Iterable[Any] = value
    members = 0
    if type(value) is dict:
        items, members = value.values(), len(value)
    for item in items:
        kind = type(item)
        if kind is str:
            continue
        if kind is int or kind is float:
            if not _LEAST <= item <= SAFE_INTEGER:
                return _UNCLEAN
        elif kind is dict or kind is list:
            members += _members(item, depth - 1)
    return members


def _check_depth(raw: bytes, allowed: int) -> None:
    """Refuse deep nesting before any parser recurses: each round peels the innermost brackets."""
    if raw.count(b"[") + raw.count(b"{") <= allowed:
        return
    brackets = _STRINGS.sub(b"", raw).translate(_BRACKETS, _NOT_BRACKETS)
    for _ in range(allowed):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return
    raise Malformed(f"JSON nested deeper than {allowed} levels")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key in JSON object")
    return found


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > SAFE_INTEGER:
        raise ValueError("number above 2^53-1")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if abs(value) > SAFE_INTEGER:
        raise ValueError("number above 2^53-1")
    return value


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or what is left of one that never ends; it gives nothing back, so a scan costs its length once."""
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_UNSURE = object()
_UNCLEAN = -(1 << 60)
_LEAST = -SAFE_INTEGER
_plain = msgspec.json.Decoder[Any]().decode
_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer, parse_float=_float, parse_constant=_constant)
