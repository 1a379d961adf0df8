"""Every HTTP door ends in one principal (design D20): bearer token, TLS client certificate, or `--insecure-local`.

A route asks `await principal_of(request)`; what a request may claim about itself is decided here and nowhere else.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection

from starlette.requests import HTTPConnection

from edge.contract.errors import NotAuthenticated, NotPermitted, TokenExpired
from edge.contract.op import Door
from edge.contract.principal import AGENT_SCOPES, GUEST, Kind, Principal, Tokens
from edge.protocol.aid import host as host_of
from edge.session.limiter import Limiter

LOCAL = Principal(kind=Kind.AGENT, aid="local", scopes=AGENT_SCOPES, via="local")
"""A token-less caller on this machine under `--insecure-local`: an agent without any grant."""

FOREIGN_MARKS = ("origin", "forwarded", "x-forwarded-for")
"""A request that carries one of these comes from a page or through a proxy: it is not this machine's own."""

MAX_TOKEN = 8192

_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")

Certificates = Callable[[bytes], Awaitable[Principal | None]]
"""The principal of a verified client certificate (DER), or None when it is nobody's."""


class Hosts:
    """The host names that are ours: IP literals, localhost, the names given, and everything below `*.name`."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self._exact = {"localhost"} | {name.lower() for name in names if not name.startswith("*.")}
        self._below = tuple(name[1:].lower() for name in names if name.startswith("*."))

    def ours(self, header: str) -> bool:
        """Whether a `Host` header names us. None at all counts: only a name can be rebound."""
        if not header:
            return True
        name = host_of(header)
        known = name in self._exact or name.endswith(self._below) or _is_literal(name)
        return known and _HOST.fullmatch(header) is not None


class Doors:
    """Who is calling by HTTP. One per node; routes reach it through `principal_of`."""

    def __init__(
        self,
        tokens: Tokens,
        limiter: Limiter,
        hosts: Hosts,
        *,
        insecure_local: bool = False,
        certificates: Certificates | None = None,
    ) -> None:
        self._tokens = tokens
        self._limiter = limiter
        self._certificates = certificates
        self.hosts = hosts
        self.insecure_local = insecure_local

    async def principal(self, request: HTTPConnection) -> Principal:
        """Who asks. Raises `NotAuthenticated`, `TokenExpired`, `RateLimited`; `NotPermitted` for a page or a proxy."""
        token = bearer(request)
        if token:
            return await self._by_token(request, token)
        if (certificate := certificate_of(request)) and self._certificates is not None:
            if (who := await self._certificates(certificate)) is not None:
                return who
        if self.insecure_local and _is_loopback(address_of(request)):
            return self._local(request)
        raise NotAuthenticated("a bearer token is needed: aun-edge agent add NAME makes one")

    async def _by_token(self, request: HTTPConnection, token: str) -> Principal:
        try:
            return await self._tokens.principal(token)
        except TokenExpired:
            raise
        except NotAuthenticated:
            self._limiter.failed(address_of(request))
            raise

    def _local(self, request: HTTPConnection) -> Principal:
        for name in FOREIGN_MARKS:
            if name in request.headers:
                raise NotPermitted(f"a request with {name} needs a token: --insecure-local is for this machine only")
        if not self.hosts.ours(request.headers.get("host", "")):
            raise NotPermitted("a request for a foreign Host needs a token: --insecure-local is for this machine only")
        return LOCAL


async def principal_of(request: HTTPConnection) -> Principal:
    """The principal of a request, counted against its rate until the request ends.

    Raises `NotAuthenticated` (401), `NotPermitted` (403), `RateLimited` (429).
    """
    state = request.scope.setdefault("state", {})
    if "edge.principal" not in state:
        doors: Doors = request.app.state.doors
        limiter: Limiter = request.app.state.limiter
        who = await doors.principal(request)
        ticket = limiter.begin(who, "")  # the address was counted when the request came in
        state.setdefault("edge.release", []).append(ticket.release)
        state["edge.principal"] = who
    found: Principal = state["edge.principal"]
    return found


async def principal_or_guest(request: HTTPConnection) -> Principal:
    """The principal, `GUEST` when the request shows nothing. A bad token is still refused."""
    try:
        return await principal_of(request)
    except NotAuthenticated:
        if "authorization" in request.headers:
            raise
        return GUEST


def bearer(request: HTTPConnection) -> str:
    """The bearer token of a request, "" without one. Raises `NotAuthenticated` for an absurd one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return ""
    if len(token) > MAX_TOKEN:
        raise NotAuthenticated("bearer token too long")
    return token.strip()


def certificate_of(request: HTTPConnection) -> bytes:
    """The verified client certificate (DER), b"" without one (settled G02)."""
    found = request.scope.get("extensions", {}).get("tls", {}).get("client_cert", b"")
    return found if isinstance(found, bytes) else b""


def address_of(request: HTTPConnection) -> str:
    """The peer's address as the kernel knows it; forwarding headers are never believed."""
    return request.client.host if request.client is not None else ""


def base_of(request: HTTPConnection) -> str:
    """`http(s)://host:port` by which the caller reached us: the Host header if it is ours, else our own address."""
    scheme = {"ws": "http", "wss": "https"}.get(request.scope["scheme"], request.scope["scheme"])
    header, hosts = request.headers.get("host", ""), request.app.state.doors.hosts
    if header and hosts.ours(header):
        return f"{scheme}://{header.lower()}"
    address, port = request.scope.get("server") or ("localhost", None)
    shown = f"[{address}]" if ":" in address else address
    return f"{scheme}://{shown}:{port}" if port else f"{scheme}://{shown}"


def door_of(request: HTTPConnection) -> Door:
    """What operations may know about where a request came in."""
    return Door(address=address_of(request), base=base_of(request))


def _is_literal(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    return address in ("127.0.0.1", "::1")
