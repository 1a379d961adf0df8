"""The engine at work: one unit per step, events with their numbers, effects after the commit, deadlines, waiting.

A step is loaded, applied and saved in one unit of node.db. What the task wants of the world (deliver, stop, answer)
happens in the loop after that commit, so the intent is on disk before the publish (design D7).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import structs

from edge.contract.errors import NotPermitted, TaskAccessDenied, TaskNotFound, UnknownAid
from edge.contract.event import Event, Fanout
from edge.contract.limit import Limits
from edge.contract.principal import Kind, Principal
from edge.contract.store import Store, Unit
from edge.contract.task import DeviceGate, Grants, Order
from edge.contract.time import SECOND, Clock, Stamp, later, wall_ms, wall_us
from edge.contract.wire import dumps
from edge.protocol.engine import apply
from edge.protocol.task import (
    Answer,
    Arm,
    Deliver,
    Effect,
    Happened,
    Lost,
    Message,
    Role,
    Send,
    State,
    Step,
    Stop,
    Task,
    Tick,
)
from edge.protocol.view import AUN_STATUS, aun_artifact, aun_content, iso
from edge.services.task import limits as bounds
from edge.store import tasks as table

log = logging.getLogger(__name__)

RETRY_US = 30 * SECOND
"""A deadline whose unit could not be written (store read-only) is tried again after this."""

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

Known = Callable[[Unit, str], bool]
"""Whether an AID is registered on this node; asked inside a unit of node.db."""


def new_id(ms: int, entropy: bytes) -> str:
    """26 characters of Crockford base 32: the time, then ten random bytes."""
    number = (ms & (1 << 48) - 1) << 80 | int.from_bytes(entropy[:10], "big")
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


class Core:
    """What the operations share. Everything public runs in the loop, except what takes a `Unit`."""

    def __init__(
        self,
        node: Store,
        clock: Clock,
        gate: DeviceGate,
        grants: Grants,
        fanout: Fanout,
        *,
        issuer: str,
        known: Known,
        limits: Limits,
    ) -> None:
        self.node, self.clock, self.gate, self.grants, self.fanout = node, clock, gate, grants, fanout
        self.issuer, self.known, self.limits = issuer, known, limits
        self._timers: dict[str, Callable[[], None]] = {}
        self.asleep: dict[str, Task] = {}
        """Tasks that are kept for a device until it is online."""

    # In a unit of node.db.

    def load(self, unit: Unit, task_id: str) -> Task:
        """A task. Raises `TaskNotFound`."""
        task = table.load(unit, task_id)
        if task is None:
            raise TaskNotFound
        return task

    def open(self, unit: Unit, task_id: str, who: Principal) -> tuple[Task, Role]:
        """A task that `who` is to act on, and as what. Raises `TaskNotFound` for those who may not know of it,
        `TaskAccessDenied` for those who may only look."""
        task = self.load(unit, task_id)
        role = task.role(name_of(who))
        if who.kind in (Kind.OPERATOR, Kind.NODE):
            role |= Role.OWNER
        if not role:
            if may_read(unit, task, who, self.issuer):
                raise TaskAccessDenied
            raise TaskNotFound
        return task, role

    def look(self, unit: Unit, task_id: str, who: Principal) -> Task:
        """A task that `who` may see. Raises `TaskNotFound`."""
        task = self.load(unit, task_id)
        if not may_read(unit, task, who, self.issuer):
            raise TaskNotFound
        return task

    def visible(self, unit: Unit, task_ids: Iterable[str], who: Principal) -> list[Task]:
        """Those of the tasks that `who` may see, each once."""
        found = [table.load(unit, task_id) for task_id in dict.fromkeys(task_ids)]
        return [task for task in found if task is not None and may_read(unit, task, who, self.issuer)]

    def check_assignee(self, unit: Unit, aid: str) -> None:
        """Raises `UnknownAid` when nobody here has this AID."""
        if not self.known(unit, aid):
            raise UnknownAid(f"aid not registered: {aid}")

    def check_live(self, unit: Unit, owner: str) -> None:
        """Raises `RateLimited` when an owner has too many tasks under way."""
        if table.count_live(unit, owner) >= self.limits[bounds.LIVE]:
            raise self.limits.refuse(bounds.LIVE)

    def check_room(self, task: Task) -> None:
        """Raises `RateLimited` when a task has heard enough."""
        if len(task.messages) >= self.limits[bounds.MESSAGES]:
            raise self.limits.refuse(bounds.MESSAGES)

    def step(self, unit: Unit, old: Task | None, step: Step) -> Task:
        """Take a step, save it, tell the watchers; the effects follow the commit. Raises what the engine raises."""
        new, effects = apply(old, step, unit.at)
        if new is old:
            return new
        happened = [effect for effect in effects if isinstance(effect, Happened)]
        numbers = table.save(unit, old, new, [(h.kind, _stored(h)) for h in happened])
        at, shown = iso(unit.wall_us), AUN_STATUS[old.state] if old else ""
        for seq, effect in zip(numbers, happened, strict=True):
            for event in _events(new, effect, seq, at, shown):
                unit.emit(event)
            shown = AUN_STATUS[effect.state]
        unit.after(lambda: self._afterwards(new, effects))
        return new

    # In the loop.

    def when(self, at: Stamp) -> int:
        """µs UTC of a stamp."""
        return self.clock.wall(at)[0]

    def make_id(self) -> str:
        """An id that no task has."""
        return new_id(wall_ms(self.clock), os.urandom(10))

    async def read(self, task_id: str, who: Principal) -> Task:
        """A task that `who` may see, whole. Raises `TaskNotFound`."""
        return await self.node.read(lambda unit: self.look(unit, task_id, who))

    async def wait(
        self, task_id: str, who: Principal, wait_us: int, enough: Callable[[Task], bool] = lambda task: task.settled
    ) -> Task:
        """The task once `enough` says so, or as it is when the time is up. Raises `TaskNotFound`."""
        changed = asyncio.Event()
        end = self.fanout.watch("task", task_id, lambda event: changed.set())
        try:
            task = await self.read(task_id, who)
            if enough(task) or wait_us <= 0:
                return task
            try:
                async with self.clock.until(self.clock.now().mono_us + wait_us):
                    while True:
                        await changed.wait()
                        changed.clear()
                        task = await self.read(task_id, who)
                        if enough(task):
                            return task
            except TimeoutError:
                return await self.read(task_id, who)
        finally:
            end()

    def wake(self, kept: Task) -> None:
        """Hand over a kept task, if its owner may still act on what it is about (design D24)."""
        skill = self.gate.skill(kept.aim.skill) if kept.aim is not None else None
        own = kept.owner in (Kind.OPERATOR, Kind.NODE)
        if skill is not None and not own and not self.grants.may_act(kept.owner, skill):
            self.send(kept.id, Lost(reason="the permission was withdrawn meanwhile"))
        else:
            self.send(kept.id, Send())

    def order(self, task: Task, *, again: bool = False) -> Order:
        """What the device gets: the caller's words as they came, and what the node made of them."""
        aim = task.aim
        assert aim is not None  # noqa: S101  only tasks with an aim are ordered
        said = [message for message in task.messages if message.by == "owner"]
        words = said[-1] if said else Message(id="", by="owner", at=task.made, parts=())
        return Order(
            task_id=task.id,
            skill=aim.skill,
            params=dumps(aim.params),
            verb=aim.verb,
            value=dumps(aim.value) if aim.verb == "set" else b"",
            message_id=words.id,
            context_id=task.context,
            parts=dumps(words.parts),
            metadata=dumps(words.metadata),
            deadline_us=self.when(task.due) if task.due is not None else 0,
            again=again,
        )

    def arm(self, task: Task) -> None:
        """Tick at the task's deadline, if it has one; it may have been set in another boot."""
        if task.due is None:
            self.disarm(task.id)
            return
        now = self.clock.now()
        left = task.due.mono_us - now.mono_us
        if task.due.boot != now.boot:
            left = self.when(task.due) - wall_us(self.clock)
        task_id = task.id  # the timer may wait for weeks: it keeps the name, not the task
        self.later(task_id, max(left, 0), lambda: self.send(task_id, Tick()))

    def later(self, name: str, us: int, call: Callable[[], None]) -> None:
        """Call `call` in `us`; one timer per name, the last one wins."""
        self.disarm(name)
        self._timers[name] = later(self.clock, us, call)

    def disarm(self, name: str) -> None:
        """No timer of this name."""
        if (cancel := self._timers.pop(name, None)) is not None:
            cancel()

    def send(self, task_id: str, step: Step) -> None:
        """Take a step on the node's own account; tried again later when the store cannot write."""

        def work(unit: Unit) -> None:
            task = table.load(unit, task_id)
            if task is not None:
                self.step(unit, task, step)

        def done(result: BaseException | None) -> None:
            if isinstance(result, BaseException):
                log.warning("task %s: %s is put off: %s", task_id, type(step).__name__, result)
                self.later(task_id, RETRY_US, lambda: self.send(task_id, step))

        self.node.write(work, done)

    def close(self) -> None:
        """No more ticks."""
        for name in list(self._timers):
            self.disarm(name)

    def _afterwards(self, task: Task, effects: list[Effect]) -> None:
        """Do what a committed step asks of the world."""
        if task.final or task.sent:
            self.asleep.pop(task.id, None)
        elif task.by_node and task.aim is not None:
            self.asleep[task.id] = structs.replace(task, messages=(), artifacts=())
        for effect in effects:
            match effect:
                case Deliver():
                    self.gate.deliver(self.order(task, again=effect.again))
                case Stop():
                    self.gate.cancel(self.order(task))
                case Answer() if task.aim is not None:
                    self.gate.answer(task.id, task.aim.skill, dumps(effect.message.parts))
                case Arm():
                    self.arm(task)
                case _:
                    pass


def name_of(who: Principal) -> str:
    """What a caller is called as owner of tasks: the AID, for those who have none the kind of caller."""
    return who.aid or str(who.kind)


def device_of(skill_id: str) -> str:
    """The slug of the device that a skill belongs to."""
    return skill_id.partition(".")[0]


def may_read(unit: Unit, task: Task, who: Principal, issuer: str) -> bool:
    """Who may see a task (settled G20): parties; with `shared` those of its whole tree; with `public` our AIDs."""
    if who.kind in (Kind.OPERATOR, Kind.NODE):
        return True
    aid = name_of(who)
    if aid in (task.owner, task.assignee, *task.participants):
        return True
    if task.visibility == "shared":
        return table.takes_part(unit, task.root or task.id, aid)
    return task.visibility == "public" and who.kind is Kind.AGENT and aid.endswith("." + issuer)


def refuse_risky(skill_id: str, who: Principal) -> NotPermitted:
    """The refusal of a command without the grant that its risk asks for (design D24)."""
    text = f"{skill_id} is high risk and needs a grant: aun-edge cap grant {skill_id} {name_of(who)}"
    return NotPermitted(text, data={"skill": skill_id})


def _stored(happened: Happened) -> bytes:
    """The event as it is kept, for the Views that replay: a chunk with its parts, what came whole by its id."""
    body: dict[str, Any] = {"state": str(happened.state)}
    if happened.reason:
        body["reason"] = happened.reason
    if happened.message is not None:
        body["message"] = happened.message.id
    if happened.artifact is not None:
        whole = happened.artifact.closed and not happened.append
        body["artifact"] = happened.artifact.id if whole else happened.artifact
        body["append"] = happened.append
    return dumps(body)


def _events(task: Task, happened: Happened, seq: int, at: str, shown: str) -> list[Event]:
    """The AUN events of one happening (§1.8), or a bare hint for those who wait when AUN has no word for it."""
    audience = frozenset({task.owner, task.assignee, *task.participants})

    def event(kind: str, body: dict[str, Any]) -> Event:
        return Event("task", task.id, seq, kind, dumps({"task_id": task.id, **body}), audience)

    if happened.artifact is not None:
        chunk = {"append": True} if happened.append else {}
        return [event("task.artifact", {"artifact": {**aun_artifact(happened.artifact), **chunk}})]
    status = AUN_STATUS[happened.state]
    if status == shown and happened.message is None:
        return [Event("task", task.id, seq)]
    body: dict[str, Any] = {"status": status, "updated_at": at}
    if happened.message is not None:
        body["message"] = aun_content(happened.message)
    if happened.reason:
        body["reason"] = happened.reason
    found = [event("task.updated", body)]
    if happened.state is State.COMPLETED:
        found.append(event("task.completed", {"artifacts": [aun_artifact(a) for a in task.artifacts]}))
    elif happened.state is State.FAILED:
        found.append(event("task.failed", {"reason": happened.reason}))
    return found
