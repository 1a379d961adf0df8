"""The signed index of a group's settings: JSON lines, the first says who signed what (spec aun-services §1.3, G-18).

Clients make it; the node checks that it is what it says and stands for the settings it comes with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from edge.contract.errors import EdgeError, InvalidParams
from edge.contract.wire import JsonLimits, canonical, loads

SCHEMA, ALGORITHM = "aun.group.index.v1", "ECDSA-P256-SHA256"


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """An index whose hashes hold. `signed` is what the signature is over."""

    group_aid: str
    etag: str
    last_modified: int
    signed_by: str
    cert_fingerprint: str
    signature: str
    signed: bytes
    entries: Mapping[str, str]

    def meta(self) -> dict[str, Any]:
        """What answers say about it beside the result."""
        return {"etag": self.etag, "last_modified": self.last_modified, "schema": SCHEMA}


def parse(body: str, limits: JsonLimits) -> Index:
    """Read an index. Raises `InvalidParams` when a line is broken or a hash does not hold."""
    lines = [line for line in body.split("\n") if line.strip()]
    try:
        found = [loads(line, limits) for line in lines]
    except EdgeError as error:
        raise InvalidParams(f"group.index: {error.message}") from None
    if not found or not all(isinstance(line, dict) for line in found):
        raise InvalidParams("group.index is JSON lines, one object each")
    meta, entries = found[0], sorted(found[1:], key=lambda entry: str(entry.get("key") or ""))
    digest = hashlib.sha256(_lines(entries)).hexdigest()
    expected = {
        "type": "index_meta",
        "schema": SCHEMA,
        "sig_alg": ALGORITHM,
        "body_hash": f"sha256:{digest}",
        "etag": f'"sha256:{digest}"',
    }
    for name, value in expected.items():
        if meta.get(name) != value:
            raise InvalidParams(f"group.index: {name} must be {value}")
    unsigned = {name: value for name, value in meta.items() if name != "signature"}
    return Index(
        group_aid=_text(meta, "group_aid"),
        etag=expected["etag"],
        last_modified=meta["last_modified"] if isinstance(meta.get("last_modified"), int) else 0,
        signed_by=_text(meta, "signed_by"),
        cert_fingerprint=_text(meta, "cert_fingerprint"),
        signature=_text(meta, "signature"),
        signed=_lines([unsigned, *entries]),
        entries={_text(entry, "key"): _text(entry, "etag") for entry in entries},
    )


def _lines(objects: list[dict[str, Any]]) -> bytes:
    return b"".join(canonical(one) + b"\n" for one in objects)


def _text(source: Mapping[str, Any], name: str) -> str:
    found = source.get(name, "")
    return found if isinstance(found, str) else ""
