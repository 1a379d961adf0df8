"""Pull, ack, catalogue, history, presence: rules M-6, M-7, M-10 to M-13, M-15, M-16, M-19, M-20, M-25 to M-27."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import InvalidParams, NotPermitted
from edge.contract.store import Unit
from edge.contract.time import SECOND, Stamp
from edge.contract.wire import dumps
from edge.store import ledger, messages
from tests.support.clock import FakeClock
from tests.support.messaging import ALICE, BOB, CAROL, FIRST, PEER, Client, Post, post_office

DAY = 86_400 * SECOND


def seqs(page: dict[str, Any]) -> list[int]:
    return [row["seq"] for row in page["messages"]]


async def peer_pull(client: Client, sender: str = ALICE, **more: Any) -> dict[str, Any]:
    return await client.call("message.v2.pull", cursor_scope="peer", sender_aid=sender, **more)


async def peer_ack(client: Client, seq: int, sender: str = ALICE) -> dict[str, Any]:
    return await client.call("message.v2.ack", cursor_scope="peer", sender_aid=sender, up_to_seq=seq)


class NextBoot(FakeClock):
    """A day after everything that the boot before it stamped."""

    def wall(self, at: Stamp) -> tuple[int, int]:
        return super().wall(at)[0] + (DAY if at.boot == self.boot else 0), 0


async def fill(post: Post, count: int, sender: str = ALICE, to: str = BOB) -> None:
    client = post.offline(sender)
    for number in range(count):
        await client.send(to, {"type": "text", "text": f"{sender[0]}{number}"})


@pytest.mark.seed("S0-040", "S0-043")
async def test_m6_another_device_or_slot_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 2)
        bob = await post.connect(BOB, "b1", "work/a")
        for wrong in ({"device_id": "b2"}, {"device_id": ""}, {"slot_id": "play"}, {"slot_id": ""}):
            with pytest.raises(NotPermitted):
                await bob.call("message.pull", **wrong)
            with pytest.raises(NotPermitted):
                await bob.call("message.ack", seq=2, **wrong)
        assert (await bob.call("message.ack", seq=0))["ack_seq"] == 0
        assert seqs(await bob.call("message.pull", device_id="b1", slot_id="work/b")) == [1, 2]


@pytest.mark.seed("S0-042")
async def test_m6_slots_with_one_isolation_key_are_one_reader(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 3)
        one, same, other = (post.offline(BOB, "b1", slot) for slot in ("work/a", "work/b", "play"))
        await one.call("message.ack", seq=2)
        assert (await same.call("message.ack", seq=1))["ack_seq"] == 2
        assert (await other.call("message.ack", seq=1))["ack_seq"] == 1


@pytest.mark.seed("S0-021", "S0-025", "S0-048")
async def test_m7_a_fanout_message_reaches_every_instance_and_stays_for_those_who_come_later(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        one, two = await post.connect(BOB, "b1"), await post.connect(BOB, "b2")
        sent = await post.offline().send(BOB, message_id="m-1")
        [event] = await one.events("message.received")
        assert [event] == await two.events("message.received")
        wanted = {
            "from": ALICE,
            "to": BOB,
            "message_id": "m-1",
            "seq": sent["seq"],
            "payload": {"type": "text", "text": "hi"},
            "timestamp": sent["timestamp"],
            "delivery_mode": "fanout",
            "encrypted": False,
        }
        assert event == {**event, **wanted}
        later = await post.connect(BOB, "b3")
        assert seqs(await later.call("message.pull")) == [1]


@pytest.mark.seed("S0-036", "S0-037", "S0-038", "S0-039")
async def test_m10_pull_pages_upwards_and_repeats_itself(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 3)
        bob = post.offline(BOB)
        page = await bob.call("message.pull", after_seq=1)
        assert page == await bob.call("message.pull", after_seq=1)
        assert (seqs(page), page["count"], page["latest_seq"]) == ([2, 3], 2, 3)
        assert (page["ephemeral_earliest_available_seq"], page["ephemeral_dropped_count"]) == (None, 0)
        assert page["messages"][0] == {
            **page["messages"][0],
            "from": ALICE,
            "to": BOB,
            "payload": {"type": "text", "text": "a1"},
            "delivery_mode": "fanout",
        }
        empty = await bob.call("message.pull", after_seq=3)
        assert (empty["messages"], empty["count"], empty["latest_seq"], empty["has_more"]) == ([], 0, 3, False)


@pytest.mark.seed("S0-036")
@pytest.mark.limit("message.page_rows")
async def test_m10_the_limit_is_100_at_most_200_and_clamped(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 201)
        bob = post.offline(BOB)
        for limit, count in ((None, 100), (200, 200), (201, 200), (0, 1), (-3, 1), (2, 2)):
            page = await bob.call("message.pull", limit=limit)
            assert (page["count"], page["has_more"]) == (count, True)
        assert (await peer_pull(bob))["count"] == 200


@pytest.mark.limit("message.page_octets")
async def test_a_page_is_cut_by_bytes_but_never_empty(tmp_path: Path) -> None:
    async with post_office(tmp_path, limits={"message.page_octets": 4_000}) as post:
        alice, bob = post.offline(), post.offline(BOB)
        for size in (5_000, 400, 400, 400):
            await alice.send(BOB, {"t": "x" * size})
        found = []
        after = 0
        while (page := await bob.call("message.pull", after_seq=after))["messages"]:
            found.append(seqs(page))
            after = page["latest_seq"]
        assert found == [[1], [2, 3], [4]]
        first = await peer_pull(bob)
        assert (seqs(first), first["covered_through_seq"], first["persistent_has_more"]) == ([1], 1, True)


@pytest.mark.seed("S0-039", "S0-041")
async def test_m11_only_ack_moves_the_cursor_and_only_forward_and_not_beyond_the_head(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 3)
        bob = post.offline(BOB, "b1")
        await bob.call("message.pull")
        assert (await bob.call("message.ack", seq=0)) == {"success": True, "ack_seq": 0}
        assert (await bob.call("message.ack", seq=2)) == {"success": True, "ack_seq": 2}
        assert (await bob.call("message.ack", seq=1)) == {"success": True, "ack_seq": 2}
        assert (await bob.call("message.ack", seq=99)) == {"success": True, "ack_seq": 3}
        for wrong in ({}, {"seq": -1}, {"seq": "3"}, {"seq": None}):
            with pytest.raises(InvalidParams):
                await bob.call("message.ack", **wrong)


@pytest.mark.seed("S0-028", "S0-042")
async def test_m12_devices_keep_their_own_cursors_and_those_without_one_share_one(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 4)
        acks = {("b1", ""): 1, ("b2", ""): 2, ("b1", "work"): 3, ("", ""): 4}
        for (device, slot), seq in acks.items():
            await post.offline(BOB, device, slot).call("message.ack", seq=seq)
        for (device, slot), seq in acks.items():
            assert (await post.offline(BOB, device, slot).call("message.ack", seq=0))["ack_seq"] == seq
        assert (await post.offline(BOB, "", "elsewhere").call("message.ack", seq=0))["ack_seq"] == 4
        for (device, slot), seq in acks.items():  # each reads on from where it stands itself
            page = await post.offline(BOB, device, slot).call("message.pull", after_seq=seq)
            assert (seqs(page), page["server_ack_seq"]) == (list(range(seq + 1, 5)), seq)


@pytest.mark.seed("S0-049")
async def test_m13_an_ack_tells_each_newly_covered_sender_once(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, carol = await post.connect(ALICE, "a1"), await post.connect(CAROL, "c1")
        await fill(post, 2)
        await fill(post, 1, CAROL)
        bob = post.offline(BOB, "b1", "work/x")
        await bob.call("message.ack", seq=2)
        await bob.call("message.ack", seq=2)
        assert await alice.events("message.ack") == [
            {
                "to": BOB,
                "device_id": "b1",
                "slot_id": "work",
                "ack_seq": 2,
                "timestamp": post.clock.wall(post.clock.now())[0] // 1000,
            }
        ]
        assert await carol.events("message.ack") == []
        await bob.call("message.ack", seq=3)
        assert len(await alice.events("message.ack")) == 1
        assert [event["ack_seq"] for event in await carol.events("message.ack")] == [3]


async def test_m13_an_ack_by_sender_tells_that_sender_in_its_own_words(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice = await post.connect(ALICE, "a1", announced=PEER)
        carol = await post.connect(CAROL, "c1", announced=PEER)
        await fill(post, 1, CAROL)
        await fill(post, 1)
        bob = post.offline(BOB, "b1")
        await peer_ack(bob, 2)
        [event] = await alice.events("message.ack")
        assert (event["cursor_scope"], event["sender_aid"], event["peer_ack_seq"]) == ("peer", ALICE, 2)
        assert await carol.events("message.ack") == []


@pytest.mark.seed("S0-046")
@pytest.mark.limit("message.online_aids")
async def test_m15_query_online_answers_for_up_to_100_aids(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice = await post.connect(ALICE)
        asked = [ALICE, ALICE, BOB, "nobody.edge.test", "bob.elsewhere.example"]
        assert await alice.call("message.query_online", aids=asked) == {
            "online": {ALICE: True, BOB: False, "nobody.edge.test": False, "bob.elsewhere.example": False}
        }
        many = [f"agent{number}.edge.test" for number in range(100)]
        assert len((await alice.call("message.query_online", aids=many))["online"]) == 100
        for wrong in ([*many, ALICE], []):
            with pytest.raises(InvalidParams):
                await alice.call("message.query_online", aids=wrong)


async def test_m15_a_device_is_online_when_its_availability_says_so(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        post.channels.attach_availability(lambda aid: aid.startswith("d-"))
        answer = await post.offline().call("message.query_online", aids=["d-porch.edge.test", BOB])
        assert answer["online"] == {"d-porch.edge.test": True, BOB: False}


@pytest.mark.seed("S0-025")
@pytest.mark.limit("message.ttl_s")
async def test_m16_messages_age_out_after_a_day_and_the_floor_rises(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 2)
        await fill(post, 1, to=CAROL)
        post.clock.advance(DAY // 2)
        await fill(post, 1)
        bob = post.offline(BOB, "b1")
        assert (await peer_pull(bob))["earliest_available_seq"] is None
        await post.clock.pass_(DAY // 2)
        await post.rest()
        page = await bob.call("message.pull")
        assert (seqs(page), page["retention_floor_seq"], page["earliest_available_seq"]) == ([3], 2, 3)
        by_sender = await peer_pull(bob, after_seq=0)
        assert (by_sender["scan_after_seq"], seqs(by_sender), by_sender["retention_floor_seq"]) == (2, [3], 2)
        assert (await post.offline(CAROL).call("message.pull"))["retention_floor_seq"] == 1
        assert (await bob.call("message.ack", seq=3))["ack_seq"] == 3
        assert (await post.offline().send(BOB))["seq"] == 4
        assert await post.node.read(ledger.drops) == []


async def test_m16_a_restart_does_not_make_messages_younger(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 1)
    async with post_office(tmp_path, clock=NextBoot(boot=2)) as post:
        assert seqs(await post.offline(BOB).call("message.pull")) == []


async def test_m19_the_boot_floor_is_frozen_at_first_use(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 3)
        bob = post.offline(BOB, "b1")
        await bob.call("message.ack", seq=2)
        first = await bob.call("message.peers")
        assert first["bootstrap_floor_seq"] == 2
        assert first["peers"] == [
            {
                "sender_aid": ALICE,
                "head_seq": 3,
                "server_ack_seq": 2,
                "initial_after_seq": 2,
                "initialization_source": "bootstrap",
                "next_pending_seq": 2,
                "volatile_has_more": False,
                "retention_floor_seq": 0,
                "earliest_available_seq": None,
            }
        ]
        await bob.call("message.ack", seq=3)
        assert (await bob.call("message.peers"))["bootstrap_floor_seq"] == 2
        assert (await post.offline(BOB, "b2").call("message.peers"))["bootstrap_floor_seq"] == 0
    async with post_office(tmp_path) as post:
        assert (await post.offline(BOB, "b1").call("message.peers"))["bootstrap_floor_seq"] == 2


async def test_m19_an_ack_by_sender_leaves_others_and_the_inbox_where_they_are(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 2)
        await fill(post, 2, CAROL)
        bob = post.offline(BOB, "b1")
        assert (await peer_ack(bob, 2))["effective_ack_seq"] == 2
        assert [p["sender_aid"] for p in (await bob.call("message.peers"))["peers"]] == [CAROL]
        assert (await peer_pull(bob, CAROL))["server_ack_seq"] == 0
        assert (await bob.call("message.ack", seq=0))["ack_seq"] == 0
        await bob.call("message.ack", seq=4)
        assert (await peer_pull(bob, CAROL))["server_ack_seq"] == 0


async def test_m19_an_ack_by_sender_is_clamped_to_what_the_sender_sent(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 2)
        await fill(post, 3, CAROL)
        bob = post.offline(BOB, "b1")
        answer = await peer_ack(bob, 4)
        assert (answer["peer_ack_seq"], answer["effective_ack_seq"]) == (2, 4)
        answer = await peer_ack(bob, 1_000)
        assert (answer["peer_ack_seq"], answer["effective_ack_seq"]) == (2, 2)
        assert (await peer_ack(bob, 1))["peer_ack_seq"] == 2
        await fill(post, 1)
        assert seqs(await peer_pull(bob)) == [(1 << 40) + 1], "above the thousand that was shown (D18)"


async def test_an_ack_on_the_back_of_a_pull_counts(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 3)
        page = await peer_pull(post.offline(BOB, "b1"), after_seq=2, ack_up_to_seq=2)
        assert (seqs(page), page["server_ack_seq"]) == ([3], 2)


async def test_m20_a_page_by_sender_proves_what_it_covers(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        for sender in (ALICE, CAROL) * 3:
            await fill(post, 1, sender)
        bob = post.offline(BOB, "b1")
        page = await peer_pull(bob, after_seq=0, limit=2)
        assert seqs(page) == [1, 3]
        assert page == {
            **page,
            "cursor_scope": "peer",
            "sender_aid": ALICE,
            "scan_after_seq": 0,
            "covered_through_seq": 3,
            "next_after_seq": 3,
            "head_seq": 5,
            "persistent_has_more": True,
            "volatile_has_more": False,
            "has_more": True,
        }
        rest = await peer_pull(bob, after_seq=3)
        assert (seqs(rest), rest["covered_through_seq"], rest["head_seq"], rest["has_more"]) == ([5], 5, 5, False)
        beyond = await peer_pull(bob, after_seq=77)
        assert (beyond["messages"], beyond["scan_after_seq"], beyond["covered_through_seq"]) == ([], 77, 77)
        assert beyond["head_seq"] == 77


async def test_the_newest_page_first(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        for sender in (ALICE, CAROL) * 4:
            await fill(post, 1, sender)
        bob = post.offline(BOB, "b1")
        page = await peer_pull(bob, window_mode="tail", limit=2)
        assert (seqs(page), page["window_start_seq"], page["head_seq"], page["covered_through_seq"]) == (
            [5, 7],
            5,
            7,
            7,
        )
        empty = await peer_pull(bob, window_mode="tail", after_seq=7)
        assert (empty["messages"], empty["window_start_seq"], empty["head_seq"]) == ([], 7, 7)
        assert (await peer_pull(bob))["server_ack_seq"] == 0
        with pytest.raises(InvalidParams):
            await peer_pull(bob, window_mode="head")


async def test_the_catalogue_of_everybody_is_paged_and_the_pending_one_is_not(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        senders = [f"agent{number}.edge.test" for number in range(5)]
        post.aids.update(senders)
        for sender in senders:
            await fill(post, 1, sender)
        bob = post.offline(BOB, "b1")
        await peer_ack(bob, 1, senders[0])
        assert [p["sender_aid"] for p in (await bob.call("message.peers"))["peers"]] == senders[1:]
        found, token = [], None
        while token != "":
            page = await bob.call("message.peers", filter="all", limit=2, **({"page_token": token} if token else {}))
            found += [peer["sender_aid"] for peer in page["peers"]]
            token = page.get("next_page_token", "")
            assert page["has_more"] is bool(token)
        assert found == senders
        for wrong in ({"filter": "pending", "limit": 3}, {"page_token": "x"}, {"filter": "some"}):
            with pytest.raises(InvalidParams):
                await bob.call("message.peers", **wrong)


async def test_m25_history_pages_downwards_to_the_first_message(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        for sender in (ALICE, CAROL) * 3:
            await fill(post, 1, sender)
        bob = post.offline(BOB, "b1")
        found, before = [], 7
        while True:
            page = await bob.call("message.history", sender_aid=ALICE, before_seq=before, limit=2)
            assert page["window_start_seq"] == page["next_before_seq"] == seqs(page)[0]
            assert (page["cursor_scope"], page["sender_aid"]) == ("peer", ALICE)
            found.append(seqs(page))
            if not page["has_older"]:
                break
            before = page["next_before_seq"]
        assert found == [[3, 5], [1]]
        empty = await bob.call("message.history", sender_aid=ALICE, before_seq=1)
        assert (empty["messages"], empty["window_start_seq"], empty["next_before_seq"]) == ([], None, None)
        assert empty["has_older"] is False
        whole = await bob.call("message.history", before_seq=6)
        assert seqs(whole) == [1, 2, 3, 4, 5]
        assert (await peer_pull(bob))["server_ack_seq"] == 0
        with pytest.raises(InvalidParams):
            await bob.call("message.history", before_seq=0)


async def test_a_wrong_scope_is_refused(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        bob = post.offline(BOB, "b1")
        for wrong in ({"cursor_scope": "peer"}, {"cursor_scope": "all"}, {"sender_aid": "no aid"}):
            with pytest.raises(InvalidParams):
                await bob.call("message.pull", **wrong)


async def test_m26_a_client_ahead_of_us_is_not_sent_back(tmp_path: Path) -> None:
    async with post_office(tmp_path, incarnation=1) as post:
        await fill(post, 1)
        bob = post.offline(BOB, "b1")
        assert seqs(await peer_pull(bob, after_seq=500)) == [(1 << 40) + 1]


SHOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "pull": ("message.pull", {"after_seq": 500}),
    "pull by sender": ("message.v2.pull", {"cursor_scope": "peer", "sender_aid": ALICE, "after_seq": 500}),
    "tail": (
        "message.v2.pull",
        {"cursor_scope": "peer", "sender_aid": ALICE, "after_seq": 500, "window_mode": "tail"},
    ),
    "ack": ("message.ack", {"seq": 500}),
    "ack by sender": ("message.v2.ack", {"cursor_scope": "peer", "sender_aid": ALICE, "up_to_seq": 500}),
    "ack in a pull": ("message.v2.pull", {"cursor_scope": "peer", "sender_aid": ALICE, "ack_up_to_seq": 500}),
}


@pytest.mark.parametrize("way", SHOWN)
async def test_m26_who_shows_a_number_above_the_head_gets_higher_ones_from_then_on(tmp_path: Path, way: str) -> None:
    """An older copy of the files lies in their place: numbers that were given out must not come again (D18)."""
    async with post_office(tmp_path) as post:
        await fill(post, 2)
        bob = post.offline(BOB, "b1")
        method, params = SHOWN[way]
        answer = await bob.call(method, **params)
        assert not answer.get("messages") or seqs(answer) == [1, 2]
        assert max(answer.get("ack_seq", 0), answer.get("peer_ack_seq", 0)) in (0, 2)
        await fill(post, 1)
        assert seqs(await bob.call("message.pull", after_seq=500)) == [(1 << 40) + 1]
        [gap] = await post.node.read(ledger.recent)
        assert (gap.reason, gap.who) == ("a reader knows later numbers", BOB)


async def test_a_number_up_to_the_head_or_out_of_this_world_changes_no_numbers(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 2)
        bob = post.offline(BOB, "b1")
        for seq in (2, 1 << 39, 1_763_600_000_000, (1 << 53) - 1):
            await bob.call("message.pull", after_seq=seq)
            await bob.call("message.ack", seq=seq)
        await bob.call("message.history", before_seq=500)
        await fill(post, 1)
        assert seqs(await bob.call("message.pull", after_seq=2)) == [3]
        assert set(post.limits.hits) == {"numbers.sighting_distance", "numbers.sighting_leap"}


async def test_m26_the_first_sdk_is_led_over_a_jump_of_numbers(tmp_path: Path) -> None:
    """It lists every number of a gap: one page without rows, whose server_ack_seq is the head, comes first."""
    async with post_office(tmp_path) as post:
        await fill(post, 2)
        await post.offline(BOB, "b1").call("message.ack", seq=1)
    first = (1 << 40) + 1
    async with post_office(tmp_path, clock=FakeClock(mono_us=9 * SECOND), incarnation=1) as post:
        await fill(post, 1)
        post.clock.advance(SECOND)
        old, new = await post.connect(BOB, "b1", announced=FIRST), await post.connect(BOB, "b1", "x", announced=PEER)
        await fill(post, 1)
        page = await old.call("message.pull", after_seq=1)
        assert (seqs(page), page["server_ack_seq"], page["latest_seq"], page["has_more"]) == ([], first + 1, 1, True)
        assert [event["seq"] for event in await old.events()] == [first + 1, 2, first]
        assert seqs(await old.call("message.pull", after_seq=1)) == [2, first, first + 1]
        assert seqs(await old.call("message.pull", after_seq=first)) == [first + 1]
        assert seqs(await new.call("message.pull", after_seq=1)) == [2, first, first + 1]
        again = await post.connect(BOB, "b1", announced=FIRST)
        assert seqs(await again.call("message.pull", after_seq=first)) == [first + 1]


async def test_numbers_that_a_device_cannot_see_do_not_hold_its_cursor(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, bob = post.offline(), post.offline(BOB, "b1")
        await alice.send(BOB)
        await alice.send(BOB, device_id="b2")
        await alice.send(BOB, device_id="b2")
        await alice.send(BOB)
        await bob.call("message.ack", seq=1)
        assert (await bob.call("message.pull", after_seq=1))["server_ack_seq"] == 3
        await bob.call("message.ack", seq=4)
        assert (await bob.call("message.pull", after_seq=4))["server_ack_seq"] == 4


@pytest.mark.seed("S0-048")
async def test_m27_each_connection_gets_a_message_in_its_own_dialect(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        old, new = await post.connect(BOB, "b1"), await post.connect(BOB, "b2", announced=PEER)
        await post.offline(ALICE, "a1").send(BOB, message_id="m-1")
        [flat], [pushed] = await old.events(), await new.events()
        assert "inline_message" not in flat
        assert flat["payload"] == {"type": "text", "text": "hi"}
        assert pushed["device_id"] == "b2"
        assert pushed["prev_peer_seq"] == 0
        row = (await peer_pull(new))["messages"][0]
        assert pushed["inline_message"] == {**row, "device_id": "b2"}
        assert row["legacy_v1"] == {"to": BOB, "payload": {"type": "text", "text": "hi"}}


async def test_a_connection_that_pulls_by_peer_is_told_of_its_backlog(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 1)
        new, old = await post.connect(BOB, "b1", announced=PEER), await post.connect(BOB, "b2")
        assert [event["kind"] for event in await new.events()] == ["message.online_unread_hint"]
        assert await old.events() == []
        await peer_ack(new, 1)
        await new.leave()
        assert await (await post.connect(BOB, "b1", announced=PEER)).events() == []


@pytest.mark.parametrize("method", ["message.pull", "message.v2.pull"])
async def test_both_pull_names_read_both_scopes(tmp_path: Path, method: str) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 1)
        bob = post.offline(BOB, "b1")
        whole = await bob.call(method)
        by_sender = await bob.call(method, cursor_scope="peer", sender_aid=ALICE)
        assert seqs(whole) == seqs(by_sender) == [1]
        assert {"legacy_v1" in row for row in (*whole["messages"], *by_sender["messages"])} == {"v2" in method}


BROKEN = (
    b'{"type":"text","text":"\xff1"}',
    b'{"type":"text","text":"\x001"}',
    b'{"type":"text"',
    b"[1]",
    b"",
)
"""What a flipped bit or a page of another file makes of a payload."""


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("how", ["pull", "v2", "peer", "tail", "history", "peer history"])
async def test_a_message_that_cannot_be_read_is_declared_lost_and_the_others_come(
    tmp_path: Path, how: str, broken: bytes
) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 4)
        bob = post.offline(BOB)
        await post.node.commit(lambda unit: _spoil(unit, broken))
        asked: dict[str, tuple[str, dict[str, Any]]] = {
            "pull": ("message.pull", {}),
            "v2": ("message.v2.pull", {}),
            "peer": ("message.v2.pull", {"cursor_scope": "peer", "sender_aid": ALICE}),
            "tail": ("message.v2.pull", {"cursor_scope": "peer", "sender_aid": ALICE, "window_mode": "tail"}),
            "history": ("message.history", {"before_seq": 9}),
            "peer history": ("message.history", {"before_seq": 9, "cursor_scope": "peer", "sender_aid": ALICE}),
        }
        method, params = asked[how]
        page = await bob.call(method, **params)
        assert (seqs(page), page["count"]) == ([1, 3], 2)
        gaps = await post.node.read(ledger.recent)
        assert sorted((gap.log, gap.key, gap.first, gap.last, gap.count, gap.reason) for gap in gaps) == [
            ("inbox", BOB, 2, 2, 1, "unreadable"),
            ("inbox", BOB, 4, 4, 1, "unreadable"),
        ]
        rows, octets = await post.node.read(lambda unit: messages.usage(unit, BOB))
        assert (rows, octets) == (2, await post.node.read(_payload_octets))
        assert (await post.offline().send(BOB))["seq"] == 5, "no number is given out twice"
        assert seqs(await bob.call("message.pull")) == [1, 3, 5]


async def test_an_inbox_in_which_nothing_can_be_read_is_empty_and_says_so(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await fill(post, 250)
        await post.node.commit(lambda unit: unit.run("UPDATE message SET payload = x'ff'"))
        page = await post.offline(BOB).call("message.pull")
        assert (page["messages"], page["has_more"]) == ([], False)
        assert sum(gap.count for gap in await post.node.read(lambda unit: ledger.recent(unit, 999))) == 250


def _spoil(unit: Unit, broken: bytes) -> None:
    """Another content of the same length: what bit rot leaves."""
    for seq, payload in unit.run("SELECT seq, payload FROM message WHERE aid = ? AND seq IN (2, 4)", (BOB,)):
        assert isinstance(payload, bytes)
        unit.run("UPDATE message SET payload = ? WHERE aid = ? AND seq = ?", (broken.ljust(len(payload)), BOB, seq))


def _payload_octets(unit: Unit) -> int:
    [(octets,)] = unit.run("SELECT sum(length(payload)) FROM message WHERE aid = ?", (BOB,))
    assert isinstance(octets, int)
    return octets


HOSTILE = "\x01" * 128
"""A name of allowed length that takes six bytes a character in JSON."""
FRAME_OF_THE_FIRST_SDK = 1 << 20


@pytest.mark.limit("message.page_octets")
async def test_a_page_fits_the_readers_frame_whatever_stands_beside_its_payloads(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, bob = post.offline(ALICE, "a" * 128), post.offline(BOB, "b1")
        for number in range(200):
            name = HOSTILE[:120] + f"{number:08}"
            await alice.send(BOB, {"t": "x" * 4_400}, message_id=name, type=HOSTILE)
        found, after = 0, 0
        while (page := await bob.call("message.pull", after_seq=after, limit=200))["messages"]:
            assert len(dumps(page)) < FRAME_OF_THE_FIRST_SDK - 1_000
            found, after = found + page["count"], page["latest_seq"]
        assert found == 200
        history = await bob.call("message.history", before_seq=1 << 50, limit=200)
        assert len(dumps(history)) < FRAME_OF_THE_FIRST_SDK - 1_000


async def test_volatile_messages_share_the_page_with_stored_ones(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, bob = post.offline(), post.offline(BOB, "b1")
        for number in range(10):
            await alice.send(BOB, {"t": "x" * 85_000})
            await alice.send(BOB, {"t": "y" * 85_000}, ttl=60, message_id=f"v-{number}")
        page = await peer_pull(bob)
        assert len(dumps(page)) < FRAME_OF_THE_FIRST_SDK - 1_000
        assert page["volatile_has_more"] is True
        await peer_ack(bob, 10)
        rest = await peer_pull(bob)
        assert rest["count"] > 0
        assert len(dumps(rest)) < FRAME_OF_THE_FIRST_SDK - 1_000


async def test_an_endless_type_inside_a_payload_is_not_repeated_beside_it(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await post.offline().send(BOB, {"type": "t" * 900_000})
        [row] = (await peer_pull(post.offline(BOB, "b1")))["messages"]
        assert len(dumps(row)) < FRAME_OF_THE_FIRST_SDK
        assert row["legacy_v1"]["payload"]["type"] == "t" * 900_000


async def test_the_tail_is_the_newest_that_fits_whatever_waits_in_the_ring(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, bob = post.offline(), post.offline(BOB, "b1")
        for mode in ("fanout", "queue") * 8:
            await alice.send(BOB, {"t": "x" * 100_000}, delivery_mode=mode)
        page = await peer_pull(bob, window_mode="tail")
        assert seqs(page) == list(range(9, 17))
        assert (page["window_start_seq"], page["head_seq"]) == (9, 16)
        assert len(dumps(page)) < FRAME_OF_THE_FIRST_SDK - 1_000
