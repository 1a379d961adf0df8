"""Volatile messages: rule M-24."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.contract.errors import InvalidParams, RecipientsStale, UnknownAid
from edge.contract.time import SECOND
from edge.store import ledger
from tests.services.message.envelopes import envelope, publish_key
from tests.support.messaging import ALICE, BOB, CAROL, PEER, post_office

BY_ALICE = {"cursor_scope": "peer", "sender_aid": ALICE}


async def test_m24_a_volatile_message_has_a_cursor_and_no_number(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        bob = await post.connect(BOB, "b1", announced=PEER)
        sent = await post.offline().send(BOB, ttl=60, message_id="v-1")
        assert sent["status"] == "accepted"
        assert sent["storage"] == "volatile"
        assert sent["expires_at"] - sent["created_at"] == 60_000
        assert "seq" not in sent
        [event] = await bob.events("message.received")
        assert "seq" not in event
        assert event == {
            **event,
            "storage": "volatile",
            "volatile_cursor": sent["volatile_cursor"],
            "payload": {"type": "text", "text": "hi"},
            "from_aid": ALICE,
            "created_at": sent["created_at"],
            "expires_at": sent["expires_at"],
        }
        assert (await post.offline().send(BOB))["seq"] == 1


async def test_m24_a_volatile_message_waits_in_the_catalogue_until_it_is_acknowledged(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        sent = await post.offline().send(BOB, ttl=60)
        one, two = await post.connect(BOB, "b1", announced=PEER), await post.connect(BOB, "b2", announced=PEER)
        assert [event["kind"] for event in await one.events()] == ["message.online_unread_hint"]
        [peer] = (await one.call("message.peers"))["peers"]
        assert (peer["sender_aid"], peer["volatile_has_more"]) == (ALICE, True)
        page = await one.call("message.v2.pull", **BY_ALICE)
        assert [row["volatile_cursor"] for row in page["messages"]] == [sent["volatile_cursor"]]
        assert (page["volatile_has_more"], page["has_more"], page["covered_through_seq"]) == (False, False, 0)
        ack = await one.call("message.v2.ack", **BY_ALICE, volatile_cursors=[sent["volatile_cursor"]])
        assert ack["volatile_ack"] == {"accepted": 1, "expired": 0}
        assert (ack["cursor_scope"], ack["sender_aid"]) == ("peer", ALICE)
        assert (await one.call("message.peers"))["peers"] == []
        assert len((await two.call("message.peers"))["peers"]) == 1


async def test_m24_volatile_messages_are_acknowledged_by_id_too(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await post.offline().send(BOB, ttl=60, message_id="v-1")
        bob = post.offline(BOB, "b1")
        answer = await bob.call("message.ack", volatile_ids=["v-1", "v-2"])
        assert answer == {"success": True, "ack_seq": 0, "volatile_ack": {"accepted": 1, "expired": 1}}
        assert (await bob.call("message.v2.pull"))["messages"] == []


async def test_m24_a_volatile_message_is_gone_after_its_time_and_after_a_restart(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        bob = post.offline(BOB, "b1")
        await post.offline().send(BOB, ttl=60)
        post.clock.advance(60 * SECOND - 1)
        assert len((await bob.call("message.v2.pull"))["messages"]) == 1
        post.clock.advance(1)
        assert (await bob.call("message.v2.pull"))["messages"] == []
        sent = await post.offline().send(BOB, ttl=60)
    async with post_office(tmp_path) as post:
        bob = post.offline(BOB, "b1")
        assert (await bob.call("message.v2.pull"))["messages"] == []
        with pytest.raises(InvalidParams, match="volatile cursor epoch mismatch"):
            await bob.call("message.v2.pull", after_volatile_cursor=sent["volatile_cursor"])


@pytest.mark.limit("message.volatile_s")
async def test_m24_the_life_of_a_volatile_message_is_clamped_and_zero_is_for_ever(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice = post.offline()
        long = await alice.send(BOB, ttl=99_999)
        assert long["expires_at"] - long["created_at"] == 3_600_000
        for ttl in (0, -5):
            assert (await alice.send(BOB, ttl=ttl))["seq"] > 0
        page = await post.offline(BOB).call("message.history", before_seq=100)
        assert len(page["messages"]) == 2


async def test_m24_a_repeated_id_is_one_volatile_message(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, bob = post.offline(), post.offline(BOB, "b1")
        first = await alice.send(BOB, ttl=60, message_id="v-1")
        assert await alice.send(BOB, ttl=60, message_id="v-1") == {**first, "status": "duplicate"}
        await post.offline(CAROL).send(BOB, ttl=60, message_id="v-1")
        assert len((await bob.call("message.v2.pull"))["messages"]) == 2


async def test_m24_a_volatile_message_meets_the_same_checks(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        bob = await post.connect(BOB, "b1", announced=PEER)
        await publish_key(bob)
        with pytest.raises(UnknownAid):
            await post.offline().send("nobody.edge.test", ttl=60)
        with pytest.raises(RecipientsStale):
            await post.offline().send(BOB, envelope(ALICE, BOB, [(BOB, "b9")]), ttl=60)
        await post.offline().send(BOB, envelope(ALICE, BOB, [(BOB, "b1")]), ttl=60)
        [event] = await bob.events("peer.v2.message_received")
        assert (event["version"], event["storage"]) == ("v2", "volatile")
        assert event["envelope_json"]


async def test_pages_of_volatile_messages_go_on_behind_a_cursor(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        for number in range(5):
            await post.offline().send(BOB, {"type": "text", "text": str(number)}, ttl=60)
        bob, found, cursor = post.offline(BOB, "b1"), [], ""
        while True:
            page = await bob.call("message.v2.pull", **BY_ALICE, limit=2, after_volatile_cursor=cursor)
            found += [row["payload"]["text"] for row in page["messages"]]
            cursor = page["latest_volatile_cursor"]
            assert page["has_more"] is page["volatile_has_more"]
            if not page["volatile_has_more"]:
                break
        assert found == list("01234")
        for wrong in ("v1", "v2:x:1", "nonsense", "v1:x:y"):
            with pytest.raises(InvalidParams, match="volatile cursor"):
                await bob.call("message.v2.pull", **BY_ALICE, after_volatile_cursor=wrong)


@pytest.mark.limit("message.volatile_rows")
async def test_more_volatile_messages_than_there_is_room_for_are_a_declared_loss(tmp_path: Path) -> None:
    async with post_office(tmp_path, limits={"message.volatile_rows": 2}) as post:
        for number in range(3):
            await post.offline().send(BOB, {"type": "text", "text": str(number)}, ttl=60)
        page = await post.offline(BOB, "b1").call("message.v2.pull", **BY_ALICE)
        assert [row["payload"]["text"] for row in page["messages"]] == ["1", "2"]
        assert page["volatile_dropped_count"] == 1
        await post.rest()
        [drop] = await post.node.read(ledger.drops)
        assert (drop.log, drop.reason, drop.count) == ("volatile", "no_room", 1)
        assert post.limits.hits == {"message.volatile_rows": 1}


async def test_the_tail_of_a_sender_says_when_volatile_messages_wait(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await post.offline().send(BOB)
        await post.offline().send(BOB, ttl=60)
        page = await post.offline(BOB, "b1").call("message.v2.pull", **BY_ALICE, window_mode="tail")
        assert ([row["seq"] for row in page["messages"]], page["volatile_has_more"]) == ([1], True)
