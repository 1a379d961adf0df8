"""Two at once, and many: what both were told must be true together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import (
    AlreadyMember,
    Conflict,
    EdgeError,
    GroupNotFound,
    InviteCodeInvalid,
    JoinRejected,
    MemberLimit,
    NotFound,
    NotMember,
    RoleInsufficient,
)
from edge.services.group import limits as bounds
from tests.support.groups import DAVE, Square, events, news, say, square
from tests.support.messaging import BOB, CAROL, ISSUER, PEER

BIG = 200


async def both(*calls: Awaitable[Any]) -> tuple[list[Any], list[EdgeError]]:
    """What succeeded and what was refused, of calls that are under way together."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    refused = [one for one in found if isinstance(one, EdgeError)]
    done = [one for one in found if not isinstance(one, BaseException)]
    assert len(done) + len(refused) == len(found), found
    return done, refused


async def owners(town: Square, gid: str) -> list[str]:
    found = await town.post.node.read(
        lambda unit: unit.run("SELECT aid FROM group_member WHERE gid = ? AND role = 'owner'", (gid,))
    )
    return [str(aid) for (aid,) in found]


@pytest.mark.seed("S0-160")
async def test_g4_of_two_transfers_at_once_one_is_refused_and_there_is_one_owner(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, town.carol)
        done, refused = await both(
            *(town.alice.call("group.transfer_owner", group_id=gid, new_owner=aid) for aid in (BOB, CAROL))
        )
        assert ([one["new_owner"] for one in done], [type(one) for one in refused]) == ([BOB], [RoleInsufficient])
        assert await owners(town, gid) == [BOB]


async def test_g4_a_transfer_and_the_new_owners_departure_leave_one_owner(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        for turn in range(4):
            gid = await town.found(town.bob)
            calls = [
                town.alice.call("group.transfer_owner", group_id=gid, new_owner=BOB),
                town.bob.call("group.leave", group_id=gid),
            ]
            done, [refused] = await both(*(reversed(calls) if turn % 2 else calls))
            assert len(done) == 1
            assert isinstance(refused, NotMember | RoleInsufficient)
            assert len(await owners(town, gid)) == 1


@pytest.mark.limit("group.members")
async def test_the_last_place_is_given_once_whichever_ways_are_taken_to_it(tmp_path: Path) -> None:
    async with square(tmp_path, limits={bounds.MEMBERS.name: 2}) as town:
        for ways in range(3):
            gid = await town.found(visibility="public")
            code = (await town.alice.call("group.create_invite_code", group_id=gid, max_uses=3))["invite_code"]["code"]
            invite = (await town.alice.call("group.invite_member", group_id=gid, aid=DAVE))["invite_id"]
            calls = [
                town.bob.call("group.request_join", group_id=gid),
                town.carol.call("group.use_invite_code", code=code),
                town.dave.call("group.accept_invite", invite_id=invite),
            ]
            done, refused = await both(*calls[ways:], *calls[:ways])
            assert (len(done), [type(one) for one in refused]) == (1, [MemberLimit, MemberLimit])
            group = (await town.alice.call("group.get", group_id=gid))["group"]
            assert (
                group["member_count"] == len((await town.alice.call("group.get_members", group_id=gid))["members"]) == 2
            )
            assert len(await events(town.alice, gid)) == 3
            [kept] = (await town.alice.call("group.list_invite_codes", group_id=gid))["items"]
            assert kept["used_count"] == int(ways == 1)


async def test_a_code_for_one_lets_one_in(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        code = (await town.alice.call("group.create_invite_code", group_id=gid))["invite_code"]["code"]
        claims = [one.call("group.use_invite_code", code=code) for one in (town.bob, town.carol, town.dave, town.bob)]
        done, refused = await both(*claims)
        assert (len(done), {type(one) for one in refused}) == (1, {InviteCodeInvalid})
        assert (await town.alice.call("group.get", group_id=gid))["group"]["member_count"] == 2


async def test_an_invitation_is_ended_once_whoever_ends_it(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        for turn in range(3):
            gid = await town.found()
            invite = (await town.alice.call("group.invite_member", group_id=gid, aid=BOB))["invite_id"]
            calls = [
                town.bob.call("group.accept_invite", invite_id=invite),
                town.bob.call("group.reject_invite", invite_id=invite),
                town.alice.call("group.revoke_invite", invite_id=invite),
            ]
            done, refused = await both(*calls[turn:], *calls[:turn])
            assert (len(done), [type(one) for one in refused]) == (1, [Conflict, Conflict])
            inside = (await town.bob.call("group.check_membership", group_id=gid))["is_member"]
            assert inside is (done[0]["status"] == "accepted")


async def test_two_admins_review_one_request_and_one_of_them_is_told_that_there_is_none(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(admins=[town.bob])
        await town.carol.call("group.request_join", group_id=gid)
        done, refused = await both(
            town.alice.call("group.review_join_request", group_id=gid, aid=CAROL, approve=True),
            town.bob.call("group.review_join_request", group_id=gid, aid=CAROL, approve=False),
        )
        assert ([one["status"] for one in done], [type(one) for one in refused]) == (["approved"], [NotFound])


async def test_max_pending_holds_against_many_who_ask_at_once(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(join_mode="approval", max_pending=2)
        asking = [one.call("group.request_join", group_id=gid) for one in (town.bob, town.carol, town.dave)]
        done, refused = await both(*asking)
        assert ([one["status"] for one in done], [type(one) for one in refused]) == (["pending"] * 2, [JoinRejected])


async def test_what_is_said_while_its_sender_is_put_out_is_said_before_or_not_at_all(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        told = await town.post.connect(BOB, "b", announced=PEER)
        saying = [say(town.bob, gid, str(number), message_id=f"m-{number}") for number in range(10)]
        out = town.alice.call("group.kick", group_id=gid, aid=BOB)
        after = [say(town.bob, gid, str(number), message_id=f"m-{number}") for number in range(10, 20)]
        done, refused = await both(*saying, out, *after)
        sent = [one["seq"] for one in done if "seq" in one]
        assert {type(one) for one in refused} == {NotMember}
        assert sent == list(range(1, len(sent) + 1))
        assert len(sent) + len(refused) == 20
        page = await town.alice.call("group.pull", group_id=gid, limit=200)
        assert [row["seq"] for row in page["messages"]] == sent
        await say(town.alice, gid, "without bob")
        pushed = [one["seq"] for one in await told.events("group.message_created")]
        assert pushed == sent
        assert (await news(told))[-1] == "member_removed"


async def test_a_dissolution_and_everything_else_at_once_leave_nothing_behind(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, visibility="public")
        done, refused = await both(
            say(town.bob, gid),
            town.alice.call("group.dissolve", group_id=gid),
            town.carol.call("group.request_join", group_id=gid),
            say(town.bob, gid),
            town.alice.call("group.add_member", group_id=gid, aid=DAVE),
        )
        assert (len(done), {type(one) for one in refused}) == (2, {GroupNotFound})
        assert await owners(town, gid) == []
        for one in (town.alice, town.bob, town.carol, town.dave):
            assert (await one.call("group.list_my"))["items"] == []


async def test_who_asks_to_come_in_twice_at_once_is_in_once(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(visibility="public")
        done, refused = await both(*(town.bob.call("group.request_join", group_id=gid) for _ in range(3)))
        assert (len(done), [type(one) for one in refused]) == (1, [AlreadyMember] * 2)
        assert [action for _, action in await events(town.alice, gid)] == ["upsert", "joined"]


async def test_two_hundred_members_hear_everything_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    async with square(tmp_path, synchronous="OFF") as town:
        aids = [f"crowd-{number}.{ISSUER}" for number in range(BIG - 4)]
        town.post.aids |= set(aids)
        gid = await town.found(town.bob, town.carol, town.dave)
        for aid in aids:
            await town.alice.call("group.add_member", group_id=gid, aid=aid)
        crowd = [await town.post.connect(aid, "d", announced=PEER) for aid in aids]
        speakers = [town.alice, town.bob, town.carol, town.dave]
        sent = await asyncio.gather(
            *(
                say(one, gid, f"{number}", message_id=f"{one.who.aid}-{number}")
                for number in range(10)
                for one in speakers
            )
        )
        assert sorted(one["seq"] for one in sent) == list(range(1, 41))
        wanted = [one["message_id"] for one in sorted(sent, key=lambda one: one["seq"])]
        assert len(crowd) == BIG - 4
        for one in crowd:
            heard = await one.events("group.message_created")
            assert [said["message_id"] for said in heard] == wanted
            assert [said["seq"] for said in heard] == list(range(1, 41))
