"""The operations of `task.*`, `skill.call`, and the door that the agent protocols share.

On disk before anybody hears of it: a task and the intent to act are committed before the command is published, every
report of a device before its events go out. Numbers of `limits.py` bound what one principal can ask for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec

from edge.contract.errors import (
    InvalidParams,
    NotPermitted,
    OutputTooLarge,
    RateLimited,
    StorageFull,
    TaskAccessDenied,
    TaskAlreadyAccepted,
    TaskCanceled,
    TaskFailed,
    TaskInputRequired,
    TaskNotCancelable,
    TaskNotFound,
    TaskRejected,
    TaskStateInvalid,
    TooLarge,
    UnknownAid,
)
from edge.contract.event import Event, Fanout
from edge.contract.gap import Gap
from edge.contract.limit import Limits
from edge.contract.op import Call, Outcome, op
from edge.contract.principal import Principal
from edge.contract.store import Store, Unit
from edge.contract.task import DeviceGate, Grants, Report
from edge.contract.time import SECOND, Clock
from edge.protocol import parts, task, view
from edge.protocol.task import Artifact, Message, Patience, Role, Step, Task
from edge.services.task import limits as bounds
from edge.services.task import records as r
from edge.services.task.core import Core, Known, device_of, name_of
from edge.services.task.plan import Plan, Planner, reference
from edge.services.task.reports import step_of
from edge.store import tasks as table
from edge.store import unreadable

log = logging.getLogger(__name__)

MOVES = (TaskNotFound, TaskAccessDenied, TaskStateInvalid, TaskCanceled, TaskRejected, TaskFailed)
MAKES = (InvalidParams, NotPermitted, UnknownAid, TooLarge, RateLimited)

DAY = 86_400 * SECOND
WAIT_US = 12 * SECOND
"""How long `task.cancel` waits for a device to confirm that it stopped: longer than `Patience.stop`."""
LONGEST_WAIT_MS = 60_000
DEVICE_PATIENCE = Patience()
AGENT_PATIENCE = Patience(work=7 * DAY, input=7 * DAY, verdict=7 * DAY)
"""Agents may take days over what they promise each other; devices have the hour of `Patience`."""
HOUSEKEEPING_US = 3600 * SECOND
KEEP_US = table.KEEP_DAYS * DAY
BATCH = 200


class TaskService:
    """Tasks between agents, and tasks of the node's own skills. One per node; also the `TaskSink`."""

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
        limits: Limits | None = None,
        patience: Patience = DEVICE_PATIENCE,
        agent_patience: Patience = AGENT_PATIENCE,
        default_skill: str = "",
    ) -> None:
        self._core = Core(node, clock, gate, grants, fanout, issuer=issuer, known=known, limits=limits or Limits())
        self._plan = Planner(self._core, default_skill)
        self._patience, self._agent_patience = patience, agent_patience
        self._ends: list[Callable[[], None]] = []

    # Life.

    async def resume(self) -> None:
        """After a start: send again what may be sent twice, end what cannot be known, arm the deadlines (D7)."""
        core = self._core
        self._ends.append(core.fanout.watch("device", None, self._device_changed))
        batch = await core.node.read(table.live)
        while batch:
            for task_id, found in batch:
                if found is None:
                    await self._give_up(task_id)
                else:
                    self._resume(found)
            batch = await core.node.read(partial(table.live, after=batch[-1][0]))
        self._keep_house()

    async def _give_up(self, task_id: str) -> None:
        """A task whose row is damaged is lost, and said to be (promises P2, P3)."""
        log.error("task %s cannot be read any more", task_id)
        at = self._core.clock.now()

        def work(unit: Unit) -> None:
            table.forget(unit, [task_id])
            unit.lose(Gap(table.LOG, task_id, 0, 0, 1, unreadable.REASON, "store", at))

        try:
            await self._core.node.commit(work)
        except StorageFull:
            log.error("the loss of task %s cannot be written now; the next start tries again", task_id)

    def close(self) -> None:
        """No more timers, no more watching."""
        for end in self._ends:
            end()
        self._core.close()

    def _resume(self, found: Task) -> None:
        core = self._core
        core.arm(found)
        if not found.by_node or found.aim is None:
            return
        if not found.sent:
            core.asleep[found.id] = found
            skill = core.gate.skill(found.aim.skill)
            if skill is not None and skill.online is not False:
                core.wake(found)
        elif found.aim.native or found.aim.repeat_safe:
            core.send(found.id, task.Send(restart=True))
        else:
            core.send(found.id, task.Lost())

    def _device_changed(self, event: Event) -> None:
        """A device came online: what was kept for it goes out."""
        if event.kind == "device.online":
            for kept in list(self._core.asleep.values()):
                if kept.aim is not None and device_of(kept.aim.skill) == event.key:
                    self._core.wake(kept)

    def _keep_house(self) -> None:
        """Once an hour: what has been over for 30 days ages out."""
        core = self._core

        def work(unit: Unit) -> int:
            limit = unit.wall_us - KEEP_US
            old = [task_id for task_id, ended in table.finished(unit, BATCH) if core.when(ended) < limit]
            table.forget(unit, old)
            return len(old)

        def done(result: int | BaseException) -> None:
            if isinstance(result, BaseException):
                log.warning("finished tasks are kept for now: %s", result)
            soon = result == BATCH
            core.later("housekeeping", 0 if soon else HOUSEKEEPING_US, self._keep_house)

        core.node.write(work, done)

    # The world reports (TaskSink).

    def report(self, report: Report, done: Callable[[BaseException | None], None]) -> None:
        """Apply a report in one unit; `done` runs in the loop when it is on disk.

        What nobody waits for (an unknown task, one that is over, another device's) changes nothing and is in the
        loss ledger; what cannot be read is an error for `done`.
        """

        def work(unit: Unit) -> None:
            step = step_of(report, unit.at)
            found = table.load(unit, report.task_id)
            refusal = _refusal(found, report)
            if found is None or refusal:
                unit.lose(Gap("task", "", 0, 0, 1, refusal, report.device, unit.at))
            elif len(found.messages) >= self._core.limits[bounds.MESSAGES] and not found.final:
                self._core.limits.hit(bounds.MESSAGES)
                self._core.step(unit, found, task.Lost(reason="too many messages"))
            else:
                self._core.step(unit, found, step)

        self._core.node.write(work, done)

    # AUN, and the control socket.

    async def _plan_create(self, call: Call[r.Create]) -> Plan:
        said = self._said(call.params.input, "")
        return self._plan.new(call.params.to, said, call.who)

    @op(
        "task.create",
        scope="task:write",
        wire={"aun": ("task.create",), "edge": ("task.create",)},
        raises=MAKES,
        writes=True,
        once="idempotency_key",
        before="_plan_create",
    )
    def create(self, call: Call[r.Create], unit: Unit) -> r.Created:
        """Make a task for an agent, a device or a service of the node."""
        context = reference(call.params.context_id, "context_id")
        made = self._make(unit, call.prepared, call.who, call.surface or "edge", context, call.params.visibility)
        status = view.AUN_STATUS[made.state]
        return r.Created(made.id, status, made.owner, made.assignee, view.iso(unit.wall_us))

    @op(
        "task.get",
        scope="task:read",
        wire={"aun": ("task.get",), "edge": ("task.get",)},
        raises=(TaskNotFound,),
    )
    async def get(self, call: Call[r.Named]) -> dict[str, Any]:
        """The whole task object: what was asked, said and made."""
        return view.aun_task(await self._core.read(call.params.task_id, call.who), self._core.when)

    @op(
        "task.accept",
        scope="task:write",
        wire={"aun": ("task.accept",), "edge": ("task.accept",)},
        raises=(*MOVES, TaskAlreadyAccepted),
        writes=True,
    )
    def accept(self, call: Call[r.Named], unit: Unit) -> r.Moved:
        """Take a task that was created for the caller: submitted becomes working."""
        return self._move(unit, call.params.task_id, call.who, lambda role: task.Accept(role=role))

    @op(
        "task.reject",
        scope="task:write",
        wire={"aun": ("task.reject",), "edge": ("task.reject",)},
        raises=MOVES,
        writes=True,
    )
    def reject(self, call: Call[r.Reasoned], unit: Unit) -> r.Moved:
        """Refuse a task that was created for the caller."""
        reason = _reason(call.params.reason)
        return self._move(unit, call.params.task_id, call.who, lambda role: task.Reject(role=role, reason=reason))

    async def _plan_input(self, call: Call[r.Input]) -> Plan:
        said = self._said(call.params.input, "")
        return self._plan.more(await self._core.read(call.params.task_id, call.who), said, call.who)

    @op(
        "task.send_input",
        scope="task:write",
        wire={"aun": ("task.send_input",), "edge": ("task.send_input",)},
        raises=(*MOVES, *MAKES),
        writes=True,
        once="idempotency_key",
        before="_plan_input",
    )
    def send_input(self, call: Call[r.Input], unit: Unit) -> r.Moved:
        """Say something to a task: the owner answers or adds, the assignee asks (submitted tasks take no question)."""
        moved = self._say(unit, call.params.task_id, call.who, call.prepared)
        return _moved(moved)

    @op(
        "task.complete",
        scope="task:write",
        wire={"aun": ("task.complete",), "edge": ("task.complete",)},
        raises=(*MOVES, TaskInputRequired, OutputTooLarge, InvalidParams),
        writes=True,
    )
    def complete(self, call: Call[r.Complete], unit: Unit) -> r.Moved:
        """Hand in what came out; large things are stored elsewhere and named by reference."""
        made = tuple(_artifact(value, number) for number, value in enumerate(call.params.artifacts, 1))
        return self._move(unit, call.params.task_id, call.who, lambda role: task.Complete(role=role, artifacts=made))

    @op(
        "task.fail",
        scope="task:write",
        wire={"aun": ("task.fail",), "edge": ("task.fail",)},
        raises=MOVES,
        writes=True,
    )
    def fail(self, call: Call[r.Reasoned], unit: Unit) -> r.Moved:
        """Give a task up, and say why."""
        reason = _reason(call.params.reason)
        return self._move(unit, call.params.task_id, call.who, lambda role: task.Fail(role=role, reason=reason))

    @op(
        "task.cancel",
        scope="task:write",
        wire={"aun": ("task.cancel",), "edge": ("task.cancel",)},
        raises=(*MOVES, TaskNotCancelable),
    )
    async def cancel(self, call: Call[r.Reasoned]) -> r.Moved:
        """Call a task off; for a device at work, once it confirms that it stopped, or the time for that is up."""
        return _moved(await self._stop(call.params.task_id, call.params.reason, call.who, WAIT_US))

    @op(
        "task.list",
        scope="task:read",
        wire={"aun": ("task.list",), "edge": ("task.list",)},
        raises=(InvalidParams,),
    )
    async def list(self, call: Call[r.List]) -> r.Listed:
        """One page of the tasks that the caller takes part in, newest first."""
        wanted, rows = call.params, max(1, min(call.params.limit, 200))
        states = view.aun_states(wanted.status) if wanted.status else ()
        if wanted.status and not states:
            raise InvalidParams(f"no such status: {wanted.status[:40]!r}")
        before = _place(wanted.cursor)
        name = name_of(call.who)
        found = await self._core.node.read(lambda unit: table.page(unit, name, rows + 1, before, states))
        more = len(found) > rows
        items = [view.aun_head(head, self._core.when) for _, head in found[:rows] if head is not None]
        return r.Listed(items, str(found[rows - 1][0]) if more else None, more)

    @op(
        "task.subscribe",
        scope="task:read",
        wire={"aun": ("task.subscribe",), "edge": ("task.subscribe",)},
        raises=(InvalidParams, TooLarge, TaskAccessDenied),
    )
    async def subscribe(self, call: Call[r.Subscribe]) -> Annotated[Outcome, r.Subscribed]:
        """Hear of tasks on this connection; owner and assignee hear of theirs anyway."""
        wanted = call.params
        if unknown := [kind[:40] for kind in wanted.events if kind not in r.EVENTS]:
            raise InvalidParams(f"no such events: {unknown}; there are: {', '.join(r.EVENTS)}")
        if len(wanted.task_ids) > self._core.limits[bounds.REFERENCES]:
            raise self._core.limits.refuse(bounds.REFERENCES)
        allowed = await self._core.node.read(lambda unit: self._core.visible(unit, wanted.task_ids, call.who))
        if not allowed:
            raise TaskAccessDenied("none of these tasks is yours to hear of")
        watch = tuple(("task", one.id) for one in allowed if not one.role(name_of(call.who)))
        return Outcome(result=r.Subscribed([one.id for one in allowed]), watch=watch)

    # The owner's shell.

    @op(
        "skill.call",
        scope="task:write",
        wire={"edge": ("skill.call",)},
        raises=(*MAKES, TaskNotFound),
    )
    async def skill_call(self, call: Call[r.SkillCall]) -> r.SkillAnswer:
        """Read a skill or act on it, and wait for the end."""
        wanted = call.params
        metadata = {"skill": wanted.skill, "params": wanted.params}
        said = self._plan.message("", (parts.data(metadata),), {})
        plan = self._plan.new("", said, call.who)
        made = await self._core.node.commit(lambda unit: self._make(unit, plan, call.who, "edge"))
        wait = max(0, min(wanted.timeout_s, 3600)) * SECOND
        found = await self._core.wait(made.id, call.who, wait)
        until = None if found.due is None else self._core.when(found.due)
        return _answer(found, wanted.skill, until)

    # The door of the agent protocols.

    async def _plan_send(self, call: Call[view.Send]) -> Plan:
        wanted = call.params
        said = self._plan.message(reference(wanted.message_id, "messageId"), wanted.parts, wanted.metadata)
        if not wanted.task_id:
            return self._plan.new(wanted.to, said, call.who)
        found = await self._core.read(wanted.task_id, call.who)
        if wanted.context_id and wanted.context_id != found.context:
            raise InvalidParams("contextId is not the context of this task")
        return self._plan.more(found, said, call.who)

    @op(
        "task.send",
        scope="task:write",
        wire={"a2a": ("message/send",)},
        raises=(*MOVES, *MAKES),
        writes=True,
        once="repeat",
        before="_plan_send",
    )
    def send(self, call: Call[view.Send], unit: Unit) -> view.Sent:
        """Take a message: it continues its task, or makes a new one."""
        wanted, plan = call.params, call.prepared
        if wanted.task_id:
            return view.Sent(self._say(unit, wanted.task_id, call.who, plan).id)
        context = reference(wanted.context_id, "contextId")
        dialect = wanted.dialect or call.surface
        return view.Sent(self._make(unit, plan, call.who, dialect, context, verdict=wanted.verdict).id)

    @op("task.show", scope="task:read", wire={"a2a": ("tasks/get",)}, raises=(TaskNotFound,))
    async def show(self, call: Call[view.Show]) -> Task:
        """A task, whole; after waiting for it if asked to."""
        wait = max(0, min(call.params.wait_ms, LONGEST_WAIT_MS)) * 1000
        return await self._core.wait(call.params.task_id, call.who, wait)

    @op(
        "task.stop",
        scope="task:write",
        wire={"a2a": ("tasks/cancel",)},
        raises=(*MOVES, TaskNotCancelable),
    )
    async def stop(self, call: Call[view.Stop]) -> Task:
        """Cancel a task; after waiting for the device to confirm, if asked to."""
        wait = max(0, min(call.params.wait_ms, LONGEST_WAIT_MS)) * 1000
        return await self._stop(call.params.task_id, call.params.reason, call.who, wait)

    # Shared.

    def _said(self, value: dict[str, Any], message_id: str) -> Message:
        """The message of an AUN input. Raises `InvalidParams`, `TooLarge`."""
        if not value:
            raise InvalidParams("input must not be empty")
        metadata = value.get("metadata")
        found = metadata if isinstance(metadata, dict) else {}
        return self._plan.message(message_id, view.aun_parts(value), found, source=value)

    def _make(
        self,
        unit: Unit,
        plan: Plan,
        who: Principal,
        dialect: str,
        context: str = "",
        visibility: str = "private",
        *,
        verdict: bool = False,
    ) -> Task:
        core, owner = self._core, name_of(who)
        if not plan.by_node:
            core.check_assignee(unit, plan.to)
        core.check_live(unit, owner)
        new = Task(
            id=plan.task_id,
            dialect=dialect,
            owner=owner,
            assignee=plan.to,
            visibility=visibility,
            context=context or core.make_id(),
            verdict=verdict,
            by_node=plan.by_node,
            aim=plan.aim,
            patience=self._patience if plan.by_node else self._agent_patience,
            limit=core.limits[bounds.ARTIFACTS],
            messages=(plan.message,),
        )
        step = task.Create(task=new, refusal=plan.refusal, question=plan.question, hold=plan.hold)
        return core.step(unit, None, step)

    def _say(self, unit: Unit, task_id: str, who: Principal, plan: Plan) -> Task:
        found, role = self._core.open(unit, task_id, who)
        self._core.check_room(found)
        by = "owner" if role & Role.OWNER else "assignee"
        said = msgspec.structs.replace(plan.message, by=by)
        step = task.Input(role=role, message=said, aim=plan.aim, question=plan.question, hold=plan.hold)
        return self._core.step(unit, found, step)

    def _move(self, unit: Unit, task_id: str, who: Principal, step: Callable[[Role], Step]) -> r.Moved:
        found, role = self._core.open(unit, task_id, who)
        return _moved(self._core.step(unit, found, step(role)))

    async def _stop(self, task_id: str, reason: str, who: Principal, wait_us: int) -> Task:
        def work(unit: Unit) -> Task:
            found, role = self._core.open(unit, task_id, who)
            return self._core.step(unit, found, task.Cancel(role=role, reason=_reason(reason)))

        found = await self._core.node.commit(work)
        return found if found.final else await self._core.wait(task_id, who, wait_us, lambda now: now.final)


def _refusal(found: Task | None, report: Report) -> str:
    """Why a report changes nothing; "" when it may."""
    if found is None or not found.by_node or found.aim is None:
        return "report for an unknown task"
    if report.device and report.device != device_of(found.aim.skill):
        return "report by another device"
    return "report after the end" if found.final else ""


def _reason(text: str) -> str:
    return text[:1000]


def _moved(found: Task) -> r.Moved:
    return r.Moved(found.id, view.AUN_STATUS[found.state])


def _place(cursor: str | None) -> int | None:
    if cursor is None or cursor == "":
        return None
    if not cursor.isascii() or not cursor.isdecimal() or len(cursor) > 16:
        raise InvalidParams("cursor is none of ours")
    return int(cursor)


def _artifact(value: dict[str, Any], number: int) -> Artifact:
    """An artifact as an AUN assignee hands it in; it goes out again as it came."""
    name = value.get("name")
    said = view.aun_parts(value)
    ident = value.get("id", value.get("artifact_id"))
    ident = ident if isinstance(ident, str) and ident else f"artifact-{number}"
    return Artifact(id=ident[:128], parts=said, name=name if isinstance(name, str) else "", source=value)


def _answer(found: Task, skill: str, until: int | None) -> r.SkillAnswer:
    said = [part for artifact in found.artifacts for part in artifact.parts]
    values = [data["value"] for data in parts.objects(said) if "value" in data]
    return r.SkillAnswer(
        task_id=found.id,
        skill=skill,
        state=str(found.state),
        text=parts.texts(said),
        value=values[0] if values else None,
        reason=found.reason,
        artifacts=[view.aun_artifact(artifact) for artifact in found.artifacts],
        kept=found.held,
        until=until,
    )
