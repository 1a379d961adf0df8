"""Thoughts of members and what was read: spec aun-services §1.3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import InvalidParams, NotMember, NotPermitted, RateLimited, TooLarge
from edge.contract.store import Unit
from edge.store import groups
from tests.support.groups import say, square
from tests.support.messaging import ALICE, BOB, PEER, Client

RUN = {"type": "run", "id": "run-1"}


async def think(client: Client, gid: str, text: str = "hm", run: dict[str, str] = RUN, **more: Any) -> dict[str, Any]:
    return await client.call("group.thought.put", group_id=gid, context=run, payload={"text": text}, **more)


async def mind(client: Client, gid: str, of: str = BOB, run: dict[str, str] = RUN) -> list[str]:
    found = await client.call("group.thought.get", group_id=gid, sender_aid=of, context=run)
    assert found["found"] is bool(found["thoughts"])
    return [one["payload"]["text"] for one in found["thoughts"]]


async def test_members_fetch_each_others_thoughts_by_context(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid, other = await town.found(town.bob), await town.found(town.bob)
        put = await think(town.bob, gid, "one", thought_id="t-1")
        assert (put["thought_id"], put["stored_count"], put["sender_aid"]) == ("t-1", 1, BOB)
        assert (await think(town.bob, gid, "two"))["stored_count"] == 2
        await think(town.bob, gid, "one again", thought_id="t-1")
        assert await mind(town.alice, gid) == ["two", "one again"]
        assert await mind(town.alice, gid, run={"type": "run", "id": "run-2"}) == []
        assert await mind(town.alice, gid, ALICE) == []
        assert await mind(town.alice, other) == []
        with pytest.raises(NotMember):
            await mind(town.carol, gid)


async def test_thoughts_take_no_number_and_nothing_on_disk(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        alice = await town.post.connect(ALICE, "a1", announced=PEER)
        heard, before = len(await alice.events()), await town.everything()
        await think(town.bob, gid)
        assert await town.everything() == before
        assert len(await alice.events()) == heard


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"payload": "text"}, InvalidParams),
        ({"payload": {"x": "x" * 786_432}}, TooLarge),
        ({"context": {"type": "", "id": "x"}}, InvalidParams),
        ({"context": {"type": "x", "id": "x" * 129}}, InvalidParams),
        ({"thought_id": "x" * 129}, InvalidParams),
    ],
)
async def test_a_thought_that_is_none_is_refused(tmp_path: Path, wrong: dict[str, Any], error: type) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        with pytest.raises(error):
            await town.alice.call("group.thought.put", **{"group_id": gid, "context": RUN, "payload": {}, **wrong})


async def test_only_so_many_thoughts_are_kept_the_oldest_go(tmp_path: Path) -> None:
    limits = {"group.thoughts": 2, "group.thought_contexts": 2}
    async with square(tmp_path, limits=limits) as town:
        gid = await town.found(town.bob)
        for text in ("one", "two", "three"):
            await think(town.bob, gid, text)
        assert await mind(town.alice, gid) == ["two", "three"]
        for number in (2, 3):
            await think(town.bob, gid, run={"type": "run", "id": f"run-{number}"})
        assert await mind(town.alice, gid) == []
        assert await mind(town.alice, gid, run={"type": "run", "id": "run-3"}) == ["hm"]
        assert town.limits.hits == {"group.thoughts": 1, "group.thought_contexts": 1}


async def test_all_thoughts_together_have_a_size(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.thought_octets": 100}) as town:
        gid = await town.found(town.bob)
        await think(town.alice, gid, "x" * 60)
        await think(town.bob, gid, "y" * 60)
        assert await mind(town.alice, gid, ALICE) == []
        assert await mind(town.alice, gid, BOB) == ["y" * 60]
        assert town.limits.hits == {"group.thought_octets": 1}


# What was read.


async def read(client: Client, gid: str, message_id: str, topic: str = "t") -> dict[str, Any]:
    return await client.call("group.read", group_id=gid, topic_key=topic, last_read_message_id=message_id)


async def test_positions_go_forward_and_are_shared_by_the_devices_of_an_aid(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        ids = [(await say(town.alice, gid))["message_id"] for _ in range(3)]
        one, two = town.post.offline(BOB, "b1"), await town.post.connect(BOB, "b2", announced=PEER)
        assert (await read(one, gid, ids[1]))["updated"] == 1
        assert (await read(one, gid, ids[0]))["ignored"] == 1
        found = await two.call("group.read_state", group_id=gid)
        assert (found["last_read_message_id"], found["current_device_seq"]) == (ids[1], 2)
        assert found["mapping_status"] == "resolved"
        [told] = await two.events("group.read_changed")
        assert (told["owner_aid"], told["last_read_message_id"], told["last_read_order"]) == (BOB, ids[1], 2)
        assert (await read(two, gid, ids[0]))["updated"] == 1
        assert (await two.call("group.read_state"))["states"][0]["last_read_message_id"] == ids[1]
        assert (await town.alice.call("group.read_state", group_id=gid))["states"] == []


async def test_a_message_that_is_not_known_is_remembered_until_a_known_one_comes(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        sent = await say(town.alice, gid)
        await read(town.alice, gid, "m-elsewhere")
        found = await town.alice.call("group.read_state", group_id=gid, topic_key="t")
        assert (found["mapping_status"], found["current_device_seq"]) == ("unresolved", None)
        assert (await read(town.alice, gid, sent["message_id"]))["updated"] == 1
        assert (await read(town.alice, gid, "m-elsewhere"))["ignored"] == 1


async def test_many_positions_are_all_written_or_none(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.read_topics": 3}) as town:
        gid = await town.found()
        good = {"group_id": gid, "topic_key": "a", "last_read_message_id": "m"}
        done = await town.alice.call("group.read", states=[good, {**good, "topic_key": "b"}])
        assert (done["updated"], len(done["states"])) == (2, 2)
        before = await town.everything()
        for wrong, error in (
            ({"topic_key": "x" * 129}, InvalidParams),
            ({"topic_key": ""}, InvalidParams),
            ({"scope": "p2p"}, InvalidParams),
            ({"group_id": "g-none"}, Exception),
        ):
            with pytest.raises(error):
                await town.alice.call("group.read", states=[{**good, "topic_key": "c"}, {**good, **wrong}])
        with pytest.raises(RateLimited, match=r"group\.read_topics"):
            await town.alice.call("group.read", states=[{**good, "topic_key": topic} for topic in ("c", "d")])
        for states in ([], [good] * 101):
            with pytest.raises(InvalidParams):
                await town.alice.call("group.read", states=states)
        assert await town.everything() == before


async def test_positions_are_ones_own_and_only_while_one_is_a_member(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await read(town.bob, gid, "m")
        with pytest.raises(NotPermitted):
            await town.bob.call("group.read_state", aid=ALICE)
        with pytest.raises(InvalidParams):
            await town.bob.call("group.read_state", scope="p2p")
        assert len((await town.bob.call("group.read_state", aid=BOB))["states"]) == 1
        await town.bob.call("group.leave", group_id=gid)
        assert (await town.bob.call("group.read_state"))["states"] == []

        def look(unit: Unit) -> int:
            return groups.count_reads(unit, BOB)

        assert await town.post.node.read(look) == 1
