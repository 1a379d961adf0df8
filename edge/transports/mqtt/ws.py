"""MQTT over WebSocket (MQTT 5 §6): subprotocol `mqtt`, binary frames, path and origin checked; no task, no queue."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import urlsplit

from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from edge.protocol.mqtt.limits import CONNECT_OCTETS, CONNECT_S
from edge.protocol.mqtt.wire import State as Progress
from edge.protocol.urls import is_loopback
from edge.transports.mqtt.tcp import Entrance, House, Stream

SUBPROTOCOL = Subprotocol("mqtt")
"""MQTT-6.0.0-3, MQTT-6.0.0-4."""

UNSUPPORTED_DATA = 1003
"""Close code for text where only binary is allowed (MQTT-6.0.0-1)."""


class WebSocketStream(Stream):
    """One WebSocket: the handshake first, then MQTT bytes in binary frames, whatever the frames' borders."""

    __slots__ = ("_greeting", "_protocol")

    def __init__(self, house: House, entrance: Entrance, max_size: int) -> None:
        super().__init__(house, entrance)
        self._protocol = ServerProtocol(subprotocols=[SUBPROTOCOL], max_size=max_size)
        self._greeting = 0
        """Bytes that came before a whole CONNECT."""

    def _begin(self) -> None:
        """Wait for the handshake; it has as long as a CONNECT has."""
        self._reprieve = self._house.cut_after(CONNECT_S, self)
        self._feed = self._take

    def _take(self, data: bytes) -> None:
        protocol = self._protocol
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Request):
                self._answer(event)
            elif isinstance(event, Frame):
                self._frame(event)
        self._flush()
        if protocol.state is State.CLOSED or protocol.close_expected():
            self._end()
        elif self._connection is None or self._connection.state is Progress.NEW:
            self._greeting += len(data)
            if self._greeting > self._house.greeting:
                self._house.cut(CONNECT_OCTETS, self)

    def _answer(self, request: Request) -> None:
        protocol = self._protocol
        refusal = self._refusal(request)
        response = protocol.accept(request) if refusal is None else protocol.reject(*refusal)
        if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS and protocol.subprotocol != SUBPROTOCOL:
            response = self._reject(HTTPStatus.BAD_REQUEST, "the subprotocol is mqtt\n")
        protocol.send_response(response)
        self._flush()
        if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            self._pardon()
            self._connection = self._house.connection(self)

    def _reject(self, status: HTTPStatus, text: str) -> Response:
        return self._protocol.reject(status, text)

    def _refusal(self, request: Request) -> tuple[HTTPStatus, str] | None:
        origins, names = request.headers.get_all("Origin"), request.headers.get_all("Host")
        try:
            path, *pages = [urlsplit(text) for text in (request.path, *origins)]
            [host] = names  # RFC 9112 §3.2
        except ValueError:
            return HTTPStatus.BAD_REQUEST, "a request has a path, one Host and no Origin that is no URL\n"
        if path.path != self.entrance.path:
            return HTTPStatus.NOT_FOUND, "MQTT is elsewhere\n"
        known = self.entrance.hosts
        if known is not None and self._on_loopback and not known(host):
            return HTTPStatus.FORBIDDEN, "this is not one of my names\n"
        for origin, page in zip(origins, pages, strict=True):
            if origin not in self.entrance.origins and page.netloc != host:
                return HTTPStatus.FORBIDDEN, "this origin is not allowed\n"
        return None

    @property
    def _on_loopback(self) -> bool:
        """Whether the client came to an address that only this machine has."""
        found = self._transport.get_extra_info("sockname") if self._transport is not None else None
        return isinstance(found, tuple) and is_loopback(str(found[0]))

    def _frame(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            if self._connection is not None:
                self._connection.receive(bytes(frame.data))
        elif frame.opcode is Opcode.TEXT:
            self._protocol.fail(UNSUPPORTED_DATA, "MQTT is binary")
            self._flush()
            if self._connection is not None:
                self._connection.lost()

    def _end(self) -> None:
        """The WebSocket is over: so is the MQTT connection, then the socket."""
        if self._connection is not None:
            self._connection.lost()
        super().close()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                super().write(data)

    def write(self, data: bytes) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
            self._flush()

    def close(self) -> None:
        if not self._closed and self._protocol.state is State.OPEN:
            self._protocol.send_close(1000)
            self._flush()
        super().close()
