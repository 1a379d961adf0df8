"""Tables of group encryption: device prekeys, proposals and the state, rotations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.contract.store import Unit
from edge.store import group_keys
from edge.store.group_keys import GroupSpk, Proposal, Rotation
from tests.support.store import database

GID, OTHER = "g-c0ffee.edge.test", "family.edge.test"
ALICE, BOB = "alice.edge.test", "bobb.edge.test"


def spk(aid: str = ALICE, device: str = "a1", spk_id: str = "sha256:1") -> GroupSpk:
    return GroupSpk(aid, device, spk_id, "pk", "sig", 1_750_000_000)


def proposal(proposal_id: str, gid: str = GID, **more: Any) -> Proposal:
    fields: dict[str, Any] = {
        "version": 1,
        "epoch": 3,
        "hash": "h1",
        "previous": "",
        "snapshot": '{"members": [ ]}',
        "signature": "sig",
        "actor": ALICE,
        "reason": "r",
        "auto_ms": 100,
        "created_ms": 10,
    }
    return Proposal(proposal_id=proposal_id, gid=gid, **(fields | more))


def rotation(rotation_id: str = "r1", target: int = 1, gid: str = GID, **more: Any) -> Rotation:
    fields: dict[str, Any] = {
        "base": target - 1,
        "reason": "r",
        "commitment": "c",
        "expected": b'["alice.edge.test"]',
        "required": b"[]",
        "by": ALICE,
        "lease_ms": 100,
        "created_ms": target,
    }
    return Rotation(gid=gid, rotation_id=rotation_id, target=target, **(fields | more))


async def test_a_device_has_one_prekey_in_a_group_and_the_newest_counts(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for one in (spk(BOB, "b1"), spk(), spk(device="a2"), spk(spk_id="sha256:2")):
                group_keys.put_spk(unit, GID, one, 5)
            group_keys.put_spk(unit, OTHER, spk(), 5)

        await node.commit(fill)
        assert await node.read(lambda unit: group_keys.spks(unit, GID)) == [
            spk(spk_id="sha256:2"),
            spk(device="a2"),
            spk(BOB, "b1"),
        ]
        assert await node.read(lambda unit: group_keys.spks_of(unit, GID, ALICE)) == [
            spk(spk_id="sha256:2"),
            spk(device="a2"),
        ]
        keys = len(spk().spk_pk) + len(spk().signature)
        assert sorted(await node.read(lambda unit: group_keys.spk_sizes(unit, GID))) == [
            (ALICE, spk().device, 5, keys),
            (ALICE, "a2", 5, keys),
            (BOB, "b1", 5, keys),
        ]
        await node.commit(lambda unit: group_keys.drop_spks(unit, GID, ALICE))
        assert await node.read(lambda unit: group_keys.spks(unit, GID)) == [spk(BOB, "b1")]
        assert await node.read(lambda unit: group_keys.spks(unit, OTHER)) == [spk()]


async def test_g_19_the_strings_of_a_proposal_come_back_unchanged(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        made = proposal("p1", snapshot=' {"members" : ["ü"]}\n', signature="s=")
        await node.commit(lambda unit: group_keys.propose(unit, made))
    async with database(tmp_path) as node:
        assert await node.read(lambda unit: group_keys.proposal(unit, "p1")) == made
        assert await node.read(lambda unit: group_keys.proposal(unit, "p2")) is None


async def test_the_newest_proposal_that_waits_is_the_pending_one(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for one in (proposal("p1", created_ms=9), proposal("p2"), proposal("p3", OTHER, created_ms=99)):
                group_keys.propose(unit, one)

        await node.commit(fill)
        assert await node.read(lambda unit: group_keys.pending(unit, GID)) == proposal("p2")
        assert await node.read(lambda unit: group_keys.count_pending(unit, GID)) == 2
        await node.commit(lambda unit: group_keys.supersede(unit, "p2"))
        assert await node.read(lambda unit: group_keys.pending(unit, GID)) == proposal("p1", created_ms=9)
        await node.commit(lambda unit: group_keys.supersede(unit, "p1"))
        assert await node.read(lambda unit: group_keys.pending(unit, GID)) is None


async def test_g_19_the_proposal_that_is_confirmed_is_the_state_and_the_others_are_superseded(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for one in (proposal("p1"), proposal("p2"), proposal("p3", OTHER)):
                group_keys.propose(unit, one)
            assert group_keys.state(unit, GID) is None
            group_keys.confirm(unit, proposal("p1"), "chain", 50)

        await node.commit(fill)
        state = await node.read(lambda unit: group_keys.state(unit, GID))
        assert state is not None
        assert (state.chain, state.confirmed_ms) == ("chain", 50)
        assert state.proposal == proposal("p1", status=group_keys.CONFIRMED)
        statuses = []
        for name in ("p1", "p2", "p3"):
            found = await node.read(lambda unit, name=name: group_keys.proposal(unit, name))
            statuses.append(found.status if found else "")
        assert statuses == ["confirmed", "superseded", "pending"]
        assert await node.read(lambda unit: group_keys.state(unit, OTHER)) is None


async def test_proposals_fall_due_in_the_order_of_their_time(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        assert await node.read(group_keys.next_due) is None

        def fill(unit: Unit) -> None:
            for name, auto_ms in (("p1", 30), ("p2", 20), ("p3", 10), ("p4", 31)):
                group_keys.propose(unit, proposal(name, auto_ms=auto_ms))
            group_keys.supersede(unit, "p3")

        await node.commit(fill)
        assert await node.read(group_keys.next_due) == 20
        assert [one.proposal_id for one in await node.read(lambda unit: group_keys.due(unit, 30, 9))] == ["p2", "p1"]
        assert [one.proposal_id for one in await node.read(lambda unit: group_keys.due(unit, 30, 1))] == ["p2"]
        assert await node.read(lambda unit: group_keys.due(unit, 19, 9)) == []


async def test_settled_proposals_are_forgotten_except_the_state(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for name, created_ms in (("state", 1), ("lost", 1), ("young", 50)):
                group_keys.propose(unit, proposal(name, created_ms=created_ms))
            group_keys.confirm(unit, proposal("state"), "chain", 1)
            group_keys.propose(unit, proposal("waits", created_ms=1))
            group_keys.forget_settled(unit, 50)

        await node.commit(fill)
        names = ("state", "lost", "young", "waits")
        known = [await node.read(lambda unit, name=name: group_keys.proposal(unit, name)) for name in names]
        assert [one is not None for one in known] == [True, False, True, True]


async def test_a_rotation_is_kept_as_it_now_is(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: group_keys.put_rotation(unit, rotation(), 9))
        changed = rotation(acked=b'["alice.edge.test"]', status=group_keys.COMMITTED)
        await node.commit(lambda unit: group_keys.put_rotation(unit, changed, 9))
        assert await node.read(lambda unit: group_keys.rotation(unit, "r1")) == changed
        assert await node.read(lambda unit: group_keys.rotation(unit, "r2")) is None
        last = await node.read(lambda unit: group_keys.last_rotation(unit, GID, group_keys.COMMITTED))
        assert last == changed
        assert await node.read(lambda unit: group_keys.last_rotation(unit, GID, group_keys.DISTRIBUTING)) is None


async def test_the_last_rotation_of_a_status_is_the_one_with_the_highest_target(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for target in (2, 3, 1):
                group_keys.put_rotation(unit, rotation(f"r{target}", target), 9)
            group_keys.put_rotation(unit, rotation("r4", 4, status=group_keys.ABORTED), 9)
            group_keys.put_rotation(unit, rotation("r9", 9, OTHER), 9)

        await node.commit(fill)
        found = await node.read(lambda unit: group_keys.last_rotation(unit, GID, group_keys.DISTRIBUTING))
        assert found is not None
        assert found.rotation_id == "r3"


async def test_of_each_group_the_newest_rotations_are_kept(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            group_keys.put_rotation(unit, rotation("o", 1, OTHER), 2)
            for target in (1, 2, 3):
                group_keys.put_rotation(unit, rotation(f"r{target}", target), 2)

        await node.commit(fill)
        names = ("r1", "r2", "r3", "o")
        known = [await node.read(lambda unit, name=name: group_keys.rotation(unit, name)) for name in names]
        assert [one is not None for one in known] == [False, True, True, True]


@pytest.mark.parametrize(("gid", "left"), [(GID, False), (OTHER, True)])
async def test_an_ended_group_keeps_no_keys_and_others_keep_theirs(tmp_path: Path, gid: str, left: bool) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for one in (GID, OTHER):
                group_keys.put_spk(unit, one, spk(), 1)
                group_keys.propose(unit, proposal(f"p-{one}", one))
                group_keys.confirm(unit, proposal(f"p-{one}", one), "chain", 1)
                group_keys.put_rotation(unit, rotation(f"r-{one}", 1, one), 9)
            group_keys.clear(unit, GID)

        await node.commit(fill)
        assert bool(await node.read(lambda unit: group_keys.spks(unit, gid))) is left
        assert (await node.read(lambda unit: group_keys.state(unit, gid)) is not None) is left
        assert (await node.read(lambda unit: group_keys.proposal(unit, f"p-{gid}")) is not None) is left
        assert (await node.read(lambda unit: group_keys.rotation(unit, f"r-{gid}")) is not None) is left
