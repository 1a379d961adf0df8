"""Skills, grants and readings, as the owner and the tools ask for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from edge.contract.capability import Skill
from edge.contract.errors import InvalidParams, NotFound
from edge.contract.limit import Limits
from edge.contract.principal import Kind, Principal
from edge.devices.records import GrantAsked, HistoryAsked, SkillAsked
from tests.support.house import door, house


async def test_skills_are_listed_with_all_that_tools_rely_on(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await door(h)
        await h.say(who, "door/state", "LOCKED")
        (line,) = await h.call("skill.list", SkillAsked())
        assert (line.id, line.device, line.aid, line.kind) == ("door.lock", "door", "d-door.edge.test", "lock")
        assert (line.value, line.unit, line.risk, line.writable, line.online) == ("locked", "", "high", True, None)
        assert line.at == h.clock.wall(h.clock.now())[0]
        assert (line.name, line.verbs) == ("Front door", ["lock", "unlock"])
        assert await h.call("skill.list", SkillAsked(device="door")) == [line]
        with pytest.raises(NotFound):
            await h.call("skill.list", SkillAsked(device="nothing"))


async def test_high_risk_needs_a_grant_and_low_risk_does_not(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await door(h)
        lock = h.registry.skills()[0]
        low = Skill(id="x.y", device="x", device_name="x", aid="d-x.edge.test", cap=replace(lock.cap, risk="low"))
        assert not h.grants.may_act("alice.edge.test", lock)
        assert h.grants.may_act("alice.edge.test", low)
        assert h.grants.may_act("", low)
        await h.call("cap.grant", GrantAsked(cap="door.lock", agent="Alice"))
        assert h.grants.may_act("alice.edge.test", lock)
        assert not h.grants.may_act("bob.edge.test", lock)
        assert not h.grants.may_act("", lock)
        (line,) = await h.call("cap.list")
        assert (line.id, line.risk, line.granted) == ("door.lock", "high", ["alice.edge.test"])
    async with house(tmp_path) as h:
        assert h.grants.may_act("alice.edge.test", lock)
        await h.call("cap.revoke", GrantAsked(cap="door.lock", agent="alice.edge.test"))
        assert not h.grants.may_act("alice.edge.test", lock)
        with pytest.raises(NotFound):
            await h.call("cap.revoke", GrantAsked(cap="door.lock", agent="alice"))


async def test_a_grant_names_a_capability_and_an_agent(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await door(h)
        with pytest.raises(NotFound) as caught:
            await h.call("cap.grant", GrantAsked(cap="door.bell", agent="alice"))
        assert caught.value.data == {"skills": ["door.lock"]}
        for agent in ("", "a b"):
            with pytest.raises(InvalidParams):
                await h.call("cap.grant", GrantAsked(cap="door.lock", agent=agent))


# History.


async def test_history_is_paged_by_number(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        caps = [{"name": "t", "value_type": "number"}, {"name": "other"}]
        await h.say(who, "aun/v1/dev/announce", {"capabilities": caps})
        for value in range(5):
            await h.say(who, "aun/v1/dev/state/t", str(value))
            await h.say(who, "aun/v1/dev/state/other", f"x{value}")
        page = await h.call("device.history", HistoryAsked(skill="dev.t", limit=3))
        assert [(point.seq, point.value) for point in page.readings] == [(1, 0), (3, 1), (5, 2)]
        assert (page.next, page.more) == (5, True)
        page = await h.call("device.history", HistoryAsked(skill="dev.t", after=page.next, limit=3))
        assert [point.value for point in page.readings] == [3, 4]
        assert (page.next, page.more) == (10, False)
        assert page.readings[0].at == h.clock.wall(h.clock.now())[0]
        page = await h.call("device.history", HistoryAsked(skill="dev.t", after=10))
        assert (page.readings, page.more) == ([], False)


async def test_who_knows_of_a_later_reading_gets_higher_numbers_from_then_on(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        await h.say(who, "aun/v1/dev/announce", {"capabilities": [{"name": "t", "value_type": "number"}]})
        await h.say(who, "aun/v1/dev/state/t", "1")
        alice = Principal(kind=Kind.AGENT, aid="alice.edge.test", via="test")
        await h.call("device.history", HistoryAsked(skill="dev.t", after=10), alice)
        await h.hot.commit(lambda unit: None)
        await h.say(who, "aun/v1/dev/state/t", "2")
        page = await h.call("device.history", HistoryAsked(skill="dev.t", after=10))
        assert [one.seq for one in page.readings] == [(1 << 40) + 1]


async def test_history_tells_what_time_it_knows(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        await h.say(who, "aun/v1/dev/announce", {"capabilities": [{"name": "t", "history": "every"}]})
        stated = h.clock.wall(h.clock.now())[0] // 1000 - 7
        await h.say(who, "aun/v1/dev/state/t", {"v": "a", "t": stated})
        await h.say(who, "aun/v1/dev/state/t", "b")
        h.clock.uncertainty_us, h.clock.boot = 10**15, h.clock.boot + 1
        page = await h.call("device.history", HistoryAsked(skill="dev.t"))
        assert [point.at for point in page.readings] == [stated * 1000, None]


async def test_history_has_a_limit_of_rows_and_sensible_params(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits({"devices.history_rows": 2})) as h:
        who = await h.add("dev")
        await h.say(who, "aun/v1/dev/announce", {"capabilities": [{"name": "t"}]})
        for value in "abc":
            await h.say(who, "aun/v1/dev/state/t", value)
        assert len((await h.call("device.history", HistoryAsked(skill="dev.t", limit=2))).readings) == 2
        assert h.limits.hits == {}
        assert len((await h.call("device.history", HistoryAsked(skill="dev.t", limit=3))).readings) == 2
        assert h.limits.hits == {"devices.history_rows": 1}
        with pytest.raises(NotFound):
            await h.call("device.history", HistoryAsked(skill="dev.x"))
        for bad in (HistoryAsked(skill="dev.t", limit=0), HistoryAsked(skill="dev.t", after=-1)):
            with pytest.raises(InvalidParams):
                await h.call("device.history", bad)
