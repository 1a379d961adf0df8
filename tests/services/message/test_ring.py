"""Queue mode: rules M-7 to M-9, Q-1, settled G35."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.contract.channel import Instance
from edge.contract.errors import RateLimited
from edge.contract.limit import Limits
from edge.contract.time import SECOND
from edge.protocol.aun_events import Delivery
from edge.services.message.ring import Ring, Routes, place
from edge.store import ledger
from tests.support.messaging import ALICE, BOB, CAROL, PEER, Post, post_office

QUEUE = {"mode": "queue"}


def message(text: str = "hi", sender: str = ALICE, **more: object) -> Delivery:
    payload = msgspec.Raw(msgspec.json.encode({"text": text}))
    return Delivery(sender=sender, to=BOB, message_id=text, payload=payload, sent_ms=0, mode="queue", **more)  # type: ignore[arg-type]


def instance(device: str, slot: str = "", routing: str = "") -> Instance:
    return Instance(channel=f"c-{device}{slot}", aid=BOB, device_id=device, slot=slot, mode="queue", routing=routing)


async def fill(post: Post, count: int) -> None:
    for number in range(count):
        await post.offline().send(BOB, {"type": "text", "text": str(number)}, delivery_mode=QUEUE)


@pytest.mark.seed("S0-022", "S0-024")
async def test_m7_a_queue_message_reaches_exactly_one_instance_and_no_table(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        one, two = await post.connect(BOB, "b1", mode="queue"), await post.connect(BOB, "b2", mode="queue")
        await fill(post, 3)
        heard = [await client.events("message.received") for client in (one, two)]
        assert sorted(map(len, heard)) == [0, 3]
        assert {event["delivery_mode"] for events in heard for event in events} == {"queue"}
        busy, idle = (one, two) if heard[0] else (two, one)
        assert (await busy.call("message.pull"))["count"] == 3
        assert (await idle.call("message.pull"))["count"] == 0
        assert (await busy.call("message.history", before_seq=100))["messages"] == []
    async with post_office(tmp_path) as post:
        assert (await post.offline(BOB, "b1").call("message.pull"))["count"] == 0


@pytest.mark.seed("S0-024")
async def test_m7_another_sender_goes_to_the_other_instance_and_keeps_it(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        one, two = await post.connect(BOB, "b1", mode="queue"), await post.connect(BOB, "b2", mode="queue")
        for sender in (ALICE, CAROL, ALICE, CAROL, CAROL):
            await post.offline(sender).send(BOB)
        senders = [{event["from"] for event in await client.events()} for client in (one, two)]
        assert senders == [{ALICE}, {CAROL}]


@pytest.mark.seed("S0-023", "S0-038")
@pytest.mark.limit("message.ring_rows")
async def test_m8_the_201st_message_evicts_the_oldest_and_says_so(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 200)
        bob = post.offline(BOB, "b1")
        page = await bob.call("message.pull", limit=1)
        assert (page["ephemeral_earliest_available_seq"], page["ephemeral_dropped_count"]) == (1, 0)
        await fill(post, 1)
        page = await bob.call("message.pull", limit=1)
        assert (page["ephemeral_earliest_available_seq"], page["ephemeral_dropped_count"]) == (2, 1)
        assert post.limits.hits == {"message.ring_rows": 1}
        await post.rest()
        [gap] = await post.node.read(lambda unit: ledger.gaps(unit, "inbox", BOB))
        assert (gap.first, gap.last, gap.count, gap.reason) == (1, 1, 1, "ring_full")


async def test_m8_what_was_acknowledged_is_evicted_without_being_a_loss(tmp_path: Path) -> None:
    async with post_office(tmp_path, limits={"message.ring_rows": 3}) as post:
        bob = await post.connect(BOB, "b1", mode="queue")
        await fill(post, 3)
        await bob.call("message.ack", seq=2)
        await fill(post, 3)
        await post.rest()
        gaps = await post.node.read(lambda unit: ledger.gaps(unit, "inbox", BOB))
        assert [(gap.first, gap.last) for gap in gaps] == [(3, 3)]
        assert (await bob.call("message.pull"))["ephemeral_dropped_count"] == 3


@pytest.mark.seed("S0-023", "S0-038")
@pytest.mark.limit("message.ring_s")
async def test_m8_after_five_minutes_the_ring_is_empty_by_policy(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 2)
        post.clock.advance(300 * SECOND - 1)
        assert (await post.offline(BOB).call("message.pull"))["count"] == 2
        post.clock.advance(1)
        page = await post.offline(BOB).call("message.pull")
        assert (page["count"], page["ephemeral_earliest_available_seq"]) == (0, None)
        assert page["ephemeral_dropped_count"] == 0
        assert await post.node.read(ledger.drops) == []


@pytest.mark.seed("S0-022")
async def test_m9_a_queue_message_without_an_instance_waits_for_the_first_reader(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        sent = await post.offline().send(BOB, delivery_mode=QUEUE)
        assert (sent["seq"], sent["status"]) == (1, "sent")
        first, second = post.offline(BOB, "b1"), post.offline(BOB, "b2")
        assert (await first.call("message.pull"))["count"] == 1
        assert (await first.call("message.pull"))["count"] == 1
        assert (await second.call("message.pull"))["count"] == 0


async def test_an_instance_that_comes_gets_what_waits(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 2)
        late = await post.connect(BOB, "b1", mode="queue")
        assert [event["payload"]["text"] for event in await late.events()] == ["0", "1"]
        assert (await post.offline(BOB, "b2").call("message.pull"))["count"] == 0


@pytest.mark.seed("S0-039")
async def test_m10_ring_and_stored_rows_come_in_one_order(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice = post.offline()
        for mode in ("fanout", "queue", "queue", "fanout", "queue"):
            await alice.send(BOB, delivery_mode=mode)
        bob = post.offline(BOB, "b1")
        page = await bob.call("message.pull")
        assert [(row["seq"], row["delivery_mode"]) for row in page["messages"]] == [
            (1, "fanout"),
            (2, "queue"),
            (3, "queue"),
            (4, "fanout"),
            (5, "queue"),
        ]
        short = await bob.call("message.pull", limit=2)
        assert ([row["seq"] for row in short["messages"]], short["has_more"]) == ([1, 2], True)


async def test_q1_the_current_sdk_finds_its_queue_messages_in_the_catalogue(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await post.offline().send(BOB)
        bob = await post.connect(BOB, "b1", announced=PEER, mode="queue")
        await post.offline().send(BOB)
        [hint] = await bob.events("peer.v2.message_received")
        assert hint["kind"] == "message.online_unread_hint"
        [event] = await bob.events("message.received")
        assert (event["seq"], event["prev_peer_seq"]) == (2, 1)
        assert event["inline_message"]["legacy_v1"]["payload"]["text"] == "hi"
        [peer] = (await bob.call("message.peers"))["peers"]
        assert (peer["sender_aid"], peer["head_seq"]) == (ALICE, 2)
        page = await bob.call("message.v2.pull", cursor_scope="peer", sender_aid=ALICE)
        assert [row["seq"] for row in page["messages"]] == [1, 2]
        ack = await bob.call("message.v2.ack", cursor_scope="peer", sender_aid=ALICE, up_to_seq=2)
        assert ack["effective_ack_seq"] == 2
        assert (await bob.call("message.peers"))["peers"] == []


async def test_an_acknowledged_queue_message_tells_its_sender(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice = await post.connect(ALICE)
        bob = await post.connect(BOB, "b1", mode="queue")
        await alice.send(BOB)
        await bob.call("message.ack", seq=1)
        await bob.call("message.ack", seq=1)
        assert [event["ack_seq"] for event in await alice.events("message.ack")] == [1]


@pytest.mark.limit("message.ring_total_octets")
async def test_memory_for_queue_and_volatile_messages_is_bounded(tmp_path: Path) -> None:
    async with post_office(tmp_path, limits={"message.ring_total_octets": 100}) as post:
        alice = post.offline()
        await alice.send(BOB, {"t": "x" * 60}, delivery_mode=QUEUE)
        for more in ({"delivery_mode": QUEUE}, {"ttl": 9}):
            with pytest.raises(RateLimited):
                await alice.send(CAROL, {"t": "x" * 60}, **more)
        post.clock.advance(300 * SECOND)
        await post.offline(BOB).call("message.pull")
        await alice.send(CAROL, {"t": "x" * 60}, ttl=9)


@pytest.mark.limit("message.ring_share")
@pytest.mark.parametrize("more", [{"delivery_mode": QUEUE}, {"ttl": 9}])
async def test_sending_at_once_gets_nobody_more_of_it(tmp_path: Path, more: dict[str, Any]) -> None:
    async with post_office(tmp_path, limits={"message.ring_total_octets": 1_000}) as post:
        alice, text = post.offline(), {"t": "x" * 92}
        sent = await asyncio.gather(*(alice.send(BOB, text, **more) for _ in range(32)), return_exceptions=True)
        assert sum(isinstance(one, dict) for one in sent) == 5
        assert sum(isinstance(one, RateLimited) for one in sent) == 27
        assert (await post.offline(CAROL).send(BOB, text, **more))["message_id"]


@pytest.mark.limit("message.ring_octets")
def test_the_ring_of_an_aid_is_bounded_in_bytes() -> None:
    limits = Limits({"message.ring_octets": 50})
    ring = Ring(limits)
    assert ring.put(BOB, 1, message("x" * 30), None, 0) == []
    assert [row.seq for row in ring.put(BOB, 2, message("y" * 30), None, 0)] == [1]
    assert [row.seq for row in ring.put(BOB, 3, message("z" * 90), None, 0)] == [2]
    assert (ring.earliest(BOB, 0), ring.dropped(BOB)) == (3, 2)


@pytest.mark.limit("message.affinity_s")
def test_g35_affinity_ends_after_five_minutes_of_silence() -> None:
    routes, live = Routes(Limits()), [instance("b1"), instance("b2")]
    chosen = routes.choose(live, ALICE, 0)
    assert chosen is not None
    for now in (299, 598, 897):
        assert routes.choose(live, ALICE, now * SECOND) == chosen
    assert routes.choose(live, ALICE, (897 + 300) * SECOND) != chosen


def test_senders_that_were_silent_too_long_take_no_room() -> None:
    routes, live = Routes(Limits()), [instance("b1")]
    for number in range(100):
        routes.choose(live, f"sender-{number}.edge.test", number * SECOND)
    assert len(routes) == 100
    routes.choose(live, ALICE, 350 * SECOND)
    assert len(routes) == 50
    routes.choose(live, ALICE, 1_000 * SECOND)
    assert len(routes) == 1


def test_g35_round_robin_only_when_asked() -> None:
    routes = Routes(Limits())
    live = [instance("b1", routing="round_robin"), instance("b2", routing="round_robin")]
    found = [routes.choose(live, ALICE, 0) for _ in range(4)]
    assert [one.device_id for one in found if one] == ["b1", "b2", "b1", "b2"]


def test_an_instance_that_is_gone_is_replaced() -> None:
    routes = Routes(Limits())
    first = routes.choose([instance("b1")], ALICE, 0)
    second = routes.choose([instance("b2")], ALICE, 1)
    assert (first and first.device_id, second and second.device_id) == ("b1", "b2")
    assert routes.choose([], ALICE, 2) is None


@pytest.mark.limit("message.affinities")
def test_routes_forget_the_oldest_pairs() -> None:
    limits = Limits({"message.affinities": 2})
    routes, live = Routes(limits), [instance("b1")]
    for number in range(5):
        routes.choose(live, f"agent{number}.edge.test", 0)
    assert limits.hits == {"message.affinities": 3}


def test_the_place_of_a_connection_is_its_device_and_isolation_key() -> None:
    assert place(instance("b1", "work/a")) == ("b1", "work")
    assert place(instance("", "work")) == ("", "")


def test_a_queue_message_for_one_device_is_another_devices_nothing() -> None:
    ring = Ring(Limits())
    ring.put(BOB, 1, message(devices=("b2",)), None, 0)
    assert ring.visible(BOB, ("b1", ""), 0) == ring.unclaimed(BOB, "b1", 0) == []
    assert [row.seq for row in ring.unclaimed(BOB, "b2", 0)] == [1]
