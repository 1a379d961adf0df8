"""One listening socket: uvicorn's protocols, not uvicorn's life (design D2).

`OurWS` and the two HTTP classes subclass uvicorn's protocols to bound what they leave unbounded (heads, time to send
one, messages per path, a peer that does not read) and to put the verified client certificate into the scope.
`tests/contract/test_uvicorn.py` pins the names that this module uses.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from edge.contract.limit import Limit, Limits, declare
from edge.contract.time import SECOND, Clock, later

if TYPE_CHECKING:
    import asyncio

    from websockets.frames import Frame
    from websockets.http11 import Request

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # httptools has no wheel here
    HttpToolsProtocol = None  # type: ignore[assignment,misc]

HEAD = declare("http.head_octets", 16_384, "bytes", "of a request line with its headers (431)", None)
HEAD_SECONDS = declare("http.head_seconds", 10, "s", "a request head may take to arrive; the connection closes", None)
STALL_SECONDS = declare("http.stall_seconds", 60, "s", "a peer may leave what we sent unread; it is cut off", None)
CLOSE_SECONDS = declare("http.close_seconds", 5, "s", "a WebSocket peer may take to answer our close frame", None)
CONNECTIONS = declare("http.connections", 768, "connections", "of one listener; more are closed at once", None)
PER_ADDRESS = declare("http.connections_per_address", 384, "connections", "of one address, all listeners", None)
MESSAGE = declare("ws.message_octets", 1_048_576, "bytes", "of a message on paths without a limit of their own (1009)")
FRAGMENTS = declare("ws.fragments", 1024, "frames", "that one message may come in (1008)", None)
CONTROL = declare("ws.control_frames", 50, "pings and pongs/s", "of one connection; more close it (1008)", None)
PIPELINED = declare("http.pipelined", 16, "requests", "of one connection waiting for their turn; more close it", None)

SLICE = 4096
"""Bytes of one WebSocket that are looked at before others have their turn: a chunk of 250 KB can hold 40 000 pings."""


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


class _Config(uvicorn.Config):
    """uvicorn hands its Config to every protocol: the way for ours to reach their terms."""

    terms: Terms


class _Timer:
    """A `Clock` timer with the one method of asyncio's handles that uvicorn calls."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel


class _Bounded:
    """What the HTTP and the WebSocket protocols have in common; goes before uvicorn's class."""

    config: _Config
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
            self.app = _Extended(self.app, found)

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


class _Extended:
    """The application, with more in each scope's `extensions`."""

    def __init__(self, app: ASGIApp, extensions: Mapping[str, object]) -> None:
        self._app = app
        self._extensions = extensions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"] = {**scope.get("extensions", {}), **self._extensions}
        await self._app(scope, receive, send)


class OurWS(_Bounded, WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with a message limit per path, a close that does not wait for the peer, and input
    taken by slices."""

    config: _Config
    _limit: Limit = MESSAGE
    _in_message: int = 0
    _rest: bytes = b""
    _at: int = 0
    """How far `_rest` has been looked at; reading is paused while there is something left of it."""
    _scheduled: bool = False
    _control: int = 0
    _control_us: int = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._join()
        self._extend(transport, **{"edge.close": self.close_now})

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._rest = b""
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Look at the first slice now, at the others when everybody else has had a turn."""
        if self._rest:
            self._rest, self._at = self._rest[self._at :] + data, 0
            if not self.read_paused:
                self._go_on()
        elif len(data) <= SLICE or not self.handshake_initiated:
            self._look_at(data)
        else:
            self._rest, self._at = data, 0
            self._next_slice()
        if self._rest:
            self.transport.pause_reading()

    def _next_slice(self) -> None:
        """One slice of what is left; the next when the application has taken what was in it."""
        self._scheduled = False
        if not self._rest or self.transport.is_closing():
            self._rest = b""
            return
        piece, self._at = self._rest[self._at : self._at + SLICE], self._at + SLICE
        if self._at >= len(self._rest):
            self._rest = b""
        self._look_at(piece)
        if not self.read_paused:
            self._go_on()

    def _go_on(self) -> None:
        """The application waits for more: of what is left, else from the wire."""
        if self.transport.is_closing():
            return
        if not self._rest:
            self.transport.resume_reading()
        elif not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._next_slice)

    async def receive(self) -> Any:
        """As uvicorn's, which would read on from the wire at once."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self._go_on()
        return message

    def handle_ping(self) -> None:
        if self._may_control():
            super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        if self._may_control():
            super().handle_pong(event)

    def _may_control(self) -> bool:
        """Pings cost their sender nothing and are answered by the library: count them."""
        terms = self.config.terms
        now_us = terms.clock.now().mono_us
        if now_us - self._control_us >= SECOND:
            self._control, self._control_us = 0, now_us
        self._control += 1
        if self._control <= terms.limits[CONTROL]:
            return True
        if not self.close_sent:
            terms.limits.hit(CONTROL)
            self.close_now(1008, "too many control frames")
        return False

    def _look_at(self, data: bytes) -> None:
        """A handshake that websockets cannot read (a long line, many headers) would be left hanging by uvicorn."""
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()

    def handle_connect(self, event: Request) -> None:
        """The path decides how long a message may be."""
        terms = self.config.terms
        self._limit = terms.messages.get(event.path.partition("?")[0], MESSAGE)
        most = terms.limits[self._limit]
        self.conn.max_size = self.conn.max_message_size = most  # type: ignore[attr-defined]  # websockets 15 · 17
        super().handle_connect(event)

    def handle_text(self, event: Frame) -> None:
        self._in_message = 1
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        self._in_message = 1
        super().handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        """Empty continuation frames add nothing to a message's size and something to its list."""
        self._in_message += 1
        if self._in_message <= self.config.terms.limits[FRAGMENTS]:
            super().handle_cont(event)
        elif not self.close_sent:
            self.config.terms.limits.hit(FRAGMENTS)
            self.close_now(1008, "message in too many fragments")

    def handle_parser_exception(self) -> None:
        if self.conn.close_sent is None:
            self.transport.close()
            return
        if self.conn.close_sent.code == 1009:
            self.config.terms.limits.hit(self._limit)
        super().handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        """Refuse bad UTF-8 here (1007): uvicorn would log a peer's mistake with a traceback."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            self.frames = [b"".join(self.frames)]
            try:
                self.frames[0].decode()
            except UnicodeDecodeError:
                self.frames = []
                self.close_now(1007, "invalid UTF-8")
                return
        super().send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        """A peer that neither reads nor answers pings would keep a closing transport for ever."""
        super().keepalive_timeout()
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def close_now(self, code: int, reason: str) -> None:
        """Close behind what is written, whether or not the peer reads; hang up when it does not answer in time."""
        if self.close_sent or self.disconnected or not self.handshake_complete or self.transport.is_closing():
            return
        self.stop_keepalive()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.conn.send_close(code, _cut(reason))
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.writable.set()
        if self.read_paused:
            self.read_paused = False
            self._go_on()
        self.close_timer = _Timer(self.config.terms.after(CLOSE_SECONDS, self.transport.abort))  # type: ignore[assignment]


class _BoundedHTTP(_Bounded):
    """Connection counts and the time that a request head may take."""

    server_state: Any
    _cancel_head: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[misc]
        terms, address = self.config.terms, self.client[0] if self.client is not None else ""
        for limit, count in (
            (CONNECTIONS, len(self.server_state.connections)),
            (PER_ADDRESS, terms.addresses.get(address, 0) + 1),
        ):
            if count > terms.limits[limit]:
                terms.limits.hit(limit)
                self.transport.abort()
                return
        self._join()
        self._extend(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)  # type: ignore[misc]

    def _leave(self) -> None:
        self._head_complete()
        super()._leave()

    def _expect_head(self) -> None:
        if self._cancel_head is None:
            self._cancel_head = self.config.terms.after(HEAD_SECONDS, self._head_late)

    def _head_complete(self) -> None:
        if self._cancel_head is not None:
            self._cancel_head()
            self._cancel_head = None

    def _head_late(self) -> None:
        self.config.terms.limits.hit(HEAD_SECONDS)
        self.transport.abort()


class OurH11(_BoundedHTTP, H11Protocol):
    """Where httptools has no wheel. h11 bounds heads by itself (`h11_max_incomplete_event_size`)."""

    config: _Config

    def handle_events(self) -> None:
        self._expect_head()
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._head_complete()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._leave()
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        if self.conn.trailing_data[0]:
            self.config.terms.limits.hit(HEAD)
        super().send_400_response(msg)


if HttpToolsProtocol is not None:

    class OurHttpTools(_BoundedHTTP, HttpToolsProtocol):
        """llhttp has no bound on a request head, a trailer or a chunk extension: count what it swallows."""

        config: _Config
        _head = 0
        _silent = 0
        _told = False
        _in_head = True
        _too_large = False
        _too_many = False

        def data_received(self, data: bytes) -> None:
            self._told = False
            super().data_received(data)
            if self._joined is None or self.transport.is_closing():
                return  # it is a WebSocket now, or over
            self._silent = 0 if self._told else self._silent + len(data)
            if self._head + self._silent > self.config.terms.limits[HEAD]:
                self._refuse_head()
            elif self._in_head or self.cycle is None or self.cycle.response_complete:
                self._expect_head()

        def on_message_begin(self) -> None:
            self._told, self._in_head, self._head = True, True, 0
            super().on_message_begin()

        def on_url(self, url: bytes) -> None:
            self._count(len(url))
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            self._count(len(name) + len(value) + 4)
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._told, self._in_head = True, False
            self._head_complete()
            if len(self.pipeline) >= self.config.terms.limits[PIPELINED]:
                self.config.terms.limits.hit(PIPELINED)
                self._too_many = True
                raise ValueError("too many requests at once")
            super().on_headers_complete()

        def on_response_complete(self) -> None:
            """uvicorn would read on although requests are waiting."""
            super().on_response_complete()
            if self.pipeline:
                self.flow.pause_reading()

        def on_body(self, body: bytes) -> None:
            self._told = True
            super().on_body(body)

        def send_400_response(self, msg: str) -> None:
            if self._too_large:
                self._refuse_head()
            elif self._too_many:
                self.transport.close()  # behind the answers under way: another would be taken for one of them
            else:
                super().send_400_response(msg)

        def handle_websocket_upgrade(self) -> None:
            self._leave()
            super().handle_websocket_upgrade()

        def _count(self, octets: int) -> None:
            self._told = True
            self._head += octets
            if self._head > self.config.terms.limits[HEAD]:
                self._too_large = True
                raise ValueError("request head too large")

        def _refuse_head(self) -> None:
            self.config.terms.limits.hit(HEAD)
            text = b'{"error":"TooLarge","message":"request head too large","retryable":false}'
            head = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
            self.transport.write(head + b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(text), text))
            self.transport.close()


class Listener:
    """One socket and its connections. `start` once; then `stop_accepting`, later `shutdown`."""

    def __init__(
        self,
        app: ASGIApp,
        sock: socket.socket,
        terms: Terms,
        *,
        tls: ssl.SSLContext | None = None,
        http: Literal["httptools", "h11"] | None = None,
    ) -> None:
        self._socket = sock
        self._address: tuple[str, int] = sock.getsockname()[:2]
        self.tls = tls
        use_h11 = http == "h11" or HttpToolsProtocol is None
        config = _Config(
            app,
            http=OurH11 if use_h11 else OurHttpTools,
            ws=OurWS,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # else X-Forwarded-For from loopback would decide who the client is
            server_header=False,
            date_header=False,
            ws_max_size=terms.limits[MESSAGE],
            ws_per_message_deflate=False,
            ws_ping_interval=20,
            ws_ping_timeout=20,
            timeout_graceful_shutdown=3,
            h11_max_incomplete_event_size=terms.limits[HEAD],
        )
        config.terms = terms
        config.load()
        config.ssl = tls
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens: address and port, the real one when port 0 was asked for."""
        return self._address

    @property
    def url(self) -> str:
        """`http(s)://address:port`."""
        host, port = self._address
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def connections(self) -> int:
        """Connections open now."""
        return len(self._server.server_state.connections)

    async def start(self) -> None:
        """Accept connections."""
        await self._server.startup(sockets=[self._socket])

    def stop_accepting(self) -> None:
        """First step of stopping: no new connections, those that are open go on."""
        for server in self._server.servers:
            server.close()

    async def shutdown(self) -> None:
        """Second step: close what is open, WebSockets with 1012; at most 3 s, then running requests are cancelled."""
        await self._server.shutdown(sockets=[self._socket])


def verified_certificate(transport: asyncio.BaseTransport) -> bytes | None:
    """The client's leaf certificate (DER) if TLS asked for one and verified it."""
    context, tls = transport.get_extra_info("sslcontext"), transport.get_extra_info("ssl_object")
    if context is None or tls is None or context.verify_mode == ssl.CERT_NONE:
        return None
    certificate: bytes | None = tls.getpeercert(binary_form=True)
    return certificate


def _cut(reason: str) -> str:
    """A close reason has at most 123 bytes (RFC 6455 §5.5)."""
    return reason.encode()[:123].decode(errors="ignore")
