"""Before a task exists: who is to do it, what the message asks for, and whether the caller may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from edge.contract.capability import Skill
from edge.contract.errors import InvalidParams, NotPermitted
from edge.contract.principal import Kind, Principal
from edge.contract.wire import dumps
from edge.protocol import aid as aids
from edge.protocol import grammar
from edge.protocol.task import Aim, Message, Part, Task
from edge.services.task import limits as bounds
from edge.services.task.core import Core, refuse_risky


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the loop found out for the unit: the message, and for a task of the node what it is to do with it."""

    task_id: str
    to: str
    message: Message
    by_node: bool = False
    aim: Aim | None = None
    question: Message | None = None
    refusal: str = ""
    hold: bool = False


class Planner:
    """Reads messages by the fixed grammar and asks the gate. Everything here runs in the loop."""

    def __init__(self, core: Core, default_skill: str = "") -> None:
        self._core = core
        self._default_skill = default_skill

    @property
    def node_aid(self) -> str:
        """The AID at which the node itself takes tasks."""
        return f"gateway.{self._core.issuer}"

    def is_node(self, aid: str) -> bool:
        """Whether an AID is the node's or one of its services' (settled G19)."""
        name, _, issuer = aid.partition(".")
        return aid in ("", self._core.issuer) or (issuer == self._core.issuer and name in aids.RESERVED)

    def message(
        self, message_id: str, parts: Sequence[Part], metadata: Mapping[str, Any], source: Any = None, by: str = "owner"
    ) -> Message:
        """A message of now. Raises `TooLarge`."""
        said = Message(
            id=message_id or self._core.make_id(),
            by=by,
            at=self._core.clock.now(),
            parts=tuple(parts),
            metadata=dict(metadata),
            source=source,
        )
        if len(dumps(said.source if source is not None else (said.parts, said.metadata))) > self._limit:
            raise self._core.limits.refuse(bounds.INPUT)
        return said

    @property
    def _limit(self) -> int:
        return self._core.limits[bounds.INPUT]

    def new(self, to: str, said: Message, who: Principal) -> Plan:
        """A plan for a new task. Raises `InvalidParams`, `NotPermitted`, `NotFound`."""
        to = aids.normal(to) if to and to != self._core.issuer else to
        task_id = self._core.make_id()
        mine, skills = self._skills(to)
        if not mine:
            return Plan(task_id=task_id, to=to, message=said)
        return self._aimed(Plan(task_id=task_id, to=to or self.node_aid, message=said, by_node=True), skills, who)

    def more(self, task: Task, said: Message, who: Principal) -> Plan:
        """A plan for more input to a task; it names a skill only as long as the task has none."""
        plan = Plan(task_id=task.id, to=task.assignee, message=said, by_node=task.by_node)
        if not task.by_node or task.aim is not None or task.final:
            return plan
        return self._aimed(plan, self._skills(task.assignee)[1], who)

    def _skills(self, to: str) -> tuple[bool, list[Skill]]:
        """Whether the node executes what `to` is asked for, and the skills there."""
        skills = self._core.gate.skills()
        if self.is_node(to):
            return True, skills
        here = [skill for skill in skills if skill.aid == to]
        return bool(here), here

    def _aimed(self, plan: Plan, skills: Sequence[Skill], who: Principal) -> Plan:
        declared = (skill.id for skill in skills if skill.default)
        wanted = self._default_skill if self.is_node(plan.to) else next(declared, "")
        aim = grammar.aim(plan.message.parts, plan.message.metadata, skills, wanted)
        if aim is None:
            question = self.message("", grammar.question(skills), {}, by="node")
            return msgspec.structs.replace(plan, question=question)
        skill = next(skill for skill in skills if skill.id == aim.skill)
        self._permit(aim, skill, who)
        return self._reachable(msgspec.structs.replace(plan, aim=aim), skill)

    def _permit(self, aim: Aim, skill: Skill, who: Principal) -> None:
        """Scope first, then the grant that the skill's risk asks for. Raises `NotPermitted`."""
        scope = "cap:read" if aim.verb == "read" else "cap:act"
        if not who.may(scope):
            raise NotPermitted(f"permission denied: {skill.id} needs {scope}")
        if scope == "cap:read" or who.kind in (Kind.OPERATOR, Kind.NODE):
            return
        if not self._core.grants.may_act(who.aid, skill):
            raise refuse_risky(skill.id, who)

    def _reachable(self, plan: Plan, skill: Skill) -> Plan:
        """Ask the gate whether the order makes sense; keep it for a device that sleeps."""
        aim = plan.aim
        draft = Task(id=plan.task_id, dialect="", owner="", assignee=plan.to, aim=aim, messages=(plan.message,))
        self._core.gate.check(self._core.order(draft))
        if skill.online is not False or (aim is not None and aim.verb == "read"):
            return plan
        if skill.cap.risk == "high" and not skill.cap.native:
            return msgspec.structs.replace(plan, refusal=f"{skill.device_name} is offline")
        return msgspec.structs.replace(plan, hold=True)


def reference(value: str, what: str, longest: int = 256) -> str:
    """A caller's id: printable, not too long. Raises `InvalidParams`."""
    if len(value) > longest or not value.isprintable():
        raise InvalidParams(f"{what} must be at most {longest} printable characters")
    return value
