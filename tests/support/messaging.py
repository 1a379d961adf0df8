"""A message service on a real database, with real channels whose far ends are in the test's hands."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from edge.contract.capability import Skill
from edge.contract.event import Event
from edge.contract.limit import Limits
from edge.contract.op import Calls, Door
from edge.contract.principal import AGENT_SCOPES, Kind, Principal
from edge.contract.store import Unit
from edge.contract.task import Order
from edge.contract.wire import JsonLimits, dumps, loads
from edge.dispatch.dispatcher import Dispatcher
from edge.dispatch.hub import Hub
from edge.dispatch.table import OpTable
from edge.protocol import aun_events, keys
from edge.protocol.aun import AunCodec
from edge.services.message import MessageService
from edge.session.channels import Channels, LiveChannel
from edge.store.database import Database
from tests.support.clock import FakeClock, turn
from tests.support.patience import PATIENCE_S
from tests.support.store import database

ISSUER = "edge.test"
ALICE, BOB, CAROL = (f"{name}.{ISSUER}" for name in ("alice", "bobb", "carol"))
SENSOR = f"d-porch.{ISSUER}"

SEED: Mapping[str, Any] = {}
"""What a client of the seed announces besides its device."""
PEER: Mapping[str, Any] = {
    "capabilities": {"e2ee": True, "inline_realtime_payload_v1": True, "p2p_peer_pull_v1": True},
}
"""What the current SDK announces."""
FIRST: Mapping[str, Any] = {"capabilities": {"e2ee": True, "group_e2ee": True}}
"""What the 0.2 SDK announces."""

HI = {"type": "text", "text": "hi"}


class NoGate:
    """A house without things."""

    def skills(self) -> list[Skill]:
        return []

    def skill(self, skill_id: str) -> Skill | None:
        return None

    def check(self, order: Order) -> None:
        raise AssertionError("nothing to check")

    def deliver(self, order: Order) -> None:
        raise AssertionError("nothing to deliver to")

    def cancel(self, order: Order) -> None:
        raise AssertionError("nothing to cancel")

    def answer(self, task_id: str, skill: str, parts: bytes) -> None:
        raise AssertionError("nothing to answer")


class FarEnd:
    """The peer's end of a channel: keeps the frames it is sent."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None
        self._gone = asyncio.Event()

    async def receive(self) -> bytes | None:
        await self._gone.wait()
        return None

    async def send(self, frame: bytes) -> None:
        self.frames.append(loads(frame, JsonLimits(octets=1 << 24)))

    def close(self, code: int, reason: str) -> None:
        self.closed = self.closed or (code, reason)
        self._gone.set()


class Client:
    """One connection of an AID."""

    def __init__(self, post: Post, who: Principal, channel: LiveChannel | None, far: FarEnd) -> None:
        self._post, self.who, self.channel, self.far = post, who, channel, far

    async def call(self, method: str, /, **params: Any) -> dict[str, Any]:
        """A request over this connection; its result as JSON."""
        return await self.raw(method, dumps(params))

    async def raw(self, method: str, params: bytes) -> dict[str, Any]:
        """A request with its params as text."""
        door = self.channel.door() if self.channel else Door()
        outcome = await self._post.dispatcher.call("aun", method, params, self.who, door=door)
        answer: dict[str, Any] = loads(dumps(outcome.result), JsonLimits(octets=1 << 24))
        return answer

    async def send(self, to: str, payload: Mapping[str, Any] = HI, **more: Any) -> dict[str, Any]:
        """message.send."""
        return await self.call("message.send", to=to, payload=payload, **more)

    async def events(self, name: str = "") -> list[dict[str, Any]]:
        """Params of the events heard so far, of one name or of all."""
        await self._post.rest()
        return [f["params"] for f in self.far.frames if not name or f["method"] == f"event/{name}"]

    async def leave(self) -> None:
        """Hang up."""
        assert self.channel is not None
        self._post.channels.drop(self.channel)
        self.channel.close(1000, "")
        await self._post.rest()


class Post:
    """Everything that `post_office` started."""

    def __init__(self, clock: FakeClock, limits: Limits) -> None:
        self.clock, self.limits = clock, limits
        self.hub = Hub()
        self.heard: list[Event] = []
        self.hub.attach_audience(self.heard.append)
        self.channels = Channels(clock, limits)
        self.channels.attach(self.hub)
        self.aids = {ALICE, BOB, CAROL, SENSOR}
        self.node: Database
        self.service: MessageService
        self.dispatcher: Dispatcher
        self._spawn: Callable[[Coroutine[Any, Any, Any]], Any]
        self._running = 0
        self._trace = itertools.count(1)

    def known(self, unit: Unit, aid: str) -> bool:
        return aid in self.aids

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """The node's spawn, counted so that `rest` can wait for it."""

        async def counted() -> None:
            try:
                await work
            finally:
                self._running -= 1

        self._running += 1
        self._spawn(counted())

    def offline(self, aid: str = ALICE, device: str = "", slot: str = "") -> Client:
        """A caller without a connection."""
        who = Principal(Kind.AGENT, aid, AGENT_SCOPES, "aun", device, slot)
        return Client(self, who, None, FarEnd())

    async def connect(
        self,
        aid: str = ALICE,
        device: str = "",
        slot: str = "",
        announced: Mapping[str, Any] = SEED,
        mode: str = "fanout",
        routing: str = "",
    ) -> Client:
        """A long connection, admitted as the session does it."""
        far = FarEnd()
        codec = AunCodec(JsonLimits(), aun_events.render, lambda: f"{next(self._trace):032x}")
        channel = self.channels.open(far, codec, Door())
        hello = {
            **announced,
            "device": {"id": device},
            "client": {"slot_id": slot},
            "delivery_mode": {"mode": mode, "routing": routing},
        }
        who = Principal(Kind.AGENT, aid, AGENT_SCOPES, "aun", device, slot)
        self.channels.admit(channel, who, dumps(hello), hello)
        self._spawn(channel.deliver())
        assert channel.instance is not None
        for told in self.channels.on_admitted:
            told(channel.instance)
        await self.rest()
        return Client(self, who, channel, far)

    async def rest(self) -> None:
        """Wait until everything that was committed has been heard, and background work is done."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await self.node.ping()
                await turn(4)
                if not self._running:
                    return


def key_of(aid: str, generation: int) -> Any:
    """The key of a device or service of the post office."""
    return keys.derive(b"s" * 32, aid, generation)


@asynccontextmanager
async def post_office(
    folder: Path,
    *,
    clock: FakeClock | None = None,
    limits: Mapping[str, int] | None = None,
    gate: Any = None,
    services: Callable[[Post], Sequence[object]] = lambda post: (),
    incarnation: int = 0,
    before: Callable[[Post], None] = lambda post: None,
    synchronous: str = "FULL",
) -> AsyncIterator[Post]:
    """A message service in `folder`; opening the same folder again is a restart. `before` runs before its start."""
    post = Post(clock or FakeClock(), Limits(dict(limits or {})))
    async with (
        asyncio.TaskGroup() as group,
        database(
            folder,
            clock=post.clock,
            incarnation=incarnation,
            fanout=post.hub.publish,
            limits=post.limits,
            synchronous=synchronous,
        ) as node,
    ):
        post.node, post._spawn = node, group.create_task
        post.service = MessageService(
            node,
            post.clock,
            post.channels,
            gate or NoGate(),
            _Late(post),
            post.spawn,
            post.hub,
            issuer=ISSUER,
            known=post.known,
            limits=post.limits,
            key_of=key_of,
        )
        post.channels.on_admitted.append(post.service.connected)
        post.dispatcher = Dispatcher(OpTable(post.service, *services(post)), {"node": node})
        before(post)
        post.service.start()
        await post.rest()
        try:
            yield post
        finally:
            post.service.stop()
            await post.rest()
            post.channels.close_all()


class _Late(Calls):
    """`Calls` before the dispatcher is there."""

    def __init__(self, post: Post) -> None:
        self._post = post

    async def call(self, op: str, params: object, who: Principal) -> Any:
        return await self._post.dispatcher.run(op, params, who)
