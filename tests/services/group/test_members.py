"""Members, roles, bans and blocks: rules G-4, G-9, G-10 of the service spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import (
    AlreadyMember,
    InvalidParams,
    JoinRejected,
    MemberLimit,
    NotMember,
    NotPermitted,
    RateLimited,
    RoleInsufficient,
    UnknownAid,
)
from edge.contract.time import SECOND
from tests.support.groups import DAVE, events, news, publish_key, say, seal, square, texts
from tests.support.messaging import ALICE, BOB, CAROL, ISSUER, PEER


async def roles(client: Any, gid: str) -> dict[str, str]:
    """Role by AID."""
    return {one["aid"]: one["role"] for one in (await client.call("group.get_members", group_id=gid))["members"]}


async def test_a_new_member_is_there_at_once_and_told_to_everybody(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        alice, bob = [await town.post.connect(aid, "d", announced=PEER) for aid in (ALICE, BOB)]
        added = await alice.call("group.add_member", group_id=gid, aid=f" {BOB.upper()} ", member_type="ai")
        assert (added["member"]["aid"], added["member"]["role"], added["member"]["member_type"]) == (
            BOB,
            "member",
            "ai",
        )
        assert added["group"]["member_count"] == 2
        for one in (alice, bob):
            event = (await one.events("group.changed"))[-1]
            assert (event["action"], event["event_seq"], event["actor_aid"]) == ("member_added", 2, ALICE)
            assert event["member_aid"] == event["joined_aid"] == BOB


@pytest.mark.parametrize(
    ("aid", "how", "error"),
    [
        (BOB, {}, AlreadyMember),
        (f"nobody.{ISSUER}", {}, UnknownAid),
        ("no aid", {}, InvalidParams),
        (CAROL, {"role": "owner"}, InvalidParams),
        (CAROL, {"member_type": "robot"}, InvalidParams),
    ],
)
async def test_who_cannot_be_added(tmp_path: Path, aid: str, how: dict[str, str], error: type) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        with pytest.raises(error):
            await town.alice.call("group.add_member", group_id=gid, aid=aid, **how)
        assert len(await events(town.alice, gid)) == 2


async def test_only_the_owner_makes_somebody_an_admin(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(admins=[town.bob])
        with pytest.raises(RoleInsufficient):
            await town.bob.call("group.add_member", group_id=gid, aid=CAROL, role="admin")
        await town.bob.call("group.add_member", group_id=gid, aid=CAROL)
        set_role = await town.alice.call("group.set_role", group_id=gid, aid=CAROL, role="admin")
        assert (set_role["old_role"], set_role["new_role"], set_role["member"]["role"]) == ("member", "admin", "admin")
        again = await town.alice.call("group.set_role", group_id=gid, aid=CAROL, role="admin")
        assert again["old_role"] == again["new_role"] == "admin"
        assert [action for _, action in await events(town.alice, gid)][-1:] == ["role_changed"]
        assert (await town.bob.call("group.set_role", group_id=gid, aid=BOB, role="member"))["new_role"] == "member"
        with pytest.raises(InvalidParams):
            await town.alice.call("group.set_role", group_id=gid, aid=BOB, role="owner")
        with pytest.raises(NotMember):
            await town.alice.call("group.set_role", group_id=gid, aid=DAVE, role="admin")


async def test_g4_the_owner_stays_until_they_hand_over_and_there_is_always_one(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.carol, admins=[town.bob])
        for client, name, params in (
            (town.alice, "group.leave", {}),
            (town.bob, "group.kick", {"aid": ALICE}),
            (town.alice, "group.kick", {"aid": ALICE}),
            (town.alice, "group.set_role", {"aid": ALICE, "role": "admin"}),
            (town.bob, "group.set_role", {"aid": ALICE, "role": "member"}),
            (town.bob, "group.ban", {"aid": ALICE}),
            (town.bob, "group.block", {"aid": ALICE}),
        ):
            with pytest.raises(RoleInsufficient):
                await client.call(name, group_id=gid, **params)
        assert await roles(town.alice, gid) == {ALICE: "owner", BOB: "admin", CAROL: "member"}
        await town.alice.call("group.transfer_owner", group_id=gid, new_owner=CAROL)
        assert await roles(town.alice, gid) == {ALICE: "admin", BOB: "admin", CAROL: "owner"}
        assert (await town.bob.call("group.get_master", group_id=gid))["owner_aid"] == CAROL
        assert (await town.alice.call("group.leave", group_id=gid))["left_aid"] == ALICE
        assert await roles(town.bob, gid) == {BOB: "admin", CAROL: "owner"}


async def test_equals_cannot_put_each_other_out(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.dave, admins=[town.bob, town.carol])
        for name in ("group.kick", "group.ban", "group.block"):
            with pytest.raises(RoleInsufficient):
                await town.bob.call(name, group_id=gid, aid=CAROL)
        assert (await town.bob.call("group.remove_member", group_id=gid, aid=DAVE))["removed_aid"] == DAVE
        with pytest.raises(NotMember):
            await town.bob.call("group.kick", group_id=gid, aid=DAVE)


async def test_who_goes_hears_of_it_and_of_nothing_after(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, town.carol)
        bob, carol = [await town.post.connect(aid, "d", announced=PEER) for aid in (BOB, CAROL)]
        left = await bob.call("group.leave", group_id=gid)
        assert (left["left_aid"], left["group"]["member_count"]) == (BOB, 2)
        await say(town.alice, gid)
        assert (await news(bob))[-1] == "member_left"
        assert (await news(carol))[-1] == "member_left"
        assert await bob.events("group.message_created") == []
        assert len(await carol.events("group.message_created")) == 1


@pytest.mark.limit("group.joined", "group.members")
async def test_a_group_has_room_for_so_many_and_an_aid_is_in_so_many(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.members": 2, "group.joined": 2}) as town:
        first, _, third = [await town.found() for _ in range(2)] + [await town.found(owner=town.bob)]
        await town.alice.call("group.add_member", group_id=first, aid=CAROL)
        with pytest.raises(MemberLimit):
            await town.alice.call("group.add_member", group_id=first, aid=BOB)
        with pytest.raises(RateLimited, match=r"group\.joined"):
            await town.bob.call("group.add_member", group_id=third, aid=ALICE)
        assert town.limits.hits == {"group.members": 1, "group.joined": 1}


@pytest.mark.limit("group.page_rows")
async def test_members_come_in_pages_the_owner_first(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.dave, town.bob, admins=[town.carol])
        page = await town.bob.call("group.get_members", group_id=gid, size=2)
        assert [one["aid"] for one in page["members"]] == [ALICE, CAROL]
        assert page["items"] == page["members"]
        assert (page["total"], page["count"], page["page"], page["size"]) == (4, 2, 1, 2)
        page = await town.bob.call("group.get_members", group_id=gid, limit=2, page=2)
        assert [one["aid"] for one in page["members"]] == [BOB, DAVE]
        page = await town.bob.call("group.get_members", group_id=gid, role="member")
        assert ([one["aid"] for one in page["members"]], page["total"]) == ([BOB, DAVE], 2)
        assert (await town.bob.call("group.get_members", group_id=gid, size=10_000))["size"] == 200
        assert (await town.bob.call("group.get_members", group_id=gid, size=-5))["size"] == 1
        with pytest.raises(InvalidParams):
            await town.bob.call("group.get_members", group_id=gid, role="king")
        found = await town.bob.call("group.get_admins", group_id=gid)
        assert [(one["aid"], one["role"]) for one in found["admins"]] == [(ALICE, "owner"), (CAROL, "admin")]


async def test_members_show_how_far_they_have_read(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid)
        await town.post.offline(BOB, "b1").call("group.ack", group_id=gid, msg_seq=1)
        found = (await town.alice.call("group.get_members", group_id=gid))["members"]
        assert {one["aid"]: one["last_ack_seq"] for one in found} == {ALICE: 0, BOB: 1}
        assert found[1]["last_pull_at"] > 0


async def test_who_is_connected(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, town.carol)
        bob = await town.post.connect(BOB, "b1")
        await town.post.connect(BOB, "b2")
        found = await town.alice.call("group.get_online_members", group_id=gid)
        assert [one["aid"] for one in found["members"]] == [BOB]
        assert found["members"] == found["items"] == found["online_members"]
        assert (found["online_count"], found["total"]) == (1, 3)
        await bob.leave()
        assert (await town.alice.call("group.get_online_members", group_id=gid))["online_count"] == 1


async def test_who_is_a_member(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        for asked in ({}, {"aid": BOB}, {"requester_aid": BOB}):
            found = await town.bob.call("group.check_membership", group_id=gid, **asked)
            assert (found["is_member"], found["role"]) == (True, "member")
        assert (await town.bob.call("group.check_membership", group_id=gid, aid=CAROL))["is_member"] is False
        assert (await town.carol.call("group.check_membership", group_id=gid))["is_member"] is False
        with pytest.raises(NotMember):
            await town.carol.call("group.check_membership", group_id=gid, aid=BOB)


async def test_people_and_machines_are_counted(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await town.alice.call("group.add_member", group_id=gid, aid=CAROL, member_type="ai")
        found = await town.bob.call("group.refresh_member_types", group_id=gid)
        assert (found["total"], found["human_count"], found["ai_count"]) == (3, 2, 1)


# Bans and blocks.


async def test_g9_who_is_banned_reads_but_does_not_speak(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        banned = await town.alice.call("group.ban", group_id=gid, aid=BOB, reason="noise")
        assert banned["banned_aid"] == banned["ban"]["subject"] == BOB
        assert (banned["ban"]["reason"], banned["ban"]["expires_at"], banned["ban"]["banned_by"]) == ("noise", 0, ALICE)
        with pytest.raises(NotPermitted, match="banned"):
            await say(town.bob, gid)
        with pytest.raises(NotPermitted, match="banned"):
            await town.bob.call("group.thought.put", group_id=gid, context={"type": "a", "id": "b"}, payload={})
        await say(town.alice, gid, "you hear me")
        assert await texts(town.bob, gid) == ["you hear me"]
        assert (await town.alice.call("group.get_banlist", group_id=gid))["total"] == 1
        assert (await town.alice.call("group.unban", group_id=gid, subject=BOB))["unbanned_aid"] == BOB
        assert (await say(town.bob, gid))["seq"] == 2
        await town.alice.call("group.unban", group_id=gid, subject=BOB)
        assert [action for _, action in await events(town.bob, gid)] == [
            "member_added",
            "member_banned",
            "member_unbanned",
        ]


@pytest.mark.limit("group.reason_length")
async def test_g9_a_ban_ends_by_itself(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, town.carol, town.dave)
        now_ms = town.clock.wall(town.clock.now())[0] // 1000
        await town.alice.call("group.ban", group_id=gid, aid=BOB, expires_in_seconds=60)
        await town.alice.call("group.ban", group_id=gid, aid=CAROL, duration_seconds=60)
        await town.alice.call("group.ban", group_id=gid, aid=DAVE, expires_at=now_ms + 60_000)
        town.clock.advance(59 * SECOND)
        for one in (town.bob, town.carol, town.dave):
            with pytest.raises(NotPermitted):
                await say(one, gid)
        town.clock.advance(SECOND)
        for one in (town.bob, town.carol, town.dave):
            await say(one, gid)
        assert (await town.alice.call("group.get_banlist", group_id=gid))["total"] == 0
        for wrong in ({"expires_in_seconds": -1}, {"expires_at": -1}, {"reason": "x" * 256}):
            with pytest.raises(InvalidParams):
                await town.alice.call("group.ban", group_id=gid, aid=BOB, **wrong)
        with pytest.raises(InvalidParams):
            await town.alice.call("group.ban", group_id=gid)


async def test_g9_who_is_banned_and_outside_does_not_come_in(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, visibility="public")
        await town.alice.call("group.ban", group_id=gid, aid=CAROL)
        code = (await town.alice.call("group.create_invite_code", group_id=gid))["invite_code"]["code"]
        for coming in (
            town.carol.call("group.request_join", group_id=gid),
            town.carol.call("group.use_invite_code", code=code),
            town.alice.call("group.add_member", group_id=gid, aid=CAROL),
            town.bob.call("group.invite_member", group_id=gid, aid=CAROL),
        ):
            with pytest.raises(JoinRejected):
                await coming


async def test_g10_who_is_blocked_hears_nothing_and_may_still_speak(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        bob = await town.post.connect(BOB, "b1", announced=PEER)
        await publish_key(bob, gid)
        await say(town.alice, gid, "before")
        await bob.call("group.block", group_id=gid, aid=BOB)
        heard = len(await bob.events("group.message_created"))
        await say(town.alice, gid, "unheard")
        assert len(await bob.events("group.message_created")) == heard
        for name in ("group.pull", "group.v2.pull"):
            page = await bob.call(name, group_id=gid)
            assert (page["messages"], page["has_more"], page["cursor"]["unread_count"]) == ([], False, 0)
            page = await bob.call(name, group_id=gid, window_mode="tail")
            assert page["messages"] == []
        assert (await bob.call("group.history", group_id=gid, before_seq=100))["messages"] == []
        devices = (await town.alice.call("group.v2.bootstrap", group_id=gid))["devices"]
        assert BOB not in {one["aid"] for one in devices}
        assert (await seal(town.alice, gid, [(ALICE, "")]))["status"] == "sent"
        assert (await say(bob, gid, "I speak"))["status"] == "sent"
        assert (await bob.call("group.unblock", group_id=gid, aid=BOB))["status"] == "removed"
        assert await texts(bob, gid) == ["before", "unheard", "I speak"]


async def test_g10_admins_block_members_and_members_only_themselves(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, town.carol)
        with pytest.raises(RoleInsufficient):
            await town.bob.call("group.block", group_id=gid, aid=CAROL)
        blocked = await town.alice.call("group.block", group_id=gid, subject=CAROL, reason="rest")
        assert (blocked["block"]["blocked_by"], blocked["block"]["reason"]) == (ALICE, "rest")
        assert [one["subject"] for one in (await town.alice.call("group.get_blocklist", group_id=gid))["items"]] == [
            CAROL
        ]
        assert (await town.carol.call("group.unblock", group_id=gid, aid=CAROL))["status"] == "removed"
        assert (await town.alice.call("group.get_blocklist", group_id=gid))["total"] == 0
        with pytest.raises(NotMember):
            await town.alice.call("group.block", group_id=gid, aid=DAVE)


@pytest.mark.limit("group.bans")
async def test_only_so_many_are_banned(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.bans": 1}) as town:
        gid = await town.found()
        await town.alice.call("group.ban", group_id=gid, aid=BOB)
        with pytest.raises(RateLimited, match=r"group\.bans"):
            await town.alice.call("group.ban", group_id=gid, aid=CAROL)
        longer = await town.alice.call("group.ban", group_id=gid, aid=BOB, expires_in_seconds=60)
        assert longer["ban"]["expires_at"] > 0


@pytest.mark.limit("group.bans")
async def test_a_ban_that_has_ended_by_itself_takes_no_room_and_cannot_be_lifted(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.bans": 1}) as town:
        gid = await town.found()
        for aid in (BOB, CAROL, DAVE):
            await town.alice.call("group.ban", group_id=gid, aid=aid, expires_in_seconds=60)
            town.clock.advance(60 * SECOND)
        rows = await town.post.node.read(lambda unit: unit.run("SELECT subject FROM group_shut"))
        assert rows == [(DAVE,)]
        before = await events(town.alice, gid)
        assert (await town.alice.call("group.unban", group_id=gid, aid=DAVE))["status"] == "removed"
        assert await events(town.alice, gid) == before


async def test_who_is_made_owner_while_banned_can_end_that(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await town.alice.call("group.ban", group_id=gid, aid=BOB)
        await town.alice.call("group.transfer_owner", group_id=gid, new_owner=BOB)
        with pytest.raises(RoleInsufficient):
            await town.alice.call("group.unban", group_id=gid, aid=BOB)
        await town.bob.call("group.unban", group_id=gid, aid=BOB)
        assert (await say(town.bob, gid))["seq"] == 1


@pytest.mark.limit("group.status_length")
async def test_members_say_how_they_are(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        said = await town.bob.call("group.report_status", group_id=gid, online_status="busy", work_status="cooking")
        assert (said["status"]["online_status"], said["status"]["work_status"]) == ("busy", "cooking")
        await say(town.bob, gid)
        found = (await town.alice.call("group.get_member_statuses", group_id=gid))["items"]
        by = {one["aid"]: one for one in found}
        assert (by[BOB]["work_status"], by[BOB]["last_payload_type"]) == ("cooking", "text")
        assert (by[ALICE]["work_status"], by[ALICE]["last_message_at"]) == ("", 0)
        with pytest.raises(InvalidParams):
            await town.bob.call("group.report_status", group_id=gid, online_status="x" * 65, work_status="")
