from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.contract.errors import EdgeError, InvalidParams, MethodNotFound, NotPermitted, TooLarge
from edge.contract.op import Call, Params, op
from edge.services.routes import RouteService
from tests.support.messaging import ALICE, BOB, CAROL, Post, post_office

TYPING = {"method": "event/app.typing", "params": {"thread_id": "t1"}}


class InGroup(Params, frozen=True, kw_only=True):
    group_id: str


class Online(msgspec.Struct):
    members: list[dict[str, str]]


class Groups:
    """The group area, as far as a notification asks it: one group, of Alice and Bob."""

    @op("group.get_online_members", scope="any", wire={})
    async def online(self, call: Call[InGroup]) -> Online:
        """Who of a group is connected."""
        if call.who.aid == CAROL:
            raise NotPermitted("not a member")
        return Online([{"aid": ALICE}, {"aid": BOB}])


def routes(post: Post) -> RouteService:
    return RouteService(post.clock, post.channels, post.hub, _Asking(post), post.limits)


class _Asking:
    def __init__(self, post: Post) -> None:
        self._post = post

    async def call(self, name: str, params: object, who: Any) -> Any:
        return await self._post.dispatcher.run(name, params, who)


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    async with post_office(tmp_path, services=lambda post: (routes(post), Groups())) as made:
        yield made


async def test_every_long_connection_of_the_target_gets_it_stamped_with_its_sender(post: Post) -> None:
    one, two = await post.connect(BOB, "b1"), await post.connect(BOB, "b2")
    alice = await post.connect(ALICE, "a1", "work/x")
    claimed = {**TYPING, "params": {"thread_id": "t1", "_notify": {"from_aid": CAROL}}}
    done = await alice.call("notification/route", target={"type": "aid", "aid": BOB}, deliver=claimed, ttl_ms=5000)
    assert done == {"delivered": 2}
    for client in (one, two):
        [told] = await client.events("app.typing")
        stamp = told["_notify"]
        assert told["thread_id"] == "t1"
        assert (stamp["from_aid"], stamp["device_id"], stamp["ttl_ms"]) == (ALICE, "a1", 5000)
        assert alice.channel is not None
        assert stamp["connection_id"] == alice.channel.id
        assert stamp["sent_at"] > 1_600_000_000_000
    assert await alice.events("app.typing") == []


async def test_one_device_and_one_slot_can_be_named(post: Post) -> None:
    clients = [await post.connect(BOB, device, slot) for device, slot in (("b1", "w/1"), ("b1", "x"), ("b2", "w"))]
    alice = post.offline()
    await alice.call("notification/route", target={"aid": BOB, "device_id": "b1"}, deliver=TYPING)
    await alice.call("notification/route", target={"aid": BOB, "device_id": "b1", "slot_id": "w/9"}, deliver=TYPING)
    assert [len(await client.events("app.typing")) for client in clients] == [2, 1, 0]


async def test_nobody_there_is_nobody_told_and_nothing_is_kept(post: Post) -> None:
    done = await post.offline().call("notification/route", target={"aid": BOB}, deliver=TYPING)
    assert done == {"delivered": 0}
    bob = await post.connect(BOB, "b1")
    assert await bob.events("app.typing") == []


@pytest.mark.parametrize(
    "method",
    ["event/message.received", "event/app.", "event/application.x", "app.typing", "notification/x", "event/app.a\nb"],
)
async def test_only_events_of_applications_are_routed(post: Post, method: str) -> None:
    bob = await post.connect(BOB, "b1")
    with pytest.raises(InvalidParams):
        await post.offline().call("notification/route", target={"aid": BOB}, deliver={"method": method, "params": {}})
    assert await bob.events() == []


@pytest.mark.parametrize(
    "more",
    [
        {"target": {"aid": BOB, "slot_id": "w"}},
        {"target": {"aid": BOB, "type": "group"}},
        {"target": {"aid": "no aid"}},
        {"deliver": {"method": "event/app.x", "params": [1]}},
        {"ttl_ms": -1},
    ],
)
async def test_what_is_malformed_reaches_nobody(post: Post, more: dict[str, Any]) -> None:
    bob = await post.connect(BOB, "b1")
    with pytest.raises(InvalidParams):
        await post.offline().call("notification/route", **{"target": {"aid": BOB}, "deliver": TYPING, **more})
    assert await bob.events() == []


@pytest.mark.limit("notification.ttl_ms")
async def test_a_life_of_a_minute_is_the_longest(post: Post) -> None:
    alice = post.offline()
    await alice.call("notification/route", target={"aid": BOB}, deliver=TYPING, ttl_ms=60_000)
    with pytest.raises(InvalidParams):
        await alice.call("notification/route", target={"aid": BOB}, deliver=TYPING, ttl_ms=60_001)
    assert post.limits.hits == {"notification.ttl_ms": 1}


@pytest.mark.limit("notification.octets")
async def test_params_at_the_limit_pass_and_one_byte_more_does_not(post: Post) -> None:
    room = 65_536 - len('{"x":""}')
    alice, bob = post.offline(), await post.connect(BOB, "b1")
    for size in (room, room + 1):
        deliver = {"method": "event/app.x", "params": {"x": "y" * size}}
        try:
            await alice.call("notification/route", target={"aid": BOB}, deliver=deliver)
        except TooLarge:
            assert size == room + 1
    assert [len(told["x"]) for told in await bob.events("app.x")] == [room]


async def test_the_other_members_of_a_group_get_it(post: Post) -> None:
    alice, bob, carol = [await post.connect(aid, "d1") for aid in (ALICE, BOB, CAROL)]
    done = await alice.call("notification/group.route", group_id="g-1", deliver=TYPING)
    assert done == {"delivered": 1}
    assert [len(await one.events("app.typing")) for one in (alice, bob, carol)] == [0, 1, 0]
    with pytest.raises(NotPermitted):
        await carol.call("notification/group.route", group_id="g-1", deliver=TYPING)


@pytest.mark.limit("notification.members")
async def test_a_group_above_the_limit_is_not_told(tmp_path: Path) -> None:
    class Pair(Groups):
        """Alice and Bob; with Carol asking, three."""

        @op("group.get_online_members", scope="any", wire={})
        async def online(self, call: Call[InGroup]) -> Online:
            """Who of a group is connected."""
            return Online([{"aid": aid} for aid in (ALICE, BOB, CAROL)][: int(call.params.group_id)])

    limits = {"notification.members": 1}
    async with post_office(tmp_path, services=lambda post: (routes(post), Pair()), limits=limits) as post:
        await post.connect(BOB, "b1")
        assert await post.offline().call("notification/group.route", group_id="2", deliver=TYPING) == {"delivered": 1}
        with pytest.raises(TooLarge):
            await post.offline().call("notification/group.route", group_id="3", deliver=TYPING)


async def test_without_a_group_area_there_are_no_groups(tmp_path: Path) -> None:
    async with post_office(tmp_path, services=lambda post: (routes(post),)) as post:
        with pytest.raises(MethodNotFound):
            await post.offline().call("notification/group.route", group_id="g-1", deliver=TYPING)


async def test_an_answer_that_names_no_members_is_a_failure(tmp_path: Path) -> None:
    class Silent:
        @op("group.get_online_members", scope="any", wire={})
        async def online(self, call: Call[InGroup]) -> dict[str, int]:
            """Say something else."""
            return {"count": 2}

    async with post_office(tmp_path, services=lambda post: (routes(post), Silent())) as post:
        with pytest.raises(EdgeError):
            await post.offline().call("notification/group.route", group_id="g-1", deliver=TYPING)


async def test_subscriptions_and_activity_are_taken_and_change_nothing(post: Post) -> None:
    bob = await post.connect(BOB, "b1")
    assert await bob.call("event.unsubscribe", events=["message.received"]) == {"ok": True}
    assert await bob.call("event.subscribe", events=["message.received"]) == {"ok": True}
    assert await bob.call("notification/client.activity", state="idle") == {"ok": True}
    await post.offline().send(BOB)
    assert len(await bob.events("message.received")) == 1
