"""The recipients of a V2 envelope: one wrapped key per device, under one Merkle root (spec aun-services §5.2, §5.3).

A row is `[aid, device_id, role, key_source, ik_fp, spk_id, wrap_nonce, wrapped_key]`; rows are sorted by their first
three members. The root is signed by the sender, so a reader that gets one row and its proof knows it is genuine.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from edge.contract.errors import InvalidParams

FIELDS = ("aid", "device_id", "role", "key_source", "fp", "spk_id", "wrap_nonce", "wrapped_key")
LEAF = 32
_LEAF_PREFIX, _NODE_PREFIX = b"AUN-V2-RCPT-LEAF-v1", b"AUN-V2-RCPT-NODE-v1"


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One recipient. An empty device stands for every device of the AID."""

    aid: str
    device: str
    role: str
    key_source: str
    fp: str
    spk_id: str
    nonce: str
    key: str


def rows(raw: bytes) -> list[Row]:
    """Read the `recipients` of an envelope. Raises `InvalidParams` when there are none or they are not sorted."""
    try:
        found = msgspec.json.decode(raw or b"[]", type=list[Row])
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidParams(f"recipients must be rows of 8 strings: {error}") from None
    if not found:
        raise InvalidParams("recipients is empty")
    order = [(row.aid, row.device, row.role) for row in found]
    if order != sorted(order):
        raise InvalidParams("recipients must be sorted by aid, device_id and role")
    if len({(row.aid, row.device) for row in found}) != len(found):
        raise InvalidParams("recipients names a device twice")
    return found


def leaf(row: Row) -> bytes:
    """The hash of one row."""
    text = (row.aid, row.device, row.role, row.key_source, row.fp, row.spk_id)
    return hashlib.sha256(
        _LEAF_PREFIX + b"".join(part.encode() + b"\0" for part in text) + _octets(row.nonce) + _octets(row.key)
    ).digest()


def root(leaves: Sequence[bytes]) -> str:
    """The Merkle root of all rows' hashes, as hex; an odd node is doubled."""
    layer = list(leaves)
    while len(layer) > 1:
        layer = _above(layer)
    return layer[0].hex()


def proof(leaves: Sequence[bytes], index: int) -> list[dict[str, str]]:
    """What leads from one row's hash to the root."""
    steps, layer = [], list(leaves)
    while len(layer) > 1:
        beside = index ^ 1 if index ^ 1 < len(layer) else index
        steps.append({"sibling": layer[beside].hex(), "position": "L" if index & 1 else "R"})
        layer, index = _above(layer), index // 2
    return steps


def split(leaves: bytes) -> list[bytes]:
    """Hashes that were stored end to end."""
    return [leaves[at : at + LEAF] for at in range(0, len(leaves), LEAF)]


def recipient(row: Row) -> dict[str, Any]:
    """A row as a reader gets it."""
    return dict(zip(FIELDS, msgspec.structs.astuple(row), strict=True))


def _above(layer: Sequence[bytes]) -> list[bytes]:
    even = [*layer, layer[-1]] if len(layer) & 1 else layer
    return [hashlib.sha256(_NODE_PREFIX + even[at] + even[at + 1]).digest() for at in range(0, len(even), 2)]


def _octets(text: str) -> bytes:
    """Nonce and key are hashed as raw bytes. Raises `InvalidParams`."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParams("recipients: wrap_nonce and wrapped_key are base64") from None
