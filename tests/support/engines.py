"""One bus behind three engines, each in a box with the same users, for tests that devices would write."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiomqtt

from edge.contract.bus import Admission, BusEngine, Done, Login, Publish, Refusal, Verdict
from edge.contract.limit import Limits
from edge.contract.principal import NODE, Kind, Principal
from edge.contract.store import Store
from edge.protocol.mqtt.prefixes import Prefixes
from edge.store.credentials import own_topics
from edge.store.losses import Losses
from edge.system.clock import SystemClock
from edge.transports.mqtt.builtin import BuiltinEngine
from edge.transports.mqtt.external import ExternalEngine
from edge.transports.mqtt.foreign import Where
from tests.support.mosquitto import Mosquitto
from tests.support.patience import PATIENCE_S, until
from tests.support.store import database

ENGINES = ["builtin", "external", *(["amqtt"] if find_spec("amqtt") else [])]
"""Those that can run here: `amqtt` needs its extra."""


USERS = {"alice": ("alice/#", "shared/#"), "bob": ("bob/#", "shared/#"), "root": ("#",)}
ACL = """user node
topic readwrite #
user root
topic readwrite #
user alice
topic readwrite alice/#
topic readwrite shared/#
user bob
topic readwrite bob/#
topic readwrite shared/#
"""


class Gate:
    """Lets in whoever shows their name and `-secret`."""

    def admit(self, login: Login, then: Verdict) -> None:
        user = login.user
        if user not in USERS or login.password != f"{user}-secret".encode():
            then(Refusal.CREDENTIALS)
            return
        who = Principal(Kind.DEVICE, f"d-{user}.test", via="mqtt", device_id=user)
        then(Admission(who, user, USERS[user], USERS[user]))


class Box:
    """An engine that devices can reach at `port`; `heard` is what its sink heard."""

    def __init__(self, name: str, folder: Path, limits: dict[str, int]) -> None:
        self.name, self._folder = name, folder
        self._limits = Limits({f"mqtt.{key}": value for key, value in limits.items()})
        self.clock = SystemClock(1)
        self.heard: list[Publish] = []
        self.keeps = False
        """Whether its sink keeps every message, and `kept` the completions that it then owes."""
        self.kept: list[Done] = []
        self.port = 0
        self.patience_s = PATIENCE_S
        """How long its clients wait for what must come; what a known miss waits for in vain has a shorter one."""
        self.engine: BusEngine
        self.mosquitto: Mosquitto | None = None
        self._raw: list[socket.socket] = []
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        """Bring the engine (and the broker behind it) up. What it has begun is for `stop`, also when it fails."""
        self._stack.callback(self._stop_mosquitto)
        hot = await self._stack.enter_async_context(database(self._folder, "hot", self.clock))
        group = await self._stack.enter_async_context(asyncio.TaskGroup())

        def spawn(work: Any) -> None:
            group.create_task(work)

        losses = Losses(hot, self.clock)
        if self.name == "builtin":
            self.engine = BuiltinEngine(clock=self.clock, gatekeeper=Gate(), hot=hot, limits=self._limits)
        elif self.name == "amqtt":
            from edge.transports.mqtt.amqtt_engine import AmqttEngine

            self.engine = AmqttEngine(
                clock=self.clock, gatekeeper=Gate(), limits=self._limits, losses=losses, spawn=spawn
            )
        else:
            self.engine = self._external(hot, losses, spawn)
        self._stack.push_async_callback(self._leave)
        self.engine.attach(self._sink)
        await self.engine.load()
        if self.engine.listens:
            sock = socket.create_server(("127.0.0.1", 0), backlog=64)
            sock.setblocking(False)
            self.port = await self.engine.serve(sock)
        else:
            await self.until(lambda: self.engine.broker.hearing)  # type: ignore[attr-defined]

    def _external(self, hot: Store, losses: Losses, spawn: Callable[[Any], None]) -> ExternalEngine:
        if self.mosquitto is None:
            folder = self._folder / "mosquitto"
            folder.mkdir()
            (folder / "acl").write_text(ACL)
            users = {user: f"{user}-secret" for user in (*USERS, "node")}
            self.mosquitto = Mosquitto(folder, users=users, lines=(f"acl_file {folder}/acl",))
        self.mosquitto.start()
        self.port = self.mosquitto.port
        return ExternalEngine(
            Where(host="127.0.0.1", port=self.port, client_id="node", username="node", password=lambda: "node-secret"),
            Prefixes({"#": "root", "alice/": "alice", "bob/": "bob"}, own_topics, lambda name: f"d-{name}.test"),
            clock=self.clock,
            hot=hot,
            limits=self._limits,
            losses=losses,
            spawn=spawn,
            plan=("shared/#", "t/#"),
            draw=lambda: 0.1,
        )

    async def stop(self) -> None:
        """Take it down in order."""
        await self._stack.aclose()

    async def _leave(self) -> None:
        for sock in self._raw:
            sock.close()
        self.engine.stop_accepting()
        self.engine.stop_reading()
        await self.engine.close()

    def _stop_mosquitto(self) -> None:
        if self.mosquitto is not None:
            self.mosquitto.stop()

    def _sink(self, batch: list[Publish], done: Done) -> Collection[int]:
        self.heard += batch
        if not self.keeps:
            return ()
        self.kept.append(done)
        return range(len(batch))

    # What a test does.

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> None:
        """The node publishes."""
        self.engine.publish(Publish(topic, payload, qos, retain, NODE, self.clock.now()))

    def client(self, user: str, **more: Any) -> AbstractAsyncContextManager[aiomqtt.Client]:
        """A device's connection."""
        settings = {"identifier": f"{user}-1", "timeout": self.patience_s, **more}
        password = settings.pop("password", f"{user}-secret")
        return aiomqtt.Client("127.0.0.1", self.port, username=user, password=password, **settings)

    def raw(self) -> socket.socket:
        """A connection without a client behind it. It is closed with the box, also where a test ends before its end (as
        every known miss does)."""
        self._raw.append(sock := socket.create_connection(("127.0.0.1", self.port), self.patience_s))
        return sock

    async def take(self, client: aiomqtt.Client, count: int) -> list[aiomqtt.Message]:
        """The next messages that a client gets."""
        async with asyncio.timeout(self.patience_s):
            return [await anext(client.messages) for _ in range(count)]

    async def reply(self, sock: socket.socket, count: int) -> bytes:
        """The next bytes of a raw connection, fewer at its end. Raises `TimeoutError`."""

        def read() -> bytes:
            found = b""
            while len(found) < count:
                try:
                    part = sock.recv(count - len(found))
                except ConnectionError:
                    part = b""
                if not part:
                    break
                found += part
            return found

        return await asyncio.get_running_loop().run_in_executor(None, read)

    async def until(self, reached: Callable[[], Any]) -> None:
        """Let the loop run until something is so."""
        await until(reached, self.patience_s)


@asynccontextmanager
async def box(name: str, folder: Path, **limits: int) -> AsyncIterator[Box]:
    """A box that is up."""
    made = Box(name, folder, limits)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()
