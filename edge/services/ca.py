"""`ca.*`: certificates, chain, revocation list, OCSP and the list of trusted roots, for any caller.

Devices and services of this node get their certificate when it is first asked for (design D15). What is signed on
request (OCSP, revocation list, trust list) is kept for a few seconds, so that asking often costs little.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from edge.contract.errors import InvalidParams, Malformed, NotFound, StorageFull
from edge.contract.limit import Limits, declare
from edge.contract.op import Call, Empty, Params, op
from edge.contract.store import Store, Unit
from edge.contract.task import DeviceGate
from edge.contract.time import SECOND, Clock, iso, wall_us
from edge.protocol import keys
from edge.protocol.aid import SERVICES, normal, split
from edge.store import identity as tables
from edge.store.keyring import SURE_US, Identity, Issued

T = TypeVar("T")

log = logging.getLogger(__name__)

SIGNED = declare("ca.signed_answers", 256, "answers", "kept for some seconds; above, the oldest is signed again", None)
OCSP_REQUEST = declare("ca.ocsp_request_octets", 4096, "bytes", "of an RFC 6960 request")

OCSP_KEEP_S = 10
"""Strict clients want an answer not older than 30 s (spec aun-connect §5.4)."""

CRL_KEEP_S = 300
LIST_KEEP_S = 3600
LIST_DAYS = 30


class CertAsked(Params, frozen=True, kw_only=True):
    """An AID, and which of its certificates: 16 or 64 hex digits of certificate or key, "" for the present one."""

    aid: str
    cert_fingerprint: str = ""


class Cert(msgspec.Struct):
    """A certificate in PEM and what became of it, as of `observed_at` (ISO 8601, UTC)."""

    aid: str
    serial: str
    cert: str
    state: str
    cert_sha256: str
    spki_sha256: str
    not_before: int
    not_after: int
    observed_at: str = ""


class Chain(msgspec.Struct):
    """Issuer, registry, root: separately and as one bundle; the TLS CA of the box, which is no part of it."""

    cert_chain: list[str]
    bundle: str
    root: str
    tls_root: str


class Crl(msgspec.Struct):
    """The signed revocation list."""

    crl_pem: str


class StatusAsked(Params, frozen=True, kw_only=True):
    """A serial number in hex."""

    serial: str


class Status(msgspec.Struct):
    """`good`, `revoked` or `unknown`, and the signed answer (base64 DER)."""

    status: str
    ocsp_response: str


class OcspAsked(Params, frozen=True, kw_only=True):
    """An RFC 6960 request (base64 DER)."""

    request: str


class OcspAnswer(msgspec.Struct):
    """An RFC 6960 response (base64 DER)."""

    response: str


class OwnAsked(Params, frozen=True, kw_only=True):
    """An AID of a device or service of this node."""

    aid: str


class Own(msgspec.Struct):
    """The certificate that signs for a device or service; its key is derived from `generation`."""

    aid: str
    kind: str
    serial: str
    cert_sha256: str
    spki_sha256: str
    generation: int


class CaService:
    """Shows what the authorities signed. `gate` knows the devices, `base` says where `/pki` is reached."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        identity: Identity,
        limits: Limits,
        gate: DeviceGate,
        base: Callable[[], str] = lambda: "",
    ) -> None:
        self._store, self._clock, self._identity, self._limits = store, clock, identity, limits
        self._gate, self._base = gate, base
        self._kept: OrderedDict[tuple[str, ...], tuple[int, Any]] = OrderedDict()

    async def start(self) -> None:
        """Enter the auth certificate, so that its status is known. Before the listeners open, and when leafs were
        made again.
        """
        auth = self._identity.auth

        def work(unit: Unit) -> None:
            if tables.certificate(unit, auth.serial) is None:
                operation = "agent_cert_renew" if tables.aid(unit, auth.aid) else "agent_cert_issue"
                spki = keys.spki_of(self._identity.auth_key.public_key())
                tables.issue(unit, auth, kind="service", spki=spki, operation=operation)

        if await self._store.read(lambda unit: tables.certificate(unit, auth.serial)) is None:
            try:
                await self._store.commit(work)
            except StorageFull:
                log.error("the certificate of %s is not entered yet: the store is read-only", auth.aid)

    @op("ca.get_cert", scope="", wire={"aun": ("ca.get_cert",), "http": ("ca.get_cert",)}, raises=(NotFound,))
    async def get_cert(self, call: Call[CertAsked]) -> Cert:
        """The certificate of an AID of this node, the present one or by fingerprint."""
        aid, wanted = normal(call.params.aid), keys.fingerprint(call.params.cert_fingerprint)
        if call.params.cert_fingerprint and not wanted:
            raise NotFound(f"no certificate of {aid} with that fingerprint")
        if not wanted and self._kind(aid):
            await self._own(aid)
        found = await self._store.read(
            lambda unit: tables.by_fingerprint(unit, aid, wanted) if wanted else tables.present(unit, aid)
        )
        if found is None:
            raise NotFound(f"no certificate of {aid}")
        return Cert(
            aid=aid,
            serial=found.serial,
            cert=found.pem,
            state=found.state,
            cert_sha256=found.cert_sha256,
            spki_sha256=found.spki_sha256,
            not_before=found.not_before,
            not_after=found.not_after,
            observed_at=self._observed_at(),
        )

    @op("ca.get_cert_chain", scope="", wire={"aun": ("ca.get_cert_chain",), "http": ("ca.get_cert_chain",)})
    async def get_cert_chain(self, call: Call[Empty]) -> Chain:
        """Issuer, registry and root certificate, in this order."""
        own = self._identity
        return Chain(own.chain, own.chain_pem, own.root_pem, own.tls_ca_pem)

    @op("ca.get_crl", scope="", wire={"aun": ("ca.get_crl",), "http": ("ca.get_crl",)})
    async def get_crl(self, call: Call[Empty]) -> Crl:
        """The signed list of revoked certificates."""
        from edge.protocol import pki

        number, gone = await self._store.read(lambda unit: (tables.ct_size(unit), tables.revoked(unit)))
        revoked = [pki.Revoked(serial, at, reason) for serial, at, reason in gone]
        make = lambda: pki.crl(self._identity.authority, revoked, self._now_s(), number)  # noqa: E731
        return Crl(await self._signed(("crl", str(number)), CRL_KEEP_S, make))

    @op("ca.ocsp", scope="", wire={"aun": ("ca.ocsp",), "http": ("ca.ocsp",)}, raises=(InvalidParams,))
    async def ocsp(self, call: Call[StatusAsked]) -> Status:
        """The status of one certificate, signed now."""
        try:
            serial = int(call.params.serial, 16)
        except ValueError:
            raise InvalidParams("serial must be hex") from None
        if not 0 < serial < 1 << 160:
            raise InvalidParams("serial must be 1 to 40 hex digits")
        status, der = await self._status(serial, sha1=False)
        return Status(status, base64.b64encode(der).decode())

    @op("ca.ocsp_request", scope="", wire={"http": ("ca.ocsp_request",)}, raises=(InvalidParams,))
    async def ocsp_request(self, call: Call[OcspAsked]) -> OcspAnswer:
        """Answer an RFC 6960 request, with the hash that it used."""
        from edge.protocol import pki

        if len(call.params.request) > self._limits[OCSP_REQUEST] * 4 // 3 + 4:
            raise self._limits.refuse(OCSP_REQUEST)
        try:
            serial, sha1 = pki.ocsp_question(base64.b64decode(call.params.request, validate=True))
        except (Malformed, binascii.Error) as error:
            raise InvalidParams(str(error)) from None
        return OcspAnswer(base64.b64encode((await self._status(serial, sha1=sha1))[1]).decode())

    @op("ca.get_trust_roots", scope="", wire={"aun": ("ca.get_trust_roots",), "http": ("ca.get_trust_roots",)})
    async def get_trust_roots(self, call: Call[Empty]) -> dict[str, Any]:
        """The list of trusted roots, signed by the root key."""
        from edge.protocol import pki

        def make() -> dict[str, Any]:
            now_s = self._now_s()
            root = self._identity.root
            return pki.trust_list(root, [(root.certificate, "active")], 1, now_s, now_s + LIST_DAYS * pki.DAY_S)

        return await self._signed(("trust",), LIST_KEEP_S, make)

    @op("ca.own_cert", scope="ca:admin", wire={}, raises=(NotFound,))
    async def own_cert(self, call: Call[OwnAsked]) -> Own:
        """The certificate that signs for a device or service of this node, made if there is none."""
        aid = normal(call.params.aid)
        kind = self._kind(aid)
        if not kind:
            raise NotFound(f"{aid} is no device or service of this node")
        known, found = await self._own(aid)
        generation = known.generation if known is not None else 0
        return Own(aid, kind, found.serial, found.cert_sha256, found.spki_sha256, generation)

    def _kind(self, aid: str) -> str:
        name, issuer = split(aid)
        if issuer != self._identity.issuer:
            return ""
        if name in SERVICES:
            return "service"
        return "device" if any(skill.aid == aid for skill in self._gate.skills()) else ""

    async def _own(self, aid: str) -> tuple[tables.Aid | None, tables.Certificate]:
        """The signing certificate of one of our own: P-256, also for `auth`, whose service certificate is P-384."""
        purpose = "signing" if aid == self._identity.auth.aid else "identity"

        def look(unit: Unit) -> tuple[tables.Aid | None, list[tables.Certificate]]:
            return tables.aid(unit, aid), tables.certificates(unit, aid, state=tables.ACTIVE, purpose=purpose)

        known, found = await self._store.read(look)
        if found and not self._due(found[0]):
            return known, found[0]
        generation = known.generation if known is not None else 0
        spki, made = await asyncio.to_thread(self._certify, aid, generation)

        def keep(unit: Unit) -> tables.Certificate:
            if (now := look(unit)[1]) and (not found or now[0].serial != found[0].serial):
                return now[0]
            return tables.issue(
                unit,
                made,
                kind=self._kind(aid) or "device",
                spki=spki,
                operation="agent_cert_renew" if found else "agent_cert_issue",
                purpose=purpose,
                generation=generation,
            )

        return known, await self._store.commit(keep)

    def _certify(self, aid: str, generation: int) -> tuple[bytes, Issued]:
        spki = keys.spki_of(self._identity.key_of(aid, generation).public_key())
        now_us, unsure_us = self._clock.wall(self._clock.now())
        return spki, self._identity.issue(aid, spki, now_us, unsure_us, self._base())

    def _due(self, certificate: tables.Certificate) -> bool:
        now_us, unsure_us = self._clock.wall(self._clock.now())
        quarter = (certificate.not_after - certificate.not_before) // 4
        return unsure_us <= SURE_US and (not certificate.sure or now_us // SECOND > certificate.not_after - quarter)

    async def _status(self, serial: int, *, sha1: bool) -> tuple[str, bytes]:
        from edge.protocol import pki

        name = format(serial, "x")
        found = await self._store.read(lambda unit: tables.certificate(unit, name))
        status, gone = "good" if found is not None else "unknown", None
        if found is not None and found.state == tables.REVOKED:
            status, gone = "revoked", pki.Revoked(found.serial, found.revoked_at, found.reason)

        def make() -> bytes:
            return pki.ocsp_response(self._identity.authority, serial, status, self._now_s(), revoked=gone, sha1=sha1)

        return status, await self._signed(("ocsp", name, status, str(sha1)), OCSP_KEEP_S, make)

    async def _signed(self, key: tuple[str, ...], keep_s: int, make: Callable[[], T]) -> T:
        """What `make` signs, off the loop; the same answer again for `keep_s` seconds."""
        now = self._clock.now().mono_us
        kept = self._kept.get(key)
        if kept is not None and kept[0] > now:
            return kept[1]  # type: ignore[no-any-return]
        value = await asyncio.to_thread(make)
        self._kept[key] = (now + keep_s * SECOND, value)
        self._kept.move_to_end(key)
        while len(self._kept) > self._limits[SIGNED]:
            self._kept.popitem(last=False)
            self._limits.hit(SIGNED)
        return value

    def _observed_at(self) -> str:
        return iso(wall_us(self._clock) // SECOND)

    def _now_s(self) -> int:
        """Now, or the floor when the time is not known and behind it."""
        now_us, unsure_us = self._clock.wall(self._clock.now())
        return max(now_us, self._identity.floor_us if unsure_us > SURE_US else 0) // SECOND
