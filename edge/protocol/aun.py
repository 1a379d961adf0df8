"""The AUN codec: frames of the gateway socket (spec aun-connect §2, §6.1, §7, §11, §12; aun-services §0.1, §1.8).

Per connection it is without state; what `auth.connect` announced is handed in as `hello`. The params that leave
here carry no top-level `_…` key but those of `PASSED`: `_trace` is read, the others (`_auth`, `_caller_id`,
`_federation`) are trusted internals that a client may not send. `client_signature` stays: who verifies it needs the
bytes as received.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from edge.contract.errors import (
    AlreadyMember,
    CertificateInvalid,
    Conflict,
    ContentTypeNotSupported,
    EdgeError,
    EpochStale,
    ExtendedCardNotConfigured,
    GroupE2eeRequired,
    GroupEpochMismatch,
    GroupNotFound,
    GroupStateInvalid,
    GroupStateMismatch,
    GroupSuspended,
    Internal,
    InvalidParams,
    InvalidRequest,
    InviteCodeInvalid,
    JoinRejected,
    Malformed,
    MemberLimit,
    MethodNotFound,
    NonceInvalid,
    NotAuthenticated,
    NotFound,
    NotMember,
    NotPermitted,
    NotReady,
    OutputTooLarge,
    PreconditionFailed,
    PreconditionRequired,
    ProtocolVersion,
    PushNotSupported,
    RateLimited,
    RecipientsStale,
    RoleInsufficient,
    SignatureInvalid,
    StateStale,
    SwitchedOff,
    TaskAccessDenied,
    TaskAlreadyAccepted,
    TaskCanceled,
    TaskError,
    TaskFailed,
    TaskInputRequired,
    TaskNotFound,
    TaskRejected,
    TokenExpired,
    TooLarge,
    Unavailable,
    UnsupportedOperation,
    VersionConflict,
)
from edge.contract.event import Event
from edge.contract.wire import JsonLimits, decode, dumps
from edge.protocol import jsonrpc
from edge.protocol.jsonrpc import ErrorTable, Refused, Request, Trace

Render = Callable[[Event, Mapping[str, Any]], bytes | None]
"""Shows an event to a connection that announced `hello`: the whole frame, or None when it is not for that dialect."""

NUMBERS = ErrorTable(
    {
        EdgeError: -32603,
        Malformed: -32700,
        InvalidRequest: -32600,
        MethodNotFound: -32601,
        InvalidParams: -32602,
        Internal: -32603,
        ProtocolVersion: -32000,
        NotAuthenticated: -32001,
        CertificateInvalid: -32002,
        NonceInvalid: -32002,
        SignatureInvalid: -32003,
        NotPermitted: -32004,
        TokenExpired: -32005,
        NotFound: -32008,
        Conflict: 4090,
        VersionConflict: -32009,
        RecipientsStale: -33054,
        PreconditionFailed: -32009,
        PreconditionRequired: -32602,
        NotReady: -32013,
        RateLimited: -32029,
        TooLarge: -32602,
        Unavailable: 5003,
        UnsupportedOperation: -32601,
        ContentTypeNotSupported: -32602,
        PushNotSupported: -32601,
        ExtendedCardNotConfigured: -32601,
        GroupNotFound: -33001,
        GroupStateInvalid: -33002,
        GroupSuspended: -33003,
        MemberLimit: -33004,
        AlreadyMember: -33005,
        NotMember: -33006,
        RoleInsufficient: -33007,
        InviteCodeInvalid: -33008,
        JoinRejected: -33009,
        GroupEpochMismatch: -32041,
        GroupStateMismatch: -32042,
        EpochStale: -33050,
        StateStale: -33052,
        GroupE2eeRequired: -32604,
        TaskError: -32171,
        TaskNotFound: -32170,
        TaskInputRequired: -32172,
        TaskCanceled: -32173,
        OutputTooLarge: -32174,
        TaskAccessDenied: -32175,
        TaskAlreadyAccepted: -32176,
        TaskRejected: -32177,
        TaskFailed: -32186,
    }
)
"""5003: "server error", retried by the SDK; a node that warms up never answers with an authentication code (§7.5)."""

CONNECT_NUMBERS = NUMBERS.over(
    {InvalidParams: 4000, NotAuthenticated: 4001, TokenExpired: 4001, SignatureInvalid: 4001, NonceInvalid: 4010}
    | {CertificateInvalid: 4001, Internal: 4500}
)
"""`auth.connect` has numbers of its own (§7.3)."""

SEARCH_NUMBERS = NUMBERS.over({SwitchedOff: -32160})
"""A search service that is switched off has a number of its own (settled G34)."""

GUEST_METHODS = frozenset({"meta.ping", "meta.trust_roots"})
"""Besides `auth.*`, what a socket may ask before `auth.connect` (§7.8)."""

PASSED = frozenset({"_create_request_id"})
"""The one private-looking param that is a client's own: it makes a repeated `group.create` the same one."""

TRACE_MODES = ("off", "log", "diag")
MAX_SPANS = 32
MAX_DETAIL = 256
CLOSE_PROTOCOL = 1002

_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_SLOT_END = re.compile(r"[/: ]")
_PRIVATE_MARKS = (b'"_', b"\\u005")
"""Without one of these (the second: an escaped underscore) no key can begin with `_`: spares a second parse."""


def isolation_key(slot: str) -> str:
    """What makes two slots the same one: the text before the first `/`, `:` or space (§7.1)."""
    return _SLOT_END.split(slot, maxsplit=1)[0]


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What `auth.connect` announced, as far as a connection's treatment depends on it. Missing means false."""

    mode: str = "fanout"
    routing: str = ""
    long: bool = True
    short_ttl_ms: int = 0
    peer_pull: bool = False


def hello(announced: Mapping[str, Any]) -> Hello:
    """Read an announcement; what has the wrong type counts as missing (it was validated by `auth.connect`)."""
    delivery, options = _object(announced, "delivery_mode"), _object(announced, "options")
    ttl = options.get("short_ttl_ms")
    return Hello(
        mode="queue" if delivery.get("mode") == "queue" else "fanout",
        routing=str(delivery.get("routing") or ""),
        long=options.get("kind") != "short",
        short_ttl_ms=ttl if isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0 else 0,
        peer_pull=capable(announced, "p2p_peer_pull_v1"),
    )


def device_of(announced: Mapping[str, Any]) -> str:
    """The id of the device that announced itself; "" where it has none."""
    found = _object(announced, "device").get("id")
    return found if isinstance(found, str) else ""


def capable(announced: Mapping[str, Any], name: str) -> bool:
    """Whether a client announced a capability."""
    return _object(announced, "capabilities").get(name) is True


def challenge(nonce: str, server: str, wall_us: int) -> bytes:
    """The first frame on every socket (§6.1)."""
    params = {
        "nonce": nonce,
        "server": server,
        "protocol": {"min": "1.0", "max": "1.0"},
        "auth_methods": ["kite_token", "aid"],
        "server_time": wall_us // 1000 / 1000,
    }
    return jsonrpc.notification("challenge", dumps(params))


class AunCodec:
    """Frames of the AUN gateway. `trace_mode` is the most that a caller may ask for, `node` names us in spans."""

    surface = "aun"

    def __init__(
        self,
        limits: JsonLimits,
        render: Render,
        new_trace_id: Callable[[], str],
        *,
        trace_mode: str = "log",
        node: str = "aun-edge",
    ) -> None:
        self._limits = limits
        self._render = render
        self._new_trace_id = new_trace_id
        self._trace_mode = TRACE_MODES.index(trace_mode)
        self._node = node

    def read(self, frame: bytes) -> Request | Refused | None:
        """One text frame. Never raises on what a peer sent."""
        request = jsonrpc.read(frame, self._limits)
        if not isinstance(request, Request) or not any(mark in request.params for mark in _PRIVATE_MARKS):
            return request
        fields = decode(request.params, dict[str, msgspec.Raw])
        private = [name for name in fields if name.startswith("_") and name not in PASSED]
        if not private:
            return request
        trace = self._trace(fields["_trace"]) if "_trace" in fields else None
        for name in private:
            del fields[name]
        return Request(request.id, request.method, dumps(fields), trace)

    def answer(self, request: Request, value: bytes, at_ms: int, took_ms: int) -> bytes:
        """The result of a request, received at `at_ms` wall time, `took_ms` ago."""
        return jsonrpc.result(request.id, value, self._beside(request, at_ms, took_ms))

    def refuse(self, request: Request, error: EdgeError, at_ms: int, took_ms: int) -> bytes:
        """The failure of a request, in the numbers of its method."""
        table = _table(request.method)
        if request.trace is not None:
            error.data.setdefault("trace_id", request.trace.id)
        return table.frame(request.id, error, self._beside(request, at_ms, took_ms))

    def refuse_frame(self, key: bytes, error: EdgeError) -> bytes:
        """The failure of a frame that was no request."""
        return NUMBERS.frame(key, error)

    def item(self, request: Request, value: object) -> bytes | None:
        """AUN has no streamed results."""
        return None

    def event(self, event: Event, hello: Mapping[str, Any]) -> bytes | None:
        """An event as this connection reads it."""
        return self._render(event, hello)

    def farewell(self, code: int, reason: str, detail: Mapping[str, object]) -> bytes | None:
        """`event/gateway.disconnect` before a close of ours (§7.5); never before a restart (1012) or plain end."""
        if code < 4000:
            return None
        return jsonrpc.notification(
            "event/gateway.disconnect", dumps({"code": code, "reason": reason, "detail": dict(detail)})
        )

    def open_to_guests(self, method: str) -> bool:
        """Whether a socket that has not finished `auth.connect` may ask for this."""
        return method.startswith("auth.") or method in GUEST_METHODS

    def fatal(self, error: EdgeError) -> int | None:
        """The close code that follows this error, if any (§7.3: no common protocol version)."""
        return CLOSE_PROTOCOL if isinstance(error, ProtocolVersion) else None

    def dialect(self, announced: Mapping[str, Any]) -> str:
        """`peer` for the current SDK's pull by peer, `seed` for the seed's shapes, "" before `auth.connect`."""
        if not announced:
            return ""
        return "peer" if hello(announced).peer_pull else "seed"

    def _trace(self, raw: bytes | msgspec.Raw) -> Trace | None:
        try:
            asked = decode(bytes(raw), dict[str, Any])
        except Malformed:
            return None
        wanted = asked.get("mode")
        mode = min(TRACE_MODES.index(wanted) if wanted in TRACE_MODES else 1, self._trace_mode)
        if mode == 0:
            return None
        given = asked.get("trace_id")
        known = isinstance(given, str) and _TRACE_ID.fullmatch(given)
        spans = _spans(asked.get("spans")) if mode == 2 else ()
        return Trace(given if known and isinstance(given, str) else self._new_trace_id(), TRACE_MODES[mode], spans)

    def _beside(self, request: Request, at_ms: int, took_ms: int) -> bytes:
        trace = request.trace
        if trace is None or trace.mode != "diag":
            return b""
        span = {"node": self._node, "ts": at_ms, "action": "process", "ms": took_ms, "detail": request.method}
        spans = [*trace.spans, span][-MAX_SPANS:]
        return b',"_trace":' + dumps({"trace_id": trace.id, "mode": trace.mode, "spans": spans})


def _table(method: str) -> ErrorTable:
    if method == "auth.connect":
        return CONNECT_NUMBERS
    return SEARCH_NUMBERS if method.startswith("search.") else NUMBERS


def _spans(found: object) -> tuple[Mapping[str, Any], ...]:
    """Spans of earlier nodes: their documented members only, the last `MAX_SPANS`, details cut."""
    if not isinstance(found, Sequence) or isinstance(found, str):
        return ()
    spans = []
    for span in found[-MAX_SPANS:]:
        if isinstance(span, Mapping):
            kept = {name: span[name] for name in ("node", "ts", "action", "ms", "detail") if name in span}
            spans.append({name: v[:MAX_DETAIL] if isinstance(v, str) else v for name, v in kept.items()})
    return tuple(spans)


def _object(announced: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = announced.get(name)
    return found if isinstance(found, Mapping) else {}
