"""The devices area on real databases, a bus in memory and virtual time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from edge.contract.event import Event
from edge.contract.limit import Limits
from edge.contract.op import Call, Empty, Params
from edge.contract.principal import Kind, Principal
from edge.contract.store import Unit
from edge.contract.task import Order, Report
from edge.devices.caps import CapService
from edge.devices.gate import Gate
from edge.devices.grants import GrantBook
from edge.devices.intake import Intake
from edge.devices.operator import OperatorService
from edge.devices.records import AddDevice, Added
from edge.devices.registry import Registry
from edge.devices.service import DeviceService
from edge.devices.tap import Taps
from edge.dispatch.hub import Hub
from edge.session.gatekeeper import Gatekeeper
from edge.store import ledger
from edge.store.database import Database
from tests.support.clock import FakeClock, turn
from tests.support.memory_bus import Arrival, MemoryBus
from tests.support.store import database

ISSUER = "edge.test"
OPERATOR = Principal(kind=Kind.OPERATOR, aid="", scopes=frozenset({"*"}), via="control")


class Tasks:
    """A task service that only writes down what it is told; `refuse` makes it fail, `refuse_once` one time."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.refuse: BaseException | None = None
        self.refuse_once: BaseException | None = None

    def report(self, report: Report, done: Callable[[BaseException | None], None]) -> None:
        error, self.refuse_once = self.refuse or self.refuse_once, None
        if error is None:
            self.reports.append(report)
        done(error)

    def of(self, task_id: str) -> list[Report]:
        return [report for report in self.reports if report.task_id == task_id]

    def last(self, task_id: str) -> Report:
        return self.of(task_id)[-1]

    def data(self, task_id: str) -> dict[str, Any]:
        """The data part of the last report's artifact."""
        parts = json.loads(self.last(task_id).artifact)["parts"]
        return next(part["data"] for part in parts if part["kind"] == "data")


class House:
    """Everything a node has between the bus and the task service."""

    def __init__(self, clock: FakeClock, node: Database, hot: Database, hub: Hub, limits: Limits) -> None:
        self.clock, self.node, self.hot, self.hub, self.limits = clock, node, hot, hub, limits
        self.bus = MemoryBus(clock)
        self.registry = Registry(ISSUER, clock, node, hot, limits)
        self.gatekeeper = Gatekeeper(node, ISSUER, clock, limits)
        self.grants = GrantBook(node)
        self.gate = Gate(self.registry, self.bus, clock)
        self.taps = Taps(limits)
        self.intake = Intake(self.registry, self.gatekeeper.admission, hub, events=self.gate)
        self.service = DeviceService(
            self.registry, self.grants, self.gatekeeper, self.bus, clock, mqtt_url=lambda: "mqtt://127.0.0.1:1883"
        )
        self.caps = CapService(self.registry, self.grants, clock)
        self.operator = OperatorService(self.bus, clock, limits, self.taps)
        self.tasks = Tasks()
        self.gate.report_to(self.tasks)
        self.events: list[Event] = []
        for log in ("device", "reading"):
            hub.watch(log, None, self.events.append)

    async def start(self) -> House:
        await self.registry.load()
        await self.gatekeeper.load()
        await self.grants.load()
        self.bus.attach(self.intake.sink)
        self.bus.attach(self.taps.sink)
        return self

    async def call(self, operation: str, params: Params | None = None, who: Principal = OPERATOR) -> Any:
        """Run one operation as the dispatcher does: `before`, then the unit or the coroutine."""
        call: Call[Any] = Call(who=who, op=operation, params=params or Empty())
        for service in (self.service, self.caps, self.operator):
            for name in dir(service):
                method = getattr(service, name)
                mark = getattr(method, "__op__", None)
                if mark is None or mark["name"] != operation:
                    continue
                if not mark["writes"]:
                    return await method(call)
                call.prepared = await getattr(service, mark["before"])(call) if mark["before"] else None
                return await self.node.commit(lambda unit, run=method: run(call, unit))
        raise AssertionError(f"no operation {operation}")

    async def add(self, name: str, *, admin: bool = False, topics: tuple[str, ...] = ()) -> Principal:
        """A device of the owner's; who it is on the bus."""
        added: Added = await self.call("device.add", AddDevice(name=name, admin=admin, topics=topics))
        admission = self.gatekeeper.user(added.username)
        assert admission is not None
        return admission.who

    async def say(self, who: Principal, topic: str, payload: object, **more: Any) -> Arrival:
        """A device publishes, and the ack (or what became of it) is there."""
        raw = payload if isinstance(payload, bytes | str) else json.dumps(payload)
        arrival = self.bus.arrive(topic, raw, who, **more)
        await self.settle()
        return arrival

    async def settle(self) -> None:
        """Let the bus hand over and both files commit."""
        await self.bus.turn()
        for _ in range(3):
            await self.hot.commit(lambda unit: None)
            await self.node.commit(lambda unit: None)
            await turn()

    async def order(self, task_id: str, skill: str, verb: str = "read", value: object = None, **more: Any) -> Report:
        """Deliver an order; the last report of it so far, if there is one."""
        order = Order(task_id=task_id, skill=skill, verb=verb, value=_json(value), **more)
        self.gate.check(order)
        self.gate.deliver(order)
        await self.settle()
        return self.tasks.last(task_id) if self.tasks.of(task_id) else Report(task_id=task_id, state="none")

    async def rows(self) -> list[tuple[object, ...]]:
        """Every stored reading: (seq, value)."""

        def look(unit: Unit) -> list[tuple[object, ...]]:
            return unit.run("SELECT seq, value FROM reading ORDER BY seq")

        return await self.hot.read(look)

    async def values(self) -> list[Any]:
        return [json.loads(row[1]) for row in await self.rows()]  # type: ignore[arg-type]

    async def drops(self) -> dict[tuple[str, str], int]:
        """The loss ledger of node.db by (log, reason)."""
        found = await self.node.read(ledger.drops)
        return {(drop.log, drop.reason): drop.count for drop in found}


def _json(value: object) -> bytes:
    return b"" if value is None else json.dumps(value).encode()


@asynccontextmanager
async def house(
    folder: Path, *, clock: FakeClock | None = None, limits: Limits | None = None, wear_window_us: int = 0
) -> AsyncIterator[House]:
    clock = clock or FakeClock()
    hub = Hub()
    async with (
        database(folder, "node", clock, fanout=hub.publish) as node,
        database(folder, "hot", clock, fanout=hub.publish, wear_window_us=wear_window_us) as hot,
    ):
        yield await House(clock, node, hot, hub, limits or Limits()).start()


async def door(h: House) -> Principal:
    """A device with a lock, announced: the only thing in the house that is of high risk."""
    who = await h.add("door")
    lock = {"name": None, "stat_t": "door/state", "cmd_t": "door/set", "dev": {"ids": ["x"], "name": "Front door"}}
    await h.say(who, "homeassistant/lock/door/config", lock, retain=True)
    return who
