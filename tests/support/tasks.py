"""A task service on a real store, with a gate whose devices do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from edge.contract.capability import Capability, Skill
from edge.contract.errors import InvalidParams
from edge.contract.event import Event
from edge.contract.limit import Limits
from edge.contract.principal import AGENT_SCOPES, Kind, Principal
from edge.contract.task import Order, Report
from edge.contract.time import SECOND, Stamp
from edge.contract.wire import dumps
from edge.dispatch.dispatcher import Dispatcher
from edge.dispatch.hub import Hub
from edge.dispatch.table import OpTable
from edge.protocol.task import Patience
from edge.services.task import TaskService
from edge.store.database import Database
from tests.support.clock import FakeClock
from tests.support.store import database

ISSUER = "edge.test"
OPERATOR = Principal(kind=Kind.OPERATOR, aid="", scopes=frozenset({"*"}), via="control")


def agent(name: str, scopes: Collection[str] = AGENT_SCOPES) -> Principal:
    """An agent of this node."""
    return Principal(kind=Kind.AGENT, aid=f"{name}.{ISSUER}", scopes=frozenset(scopes), via="aun")


ALICE, BOB, CAROL = agent("alice"), agent("bobby"), agent("carol")
KNOWN = {ALICE.aid, BOB.aid, CAROL.aid}


def skill(device: str, name: str, kind: str, *, online: bool | None = True, value: object = None, **cap: Any) -> Skill:
    """A skill of device `device`."""
    capability = Capability(name=name, title=name.replace("_", " "), kind=kind, **cap)
    return Skill(
        id=f"{device}.{name}",
        device=device,
        device_name=device,
        aid=f"d-{device}.{ISSUER}",
        cap=capability,
        value=value,
        online=online,
    )


THERMOMETER = skill("thermo", "temperature", "sensor", value_type="number", unit="°C", value=21.5)
ON_OFF = ("on", "off", "toggle")
LAMP = skill("lamp", "power", "switch", value_type="boolean", verbs=ON_OFF, writable=True, repeat_safe=True)
DIMMER = skill(
    "lamp", "brightness", "number", value_type="number", unit="%", minimum=0, maximum=100, step=1, writable=True
)
BELL = skill("bell", "ring", "button", value_type="none", verbs=("press",), readable=False, writable=True)
DOOR = skill("door", "lock", "lock", value_type="text", verbs=("lock", "unlock"), writable=True, risk="high")
ROBOT = skill("robot", "clean", "task", value_type="json", readable=False, writable=True, native=True, cancellable=True)

Act = Callable[["Gate", Order], None]


class Gate:
    """A `DeviceGate` in memory. `acts` says what a device does with an order; without one it only hears it."""

    def __init__(self, *skills: Skill) -> None:
        self.known = {one.id: one for one in skills}
        self.orders: list[Order] = []
        self.cancels: list[str] = []
        self.answers: list[tuple[str, bytes]] = []
        self.acts: dict[str, Act] = {}
        self.sink: TaskService | None = None
        self.failures: list[BaseException] = []

    def skills(self) -> list[Skill]:
        return [self.known[key] for key in sorted(self.known)]

    def skill(self, skill_id: str) -> Skill | None:
        return self.known.get(skill_id)

    def check(self, order: Order) -> None:
        if order.params == b'{"value":"nonsense"}':
            raise InvalidParams("nonsense")

    def deliver(self, order: Order) -> None:
        self.orders.append(order)
        act = self.acts.get(order.skill)
        if act is not None:
            act(self, order)

    def cancel(self, order: Order) -> None:
        self.cancels.append(order.task_id)
        act = self.acts.get(f"{order.skill}/cancel")
        if act is not None:
            act(self, order)

    def answer(self, task_id: str, skill: str, parts: bytes) -> None:
        self.answers.append((task_id, parts))

    def put(self, skill_id: str, **changes: Any) -> None:
        """Change a skill."""
        self.known[skill_id] = msgspec.structs.replace(self.known[skill_id], **changes)

    def tell(self, task_id: str, state: str, **more: Any) -> None:
        """A device reports."""
        assert self.sink is not None

        def done(error: BaseException | None) -> None:
            if error is not None:
                self.failures.append(error)

        self.sink.report(Report(task_id=task_id, state=state, **more), done)


def reads(gate: Gate, order: Order) -> None:
    """A device that answers with its value at once."""
    value = gate.known[order.skill].value
    data = {"skill": order.skill, "value": value}
    parts = [{"kind": "text", "text": f"{value}"}, {"kind": "data", "data": data}]
    artifact = dumps({"id": "value", "name": "value", "append": False, "last": True, "parts": parts})
    gate.tell(order.task_id, "completed", artifact=artifact)


class Boots(FakeClock):
    """Virtual time that goes on over reboots, each with its own monotonic clock."""

    def __init__(self) -> None:
        super().__init__()
        self._zero = {self.boot: self.wall_at_zero_us}

    def wall(self, at: Stamp) -> tuple[int, int]:
        return self._zero[at.boot] + at.mono_us, 0

    def reboot(self) -> None:
        """The box starts again: no timer survives, no time passes."""
        wall = self.wall(self.now())[0]
        self._timers.clear()
        self.boot, self.mono_us = self.boot + 1, SECOND
        self._zero[self.boot] = wall - SECOND


class Grants:
    """Who may act on what is risky."""

    def __init__(self) -> None:
        self.rows: set[tuple[str, str]] = set()

    def may_act(self, aid: str, skill: Skill) -> bool:
        return skill.cap.risk != "high" or (aid, skill.id) in self.rows


class World:
    """A task service and everything it was built from."""

    def __init__(self, node: Database, clock: FakeClock, hub: Hub, gate: Gate, **more: Any) -> None:
        self.node, self.clock, self.hub, self.gate = node, clock, hub, gate
        self.grants = Grants()
        self.limits = Limits(more.pop("limits", None))
        self.service = TaskService(
            node,
            clock,
            gate,
            self.grants,
            hub,
            issuer=ISSUER,
            known=lambda unit, aid: aid in KNOWN,
            limits=self.limits,
            **more,
        )
        gate.sink = self.service
        self.dispatcher = Dispatcher(OpTable(self.service), {"node": node})
        self.events: list[Event] = []
        hub.watch("task", None, self.events.append)

    async def call(self, who: Principal, name: str, params: dict[str, Any] | None = None, surface: str = "aun") -> Any:
        """Run an operation as `who`; its result as JSON has it."""
        outcome = await self.dispatcher.call(surface, name, dumps(params or {}), who)
        return msgspec.to_builtins(msgspec.json.decode(dumps(outcome.result)))

    async def create(self, who: Principal, to: str, said: object, **more: Any) -> Any:
        """task.create with a text or an object."""
        value = {"type": "text", "content": said} if isinstance(said, str) else said
        return await self.call(who, "task.create", {"to": to, "input": value, **more})

    async def get(self, who: Principal, task_id: str) -> Any:
        """task.get."""
        return await self.call(who, "task.get", {"task_id": task_id})

    async def rest(self) -> None:
        """Let everything that was queued for the store come back, and what it caused too."""
        for _ in range(4):
            await self.node.ping()
            await asyncio.sleep(0)

    def heard(self, task_id: str, kind: str = "") -> list[Any]:
        """Bodies of the events of a task, of one kind."""
        return [
            (event.kind, msgspec.json.decode(event.body))
            for event in self.events
            if event.key == task_id and event.kind and event.kind.startswith(kind)
        ]


@asynccontextmanager
async def world(folder: Path, *skills: Skill, clock: FakeClock | None = None, **more: Any) -> AsyncIterator[World]:
    """A task service on node.db in `folder`, resumed."""
    clock, hub = clock or FakeClock(), Hub()
    patience = more.pop("patience", Patience())
    gate = more.pop("gate", None) or Gate(*skills)
    async with database(folder, clock=clock, fanout=hub.publish) as node:
        made = World(node, clock, hub, gate, patience=patience, **more)
        await made.service.resume()
        await made.rest()
        try:
            yield made
        finally:
            await made.rest()
            made.service.close()
