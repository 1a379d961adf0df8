"""The one HTTP application: routes from everywhere, one treatment of hosts, errors, bodies and rates.

`build_app` takes the routes that node.py gathered. A route handler is a plain async function of a Starlette request
that calls `await principal_of(request)`, `await read_body(request, LIMIT)` and raises `EdgeError`s: they leave as JSON
`{"error": class, "message": …, "retryable": …}` with the status of `STATUS`.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from edge.contract.errors import (
    Conflict,
    ContentTypeNotSupported,
    EdgeError,
    ExtendedCardNotConfigured,
    Internal,
    InvalidParams,
    InvalidRequest,
    Malformed,
    MethodNotFound,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    NotReady,
    PreconditionFailed,
    PreconditionRequired,
    ProtocolVersion,
    PushNotSupported,
    RateLimited,
    TaskAccessDenied,
    TaskError,
    TaskNotFound,
    TimedOut,
    TooLarge,
    Unavailable,
    UnsupportedOperation,
)
from edge.contract.limit import AGAIN, Limit, Limits, declare
from edge.contract.principal import GUEST
from edge.contract.time import SECOND, Clock
from edge.contract.wire import dumps
from edge.protocol.jsonrpc import ErrorTable
from edge.protocol.urls import is_loopback
from edge.session.doors import Doors, bearer, door_of, principal_of, principal_or_guest
from edge.session.limiter import Limiter

__all__ = [
    "BODY",
    "STATUS",
    "bearer",
    "build_app",
    "door_of",
    "error_response",
    "has_current",
    "json_response",
    "principal_of",
    "principal_or_guest",
    "read_body",
]

log = logging.getLogger(__name__)

BODY = declare("http.body_octets", 1_114_112, "bytes", "of a request body on routes that set no limit of their own")
BODY_SECONDS = declare("http.body_seconds", 30, "s", "a request body may take to arrive (408)", TimedOut)

STATUS = ErrorTable(
    {
        EdgeError: 500,
        Malformed: 400,
        InvalidRequest: 400,
        InvalidParams: 400,
        ProtocolVersion: 400,
        MethodNotFound: 404,
        Internal: 500,
        NotAuthenticated: 401,
        NotReady: 401,
        NotPermitted: 403,
        NotFound: 404,
        Conflict: 409,
        PreconditionFailed: 412,
        PreconditionRequired: 428,
        TooLarge: 413,
        ContentTypeNotSupported: 415,
        RateLimited: 429,
        Unavailable: 503,
        TimedOut: 504,
        UnsupportedOperation: 501,
        PushNotSupported: 501,
        ExtendedCardNotConfigured: 404,
        TaskError: 409,
        TaskNotFound: 404,
        TaskAccessDenied: 403,
    }
)
"""Error class → HTTP status, for routes without an envelope of their own."""


class BodyTimedOut(TimedOut):
    """The request's own body was too slow: its sender's fault, 408."""


def build_app(
    routes: Sequence[BaseRoute], *, clock: Clock, limits: Limits, limiter: Limiter, doors: Doors
) -> Starlette:
    """The application. Routes are tried in the order given; there are no default pages."""
    app = Starlette(
        routes=list(routes),
        middleware=[Middleware(_Gate, limits=limits, limiter=limiter, doors=doors)],
        exception_handlers={EdgeError: _edge_error, HTTPException: _http_error},
    )
    app.router.redirect_slashes = False
    app.state.clock, app.state.limits, app.state.limiter, app.state.doors = clock, limits, limiter, doors
    return app


async def read_body(request: Request, limit: Limit = BODY) -> bytes:
    """The whole body. Raises what `limit` declares when it is longer, 408 when it does not arrive in time."""
    limits: Limits = request.app.state.limits
    clock: Clock = request.app.state.clock
    most = limits[limit]
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > most:
        raise limits.refuse(limit)
    body = bytearray()
    try:
        async with clock.until(clock.now().mono_us + limits[BODY_SECONDS] * SECOND):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise limits.refuse(limit)
    except TimeoutError:
        limits.hit(BODY_SECONDS)
        raise BodyTimedOut("the request body did not arrive in time") from None
    return bytes(body)


def error_response(error: EdgeError) -> Response:
    """The plain JSON answer of a failure, with the headers that its status demands."""
    status = 408 if isinstance(error, BodyTimedOut) else STATUS.number(type(error))
    body = {**error.data, "error": type(error).__name__, "message": error.message, "retryable": error.retryable}
    headers = {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if status in (429, 503):
        wait_ms = error.data.get(AGAIN)
        headers["retry-after"] = str(-(-wait_ms // 1000) if isinstance(wait_ms, int) else 1)
    if status in (408, 413):
        headers["connection"] = "close"
    return Response(dumps(body), status, headers, "application/json")


def json_response(value: Any, status: int = 200) -> Response:
    """A JSON answer of plain values and records."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def has_current(request: Request, tag: str) -> bool:
    """Whether the caller already holds what this strong entity tag names (If-None-Match, RFC 9110 §13.1.2)."""
    held = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    return tag in held or "*" in held


async def _edge_error(request: Request, error: Exception) -> Response:
    return error_response(error if isinstance(error, EdgeError) else Internal())


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    name = {404: "NotFound", 405: "MethodNotAllowed"}.get(status, "HttpError")
    detail = error.detail if isinstance(error, HTTPException) else ""
    body = {"error": name, "message": str(detail).lower(), "retryable": False}
    return Response(dumps(body), status, headers, "application/json")


_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%]+\]|[0-9A-Za-z._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
"""uri-host [":" port] (RFC 9110 §7.2)."""


class _Gate:
    """Around every request: whose host, how often, and under which id."""

    def __init__(self, app: ASGIApp, limits: Limits, limiter: Limiter, doors: Doors) -> None:
        self._app = app
        self._limits = limits
        self._limiter = limiter
        self._doors = doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        request_id = secrets.token_hex(8)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        started = False

        async def named(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                message.setdefault("headers", []).append((b"x-request-id", request_id.encode()))
            await send(message)

        try:
            await self._checked(scope, receive, named)
        except EdgeError as error:
            if not started:
                await error_response(error)(scope, receive, named)
        except (ClientDisconnect, WebSocketDisconnect):
            log.debug("request %s to %s: the peer left", request_id, scope["path"])
        except Exception:
            log.exception("request %s to %s failed", request_id, scope["path"])
            if not started:
                await error_response(Internal())(scope, receive, named)
        finally:
            for release in state.pop("edge.release", ()):
                release()

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        _check_host(scope)
        if _on_loopback(scope) and not self._doors.hosts.ours(_host(scope)):
            raise NotPermitted("unknown Host: this listener answers to its own names only")
        address = (scope.get("client") or ("", 0))[0]
        with self._limiter.enter(GUEST, address):
            await self._app(scope, receive, send)


def _check_host(scope: Scope) -> None:
    """RFC 9112 §3.2: one Host header, and a valid one; HTTP/1.0 may have none. Raises `InvalidRequest` (400)."""
    found = [value for name, value in scope["headers"] if name == b"host"]
    if len(found) > 1 or (not found and scope.get("http_version") == "1.1"):
        raise InvalidRequest(f"a request has one Host header, this one has {len(found)}")
    if found and not _HOST.fullmatch(found[0]):
        raise InvalidRequest("the Host header is no host")


def _on_loopback(scope: Scope) -> bool:
    return is_loopback((scope.get("server") or ("", 0))[0] or "")


def _host(scope: Scope) -> str:
    found: list[tuple[bytes, bytes]] = scope["headers"]
    return next((value.decode("latin-1") for name, value in found if name == b"host"), "")
