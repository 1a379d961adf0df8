"""Events of groups and hints at connect: rules G-5, G-8, G-22 of the service spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.contract.errors import GroupNotFound, InvalidParams, NotMember
from edge.contract.store import INCARNATION_SHIFT
from edge.contract.time import SECOND
from edge.store import ledger
from edge.store.group_logs import EVENTS
from tests.support.groups import events, news, publish_key, say, seal, square
from tests.support.messaging import ALICE, BOB, CAROL, FIRST, PEER, Client


async def hints(client: Client) -> list[tuple[str, int]]:
    """What a connection was told to fetch: messages or events, up to a number."""
    waiting = "group.online_unread_hint"
    told = [
        ("messages", one["seq"])
        for one in await client.events("group.v2.message_created")
        if one.get("kind") == waiting
    ]
    return told + [
        ("events", one["event_seq"]) for one in await client.events("group.changed") if one.get("kind") == waiting
    ]


@pytest.mark.seed("S0-160")
async def test_g5_every_change_of_members_is_one_event_for_those_before_and_after(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        alice, bob = [await town.post.connect(aid, "d", announced=PEER) for aid in (ALICE, BOB)]
        await town.alice.call("group.add_member", group_id=gid, aid=BOB)
        await town.alice.call("group.set_role", group_id=gid, aid=BOB, role="admin")
        await town.alice.call("group.kick", group_id=gid, aid=BOB)
        await town.alice.call("group.add_member", group_id=gid, aid=BOB)
        await town.bob.call("group.leave", group_id=gid)
        actions = ["member_added", "role_changed", "member_removed", "member_added", "member_left"]
        assert await events(alice, gid, after=1) == list(enumerate(actions, start=2))
        assert await news(alice) == await news(bob) == actions
        told = [one for one in await bob.events("group.changed") if "action" in one]
        assert [one["event_seq"] for one in told] == [2, 3, 4, 5, 6]
        assert told[2]["removed_aid"] == told[4]["left_aid"] == BOB


async def test_g5_messages_write_no_event(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        for _ in range(3):
            await say(town.alice, gid)
        assert len(await events(town.alice, gid)) == 2


async def test_who_joins_reads_events_from_their_own_coming_on(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, town.carol)
        carol = town.post.offline(CAROL, "c1")
        page = await carol.call("group.pull_events", group_id=gid, after_event_seq=0)
        assert [one["event_seq"] for one in page["events"]] == [3]
        assert page["events"][0]["member_aid"] == CAROL
        assert (page["earliest_available_event_seq"], page["latest_event_seq"], page["has_more"]) == (3, 3, False)
        assert page["cursor"] == {
            "current_seq": 2,
            "join_seq": 2,
            "latest_seq": 3,
            "retention_floor_seq": 0,
            "unread_count": 1,
        }


async def test_g8_event_cursors_go_forward_only_and_belong_to_a_device(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        for name in ("a", "b", "c"):
            await town.alice.call("group.update", group_id=gid, name=name)
        one, two = town.post.offline(ALICE, "a1"), town.post.offline(ALICE, "a2")
        assert (await one.call("group.ack_events", group_id=gid, event_seq=3))["cursor"] == 3
        assert (await one.call("group.ack_events", group_id=gid, seq=1))["cursor"] == 3
        assert [seq for seq, _ in await _unread(one, gid)] == [4, 5]
        assert [seq for seq, _ in await _unread(two, gid)] == [1, 2, 3, 4, 5]
        done = await one.call("group.ack_events", group_id=gid, event_seq=1 << 52)
        assert (done["cursor"], done["latest_event_seq"]) == (5, 5)
        assert (await two.call("group.ack_events", group_id=gid, event_seq=-3))["cursor"] == 0
        for name in ("device_name", "device_type"):
            with pytest.raises(InvalidParams):
                await one.call("group.ack_events", group_id=gid, event_seq=1, **{name: "x" * 65})


async def _unread(client: Client, gid: str) -> list[tuple[int, str]]:
    page = await client.call("group.pull_events", group_id=gid)
    return [(one["event_seq"], one["action"]) for one in page["events"]]


async def test_events_come_in_pages(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        for n in range(5):
            await town.alice.call("group.update", group_id=gid, name=f"{n}")
        found: list[int] = []
        for _ in range(10):
            page = await town.alice.call("group.pull_events", group_id=gid, after_event_seq=len(found), limit=2)
            found += [one["event_seq"] for one in page["events"]]
            if not page["has_more"]:
                break
        assert found == [1, 2, 3, 4, 5, 6]
        assert page["events"] != []


@pytest.mark.limit("group.event_octets")
async def test_only_so_much_of_events_is_kept(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.event_octets": 2_000}) as town:
        gid = await town.found()
        for n in range(30):
            await town.alice.call("group.update", group_id=gid, name=f"{n}")
        page = await town.post.offline(ALICE, "a1").call(
            "group.pull_events", group_id=gid, after_event_seq=0, limit=200
        )
        floor = page["retention_floor_event_seq"]
        assert floor > 0
        assert [one["event_seq"] for one in page["events"]] == list(range(floor + 1, 32))
        assert town.limits.hits["group.event_octets"] > 0


# Who is gone.


async def test_g22_who_was_put_out_reads_events_up_to_then_and_none_after(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await town.alice.call("group.kick", group_id=gid, aid=BOB)
        await town.alice.call("group.update", group_id=gid, name="secret plans")
        bob = town.post.offline(BOB, "b1")
        assert await events(bob, gid) == [(2, "member_added"), (3, "member_removed")]
        page = await bob.call("group.pull_events", group_id=gid)
        assert (page["latest_event_seq"], page["has_more"]) == (3, False)
        assert (await bob.call("group.ack_events", group_id=gid, event_seq=9))["cursor"] == 3
        assert await _unread(bob, gid) == []
        with pytest.raises(NotMember):
            await events(town.carol, gid)


async def test_g22_who_went_and_came_back_reads_on_from_their_return(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await town.alice.call("group.kick", group_id=gid, aid=BOB)
        await town.alice.call("group.update", group_id=gid, name="secret plans")
        await town.alice.call("group.add_member", group_id=gid, aid=BOB)
        assert await events(town.bob, gid) == [(5, "member_added")]


@pytest.mark.limit("group.kept_s")
async def test_a_departure_is_remembered_for_a_stated_time(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.kept_s": 600}) as town:
        gid = await town.found(town.carol, town.bob)
        gone = await town.found(town.bob)
        await town.post.offline(BOB, "b1").call("group.ack", group_id=gid, msg_seq=0)
        await town.alice.call("group.kick", group_id=gid, aid=BOB)
        await town.alice.call("group.dissolve", group_id=gone)
        await town.clock.pass_(540 * SECOND)
        assert len(await events(town.bob, gid)) == len(await events(town.bob, gone)) == 2
        await town.clock.pass_(180 * SECOND)
        await town.post.rest()
        with pytest.raises(NotMember):
            await events(town.bob, gid)
        with pytest.raises(GroupNotFound):
            await events(town.bob, gone)
        assert (
            await town.post.node.read(lambda unit: unit.run("SELECT * FROM group_cursor WHERE aid = ?", (BOB,))) == []
        )


# At connect.


async def test_g22_one_hint_for_each_group_with_something_new_and_none_for_others(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid)
        await say(town.alice, gid)
        bob = await town.post.connect(BOB, "b1", announced=PEER)
        assert await hints(bob) == [("messages", 2), ("events", 2)]
        assert {one["group_id"] for one in await bob.events()} == {gid}
        await bob.call("group.v2.ack", group_id=gid, up_to_seq=2)
        await bob.call("group.ack_events", group_id=gid, event_seq=2)
        await bob.leave()
        assert await hints(await town.post.connect(BOB, "b1", announced=PEER)) == []
        assert await hints(await town.post.connect(BOB, "b2", announced=PEER)) == [("messages", 2), ("events", 2)]
        assert await hints(await town.post.connect(BOB, "b3", announced=FIRST)) == []


async def test_g22_who_was_put_out_meanwhile_gets_a_hint_until_they_know(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid)
        await town.alice.call("group.kick", group_id=gid, aid=BOB)
        bob = await town.post.connect(BOB, "b1", announced=PEER)
        assert await hints(bob) == [("events", 3)]
        await bob.call("group.ack_events", group_id=gid, event_seq=3)
        await bob.leave()
        assert await hints(await town.post.connect(BOB, "b1", announced=PEER)) == []


async def test_g22_no_hint_for_messages_without_a_key_for_the_device_or_while_blocked(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        bob = town.post.offline(BOB, "b1")
        await publish_key(bob, gid)
        await bob.call("group.ack_events", group_id=gid, event_seq=2)
        await seal(town.alice, gid, [(BOB, "b1")])
        other = town.post.offline(BOB, "b2")
        await other.call("group.ack_events", group_id=gid, event_seq=2)
        assert await hints(await town.post.connect(BOB, "b2", announced=PEER)) == []
        assert await hints(await town.post.connect(BOB, "b1", announced=PEER)) == [("messages", 1)]
        await bob.call("group.block", group_id=gid, aid=BOB)
        assert ("messages", 1) not in await hints(await town.post.connect(BOB, "b1", "again", announced=PEER))


# Devices.


async def test_devices_are_listed_with_what_they_have_not_read_and_can_be_forgotten(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        for _ in range(3):
            await say(town.alice, gid)
        bob = town.post.offline(BOB, "b1")
        await bob.call("group.ack_events", group_id=gid, event_seq=2, device_name="Phone", device_type="mobile")
        await bob.call("group.ack", group_id=gid, msg_seq=1)
        [device] = (await bob.call("group.list_devices", group_id=gid))["devices"]
        assert (device["device_id"], device["device_name"], device["device_type"]) == ("b1", "Phone", "mobile")
        assert (device["msg_unread"], device["event_unread"]) == (2, 0)
        assert (await town.alice.call("group.list_devices", group_id=gid))["devices"] == []
        for _ in range(2):
            assert (await bob.call("group.unregister_device", group_id=gid, device_id="b1"))["success"] is True
        assert (await bob.call("group.list_devices", group_id=gid))["devices"] == []


@pytest.mark.limit("group.unread")
async def test_unread_is_counted_up_to_a_limit(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.unread": 2}) as town:
        gid = await town.found(town.bob)
        for _ in range(3):
            await say(town.alice, gid)
        page = await town.post.offline(BOB, "b1").call("group.pull", group_id=gid)
        assert page["cursor"]["unread_count"] == 2


async def test_a_restore_counts_nothing_of_the_jump_as_unread(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
    async with square(tmp_path, incarnation=1) as town:
        await town.alice.call("group.update", group_id=gid, name="x")
        page = await town.post.offline(BOB, "b1").call("group.pull_events", group_id=gid)
        assert page["latest_event_seq"] == (1 << INCARNATION_SHIFT) + 1
        assert page["cursor"]["unread_count"] == 1


async def test_an_event_that_cannot_be_read_is_declared_lost_and_the_others_come(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        for name in ("a", "b"):
            await town.alice.call("group.update", group_id=gid, name=name)
        before = await town.post.node.read(lambda unit: unit.log(EVENTS).octets(gid))
        await town.post.node.commit(lambda unit: unit.run("UPDATE log_row SET body = x'7bff' WHERE seq = 3"))
        assert [seq for seq, _ in await events(town.alice, gid)] == [1, 2, 4]
        [gap] = await town.post.node.read(ledger.recent)
        assert (gap.log, gap.key, gap.first, gap.last, gap.reason) == ("group_event", gid, 3, 3, "unreadable")
        assert await town.post.node.read(lambda unit: unit.log(EVENTS).octets(gid)) == before - 2
        await town.alice.call("group.update", group_id=gid, name="c")
        assert [seq for seq, _ in await events(town.alice, gid)] == [1, 2, 4, 5]
