"""uvicorn's WebSocket protocol, with bounds on what it leaves unbounded: messages, pings, a peer that does not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from edge.contract.limit import Limit, declare
from edge.contract.time import SECOND
from edge.transports.http.bounded import Bounded, Config

if TYPE_CHECKING:
    import asyncio

    from websockets.frames import Frame
    from websockets.http11 import Request

CLOSE_SECONDS = declare("http.close_seconds", 5, "s", "a WebSocket peer may take to answer our close frame", None)
MESSAGE = declare("ws.message_octets", 1_048_576, "bytes", "of a message on paths without a limit of their own (1009)")
FRAGMENTS = declare("ws.fragments", 1024, "frames", "that one message may come in (1008)", None)
CONTROL = declare("ws.control_frames", 50, "pings and pongs/s", "of one connection; more close it (1008)", None)

SLICE = 4096
"""Bytes of one WebSocket that are looked at before others have their turn: a chunk of 250 KB can hold 40 000 pings."""


class Timer:
    """A `Clock` timer with the one method of asyncio's handles that uvicorn calls."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel


class OurWS(Bounded, WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with a message limit per path, a close that does not wait for the peer, and input
    taken by slices."""

    config: Config
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
        self.close_timer = Timer(self.config.terms.after(CLOSE_SECONDS, self.transport.abort))  # type: ignore[assignment]


def _cut(reason: str) -> str:
    """A close reason has at most 123 bytes (RFC 6455 §5.5)."""
    return reason.encode()[:123].decode(errors="ignore")
