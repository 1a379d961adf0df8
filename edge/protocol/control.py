"""The `edge` surface: JSON-RPC between the node and its own command line, one frame a line.

An error's `data.error` is the name of its class, so that the client raises what the node raised. An operation that
answers with a stream sends `item` notifications before its result.
"""

from __future__ import annotations

from collections.abc import Mapping

from edge.contract.errors import (
    EdgeError,
    InvalidParams,
    InvalidRequest,
    Malformed,
    MethodNotFound,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    RateLimited,
    TooLarge,
    Unavailable,
)
from edge.contract.event import Event
from edge.contract.wire import JsonLimits, dumps
from edge.protocol import jsonrpc
from edge.protocol.jsonrpc import ErrorTable, Refused, Request

NUMBERS = ErrorTable(
    {
        EdgeError: -32603,
        Malformed: -32700,
        InvalidRequest: -32600,
        MethodNotFound: -32601,
        InvalidParams: -32602,
        NotAuthenticated: -32001,
        NotPermitted: -32004,
        NotFound: -32008,
        RateLimited: -32029,
        TooLarge: -32602,
        Unavailable: -32002,
    }
)


class ControlCodec:
    """Frames of the control socket. Without state: one for all connections."""

    surface = "edge"

    def __init__(self, limits: JsonLimits) -> None:
        self._limits = limits

    def read(self, frame: bytes) -> Request | Refused | None:
        """One line."""
        return jsonrpc.read(frame, self._limits)

    def answer(self, request: Request, value: bytes, at_ms: int, took_ms: int) -> bytes:
        """The result of a request."""
        return jsonrpc.result(request.id, value)

    def refuse(self, request: Request, error: EdgeError, at_ms: int, took_ms: int) -> bytes:
        """The failure of a request."""
        return self.refuse_frame(request.id, error)

    def refuse_frame(self, key: bytes, error: EdgeError) -> bytes:
        """The failure of a frame that was no request."""
        named = type(error)(error.message, data={"error": type(error).__name__, **error.data})
        return NUMBERS.frame(key, named)

    def item(self, request: Request, value: object) -> bytes | None:
        """One item of a stream."""
        body = b'{"id":%b,"value":%b}' % (request.id, dumps(value))
        return jsonrpc.notification("item", body)

    def event(self, event: Event, hello: Mapping[str, object]) -> bytes | None:
        """Events are for AUN; the control socket streams what an operation yields."""
        return None

    def farewell(self, code: int, reason: str, detail: Mapping[str, object]) -> bytes | None:
        """Nothing to say before closing."""
        return None

    def open_to_guests(self, method: str) -> bool:
        """Nobody is a guest here: the kernel says who dials."""
        return False

    def fatal(self, error: EdgeError) -> int | None:
        """No error closes the socket."""
        return None

    def dialect(self, hello: Mapping[str, object]) -> str:
        """One dialect."""
        return ""
