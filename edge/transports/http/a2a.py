"""A2A over HTTP: the cards at both well-known paths, and JSON-RPC at `/a2a`, `/a2a/` and `/` (design §4).

A JSON-RPC failure is HTTP 200; who is not let in at all gets 401, 403 or 429 without an envelope
(agent-protocols §2.2).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edge.contract.capability import Skill
from edge.contract.errors import (
    EdgeError,
    InvalidRequest,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    RateLimited,
    TooLarge,
)
from edge.contract.limit import declare
from edge.contract.op import Door
from edge.contract.principal import Principal
from edge.contract.time import Clock, Stamp, wall_us
from edge.contract.wire import JsonLimits, decode, dumps
from edge.dispatch.dispatcher import Dispatcher
from edge.protocol import a2a, jsonrpc
from edge.protocol.aid import host as host_of
from edge.protocol.task import Task
from edge.protocol.urls import Names, aid_url, public_url
from edge.protocol.view import Send, Sent, Show, Stop
from edge.transports.http.app import door_of, has_current, principal_of, read_body

BODY = declare("a2a.body", 1_048_576, "bytes", "of one JSON-RPC request", TooLarge)
CARDS = 64
"""Cards whose last change is remembered (one per URL); a forgotten one says that it changed now."""
MAX_AGE_S = 5
"""Cards change when devices join; clients ask again after this long, with the ETag."""

DOORS = (NotAuthenticated, NotPermitted, RateLimited)
"""Failures that are HTTP's to tell."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What cards say besides skills. `secured`: False only under `--insecure-local`."""

    issuer: str
    version: str
    name: str = "AUN edge node"
    description: str = "The things of this place: what they measure can be read, what they do can be asked for."
    provider: str = ""
    provider_url: str = ""
    secured: bool = True
    mutual_tls: bool = False


class A2A:
    """The A2A side of the node's HTTP application."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        skills: Callable[[], list[Skill]],
        clock: Clock,
        about: About,
        names: Callable[[], Names],
    ) -> None:
        """`names` are those of the node now: which URL a caller is shown follows from them (settled G33)."""
        self._dispatcher, self._skills, self._clock, self._about = dispatcher, skills, clock, about
        self._names = names
        self._changes: OrderedDict[tuple[str, bool], tuple[str, int]] = OrderedDict()

    def routes(self) -> list[Route]:
        """Everything A2A answers; a POST to another path is nobody's."""
        return [
            Route("/.well-known/agent-card.json", self._card, methods=["GET"]),
            Route("/.well-known/agent.json", self._early_card, methods=["GET"]),
            *(Route(path, self._rpc, methods=["POST"]) for path in ("/a2a", "/a2a/", "/")),
        ]

    # Cards.

    async def _card(self, request: Request) -> Response:
        return self._show_card(request, early=False)

    async def _early_card(self, request: Request) -> Response:
        return self._show_card(request, early=True)

    def _show_card(self, request: Request, *, early: bool) -> Response:
        """The card of the address asked: a device's when Host is its AID, else the node's."""
        door, to = door_of(request), self._addressed(request)
        facts = self._facts(self._url(door, to), to)
        body = a2a.card(facts, early=early)
        tag = a2a.etag(body)
        headers = {
            "etag": tag,
            "last-modified": formatdate(self._changed(facts.url, early, tag), usegmt=True),
            "cache-control": f"public, max-age={MAX_AGE_S}",
            "vary": "A2A-Version, Host",
        }
        if has_current(request, tag):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type="application/json")

    def _url(self, door: Door, to: str) -> str:
        """Where JSON-RPC answers this caller; for a device at its own host, which is what addresses it."""
        if to:
            return aid_url(to, "/a2a", door.base, door.address, self._names())
        return f"{public_url(door.base, door.address, self._names())}/a2a"

    def _facts(self, url: str, to: str) -> a2a.Card:
        about = self._about
        skills = [skill for skill in self._skills() if not to or skill.aid == to]
        name, description = about.name, about.description
        if to:
            name, description = skills[0].device_name, f"{skills[0].device_name}, a device of {about.issuer}"
        return a2a.Card(
            name=name,
            description=description,
            url=url,
            version=about.version,
            skills=skills,
            secured=about.secured,
            mutual_tls=about.mutual_tls,
            provider=about.provider,
            provider_url=about.provider_url,
        )

    def _changed(self, url: str, early: bool, tag: str) -> int:
        """When this card last became what it is, s since 1970."""
        known = self._changes.get((url, early))
        if known is None or known[0] != tag:
            known = (tag, wall_us(self._clock) // 1_000_000)
            self._changes[url, early] = known
            if len(self._changes) > CARDS:
                self._changes.popitem(last=False)
        return known[1]

    def _addressed(self, request: Request) -> str:
        """The AID of the device whose own host name was used, "" for the node. Raises `NotFound` for nobody's."""
        host = host_of(request.headers.get("host", ""))
        if not host.endswith("." + self._about.issuer) or not host.startswith("d-"):
            return ""
        if not any(skill.aid == host for skill in self._skills()):
            raise NotFound(f"no device {host} here")
        return host

    # JSON-RPC.

    async def _rpc(self, request: Request) -> Response:
        """One request. Anything that is wrong with it is told in its own envelope."""
        who = await principal_of(request)
        try:
            body = await read_body(request, BODY)
        except TooLarge as error:
            return _answer(a2a.NUMBERS.frame(jsonrpc.NULL, error))
        asked = jsonrpc.read(body, JsonLimits(octets=len(body) or 1))
        if not isinstance(asked, jsonrpc.Request):
            refused = asked or jsonrpc.Refused(jsonrpc.NULL, InvalidRequest("a response is no request"))
            return _answer(a2a.NUMBERS.frame(refused.id, refused.error))
        key = asked.id or jsonrpc.NULL
        try:
            to = self._addressed(request)
            read = a2a.read(asked, to, hashlib.blake2b(f"{to}\0".encode() + body, digest_size=32).hexdigest())
            found = await self._perform(read, who, door_of(request))
        except DOORS:
            raise
        except EdgeError as error:
            return _answer(a2a.numbers(asked.method).frame(key, error))
        return _answer(jsonrpc.result(key, dumps(a2a.show(found, self._when, read.history))))

    async def _perform(self, asked: a2a.Asked, who: Principal, door: Door) -> Task:
        """The task that the request is about, once there is something to say about it."""
        name, params = asked.method, asked.params
        if isinstance(params, Send):
            sent = await self._call("message/send", params, who, door)
            task_id = (decode(sent, Sent) if isinstance(sent, msgspec.Raw) else sent).task_id
            name, params = "tasks/get", Show(task_id=task_id, wait_ms=asked.wait_ms)
        found: Task = await self._call(name, params, who, door)
        return found

    async def _call(self, name: str, params: Send | Show | Stop, who: Principal, door: Door) -> Any:
        outcome = await self._dispatcher.call("a2a", name, dumps(params), who, dialect=a2a.DIALECT, door=door)
        return outcome.result

    def _when(self, at: Stamp) -> int:
        return self._clock.wall(at)[0]


def _answer(frame: bytes) -> Response:
    return Response(frame, media_type="application/json")
