"""`meta.*`: is the node there, who am I to it, whom does it trust."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from edge.contract.op import Call, Calls, Empty, Params, op
from edge.contract.principal import NODE
from edge.contract.time import Clock, wall_us
from edge.protocol.urls import Names, gateway_urls


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


class Where(Params, frozen=True, kw_only=True):
    """How a caller reached the node: the URL it used and its address."""

    base: str = ""
    address: str = ""


class Gateway(msgspec.Struct):
    """One way in; lower `priority` first."""

    url: str
    priority: int


class Gateways(msgspec.Struct):
    """What `/.well-known/aun-gateway` answers (spec aun-connect §3.2)."""

    gateways: list[Gateway]


class MetaService:
    """Answered by the gateway itself (spec aun-connect §7.8). `names` says where the node is reached."""

    def __init__(self, clock: Clock, calls: Calls, names: Callable[[], Names]) -> None:
        self._clock, self._calls, self._names = clock, calls, names

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

    @op("meta.gateways", scope="", wire={"http": ("meta.gateways",)})
    async def gateways(self, call: Call[Where]) -> Gateways:
        """Where clients find the gateway; they keep the answer for ever."""
        found = gateway_urls(call.params.base, call.params.address, self._names())
        return Gateways([Gateway(url, number) for number, url in enumerate(found, 1)])
