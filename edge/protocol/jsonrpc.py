"""JSON-RPC 2.0 envelopes: read strictly, written compactly, params and id kept as they came.

A frame that is no request never raises: it becomes a `Refused` that knows which id to answer. Batches are refused
(spec aun-connect §2). Every surface that speaks JSON-RPC brings its own `ErrorTable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from edge.contract.errors import EdgeError, InvalidParams, InvalidRequest
from edge.contract.wire import DEFAULT, JsonLimits, dumps, loads

NULL = b"null"
MAX_ID = 256
MAX_METHOD = 128


class Trace(msgspec.Struct, frozen=True):
    """What `_trace` asked for: `mode` is `log` or `diag`; `spans` is what earlier nodes noted (JSON objects)."""

    id: str
    mode: str = "log"
    spans: tuple[Mapping[str, Any], ...] = ()


class Request(msgspec.Struct, frozen=True):
    """A request, or with an empty `id` a notification. `id` and `params` are JSON, byte for byte as received."""

    id: bytes
    method: str
    params: bytes = b"{}"
    trace: Trace | None = None

    @property
    def wants_answer(self) -> bool:
        """Notifications are never answered."""
        return bool(self.id)


class Refused(msgspec.Struct, frozen=True):
    """A frame that is no request: answer `error` to `id` (`null` when there is none to echo)."""

    id: bytes
    error: EdgeError


class _Envelope(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()
    params: msgspec.Raw = msgspec.Raw()


def read(frame: bytes, limits: JsonLimits = DEFAULT, *, version: bool = True) -> Request | Refused | None:
    """One inbound frame. None for a response: the node asks nothing, so it is nobody's.

    `version=False` takes a request without `jsonrpc` (settled G11). Never raises on what a peer sent.
    """
    try:
        value = loads(frame, limits)
    except EdgeError as error:
        return Refused(NULL, error)
    if isinstance(value, list):
        return Refused(NULL, InvalidRequest("batches are not accepted: send one request per frame"))
    if not isinstance(value, dict):
        return Refused(NULL, InvalidRequest("a request is a JSON object"))
    if "method" not in value and ("result" in value or "error" in value):
        return None
    envelope = msgspec.json.decode(frame, type=_Envelope)
    key = bytes(envelope.id)
    try:
        if "id" in value:
            _check_id(value["id"], key)
    except InvalidRequest as error:
        return Refused(NULL, error)
    try:
        _check(value, version)
    except EdgeError as error:
        return Refused(key or NULL, error)
    return Request(key, value["method"], bytes(envelope.params) or b"{}")


def result(key: bytes, value: bytes, beside: bytes = b"") -> bytes:
    """A result frame. `value` is JSON; `beside` is more members of the envelope (`,"_trace":{…}`)."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b%b}' % (key, value, beside)


def error(key: bytes, code: int, message: str, data: Mapping[str, object], beside: bytes = b"") -> bytes:
    """An error frame."""
    body = dumps({"code": code, "message": message, "data": data})
    return b'{"jsonrpc":"2.0","id":%b,"error":%b%b}' % (key, body, beside)


def notification(method: str, params: bytes) -> bytes:
    """A notification frame; `params` is a JSON object."""
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (dumps(method), params)


class ErrorTable:
    """One surface's numbers: error class → code. A class without a row has the number of its nearest ancestor."""

    def __init__(self, numbers: Mapping[type[EdgeError], int]) -> None:
        if EdgeError not in numbers:
            raise ValueError("an error table needs a row for EdgeError")
        self._numbers = dict(numbers)

    def number(self, kind: type[EdgeError]) -> int:
        """The code of an error class."""
        return next(self._numbers[base] for base in kind.__mro__ if base in self._numbers)

    def over(self, numbers: Mapping[type[EdgeError], int]) -> ErrorTable:
        """This table with some rows replaced, for a method that has numbers of its own."""
        return ErrorTable({**self._numbers, **numbers})

    def frame(self, key: bytes, failure: EdgeError, beside: bytes = b"") -> bytes:
        """The error frame of a failure; `data` always says whether a retry can help."""
        data = {"retryable": failure.retryable, **failure.data}
        return error(key, self.number(type(failure)), failure.message, data, beside)


def _check_id(value: object, raw: bytes) -> None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidRequest("id must be a string or an integer")
    if len(raw) > MAX_ID:
        raise InvalidRequest(f"id longer than {MAX_ID} bytes")


def _check(value: Mapping[str, object], version: bool) -> None:
    if value.get("jsonrpc", None if version else "2.0") != "2.0":
        raise InvalidRequest('jsonrpc must be "2.0"')
    method = value.get("method")
    if not isinstance(method, str) or not 0 < len(method) <= MAX_METHOD:
        raise InvalidRequest(f"method must be a string of 1 to {MAX_METHOD} characters")
    if not isinstance(value.get("params", {}), dict):
        raise InvalidParams("params must be an object")
