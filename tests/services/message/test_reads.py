"""message.read and message.read_state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import InvalidParams, NotPermitted, RateLimited
from edge.contract.time import SECOND
from tests.support.messaging import ALICE, BOB, CAROL, PEER, Client, Post, post_office


async def read(client: Client, message_id: str, topic: str = "t") -> bool:
    answer = await client.call("message.read", states=[{"topic_key": topic, "last_read_message_id": message_id}])
    assert answer["updated"] + answer["ignored"] == 1
    return bool(answer["states"][0]["changed"])


async def state(client: Client, **more: Any) -> list[tuple[str, str, int | None, str]]:
    answer = await client.call("message.read_state", **more)
    return [
        (one["topic_key"], one["last_read_message_id"], one["current_device_seq"], one["mapping_status"])
        for one in answer["states"]
    ]


async def mail(post: Post, count: int, **more: Any) -> None:
    for number in range(1, count + 1):
        await post.offline(ALICE).send(BOB, message_id=f"m-{number}", **more)
        post.clock.advance(SECOND)


async def test_the_newest_position_of_all_devices_is_the_shared_one(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await mail(post, 3)
        phone, desk = await post.connect(BOB, "b1", announced=PEER), await post.connect(BOB, "b2", announced=PEER)
        assert await read(phone, "m-2") is True
        assert await read(phone, "m-2") is False
        assert await read(phone, "m-1") is False
        assert await read(desk, "m-1") is True
        assert await state(desk) == [("t", "m-2", 2, "resolved")]
        assert await read(desk, "m-3") is True
        assert await state(phone, topic_key="t") == [("t", "m-3", 3, "resolved")]
        heard = [event["last_read_message_id"] for event in await phone.events("message.read_changed")]
        assert heard == ["m-2", "m-3"]
        [event, _] = await desk.events("message.read_changed")
        assert (event["owner_aid"], event["scope"], event["topic_key"]) == (BOB, "p2p", "t")
        assert (await phone.call("message.pull"))["server_ack_seq"] == 0


async def test_a_single_state_is_repeated_beside_the_list(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await mail(post, 1)
        bob = post.offline(BOB, "b1")
        assert await bob.call("message.read_state") == {"states": []}
        flat = await bob.call("message.read", topic_key=" Ü ", last_read_message_id="m-1")
        assert flat["states"] == [{"scope": "p2p", "topic_key": " Ü ", "last_read_message_id": "m-1", "changed": True}]
        answer = await bob.call("message.read_state")
        [one] = answer["states"]
        assert {key: answer[key] for key in one if key != "scope"} == {k: v for k, v in one.items() if k != "scope"}
        assert await state(post.offline(CAROL)) == []


async def test_positions_survive_a_restart_and_the_message(tmp_path: Path) -> None:
    async with post_office(tmp_path, limits={"message.ttl_s": 60}) as post:
        await mail(post, 2)
        await read(post.offline(BOB, "b1"), "m-2")
    async with post_office(tmp_path, limits={"message.ttl_s": 60}) as post:
        bob = post.offline(BOB, "b1")
        assert await state(bob) == [("t", "m-2", 2, "resolved")]
        await post.clock.pass_(200 * SECOND)
        await post.rest()
        assert await state(bob) == [("t", "m-2", None, "unresolved")]
        assert await read(bob, "m-1") is False


async def test_an_unknown_message_has_no_place_until_it_is_known(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        bob = await post.connect(BOB, "b1", announced=PEER)
        assert await read(bob, "m-1") is True
        assert await state(bob) == [("t", "m-1", None, "unresolved")]
        assert await bob.events("message.read_changed") == []
        await mail(post, 2)
        assert await state(bob) == [("t", "m-1", 1, "resolved")]
        assert await read(bob, "m-2") is True
        assert await read(bob, "nowhere") is False
        assert await state(bob) == [("t", "m-2", 2, "resolved")]


async def test_what_one_sent_oneself_can_be_read_too(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await mail(post, 1)
        await post.offline(BOB, "b1").send(ALICE, message_id="mine")
        assert await read(post.offline(BOB, "b1"), "mine") is True
        assert await state(post.offline(BOB, "b1")) == [("t", "mine", None, "not_received")]


async def test_a_message_for_one_device_moves_only_that_device(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await mail(post, 1, device_id="b1")
        bob = await post.connect(BOB, "b1", announced=PEER)
        assert await read(bob, "m-1") is True
        assert await state(bob) == []
        assert await bob.events("message.read_changed") == []


@pytest.mark.limit("message.read_words", "message.read_states", "message.read_topics")
async def test_read_positions_are_bounded_and_all_or_nothing(tmp_path: Path) -> None:
    async with post_office(tmp_path, limits={"message.read_topics": 3}) as post:
        bob = post.offline(BOB, "b1")
        good = {"topic_key": "x" * 128, "last_read_message_id": "m" * 128}
        for bad in (
            {**good, "topic_key": ""},
            {**good, "last_read_message_id": ""},
            {**good, "topic_key": "x" * 129},
            {**good, "last_read_message_id": "m" * 129},
            {**good, "scope": "group"},
            {**good, "scope": None},
            {"topic_key": "t"},
            7,
        ):
            with pytest.raises(InvalidParams):
                await bob.call("message.read", states=[{**good, "topic_key": "fine"}, bad])
        for states in ([], None, "t", [good] * 201):
            with pytest.raises(InvalidParams):
                await bob.call("message.read", states=states)
        with pytest.raises(InvalidParams):
            await bob.call("message.read")
        assert await state(bob) == []
        assert (await bob.call("message.read", states=[good] * 200))["updated"] == 1
        for topic in ("two", "three"):
            await read(bob, "m-1", topic)
        with pytest.raises(RateLimited):
            await read(bob, "m-1", "four")
        assert await read(bob, "m-2", "three") is True


async def test_positions_are_private(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        bob = post.offline(BOB, "b1")
        assert await state(bob, aid=BOB.upper()) == []
        with pytest.raises(NotPermitted):
            await bob.call("message.read_state", aid=ALICE)
        for bad in ({"scope": "group"}, {"topic_key": 7}, {"aid": None}, {"topic_key": "x" * 129}):
            with pytest.raises(InvalidParams):
                await bob.call("message.read_state", **bad)


@pytest.mark.limit("message.page_octets")
async def test_positions_that_do_not_fit_one_answer_are_the_newest(tmp_path: Path) -> None:
    async with post_office(tmp_path, limits={"message.page_octets": 400}) as post:
        bob = post.offline(BOB)
        for topic in ("b", "a", "c"):
            await read(bob, "m-1", topic)
            post.clock.advance(SECOND)
        found = await bob.call("message.read_state")
        assert ([one["topic_key"] for one in found["states"]], found["has_more"]) == (["a", "c"], True)
        found = await bob.call("message.read_state", topic_key="b")
        assert (found["topic_key"], "has_more" in found) == ("b", False)
