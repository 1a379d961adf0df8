"""Tables of the ways into a group: directed invites, requests, codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.contract.store import Unit
from edge.store import group_joins
from edge.store.group_joins import Code, Invite, Request
from tests.support.store import database

GID, OTHER = "g-c0ffee.edge.test", "family.edge.test"
ALICE, BOB, CAROL = (f"{name}.edge.test" for name in ("alice", "bobb", "carol"))


def invite(invite_id: str, invitee: str = BOB, gid: str = GID, at_ms: int = 5, status: str = "pending") -> Invite:
    return Invite(invite_id, gid, invitee, ALICE, "human", status, at_ms, at_ms)


def request(aid: str, at_ms: int = 5, status: str = "pending", gid: str = GID) -> Request:
    return Request(gid, aid, "hello", "42", status, "", "", at_ms, at_ms)


def code(text: str = "abc", *, until_ms: int = 100, uses: int = 2, gid: str = GID, at_ms: int = 1) -> Code:
    return Code(text, gid, ALICE, until_ms, uses, 0, 0, at_ms)


async def test_pending_invites_are_found_by_group_and_by_invitee(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for one in (invite("2", at_ms=6), invite("1"), invite("3", gid=OTHER), invite("4", CAROL)):
                group_joins.add_invite(unit, one, 9)

        await node.commit(fill)
        here = await node.read(lambda unit: group_joins.invites(unit, GID, BOB))
        assert [one.invite_id for one in here] == ["1", "2"]
        mine = await node.read(lambda unit: group_joins.invites_of(unit, BOB))
        assert [one.invite_id for one in mine] == ["3", "1", "2"]
        assert await node.read(lambda unit: group_joins.count_invites(unit, GID)) == 3
        assert await node.read(lambda unit: group_joins.invite(unit, "4")) == invite("4", CAROL)
        assert await node.read(lambda unit: group_joins.invite(unit, "5")) is None


async def test_g_16_a_settled_invite_is_no_longer_pending_and_is_still_known(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: group_joins.add_invite(unit, invite("1"), 9))
        await node.commit(lambda unit: group_joins.settle(unit, "1", group_joins.REJECTED, 8))
        found = await node.read(lambda unit: group_joins.invite(unit, "1"))
        assert found is not None
        assert (found.status, found.created_ms, found.updated_ms) == ("rejected", 5, 8)
        assert await node.read(lambda unit: group_joins.invites_of(unit, BOB)) == []
        assert await node.read(lambda unit: group_joins.count_invites(unit, GID)) == 0


async def test_all_pending_invites_of_a_group_end_at_once(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for one in (invite("1"), invite("2", CAROL), invite("3", gid=OTHER), invite("4", status="accepted")):
                group_joins.add_invite(unit, one, 9)

        await node.commit(fill)
        ended = await node.commit(lambda unit: group_joins.end_invites(unit, GID, 9))
        assert sorted(ended) == [(BOB, "1", ALICE), (CAROL, "2", ALICE)]
        assert await node.read(lambda unit: group_joins.count_invites(unit, GID)) == 0
        assert await node.read(lambda unit: group_joins.count_invites(unit, OTHER)) == 1
        kept = await node.read(lambda unit: group_joins.invite(unit, "4"))
        assert kept is not None
        assert kept.status == "accepted"


async def test_of_the_ended_invites_of_a_group_only_the_newest_are_kept(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for at in range(5):
                group_joins.add_invite(unit, invite(str(at), at_ms=at, status="rejected"), 2)
            group_joins.add_invite(unit, invite("p"), 2)
            group_joins.add_invite(unit, invite("o", gid=OTHER, status="rejected"), 2)

        await node.commit(fill)
        known = [await node.read(lambda unit, at=at: group_joins.invite(unit, at)) for at in "01234po"]
        assert [one.invite_id for one in known if one] == ["3", "4", "p", "o"]


async def test_g_14_an_applicant_has_one_request_and_the_last_one_counts(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for one in (request(CAROL, 7), request(BOB, 6, "rejected"), request(BOB, 8)):
                group_joins.put_request(unit, one)

        await node.commit(fill)
        assert await node.read(lambda unit: group_joins.request(unit, GID, BOB)) == request(BOB, 8)
        assert await node.read(lambda unit: group_joins.request(unit, GID, ALICE)) is None
        listed = await node.read(lambda unit: group_joins.requests(unit, GID, "pending", 9, 0))
        assert [one.aid for one in listed] == [CAROL, BOB]
        page = await node.read(lambda unit: group_joins.requests(unit, GID, "", 1, 1))
        assert [one.aid for one in page] == [BOB]
        counts = [await node.read(lambda unit, s=s: group_joins.count_requests(unit, GID, s)) for s in ("", "rejected")]
        assert counts == [2, 0]


@pytest.mark.parametrize(
    ("used", "revoked", "now_ms", "status"),
    [(0, 0, 99, "active"), (0, 0, 100, "expired"), (1, 0, 99, "active"), (2, 0, 99, "expired"), (2, 1, 100, "revoked")],
)
def test_g_15_a_code_is_active_until_its_time_its_uses_or_its_owner_end_it(
    used: int, revoked: int, now_ms: int, status: str
) -> None:
    assert Code("abc", GID, ALICE, 100, 2, used, revoked, 1).status(now_ms) == status


async def test_g_15_uses_and_revocation_of_a_code_are_kept(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for one in (code("b", at_ms=2), code("a"), code("c", gid=OTHER)):
                group_joins.add_code(unit, one)
            group_joins.use(unit, "a")
            group_joins.revoke_code(unit, "b")

        await node.commit(fill)
        found = await node.read(lambda unit: group_joins.codes(unit, GID))
        assert [(one.code, one.used, one.revoked) for one in found] == [("a", 1, 0), ("b", 0, 1)]
        assert await node.read(lambda unit: group_joins.code(unit, "c")) == code("c", gid=OTHER)
        assert await node.read(lambda unit: group_joins.code(unit, "d")) is None


async def test_codes_that_let_nobody_in_make_room(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for text, until_ms, uses in (("late", 50, 1), ("used", 100, 1), ("gone", 100, 1), ("good", 51, 2)):
                group_joins.add_code(unit, code(text, until_ms=until_ms, uses=uses))
            group_joins.use(unit, "used")
            group_joins.use(unit, "good")
            group_joins.revoke_code(unit, "gone")
            group_joins.add_code(unit, code("theirs", until_ms=1, gid=OTHER))
            group_joins.forget_dead_codes(unit, GID, 50)

        await node.commit(fill)
        assert [one.code for one in await node.read(lambda unit: group_joins.codes(unit, GID))] == ["good"]
        assert len(await node.read(lambda unit: group_joins.codes(unit, OTHER))) == 1


async def test_what_ended_long_ago_is_forgotten_and_what_is_pending_is_not(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for at_ms, name in ((49, "old"), (50, "new")):
                group_joins.add_invite(unit, invite(f"{name}-done", at_ms=at_ms, status="revoked"), 9)
                group_joins.add_invite(unit, invite(f"{name}-open", at_ms=at_ms), 9)
                group_joins.put_request(unit, request(f"{name}-done", at_ms, "approved"))
                group_joins.put_request(unit, request(f"{name}-open", at_ms))
                group_joins.add_code(unit, code(name, until_ms=at_ms))

        await node.commit(fill)
        assert not await node.read(lambda unit: group_joins.has_old(unit, 49))
        assert await node.read(lambda unit: group_joins.has_old(unit, 50))
        await node.commit(lambda unit: group_joins.forget(unit, 50))
        assert not await node.read(lambda unit: group_joins.has_old(unit, 50))
        names = ("old-done", "new-done", "old-open", "new-open")
        known = [await node.read(lambda unit, name=name: group_joins.invite(unit, name)) for name in names]
        assert [one is not None for one in known] == [False, True, True, True]
        left = await node.read(lambda unit: group_joins.requests(unit, GID, "", 9, 0))
        assert sorted(one.aid for one in left) == ["new-done", "new-open", "old-open"]
        assert [one.code for one in await node.read(lambda unit: group_joins.codes(unit, GID))] == ["new"]


@pytest.mark.parametrize("kind", ["invite", "request", "code"])
async def test_anything_old_is_reason_enough_to_look(tmp_path: Path, kind: str) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            if kind == "invite":
                group_joins.add_invite(unit, invite("1", status="accepted"), 9)
            elif kind == "request":
                group_joins.put_request(unit, request(BOB, status="rejected"))
            else:
                group_joins.add_code(unit, code(until_ms=5))

        assert not await node.read(lambda unit: group_joins.has_old(unit, 6))
        await node.commit(fill)
        assert await node.read(lambda unit: group_joins.has_old(unit, 6))


async def test_an_ended_group_keeps_no_requests_and_no_codes(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for gid in (GID, OTHER):
                group_joins.put_request(unit, request(BOB, gid=gid))
                group_joins.add_code(unit, code(gid, gid=gid))
            group_joins.clear(unit, GID)

        await node.commit(fill)
        for gid, left in ((GID, 0), (OTHER, 1)):
            assert await node.read(lambda unit, gid=gid: group_joins.count_requests(unit, gid, "")) == left
            assert len(await node.read(lambda unit, gid=gid: group_joins.codes(unit, gid))) == left
