"""`agent_md.*`: the public card of every AID (spec aun-connect §3.8, aun-services §1.7, settled G30, G47).

People's cards are stored byte for byte. Cards of devices and services are made and signed when first asked for, and
again when what they say changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from edge.contract.errors import (
    InvalidParams,
    NotFound,
    NotPermitted,
    PreconditionFailed,
    PreconditionRequired,
    SignatureInvalid,
    TooLarge,
)
from edge.contract.limit import Limits
from edge.contract.op import Call, Calls, Params, op
from edge.contract.principal import NODE
from edge.contract.store import Store, Unit
from edge.contract.task import DeviceGate
from edge.contract.time import SECOND, Clock, iso
from edge.protocol import agent_md as documents
from edge.protocol import keys
from edge.protocol.aid import SERVICES, normal, split
from edge.store import groups
from edge.store import identity as tables
from edge.store.keyring import SURE_US, Identity

BASES = 8
"""Generated cards kept of one AID: one per way in which the node is reached."""

AHEAD_S = 300
"""How far in the future a signature may be dated."""

Endpoints = Callable[[str, str], Mapping[str, str]]
"""Service endpoints that answer, for a caller's (base URL, address)."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What generated cards say about the node: provider, contact, license, visibility (settled G30)."""

    provider: str = ""
    contact: str = ""
    license: str = ""
    visibility: str = "public"


class Asked(Params, frozen=True, kw_only=True):
    """Whose card; `base` and `address` say how the caller reached us, `whole` keeps every signature block."""

    aid: str
    base: str = ""
    address: str = ""
    whole: bool = True


class AgentMd(msgspec.Struct):
    """A card and its strong entity tag. `signed` is False for cards that nobody may rely on."""

    aid: str
    content: str
    etag: str
    last_modified: int
    signed: bool


class Put(Params, frozen=True, kw_only=True):
    """A card to publish. `if_match`: the entity tag it replaces; `if_none_match`: `*` for the first."""

    aid: str
    content: str
    if_match: str = ""
    if_none_match: str = ""


class Stored(msgspec.Struct):
    """What is published now. `last_modified` is ISO 8601."""

    aid: str
    etag: str
    last_modified: str


class AgentMdService:
    """Cards. `gate` knows the devices' skills, `endpoints` the URLs that answer, `services` which are offered."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        identity: Identity,
        limits: Limits,
        gate: DeviceGate,
        calls: Calls,
        *,
        endpoints: Endpoints = lambda base, address: {},
        about: About | None = None,
        services: Sequence[str] = SERVICES,
    ) -> None:
        self._store, self._clock, self._identity, self._limits = store, clock, identity, limits
        self._gate, self._calls, self._endpoints = gate, calls, endpoints
        self._about, self._offered = about or About(), services

    @op("agent_md.get", scope="", wire={"http": ("agent_md.get",)}, raises=(InvalidParams, NotFound))
    async def get(self, call: Call[Asked]) -> AgentMd:
        """The card of an AID of this node."""
        aid = normal(call.params.aid)
        found = await self._store.read(lambda unit: tables.agent_md(unit, aid))
        if found is not None:
            body = found.body if call.params.whole else documents.projection(found.body)
            return AgentMd(aid, body.decode(), documents.etag(body), found.modified_s, found.signed)
        made = await self._generated(aid, call.params.base, call.params.address)
        return AgentMd(aid, made.body.decode(), made.etag, made.modified_s, True)

    @op(
        "agent_md.put",
        scope="agent_md:write",
        wire={"http": ("agent_md.put",)},
        raises=(InvalidParams, TooLarge, NotPermitted, PreconditionFailed, PreconditionRequired, NotFound),
        writes=True,
        before="prepare",
    )
    def put(self, call: Call[Put], unit: Unit) -> Stored:
        """Publish one's own card, or that of a group one owns; signed, and only over the version one has seen."""
        document: documents.Document = call.prepared
        kept, signed = tables.agent_md(unit, document.aid), bool(document.signatures)
        self._condition(call.params, kept, signed)
        if signed:
            self._verify(unit, document)
        elif kept is not None and kept.signed:
            raise InvalidParams("agent.md signature is required: the published version is signed")
        tag, second = documents.etag(document.body), unit.wall_us // SECOND
        tables.put_agent_md(unit, tables.AgentMd(document.aid, document.body, tag, signed, second))
        return Stored(document.aid, tag, iso(second))

    async def prepare(self, call: Call[Put]) -> documents.Document:
        """Everything that needs no table: whose it is, form, size."""
        aid = normal(call.params.aid)
        owner = await self._store.read(lambda unit: groups.owner(unit, aid))
        if call.who.aid != (owner or aid):
            raise NotPermitted(f"only {owner or aid} may publish the card of {aid}")
        name, issuer = split(aid)
        if issuer != self._identity.issuer or name in SERVICES:
            raise NotPermitted(f"{aid} publishes no card here")
        document = documents.parse(call.params.content.encode(), self._limits)
        if document.aid != aid:
            raise InvalidParams(f"agent.md is about {document.aid}, not about {aid}")
        if owner and not document.signatures:
            raise InvalidParams("agent.md of a group is signed with the group's key")
        return document

    def _condition(self, asked: Put, kept: tables.AgentMd | None, signed: bool) -> None:
        """If-None-Match and If-Match (RFC 9110 §13.1). An unsigned card may come without (settled G47)."""
        if asked.if_none_match:
            if asked.if_none_match.strip() != "*":
                raise InvalidParams("If-None-Match must be *")
            if kept is not None:
                raise PreconditionFailed("agent.md exists: send If-Match", data={"etag": kept.etag})
        elif asked.if_match:
            wanted = [tag.strip() for tag in asked.if_match.split(",")]
            if kept is None or not _matches(wanted, kept.body):
                raise PreconditionFailed("agent.md changed", data={"etag": kept.etag if kept else ""})
        elif signed:
            raise PreconditionRequired("If-None-Match: * or If-Match is required")

    def _verify(self, unit: Unit, document: documents.Document) -> None:
        """Every block must verify by a certificate of its signer that was good at the time it names."""
        for number, signature in enumerate(document.signatures):
            signer = signature.signer_aid or document.aid
            if number == 0 and signer != document.aid:
                raise InvalidParams("agent.md must first be signed by its own AID")
            found = tables.by_fingerprint(unit, signer, signature.cert_fingerprint)
            if found is None or found.cert_sha256 != signature.cert_fingerprint:
                raise InvalidParams(f"agent.md signature: no such certificate of {signer} here")
            spki = self._usable(unit, found, signature)
            if signature.public_key_fingerprint and signature.public_key_fingerprint != found.spki_sha256:
                raise InvalidParams("agent.md signature: public_key_fingerprint is of another key")
            try:
                keys.verify(spki, documents.signed_part(document, signature), signature.signature)
            except SignatureInvalid:
                raise InvalidParams("agent.md signature does not verify") from None

    def _usable(self, unit: Unit, found: tables.Certificate, signature: documents.Signature) -> bytes:
        """The key, if it is P-256, the AID's present one, not revoked; the signature dated inside and not ahead."""
        known = tables.aid(unit, found.aid)
        usable = found.curve == "P-256" and found.state in (tables.ACTIVE, tables.VERIFY_ONLY)
        if known is None or not usable or keys.sha256(known.spki) != found.spki_sha256:
            raise InvalidParams("agent.md signature: the certificate may not sign")
        if not found.not_before <= signature.timestamp <= found.not_after:
            raise InvalidParams("agent.md signature: dated outside its certificate")
        now_us, unsure_us = self._clock.wall(unit.at)
        if unsure_us <= SURE_US and signature.timestamp > now_us // SECOND + AHEAD_S:
            raise InvalidParams("agent.md signature: dated in the future")
        return known.spki

    async def _generated(self, aid: str, base: str, address: str) -> tables.GeneratedMd:
        card = self._card(aid, self._endpoints(base, address))
        own = await self._calls.call("ca.own_cert", {"aid": aid}, NODE)
        where, says = keys.sha256(msgspec.json.encode(sorted(card.service_endpoints.items()))), documents.content(card)
        kept, (newest, content) = await self._store.read(
            lambda unit: (tables.generated_md(unit, aid, where), tables.generated_version(unit, aid))
        )
        version = newest if content == says else newest + 1
        if kept is not None and (kept.content, kept.serial, kept.version) == (says, own.serial, version):
            return kept
        second = self._clock.wall(self._clock.now())[0] // SECOND
        body = await asyncio.to_thread(self._sign, card, version, own, second)
        made = tables.GeneratedMd(aid, where, version, says, own.serial, body, documents.etag(body), second)
        await self._store.commit(lambda unit: tables.put_generated_md(unit, made, BASES))
        return made

    def _sign(self, card: documents.Card, version: int, own: Any, second: int) -> bytes:
        """`own` is what `ca.own_cert` answers."""
        payload = documents.render(card, version, iso(second), self._limits[documents.PAYLOAD])
        key = self._identity.key_of(card.aid, own.generation)
        return documents.sign(payload, key, own.cert_sha256, own.spki_sha256, second)

    def _card(self, aid: str, endpoints: Mapping[str, str]) -> documents.Card:
        name, issuer = split(aid)
        about = {
            "provider": self._about.provider,
            "contact": self._about.contact,
            "license": self._about.license,
            "visibility": self._about.visibility,
        }
        if issuer == self._identity.issuer and name in self._offered:
            return documents.Card(
                aid=aid,
                name=name,
                type="service",
                description=f"The {name} service of {issuer}",
                tags=("service",),
                service_endpoints=endpoints,
                **about,  # type: ignore[arg-type]
            )
        skills = [skill for skill in self._gate.skills() if skill.aid == aid]
        if not skills:
            raise NotFound(f"no agent.md of {aid}")
        name = skills[0].device_name or skills[0].device
        return documents.Card(
            aid=aid,
            name=name,
            type="device",
            description=f"{name}, a device of {issuer}",
            tags=("device", *sorted({skill.cap.kind for skill in skills})),
            skills=tuple((skill.id, skill.cap.title or skill.cap.name) for skill in skills),
            service_endpoints=endpoints,
            **about,  # type: ignore[arg-type]
        )


def _matches(wanted: Sequence[str], body: bytes) -> bool:
    """Whether a tag is of the whole document or of what old clients see of it."""
    return "*" in wanted or bool({documents.etag(body), documents.etag(documents.projection(body))} & set(wanted))
