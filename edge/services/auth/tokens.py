"""Tokens: AUN access tokens (JWT), refresh tokens, node tokens. All survive a restart of the node (spec §6.4)."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from edge.contract.errors import NotAuthenticated, TokenExpired
from edge.contract.limit import Limits, declare
from edge.contract.principal import AGENT_SCOPES, Kind, Principal
from edge.contract.store import Store, Unit
from edge.contract.time import SECOND, Clock
from edge.protocol import jwt
from edge.store import identity as tables
from edge.store.keyring import Identity

ACCESS_S = 3600
"""Shorter tokens are refreshed by the SDK at once and for ever."""

LEEWAY_S = 5
NODE_TOKEN = "aet_"  # noqa: S105  a prefix, not a secret
REFRESH_TOKEN = "art_"  # noqa: S105
SHOWN = 12
"""Characters of a node token that may be shown: the prefix and 48 of its 256 bits."""

CACHED = declare("auth.cached_tokens", 1024, "tokens", "whose principal is remembered; above, all are read again", None)


class TokenDesk:
    """Makes and reads tokens. The node's `Tokens`."""

    def __init__(self, store: Store, clock: Clock, identity: Identity, limits: Limits) -> None:
        self._store, self._clock, self._identity, self._limits = store, clock, identity, limits
        self._seen: dict[bytes, tuple[Principal, Callable[[], None]]] = {}
        self._age = 0

    async def principal(self, token: str) -> Principal:
        """Whom a bearer token speaks for. Raises `NotAuthenticated` or `TokenExpired`."""
        if not token or len(token) > jwt.MAX_OCTETS or not token.isascii():
            raise NotAuthenticated("token invalid")
        digest = tables.digest(token)
        if (seen := self._seen.get(digest)) is not None:
            seen[1]()
            return seen[0]
        age = self._age
        found = await (self._node(digest) if token.startswith(NODE_TOKEN) else self._access(token))
        if age == self._age:
            if len(self._seen) >= self._limits[CACHED]:
                self._limits.hit(CACHED)
                self._seen.clear()
            self._seen[digest] = found
        return found[0]

    def forget(self) -> None:
        """Read every token again: something was revoked."""
        self._age += 1
        self._seen.clear()

    def access(self, aid: str) -> tuple[str, int]:
        """A new access token and its seconds; never longer than the key that signs it is certified."""
        now = self._clock.now()
        now_s = self._clock.wall(now)[0] // SECOND
        until = min(now_s + ACCESS_S, self._identity.auth.end)
        claims = jwt.Claims(
            aid=aid,
            sub=aid,
            iss=f"auth.{self._identity.issuer}",
            aud=jwt.AUDIENCE,
            iat=now_s,
            exp=until,
            jti=secrets.token_hex(16),
            boot=now.boot,
            up=now.mono_us // SECOND,
        )
        return jwt.sign(claims, self._identity.auth_key, self._identity.auth.serial), until - now_s

    async def _access(self, token: str) -> tuple[Principal, Callable[[], None]]:
        issuer = f"auth.{self._identity.issuer}"
        claims = jwt.verify(token, self._identity.token_key, issuer=issuer)
        self._fresh(claims)
        found = await self._store.read(lambda unit: tables.aid(unit, claims.aid))
        if found is None or found.state != "active":
            raise NotAuthenticated(f"token invalid: {claims.aid} is not registered here")
        return agent(claims.aid), lambda: self._fresh(claims)

    async def _node(self, digest: bytes) -> tuple[Principal, Callable[[], None]]:
        found = await self._store.read(lambda unit: tables.node_token(unit, digest))
        if found is None:
            raise NotAuthenticated("token invalid")
        until_s = found.until_us // SECOND
        if until_s:
            self._check(until_s)
        scopes = frozenset(found.scopes.split())
        who = Principal(Kind.AGENT, found.aid, scopes, via="token")
        return who, lambda: self._check(until_s) if until_s else None

    def _fresh(self, claims: jwt.Claims) -> None:
        """Within the boot that issued it a token ages by the monotonic clock, whatever the wall learned meanwhile."""
        now = self._clock.now()
        if claims.boot == now.boot:
            if now.mono_us // SECOND - claims.up > claims.exp - claims.iat + LEEWAY_S:
                raise TokenExpired
        else:
            self._check(claims.exp)

    def _check(self, until_s: int) -> None:
        if self._clock.wall(self._clock.now())[0] // SECOND - LEEWAY_S > until_s:
            raise TokenExpired


def agent(aid: str, via: str = "token", device_id: str = "", slot: str = "") -> Principal:
    """An agent with the scopes that every agent starts with."""
    return Principal(Kind.AGENT, aid, AGENT_SCOPES, via=via, device_id=device_id, slot=slot)


def new_token(prefix: str) -> str:
    """256 random bits behind a prefix."""
    return prefix + secrets.token_urlsafe(32)


def age_us(unit: Unit, clock: Clock, chain: tables.Chain, *, turned: bool = False) -> int:
    """How old a chain is, or how long ago it turned."""
    return unit.wall_us - clock.wall(chain.turned if turned else chain.made)[0]
