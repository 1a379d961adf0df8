"""`meta.*`: is the node there, who am I to it, whom does it trust."""

from __future__ import annotations

from typing import Any

import msgspec

from edge.contract.op import Call, Calls, Empty, op
from edge.contract.principal import NODE
from edge.contract.time import Clock, wall_us


class Pong(msgspec.Struct):
    """`timestamp` is the node's, in whole seconds since 1970 UTC."""

    timestamp: int
    pong: bool = True


class SessionStatus(msgspec.Struct):
    """How the asking connection stands. `connected_at` is ms since 1970 UTC and constant for a connection."""

    aid: str
    connected_at: int
    mode: str = "gateway"
    role: str = "user"
    protocol_version: str = "1.0"


class MetaService:
    """Answered by the gateway itself (spec aun-connect §7.8)."""

    def __init__(self, clock: Clock, calls: Calls) -> None:
        self._clock, self._calls = clock, calls

    @op("meta.ping", scope="", wire={"aun": ("meta.ping",)})
    async def ping(self, call: Call[Empty]) -> Pong:
        """Answer at once."""
        return Pong(wall_us(self._clock) // 1_000_000)

    @op("meta.status", scope="any", wire={"aun": ("meta.status",)})
    async def status(self, call: Call[Empty]) -> SessionStatus:
        """Who this connection is, and since when."""
        return SessionStatus(aid=call.who.aid, connected_at=call.door.since_ms)

    @op("meta.trust_roots", scope="", wire={"aun": ("meta.trust_roots",), "http": ("meta.trust_roots",)})
    async def trust_roots(self, call: Call[Empty]) -> dict[str, Any]:
        """The signed list of trusted roots; it comes from the CA."""
        found: dict[str, Any] = await self._calls.call("ca.get_trust_roots", {}, NODE)
        return found
