"""A gateway without a node: the real listener, app, sessions and dispatcher on loopback, with a small service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.routing import BaseRoute
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from edge.contract.errors import InvalidParams, NotAuthenticated, ProtocolVersion, RateLimited, TokenExpired
from edge.contract.event import Event
from edge.contract.limit import Limits
from edge.contract.op import Call, Empty, Outcome, Params, op
from edge.contract.principal import AGENT_SCOPES, Kind, Principal
from edge.contract.wire import dumps, loads
from edge.dispatch.dispatcher import Dispatcher
from edge.dispatch.hub import Hub
from edge.dispatch.table import OpTable
from edge.protocol import jsonrpc
from edge.session.channels import Channels
from edge.session.conversation import Sessions
from edge.session.doors import Doors, Hosts
from edge.session.limiter import Limiter
from edge.system.ports import bind_tcp
from edge.transports.http import aun, health
from edge.transports.http.app import build_app
from edge.transports.http.bounded import Terms
from edge.transports.http.listener import Listener
from tests.support.clock import FakeClock

ISSUER = "edge.test"
OFTEN = {"rate.principal": 1_000_000, "rate.address": 1_000_000, "rate.auth": 1_000_000, "rate.write": 1_000_000}
"""Rates out of the way of tests about something else."""


class Connect(Params, frozen=True, kw_only=True):
    token: str = ""
    device: str = "d1"
    slot: str = "default"
    mode: str = "fanout"
    kind: str = "long"
    short_ttl_ms: int = 0
    peer: bool = False


class Named(Params, frozen=True, kw_only=True):
    name: str = "gate"
    count: int = 0


class Anything(Params, frozen=True, kw_only=True):
    value: msgspec.Raw = msgspec.Raw(b"null")


class Service:
    """Operations to talk to. `gates` are what `test.wait` waits for; `calls` is what came in."""

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = {}
        self.waiting = 0
        self.calls: list[Call[Any]] = []
        self.closed_streams = 0

    @op("auth.connect", scope="", wire={"aun": ("auth.connect",)})
    async def connect(self, call: Call[Connect]) -> Outcome:
        """Become `<token>.edge.test`."""
        asked = call.params
        self.calls.append(call)
        match asked.token:
            case "":
                raise InvalidParams("missing token")
            case "bad":
                raise NotAuthenticated
            case "old":
                raise TokenExpired
            case "future":
                raise ProtocolVersion(data={"server_range": ["1.0", "1.0"]})
        options = {"kind": asked.kind} | ({"short_ttl_ms": asked.short_ttl_ms} if asked.short_ttl_ms else {})
        hello = {
            "device": {"id": asked.device},
            "client": {"slot_id": asked.slot},
            "delivery_mode": {"mode": asked.mode},
            "capabilities": {"p2p_peer_pull_v1": asked.peer},
            "options": options,
        }
        who = Principal(
            kind=Kind.AGENT,
            aid=f"{asked.token}.{ISSUER}",
            scopes=AGENT_SCOPES,
            via="aun",
            device_id=asked.device,
            slot=asked.slot,
        )
        return Outcome(result={"status": "ok"}, become=who, hello=dumps(hello))

    @op("meta.ping", scope="", wire={"aun": ("meta.ping",), "edge": ("ping",)})
    async def ping(self, call: Call[Empty]) -> dict[str, bool]:
        """Pong."""
        return {"pong": True}

    @op("test.echo", scope="any", wire={"aun": ("test.echo",), "edge": ("echo",)})
    async def echo(self, call: Call[Anything]) -> msgspec.Raw:
        """What came in."""
        self.calls.append(call)
        return call.params.value

    @op("test.wait", scope="any", wire={"aun": ("test.wait",), "edge": ("wait",)})
    async def wait(self, call: Call[Named]) -> str:
        """Answer when the gate opens."""
        self.waiting += 1
        try:
            await self.gates.setdefault(call.params.name, asyncio.Event()).wait()
        finally:
            self.waiting -= 1
        return call.params.name

    @op("test.slow_login", scope="", wire={"aun": ("auth.slow",)})
    async def slow_login(self, call: Call[Named]) -> str:
        """Like `test.wait`, open to guests."""
        return await self.wait(call)

    @op("test.big", scope="any", wire={"aun": ("test.big",), "edge": ("big",)})
    async def big(self, call: Call[Named]) -> str:
        """That many letters."""
        return "x" * call.params.count

    @op("test.break", scope="any", wire={"aun": ("test.break",), "edge": ("break",)})
    async def break_(self, call: Call[Empty]) -> None:
        """Break."""
        raise ZeroDivisionError

    @op("test.full", scope="any", wire={"aun": ("test.full",), "edge": ("full",)})
    async def full(self, call: Call[Empty]) -> None:
        """Refuse."""
        raise RateLimited("come back", data={"retry_after_ms": 5})

    @op("test.watch", scope="any", wire={"aun": ("test.watch",)})
    async def watch(self, call: Call[Named]) -> Outcome:
        """Watch tasks `t0`… from now on."""
        count = max(1, call.params.count)
        return Outcome(result=count, watch=tuple(("task", f"t{number}") for number in range(count)))

    @op("test.bye", scope="any", wire={"aun": ("test.bye",)})
    async def bye(self, call: Call[Empty]) -> Outcome:
        """Answer and close."""
        return Outcome(result="bye", close=4001)

    @op("test.follow", scope="any", wire={"aun": ("test.follow",), "edge": ("follow",)})
    async def follow(self, call: Call[Named]) -> AsyncIterator[int]:
        """Numbers from 0; after `count` of them it waits for the gate."""
        gate = self.gates.setdefault(call.params.name, asyncio.Event())

        async def numbers() -> AsyncIterator[int]:
            try:
                for number in range(call.params.count):
                    yield number
                self.waiting += 1
                await gate.wait()
            finally:
                self.closed_streams += 1

        return numbers()


class House:
    """Everything that `gateway` started."""

    def __init__(self, clock: FakeClock, limits: Limits) -> None:
        self.clock, self.limits = clock, limits
        self.service, self.hub = Service(), Hub()
        self.dispatcher = Dispatcher(OpTable(self.service), {})
        self.channels = Channels(clock, limits)
        self.channels.attach(self.hub)
        self.limiter = Limiter(clock, limits)
        self.running: set[asyncio.Task[None]] = set()
        self.listener: Listener
        self.sessions: Sessions

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.listener.address[1]}/aun"

    def tell(self, aid: str, number: int = 1, kind: str = "message.received", only: str = "", size: int = 0) -> None:
        """Publish an event to an AID of the issuer."""
        body = dumps({"n": number, "pad": "x" * size})
        audience = frozenset({f"{aid}.{ISSUER}"})
        self.hub.publish(Event("inbox", f"{aid}.{ISSUER}", number, kind=kind, body=body, audience=audience, only=only))


class NoTokens:
    """Tokens `good` and `old`; nobody else's."""

    async def principal(self, token: str) -> Principal:
        if token == "old":
            raise TokenExpired
        if token != "good":
            raise NotAuthenticated
        return Principal(kind=Kind.AGENT, aid=f"alice.{ISSUER}", scopes=AGENT_SCOPES, via="token")


def render(event: Event, hello: Mapping[str, Any]) -> bytes | None:
    """Every event but the `hidden` ones, as it is."""
    return None if event.kind == "hidden" else jsonrpc.notification(f"event/{event.kind}", event.body or b"{}")


@asynccontextmanager
async def gateway(
    *,
    limits: Mapping[str, int] | None = None,
    routes: Sequence[BaseRoute] = (),
    insecure_local: bool = False,
    clock: FakeClock | None = None,
    http: Any = None,
    tls: Any = None,
    certificates: Any = None,
    trace_mode: str = "log",
) -> AsyncIterator[House]:
    """A listening gateway; closed at the end as a node closes it."""
    house = House(clock or FakeClock(), Limits({**OFTEN, **(limits or {})}))
    hosts = Hosts([ISSUER, f"*.{ISSUER}"])
    doors = Doors(NoTokens(), house.limiter, hosts, insecure_local=insecure_local, certificates=certificates)
    async with asyncio.TaskGroup() as group:
        running = house.running

        def spawn(work: Any) -> None:
            task = group.create_task(work)
            running.add(task)
            task.add_done_callback(running.discard)

        house.sessions = Sessions(house.dispatcher, house.channels, house.limiter, house.clock, house.limits, spawn)
        app = build_app(
            [
                *aun.routes(house.sessions, render, trace_mode=trace_mode),
                *health.routes(lambda: {"store": True}),
                *routes,
            ],
            clock=house.clock,
            limits=house.limits,
            limiter=house.limiter,
            doors=doors,
        )
        terms = Terms(house.clock, house.limits, aun.message_limits())
        house.listener = Listener(app, bind_tcp("127.0.0.1", 0), terms, tls=tls, http=http)
        await house.listener.start()
        try:
            yield house
        finally:
            house.listener.stop_accepting()
            house.sessions.stop_reading()
            house.sessions.close_all()
            await house.listener.shutdown()
            for task in list(running):
                task.cancel()


class Caller:
    """A JSON-RPC client on one socket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.challenge: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []

    async def frame(self) -> dict[str, Any]:
        """The next frame."""
        return dict(loads(await self.socket.recv()))

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, key: int = 1) -> dict[str, Any]:
        """Send a request; its answer. Events that come before it are kept in `events`."""
        await self.send(method, params, key)
        while (frame := await self.frame()).get("id") != key:
            self.events.append(frame)
        return frame

    async def send(self, method: str, params: Mapping[str, Any] | None = None, key: int | None = 1) -> None:
        """Send a request or, without a key, a notification."""
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": dict(params or {})}
        await self.socket.send(dumps(body | ({} if key is None else {"id": key})).decode())

    async def login(self, name: str, **more: Any) -> dict[str, Any]:
        """auth.connect as `<name>.edge.test`."""
        return await self.ask("auth.connect", {"token": name, **more})

    async def closed(self) -> int:
        """Read until the end; the close code."""
        try:
            while True:
                self.events.append(await self.frame())
        except ConnectionClosed:
            pass
        return int(self.socket.close_code or 0)


@asynccontextmanager
async def dial(house: House, path: str = "/aun", name: str = "", **more: Any) -> AsyncIterator[Caller]:
    """A connected client, past the challenge, logged in when `name` is given."""
    url = house.url.removesuffix("/aun") + path
    async with connect(url, proxy=None, max_size=None, close_timeout=1) as socket:
        caller = Caller(socket)
        caller.challenge = await caller.frame()
        if name:
            answer = await caller.login(name, **more)
            assert answer.get("result") == {"status": "ok"}, answer
        yield caller
