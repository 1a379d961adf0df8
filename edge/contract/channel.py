"""An authenticated stream of frames; WebSocket, SSE, control socket and relay tunnel look the same from below."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from edge.contract.principal import Principal


class Channel(Protocol):
    """A bounded outbound queue and an inbound stream. Only `session` sends on it (design D2a)."""

    @property
    def id(self) -> str:
        """Unique while the node runs."""
        ...

    @property
    def principal(self) -> Principal:
        """Who it speaks for, `GUEST` before authentication."""
        ...

    def send(self, frame: bytes, klass: str) -> bool:
        """Queue a frame (`control`, `answer`, `event`); False when the channel is going down. Never waits.

        Over its limit the channel closes with 1013; events are hints and are lost with it, the logs are not.
        """
        ...

    def close(self, code: int, reason: str) -> None:
        """Flush what is queued, then close. Idempotent."""
        ...

    def frames(self) -> AsyncIterator[bytes]:
        """Inbound frames until the peer is gone."""
        ...


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One live connection of an AID, for presence and queue delivery. `mode` is `fanout` or `queue`."""

    channel: str
    aid: str
    device_id: str = ""
    slot: str = ""
    mode: str = "fanout"
    routing: str = ""
    long: bool = True
    peer_pull: bool = False


class Presence(Protocol):
    """Who is connected. Implemented by `session`, handed down to services."""

    def online(self, aid: str) -> bool:
        """Whether a long connection (or a device's availability) says so."""
        ...

    def instances(self, aid: str) -> list[Instance]:
        """The live connections of an AID, oldest first."""
        ...

    def expel(self, aid: str, code: int, reason: str) -> int:
        """Close every channel of an AID (revoked, forgotten); how many."""
        ...
