"""What the group service does by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.contract.errors import InvalidParams
from edge.contract.time import SECOND
from edge.services.group import GroupService, limits
from tests.support.groups import say, square, texts
from tests.support.messaging import ALICE, BOB


async def test_messages_age_out_and_the_floor_says_so(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.ttl_s": 600}) as town:
        one, two = await town.found(town.bob), await town.found(town.bob)
        await say(town.alice, one, "old")
        await say(town.alice, two, "old")
        await town.clock.pass_(300 * SECOND)
        await say(town.alice, one, "new")
        await town.clock.pass_(299 * SECOND)
        await town.post.rest()
        assert await texts(town.bob, one) == ["old", "new"]
        await town.clock.pass_(61 * SECOND)
        await town.post.rest()
        assert await texts(town.bob, one) == ["new"]
        assert await texts(town.bob, two) == []
        page = await town.bob.call("group.pull", group_id=one)
        assert (page["retention_floor_message_seq"], page["latest_message_seq"]) == (1, 2)
        assert (await say(town.alice, two))["seq"] == 2


async def test_messages_age_out_over_a_restart(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid)
        clock = town.clock
    clock.advance(600 * SECOND)
    async with square(tmp_path, clock=clock, limits={"group.ttl_s": 600}) as town:
        await town.post.rest()
        assert await texts(town.bob, gid) == []


async def test_ended_invitations_requests_and_codes_are_forgotten(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.kept_s": 120}) as town:
        gid = await town.found()
        made = await town.alice.call("group.invite_member", group_id=gid, aid=BOB)
        await town.bob.call("group.reject_invite", invite_id=made["invite_id"])
        await town.carol.call("group.request_join", group_id=gid)
        await town.dave.call("group.request_join", group_id=gid)
        await town.alice.call("group.review_join_request", group_id=gid, aid=town.carol.who.aid, approve=False)
        await town.alice.call("group.create_invite_code", group_id=gid, expires_in_seconds=60)

        async def rows() -> list[int]:
            tables = ("group_invite", "group_request", "group_code")
            found = [await town.post.node.read(lambda unit, t=name: unit.run(f"SELECT * FROM {t}")) for name in tables]
            return [len(one) for one in found]

        assert await rows() == [1, 2, 1]
        await town.clock.pass_(360 * SECOND)
        await town.post.rest()
        assert await rows() == [0, 1, 0]


async def test_a_sweep_that_finds_nothing_writes_nothing(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        await town.found(town.bob)
        before = await town.everything()
        await town.clock.pass_(300 * SECOND)
        await town.post.rest()
        assert await town.everything() == before


async def test_nothing_goes_on_after_the_end(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.ttl_s": 60}) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid)
        assert isinstance(town.service, GroupService)
        town.service.stop()
        await town.clock.pass_(300 * SECOND)
        await town.post.rest()
        assert await texts(town.bob, gid) == ["hi"]


def test_every_limit_of_groups_says_what_it_is_of() -> None:
    found = [one for one in vars(limits).values() if getattr(one, "name", "").startswith("group.")]
    assert len(found) > 30
    assert all(one.default > 0 and len(one.about) > 5 for one in found)
    assert limits.NAME.error is InvalidParams


@pytest.mark.parametrize("size", [1, 128])
async def test_names_up_to_their_limit_are_taken(tmp_path: Path, size: int) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(name="x" * size, description="y" * 4_000)
        assert (await town.alice.call("group.get_info", group_id=gid))["name"] == "x" * size
        assert (await town.alice.call("group.list_my"))["aid"] == ALICE
