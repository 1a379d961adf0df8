"""Group keys of the first generation: epochs and rotations (spec aun-services §5.1, §1.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import InvalidParams, NotFound, NotMember, RoleInsufficient
from edge.contract.time import SECOND
from edge.services.group.legacy import MAX_EPOCH
from edge.store import group_keys
from tests.support.groups import Square, square
from tests.support.messaging import ALICE, BOB, CAROL, Client


async def begin(client: Client, gid: str, base: int = 0, name: str = "r-1", **more: Any) -> dict[str, Any]:
    fields = {"base_epoch": base, "target_epoch": base + 1, "rotation_id": name, "key_commitment": "c-1", **more}
    return await client.call("group.e2ee.begin_rotation", group_id=gid, **fields)


async def turn(client: Client, verb: str, name: str = "r-1", **more: Any) -> dict[str, Any]:
    return await client.call(f"group.e2ee.{verb}", rotation_id=name, **more)


async def ack(client: Client, name: str = "r-1", commitment: str = "c-1") -> dict[str, Any]:
    return await turn(client, "ack_rotation_key", name, key_commitment=commitment)


async def epoch(client: Client, gid: str) -> dict[str, Any]:
    return await client.call("group.e2ee.get_epoch", group_id=gid)


async def crew(town: Square) -> str:
    """Alice owns it, Bob is an admin, Carol a member."""
    return await town.found(town.carol, admins=[town.bob])


async def test_a_new_group_has_no_key_and_says_who_could_make_one(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await crew(town)
        assert await epoch(town.carol, gid) == {
            "group_id": gid,
            "epoch": 0,
            "committed_epoch": 0,
            "owner_aid": ALICE,
            "pending_rotation": None,
            "committed_rotation": None,
            "recovery_candidates": [ALICE, BOB],
        }


async def test_every_answer_says_the_epoch_also_the_first_which_is_zero(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await crew(town)
        answers = [
            await begin(town.alice, gid, base=3),
            await begin(town.alice, gid, expected_members=[ALICE]),
            await begin(town.alice, gid),
            await ack(town.carol),
            await turn(town.alice, "heartbeat_rotation"),
            await turn(town.alice, "abort_rotation"),
            await town.alice.call("group.e2ee.rotate_epoch", group_id=gid, current_epoch=9),
        ]
        assert [(one["epoch"], one["committed_epoch"]) for one in answers] == [(0, 0)] * len(answers)
        assert [one["success"] for one in answers] == [False, False, True, True, True, True, False]
        assert ["reason" in one for one in answers] == [not one["success"] for one in answers]


async def test_a_rotation_is_begun_acknowledged_and_committed(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await crew(town)
        begun = await begin(town.alice, gid, expected_members=[CAROL, ALICE, BOB], required_acks=[CAROL, CAROL])
        assert (begun["success"], begun["rotation"]["status"], begun["rotation"]["initiator_aid"]) == (
            True,
            "distributing",
            ALICE,
        )
        assert begun["rotation"]["expected_members"] == [ALICE, BOB, CAROL]
        early = await turn(town.alice, "commit_rotation")
        assert (early["success"], early["reason"]) == (False, "acks_missing")
        for _ in range(2):
            assert (await ack(town.carol))["success"]
        assert (await epoch(town.bob, gid))["pending_rotation"]["acked"] == [CAROL]
        done = await turn(town.alice, "commit_rotation")
        assert (done["success"], done["epoch"], done["rotation"]["status"]) == (True, 1, "committed")
        assert await turn(town.alice, "commit_rotation") == done
        found = await epoch(town.carol, gid)
        assert (found["epoch"], found["pending_rotation"]) == (1, None)
        assert found["committed_rotation"]["rotation_id"] == "r-1"
        info = await town.carol.call("group.get", group_id=gid)
        assert info["group"]["e2ee_epoch"] == 1


async def test_a_late_acknowledgement_still_counts(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await crew(town)
        await begin(town.alice, gid)
        await turn(town.alice, "commit_rotation")
        assert (await ack(town.carol))["success"]
        assert (await epoch(town.alice, gid))["committed_rotation"]["acked"] == [CAROL]


async def test_exactly_one_rotation_follows_an_epoch(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await crew(town)
        first = await begin(town.alice, gid)
        second = await begin(town.bob, gid, name="r-2")
        assert (second["success"], second["reason"], second["rotation"]) == (
            False,
            "rotation_pending",
            first["rotation"],
        )
        assert await begin(town.alice, gid) == first
        await turn(town.alice, "commit_rotation")
        for base, target in ((0, 1), (0, 2), (1, 3)):
            late = await begin(town.bob, gid, base, "r-2", target_epoch=target)
            assert (late["success"], late["reason"], late["epoch"]) == (False, "epoch_mismatch", 1)
        assert (await begin(town.bob, gid, 1, "r-2"))["success"]


async def test_a_rotation_for_other_members_than_there_are_is_not_begun_and_not_committed(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await crew(town)
        wrong = await begin(town.alice, gid, expected_members=[ALICE, BOB])
        assert (wrong["success"], wrong["reason"]) == (False, "expected_members_mismatch")
        await begin(town.alice, gid)
        await town.alice.call("group.kick", group_id=gid, aid=CAROL)
        late = await turn(town.alice, "commit_rotation")
        assert (late["success"], late["reason"]) == (False, "expected_members_mismatch")
        assert (await epoch(town.alice, gid))["epoch"] == 0


@pytest.mark.limit("group.rotation_lease_ms")
async def test_a_lease_ends_unless_its_owner_keeps_it_alive(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.rotation_lease_ms": 20_000}) as town:
        gid = await crew(town)
        begun = (await begin(town.alice, gid, lease_ms=1 << 40))["rotation"]
        assert begun["lease_expires_at"] - begun["created_at"] == 20_000
        town.clock.advance(15 * SECOND)
        other = await turn(town.bob, "heartbeat_rotation")
        assert (other["success"], other["reason"]) == (False, "not_distributing")
        assert (await turn(town.alice, "heartbeat_rotation", lease_ms=20_000))["success"]
        town.clock.advance(15 * SECOND)
        assert (await begin(town.bob, gid, name="r-2"))["reason"] == "rotation_pending"
        town.clock.advance(5 * SECOND)
        assert (await epoch(town.bob, gid))["pending_rotation"]["expired"] is True
        assert (await turn(town.alice, "commit_rotation"))["reason"] == "rotation_expired"
        assert (await begin(town.bob, gid, name="r-2"))["success"]
        assert (await ack(town.carol))["reason"] == "rotation_aborted"
        assert (await turn(town.bob, "heartbeat_rotation", "r-2", lease_ms=0))["success"]
        shortest = (await epoch(town.bob, gid))["pending_rotation"]
        assert shortest["lease_expires_at"] - town.clock.wall(town.clock.now())[0] // 1000 == 1_000


async def test_an_aborted_rotation_cannot_be_committed_nor_a_committed_one_aborted(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await crew(town)
        await begin(town.alice, gid)
        assert (await turn(town.bob, "abort_rotation"))["rotation"]["status"] == "aborted"
        assert (await turn(town.alice, "commit_rotation"))["reason"] == "rotation_expired"
        again = await begin(town.alice, gid)
        assert (again["success"], again["reason"]) == (False, "rotation_id_taken")
        await begin(town.alice, gid, name="r-2")
        await turn(town.alice, "commit_rotation", "r-2")
        kept = await turn(town.alice, "abort_rotation", "r-2")
        assert (kept["success"], kept["reason"], kept["epoch"]) == (False, "already_committed", 1)


async def test_an_acknowledgement_of_another_key_is_refused(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await crew(town)
        await begin(town.alice, gid)
        wrong = await ack(town.carol, commitment="c-2")
        assert (wrong["success"], wrong["reason"]) == (False, "key_commitment_mismatch")
        assert (await epoch(town.alice, gid))["pending_rotation"]["acked"] == []


async def test_an_id_that_another_group_uses_is_taken_and_says_nothing_of_that_group(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        theirs, mine = await crew(town), await town.found(owner=town.dave)
        await begin(town.alice, theirs)
        taken = await begin(town.dave, mine)
        assert (taken["success"], taken["reason"]) == (False, "rotation_id_taken")
        assert not any(word in str(taken) for word in (theirs, ALICE, BOB, CAROL, "c-1"))


async def test_rotations_are_named_by_their_id_and_each_step_needs_its_role(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await crew(town)
        await begin(town.alice, gid)
        for verb in ("ack_rotation_key", "commit_rotation", "heartbeat_rotation", "abort_rotation"):
            with pytest.raises(NotFound):
                await turn(town.alice, verb, "r-2")
            with pytest.raises(NotMember):
                await turn(town.dave, verb)
            if verb != "ack_rotation_key":
                with pytest.raises(RoleInsufficient):
                    await turn(town.carol, verb)
        assert (await epoch(town.alice, gid))["pending_rotation"]["status"] == "distributing"


@pytest.mark.limit("group.read_length", "group.members")
@pytest.mark.parametrize(
    "wrong",
    [
        {"rotation_id": ""},
        {"rotation_id": "x" * 129},
        {"key_commitment": ""},
        {"key_commitment": "x" * 129},
        {"reason": "x" * 129},
        {"base_epoch": -1},
        {"target_epoch": 0},
        {"base_epoch": MAX_EPOCH, "target_epoch": MAX_EPOCH + 1},
        {"expected_members": ["x.edge.test"] * 8, "required_acks": ["x.edge.test"] * 3},
    ],
)
async def test_a_rotation_that_cannot_be_right_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with square(tmp_path, limits={"group.members": 5}) as town:
        gid = await crew(town)
        before = await town.everything()
        with pytest.raises(InvalidParams):
            await begin(town.alice, gid, **wrong)
        assert await town.everything() == before


async def test_an_epoch_may_be_stepped_on_in_one_call_when_nothing_is_under_way(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await crew(town)

        async def step(**how: int) -> dict[str, Any]:
            return await town.bob.call("group.e2ee.rotate_epoch", group_id=gid, **how)

        assert await step() == {"success": True, "epoch": 1, "committed_epoch": 1}
        stale = await step(current_epoch=0)
        assert (stale["success"], stale["reason"], stale["epoch"]) == (False, "epoch_mismatch", 1)
        assert (await step(current_epoch=1))["epoch"] == 2
        await begin(town.alice, gid, 2)
        busy = await step()
        assert (busy["success"], busy["reason"]) == (False, "rotation_pending")
        assert (await epoch(town.carol, gid))["epoch"] == 2


@pytest.mark.limit("group.rotations")
async def test_a_group_remembers_only_so_many_rotations(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.rotations": 2}) as town:
        gid = await crew(town)
        for at in range(3):
            await begin(town.alice, gid, at, f"r-{at}")
            await turn(town.alice, "commit_rotation", f"r-{at}")
            town.clock.advance(SECOND)
        known = [await town.post.node.read(lambda unit, at=at: group_keys.rotation(unit, f"r-{at}")) for at in range(3)]
        assert [one is not None for one in known] == [False, True, True]
