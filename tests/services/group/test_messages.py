"""What is said in groups: rules G-6, G-7, G-8, G-13, G-17, G-21 of the service spec."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import EdgeError, GroupEpochMismatch, InvalidParams, NotMember, NotPermitted, TooLarge
from edge.contract.store import INCARNATION_SHIFT
from edge.contract.time import SECOND
from edge.contract.wire import dumps
from edge.store import group_logs, ledger
from tests.support.clock import FakeClock
from tests.support.groups import events, publish_key, say, seal, square, texts
from tests.support.messaging import ALICE, BOB, CAROL, FIRST, HI, PEER


async def seqs(client: Any, gid: str, name: str = "group.pull", **more: Any) -> list[int]:
    page = await client.call(name, group_id=gid, **more)
    return [row["seq"] for row in page["messages"]]


@pytest.mark.seed("S0-026", "S0-160")
async def test_g17_a_message_goes_to_every_member_whatever_delivery_is_asked_for(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, town.carol)
        bob, carol = [await town.post.connect(aid, "d", mode="queue") for aid in (BOB, CAROL)]
        for how in ({}, {"delivery_mode": {"mode": "queue"}}, {"persist": False}, {"ttl": 1}):
            assert (await say(town.alice, gid, **how))["status"] == "sent"
        for one in (bob, carol):
            assert [event["seq"] for event in await one.events("group.message_created")] == [1, 2, 3, 4]
            assert await seqs(one, gid) == [1, 2, 3, 4]


async def test_the_answer_shows_the_stored_message(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        sent = await say(town.post.offline(ALICE, "a1"), gid, "hi", message_id="m-1", type="chat", need_render=False)
        assert (sent["seq"], sent["message_id"], sent["status"], sent["group_id"]) == (1, "m-1", "sent", gid)
        row = sent["message"]
        assert (row["seq"], row["sender_aid"], row["sender_device_id"]) == (1, ALICE, "a1")
        assert (row["message_type"], row["payload"], row["need_render"]) == (
            "chat",
            {"type": "text", "text": "hi"},
            False,
        )
        assert sent["message_dispatch"] == {"status": "broadcast"}
        assert sent["event"]["seq"] == 2
        [pulled] = (await town.bob.call("group.pull", group_id=gid))["messages"]
        assert pulled == row


@pytest.mark.seed("S0-033")
async def test_the_payload_is_anybodys_json_object_and_its_type_another_than_the_messages(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        payload = b'{"type": "quote",  "n": 1.0, "\\u00e9": null}'
        await town.alice.raw("group.send", b'{"group_id":"%s","payload":%s,"type":"chat"}' % (gid.encode(), payload))
        page = await town.alice.call("group.pull", group_id=gid)
        assert page["messages"][0]["message_type"] == "chat"
        assert page["messages"][0]["payload"] == {"type": "quote", "n": 1.0, "é": None}
        assert page["messages"][0]["encrypted"] is False


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"payload": "text"}, InvalidParams),
        ({"payload": [1]}, InvalidParams),
        ({"payload": {"x": "x" * 786_432}}, TooLarge),
        ({"payload": {}, "attachments": {}}, InvalidParams),
        ({"payload": {}, "attachments": ["x" * 16_384]}, TooLarge),
        ({"payload": {}, "message_id": "x" * 129}, InvalidParams),
        ({"payload": {}, "type": "x" * 129}, InvalidParams),
        ({"payload": {}, "device_id": "other"}, NotPermitted),
        ({"payload": {}, "slot_id": "other"}, NotPermitted),
        ({}, InvalidParams),
    ],
)
@pytest.mark.limit("group.attachments_octets")
async def test_a_wrong_message_is_refused_and_takes_no_number(tmp_path: Path, how: dict[str, Any], error: type) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        before = await town.everything()
        with pytest.raises(error):
            await town.alice.call("group.send", group_id=gid, **how)
        assert await town.everything() == before
        assert (await say(town.alice, gid))["seq"] == 1


@pytest.mark.limit("group.payload_octets", "group.id_length")
async def test_the_largest_message_arrives(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        payload = {"x": "x" * (786_432 - len(b'{"x":""}'))}
        await town.alice.call("group.send", group_id=gid, payload=payload, message_id="m" * 128)
        assert (await town.bob.call("group.pull", group_id=gid))["messages"][0]["payload"] == payload


async def test_g21_a_repeated_message_id_is_the_first_message(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid, other = await town.found(town.bob), await town.found()
        first = await say(town.alice, gid, "one", message_id="m-1")
        again = await say(town.alice, gid, "two", message_id="m-1")
        assert again == {**first, "status": "duplicate"}
        assert await texts(town.bob, gid) == ["one"]
        assert (await say(town.alice, other, message_id="m-1"))["status"] == "sent"
        with pytest.raises(InvalidParams, match="already used"):
            await say(town.bob, gid, message_id="m-1")
        sent = await asyncio.gather(*(say(town.alice, gid, message_id="m-2") for _ in range(6)))
        assert sorted(one["status"] for one in sent) == ["duplicate"] * 5 + ["sent"]


async def test_g6_numbers_have_no_holes_and_belong_to_one_group(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        one, two = await town.found(town.bob), await town.found(town.bob)
        sent = await asyncio.gather(*(say(town.bob, gid, f"{n}") for n in range(10) for gid in (one, two)))
        for gid in (one, two):
            assert sorted(s["seq"] for s in sent if s["group_id"] == gid) == list(range(1, 11))
            assert await seqs(town.alice, gid) == list(range(1, 11))


async def test_g7_who_joins_reads_from_there_on(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        for n in range(3):
            await say(town.alice, gid, f"{n}")
        await town.alice.call("group.add_member", group_id=gid, aid=CAROL)
        await say(town.alice, gid, "welcome")
        for name in ("group.pull", "group.v2.pull"):
            page = await town.post.offline(CAROL, "c1").call(name, group_id=gid)
            assert [row["seq"] for row in page["messages"]] == [4]
            assert page["earliest_available_message_seq"] == 4
            assert (page["cursor"]["join_seq"], page["cursor"]["unread_count"]) == (3, 1)
        assert await seqs(town.carol, gid, "group.history", before_seq=100) == [4]
        assert await seqs(town.bob, gid) == [1, 2, 3, 4]
        await town.carol.call("group.leave", group_id=gid)
        await say(town.alice, gid, "missed")
        await town.alice.call("group.add_member", group_id=gid, aid=CAROL)
        assert await seqs(town.carol, gid) == []
        await say(town.alice, gid, "again")
        assert await texts(town.carol, gid) == ["again"]


async def test_g8_cursors_go_forward_only_and_belong_to_a_device_and_slot(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        for n in range(5):
            await say(town.alice, gid, f"{n}")
        one, two = town.post.offline(BOB, "b1"), town.post.offline(BOB, "b2")
        slot = town.post.offline(BOB, "b1", "other")
        for name, key in (
            ("group.ack", "msg_seq"),
            ("group.ack_messages", "up_to_seq"),
            ("group.ack_messages", "seq"),
            ("group.v2.ack", "up_to_seq"),
        ):
            done = await one.call(name, group_id=gid, **{key: 3})
            assert (done["success"], done["ack_seq"], done["effective_ack_seq"]) == (True, 3, 3)
            assert done["cursor"] == ({"current_seq": 3} if name == "group.v2.ack" else 3)
        assert (await one.call("group.ack", group_id=gid, msg_seq=1))["ack_seq"] == 3
        assert (await one.call("group.ack", group_id=gid, msg_seq=1 << 52))["ack_seq"] == 5
        assert (await one.call("group.pull", group_id=gid))["cursor"]["current_seq"] == 5
        for other in (two, slot):
            assert (await other.call("group.pull", group_id=gid))["cursor"]["current_seq"] == 0
        page = await two.call("group.v2.pull", group_id=gid, ack_up_to_seq=2)
        assert (page["cursor"]["current_seq"], page["cursor"]["unread_count"]) == (2, 3)
        assert [row["seq"] for row in page["messages"]] == [1, 2, 3, 4, 5]
        for wrong in ({}, {"msg_seq": -1}):
            with pytest.raises(InvalidParams):
                await one.call("group.ack", group_id=gid, **wrong)


@pytest.mark.limit("group.cursors")
async def test_a_member_keeps_only_so_many_cursors(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.cursors": 2}) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid)
        for device in ("b1", "b2", "b3"):
            town.clock.advance(SECOND)
            await town.post.offline(BOB, device).call("group.ack", group_id=gid, msg_seq=1)
        found = [await town.post.offline(BOB, device).call("group.pull", group_id=gid) for device in ("b1", "b2", "b3")]
        assert [page["cursor"]["current_seq"] for page in found] == [0, 1, 1]


@pytest.mark.limit("group.page_octets")
async def test_pages_end_by_rows_and_by_octets_and_say_whether_there_is_more(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.page_octets": 100}) as town:
        gid = await town.found()
        for _ in range(5):
            await say(town.alice, gid, "x" * 40)
        page = await town.alice.call("group.pull", group_id=gid, after_message_seq=1)
        assert ([row["seq"] for row in page["messages"]], page["has_more"]) == ([2], True)
        page = await town.alice.call("group.pull", group_id=gid, after_seq=4)
        assert ([row["seq"] for row in page["messages"]], page["has_more"]) == ([5], False)
        assert page["latest_message_seq"] == 5
        assert (await town.alice.call("group.pull", group_id=gid, limit=100_000))["limit"] == 200
        assert await seqs(town.alice, gid, after_seq=1 << 52) == []
        assert await seqs(town.alice, gid, after_seq=-7) == [1]


async def test_history_goes_back_and_moves_nothing(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid, device = await town.found(), town.post.offline(ALICE, "a1")
        for n in range(5):
            await say(town.alice, gid, f"{n}")
        page = await device.call("group.history", group_id=gid, before_seq=6, limit=3)
        assert [row["seq"] for row in page["messages"]] == [3, 4, 5]
        assert (page["window_start_seq"], page["next_before_seq"], page["has_older"]) == (3, 3, True)
        page = await device.call("group.history", group_id=gid, before_seq=3)
        assert ([row["seq"] for row in page["messages"]], page["has_older"]) == ([1, 2], False)
        page = await device.call("group.history", group_id=gid, before_seq=1)
        assert (page["messages"], page["window_start_seq"], page["next_before_seq"]) == ([], None, None)
        assert (await device.call("group.pull", group_id=gid))["cursor"]["current_seq"] == 0
        with pytest.raises(InvalidParams):
            await device.call("group.history", group_id=gid, before_seq=0)


async def test_the_tail_is_the_newest_page(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        for n in range(10):
            await say(town.alice, gid, f"{n}")
        page = await town.alice.call("group.v2.pull", group_id=gid, window_mode="tail", limit=3)
        assert [row["seq"] for row in page["messages"]] == [8, 9, 10]
        assert (page["window_start_seq"], page["head_seq"], page["covered_through_seq"]) == (8, 10, 10)
        page = await town.alice.call("group.v2.pull", group_id=gid, window_mode="tail", after_seq=9)
        assert ([row["seq"] for row in page["messages"]], page["window_start_seq"]) == ([10], 10)
        page = await town.alice.call("group.v2.pull", group_id=gid, window_mode="tail", after_seq=10)
        assert (page["messages"], page["window_start_seq"], page["head_seq"]) == ([], 10, 10)
        for wrong in ({"window_mode": "head"}, {"window_mode": "tail", "ack_up_to_seq": 1}):
            with pytest.raises(InvalidParams):
                await town.alice.call("group.v2.pull", group_id=gid, **wrong)


# Recalls.


async def test_g13_a_recall_leaves_a_tombstone_and_a_notice_and_one_event(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        bob = await town.post.connect(BOB, "b1", announced=PEER)
        sent = await say(town.alice, gid, "oops")
        await say(town.alice, gid, "fine")
        done = await town.alice.call(
            "group.recall", group_id=gid, message_ids=["m-none", sent["message_id"]], reason="r"
        )
        assert (done["accepted"], done["recalled"]) == ([sent["message_id"]], [sent["message_id"]])
        assert done["errors"] == [{"message_id": "m-none", "error": "not_found"}]
        rows = (await town.bob.call("group.pull", group_id=gid))["messages"]
        assert [row["seq"] for row in rows] == [1, 2, 3]
        for row in (rows[0], rows[2]):
            assert row["type"] == row["payload"]["type"] == "group.message_recalled"
            assert (row["payload"]["message_ids"], row["payload"]["target_message_seqs"]) == ([sent["message_id"]], [1])
            assert (row["payload"]["recalled_by"], row["payload"]["reason"]) == (ALICE, "r")
        assert rows[1]["payload"]["text"] == "fine"
        [told] = await bob.events("group.message_recalled")
        assert (told["message_ids"], told["seq"], told["recalled_by"]) == ([sent["message_id"]], 3, ALICE)
        assert (await events(town.bob, gid))[-1] == (3, "message_recalled")
        again = await town.alice.call("group.recall", group_id=gid, message_ids=[sent["message_id"]])
        assert again["errors"] == [{"message_id": sent["message_id"], "error": "already_recalled"}]
        assert len(await events(town.bob, gid)) == 2


@pytest.mark.limit("group.recall_ids", "group.recall_s")
async def test_g13_what_cannot_be_recalled_says_why(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        mine, late = [(await say(town.bob, gid))["message_id"] for _ in range(2)]

        async def why(client: Any, message_id: str) -> str:
            done = await client.call("group.recall", group_id=gid, message_ids=[message_id])
            return done["errors"][0]["error"] if done["errors"] else ""

        assert await why(town.alice, mine) == "not_sender"
        town.clock.advance(120 * SECOND)
        await town.alice.call("group.suspend", group_id=gid)
        assert await why(town.bob, mine) == "group_inactive"
        await town.alice.call("group.resume", group_id=gid)
        assert await why(town.bob, mine) == ""
        town.clock.advance(1)
        assert await why(town.bob, late) == "expired"
        for wrong in ({"message_ids": []}, {"message_ids": ["x"] * 101}, {"message_ids": [mine], "reason": "x" * 256}):
            with pytest.raises(InvalidParams):
                await town.bob.call("group.recall", group_id=gid, **wrong)


async def test_nothing_of_a_recalled_message_is_left(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        sent = await say(town.alice, gid, "my password is swordfish", attachments=[{"name": "swordfish.txt"}])
        sealed = await seal(town.alice, gid, [(ALICE, ""), (BOB, "")], "m-2", ciphertext="c3dvcmRmaXNo")
        await town.alice.call("group.recall", group_id=gid, message_ids=[sent["message_id"], sealed["message_id"]])
        found = await town.post.node.read(
            lambda unit: unit.run("SELECT * FROM group_message") + unit.run("SELECT * FROM group_wrap")
        )
        assert b"swordfish" not in repr(found).encode()
        assert b"c3dvcmRmaXNo" not in repr(found).encode()


# What is kept.


@pytest.mark.limit("group.rows")
async def test_a_full_group_forgets_its_oldest_messages_and_says_so(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.rows": 3}) as town:
        gid = await town.found(town.bob)
        for n in range(5):
            await say(town.alice, gid, f"{n}", message_id=f"m-{n}")
        page = await town.bob.call("group.pull", group_id=gid)
        assert [row["seq"] for row in page["messages"]] == [3, 4, 5]
        assert (page["retention_floor_message_seq"], page["earliest_available_message_seq"]) == (2, 3)
        found = await town.post.node.read(lambda unit: ledger.gaps(unit, group_logs.MESSAGES, gid))
        assert sum(gap.count for gap in found) == 2
        assert town.limits.hits["group.rows"] == 2
        assert (await say(town.alice, gid, message_id="m-0"))["seq"] == 6


@pytest.mark.limit("group.rows")
async def test_notices_of_recalls_take_room_like_any_message(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.rows": 3}) as town:
        gid = await town.found()
        ids = [(await say(town.alice, gid))["message_id"] for _ in range(3)]
        await town.alice.call("group.recall", group_id=gid, message_ids=ids)
        assert await seqs(town.alice, gid) == [4, 5, 6]
        found = await town.post.node.read(lambda unit: ledger.gaps(unit, group_logs.MESSAGES, gid))
        assert sum(gap.count for gap in found) == 3


@pytest.mark.limit("group.octets")
async def test_a_group_holds_only_so_many_octets(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.octets": 200}) as town:
        gid = await town.found()
        size = len(dumps({**HI, "text": "x" * 50}))
        for _ in range(200 // size + 1):
            await say(town.alice, gid, "x" * 50)
        assert await seqs(town.alice, gid) == list(range(2, 200 // size + 2))
        assert town.limits.hits["group.octets"] == 1


async def test_after_a_restore_numbers_begin_above_every_number_that_was(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid, "before")
    base = 1 << INCARNATION_SHIFT
    async with square(tmp_path, incarnation=1) as town:
        assert (await say(town.alice, gid, "after"))["seq"] == base + 1
        new = await town.post.connect(BOB, "b1", announced=PEER)
        page = await new.call("group.v2.pull", group_id=gid)
        assert [row["seq"] for row in page["messages"]] == [1, base + 1]
        assert page["cursor"]["unread_count"] == 2
        old = await town.post.connect(BOB, "b2", announced=FIRST)
        page = await old.call("group.pull", group_id=gid, after_message_seq=1)
        assert (page["messages"], page["has_more"], page["cursor"]["current_seq"]) == ([], True, base + 1)
        assert await texts(old, gid, after_message_seq=0) == ["before", "after"]
        assert await texts(old, gid, after_message_seq=base) == ["after"]
        await town.alice.call("group.update", group_id=gid, name="x")
        changed = (await old.events("group.changed"))[-1]
        assert "event_seq" not in changed
        assert (await new.events("group.changed"))[-1]["event_seq"] == base + 1


async def test_the_first_sdk_is_led_over_a_jump_to_the_head_and_told_what_it_missed(tmp_path: Path) -> None:
    """Where an event was faster than its pull, rows, or a cursor below that event, would fill its memory."""
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, town.carol)
        for text in ("read", "unread"):
            await say(town.alice, gid, text)
        old = await town.post.connect(BOB, "b2", announced=FIRST)
        await old.call("group.ack_messages", group_id=gid, msg_seq=1)
    base = 1 << INCARNATION_SHIFT
    async with square(tmp_path, incarnation=1, clock=FakeClock(mono_us=9 * SECOND)) as town:
        for text in ("one", "two"):
            await say(town.alice, gid, text)
        town.post.clock.advance(SECOND)
        old, other = [await town.post.connect(BOB, device, announced=FIRST) for device in ("b2", "b3")]
        town.post.clock.advance(SECOND)
        await say(town.alice, gid, "live")
        page = await old.call("group.pull", group_id=gid, after_message_seq=1)
        assert (page["messages"], page["has_more"], page["cursor"]["current_seq"]) == ([], True, base + 3)
        heard = [(one["seq"], one["payload"]["text"]) for one in await old.events("group.message_created")]
        assert sorted(heard) == [(2, "unread"), (base + 1, "one"), (base + 2, "two"), (base + 3, "live")]
        assert [one["seq"] for one in await other.events("group.message_created")] == [base + 3]
        assert await texts(old, gid, after_message_seq=1) == ["unread", "one", "two", "live"]

        await town.alice.call("group.block", group_id=gid, aid=CAROL)
        town.post.clock.advance(SECOND)
        deaf = await town.post.connect(CAROL, "c2", announced=FIRST)
        page = await deaf.call("group.pull", group_id=gid, after_message_seq=0)
        assert (page["messages"], page["has_more"]) == ([], False)
        assert await deaf.events("group.message_created") == []


@pytest.mark.limit("group.led_rows")
async def test_who_is_led_over_a_jump_is_pushed_so_much_and_pulls_the_rest(tmp_path: Path) -> None:
    async with square(tmp_path, synchronous="OFF") as town:
        gid = await town.found(town.bob)
        for number in range(1, 202):
            await say(town.alice, gid, f"text {number}")
    async with square(tmp_path, incarnation=1, clock=FakeClock(mono_us=9 * SECOND)) as town:
        old = await town.post.connect(BOB, "b1", announced=FIRST)
        await say(town.alice, gid, "live")
        page = await old.call("group.pull", group_id=gid, after_message_seq=0)
        assert (page["messages"], page["has_more"]) == ([], True)
        heard = sorted(one["seq"] for one in await old.events("group.message_created"))
        assert heard == [*range(1, 201), (1 << INCARNATION_SHIFT) + 1]
        assert town.limits.hits == {"group.led_rows": 1}
        assert await texts(old, gid, after_message_seq=200) == ["text 201", "live"]


@pytest.mark.limit("group.led")
async def test_only_so_many_connections_are_remembered_as_led(tmp_path: Path) -> None:
    async with square(tmp_path, incarnation=1, limits={"group.led": 1}) as town:
        gids = [await town.found(town.bob) for _ in range(2)]
        for gid in gids:
            await say(town.alice, gid, "hi")
        old = await town.post.connect(BOB, "b2", announced=FIRST)
        for gid in (*gids, gids[0]):
            page = await old.call("group.pull", group_id=gid, after_message_seq=0)
            assert (page["messages"], page["has_more"]) == ([], True)
        assert town.limits.hits == {"group.led": 2}
        assert await texts(old, gids[0], after_message_seq=0) == ["hi"]


SHOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "pull": ("group.pull", {"after_message_seq": 500}),
    "pull, the current SDK's": ("group.v2.pull", {"after_seq": 500}),
    "tail": ("group.v2.pull", {"after_seq": 500, "window_mode": "tail"}),
    "ack": ("group.ack", {"seq": 500}),
    "ack in a pull": ("group.v2.pull", {"ack_up_to_seq": 500}),
    "events": ("group.pull_events", {"after_event_seq": 500}),
    "ack of events": ("group.ack_events", {"event_seq": 500}),
}


@pytest.mark.parametrize("way", SHOWN)
async def test_a_member_who_shows_a_number_above_the_head_gets_higher_ones_from_then_on(
    tmp_path: Path, way: str
) -> None:
    """An older copy of the files lies in their place: numbers that were given out must not come again (D18)."""
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid, "before")
        bob = town.post.offline(BOB, "b1")
        method, params = SHOWN[way]
        await bob.call(method, group_id=gid, **params)
        assert (await say(town.alice, gid, "after"))["seq"] == (1 << INCARNATION_SHIFT) + 1
        assert await texts(bob, gid, after_message_seq=500) == ["after"]


async def test_who_is_not_a_member_shows_nothing(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid)
        stranger = town.post.offline(CAROL, "c1")
        for method, params in SHOWN.values():
            with pytest.raises(EdgeError):
                await stranger.call(method, group_id=gid, **params)
        assert (await say(town.alice, gid))["seq"] == 2


# Both generations.


async def test_a_message_is_pushed_as_each_client_reads_it(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, town.carol)
        new = await town.post.connect(BOB, "b1", announced=PEER)
        old = await town.post.connect(CAROL, "c1", announced=FIRST)
        await say(town.alice, gid)
        await say(town.alice, gid, "x" * 262_145)
        small, large = await new.events("group.message_created")
        assert small["inline_message"]["payload"]["text"] == "hi"
        assert large["kind"] == small["kind"] == "group.broadcast"
        assert "inline_message" not in large
        small, large = await old.events("group.message_created")
        assert (small["payload"]["text"], small["from"]) == ("hi", ALICE)
        assert "payload" not in large
        assert large["seq"] == 2


async def test_an_encrypted_message_of_the_first_sdk_must_have_the_key_of_the_group(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        await town.alice.call("group.e2ee.rotate_epoch", group_id=gid)

        async def sealed(epoch: Any) -> dict[str, Any]:
            payload = {"type": "e2ee.group_encrypted", "epoch": epoch}
            return await town.alice.call("group.send", group_id=gid, payload=payload)

        assert (await sealed(1))["message"]["encrypted"] is True
        with pytest.raises(GroupEpochMismatch, match="too old"):
            await sealed(0)
        with pytest.raises(GroupEpochMismatch, match="not committed"):
            await sealed(2)
        assert (await sealed("strange"))["seq"] == 2


async def test_who_was_put_out_is_refused_unless_a_refusal_would_make_its_sdk_deaf(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        new = await town.post.connect(BOB, "b1", announced=PEER)
        await publish_key(new, gid)
        await say(town.alice, gid, "one")
        await new.call("group.v2.ack", group_id=gid, up_to_seq=1)
        await town.alice.call("group.kick", group_id=gid, aid=BOB)
        await say(town.alice, gid, "two")
        for how in ({}, {"window_mode": "tail"}):
            page = await new.call("group.v2.pull", group_id=gid, after_seq=1, **how)
            assert (page["messages"], page["has_more"], page["latest_message_seq"]) == ([], False, 1)
        assert (await new.call("group.v2.ack", group_id=gid, up_to_seq=2))["ack_seq"] == 1
        old = await town.post.connect(BOB, "b2", announced=FIRST)
        for one in (old, town.bob):
            for name, params in {"group.pull": {}, "group.v2.ack": {"up_to_seq": 2}}.items():
                with pytest.raises(NotMember):
                    await one.call(name, group_id=gid, **params)
        with pytest.raises(NotMember):
            await say(new, gid)
        await town.alice.call("group.add_member", group_id=gid, aid=BOB)
        await say(town.alice, gid, "three")
        assert await texts(new, gid, after_message_seq=1) == ["three"]


@pytest.mark.parametrize("column", ["payload", "attachments"])
@pytest.mark.parametrize("how", ["group.pull", "group.v2.pull", "tail", "group.history"])
async def test_a_message_that_cannot_be_read_is_declared_lost_and_the_others_come(
    tmp_path: Path, how: str, column: str
) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        for text in ("a", "b", "c"):
            await say(town.alice, gid, text)
        await town.post.node.commit(lambda unit: unit.run(f"UPDATE group_message SET {column} = x'5bff' WHERE seq = 2"))
        more: dict[str, Any] = {"before_seq": 9} if how == "group.history" else {}
        more = {"window_mode": "tail"} if how == "tail" else more
        name = "group.v2.pull" if how == "tail" else how
        assert await seqs(town.bob, gid, name, **more) == [1, 3]
        [gap] = await town.post.node.read(ledger.recent)
        assert (gap.log, gap.key, gap.first, gap.last, gap.reason) == ("group", gid, 2, 2, "unreadable")
        assert (await town.post.node.read(lambda unit: group_logs.usage(unit, gid)))[0] == 2
        assert (await say(town.alice, gid))["seq"] == 4


async def test_a_key_that_cannot_be_read_costs_its_reader_that_message_only(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        alice, bob = town.post.offline(ALICE, "a1"), town.post.offline(BOB, "b1")
        for client in (alice, bob):
            await publish_key(client, gid)
        for number in (1, 2):
            await seal(alice, gid, [(ALICE, "a1"), (BOB, "b1")], f"m-{number}")
        spoil = "UPDATE group_wrap SET body = x'5bff' WHERE seq = 1 AND aid = ?"
        await town.post.node.commit(lambda unit: unit.run(spoil, (BOB,)))
        assert await seqs(bob, gid, "group.v2.pull") == [2]
        assert await seqs(alice, gid, "group.v2.pull") == [1, 2]
        [gap] = await town.post.node.read(ledger.recent)
        assert (gap.log, gap.first, gap.who, gap.reason) == ("group", 1, BOB, "unreadable")


@pytest.mark.limit("group.page_octets")
async def test_a_page_fits_the_readers_frame_whatever_stands_beside_its_payloads(tmp_path: Path) -> None:
    """The first SDK drops the connection at a frame above 1 MiB, at each pull again."""
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        alice = town.post.offline(ALICE, "a" * 128)
        for number in range(200):
            name = "\x01" * 120 + f"{number:08}"
            await say(alice, gid, "x" * 3_800, message_id=name, type="\x01" * 128)
        for method, params in (("group.pull", {}), ("group.v2.pull", {}), ("group.history", {"before_seq": 1 << 50})):
            page = await town.bob.call(method, group_id=gid, limit=200, **params)
            assert page["messages"]
            assert len(dumps(page)) < (1 << 20) - 1_000, method
        found, after = 0, 0
        while (page := await town.bob.call("group.pull", group_id=gid, limit=200, after_seq=after))["messages"]:
            found, after = found + len(page["messages"]), page["messages"][-1]["seq"]
        assert found == 200
