"""The ways in: rules G-14, G-15, G-16 of the service spec."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import (
    AlreadyMember,
    Conflict,
    InvalidParams,
    InviteCodeInvalid,
    JoinRejected,
    NotFound,
    NotPermitted,
    RateLimited,
)
from edge.contract.time import SECOND
from tests.support.groups import DAVE, events, news, square
from tests.support.messaging import ALICE, BOB, CAROL, ISSUER, PEER, Client


async def ask(client: Client, gid: str, **more: Any) -> dict[str, Any]:
    return await client.call("group.request_join", group_id=gid, **more)


# G-14: requests.


@pytest.mark.seed("S0-160")
async def test_g14_an_open_group_lets_everybody_in(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        for gid in (await town.found(visibility="public"), await town.found(join_mode="open")):
            joined = await ask(town.bob, gid)
            assert (joined["status"], joined["member"]["aid"], joined["group"]["member_count"]) == ("joined", BOB, 2)
            with pytest.raises(AlreadyMember):
                await ask(town.bob, gid)
            assert await events(town.alice, gid, 1) == [(2, "joined")]


async def test_g14_a_private_group_asks_its_admins(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.carol)
        carol, bob = [await town.post.connect(aid, "d", announced=PEER) for aid in (CAROL, BOB)]
        first = await ask(bob, gid, message="please")
        assert (first["status"], first["request"]["message"]) == ("pending", "please")
        again = await ask(bob, gid, message="pretty please")
        assert again["request"]["created_at"] == first["request"]["created_at"]
        found = await town.alice.call("group.list_join_requests", group_id=gid)
        assert ([one["message"] for one in found["items"]], found["total"]) == (["pretty please"], 1)
        assert (await news(carol))[-1] == "join_requested"
        assert [one for one in await events(town.alice, gid) if one[1] == "join_requested"] == [(3, "join_requested")]
        done = await town.alice.call("group.review_join_request", group_id=gid, aid=BOB, approve=True)
        assert (done["status"], done["member"]["aid"], done["request"]["reviewed_by"]) == ("approved", BOB, ALICE)
        assert (await news(bob))[-1] == "join_approved"
        with pytest.raises(NotFound):
            await town.alice.call("group.review_join_request", group_id=gid, aid=BOB)
        found = await town.alice.call("group.list_join_requests", group_id=gid, status="approved")
        assert [one["aid"] for one in found["items"]] == [BOB]
        with pytest.raises(InvalidParams):
            await town.alice.call("group.list_join_requests", group_id=gid, status="lost")


async def test_g14_who_is_refused_learns_why_and_may_ask_again(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        bob = await town.post.connect(BOB, "b1", announced=PEER)
        await ask(bob, gid)
        done = await town.alice.call("group.review_join_request", group_id=gid, aid=BOB, approve=False, reason="full")
        assert (done["status"], done["request"]["rejection_reason"]) == ("rejected", "full")
        [told] = [one for one in await bob.events("group.changed") if one.get("action") == "join_rejected"]
        assert (told["reason"], "event_seq" in told) == ("full", False)
        assert (await ask(bob, gid))["status"] == "pending"


async def test_g14_a_question_must_be_answered(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(join_mode="approval", join_question="Why?")
        found = await ask(town.bob, gid, answer="  ")
        assert (found["status"], found["question"]) == ("question_required", "Why?")
        assert (await town.alice.call("group.list_join_requests", group_id=gid))["total"] == 0
        assert (await ask(town.bob, gid, answer="Because"))["request"]["answer"] == "Because"
        with pytest.raises(InvalidParams):
            await ask(town.bob, gid, answer="x" * 4_001)


async def test_g14_only_so_many_requests_wait(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(max_pending=1)
        await ask(town.bob, gid)
        await ask(town.bob, gid)
        with pytest.raises(JoinRejected, match="too many"):
            await ask(town.carol, gid)
        await town.alice.call("group.review_join_request", group_id=gid, aid=BOB)
        assert (await ask(town.carol, gid))["status"] == "pending"


@pytest.mark.parametrize("mode", ["invite_only", "closed"])
async def test_g14_other_groups_let_nobody_in_who_asks(tmp_path: Path, mode: str) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(join_mode=mode)
        with pytest.raises(JoinRejected):
            await ask(town.bob, gid)
        with pytest.raises(AlreadyMember):
            await ask(town.alice, gid)


async def test_g14_who_matches_a_pattern_comes_in_unasked(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(join_mode="closed", auto_approve_patterns=["b*.edge.test", rf"^dave\.{ISSUER}$"])
        assert (await ask(town.bob, gid))["status"] == "joined"
        assert (await ask(town.dave, gid))["status"] == "joined"
        with pytest.raises(JoinRejected):
            await ask(town.carol, gid)


async def test_g14_many_requests_are_reviewed_at_once_each_alone(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        for one in (town.bob, town.carol):
            await ask(one, gid)
        requests = [{"aid": BOB}, {"aid": CAROL, "approve": False, "reason": "no"}, {"aid": DAVE}, {"aid": "no aid"}]
        done = await town.alice.call("group.batch_review_join_request", group_id=gid, requests=requests)
        assert [one.get("status", "failed") for one in done["results"]] == ["approved", "rejected", "failed", "failed"]
        assert (done["success_count"], done["fail_count"]) == (2, 2)
        await ask(town.carol, gid)
        done = await town.alice.call("group.batch_review_join_request", group_id=gid, aids=[CAROL])
        assert done["success_count"] == 1
        for wrong in ({}, {"aids": [BOB] * 201}):
            with pytest.raises(InvalidParams):
                await town.alice.call("group.batch_review_join_request", group_id=gid, **wrong)


async def test_a_member_that_comes_in_another_way_waits_no_longer(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        await ask(town.bob, gid)
        await town.alice.call("group.invite_member", group_id=gid, aid=BOB)
        code = (await town.alice.call("group.create_invite_code", group_id=gid))["invite_code"]["code"]
        await town.bob.call("group.use_invite_code", code=code)
        assert (await town.alice.call("group.list_join_requests", group_id=gid))["total"] == 0
        assert (await town.bob.call("group.list_my_invites"))["total"] == 0


@pytest.mark.parametrize("way", ["added", "approved", "accepted", "open"])
async def test_whoever_is_in_waits_no_longer_whichever_way_they_came(tmp_path: Path, way: str) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(admins=[town.carol])
        await ask(town.bob, gid)
        ids = [
            (await one.call("group.invite_member", group_id=gid, aid=BOB))["invite_id"]
            for one in (town.alice, town.carol)
        ]
        bob = await town.post.connect(BOB, "b", announced=PEER)
        if way == "added":
            await town.alice.call("group.add_member", group_id=gid, aid=BOB)
        elif way == "approved":
            await town.alice.call("group.review_join_request", group_id=gid, aid=BOB)
        elif way == "accepted":
            await town.bob.call("group.accept_invite", invite_id=ids[1])
        else:
            await town.alice.call("group.update_rules", group_id=gid, mode="open")
            await town.bob.call("group.request_join", group_id=gid)
        assert (await town.alice.call("group.list_join_requests", group_id=gid))["total"] == 0
        assert (await town.bob.call("group.list_my_invites"))["total"] == 0
        [told] = await bob.events("group.invite_finalized")
        assert (told["status"], sorted(told["invite_ids"]), told["pending_invite_ids"]) == ("accepted", sorted(ids), [])


async def test_members_see_how_one_comes_in(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, join_mode="approval", join_question="Why?", max_pending=7)
        found = (await town.bob.call("group.get_join_requirements", group_id=gid))["requirements"]
        assert (found["mode"], found["question"], found["max_pending"]) == ("approval", "Why?", 7)
        assert (found["auto_approve_patterns"], found["updated_by"]) == ([], ALICE)


# G-15: codes.


async def test_g15_a_code_lets_its_first_users_in_in_any_case(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(join_mode="closed")
        made = await town.alice.call("group.create_invite_code", group_id=gid, code=" Welcome-1 ", max_uses=2)
        assert (made["invite_code"]["code"], made["invite_code"]["status"]) == ("welcome-1", "active")
        joined = await town.bob.call("group.use_invite_code", code="WELCOME-1")
        assert (joined["status"], joined["invite_code"]["used_count"], joined["member"]["aid"]) == ("joined", 1, BOB)
        with pytest.raises(AlreadyMember):
            await town.bob.call("group.use_invite_code", code="welcome-1")
        await town.carol.call("group.use_invite_code", code=" welcome-1")
        with pytest.raises(InviteCodeInvalid):
            await town.dave.call("group.use_invite_code", code="welcome-1")
        [code] = (await town.alice.call("group.list_invite_codes", group_id=gid, status="expired"))["items"]
        assert (code["used_count"], code["max_uses"]) == (2, 2)


async def test_g15_of_two_users_at_once_a_code_for_one_lets_one_in(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        code = (await town.alice.call("group.create_invite_code", group_id=gid))["invite_code"]["code"]
        users = (town.bob, town.carol, town.dave)
        found = await asyncio.gather(
            *(one.call("group.use_invite_code", code=code) for one in users), return_exceptions=True
        )
        assert sum(isinstance(one, dict) for one in found) == 1
        assert sum(isinstance(one, InviteCodeInvalid) for one in found) == 2


async def test_g15_a_code_ends_by_time_by_revocation_and_with_its_group(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()

        async def make(**how: Any) -> str:
            made = await town.alice.call("group.create_invite_code", group_id=gid, **how)
            text: str = made["invite_code"]["code"]
            return text

        late, revoked, ended = await make(expires_in_seconds=60), await make(), await make(max_uses=5)
        assert (await town.alice.call("group.revoke_invite_code", group_id=gid, code=revoked))["status"] == "revoked"
        await town.alice.call("group.revoke_invite_code", group_id=gid, code=revoked)
        assert [action for _, action in await events(town.alice, gid)].count("invite_code_revoked") == 1
        town.clock.advance(60 * SECOND)
        for code in (late, revoked, "never-made"):
            with pytest.raises(InviteCodeInvalid):
                await town.bob.call("group.use_invite_code", code=code)
        other = await town.found()
        with pytest.raises(InviteCodeInvalid):
            await town.alice.call("group.revoke_invite_code", group_id=other, code=ended)
        await town.alice.call("group.dissolve", group_id=gid)
        with pytest.raises(InviteCodeInvalid):
            await town.bob.call("group.use_invite_code", code=ended)


@pytest.mark.limit("group.codes", "group.code_uses", "group.code_length", "group.code_s")
async def test_g15_a_code_within_its_bounds(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.codes": 2}) as town:
        gid = await town.found()
        for wrong in (
            {"max_uses": 0},
            {"max_uses": 10_001},
            {"expires_in_seconds": 0},
            {"expires_in_seconds": 30 * 86_400 + 1},
            {"code": "x" * 65},
        ):
            with pytest.raises(InvalidParams):
                await town.alice.call("group.create_invite_code", group_id=gid, **wrong)
        await town.alice.call("group.create_invite_code", group_id=gid, code="a" * 64, max_uses=10_000)
        with pytest.raises(Conflict):
            await town.alice.call("group.create_invite_code", group_id=gid, code="a" * 64)
        await town.alice.call("group.create_invite_code", group_id=gid, code="second", expires_in_seconds=30 * 86_400)
        with pytest.raises(RateLimited, match=r"group\.codes"):
            await town.alice.call("group.create_invite_code", group_id=gid)
        await town.alice.call("group.revoke_invite_code", group_id=gid, code="second")
        await town.alice.call("group.create_invite_code", group_id=gid, code="third")
        found = (await town.alice.call("group.list_invite_codes", group_id=gid))["items"]
        assert [one["code"] for one in found] == ["a" * 64, "third"]


# G-16: invites.


async def test_g16_an_invitation_changes_nothing_until_it_is_accepted(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        bob = await town.post.connect(BOB, "b1", announced=PEER)
        made = await town.alice.call("group.invite_member", group_id=gid, invitee_aid=BOB, member_type="ai")
        assert (made["status"], made["invitee_aid"], made["inviter_aid"]) == ("pending", BOB, ALICE)
        again = await town.alice.call("group.invite_member", group_id=gid, aid=BOB)
        assert again["invite_id"] == made["invite_id"]
        [told] = await bob.events("group.invite_created")
        assert (told["invite_ids"], told["name"], told["group_id"]) == ([made["invite_id"]], "Team", gid)
        assert (await bob.call("group.check_membership", group_id=gid))["is_member"] is False
        mine = await bob.call("group.list_my_invites")
        assert ([one["invite_ids"] for one in mine["items"]], mine["has_more"]) == ([[made["invite_id"]]], False)
        done = await bob.call("group.accept_invite", invite_id=made["invite_id"])
        assert (done["status"], done["member"]["role"], done["member"]["member_type"]) == ("accepted", "member", "ai")
        assert done["group"]["member_count"] == 2
        assert (await bob.events("group.invite_finalized"))[-1]["status"] == "accepted"
        with pytest.raises(AlreadyMember):
            await town.alice.call("group.invite_member", group_id=gid, aid=BOB)


@pytest.mark.parametrize("first", ["accept", "reject", "revoke"])
async def test_g16_an_invitation_ends_once(tmp_path: Path, first: str) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        invite_id = (await town.alice.call("group.invite_member", group_id=gid, aid=BOB))["invite_id"]
        party = {"accept": town.bob, "reject": town.bob, "revoke": town.alice}
        for verb, other in (("accept", town.carol), ("reject", town.alice), ("revoke", town.bob)):
            with pytest.raises(NotPermitted):
                await other.call(f"group.{verb}_invite", invite_id=invite_id)
        ended = {"accept": "accepted", "reject": "rejected", "revoke": "revoked"}[first]
        assert (await party[first].call(f"group.{first}_invite", invite_id=invite_id))["status"] == ended
        for verb, who in party.items():
            with pytest.raises(Conflict, match="not pending"):
                await who.call(f"group.{verb}_invite", invite_id=invite_id)
        assert (await town.bob.call("group.list_my_invites"))["total"] == 0
        with pytest.raises(NotFound):
            await town.bob.call("group.accept_invite", invite_id="gi-none")


async def test_g16_two_inviters_are_one_invitation_to_the_invited(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(admins=[town.carol])
        ids = []
        for one in (town.alice, town.carol):
            ids.append((await one.call("group.invite_member", group_id=gid, aid=BOB))["invite_id"])
            town.clock.advance(SECOND)
        [mine] = (await town.bob.call("group.list_my_invites"))["items"]
        assert (mine["invite_ids"], mine["inviter_aids"]) == (ids, [ALICE, CAROL])
        done = await town.carol.call("group.revoke_invite", invite_id=ids[1])
        assert (done["invite_ids"], done["pending_invite_ids"]) == ([ids[1]], [ids[0]])
        await town.bob.call("group.reject_invite", invite_id=ids[0])
        again = await town.carol.call("group.invite_member", group_id=gid, aid=BOB)
        assert again["invite_id"] not in ids


@pytest.mark.limit("group.invites")
async def test_g16_members_invite_to_public_groups_and_whom_nobody_knows_nobody_invites(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.invites": 1}) as town:
        gid = await town.found(town.bob, visibility="public")
        await town.bob.call("group.invite_member", group_id=gid, aid=CAROL)
        with pytest.raises(RateLimited, match=r"group\.invites"):
            await town.bob.call("group.invite_member", group_id=gid, aid=DAVE)
        with pytest.raises(NotFound):
            await town.bob.call("group.invite_member", group_id=gid, aid=f"nobody.{ISSUER}")
        for wrong in ({}, {"aid": CAROL, "member_type": "robot"}):
            with pytest.raises(InvalidParams):
                await town.bob.call("group.invite_member", group_id=gid, **wrong)
