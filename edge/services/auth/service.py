"""`auth.*`: register a key under a name, prove it, keep the certificate fresh, open a session.

Everything that an answer depends on is committed before the answer leaves; what a login remembers between its calls
is loop state. Signatures and certificates are made before the unit, off the loop.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Annotated, Any, cast

import msgspec

from edge.contract.errors import (
    CertificateInvalid,
    Conflict,
    InvalidParams,
    NameTaken,
    NonceInvalid,
    NotAuthenticated,
    NotFound,
    ProtocolVersion,
    RateLimited,
    RegistrationClosed,
    SignatureInvalid,
    TokenExpired,
    TooLarge,
)
from edge.contract.limit import Limits, declare
from edge.contract.op import Call, Outcome, op
from edge.contract.principal import Principal
from edge.contract.store import Store, Unit
from edge.contract.time import SECOND, Clock
from edge.contract.wire import dumps, loads
from edge.protocol import keys
from edge.protocol.aid import normal
from edge.protocol.aun import isolation_key
from edge.services.auth import records as r
from edge.services.auth.logins import Attempts, Login, Logins
from edge.services.auth.registration import Registration
from edge.services.auth.signatures import Signatures
from edge.services.auth.tokens import REFRESH_TOKEN, TokenDesk, age_us, agent, new_token
from edge.store import identity as tables
from edge.store.keyring import SURE_US, Identity, Issued

HELLO = declare("auth.hello_octets", 16_384, "bytes", "of what auth.connect announces", TooLarge)
CHAINS = declare("auth.logins_per_aid", 64, "logins", "of one AID with a refresh token; the least used end", None)
CHAIN_DAYS = declare("auth.refresh_days", 30, "days", "after a login until it must be repeated", NotAuthenticated)
CHAIN_TURNS = declare(
    "auth.refresh_turns", 720, "refreshes", "after a login until it must be repeated", NotAuthenticated
)

GRACE_US = 120 * SECOND
"""A refresh token that was just replaced is good this long: the answer may have been lost on a bad link."""

RENEW_GRACE_S = 90 * 86_400
"""How long after its end a certificate may still be renewed."""

PROTOCOL = (1, 0)
_DEVICE = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SLOT = re.compile(r"[A-Za-z0-9._-][A-Za-z0-9._/ :-]{0,127}")
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")

_REGISTERS = (InvalidParams, NameTaken, RegistrationClosed, RateLimited, Conflict)
_LOGS_IN = (NotAuthenticated, NonceInvalid, SignatureInvalid, CertificateInvalid, InvalidParams, RateLimited)
_REFRESHES = (RateLimited,)
_CONNECTS = (*_LOGS_IN, TokenExpired, ProtocolVersion, TooLarge)


class AuthService:
    """Names and sessions. Also the node's `Tokens`.

    `registration` is `invited`, `window` or `open`; `namespaces` says what `auth.connect` announces.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        identity: Identity,
        limits: Limits,
        *,
        registration: str = "invited",
        namespaces: Callable[[], Sequence[str]] = lambda: ("auth", "message", "meta", "task"),
        server: str = "aun-edge",
        version: str = "0.1",
        base: Callable[[], str] = lambda: "",
    ) -> None:
        self._store, self._clock, self._identity, self._limits = store, clock, identity, limits
        self._namespaces, self._server, self._version, self._base = namespaces, server, version, base
        self._logins, self._attempts = Logins(clock, limits), Attempts(clock, limits)
        self.registration = Registration(clock, identity.issuer, registration)
        self.tokens = TokenDesk(store, clock, identity, limits)
        self.signatures = Signatures(store, clock, limits)

    @property
    def issuer(self) -> str:
        """The domain behind every AID of this node."""
        return self._identity.issuer

    async def principal(self, token: str) -> Principal:
        """Whom a bearer token speaks for. Raises `NotAuthenticated` or `TokenExpired`."""
        return await self.tokens.principal(token)

    def forget(self) -> None:
        """Read tokens and keys again: something was revoked or replaced."""
        self.tokens.forget()
        self.signatures.forget()

    # -- registration -------------------------------------------------------------------------------------------------

    @op(
        "auth.create_aid",
        scope="",
        wire={"aun": ("auth.create_aid",)},
        raises=_REGISTERS,
        writes=True,
        before="prepare_create",
    )
    def create_aid(self, call: Call[r.CreateAid], unit: Unit) -> r.Created:
        """Register a name for a key; the same key gets the same certificate again."""
        aid, spki, made = cast("tuple[str, bytes, Issued | None]", call.prepared)
        found = self.registration.decide(unit, aid, spki)
        if found is None:
            if made is None:
                raise Conflict(f"{aid} changed meanwhile: ask again")
            found = tables.issue(unit, made, kind="agent", spki=spki, operation="agent_cert_issue")
            tables.release(unit, aid.partition(".")[0])
            unit.after(self.forget)
        return r.Created(aid, found.pem, self._identity.issuer_pem)

    async def prepare_create(self, call: Call[r.CreateAid]) -> tuple[str, bytes, Issued | None]:
        """Check the name and the key, and make the certificate if one is due."""
        self._attempts.ask(call.door.address)
        aid, _ = self.registration.name(call.params.aid)
        if call.params.curve != "P-256":
            raise InvalidParams("the key of an AID is on curve P-256")
        spki = keys.public_of(call.params.public_key)
        found = await self._store.read(lambda unit: self.registration.decide(unit, aid, spki))
        return aid, spki, None if found is not None else await self._issue(aid, spki)

    # -- login --------------------------------------------------------------------------------------------------------

    @op("auth.aid_login1", scope="", wire={"aun": ("auth.aid_login1",)}, raises=_LOGS_IN)
    async def aid_login1(self, call: Call[r.Login1]) -> r.Challenge:
        """Begin a login: a nonce to sign, and the node's own proof."""
        self._attempts.ask(call.door.address)
        aid = normal(call.params.aid)
        nonce = call.params.client_nonce
        if not nonce or len(nonce) > 256:
            raise InvalidParams("client_nonce must be 1 to 256 characters")
        request_id, own = self._logins.begin(aid, *await self._proven(aid, call.params.cert))
        signature = await asyncio.to_thread(keys.sign, self._identity.auth_key, nonce.encode())
        return r.Challenge(request_id, own, self._identity.auth.pem, signature, self._seconds())

    @op(
        "auth.aid_login2",
        scope="",
        wire={"aun": ("auth.aid_login2",)},
        raises=_LOGS_IN,
        writes=True,
        before="prepare_login",
    )
    def aid_login2(self, call: Call[r.Login2], unit: Unit) -> r.LoggedIn:
        """Finish a login: tokens for the proof of the key."""
        login, access, seconds, refresh, renewed = cast("tuple[Login, str, int, str, Issued | None]", call.prepared)
        known, aid = self._settled(unit, login), login.aid
        new_cert = ""
        if renewed is not None and keys.sha256(known.spki) == renewed.spki_sha256:
            operation = "agent_cert_renew"
            new_cert = tables.issue(unit, renewed, kind="agent", spki=known.spki, operation=operation).pem
        tables.start_chain(unit, secrets.token_hex(8), aid, tables.digest(refresh))
        if dropped := tables.trim_chains(unit, aid, self._limits[CHAINS]):
            unit.after(lambda: self._limits.hit(CHAINS, dropped))
        return r.LoggedIn(aid, access, access, refresh, seconds, True, new_cert)

    async def prepare_login(self, call: Call[r.Login2]) -> tuple[Login, str, int, str, Issued | None]:
        """Use the nonce up, check the signature, make the tokens; a certificate past its half is renewed."""
        asked = call.params
        aid = normal(asked.aid)
        login = self._logins.take(aid, asked.request_id, asked.nonce)
        self._check(call, login, f"{asked.nonce}:{_text(asked.client_time)}", asked.signature)
        if self._over(login.shown.end):
            raise CertificateInvalid("certificate invalid: expired, renew it (auth.renew_cert)")
        renewed = await self._issue(aid, login.spki) if self._half_over(login.shown) else None
        access, seconds = await asyncio.to_thread(self.tokens.access, aid)
        return login, access, seconds, new_token(REFRESH_TOKEN), renewed

    @op(
        "auth.refresh_token",
        scope="",
        wire={"aun": ("auth.refresh_token",)},
        raises=_REFRESHES,
        writes=True,
        before="prepare_refresh",
    )
    def refresh_token(self, call: Call[r.Refresh], unit: Unit) -> r.Refreshed:
        """New tokens for a refresh token; the one before is good a little longer."""
        if call.prepared is None:
            return _relogin(call.params.refresh_token)
        shown, access, seconds, fresh = cast("tuple[bytes, str, int, str]", call.prepared)
        chain = tables.chain(unit, shown)
        if chain is None or not self._may_turn(unit, chain, shown):
            return _relogin(call.params.refresh_token)
        tables.turn_chain(unit, chain.chain, shown, tables.digest(fresh), call.params.device_id, call.params.slot_id)
        count = chain.count + 1
        return r.Refreshed(True, False, False, access, access, fresh, seconds, chain.aid, count)

    async def prepare_refresh(self, call: Call[r.Refresh]) -> tuple[bytes, str, int, str] | None:
        """Find whose token it is and make the next ones; None when it is nobody's."""
        self._attempts.ask(call.door.address)
        token, said = call.params.refresh_token, call.params.aid.strip().lower()
        if not token.startswith(REFRESH_TOKEN) or len(token) > 256:
            self._attempts.failed(call.door.address)
            return None
        digest = tables.digest(token)
        chain = await self._store.read(lambda unit: tables.chain(unit, digest))
        if chain is None or (said and said != chain.aid):
            self._attempts.failed(call.door.address)
            return None
        access, seconds = await asyncio.to_thread(self.tokens.access, chain.aid)
        return digest, access, seconds, new_token(REFRESH_TOKEN)

    def _may_turn(self, unit: Unit, chain: tables.Chain, shown: bytes) -> bool:
        known = tables.aid(unit, chain.aid)
        fresh = chain.token == shown or age_us(unit, self._clock, chain, turned=True) <= GRACE_US
        old = age_us(unit, self._clock, chain) > self._limits[CHAIN_DAYS] * 86_400 * SECOND
        if known is None or known.state != "active" or not fresh:
            return False
        for limit, over in ((CHAIN_DAYS, old), (CHAIN_TURNS, chain.count >= self._limits[CHAIN_TURNS])):
            if over:
                tables.drop_chain(unit, chain.chain)
                unit.after(lambda name=limit: self._limits.hit(name))  # type: ignore[misc]
                return False
        return True

    # -- certificates -------------------------------------------------------------------------------------------------

    @op(
        "auth.renew_cert",
        scope="",
        wire={"aun": ("auth.renew_cert",)},
        raises=_LOGS_IN,
        writes=True,
        before="prepare_renew",
    )
    def renew_cert(self, call: Call[r.Renew], unit: Unit) -> r.Certified:
        """A new certificate for the same key; the old one verifies what it signed."""
        login, made = cast("tuple[Login, Issued]", call.prepared)
        known = self._settled(unit, login)
        if known.spki != login.spki:
            raise CertificateInvalid("certificate invalid: the key was replaced meanwhile")
        kept = tables.issue(unit, made, kind="agent", spki=login.spki, operation="agent_cert_renew")
        return r.Certified("renewed", login.aid, kept.pem, self._identity.issuer_pem)

    async def prepare_renew(self, call: Call[r.Renew]) -> tuple[Login, Issued]:
        """Use the nonce up, check the signature over it, make the certificate."""
        login = self._logins.take(normal(call.params.aid), call.params.request_id, call.params.nonce)
        self._check(call, login, call.params.nonce, call.params.signature)
        return login, await self._issue(login.aid, login.spki)

    @op(
        "auth.rekey",
        scope="",
        wire={"aun": ("auth.rekey",)},
        raises=_LOGS_IN,
        writes=True,
        before="prepare_rekey",
    )
    def rekey(self, call: Call[r.Rekey], unit: Unit) -> r.Certified:
        """A certificate for a new key, by a signature of the old one; the old key no longer logs in."""
        login, spki, made = cast("tuple[Login, bytes, Issued]", call.prepared)
        known = self._settled(unit, login)
        if known.spki != login.spki:
            raise CertificateInvalid("certificate invalid: the key was replaced meanwhile")
        kept = tables.issue(unit, made, kind="agent", spki=spki, operation="agent_cert_rekey")
        tables.drop_chains(unit, login.aid)
        unit.after(self.forget)
        return r.Certified("rekeyed", login.aid, kept.pem, self._identity.issuer_pem)

    async def prepare_rekey(self, call: Call[r.Rekey]) -> tuple[Login, bytes, Issued]:
        """Use the nonce up, check the old key's signature over nonce and new key, make the certificate."""
        asked = call.params
        login = self._logins.take(normal(asked.aid), asked.request_id, asked.nonce)
        self._check(call, login, asked.nonce + asked.new_public_key, asked.signature)
        spki = keys.public_of(asked.new_public_key)
        return login, spki, await self._issue(login.aid, spki)

    @op(
        "auth.request_cert",
        scope="any",
        wire={"aun": ("auth.request_cert",)},
        raises=(InvalidParams, NotFound),
        writes=True,
        before="prepare_request",
    )
    def request_cert(self, call: Call[r.RequestCert], unit: Unit) -> r.Certified:
        """A further certificate of one's own AID on another curve."""
        made = cast(Issued, call.prepared)
        known = self._active(unit, made.aid)
        extra = {"kind": "agent", "spki": known.spki, "purpose": "extra", "operation": "agent_cert_issue"}
        kept = tables.issue(unit, made, **extra)  # type: ignore[arg-type]
        return r.Certified("issued", made.aid, kept.pem, self._identity.issuer_pem, made.curve)

    async def prepare_request(self, call: Call[r.RequestCert]) -> Issued:
        """Check that it is one's own, and make it."""
        if call.params.aid and normal(call.params.aid) != call.who.aid:
            raise InvalidParams("aid must be the caller's own")
        if call.params.curve not in ("P-256", "P-384"):
            raise InvalidParams("curve must be P-256 or P-384")
        return await self._issue(call.who.aid, keys.public_of(call.params.public_key, call.params.curve))

    @op("auth.download_cert", scope="", wire={"aun": ("auth.download_cert",)}, raises=(NotFound,))
    async def download_cert(self, call: Call[r.DownloadCert]) -> r.Downloaded:
        """A certificate by serial number, or the root, with its chain."""
        wanted = call.params.cert_sn.strip().lower()
        chain = self._identity.chain
        if wanted == "root":
            return r.Downloaded(self._identity.root_pem, self._identity.root_pem, chain)
        serial = wanted.removeprefix("0x").lstrip("0")
        found = await self._store.read(lambda unit: tables.certificate(unit, serial))
        if found is None:
            raise NotFound(f"no certificate {wanted[:64]!r}")
        return r.Downloaded(found.pem, self._identity.issuer_pem, chain)

    # -- session ------------------------------------------------------------------------------------------------------

    @op("auth.connect", scope="", wire={"aun": ("auth.connect",)}, raises=_CONNECTS)
    async def connect(self, call: Call[r.Connect]) -> Annotated[Outcome, r.Connected]:
        """Make this connection a session of an AID. After a failure socket and nonce stay good, success uses it up."""
        asked, nonce = call.params, call.door.nonce
        if not asked.nonce or not asked.auth.method:
            raise InvalidParams("nonce and auth.method are required")
        if not nonce and call.who.aid:
            raise NonceInvalid(f"this connection is a session of {call.who.aid} already: open another")
        if not nonce or not secrets.compare_digest(asked.nonce.encode(), nonce.encode()):
            raise NonceInvalid("challenge nonce unknown or expired")
        protocol = _agree(asked.protocol)
        hello, key = self._hello(asked)
        aid, scopes = await self._authenticate(call, asked.auth)
        who = Principal(agent(aid).kind, aid, scopes, via="aun", device_id=asked.device.id, slot=key)
        return Outcome(result=self._connected(call, who, protocol), become=who, hello=hello)

    async def _authenticate(self, call: Call[Any], proof: r.Proof) -> tuple[str, frozenset[str]]:
        if proof.method == "kite_token":
            try:
                who = await self.tokens.principal(proof.token)
            except NotAuthenticated:
                self._attempts.failed(call.door.address)
                raise
            return who.aid, who.scopes
        if proof.method == "aid":
            aid = normal(proof.aid)
            login = self._logins.take(aid, proof.request_id, proof.nonce)
            self._check(call, login, proof.nonce, proof.signature)
            await self._store.read(lambda unit: self._active(unit, aid))
            return aid, agent(aid).scopes
        raise InvalidParams(f"auth.method {proof.method[:40]!r} is not offered: kite_token or aid")

    def _hello(self, asked: r.Connect) -> tuple[bytes, str]:
        """What the session keeps of the announcement, and the isolation key of the slot."""
        device, slot = asked.device.id, asked.client.slot_id
        if device and not _DEVICE.fullmatch(device):
            raise InvalidParams("device.id must be 1 to 128 of A-Z a-z 0-9 . _ -")
        if slot and not _SLOT.fullmatch(slot):
            raise InvalidParams("client.slot_id must be 1 to 128 of A-Z a-z 0-9 . _ - / : and space")
        if slot and not device:
            raise InvalidParams("slot_requires_device_id")
        if asked.options.kind not in ("long", "short"):
            raise InvalidParams("options.kind must be long or short")
        mode = _mode(asked.delivery_mode)
        key = isolation_key(slot)
        hello = dumps(
            {
                "delivery_mode": mode,
                "capabilities": asked.capabilities,
                "kind": asked.options.kind,
                "options": asked.options,
                "device": asked.device,
                "slot": slot,
                "slot_key": key,
                "client": asked.client,
                "extra_info": {name: value for name, value in asked.extra_info.items() if not name.startswith("_")},
            }
        )
        if len(hello) > self._limits[HELLO]:
            raise self._limits.refuse(HELLO)
        return hello, key

    def _connected(self, call: Call[r.Connect], who: Principal, protocol: str) -> r.Connected:
        capabilities = {
            "namespaces": list(self._namespaces()),
            "p2p_peer_pull_v1": True,
            "features": {"max_message_size": 1_048_576},
        }
        connection = {"id": call.door.channel, "device_id": who.device_id, "kind": call.params.options.kind}
        return r.Connected(
            protocol=protocol,
            server_time=self._seconds(),
            identity={"module_id": f"gateway-client-{call.door.channel}", "role": "user", "aid": who.aid},
            connection=connection,
            bridgeInfo={"name": self._server, "version": self._version},
            capabilities=capabilities,
        )

    # -- shared -------------------------------------------------------------------------------------------------------

    async def _proven(self, aid: str, pem: str) -> tuple[Issued, bytes]:
        """A certificate that may log in, and its key: ours, of this AID, of its present key, not revoked.

        A restore forgets what was issued after the backup; such a certificate is as good, if it is of the present key.
        """
        digest = keys.sha256(keys.der_of(pem))

        def look(unit: Unit) -> tuple[tables.Aid, tables.Certificate | None]:
            known = tables.aid(unit, aid)
            if known is None or known.kind != "agent":
                raise NotAuthenticated(f"aid not registered: {aid}")
            found = tables.by_fingerprint(unit, aid, digest)
            if known.state != "active" or (found is not None and found.state == tables.REVOKED):
                raise CertificateInvalid("certificate invalid: revoked")
            return known, found

        known, found = await self._store.read(look)
        if found is not None:
            shown: Issued | None = found.issued
        else:
            shown = await asyncio.to_thread(self._identity.recognise, aid, known.spki, pem)
        if shown is None or shown.spki_sha256 != keys.sha256(known.spki):
            raise CertificateInvalid(f"certificate invalid: not the registered one of {aid}")
        if self._over(shown.end + RENEW_GRACE_S):
            raise CertificateInvalid("certificate invalid: expired more than 90 days ago")
        return shown, known.spki

    def _settled(self, unit: Unit, login: Login) -> tables.Aid:
        """The AID of a login whose key was proven; a certificate that a restore forgot is entered again."""
        known = self._active(unit, login.aid)
        if known.spki == login.spki and tables.certificate(unit, login.shown.serial) is None:
            tables.issue(unit, login.shown, kind="agent", spki=login.spki, operation="agent_cert_renew")
            unit.after(self.forget)
        return known

    def _active(self, unit: Unit, aid: str) -> tables.Aid:
        known = tables.aid(unit, aid)
        if known is None or known.state != "active":
            raise NotAuthenticated(f"aid not registered: {aid}")
        return known

    def _check(self, call: Call[Any], login: Login, text: str, signature: str) -> None:
        try:
            keys.verify(login.spki, text.encode(), signature)
        except SignatureInvalid:
            self._attempts.failed(call.door.address)
            raise

    async def _issue(self, aid: str, spki: bytes) -> Issued:
        now_us, unsure_us = self._clock.wall(self._clock.now())
        return await asyncio.to_thread(self._identity.issue, aid, spki, now_us, unsure_us, self._base())

    def _over(self, end_s: int) -> bool:
        """Whether a moment has certainly passed."""
        now_us, unsure_us = self._clock.wall(self._clock.now())
        return now_us - unsure_us > end_s * SECOND

    def _half_over(self, shown: Issued) -> bool:
        now_us, unsure_us = self._clock.wall(self._clock.now())
        if unsure_us > SURE_US:
            return False
        return not shown.sure or now_us > (shown.start + shown.end) // 2 * SECOND

    def _seconds(self) -> float:
        return self._clock.wall(self._clock.now())[0] // 1000 / 1000


def _relogin(token: str) -> r.Refreshed:
    error = "invalid_or_expired_refresh_token" if token else "missing refresh_token"
    return r.Refreshed(success=False, relogin_required=True, error=error)


def _text(raw: msgspec.Raw) -> str:
    """`client_time` as it was signed: the text of a string, the digits of a number as sent."""
    value = loads(bytes(raw))
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidParams("client_time must be a string or a number")
    return bytes(raw).decode().strip()


def _agree(asked: r.Versions) -> str:
    lowest, highest = _VERSION.fullmatch(asked.min or "1.0"), _VERSION.fullmatch(asked.max or "1.0")
    if lowest is None or highest is None:
        raise InvalidParams("protocol.min and protocol.max look like 1.0")
    if not (int(lowest[1]), int(lowest[2])) <= PROTOCOL <= (int(highest[1]), int(highest[2])):
        ours = {"min": "1.0", "max": "1.0"}
        raise ProtocolVersion(data={"server_range": ours, "client_range": msgspec.to_builtins(asked)})
    return "1.0"


def _mode(asked: str | dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {"mode": asked} if isinstance(asked, str) else asked
    mode, routing = given.get("mode") or "fanout", given.get("routing") or ""
    ttl = given.get("affinity_ttl_ms") or 0
    if mode not in ("fanout", "queue"):
        raise InvalidParams("delivery_mode.mode must be fanout or queue")
    if routing not in ("", "round_robin", "sender_affinity"):
        raise InvalidParams("delivery_mode.routing must be round_robin or sender_affinity")
    if isinstance(ttl, bool) or not isinstance(ttl, int) or not 0 <= ttl <= 86_400_000:
        raise InvalidParams("delivery_mode.affinity_ttl_ms must be 0 to 86400000")
    return {"mode": mode, "routing": routing, "affinity_ttl_ms": ttl}
