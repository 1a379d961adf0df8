"""What every connection by HTTP and WebSocket is bound by, under uvicorn's protocols (design D2)."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from edge.contract.limit import Limit, Limits, declare
from edge.contract.time import SECOND, Clock, later

if TYPE_CHECKING:
    import asyncio

STALL_SECONDS = declare("http.stall_seconds", 60, "s", "a peer may leave what we sent unread; it is cut off", None)


class Terms:
    """What a listener's protocols are bound by. `messages` are message limits per WebSocket path."""

    def __init__(self, clock: Clock, limits: Limits, messages: Mapping[str, Limit] | None = None) -> None:
        self.clock = clock
        self.limits = limits
        self.messages = dict(messages or {})
        self.addresses: dict[str, int] = {}

    def join(self, address: str) -> None:
        """One more connection of an address."""
        self.addresses[address] = self.addresses.get(address, 0) + 1

    def leave(self, address: str) -> None:
        """One less."""
        self.addresses[address] -= 1
        if not self.addresses[address]:
            del self.addresses[address]

    def after(self, limit: Limit, call: Callable[[], None]) -> Callable[[], None]:
        """Call when `limit` (seconds) has passed; the result cancels."""
        return later(self.clock, self.limits[limit] * SECOND, call)


class Config(uvicorn.Config):
    """uvicorn hands its Config to every protocol: the way for ours to reach their terms."""

    terms: Terms


class Bounded:
    """What the HTTP and the WebSocket protocols have in common; goes before uvicorn's class."""

    config: Config
    transport: asyncio.Transport
    app: Any
    client: tuple[str, int] | None
    _cancel_stall: Callable[[], None] | None = None
    _joined: str | None = None

    def _join(self) -> None:
        self._joined = self.client[0] if self.client is not None else ""
        self.config.terms.join(self._joined)

    def _leave(self) -> None:
        """The connection has ended, or another protocol takes it over."""
        self._end_stall()
        if self._joined is not None:
            self.config.terms.leave(self._joined)
            self._joined = None

    def _extend(self, transport: asyncio.BaseTransport, **more: object) -> None:
        """Give every scope of this connection its extensions."""
        found: dict[str, object] = dict(more)
        if (certificate := verified_certificate(transport)) is not None:
            found["tls"] = {"client_cert": certificate}
        if found:
            self.app = Extended(self.app, found)

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]
        self._cancel_stall = self.config.terms.after(STALL_SECONDS, self._stalled)

    def resume_writing(self) -> None:
        self._end_stall()
        super().resume_writing()  # type: ignore[misc]

    def _end_stall(self) -> None:
        if self._cancel_stall is not None:
            self._cancel_stall()
            self._cancel_stall = None

    def _stalled(self) -> None:
        self.config.terms.limits.hit(STALL_SECONDS)
        self.transport.abort()


class Extended:
    """The application, with more in each scope's `extensions`."""

    def __init__(self, app: ASGIApp, extensions: Mapping[str, object]) -> None:
        self._app = app
        self._extensions = extensions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"] = {**scope.get("extensions", {}), **self._extensions}
        await self._app(scope, receive, send)


def verified_certificate(transport: asyncio.BaseTransport) -> bytes | None:
    """The client's leaf certificate (DER) if TLS asked for one and verified it."""
    context, tls = transport.get_extra_info("sslcontext"), transport.get_extra_info("ssl_object")
    if context is None or tls is None or context.verify_mode == ssl.CERT_NONE:
        return None
    certificate: bytes | None = tls.getpeercert(binary_form=True)
    return certificate
