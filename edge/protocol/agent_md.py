"""agent.md: YAML front matter, Markdown, signature blocks (spec aun-connect §3.8, aun-services §1.7, settled G30).

A signature covers every byte before the `<` of its own block; blocks stand at the end, all together at most 2 KiB.
The ETag is the SHA-256 of the exact bytes, quoted: clients compute it too.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from edge.contract.errors import InvalidParams, Malformed
from edge.contract.limit import Limits, declare
from edge.contract.wire import dumps
from edge.protocol import front_matter, keys
from edge.protocol.aid import normal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

PAYLOAD = declare("agent_md.payload_octets", 4096, "bytes", "of an agent.md without its signature blocks")
SIGNATURES = declare("agent_md.signature_octets", 2048, "bytes", "of all signature blocks of an agent.md")

VISIBILITIES = ("public", "unlisted", "private")
_MARKER = b"<!-- AUN-SIGNATURE"
_BLOCK = re.compile(
    rb"<!-- AUN-SIGNATURE(?:-(?P<tag>[A-Z0-9-]+))?(?:\r\n|\n|\r)(?P<body>.*?)(?:\r\n|\n|\r)-->\s*\Z", re.DOTALL
)
_FIELDS = {"cert_fingerprint", "public_key_fingerprint", "timestamp", "signature", "signer_aid"}
_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")
_SECRET = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_VERSION = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}")


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """One signature block: fingerprints as 64 hex digits, `start` the length of what it signs, `end` after `-->`."""

    start: int
    end: int
    cert_fingerprint: str
    timestamp: int
    signature: str
    public_key_fingerprint: str = ""
    signer_aid: str = ""
    tag: str = ""


class Document(msgspec.Struct, frozen=True):
    """An agent.md taken apart; `body` are its bytes, unchanged."""

    body: bytes
    meta: dict[str, Any]
    signatures: tuple[Signature, ...] = ()

    @property
    def aid(self) -> str:
        """The AID it says it is about."""
        return str(self.meta["aid"]).lower()


def etag(body: bytes) -> str:
    """The strong entity tag of a document."""
    return f'"{keys.sha256(body)}"'


def parse(body: bytes, limits: Limits) -> Document:
    """Take a document apart and check every rule that needs no certificate. Raises `InvalidParams`, `TooLarge`."""
    if len(body) > limits[PAYLOAD] + limits[SIGNATURES]:
        raise limits.refuse(PAYLOAD)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidParams("agent.md is not UTF-8") from None
    if _SECRET.search(text):
        raise InvalidParams("agent.md contains a private key")
    first = body.find(_MARKER)
    payload = body if first < 0 else body[:first]
    if len(payload) > limits[PAYLOAD]:
        raise limits.refuse(PAYLOAD)
    if len(body) - len(payload) > limits[SIGNATURES]:
        raise limits.refuse(SIGNATURES)
    return Document(body, _meta(payload.decode("utf-8")), _signatures(body))


def projection(body: bytes) -> bytes:
    """What clients without `multi-v1` get: everything up to the end of the first block (spec §3.8).

    The block's tag goes, and `signer_aid`, which old readers do not know; what is signed stays as it was.
    """
    found = _signatures(body)
    if len(found) < 2:
        return body
    first = found[0]
    lines = body[first.start : first.end].splitlines(keepends=True)
    ending = lines[0][len(lines[0].rstrip(b"\r\n")) :]
    kept = [line for line in lines[1:] if not line.strip().lower().startswith(b"signer_aid")]
    return body[: first.start] + _MARKER + ending + b"".join(kept)


def sign(payload: bytes, key: ec.EllipticCurvePrivateKey, cert_sha256: str, spki_sha256: str, at_s: int) -> bytes:
    """`payload` (ends with a newline) and its signature block."""
    lines = (
        _MARKER.decode(),
        f"cert_fingerprint: sha256:{cert_sha256}",
        f"public_key_fingerprint: sha256:{spki_sha256}",
        f"timestamp: {at_s}",
        f"signature: {keys.sign(key, payload)}",
        "-->",
    )
    return payload + "\n".join(lines).encode()


def signed_part(document: Document, signature: Signature) -> bytes:
    """The bytes that a signature covers."""
    return document.body[: signature.start]


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What a generated document says (settled G30). Empty fields are left out."""

    aid: str
    name: str
    type: str
    description: str = ""
    tags: tuple[str, ...] = ()
    visibility: str = "public"
    skills: tuple[tuple[str, str], ...] = ()
    """(id, name) pairs, ids as in the A2A card."""
    input_modes: tuple[str, ...] = ("text/plain", "application/json")
    output_modes: tuple[str, ...] = ("text/plain", "application/json")
    service_endpoints: Mapping[str, str] = {}
    provider: str = ""
    contact: str = ""
    license: str = ""


def content(card: Card) -> str:
    """A digest of what a card says about its subject; where it is reached does not count."""
    return keys.sha256(dumps(msgspec.structs.replace(card, service_endpoints={})))


def render(card: Card, version: int, updated_at: str, octets: int) -> bytes:
    """The document without signature, at most `octets` long: skills that do not fit are counted in the text."""
    shown = len(card.skills)
    while True:
        text = _render(card, version, updated_at, shown)
        if len(text) <= octets or not shown:
            return text
        shown -= max(1, (len(text) - octets) // 80)
        shown = max(shown, 0)


def _render(card: Card, version: int, updated_at: str, shown: int) -> bytes:
    lines = ["---"]
    name, description = _clean(card.name) or card.aid, _clean(card.description)[:100]
    fields: dict[str, object] = {
        "aid": card.aid,
        "name": name,
        "type": card.type,
        "version": f"1.0.{version - 1}",
        "description": description,
        "tags": [_clean(tag) for tag in card.tags],
        "visibility": card.visibility,
        "updated_at": updated_at,
        "input_modes": list(card.input_modes),
        "output_modes": list(card.output_modes),
        "provider": _clean(card.provider),
        "contact": _clean(card.contact),
        "license": _clean(card.license),
    }
    skills = [(ident, _clean(title)) for ident, title in card.skills[:shown]]
    lines += [f"{key}: {dumps(value).decode()}" for key, value in fields.items() if value]
    if card.service_endpoints:
        lines.append("service_endpoints:")
        lines += [f"  {key}: {dumps(url).decode()}" for key, url in sorted(card.service_endpoints.items())]
    if shown:
        lines.append("skills:")
        lines += [f"  - {dumps({'id': ident, 'name': title}).decode()}" for ident, title in skills]
    lines += ["---", "", f"# {_text(name)}", ""]
    if description:
        lines += [_text(description), ""]
    lines += [f"- `{ident}` {_text(title)}" for ident, title in skills]
    if shown < len(card.skills):
        lines.append(f"- and {len(card.skills) - shown} more, as the A2A card lists them")
    return "\n".join([*lines, ""]).encode()


def _clean(text: str) -> str:
    """One line, no characters that YAML readers refuse, no signature block of its own: devices name themselves."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(shown.split()).replace("<!--", "‹!--")


def _text(text: str) -> str:
    """For Markdown: no HTML."""
    return text.replace("<", "‹")


def _meta(payload: str) -> dict[str, Any]:
    lines = payload.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].strip() != "---":
        raise InvalidParams("agent.md must begin with YAML front matter (---)")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.strip() == "---"), 0)
    if not end:
        raise InvalidParams("agent.md front matter is not closed (---)")
    try:
        meta = front_matter.read("\n".join(lines[1:end]))
    except Malformed as error:
        raise InvalidParams(f"agent.md {error.message}") from None
    _check(meta)
    return meta


def _check(meta: dict[str, Any]) -> None:
    for name in ("aid", "name", "type", "version"):
        if not isinstance(meta.get(name), str) or not meta[name].strip():
            raise InvalidParams(f"agent.md {name} must be a non-empty string")
    normal(meta["aid"])
    if not _VERSION.fullmatch(meta["version"]):
        raise InvalidParams("agent.md version must be MAJOR.MINOR.PATCH")
    for name, longest in (("description", 100), ("avatar", 256)):
        value = meta.get(name, "")
        if not isinstance(value, str) or len(value) > longest:
            raise InvalidParams(f"agent.md {name} must be a string of at most {longest} characters")
    tags = meta.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidParams("agent.md tags must be a list of strings")
    if meta.get("visibility", "public") not in VISIBILITIES:
        raise InvalidParams(f"agent.md visibility must be one of {', '.join(VISIBILITIES)}")


def _signatures(body: bytes) -> tuple[Signature, ...]:
    starts = [match.start() for match in re.finditer(re.escape(_MARKER), body)]
    ends = [*starts[1:], len(body)] if starts else []
    return tuple(
        _signature(body, start, end, first=number == 0)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    )


def _signature(body: bytes, start: int, end: int, *, first: bool) -> Signature:
    if start and body[start - 1 : start] not in (b"\r", b"\n"):
        raise InvalidParams("agent.md signature block must begin on a new line")
    block = _BLOCK.fullmatch(body, start, end)
    if block is None:
        raise InvalidParams("agent.md signature block is malformed")
    fields = _fields(block["body"].decode())
    signer = fields.get("signer_aid", "")
    if not first and not signer:
        raise InvalidParams("a further signature of agent.md needs signer_aid")
    return Signature(
        start=start,
        end=start + body[start:end].rindex(b"-->") + 3,
        cert_fingerprint=_fingerprint(fields, "cert_fingerprint"),
        public_key_fingerprint=_fingerprint(fields, "public_key_fingerprint", optional=True),
        timestamp=_timestamp(fields.get("timestamp", "")),
        signature=_base64(fields.get("signature", "")),
        signer_aid=normal(signer) if signer else "",
        tag=(block["tag"] or b"").decode(),
    )


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        name = name.strip().lower()
        if not colon or name not in _FIELDS or name in fields:
            raise InvalidParams(f"agent.md signature block: unexpected line {line.strip()[:60]!r}")
        fields[name] = value.strip()
    return fields


def _fingerprint(fields: Mapping[str, str], name: str, *, optional: bool = False) -> str:
    text = fields.get(name, "")
    if not text and optional:
        return ""
    if not _FINGERPRINT.fullmatch(text):
        raise InvalidParams(f"agent.md signature block: {name} must be sha256: and 64 hex digits")
    return text.removeprefix("sha256:")


def _timestamp(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,15}", text):
        raise InvalidParams("agent.md signature block: timestamp must be seconds since 1970")
    return int(text)


def _base64(text: str) -> str:
    try:
        if base64.b64encode(base64.b64decode(text, validate=True)).decode() == text != "":
            return text
    except (binascii.Error, ValueError):
        pass
    raise InvalidParams("agent.md signature block: signature is not base64")
