"""`skill.list`, `cap.*`, `device.history`: what devices can do, who may have them do it, and what they said."""

from __future__ import annotations

from edge.contract.errors import InvalidParams, NotFound
from edge.contract.op import Call, Empty, op
from edge.contract.store import Unit
from edge.contract.time import Clock
from edge.contract.wire import loads
from edge.devices import limits as bounds
from edge.devices.grants import GrantBook
from edge.devices.model import Cap, when
from edge.devices.records import (
    CapLine,
    Done,
    GrantAsked,
    History,
    HistoryAsked,
    Point,
    SkillAsked,
    SkillLine,
)
from edge.devices.registry import Registry
from edge.store import devices as table
from edge.store.readings import Reading


class CapService:
    """Operations on skills and capabilities, and on their readings."""

    def __init__(self, registry: Registry, grants: GrantBook, clock: Clock) -> None:
        self._registry, self._grants, self._clock = registry, grants, clock

    @op("skill.list", scope="cap:read", raises=(NotFound,), wire={"edge": ("skill.list",)})
    async def skills(self, call: Call[SkillAsked]) -> list[SkillLine]:
        """Every skill with its latest value."""
        asked = call.params.device
        caps = self._registry.named(asked).present() if asked else self._registry.caps()
        return [skill_line(self._registry, cap) for cap in caps]

    @op("cap.list", scope="cap:read", wire={"edge": ("cap.list",)})
    async def caps(self, call: Call[Empty]) -> list[CapLine]:
        """Every capability, its risk, and who may command it if that is high."""
        return [self._cap(cap) for cap in self._registry.caps()]

    def _cap(self, cap: Cap) -> CapLine:
        what = cap.what
        return CapLine(
            id=cap.skill_id,
            kind=what.kind,
            value_type=what.value_type,
            unit=what.unit,
            risk=self._registry.routes.risk(cap),
            readable=what.readable,
            writable=what.writable,
            minimum=what.minimum,
            maximum=what.maximum,
            options=[*what.options],
            native=what.native,
            granted=self._grants.of(cap.skill_id),
        )

    async def prepare_grant(self, call: Call[GrantAsked]) -> tuple[str, str]:
        """Find the capability, before the unit."""
        if self._registry.cap(call.params.cap) is None:
            known = [cap.skill_id for cap in self._registry.caps() if cap.what.writable][:50]
            raise NotFound(f"no capability {call.params.cap!r}", data={"skills": known})
        return call.params.cap, self._agent(call.params.agent)

    @op(
        "cap.grant",
        scope="cap:admin",
        raises=(NotFound, InvalidParams),
        wire={"edge": ("cap.grant",)},
        writes=True,
        before="prepare_grant",
    )
    def grant(self, call: Call[GrantAsked], unit: Unit) -> Done:
        """Let an agent command a capability of high risk."""
        skill, aid = call.prepared
        table.grant(unit, skill, aid)
        unit.after(lambda: self._grants.put(skill, aid))
        return Done()

    async def prepare_revoke(self, call: Call[GrantAsked]) -> tuple[str, str]:
        """Spell the agent out, before the unit."""
        return call.params.cap, self._agent(call.params.agent)

    @op(
        "cap.revoke",
        scope="cap:admin",
        raises=(NotFound, InvalidParams),
        wire={"edge": ("cap.revoke",)},
        writes=True,
        before="prepare_revoke",
    )
    def revoke(self, call: Call[GrantAsked], unit: Unit) -> Done:
        """Take a grant back."""
        skill, aid = call.prepared
        if not table.revoke(unit, skill, aid):
            raise NotFound(f"{aid} has no grant for {skill}")
        unit.after(lambda: self._grants.take(skill, aid))
        return Done()

    def _agent(self, name: str) -> str:
        aid = (name if "." in name else f"{name}.{self._registry.issuer}").lower()
        if not 0 < len(name) <= 253 or any(c.isspace() for c in name):
            raise InvalidParams(f"not an agent: {name[:80]!r}")
        return aid

    # History.

    @op("device.history", scope="cap:read", raises=(NotFound, InvalidParams), wire={"edge": ("device.history",)})
    async def history(self, call: Call[HistoryAsked]) -> History:
        """Readings of a skill after a number, oldest first."""
        asked = call.params
        cap = self._registry.cap(asked.skill)
        if cap is None:
            raise NotFound(f"no skill {asked.skill!r}")
        if asked.limit < 1 or asked.after < 0:
            raise InvalidParams("limit is at least 1, after at least 0")
        limits = self._registry.limits
        if asked.limit > limits[bounds.HISTORY_ROWS]:
            limits.hit(bounds.HISTORY_ROWS)
        rows = min(asked.limit, limits[bounds.HISTORY_ROWS])
        found, onward, more = await self._registry.readings.since(cap.id, asked.after, rows, call.who.aid)
        return History(asked.skill, [self._point(one) for one in found], onward, more)

    def _point(self, one: Reading) -> Point:
        if one.stated_us is not None:
            at = one.stated_us or None
        else:
            at = when(one.at, self._clock)
        return Point(one.seq, loads(one.value), at)


def skill_line(registry: Registry, cap: Cap) -> SkillLine:
    """A skill as lists show it, with its latest value."""
    skill = registry.skill_of(cap)
    what = skill.cap
    return SkillLine(
        id=skill.id,
        name=f"{skill.device_name} {what.title}".strip() if what.title != skill.device_name else what.title,
        device=skill.device,
        aid=skill.aid,
        kind=what.kind,
        unit=what.unit,
        value=skill.value,
        at=skill.at,
        risk=what.risk,
        online=skill.online,
        readable=what.readable,
        writable=what.writable,
        verbs=[*what.verbs],
        options=[*what.options],
    )
