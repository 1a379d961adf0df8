"""The external engine on a Mosquitto of the test's own, and devices that speak to that Mosquitto."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiomqtt

from edge.contract.bus import Done, Publish
from edge.contract.limit import Limits
from edge.contract.principal import NODE
from edge.contract.store import Store
from edge.protocol.mqtt.prefixes import Prefixes
from edge.store import ledger
from edge.store.credentials import own_topics
from edge.store.losses import Losses
from edge.system.clock import SystemClock
from edge.transports.mqtt.external import ExternalEngine
from edge.transports.mqtt.foreign import Where
from tests.support.mosquitto import Mosquitto
from tests.support.patience import until
from tests.support.store import database

USERS = {"node": "node-secret", "device": "device-secret"}


class Foreign:
    """One engine with its store and a sink that keeps what `keeps` says. Waits between tries are a tenth."""

    def __init__(self, hot: Store, port: int, group: asyncio.TaskGroup, **more: Any) -> None:
        self.hot, self.clock, self.limits = hot, SystemClock(1), more.pop("limits", None) or Limits()
        self.losses = Losses(hot, self.clock)
        self.heard: list[Publish] = []
        self.keeps: Callable[[Publish], bool] = lambda publish: False
        table: Mapping[str, str] = more.pop("principals", {"#": "broker"})
        where = Where(
            port=port,
            client_id="aun-edge-test",
            username="node",
            **{"host": "127.0.0.1", "keepalive_s": 5, "password": lambda: USERS["node"], **more.pop("where", {})},
        )
        self.reads: set[str] = set()
        self.engine = ExternalEngine(
            where,
            Prefixes(table, own_topics, lambda name: f"d-{name}.test"),
            clock=self.clock,
            hot=hot,
            limits=self.limits,
            losses=self.losses,
            spawn=lambda work: void(group.create_task(work)),
            plan=more.pop("plan", ("t/#",)),
            reads=lambda: self.reads,
            draw=lambda: 0.1,
            **more,
        )
        self.engine.attach(self._sink)

    def _sink(self, batch: list[Publish], done: Done) -> Collection[int]:
        self.heard += batch
        kept = [at for at, publish in enumerate(batch) if self.keeps(publish)]
        if kept:
            self.hot.write(lambda unit: None, lambda result: done(result if isinstance(result, Exception) else None))
        return kept

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> None:
        """The node publishes."""
        self.engine.publish(Publish(topic, payload, qos, retain, NODE, self.clock.now()))

    def foreign(self) -> list[tuple[str, bytes]]:
        """What others published, as the sinks heard it."""
        return [(one.topic, one.payload) for one in self.heard if one.who is not NODE]

    async def connected(self, times: int = 1) -> None:
        """Wait until the engine has connected so many times and hears its plan."""
        broker = self.engine.broker
        await self.until(lambda: broker.connected and broker.connections >= times and broker.hearing)

    async def until(self, reached: Callable[[], Any]) -> None:
        """Let the loop run until something is so."""
        await until(reached)

    async def drops(self) -> dict[str, int]:
        """The ledger by reason."""
        self.losses.flush()
        await self.hot.commit(lambda unit: None)
        return {drop.reason: drop.count for drop in await self.hot.read(ledger.drops)}


def void(task: object) -> None:
    """Forget a task: its group has it."""


@asynccontextmanager
async def foreign(folder: Path, port: int, **more: Any) -> AsyncIterator[Foreign]:
    """An engine that has begun to connect; it leaves in order at the end."""
    folder.mkdir(exist_ok=True)
    async with database(folder, "hot", SystemClock(1)) as hot, asyncio.TaskGroup() as group:
        made = Foreign(hot, port, group, **more)
        await made.engine.load()
        try:
            yield made
        finally:
            made.engine.stop_reading()
            await made.engine.close()
            made.losses.stop()


@asynccontextmanager
async def device(broker: Mosquitto, **more: Any) -> AsyncIterator[aiomqtt.Client]:
    """A device's own connection."""
    async with aiomqtt.Client("127.0.0.1", broker.port, username="device", password=USERS["device"], **more) as client:
        yield client
