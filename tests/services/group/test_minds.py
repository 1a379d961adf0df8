"""Thoughts of members and how far topics were read: spec aun-services §1.3 (messages and events), §1.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import (
    GroupNotFound,
    GroupSuspended,
    InvalidParams,
    NotMember,
    NotPermitted,
    RateLimited,
    TooLarge,
)
from edge.contract.time import SECOND
from edge.contract.wire import dumps
from edge.services.group import limits as bounds
from edge.session.conversation import ANSWER
from tests.support.groups import say, square
from tests.support.messaging import ALICE, BOB, CAROL, ISSUER, Client

RUN = {"type": "run", "id": "run-1"}


async def think(client: Client, gid: str, text: str = "hm", **more: Any) -> dict[str, Any]:
    fields = {"context": RUN, "payload": {"text": text}, **more}
    return await client.call("group.thought.put", group_id=gid, **fields)


async def thoughts(client: Client, gid: str, sender: str = ALICE, context: dict[str, str] = RUN) -> list[str]:
    found = await client.call("group.thought.get", group_id=gid, sender_aid=sender, context=context)
    assert found["found"] is bool(found["thoughts"])
    return [one["payload"]["text"] for one in found["thoughts"]]


# Thoughts.


async def test_every_member_may_fetch_a_members_thoughts_and_nobody_is_told_of_them(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        bob = await town.post.connect(BOB, "b")
        before = await town.everything()
        put = await think(town.alice, gid, thought_id="t-1")
        assert (put["sender_aid"], put["thought_id"], put["stored_count"], put["context"]) == (ALICE, "t-1", 1, RUN)
        found = await bob.call("group.thought.get", group_id=gid, sender_aid=ALICE.upper(), context=RUN)
        [one] = found["thoughts"]
        assert (one["thought_id"], one["message_id"], one["from"]) == ("t-1", "t-1", ALICE)
        assert (one["payload"], one["created_at"]) == ({"text": "hm"}, put["updated_at"])
        assert found["updated_at"] == put["updated_at"]
        assert await bob.events() == []
        assert await town.everything() == before


async def test_thoughts_of_nobody_are_not_found_without_an_error(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        found = await town.bob.call("group.thought.get", group_id=gid, sender_aid=ALICE, context=RUN)
        assert (found["found"], found["thoughts"], found["updated_at"]) == (False, [], 0)


async def test_each_sender_context_and_group_has_a_head_of_its_own(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid, other = await town.found(town.bob), await town.found(town.bob)
        for text in ("one", "two"):
            await think(town.alice, gid, text)
        await think(town.alice, gid, "elsewhere", context={"type": "run", "id": "run-2"})
        await think(town.bob, gid, "bob's")
        await think(town.alice, other, "other")
        assert await thoughts(town.bob, gid) == ["one", "two"]
        assert await thoughts(town.bob, gid, context={"type": "run", "id": "run-2"}) == ["elsewhere"]
        assert await thoughts(town.alice, gid, BOB) == ["bob's"]
        assert await thoughts(town.bob, other) == ["other"]


async def test_a_thought_put_again_replaces_itself_as_the_newest(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        for text, thought_id in (("draft", "t-1"), ("other", "t-2"), ("final", "t-1")):
            count = (await think(town.alice, gid, text, thought_id=thought_id))["stored_count"]
        assert count == 2
        assert await thoughts(town.bob, gid) == ["other", "final"]


async def test_thoughts_are_for_members_who_may_speak(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, town.carol)
        with pytest.raises(NotMember):
            await think(town.dave, gid)
        with pytest.raises(NotMember):
            await thoughts(town.dave, gid)
        await town.alice.call("group.suspend", group_id=gid)
        with pytest.raises(GroupSuspended):
            await think(town.bob, gid)
        await think(town.alice, gid, "from an admin")
        assert await thoughts(town.bob, gid) == ["from an admin"]
        await town.alice.call("group.kick", group_id=gid, aid=CAROL)
        with pytest.raises(NotMember):
            await thoughts(town.carol, gid)
        await town.alice.call("group.dissolve", group_id=gid)
        with pytest.raises(GroupNotFound):
            await thoughts(town.bob, gid)


@pytest.mark.limit("group.payload_octets", "group.read_length")
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"payload": "text"}, InvalidParams),
        ({"payload": [1]}, InvalidParams),
        ({"context": {"type": "", "id": "x"}}, InvalidParams),
        ({"context": {"type": "run", "id": ""}}, InvalidParams),
        ({"context": {"type": "run"}}, InvalidParams),
        ({"context": {"type": "x" * 129, "id": "x"}}, InvalidParams),
        ({"thought_id": "x" * 129}, InvalidParams),
        ({"payload": {"text": "x" * 100}}, TooLarge),
    ],
)
async def test_a_wrong_thought_is_refused(tmp_path: Path, wrong: dict[str, Any], error: type) -> None:
    async with square(tmp_path, limits={"group.payload_octets": 100}) as town:
        gid = await town.found()
        with pytest.raises(error):
            await think(town.alice, gid, **wrong)
        fitting = {"text": "x" * (100 - len(dumps({"text": ""})))}
        await think(
            town.alice, gid, payload=fitting, context={"type": "t" * 128, "id": "i" * 128}, thought_id="x" * 128
        )


@pytest.mark.limit("group.thoughts", "group.thought_contexts")
async def test_the_oldest_thoughts_and_contexts_of_a_member_give_way(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.thoughts": 2, "group.thought_contexts": 2}) as town:
        gid = await town.found(town.bob)
        for text in ("one", "two", "three"):
            count = (await think(town.alice, gid, text))["stored_count"]
        assert count == 2
        assert await thoughts(town.bob, gid) == ["two", "three"]
        await think(town.bob, gid, "bob's")
        for name in ("run-2", "run-3"):
            await think(town.alice, gid, name, context={"type": "run", "id": name})
        assert await thoughts(town.bob, gid) == []
        assert await thoughts(town.bob, gid, context={"type": "run", "id": "run-2"}) == ["run-2"]
        assert await thoughts(town.alice, gid, BOB) == ["bob's"]
        assert town.limits.hits == {"group.thoughts": 1, "group.thought_contexts": 1}


@pytest.mark.limit("group.thought_octets")
async def test_the_oldest_context_of_all_gives_way_when_memory_is_full(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.thought_octets": 6_000}) as town:
        gid = await town.found(town.bob)
        await think(town.alice, gid, "x" * 2_000)
        await think(town.bob, gid, "y" * 2_000)
        assert len(await thoughts(town.bob, gid)) == 1
        await think(town.bob, gid, "z" * 4_000, context={"type": "run", "id": "run-2"})
        assert await thoughts(town.bob, gid) == []
        assert len(await thoughts(town.bob, gid, BOB, {"type": "run", "id": "run-2"})) == 1
        assert town.limits.hits["group.thought_octets"] >= 1


@pytest.mark.limit("group.thought_context_octets")
async def test_one_context_fits_one_answer(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        most = town.limits[bounds.THOUGHT_CONTEXT_OCTETS]
        for mark in "abcd":
            await think(town.alice, gid, mark * (most // 4))
        answer = await town.bob.call("group.thought.get", group_id=gid, sender_aid=ALICE, context=RUN)
        assert [one["payload"]["text"][0] for one in answer["thoughts"]] == ["b", "c", "d"]
        assert len(dumps(answer)) <= most < town.limits[ANSWER]
        assert town.limits.hits == {"group.thought_context_octets": 1}


async def test_thoughts_end_with_the_node(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await think(town.alice, gid)
    async with square(tmp_path) as town:
        assert await thoughts(town.bob, gid) == []


# How far topics were read.


async def test_a_position_goes_forward_only_and_is_shared_by_the_devices_of_an_aid(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        ids = [(await say(town.alice, gid))["message_id"] for _ in range(3)]
        one, two = (town.post.offline(BOB, device) for device in ("b1", "b2"))

        async def read(client: Client, at: int) -> bool:
            done = await client.call("group.read", group_id=gid, topic_key="t", last_read_message_id=ids[at])
            assert (done["updated"], done["ignored"]) == ((1, 0) if done["states"][0]["changed"] else (0, 1))
            return bool(done["states"][0]["changed"])

        assert [await read(one, 1), await read(one, 1), await read(one, 0)] == [True, False, False]
        assert await read(two, 0)
        shown = await two.call("group.read_state", group_id=gid)
        assert (shown["last_read_message_id"], shown["last_read_order"]) == (ids[1], 2)
        assert await read(two, 2)
        shown = await one.call("group.read_state")
        assert shown["states"] == [
            {
                "scope": "group",
                "group_id": gid,
                "topic_key": "t",
                "last_read_message_id": ids[2],
                "last_read_order": 3,
                "current_device_seq": 3,
                "mapping_status": "resolved",
                "updated_at": shown["updated_at"],
            }
        ]


async def test_a_message_that_is_not_known_is_no_step_back_from_one_that_is(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)

        async def read(message_id: str) -> Any:
            done = await town.bob.call("group.read", group_id=gid, topic_key="t", last_read_message_id=message_id)
            return done["states"][0]["changed"]

        assert [await read("far-1"), await read("far-1"), await read("far-2")] == [True, False, True]
        shown = await town.bob.call("group.read_state")
        assert (shown["mapping_status"], shown["current_device_seq"], shown["last_read_order"]) == (
            "unresolved",
            None,
            0,
        )
        known = (await say(town.alice, gid))["message_id"]
        assert [await read(known), await read("far-3")] == [True, False]


async def test_a_message_from_before_somebody_joined_is_not_known_to_them(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        before = (await say(town.alice, gid))["message_id"]
        await town.alice.call("group.add_member", group_id=gid, aid=BOB)
        await town.bob.call("group.read", group_id=gid, topic_key="t", last_read_message_id=before)
        assert (await town.bob.call("group.read_state"))["mapping_status"] == "unresolved"


async def test_only_the_same_aid_hears_how_far_it_has_read(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        sent = await say(town.alice, gid)
        alice, bob, other = [
            await town.post.connect(aid, device) for aid, device in ((ALICE, "a"), (BOB, "b"), (BOB, "c"))
        ]
        for _ in range(2):
            await bob.call("group.read", group_id=gid, topic_key="t", last_read_message_id=sent["message_id"])
        for one in (bob, other):
            [event] = await one.events("group.read_changed")
            assert (event["owner_aid"], event["group_id"], event["topic_key"]) == (BOB, gid, "t")
            assert event["last_read_message_id"] == sent["message_id"]
        assert await alice.events("group.read_changed") == []


@pytest.mark.limit("group.read_batch", "group.read_length")
async def test_one_bad_position_refuses_the_whole_batch(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.read_batch": 3}) as town:
        gid = await town.found(town.bob)
        stranger = await town.found()
        good = {"group_id": gid, "topic_key": "t", "last_read_message_id": "m"}
        before = await town.everything()
        for bad, error in (
            ({**good, "scope": "p2p"}, InvalidParams),
            ({**good, "topic_key": ""}, InvalidParams),
            ({**good, "last_read_message_id": ""}, InvalidParams),
            ({**good, "topic_key": "x" * 129}, InvalidParams),
            ({**good, "group_id": ""}, InvalidParams),
            ({**good, "group_id": stranger}, NotMember),
            ({**good, "group_id": f"g-nothing.{ISSUER}"}, GroupNotFound),
        ):
            with pytest.raises(error):
                await town.bob.call("group.read", states=[good, bad])
        for wrong in ([], [good] * 4):
            with pytest.raises(InvalidParams, match="1 to 3"):
                await town.bob.call("group.read", states=wrong)
        assert await town.everything() == before
        done = await town.bob.call("group.read", states=[{**good, "topic_key": key} for key in ("x" * 128, "b", "c")])
        assert (done["updated"], len(done["states"])) == (3, 3)


@pytest.mark.limit("group.read_topics")
async def test_an_aid_keeps_only_so_many_positions_and_may_move_those_it_has(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.read_topics": 2}) as town:
        gid = await town.found(town.bob)

        async def read(topic: str, message_id: str) -> None:
            await town.bob.call("group.read", group_id=gid, topic_key=topic, last_read_message_id=message_id)

        for topic in ("a", "b"):
            await read(topic, "m-1")
        with pytest.raises(RateLimited):
            await read("c", "m-1")
        await read("a", "m-2")


async def test_positions_are_read_by_their_owner_in_groups_they_are_in(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid, other = await town.found(town.bob), await town.found(town.bob)
        for one, topic in ((gid, "a"), (gid, "b"), (other, "a")):
            await town.bob.call("group.read", group_id=one, topic_key=topic, last_read_message_id="m")

        async def places(**how: str) -> list[tuple[str, str]]:
            found = await town.bob.call("group.read_state", **how)
            return sorted((one["group_id"], one["topic_key"]) for one in found["states"])

        assert await places() == sorted([(gid, "a"), (gid, "b"), (other, "a")])
        assert await places(group_id=gid) == [(gid, "a"), (gid, "b")]
        assert await places(topic_key="b") == [(gid, "b")]
        assert await places(aid=BOB) == await places()
        with pytest.raises(NotPermitted):
            await places(aid=ALICE)
        with pytest.raises(InvalidParams):
            await places(scope="p2p")
        with pytest.raises(NotMember):
            await town.carol.call("group.read_state", group_id=gid)
        await town.bob.call("group.leave", group_id=other)
        assert await places() == [(gid, "a"), (gid, "b")]


@pytest.mark.limit("group.page_octets")
async def test_positions_that_do_not_fit_one_answer_are_the_newest(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.page_octets": 500}) as town:
        gid = await town.found(town.bob)
        for topic in ("b", "a", "c"):
            await town.bob.call("group.read", group_id=gid, topic_key=topic, last_read_message_id="m")
            town.clock.advance(SECOND)
        found = await town.bob.call("group.read_state")
        assert ([one["topic_key"] for one in found["states"]], found["has_more"]) == (["a", "c"], True)
        found = await town.bob.call("group.read_state", topic_key="b")
        assert (found["topic_key"], "has_more" in found) == ("b", False)
