"""The group service as the node sees it: what it ages out, what it forgets, and that it ends."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from edge.contract.errors import InvalidParams, MethodNotFound
from edge.contract.store import Unit
from edge.contract.time import SECOND
from edge.dispatch.table import OpTable
from edge.services.group.service import SWEEP_ROWS, SWEEP_US, GroupService
from edge.store import group_joins, group_keys, group_logs, ledger
from tests.support.clock import FakeClock
from tests.support.groups import Square, say, square, texts
from tests.support.messaging import BOB, CAROL


async def sweep(town: Square) -> None:
    """Until the next sweep is over."""
    await town.clock.pass_(SWEEP_US)
    await town.post.rest()


async def propose(town: Square, gid: str) -> None:
    """A first state that confirms itself after a minute."""
    await town.alice.call(
        "group.v2.propose_state",
        group_id=gid,
        state_version=1,
        state_hash="h1",
        prev_state_hash="",
        membership_snapshot="[]",
        auto_confirm_seconds=60,
    )


@pytest.mark.limit("group.ttl_s")
async def test_messages_age_out_and_the_group_says_from_where_on_it_remembers(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.ttl_s": 600}) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid, "old")
        town.clock.advance(300 * SECOND)
        await say(town.alice, gid, "young")
        await town.clock.pass_(240 * SECOND)
        await town.post.rest()
        assert await texts(town.bob, gid) == ["old", "young"]
        await town.clock.pass_(120 * SECOND)
        await town.post.rest()
        page = await town.bob.call("group.pull", group_id=gid)
        assert [row["payload"]["text"] for row in page["messages"]] == ["young"]
        assert (page["retention_floor_message_seq"], page["earliest_available_message_seq"]) == (1, 2)
        gaps = await town.post.node.read(lambda unit: ledger.gaps(unit, group_logs.MESSAGES, gid))
        assert gaps == []


async def test_more_messages_than_one_sweep_takes_at_once_age_out_in_it(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.ttl_s": 60}) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid, "first")

        def copies(unit: Unit) -> None:
            [row], _ = group_logs.after(unit, group_logs.Place(gid, BOB), 0, rows=1, octets=9999)
            for at in range(SWEEP_ROWS + 3):
                group_logs.add(unit, msgspec.structs.replace(row, message_id=f"copy-{at}"))

        await town.post.node.commit(copies)
        await sweep(town)
        await sweep(town)
        assert await texts(town.bob, gid) == []
        assert await town.post.node.read(lambda unit: group_logs.usage(unit, gid)) == (0, 0)
        assert (await say(town.alice, gid, "next"))["seq"] == SWEEP_ROWS + 5


@pytest.mark.limit("group.kept_s")
async def test_what_ended_is_forgotten_after_a_stated_time_and_what_waits_is_not(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.kept_s": 600}) as town:
        gid = await town.found()
        made = [await town.alice.call("group.invite_member", group_id=gid, aid=aid) for aid in (BOB, CAROL)]
        ended, waiting = (one["invite"]["invite_id"] if "invite" in one else one["invite_id"] for one in made)
        await town.bob.call("group.reject_invite", invite_id=ended)
        await town.clock.pass_(540 * SECOND)
        await town.post.rest()
        known = [await _invite(town, one) for one in (ended, waiting)]
        assert known == [True, True]
        await town.clock.pass_(180 * SECOND)
        await town.post.rest()
        assert [await _invite(town, one) for one in (ended, waiting)] == [False, True]


async def _invite(town: Square, invite_id: str) -> bool:
    return await town.post.node.read(lambda unit: group_joins.invite(unit, invite_id)) is not None


async def test_a_sweep_with_nothing_to_do_changes_nothing_of_groups(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid)
        await town.alice.call("group.kick", group_id=gid, aid=BOB)
        before = await _groups(town)
        for _ in range(3):
            await sweep(town)
        assert await _groups(town) == before


async def _groups(town: Square) -> list[object]:
    """Every row of every table of groups."""

    def look(unit: Unit) -> list[object]:
        tables = unit.run("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'group%' ORDER BY name")
        return [(name, unit.run(f"SELECT * FROM {name}")) for (name,) in tables]

    return await town.post.node.read(look)


async def test_a_stopped_service_ages_nothing_out_and_confirms_nothing(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.ttl_s": 60}) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid)
        await propose(town, gid)
        town.service.stop()
        for _ in range(3):
            await sweep(town)
        assert await texts(town.bob, gid) == ["hi"]
        assert (await town.bob.call("group.get_state", group_id=gid))["state_version"] == 0
        town.service.start()
        await town.post.rest()
        assert await texts(town.bob, gid) == []
        assert (await town.bob.call("group.get_state", group_id=gid))["state_version"] == 1


async def test_a_proposal_whose_time_came_while_the_node_was_down_confirms_itself_at_start(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await propose(town, gid)
        assert (await town.bob.call("group.get_state", group_id=gid))["state_version"] == 0
    async with square(tmp_path, clock=FakeClock(boot=2, mono_us=120 * SECOND)) as town:
        found = await town.bob.call("group.get_state", group_id=gid)
        assert (found["state_version"], found["state_hash"]) == (1, "h1")
        assert await town.post.node.read(lambda unit: group_keys.next_due(unit)) is None


async def test_every_operation_belongs_to_one_part_and_names_itself_on_the_wire(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        table = OpTable(*town.service.parts)
        assert isinstance(town.service, GroupService)
        names = list(table.names("aun"))
        assert len(names) == len(set(names))
        assert all(name.startswith("group.") for name in names)


async def test_a_method_that_no_group_has_is_unknown_and_a_group_without_a_name_is_refused(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        with pytest.raises(MethodNotFound):
            await town.alice.call("group.resources.list", group_id="g-team")
        with pytest.raises(InvalidParams):
            await town.alice.call("group.pull")
