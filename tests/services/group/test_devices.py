"""Which devices a message to a group is for, when members bring more than fit: spec §5.3, rule G-20."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.contract.errors import RecipientsStale
from edge.contract.store import Unit
from edge.contract.time import SECOND
from edge.contract.wire import dumps
from edge.services.group import devices, limits
from edge.session.conversation import ANSWER
from edge.store import group_keys, groups, messages
from edge.store.group_keys import GroupSpk
from edge.store.messages import Spk
from tests.support.groups import Square, publish_key, seal, square
from tests.support.messaging import ALICE, BOB, CAROL, Client


async def published(town: Square, gid: str, **names: str) -> None:
    """One key after the other, a second apart."""
    for aid, wanted in ((ALICE, names.get("alice")), (BOB, names.get("bob")), (CAROL, names.get("carol"))):
        for name in (wanted or "").split():
            town.clock.advance(SECOND)
            await publish_key(town.post.offline(aid, name), gid)


async def listed(client: Client, gid: str) -> list[tuple[str, str]]:
    found = (await client.call("group.v2.bootstrap", group_id=gid))["devices"]
    return [(one["aid"], one["device_id"]) for one in found]


@pytest.mark.limit("group.listed_devices")
async def test_of_more_devices_than_one_message_is_for_the_newest_of_each_member_are_listed(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.listed_devices": 5}) as town:
        gid = await town.found(town.bob, town.carol)
        await published(town, gid, alice="a3 a1", bob="b1", carol="c2 c1")
        everybody = [(ALICE, "a1"), (ALICE, "a3"), (BOB, "b1"), (CAROL, "c1"), (CAROL, "c2")]
        assert await listed(town.bob, gid) == everybody
        assert town.limits.hits == {}
        await published(town, gid, alice="a2 a4")
        newest = [(ALICE, "a2"), (ALICE, "a4"), (BOB, "b1"), (CAROL, "c1"), (CAROL, "c2")]
        assert await listed(town.bob, gid) == newest
        assert town.limits.hits == {"group.listed_devices": 1}


async def test_one_member_with_very_many_devices_costs_nobody_else_one(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.listed_devices": 10}) as town:
        gid = await town.found(town.bob, town.carol)
        await published(town, gid, bob="b1 b2", carol="c1", alice=" ".join(f"a{n:02}" for n in range(20)))
        found = await listed(town.bob, gid)
        assert [one for one in found if one[0] != ALICE] == [(BOB, "b1"), (BOB, "b2"), (CAROL, "c1")]
        assert [name for aid, name in found if aid == ALICE] == [f"a{n:02}" for n in range(13, 20)]


async def test_who_was_left_out_is_listed_again_with_its_next_key_of_either_kind(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.listed_devices": 2}) as town:
        gid = await town.found(town.bob)
        await published(town, gid, alice="a1 a2", bob="b1")
        assert await listed(town.bob, gid) == [(ALICE, "a2"), (BOB, "b1")]
        await published(town, gid, alice="a1")
        assert await listed(town.bob, gid) == [(ALICE, "a1"), (BOB, "b1")]
        spk = Spk("a2", "sha256:0", "eA==", "eA==", 1)
        later_ms = town.clock.wall(town.clock.now())[0] // 1000 + 1
        await town.post.node.commit(lambda unit: messages.put_spk(unit, ALICE, spk, later_ms))
        assert await listed(town.bob, gid) == [(ALICE, "a2"), (BOB, "b1")]


async def test_a_message_is_asked_to_be_for_those_that_are_listed(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.listed_devices": 2}) as town:
        gid = await town.found(town.bob)
        await published(town, gid, alice="a1 a2", bob="b1")
        bob = town.post.offline(BOB, "b1")
        assert (await seal(bob, gid, [(ALICE, "a2"), (BOB, "b1")], "m-1"))["seq"] == 1
        assert (await seal(bob, gid, [(ALICE, "a1"), (ALICE, "a2"), (BOB, "b1")], "m-2"))["seq"] == 2
        with pytest.raises(RecipientsStale):
            await seal(bob, gid, [(ALICE, "a1"), (BOB, "b1")], "m-3")


@pytest.mark.limit("group.listed_octets")
async def test_the_bytes_of_the_listed_devices_are_bounded_too(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await published(town, gid, alice="a1 a2 a3", bob="b1")
        rows = (await town.bob.call("group.v2.bootstrap", group_id=gid))["devices"]
    whole = 0
    for row in rows:
        octets = sum(len(row[name]) for name in ("aid", "device_id", "spk_pk", "spk_signature")) + devices.ROW_OCTETS
        assert len(dumps(row)) < octets
        whole += octets
    for most, names in ((whole, ["a1", "a2", "a3"]), (whole - 1, ["a2", "a3"])):
        async with square(tmp_path, limits={"group.listed_octets": most}) as town:
            assert [name for aid, name in await listed(town.bob, gid) if aid == ALICE] == names
            assert town.limits.hits.get("group.listed_octets", 0) == (most < whole)


async def test_the_largest_group_has_an_answer_and_so_a_message(tmp_path: Path) -> None:
    """As many members as may be, each with more devices than fit, with keys and names as long as may be."""
    async with square(tmp_path) as town:
        gid = await town.found()
        names = [f"{n:x}".rjust(64, "m") + "." + "e" * 188 for n in range(limits.MEMBERS.default - 1)]
        key = "k" * (limits.KEY_OCTETS.default - 88)

        def fill(unit: Unit) -> None:
            for aid in names:
                member = groups.member(unit, gid, ALICE)
                assert member is not None
                groups.join(
                    unit, type(member)(**{f: getattr(member, f) for f in member.__struct_fields__} | {"aid": aid})
                )
                for place in range(4):
                    spk = GroupSpk(aid, f"{place:x}".rjust(36, "d"), "sha256:" + "0" * 16, key, "s" * 88, 1 << 40)
                    group_keys.put_spk(unit, gid, spk, place)

        await town.post.node.commit(fill)
        found = await town.post.node.commit(lambda unit: devices.listed(unit, gid, [ALICE, *names], town.limits))
    assert [row["aid"] for row in found] == sorted([ALICE, *names])
    assert len(dumps(found)) <= limits.LISTED_OCTETS.default
    named = 3 * limits.MEMBERS.default * 256  # members, those vouched for, those that are not yet
    assert limits.LISTED_OCTETS.default + named + 2 * limits.SNAPSHOT.default <= ANSWER.default
