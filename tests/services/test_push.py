from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import InvalidParams, NotPermitted, RateLimited, TooLarge, UnknownAid
from edge.contract.time import SECOND
from edge.services.push import GRACE_US, PAUSES_US, PushService
from edge.store import ledger
from tests.support.messaging import ALICE, BOB, CAROL, Client, Post, post_office

SERVER = CAROL


class Shop:
    """A message service with push beside it; Carol is the push server."""

    def __init__(self, post: Post, push: PushService) -> None:
        self.post, self.push = post, push

    async def passes(self, us: int) -> None:
        """Time goes by, and what it sets off is done."""
        self.post.clock.advance(us)
        await self.post.rest()

    async def register(self, device: str = "b1", token: str = "tok", **more: Any) -> dict[str, Any]:
        bob = self.post.offline(BOB, device)
        return await bob.call("push.register", push_server_aid=SERVER, push_token=token, **more)

    async def drops(self) -> list[tuple[str, str, int]]:
        await self.post.rest()
        return [(drop.log, drop.reason, drop.count) for drop in await self.post.node.read(ledger.drops)]


@asynccontextmanager
async def shop(folder: Path, **limits: int) -> AsyncIterator[Shop]:
    made: list[PushService] = []

    def services(post: Post) -> list[PushService]:
        made.append(PushService(post.node, post.clock, post.channels, post.hub, post.spawn, post.known, post.limits))
        return made

    named = {name.replace("__", "."): value for name, value in limits.items()}
    async with post_office(folder, services=services, limits=named) as post:
        post.hub.attach_audience(made[0].heard)
        await made[0].start()
        try:
            yield Shop(post, made[0])
        finally:
            made[0].stop()


async def batches(server: Client) -> list[dict[str, Any]]:
    return await server.events("push.offline_message")


async def test_a_message_for_somebody_away_wakes_every_installation_after_a_moment(tmp_path: Path) -> None:
    async with shop(tmp_path) as at:
        server = await at.post.connect(SERVER, "s1")
        await at.register("b1", "tok-1")
        await at.register("b2", "tok-2", provider="mock", app_id="app")
        for _ in range(3):
            await at.post.offline().send(BOB)
        await at.passes(GRACE_US - 1)
        assert await batches(server) == []
        await at.passes(1)
        [batch] = await batches(server)
        assert batch["protocol_version"] == "1"
        assert len(batch["batch_id"]) == 64
        assert [(item["device_id"], item["push_token"], item["new_count"]) for item in batch["items"]] == [
            ("b1", "tok-1", 3),
            ("b2", "tok-2", 3),
        ]
        assert {item["target_aid"] for item in batch["items"]} == {BOB}
        assert "hi" not in str(batch)
        assert ALICE not in str(batch)


async def test_who_is_connected_or_comes_back_in_time_is_not_woken(tmp_path: Path) -> None:
    async with shop(tmp_path) as at:
        server = await at.post.connect(SERVER, "s1")
        await at.register()
        bob = await at.post.connect(BOB, "b1")
        await at.post.offline().send(BOB)
        await bob.leave()
        await at.post.offline().send(BOB)
        await at.post.connect(BOB, "b1")
        await at.passes(GRACE_US + sum(PAUSES_US))
        assert await batches(server) == []
        assert await at.drops() == []


async def test_an_accepted_batch_is_over_and_the_next_message_wakes_again(tmp_path: Path) -> None:
    async with shop(tmp_path) as at:
        server = await at.post.connect(SERVER, "s1")
        await at.register()
        await at.post.offline().send(BOB)
        await at.passes(GRACE_US)
        [batch] = await batches(server)
        ack = {"batch_id": batch["batch_id"], "status": "accepted"}
        assert await server.call("push.ack", **ack) == {"status": "applied"}
        assert await server.call("push.ack", **ack) == {"status": "duplicate"}
        await at.passes(sum(PAUSES_US))
        assert len(await batches(server)) == 1
        await at.post.offline().send(BOB)
        await at.passes(GRACE_US)
        assert len(await batches(server)) == 2


async def test_what_nobody_confirms_is_tried_again_and_then_given_up_with_a_count(tmp_path: Path) -> None:
    async with shop(tmp_path) as at:
        await at.register()
        await at.post.offline().send(BOB)
        await at.passes(GRACE_US)
        server = await at.post.connect(SERVER, "s1")
        found: list[str] = []
        for pause in PAUSES_US[:-1]:
            await at.passes(pause)
            batch = (await batches(server))[-1]
            found.append(batch["items"][0]["delivery_id"])
        assert len(found) == len(set(b["batch_id"] for b in await batches(server))) == 2
        assert len(set(found)) == 1
        await at.passes(PAUSES_US[-1])
        assert len(await batches(server)) == 2
        assert await at.drops() == [("push", "no push server confirmed it", 1)]
        assert await server.call("push.ack", batch_id=batch["batch_id"], status="accepted") == {"status": "stale"}


async def test_a_permanent_failure_ends_it_and_a_passing_one_does_not(tmp_path: Path) -> None:
    async with shop(tmp_path) as at:
        server = await at.post.connect(SERVER, "s1")
        await at.register()
        await at.post.offline().send(BOB)
        await at.passes(GRACE_US)
        [first] = await batches(server)
        await server.call("push.ack", batch_id=first["batch_id"], status="retryable_failure")
        await at.passes(PAUSES_US[0])
        [_, second] = await batches(server)
        await server.call("push.ack", batch_id=second["batch_id"], status="permanent_failure")
        await at.passes(sum(PAUSES_US))
        assert len(await batches(server)) == 2
        assert await at.drops() == [("push", "refused by the push server", 1)]


async def test_only_the_push_server_of_a_batch_confirms_it(tmp_path: Path) -> None:
    async with shop(tmp_path) as at:
        server = await at.post.connect(SERVER, "s1")
        await at.register()
        await at.post.offline().send(BOB)
        await at.passes(GRACE_US)
        [batch] = await batches(server)
        with pytest.raises(NotPermitted):
            await at.post.offline(ALICE).call("push.ack", batch_id=batch["batch_id"], status="accepted")
        with pytest.raises(InvalidParams):
            await server.call("push.ack", batch_id=batch["batch_id"], status="perhaps")


async def test_the_oldest_connection_of_the_push_server_gets_it(tmp_path: Path) -> None:
    async with shop(tmp_path) as at:
        first, second = await at.post.connect(SERVER, "s1"), await at.post.connect(SERVER, "s2")
        await at.register()
        await at.post.offline().send(BOB)
        await at.passes(GRACE_US)
        assert (len(await batches(first)), len(await batches(second))) == (1, 0)


async def test_registering_again_counts_up_and_unregistering_ends_it(tmp_path: Path) -> None:
    async with shop(tmp_path) as at:
        server = await at.post.connect(SERVER, "s1")
        one, two = await at.register(token="a"), await at.register(token="b")
        assert one["registration_id"] == two["registration_id"]
        assert (one["registration_version"], two["registration_version"]) == (1, 2)
        for _ in range(2):
            assert await at.post.offline(BOB, "b1").call("push.unregister") == {"status": "disabled"}
        await at.post.offline().send(BOB)
        await at.passes(GRACE_US + SECOND)
        assert await batches(server) == []


async def test_registrations_survive_a_restart(tmp_path: Path) -> None:
    async with shop(tmp_path) as at:
        await at.register()
    async with shop(tmp_path) as at:
        server = await at.post.connect(SERVER, "s1")
        await at.post.offline().send(BOB)
        await at.passes(GRACE_US)
        assert len(await batches(server)) == 1


async def test_a_push_server_that_is_not_of_this_node_is_refused(tmp_path: Path) -> None:
    async with shop(tmp_path) as at:
        for server, error in ((f"nobody.{BOB.partition('.')[2]}", UnknownAid), ("no aid", InvalidParams)):
            with pytest.raises(error):
                await at.post.offline(BOB).call("push.register", push_server_aid=server, push_token="t")
        with pytest.raises(InvalidParams):
            await at.register(token="")


@pytest.mark.limit("push.token_octets")
async def test_a_token_at_the_limit_is_kept_and_one_byte_more_is_not(tmp_path: Path) -> None:
    async with shop(tmp_path) as at:
        await at.register(token="é" * 2048)
        with pytest.raises(TooLarge):
            await at.register(token="é" * 2048 + "x")


@pytest.mark.limit("push.installations")
async def test_an_installation_above_the_limit_is_refused_and_a_known_one_is_not(tmp_path: Path) -> None:
    async with shop(tmp_path, push__installations=2) as at:
        await at.register("b1")
        await at.register("b2")
        with pytest.raises(RateLimited):
            await at.register("b3")
        await at.register("b1", "newer")


@pytest.mark.limit("push.waiting")
async def test_a_wake_up_above_the_limit_is_counted_and_dropped(tmp_path: Path) -> None:
    async with shop(tmp_path, push__waiting=1) as at:
        server = await at.post.connect(SERVER, "s1")
        await at.register()
        await at.post.offline(ALICE).call("push.register", push_server_aid=SERVER, push_token="t")
        await at.post.offline(CAROL).send(BOB)
        await at.post.offline(CAROL).send(ALICE)
        await at.passes(GRACE_US)
        assert [item["target_aid"] for batch in await batches(server) for item in batch["items"]] == [BOB]
        assert await at.drops() == [("push", "too many wake-ups", 1)]
