"""uvicorn's HTTP protocols, with bounds on what they leave unbounded: connections, heads and the time to send one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from edge.contract.limit import declare
from edge.transports.http.bounded import Bounded, Config

if TYPE_CHECKING:
    import asyncio

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # httptools has no wheel here
    HttpToolsProtocol = None  # type: ignore[assignment,misc]

HEAD = declare("http.head_octets", 16_384, "bytes", "of a request line with its headers (431)", None)
HEAD_SECONDS = declare("http.head_seconds", 10, "s", "a request head may take to arrive; the connection closes", None)
CONNECTIONS = declare("http.connections", 768, "connections", "of one listener; more are closed at once", None)
PER_ADDRESS = declare("http.connections_per_address", 384, "connections", "of one address, all listeners", None)
PIPELINED = declare("http.pipelined", 16, "requests", "of one connection waiting for their turn; more close it", None)


class BoundedHTTP(Bounded):
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


class OurH11(BoundedHTTP, H11Protocol):
    """Where httptools has no wheel. h11 bounds heads by itself (`h11_max_incomplete_event_size`)."""

    config: Config

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

    class OurHttpTools(BoundedHTTP, HttpToolsProtocol):
        """llhttp has no bound on a request head, a trailer or a chunk extension: count what it swallows."""

        config: Config
        _head = 0
        """Bytes of the head that came, as far as llhttp has told of them."""
        _silent = 0
        """Bytes since it told of anything: it may be reading a trailer or an extension that never ends."""
        _told = False
        """Whether it told of anything in these bytes."""
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


def protocol(asked: Literal["httptools", "h11"] | None) -> type[H11Protocol] | type[HttpToolsProtocol]:
    """The class that reads HTTP: by httptools where it is there, unless h11 is asked for."""
    return OurH11 if asked == "h11" or HttpToolsProtocol is None else OurHttpTools
