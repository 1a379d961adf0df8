"""message.thought.put and message.thought.get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import InvalidParams, NotPermitted, RecipientsStale, UnknownAid
from edge.contract.wire import dumps
from edge.services.message.thoughts import OCTETS as CONTEXT_OCTETS
from edge.session.conversation import ANSWER
from tests.services.message.envelopes import envelope, publish_key
from tests.support.messaging import ALICE, BOB, CAROL, PEER, Client, post_office

RUN = {"type": "run", "id": "run-1"}


async def think(client: Client, words: str, to: str = BOB, context: Any = RUN, **more: Any) -> dict[str, Any]:
    payload = {"type": "thought", "text": words}
    return await client.call("message.thought.put", to=to, context=context, payload=payload, **more)


async def thoughts(client: Client, sender: str = ALICE, context: Any = RUN, **more: Any) -> list[str]:
    answer = await client.call("message.thought.get", sender_aid=sender, context=context, **more)
    assert answer["found"] is bool(answer["thoughts"])
    return [one["payload"]["text"] for one in answer["thoughts"]]


async def test_thoughts_are_fetched_by_both_parties_and_nobody_else(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, bob = post.offline(ALICE), await post.connect(BOB, "b1")
        first = await think(alice, "hm")
        assert (first["sender_aid"], first["peer_aid"], first["stored_count"]) == (ALICE, BOB, 1)
        assert (await think(alice, "aha", thought_id="mt-1"))["stored_count"] == 2
        assert await thoughts(bob) == await thoughts(bob) == ["hm", "aha"]
        assert await thoughts(alice, peer_aid=BOB) == await thoughts(alice, to=BOB) == ["hm", "aha"]
        assert await thoughts(post.offline(CAROL)) == []
        with pytest.raises(NotPermitted):
            await thoughts(post.offline(CAROL), peer_aid=BOB)
        with pytest.raises(InvalidParams):
            await thoughts(alice)
        assert await thoughts(bob, context={"type": "run", "id": "other"}) == []
        assert await bob.events() == []
        assert (await bob.call("message.pull"))["count"] == 0


async def test_a_thought_looks_as_it_was_put(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await think(post.offline(ALICE), "hm", thought_id="mt-1")
        answer = await post.offline(BOB).call("message.thought.get", sender_aid=ALICE, context=RUN)
        now = post.clock.wall(post.clock.now())[0] // 1000
        assert answer == {
            "found": True,
            "sender_aid": ALICE,
            "peer_aid": BOB,
            "context": RUN,
            "updated_at": now,
            "thoughts": [
                {
                    "thought_id": "mt-1",
                    "message_id": "mt-1",
                    "context": RUN,
                    "from": ALICE,
                    "to": BOB,
                    "payload": {"type": "thought", "text": "hm"},
                    "created_at": now,
                }
            ],
        }


async def test_a_thought_put_again_replaces_itself(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice = post.offline(ALICE)
        await think(alice, "hm", thought_id="mt-1")
        assert (await think(alice, "hm, yes", thought_id="mt-1"))["stored_count"] == 1
        assert await thoughts(post.offline(BOB)) == ["hm, yes"]


async def test_a_thought_meets_the_checks_of_a_message(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await publish_key(await post.connect(BOB, "b1", announced=PEER))
        alice = post.offline(ALICE)
        with pytest.raises(UnknownAid):
            await think(alice, "hm", to="nobody.edge.test")
        sealed = envelope(ALICE, BOB, [(BOB, "b9")])
        with pytest.raises(RecipientsStale):
            await alice.call("message.thought.put", to=BOB, context=RUN, payload=sealed, encrypted=True)
        for bad in ({}, {"type": "run"}, {"type": "", "id": "x"}, {"type": "run", "id": ""}, "run", None):
            with pytest.raises(InvalidParams):
                await think(alice, "hm", context=bad)
        with pytest.raises(InvalidParams):
            await alice.call("message.thought.put", to=BOB, context=RUN, payload="text")


@pytest.mark.limit("message.thought_contexts", "message.thoughts", "message.thought_name")
async def test_the_oldest_thoughts_give_way(tmp_path: Path) -> None:
    async with post_office(tmp_path, limits={"message.thought_contexts": 2, "message.thoughts": 2}) as post:
        alice, bob = post.offline(ALICE), post.offline(BOB)
        for word in ("one", "two", "three"):
            await think(alice, word)
        assert await thoughts(bob) == ["two", "three"]
        for name in ("run-2", "run-3"):
            await think(alice, name, context={"type": "run", "id": name})
        assert await thoughts(bob) == []
        assert await thoughts(bob, context={"type": "run", "id": "run-2"}) == ["run-2"]
        assert post.limits.hits == {"message.thoughts": 1, "message.thought_contexts": 1}
        await think(alice, "long name", context={"type": "t" * 128, "id": "i" * 128}, thought_id="x" * 128)
        for bad in ({"context": {"type": "t" * 129, "id": "i"}}, {"thought_id": "x" * 129}):
            with pytest.raises(InvalidParams):
                await think(alice, "too long", **bad)


@pytest.mark.limit("message.thought_octets")
async def test_the_oldest_context_of_all_gives_way_when_memory_is_full(tmp_path: Path) -> None:
    async with post_office(tmp_path, limits={"message.thought_octets": 8_000}) as post:
        alice, bob, carol = post.offline(ALICE), post.offline(BOB), post.offline(CAROL)
        await think(alice, "a" * 3_000)
        await think(carol, "c" * 3_000)
        assert (len(await thoughts(bob)), len(await thoughts(bob, CAROL))) == (1, 1)
        await think(carol, "d" * 3_000, context={"type": "run", "id": "run-2"})
        assert (await thoughts(bob), len(await thoughts(bob, CAROL))) == ([], 1)
        assert post.limits.hits == {"message.thought_octets": 1}


@pytest.mark.limit("message.thought_context_octets")
async def test_one_context_fits_one_answer(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, bob = post.offline(ALICE), post.offline(BOB)
        most = post.limits[CONTEXT_OCTETS]
        for mark in "abcd":
            await think(alice, mark * (most // 4))
        answer = await bob.call("message.thought.get", sender_aid=ALICE, context=RUN)
        assert [one["payload"]["text"][0] for one in answer["thoughts"]] == ["b", "c", "d"]
        assert len(dumps(answer)) <= most < post.limits[ANSWER]
        assert post.limits.hits == {"message.thought_context_octets": 1}
