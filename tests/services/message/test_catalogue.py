"""`message.peers`: who has written, and how far a reader has read each of them (M-19, §3.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import InvalidParams, NotPermitted
from edge.contract.principal import NODE
from edge.contract.store import Unit
from edge.contract.wire import dumps
from edge.services.message.catalogue import PEERS_DEFAULT
from edge.services.message.records import INBOX_SENDERS
from edge.session.conversation import ANSWER
from edge.store import messages
from edge.store.messages import Message
from tests.support.messaging import ALICE, BOB, CAROL, PEER, Client, FarEnd, Post, post_office


async def write(post: Post, count: int, sender: str = ALICE) -> None:
    for _ in range(count):
        await post.offline(sender).send(BOB)


async def pending(reader: Client) -> dict[str, dict[str, Any]]:
    """The catalogue by sender; no sender is there twice."""
    peers = (await reader.call("message.peers"))["peers"]
    found = {entry["sender_aid"]: entry for entry in peers}
    assert len(found) == len(peers)
    return found


async def acknowledge(reader: Client, sender: str, seq: int) -> None:
    await reader.call("message.v2.ack", cursor_scope="peer", sender_aid=sender, up_to_seq=seq)


async def test_m19_a_pending_catalogue_says_everything_that_the_client_checks(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await write(post, 2)
        await write(post, 1, CAROL)
        reader = post.offline(BOB, "b1")
        found = await reader.call("message.peers", filter="pending")
        assert {name: value for name, value in found.items() if name != "peers"} == {
            "cursor_scope": "peer",
            "receiver_aid": BOB,
            "device_id": "b1",
            "bootstrap_floor_seq": 0,
            "catalog_ready": True,
            "catalog_revision": 3,
            "filter": "pending",
        }
        assert found["peers"][0] == {
            "sender_aid": ALICE,
            "head_seq": 2,
            "server_ack_seq": 0,
            "initial_after_seq": 0,
            "initialization_source": "bootstrap",
            "next_pending_seq": 0,
            "volatile_has_more": False,
            "retention_floor_seq": 0,
            "earliest_available_seq": None,
        }


async def test_m19_a_sender_that_was_read_to_the_end_is_not_pending(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await write(post, 2)
        await write(post, 1, CAROL)
        reader = post.offline(BOB, "b1")
        await acknowledge(reader, ALICE, 1)
        entry = (await pending(reader))[ALICE]
        assert (entry["server_ack_seq"], entry["initial_after_seq"], entry["next_pending_seq"]) == (1, 1, 1)
        assert entry["initialization_source"] == "peer"
        await acknowledge(reader, ALICE, 2)
        assert list(await pending(reader)) == [CAROL]
        assert list(await pending(post.offline(BOB, "b2"))) == [ALICE, CAROL]
        await write(post, 1)
        assert (await pending(reader))[ALICE]["head_seq"] == 4


async def test_everybody_includes_those_who_were_read_to_the_end(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await write(post, 1)
        reader = post.offline(BOB, "b1")
        await acknowledge(reader, ALICE, 1)
        found = await reader.call("message.peers", filter="all")
        [entry] = found["peers"]
        assert (entry["sender_aid"], entry["server_ack_seq"]) == (ALICE, 1)
        assert "next_pending_seq" not in entry
        assert found["has_more"] is False
        assert "next_page_token" not in found


async def test_a_sender_whose_messages_aged_out_is_not_pending(tmp_path: Path) -> None:
    async with post_office(tmp_path, limits={"message.ttl_s": 60}) as post:
        await write(post, 2)
        await post.clock.pass_(200 * 1_000_000)
        await post.rest()
        reader = post.offline(BOB, "b1")
        assert await pending(reader) == {}
        await write(post, 1)
        entry = (await pending(reader))[ALICE]
        assert (entry["retention_floor_seq"], entry["earliest_available_seq"], entry["head_seq"]) == (2, 3, 3)


async def test_queue_messages_are_pending_for_the_one_who_may_have_them(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await write(post, 1, CAROL)
        await post.offline(ALICE).send(BOB, delivery_mode="queue")
        await post.offline(CAROL).send(BOB, delivery_mode="queue")
        reader = post.offline(BOB, "b1")
        found = await pending(reader)
        assert {name: entry["head_seq"] for name, entry in found.items()} == {ALICE: 2, CAROL: 3}
        page = await reader.call("message.v2.pull", cursor_scope="peer", sender_aid=ALICE)
        assert [row["seq"] for row in page["messages"]] == [2]
        assert list(await pending(post.offline(BOB, "b2"))) == [CAROL]


async def test_volatile_messages_are_pending_without_a_number(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await post.offline(ALICE).send(BOB, ttl=60)
        reader = post.offline(BOB, "b1")
        entry = (await pending(reader))[ALICE]
        assert (entry["head_seq"], entry["volatile_has_more"]) == (0, True)
        assert "next_pending_seq" not in entry
        assert (await reader.call("message.peers", filter="all"))["peers"] == []
        await write(post, 1)
        [listed] = (await reader.call("message.peers", filter="all"))["peers"]
        assert (listed["head_seq"], listed["volatile_has_more"]) == (1, True)


async def test_everybody_comes_in_pages_of_a_hundred_or_as_asked(tmp_path: Path) -> None:
    async with post_office(tmp_path, limits={"message.page_rows": 150}) as post:
        senders = [f"agent{number:04}.edge.test" for number in range(151)]
        post.aids.update(senders)
        for sender in senders:
            await write(post, 1, sender)
        reader = post.offline(BOB, "b1")
        for asked, rows in (({}, PEERS_DEFAULT), ({"limit": 500}, 150), ({"limit": 0}, 1)):
            page = await reader.call("message.peers", filter="all", **asked)
            assert [entry["sender_aid"] for entry in page["peers"]] == senders[:rows]
            assert (page["has_more"], page["next_page_token"]) == (True, senders[rows - 1])
        last = await reader.call("message.peers", filter="all", page_token=senders[149])
        assert [entry["sender_aid"] for entry in last["peers"]] == senders[150:]


async def test_the_pending_catalogue_is_complete_in_one_answer(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        reader = await post.connect(BOB, "b1", announced=PEER)
        for wrong in ({"limit": 3}, {"page_token": ""}, {"filter": ""}, {"filter": "some"}):
            with pytest.raises(InvalidParams):
                await reader.call("message.peers", **wrong)


async def test_who_has_no_aid_has_no_catalogue(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        with pytest.raises(NotPermitted):
            await Client(post, NODE, None, FarEnd()).call("message.peers")


async def test_as_many_senders_as_an_inbox_takes_are_named_in_one_answer(tmp_path: Path) -> None:
    """With the longest names, after a restore, when numbers are long, and of queue and volatile mode as well."""
    most = INBOX_SENDERS.default
    async with post_office(tmp_path, incarnation=8_000) as post:
        names = [f"{n:x}".rjust(64, "s") + "." + "e" * (253 - 65) for n in range(most + 400)]

        def fill(unit: Unit) -> None:
            for name in names:
                row = Message(aid=BOB, seq=0, sender=name, message_id="m", sent_ms=1, at=unit.at, payload=b"{}")
                messages.add(unit, row)

        await post.node.commit(fill)
        found = await post.offline(BOB, "b1").call("message.peers")
        assert [peer["sender_aid"] for peer in found["peers"]] == sorted(names)
        assert len(dumps(found)) < ANSWER.default
