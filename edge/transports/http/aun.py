"""The AUN gateway socket: `/aun`, alias `/ws` (spec aun-connect §2, §6.1). Bytes and close codes; no opinion."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import Receive, Scope, Send

from edge.contract.limit import Limit, declare
from edge.contract.op import Door
from edge.contract.time import wall_us
from edge.contract.wire import JsonLimits
from edge.protocol.aun import AunCodec, Render, challenge
from edge.session.conversation import Codec, Sessions
from edge.session.doors import address_of, base_of

MESSAGE = declare(
    "aun.message_octets", 1_114_112, "bytes", "of one AUN frame: a payload of 1 MiB and its envelope; closes 1009"
)
DEPTH = declare("aun.json_depth", 32, "levels", "of nesting in one AUN frame")

PATHS = ("/aun", "/ws")
SERVER = "aun-edge"


def message_limits() -> Mapping[str, Limit]:
    """Path → message limit, for the listener's `Terms`."""
    return dict.fromkeys(PATHS, MESSAGE)


def routes(sessions: Sessions, render: Render, *, trace_mode: str = "log", node: str = SERVER) -> list[BaseRoute]:
    """The gateway's routes. `render` shows events (`edge.protocol.aun_events.render`)."""
    limits = JsonLimits(octets=sessions.limits[MESSAGE], depth=sessions.limits[DEPTH])
    codec = AunCodec(limits, render, lambda: secrets.token_hex(16), trace_mode=trace_mode, node=node)
    return [WebSocketRoute(path, Gateway(sessions, codec)) for path in PATHS]


class Gateway:
    """Accepts a socket, says the challenge, and hands the stream to the session."""

    def __init__(self, sessions: Sessions, codec: Codec) -> None:
        self._sessions = sessions
        self._codec = codec

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = HTTPConnection(scope, receive)
        nonce = secrets.token_urlsafe(24)
        door = Door(address=address_of(request), base=base_of(request), nonce=nonce)
        await receive()
        await send({"type": "websocket.accept"})
        stream = WebSocketStream(receive, send, scope["extensions"]["edge.close"])
        greeting = challenge(nonce, SERVER, wall_us(self._sessions.clock))
        await self._sessions.converse(stream, self._codec, door, greeting=greeting)


class WebSocketStream:
    """`session.channels.Stream` over one accepted ASGI WebSocket: text frames only."""

    def __init__(self, receive: Receive, send: Send, close: Callable[[int, str], None]) -> None:
        self._receive = receive
        self._send = send
        self._close = close
        self._closed = False

    async def receive(self) -> bytes | None:
        """The next text frame. A binary one closes with 1003 (RFC 6455 §7.4.1: data that cannot be accepted)."""
        message = await self._receive()
        if message["type"] != "websocket.receive":
            return None
        text: str | None = message.get("text")
        if text is None:
            self.close(1003, "text frames only")
            return None
        return text.encode()

    async def send(self, frame: bytes) -> None:
        """Write one text frame; waits while the peer's window is full."""
        if self._closed:
            raise ConnectionResetError
        try:
            await self._send({"type": "websocket.send", "text": frame.decode()})
        except RuntimeError:
            raise ConnectionResetError from None  # closed while it waited for room

    def close(self, code: int, reason: str) -> None:
        """Close now, whether or not the peer reads."""
        self._closed = True
        self._close(code, reason)
