"""message.send and message.recall: rules M-1 to M-5, M-14, M-21 to M-24 of the service spec."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import (
    InvalidParams,
    NotAuthenticated,
    RateLimited,
    RecipientsStale,
    TooLarge,
    UnknownAid,
)
from edge.contract.principal import AGENT_SCOPES, GUEST, Kind, Principal
from edge.contract.time import SECOND
from edge.contract.wire import dumps
from edge.store import messages
from tests.services.message.envelopes import envelope, publish_key
from tests.support.messaging import ALICE, BOB, CAROL, HI, PEER, Client, post_office

OFFER = {
    "type": "peer.offer",
    "session_id": "upgrade-550e8400",
    "from_mode": "gateway",
    "preferred_mode": "peer",
    "endpoints": [{"url": "wss://alice.company.com:9900/acp", "priority": 1}],
    "expires_in": 30,
}


async def texts(client: Client, **more: Any) -> list[str]:
    page = await client.call("message.pull", **more)
    return [row["payload"]["text"] for row in page["messages"]]


async def until_refused(client: Client, payload: dict[str, Any]) -> tuple[int, RateLimited]:
    """How many messages went in, and why no more did."""
    accepted = 0
    while True:
        try:
            await client.send(BOB, payload)
        except RateLimited as over:
            return accepted, over
        accepted += 1


@pytest.mark.seed("S0-030", "S0-031")
async def test_m1_a_repeated_message_id_of_one_sender_is_one_message(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, carol, bob = post.offline(ALICE), post.offline(CAROL), post.offline(BOB)
        first = await alice.send(BOB, message_id="m-1")
        again = await alice.send(BOB, {"type": "text", "text": "other"}, message_id="m-1")
        other = await carol.send(BOB, {"type": "text", "text": "carol"}, message_id="m-1")
        assert again == {**first, "status": "duplicate"}
        assert other["status"] == "sent"
        assert other["seq"] == first["seq"] + 1
        assert await texts(bob) == ["hi", "carol"]


async def test_m1_two_sends_with_one_id_at_the_same_moment_are_one_message(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice = post.offline(ALICE)
        sent = await asyncio.gather(*(alice.send(BOB, message_id="m-1") for _ in range(8)))
        assert sorted(answer["status"] for answer in sent) == ["duplicate"] * 7 + ["sent"]
        assert {answer["seq"] for answer in sent} == {1}


async def test_one_message_id_for_two_recipients_is_refused_not_lost(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice = post.offline(ALICE)
        await alice.send(BOB, message_id="m-1")
        with pytest.raises(InvalidParams, match="already used"):
            await alice.send(CAROL, message_id="m-1")
        await alice.send(BOB, message_id="q-1", delivery_mode="queue")
        with pytest.raises(InvalidParams, match="already used"):
            await alice.send(CAROL, message_id="q-1", delivery_mode="queue")


@pytest.mark.seed("S0-027")
async def test_m2_numbers_are_per_recipient_and_shared_by_all_kinds_and_senders(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, carol = post.offline(ALICE), post.offline(CAROL)
        seqs = [
            (await alice.send(BOB))["seq"],
            (await alice.send(BOB, delivery_mode="queue"))["seq"],
            (await carol.send(BOB))["seq"],
            (await carol.send(ALICE))["seq"],
            (await carol.send(BOB, delivery_mode={"mode": "queue"}))["seq"],
        ]
        assert seqs == [1, 2, 3, 1, 4]


@pytest.mark.seed("S0-030")
async def test_m3_the_nodes_time_counts_not_the_clients(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, bob = post.offline(ALICE), await post.connect(BOB)
        for wild in (0, -5, 9_007_199_254_740_991, "yesterday"):
            sent = await alice.send(BOB, timestamp=wild)
            assert sent["timestamp"] == post.clock.wall(post.clock.now())[0] // 1000
        assert len({row["timestamp"] for row in (await bob.call("message.pull"))["messages"]}) == 1
        assert {event["timestamp"] for event in await bob.events()} == {sent["timestamp"]}


@pytest.mark.seed("S0-029", "S0-032")
@pytest.mark.parametrize("payload", ['"text"', "[1]", "null", "7", "true"])
async def test_m4_a_payload_is_a_json_object(tmp_path: Path, payload: str) -> None:
    async with post_office(tmp_path) as post:
        with pytest.raises(InvalidParams):
            await post.offline().raw("message.send", b'{"to":"%b","payload":%b}' % (BOB.encode(), payload.encode()))


@pytest.mark.seed("S0-029")
@pytest.mark.parametrize("params", [{"payload": HI}, {"to": BOB}, {}, {"to": 7, "payload": HI}])
async def test_m4_to_and_payload_are_needed(tmp_path: Path, params: dict[str, Any]) -> None:
    async with post_office(tmp_path) as post:
        with pytest.raises(InvalidParams):
            await post.offline().raw("message.send", dumps(params))


@pytest.mark.seed("S0-032")
@pytest.mark.limit("message.payload_octets")
async def test_m4_a_payload_may_be_as_large_as_the_limit_and_no_larger(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice = post.offline()
        empty = len(dumps({"t": ""}))
        await alice.send(BOB, {"t": "é" * ((1_048_576 - empty) // 2)})
        with pytest.raises(TooLarge):
            await alice.send(BOB, {"t": "é" * ((1_048_576 - empty) // 2 + 1)})


async def test_m4_white_space_does_not_count_against_the_payload_limit(tmp_path: Path) -> None:
    async with post_office(tmp_path, limits={"message.payload_octets": 20}) as post:
        loose = b'{ "a" : 1 ,   "b" :      2 , "c":  3  }'
        await post.offline().raw("message.send", b'{"to":"%b","payload":%b}' % (BOB.encode(), loose))
        [row] = (await post.offline(BOB).call("message.pull"))["messages"]
        assert row["payload"] == {"a": 1, "b": 2, "c": 3}
        blown_up = b'{"a":1%b}' % (b" " * 70_000)
        with pytest.raises(TooLarge):
            await post.offline().raw("message.send", b'{"to":"%b","payload":%b}' % (BOB.encode(), blown_up))


@pytest.mark.limit("message.row_octets")
async def test_an_encrypted_payload_that_no_reader_could_receive_is_refused(tmp_path: Path) -> None:
    async with post_office(tmp_path, limits={"message.row_octets": 2_000}) as post:
        alice = post.offline()
        await alice.send(BOB, envelope(ALICE, BOB, [(BOB, "")]) | {"ciphertext": "x" * 1_000})
        with pytest.raises(TooLarge):
            await alice.send(BOB, envelope(ALICE, BOB, [(BOB, "")]) | {"ciphertext": '"' * 1_000})


@pytest.mark.limit("message.id_length")
async def test_a_message_id_has_at_most_128_characters(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await post.offline().send(BOB, message_id="m" * 128)
        with pytest.raises(InvalidParams):
            await post.offline().send(BOB, message_id="m" * 129)


@pytest.mark.limit("message.id_length")
async def test_what_stands_beside_a_payload_is_short_because_quotas_and_pages_do_not_count_it(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice = post.offline()

        def copies(device: str) -> dict[str, object]:
            return {"type": "e2ee.multi_device", "recipient_copies": [{"device_id": device, "envelope": {"a": 1}}]}

        for size, refused in ((128, False), (129, True)):
            word = "x" * size
            tries: list[tuple[Any, dict[str, object]]] = [
                (HI, {"type": word}),
                (HI, {"device_id": word}),
                (HI, {"to_device_id": word}),
                (copies(word), {}),
            ]
            for payload, more in tries:
                if refused:
                    with pytest.raises(InvalidParams):
                        await alice.send(BOB, payload, **more)
                else:
                    await alice.send(BOB, payload, **more)
        assert post.limits.hits == {"message.id_length": 4}


@pytest.mark.seed("S0-031")
async def test_m5_unknown_recipients_are_refused_and_offline_ones_are_not(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice = post.offline()
        assert (await alice.send(BOB))["status"] == "sent"
        await post.connect(BOB)
        assert (await alice.send(BOB))["status"] == "delivered"
        with pytest.raises(UnknownAid):
            await alice.send("nobody.edge.test")
        with pytest.raises(UnknownAid, match=r"elsewhere\.example"):
            await alice.send("bobb.elsewhere.example")
        with pytest.raises(InvalidParams):
            await alice.send("not an aid")
        assert (await post.offline(BOB).call("message.pull"))["count"] == 2


async def test_an_aid_is_one_aid_in_any_case(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await post.offline().send(BOB.upper())
        assert await texts(post.offline(BOB)) == ["hi"]


async def test_a_guest_sends_nothing(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        guest = post.offline()
        guest.who = GUEST
        with pytest.raises(NotAuthenticated):
            await guest.send(BOB)


@pytest.mark.seed("S0-022", "S0-035")
async def test_the_delivery_mode_is_the_params_then_the_recipients_then_fanout(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice = post.offline()
        assert (await alice.send(BOB))["delivery_mode"] == "fanout"
        await post.connect(BOB, "b1", mode="queue")
        assert (await alice.send(BOB))["delivery_mode"] == "queue"
        assert (await alice.send(BOB, delivery_mode={"mode": "fanout"}))["delivery_mode"] == "fanout"
        assert (await alice.send(BOB, delivery_mode="fanout"))["delivery_mode"] == "fanout"
        assert (await alice.send(CAROL, delivery_mode={"mode": "queue"}))["delivery_mode"] == "queue"
        for wrong in ("broadcast", {"mode": 7}):
            with pytest.raises(InvalidParams):
                await alice.send(BOB, delivery_mode=wrong)


@pytest.mark.seed("S0-030", "S0-033")
async def test_the_type_of_the_envelope_is_not_the_type_of_the_payload(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await post.offline().send(BOB, {"type": "quote"})
        await post.offline().send(BOB, {"type": "quote"}, type="e2ee.encrypted", encrypted=True)
        plain, sealed = (await post.offline(BOB).call("message.pull"))["messages"]
        assert "type" not in plain
        assert plain["encrypted"] is False
        assert (sealed["type"], sealed["payload"]["type"], sealed["encrypted"]) == ("e2ee.encrypted", "quote", True)


async def test_a_message_for_one_device_is_seen_by_that_device_only(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        one, two = await post.connect(BOB, "b1"), await post.connect(BOB, "b2")
        await post.offline().send(BOB, device_id="b2")
        await post.offline().send(BOB, {"type": "text", "text": "old name"}, to_device_id="b1")
        assert await texts(one) == ["old name"]
        assert await texts(two) == ["hi"]
        assert [e["payload"]["text"] for e in await one.events()] == ["old name"]
        assert [e["payload"]["text"] for e in await two.events()] == ["hi"]


@pytest.mark.limit("message.inbox_rows", "message.inbox_octets")
async def test_an_inbox_that_is_full_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    limits = {"message.inbox_rows": 3, "message.inbox_octets": 200, "message.inbox_share": 100}
    async with post_office(tmp_path, limits=limits) as post:
        alice = post.offline()
        for _ in range(3):
            await alice.send(BOB, {"a": 1})
        with pytest.raises(RateLimited):
            await alice.send(BOB, {"a": 1})
        await alice.send(CAROL, {"a": "x" * 180})
        with pytest.raises(RateLimited):
            await alice.send(CAROL, {"a": "x" * 180})
        assert (await post.offline(BOB).call("message.pull"))["count"] == 3
        assert post.limits.hits == {"message.inbox_rows": 1, "message.inbox_octets": 1}


@pytest.mark.limit("message.inbox_reserve")
@pytest.mark.parametrize("limits", [{"message.inbox_rows": 10}, {"message.inbox_octets": 200}])
async def test_an_agent_who_fills_an_inbox_keeps_no_alarm_out_of_it(tmp_path: Path, limits: dict[str, int]) -> None:
    """Those who write may fill an inbox for a day; what our own devices say has some room above."""
    limits = limits | {"message.inbox_reserve": 20, "message.inbox_share": 100}
    async with post_office(tmp_path, limits=limits) as post:
        alice, smoke = post.offline(), post.offline("d-smoke.edge.test")
        smoke.who = Principal(Kind.DEVICE, "d-smoke.edge.test", AGENT_SCOPES, "node")
        text = {"a": "x" * 12}
        for _ in range(10):
            await alice.send(BOB, text)
        with pytest.raises(RateLimited):
            await alice.send(BOB, text)
        for _ in range(2):
            await smoke.send(BOB, text)
        with pytest.raises(RateLimited):
            await smoke.send(BOB, text)
        assert post.limits.hits == {next(iter(limits)): 2, "message.inbox_reserve": 2}


@pytest.mark.limit("message.inbox_share")
@pytest.mark.parametrize("limits", [{"message.inbox_rows": 100}, {"message.inbox_octets": 2_000}])
async def test_no_single_sender_fills_an_inbox(tmp_path: Path, limits: dict[str, int]) -> None:
    """Half of it for the first, half of the rest for the next; told, and none of it kept."""
    text = {"a": "x" * 12}
    assert len(dumps(text)) == 20
    async with post_office(tmp_path, limits=limits) as post:
        post.aids |= {f"sender{n}.edge.test" for n in range(8)}
        fitted, refused = [], []
        for number in range(8):
            accepted, over = await until_refused(post.offline(f"sender{number}.edge.test"), text)
            assert over.retryable
            fitted.append(accepted)
            refused.append(over.data)
        assert fitted == [50, 25, 12, 6, 3, 2, 1, 1]
        [(bound, size)] = limits.items()
        assert refused[:7] == [{"limit": "message.inbox_share", "max": 50}] * 7
        assert refused[7] == {"limit": bound, "max": size}
        assert post.limits.hits == {"message.inbox_share": 7, bound: 1}
        assert await post.node.read(lambda unit: messages.usage(unit, BOB)) == (100, 2_000)


async def test_a_share_of_an_inbox_is_given_back_with_what_held_it(tmp_path: Path) -> None:
    limits = {"message.inbox_rows": 4, "message.ttl_s": 3_600}
    async with post_office(tmp_path, limits=limits) as post:
        alice, bob = post.offline(), post.offline(BOB)
        for number in range(2):
            await alice.send(BOB, message_id=f"m-{number}")
        with pytest.raises(RateLimited):
            await alice.send(BOB, {"type": "text", "text": "third"}, message_id="m-2")
        assert (await alice.send(BOB, message_id="m-1"))["status"] == "duplicate"
        await alice.send(CAROL, message_id="elsewhere")
        assert await texts(bob) == ["hi", "hi"]
        await post.clock.pass_(3_700 * SECOND)
        await post.rest()
        sent = await alice.send(BOB, {"type": "text", "text": "third"}, message_id="m-2")
        assert (sent["status"], sent["seq"]) == ("sent", 3)
        assert await texts(bob) == ["third"]


@pytest.mark.limit("message.inbox_senders")
async def test_who_has_nothing_in_an_inbox_of_very_many_senders_is_refused(tmp_path: Path) -> None:
    """`message.peers` names all of them in one answer, and cannot be paged."""
    async with post_office(tmp_path, limits={"message.inbox_senders": 2}) as post:
        post.aids.add("erin.edge.test")
        for sender in (ALICE, CAROL, ALICE):
            await post.offline(sender).send(BOB)
        with pytest.raises(RateLimited) as caught:
            await post.offline("erin.edge.test").send(BOB)
        assert caught.value.data == {"limit": "message.inbox_senders", "max": 2}
        smoke = post.offline("d-smoke.edge.test")
        smoke.who = Principal(Kind.DEVICE, "d-smoke.edge.test", AGENT_SCOPES, "node")
        assert (await smoke.send(BOB))["status"] == "sent"
        await post.offline("erin.edge.test").send(CAROL)
        assert len((await post.offline(BOB).call("message.peers"))["peers"]) == 3


async def test_what_one_sends_to_oneself_has_no_share_but_an_end(tmp_path: Path) -> None:
    """Notes to oneself, and the copies for one's other devices; they keep nobody else's alarms out either."""
    limits = {"message.inbox_rows": 4}
    async with post_office(tmp_path, limits=limits) as post:
        alice = post.offline(ALICE, "a1")
        for _ in range(3):
            await alice.send(ALICE)
        synced = envelope(ALICE, BOB, [(BOB, ""), (ALICE, "a2")])
        await alice.send(BOB, synced)
        with pytest.raises(RateLimited, match="inbox_rows"):
            await alice.send(BOB, synced)
        with pytest.raises(RateLimited, match="inbox_rows"):
            await alice.send(BOB, synced, delivery_mode="queue")
        assert (await post.offline(BOB).call("message.pull"))["count"] == 1
        with pytest.raises(RateLimited, match="inbox_rows"):
            await alice.send(ALICE)


async def test_every_copy_of_a_message_counts_in_an_inbox(tmp_path: Path) -> None:
    limits = {"message.inbox_rows": 4}
    copies = [{"device_id": f"b{number}", "envelope": {"a": number}} for number in range(5)]
    async with post_office(tmp_path, limits=limits) as post:
        alice = post.offline()
        with pytest.raises(RateLimited, match="inbox_rows"):
            await alice.send(BOB, {"type": "e2ee.multi_device", "recipient_copies": copies})
        assert await post.node.read(lambda unit: messages.usage(unit, BOB)) == (0, 0)
        await alice.send(BOB, {"type": "e2ee.multi_device", "recipient_copies": copies[:4]})
        assert (await post.node.read(lambda unit: messages.usage(unit, BOB)))[0] == 4


@pytest.mark.seed("S0-044", "S0-045", "S0-050")
@pytest.mark.limit("message.recall_s")
async def test_m14_a_recalled_message_is_a_tombstone_and_its_recipient_hears_of_it(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, bob = post.offline(), await post.connect(BOB)
        await alice.send(BOB, message_id="m-1")
        await alice.send(BOB, {"type": "text", "text": "stays"}, message_id="m-2")
        post.clock.advance(120 * SECOND)
        assert await alice.call("message.recall", message_ids=["m-1"]) == {
            "success": True,
            "accepted": 1,
            "recalled": 1,
            "errors": None,
        }
        gone, stays = (await bob.call("message.pull"))["messages"]
        assert (gone["seq"], gone["type"]) == (1, "message.recalled")
        assert gone["payload"] == {"type": "message.recalled", "message_ids": ["m-1"]}
        assert stays["payload"]["text"] == "stays"
        [event] = await bob.events("message.recalled")
        assert (event["from"], event["to"], event["message_ids"]) == (ALICE, BOB, ["m-1"])
        assert event["timestamp"] == post.clock.wall(post.clock.now())[0] // 1000


@pytest.mark.seed("S0-044", "S0-045")
@pytest.mark.limit("message.recall_s")
async def test_m14_every_refusal_of_a_recall_has_its_word(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, carol = post.offline(), post.offline(CAROL)
        await alice.send(BOB, message_id="old")
        post.clock.advance(120 * SECOND + 1)
        await alice.send(BOB, message_id="new")
        await carol.send(BOB, message_id="hers")
        await alice.send(BOB, message_id="queued", delivery_mode="queue")
        ids = ["old", "new", "hers", "queued", "nowhere"]
        answer = await alice.call("message.recall", message_ids=ids)
        assert (answer["accepted"], answer["recalled"]) == (5, 1)
        assert {e["message_id"]: e["error"] for e in answer["errors"]} == {
            "old": "expired",
            "hers": "not_sender",
            "queued": "not_found",
            "nowhere": "not_found",
        }
        again = await alice.call("message.recall", message_ids=["new"])
        assert again["errors"] == [{"message_id": "new", "error": "already_recalled"}]


@pytest.mark.seed("S0-044")
@pytest.mark.limit("message.recall_ids")
async def test_m14_a_recall_names_1_to_100_ids(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice = post.offline()
        answer = await alice.call("message.recall", message_ids=[f"m-{n}" for n in range(100)])
        assert answer["accepted"] == 100
        for wrong in ([f"m-{n}" for n in range(101)], []):
            with pytest.raises(InvalidParams):
                await alice.call("message.recall", message_ids=wrong)


async def test_a_reader_that_had_passed_the_message_finds_the_recall_behind_its_cursor(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, bob = post.offline(), await post.connect(BOB, "b1")
        await alice.send(BOB, message_id="m-1")
        await bob.call("message.ack", seq=1)
        await bob.leave()
        await alice.call("message.recall", message_ids=["m-1"])
        back = await post.connect(BOB, "b1")
        [notice] = (await back.call("message.pull", after_seq=1))["messages"]
        assert (notice["seq"], notice["type"], notice["payload"]["message_ids"]) == (2, "message.recalled", ["m-1"])


@pytest.mark.seed("S0-060", "S0-061", "S0-062")
async def test_m21_upgrade_payloads_pass_untouched(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice, bob = post.offline(), await post.connect(BOB)
        payloads: list[dict[str, Any]] = [
            OFFER,
            {"type": "peer.accept", "session_id": "s", "selected_endpoint": "wss://x"},
            {"type": "peer.reject", "session_id": "s", "reason": "policy_denied"},
            {"type": "peer.switch", "session_id": "s", "new_mode": "peer", "keep_fallback": True},
        ]
        for payload in payloads:
            assert (await alice.send(BOB, payload, delivery_mode={"mode": "queue"}))["delivery_mode"] == "queue"
        assert [event["payload"] for event in await bob.events("message.received")] == payloads


async def test_m22_an_envelope_that_misses_a_device_is_refused_and_the_full_one_is_not(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        one, two = await post.connect(BOB, "b1", announced=PEER), await post.connect(BOB, "b2", announced=PEER)
        await publish_key(one)
        await publish_key(two)
        alice = await post.connect(ALICE, "a1", announced=PEER)
        with pytest.raises(RecipientsStale):
            await alice.send(BOB, envelope(ALICE, BOB, [(BOB, "b1")]), message_id="m-1")
        assert (await one.call("message.pull"))["count"] == 0
        sent = await alice.send(BOB, envelope(ALICE, BOB, [(BOB, "b1"), (BOB, "b2")]), message_id="m-1")
        assert sent["status"] == "delivered"
        assert (await one.call("message.pull"))["count"] == 1
        assert (await two.call("message.pull"))["count"] == 1


async def test_m22_an_envelope_for_the_aid_or_for_the_one_device_it_targets_is_complete(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        one, two = await post.connect(BOB, "b1", announced=PEER), await post.connect(BOB, "b2", announced=PEER)
        await publish_key(one)
        await publish_key(two)
        alice = post.offline(ALICE, "a1")
        await alice.send(BOB, envelope(ALICE, BOB, [(BOB, "")]))
        await alice.send(BOB, envelope(ALICE, BOB, [(BOB, "b2")]), device_id="b2")
        with pytest.raises(RecipientsStale):
            await alice.send(BOB, envelope(ALICE, BOB, [(BOB, "b1")]), device_id="b2")
        with pytest.raises(RecipientsStale):
            await alice.send(BOB, envelope(ALICE, BOB, [(ALICE, "a2")]))
        assert (await one.call("message.pull"))["count"] == 1
        assert (await two.call("message.pull"))["count"] == 2


async def test_a_device_without_a_wrap_never_gets_the_envelope(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        one = await post.connect(BOB, "b1", announced=PEER)
        await publish_key(one)
        alice = post.offline(ALICE, "a1")
        await alice.send(BOB, envelope(ALICE, BOB, [(BOB, "b1")]))
        await alice.send(BOB)
        later = await post.connect(BOB, "b2", announced=PEER)
        page = await later.call("message.v2.pull", cursor_scope="peer", sender_aid=ALICE)
        assert [row["version"] for row in page["messages"]] == ["v1"]
        assert page["covered_through_seq"] == 2


async def test_self_sync_wraps_reach_the_senders_other_devices(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        sender = await post.connect(ALICE, "a1", announced=PEER)
        other = await post.connect(ALICE, "a2", announced=PEER)
        wraps = [(BOB, ""), (ALICE, "a1"), (ALICE, "a2")]
        await sender.send(BOB, envelope(ALICE, BOB, wraps), message_id="m-1")
        page = await other.call("message.v2.pull", cursor_scope="peer", sender_aid=ALICE)
        [row] = page["messages"]
        assert (row["direction"], row["message_id"], row["version"]) == ("outbound_sync", "m-1", "v2")
        assert [e["message_id"] for e in await other.events("peer.v2.message_received")] == ["m-1"]
        assert await sender.events() == []
        assert (await sender.call("message.pull"))["count"] == 0
        again = await sender.send(BOB, envelope(ALICE, BOB, wraps), message_id="m-1")
        assert again["status"] == "duplicate"


async def test_each_device_gets_its_copy_of_a_first_generation_message(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        one, two = await post.connect(BOB, "b1"), await post.connect(BOB, "b2")
        other = await post.connect(ALICE, "a2")
        alice = post.offline(ALICE, "a1")
        seal = {device: {"type": "e2ee.encrypted", "ciphertext": device} for device in ("b1", "b2", "a2")}
        payload = {
            "type": "e2ee.multi_device",
            "logical_message_id": "m-1",
            "recipient_copies": [{"device_id": device, "envelope": seal[device]} for device in ("b1", "b2")],
            "self_copies": [{"device_id": "a2", "envelope": seal["a2"]}],
        }
        sent = await alice.send(BOB, payload, type="e2ee.multi_device", encrypted=True, message_id="m-1")
        assert (sent["seq"], sent["status"]) == (1, "delivered")
        for client, device in ((one, "b1"), (two, "b2"), (other, "a2")):
            [event] = await client.events("message.received")
            [row] = (await client.call("message.pull"))["messages"]
            assert event["payload"] == row["payload"] == seal[device]
            assert (row["type"], row["encrypted"], row["message_id"]) == ("e2ee.encrypted", True, "m-1")
            assert (row["from"], row["to"]) == (event["from"], event["to"]) == (ALICE, BOB)
            assert row.get("direction", "") == ("outbound_sync" if client is other else "")
        again = await alice.send(BOB, payload, type="e2ee.multi_device", encrypted=True, message_id="m-1")
        assert (again["seq"], again["status"]) == (1, "duplicate")
        assert (await alice.call("message.recall", message_ids=["m-1"]))["recalled"] == 1
        for client in (one, two, other):
            [row] = (await client.call("message.pull"))["messages"]
            assert row["type"] == "message.recalled"


@pytest.mark.parametrize(
    "copies", [[], None, 7, [7], [{"device_id": "b1"}], [{"device_id": 7, "envelope": {}}], [{"envelope": 7}]]
)
async def test_copies_that_cannot_be_read_are_refused(tmp_path: Path, copies: object) -> None:
    async with post_office(tmp_path, limits={"message.devices": 1}) as post:
        payload = {"type": "e2ee.multi_device", "recipient_copies": copies}
        with pytest.raises(InvalidParams):
            await post.offline().send(BOB, payload)
        many = [{"device_id": f"b{number}", "envelope": {}} for number in range(3)]
        with pytest.raises(RateLimited):
            await post.offline().send(BOB, {"type": "e2ee.multi_device", "recipient_copies": many})
        assert (await post.offline(BOB).call("message.pull"))["count"] == 0


@pytest.mark.seed("S0-032", "S0-140")
async def test_m23_a_payload_keeps_its_text_byte_for_byte(tmp_path: Path) -> None:
    text = rb'{"type" : "e2ee.p2p_encrypted",  "version":"v2","n":1.50,"x":"\u00e9\/", "recipients":[["%b",""]]}'
    text %= BOB.encode()
    async with post_office(tmp_path) as post:
        bob = await post.connect(BOB, "b1", announced=PEER)
        await post.offline().raw("message.send", b'{"to":"%b","payload": %b }' % (BOB.encode(), text))
        params = dumps({"cursor_scope": "peer", "sender_aid": ALICE})
        page = await bob.raw("message.v2.pull", params)
        assert page["messages"][0]["envelope_json"].encode() == text
        outcome = await post.dispatcher.call("aun", "message.pull", b"{}", bob.who)
        assert text in dumps(outcome.result)
        [event] = await bob.events("peer.v2.message_received")
        assert event["inline_message"]["envelope_json"].encode() == text


async def test_a_client_signature_is_not_part_of_the_message(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await post.offline().send(BOB, client_signature={"aid": ALICE, "signature": "c2ln"})
        outcome = await post.dispatcher.call("aun", "message.pull", b"{}", post.offline(BOB).who)
        assert b"signature" not in dumps(outcome.result)


@pytest.mark.seed("S0-025")
async def test_m17_messages_and_numbers_survive_a_restart(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await post.offline().send(BOB, message_id="m-1")
        await post.offline().send(BOB, delivery_mode="queue")
    async with post_office(tmp_path) as post:
        assert await texts(post.offline(BOB)) == ["hi"]
        assert (await post.offline().send(BOB))["seq"] == 3
        assert (await post.offline().send(BOB, message_id="m-1"))["status"] == "duplicate"


async def test_m26_numbers_after_a_restore_lie_above_every_number_before(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await post.offline().send(BOB)
    async with post_office(tmp_path, incarnation=2) as post:
        assert (await post.offline().send(BOB))["seq"] == (2 << 40) + 1
