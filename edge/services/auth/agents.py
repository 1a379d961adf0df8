"""`agent.*`: the owner lets agents in, looks who is there, and puts them out."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from edge.contract.channel import Presence
from edge.contract.errors import InvalidParams, NotFound, RateLimited
from edge.contract.limit import Limits, declare
from edge.contract.op import Call, Empty, op
from edge.contract.principal import AGENT_SCOPES
from edge.contract.store import Store, Unit
from edge.contract.time import SECOND, Clock, Stamp, iso
from edge.protocol import aid as names
from edge.services.auth import records as r
from edge.services.auth.registration import RESERVED_MINUTES, Registration, over
from edge.services.auth.service import AuthService
from edge.services.auth.tokens import NODE_TOKEN, SHOWN, new_token
from edge.store import devices as device_tables
from edge.store import identity as tables

TOKENS = declare("agent.tokens_per_name", 16, "tokens", "of one agent; revoke it to start again", RateLimited)
WINDOW_MINUTES = 60
REVOKED = 4003
"""The close code of a revoked agent's connections: its client does not come back by itself."""


class Window(msgspec.Struct):
    """How long any free name may register from now on."""

    minutes: int


class AgentService:
    """Names and tokens, for the owner at the control socket."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        limits: Limits,
        auth: AuthService,
        presence: Presence,
        *,
        ungranted: Callable[[str], None] = lambda aid: None,
    ) -> None:
        """`ungranted` hears of an AID whose grants are gone."""
        self._store, self._clock, self._limits, self._presence = store, clock, limits, presence
        self._auth, self._ungranted = auth, ungranted
        self._registration: Registration = auth.registration
        self._issuer = auth.issuer

    @op(
        "agent.add",
        scope="agent:admin",
        wire={"edge": ("agent.add",)},
        raises=(InvalidParams, RateLimited),
        writes=True,
    )
    def add(self, call: Call[r.AgentAdd], unit: Unit) -> r.AgentAdded:
        """Reserve a name for the first key that asks for it within the hour, and make a token for it."""
        aid, name = self._named(call.params.name)
        names.new_name(name)
        if call.params.expires_s < 0:
            raise InvalidParams("expires_s must not be negative")
        known = tables.aid(unit, aid)
        registered = known is not None and known.state == "active"
        if not registered:
            tables.reserve(unit, name, RESERVED_MINUTES)
        if sum(1 for kept in tables.node_tokens(unit) if kept.aid == aid) >= self._limits[TOKENS]:
            raise self._limits.refuse(TOKENS, name)
        token = new_token(NODE_TOKEN)
        until_us = unit.wall_us + call.params.expires_s * SECOND if call.params.expires_s else 0
        scopes = " ".join(sorted(AGENT_SCOPES))
        tables.add_token(
            unit, tables.NodeToken(tables.digest(token), token[:SHOWN], name, aid, scopes, until_us, Stamp(0, 0))
        )
        minutes = 0 if registered else RESERVED_MINUTES
        return r.AgentAdded(name, aid, token, registered, minutes, _date(until_us))

    @op("agent.list", scope="agent:read", wire={"edge": ("agent.list",)})
    async def all(self, call: Call[Empty]) -> list[r.AgentLine]:
        """Every agent: reserved, registered, let in by a token alone, or revoked."""
        lines = await self._store.read(self._lines)
        return [msgspec.structs.replace(line, online=self._presence.online(line.aid)) for line in lines]

    @op("agent.revoke", scope="agent:admin", wire={"edge": ("agent.revoke",)}, raises=(InvalidParams, NotFound))
    async def revoke(self, call: Call[r.AgentNamed]) -> r.AgentRevoked:
        """End an agent: certificates, tokens, grants, reservation and connections."""
        aid, name = self._named(call.params.name)

        def work(unit: Unit) -> int:
            had = tables.release(unit, name)
            had = device_tables.revoke_agent(unit, aid) or had
            known = tables.aid(unit, aid)
            if known is not None and known.kind == "agent" and known.state == "active":
                return tables.revoke(unit, aid, call.params.reason)
            if not tables.drop_tokens(unit, aid) and not had:
                raise NotFound(f"no agent {name}: aun-edge agent list")
            return 0

        count = await self._store.commit(work)
        self._auth.forget()
        self._ungranted(aid)
        return r.AgentRevoked(aid, count, self._presence.expel(aid, REVOKED, "revoked"))

    @op("agent.window", scope="agent:admin", wire={"edge": ("agent.window",)}, raises=(InvalidParams,))
    async def window(self, call: Call[r.AgentWindow]) -> Window:
        """Let any free name register for some minutes; 0 closes the window."""
        if not 0 <= call.params.minutes <= WINDOW_MINUTES:
            raise InvalidParams(f"minutes must be 0 to {WINDOW_MINUTES}")
        self._registration.open_for(call.params.minutes)
        return Window(call.params.minutes)

    def _named(self, given: str) -> tuple[str, str]:
        """AID and name of an agent given by either."""
        name, _, issuer = given.strip().lower().partition(".")
        if issuer and issuer != self._issuer:
            raise InvalidParams(f"{given[:80]!r} is not of this node: its names end in .{self._issuer}")
        return f"{name}.{self._issuer}", name

    def _lines(self, unit: Unit) -> list[r.AgentLine]:
        registered = {one.aid: one for one in tables.aids(unit, "agent")}
        tokens: dict[str, list[tables.NodeToken]] = {}
        for token in tables.node_tokens(unit):
            tokens.setdefault(token.aid, []).append(token)
        reserved = {
            f"{one.name}.{self._issuer}" for one in tables.reservations(unit) if not over(unit, self._clock, one)
        }
        return [
            self._line(unit, aid, registered.get(aid), tokens.get(aid, []), aid in reserved)
            for aid in sorted({*registered, *tokens, *reserved})
        ]

    def _line(
        self, unit: Unit, aid: str, known: tables.Aid | None, tokens: list[tables.NodeToken], reserved: bool
    ) -> r.AgentLine:
        certificate = tables.current(unit, aid) if known is not None else None
        if known is not None and known.state == "active":
            state = "registered"
        elif reserved:
            state = "reserved"
        else:
            state = "token" if tokens else "revoked"
        return r.AgentLine(
            name=aid.partition(".")[0],
            aid=aid,
            state=state,
            token=" ".join(f"{token.prefix}…" for token in tokens),
            expires=" ".join(_date(token.until_us) or "never" for token in tokens),
            certificate=_date(certificate.not_after * SECOND) if certificate is not None else "",
        )


def _date(us: int) -> str:
    """µs UTC as ISO 8601; "" for 0."""
    return iso(us // SECOND) if us else ""
