"""Epochs of the first generation: spec aun-services §1.3, §5.1."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import InvalidParams, NotFound, NotMember, RoleInsufficient
from edge.contract.time import SECOND
from tests.support.groups import square
from tests.support.messaging import ALICE, BOB, CAROL, Client


async def begin(client: Client, gid: str, rotation: str = "r-1", base: int = 0, **more: Any) -> dict[str, Any]:
    asked = {"base_epoch": base, "target_epoch": base + 1, "rotation_id": rotation, "key_commitment": "c", **more}
    return await client.call("group.e2ee.begin_rotation", group_id=gid, **asked)


async def turn(client: Client, verb: str, rotation: str = "r-1", **more: Any) -> dict[str, Any]:
    return await client.call(f"group.e2ee.{verb}_rotation", rotation_id=rotation, **more)


async def ack(client: Client, rotation: str = "r-1", commitment: str = "c") -> dict[str, Any]:
    return await client.call("group.e2ee.ack_rotation_key", rotation_id=rotation, key_commitment=commitment)


async def epoch(client: Client, gid: str) -> dict[str, Any]:
    return await client.call("group.e2ee.get_epoch", group_id=gid)


@pytest.mark.seed("S0-160")
async def test_a_rotation_is_begun_acked_and_committed(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(admins=[town.bob])
        empty = await epoch(town.bob, gid)
        assert (empty["epoch"], empty["committed_epoch"], empty["pending_rotation"]) == (0, 0, None)
        assert (empty["owner_aid"], empty["recovery_candidates"]) == (ALICE, [ALICE, BOB])
        begun = await begin(town.alice, gid, expected_members=[BOB, ALICE], required_acks=[BOB])
        assert (begun["success"], begun["rotation"]["status"]) == (True, "distributing")
        assert begun["rotation"]["expected_members"] == [ALICE, BOB]
        assert (await epoch(town.bob, gid))["pending_rotation"]["rotation_id"] == "r-1"
        early = await turn(town.alice, "commit")
        assert (early["success"], early["reason"]) == (False, "acks_missing")
        wrong = await ack(town.bob, commitment="other")
        assert wrong["reason"] == "key_commitment_mismatch"
        assert (await ack(town.bob))["success"] is True
        done = await turn(town.alice, "commit")
        assert (done["success"], done["epoch"], done["committed_epoch"]) == (True, 1, 1)
        assert await turn(town.bob, "commit") == done
        assert (await ack(town.bob))["success"] is True
        now = await epoch(town.bob, gid)
        assert (now["epoch"], now["pending_rotation"], now["committed_rotation"]["rotation_id"]) == (1, None, "r-1")
        info = await town.bob.call("group.get_info", group_id=gid, required=["e2ee"])
        assert (info["e2ee_epoch"], info["epoch"]) == (1, 2)


async def test_one_rotation_at_a_time_follows_the_epoch_in_force(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(admins=[town.bob])
        found = await asyncio.gather(begin(town.alice, gid, "r-1"), begin(town.bob, gid, "r-2"))
        assert sorted(one["success"] for one in found) == [False, True]
        lost = next(one for one in found if not one["success"])
        won = next(one for one in found if one["success"])
        assert (lost["reason"], lost["rotation"]["rotation_id"]) == ("rotation_pending", won["rotation"]["rotation_id"])
        winner = town.alice if won["rotation"]["rotation_id"] == "r-1" else town.bob
        loser = town.bob if winner is town.alice else town.alice
        again = await begin(winner, gid, won["rotation"]["rotation_id"])
        assert again["success"] is True
        assert (await begin(loser, gid, won["rotation"]["rotation_id"]))["reason"] == "rotation_id_taken"
        await turn(winner, "commit", won["rotation"]["rotation_id"])
        assert (await begin(loser, gid, "r-3", base=0))["reason"] == "epoch_mismatch"
        assert (await begin(loser, gid, "r-3", base=1, target_epoch=3))["reason"] == "epoch_mismatch"
        assert (await begin(loser, gid, "r-3", base=1))["success"] is True


async def test_a_rotation_is_for_the_members_there_are(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        assert (await begin(town.alice, gid, expected_members=[ALICE]))["reason"] == "expected_members_mismatch"
        await begin(town.alice, gid)
        await town.alice.call("group.add_member", group_id=gid, aid=CAROL)
        assert (await turn(town.alice, "commit"))["reason"] == "expected_members_mismatch"
        assert (await epoch(town.alice, gid))["epoch"] == 0


async def test_a_lease_runs_out_unless_it_is_kept(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(admins=[town.bob])
        await begin(town.alice, gid, lease_ms=2_000)
        town.clock.advance(SECOND)
        assert (await turn(town.alice, "heartbeat", lease_ms=5_000))["success"] is True
        assert (await turn(town.bob, "heartbeat"))["reason"] == "not_distributing"
        town.clock.advance(4 * SECOND)
        assert (await begin(town.bob, gid, "r-2"))["reason"] == "rotation_pending"
        town.clock.advance(2 * SECOND)
        assert (await epoch(town.bob, gid))["pending_rotation"]["expired"] is True
        assert (await turn(town.alice, "commit"))["reason"] == "rotation_expired"
        assert (await begin(town.bob, gid, "r-2"))["success"] is True
        assert (await ack(town.alice, "r-1"))["reason"] == "rotation_aborted"
        assert (await turn(town.alice, "heartbeat", "r-1"))["reason"] == "not_distributing"
        assert (await turn(town.bob, "commit", "r-2"))["epoch"] == 1


async def test_a_lease_has_a_longest(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.rotation_lease_ms": 3_000}) as town:
        gid = await town.found()
        await begin(town.alice, gid, lease_ms=1 << 40)
        town.clock.advance(3 * SECOND)
        assert (await turn(town.alice, "commit"))["reason"] == "rotation_expired"


async def test_a_rotation_can_be_given_up(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        await begin(town.alice, gid)
        ended = await turn(town.alice, "abort", reason="changed my mind")
        assert (ended["success"], ended["rotation"]["status"]) == (True, "aborted")
        assert (await turn(town.alice, "commit"))["reason"] == "rotation_expired"
        await begin(town.alice, gid, "r-2")
        await turn(town.alice, "commit", "r-2")
        assert (await turn(town.alice, "abort", "r-2"))["reason"] == "already_committed"


async def test_one_call_steps_to_the_next_epoch_when_nothing_is_under_way(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()

        async def step(**how: int) -> dict[str, Any]:
            return await town.alice.call("group.e2ee.rotate_epoch", group_id=gid, **how)

        assert (await step())["epoch"] == 1
        assert (await step(current_epoch=1))["epoch"] == 2
        assert (await step(current_epoch=1))["reason"] == "epoch_mismatch"
        await begin(town.alice, gid, base=2)
        assert (await step())["reason"] == "rotation_pending"


async def test_g3_rotations_are_for_admins_and_acks_for_members(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.carol)
        await begin(town.alice, gid)
        assert (await ack(town.carol))["success"] is True
        for verb in ("commit", "heartbeat", "abort"):
            with pytest.raises(RoleInsufficient):
                await turn(town.carol, verb)
            with pytest.raises(NotMember):
                await turn(town.bob, verb)
            with pytest.raises(NotFound):
                await turn(town.alice, verb, "r-none")
        with pytest.raises(NotMember):
            await ack(town.bob)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rotation_id": ""},
        {"key_commitment": ""},
        {"rotation_id": "x" * 129},
        {"base_epoch": -1},
        {"target_epoch": 0},
        {"target_epoch": 1 << 31},
        {"expected_members": [BOB] * 1_001},
    ],
)
async def test_a_rotation_that_makes_no_sense_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        before = await town.everything()
        with pytest.raises(InvalidParams):
            await begin(town.alice, gid, **wrong)
        assert await town.everything() == before


async def test_only_the_newest_rotations_are_remembered(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.rotations": 2}) as town:
        gid = await town.found()
        for number in range(4):
            town.clock.advance(SECOND)
            await begin(town.alice, gid, f"r-{number}", base=number)
            await turn(town.alice, "commit", f"r-{number}")
        with pytest.raises(NotFound):
            await turn(town.alice, "commit", "r-1")
        assert (await turn(town.alice, "commit", "r-2"))["success"] is True
