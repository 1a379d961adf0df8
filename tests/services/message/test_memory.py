"""What the message services keep in the loop, and how a message becomes a row and a row a message."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.contract.errors import RateLimited
from edge.contract.event import Event
from edge.contract.limit import Limits
from edge.contract.time import Stamp
from edge.contract.wire import decode, dumps
from edge.dispatch.hub import Hub
from edge.protocol.aun_events import Acked, Delivery
from edge.services.message import memory as memories
from edge.services.message.memory import Head, Memory, kind_of
from edge.services.message.records import RING_TOTAL
from edge.store import messages
from edge.store.messages import Reader
from tests.support.clock import FakeClock, turn
from tests.support.messaging import ALICE, BOB, CAROL

READER = Reader(BOB, "b1", "work")


def delivery(payload: bytes = b'{"type": "text"}', **more: Any) -> Delivery:
    fields: dict[str, Any] = {"sender": ALICE, "to": BOB, "message_id": "m-1", "sent_ms": 7}
    return Delivery(payload=msgspec.Raw(payload), **(fields | more))


def memory(hub: Hub | None = None, **limits: int) -> Memory:
    return Memory(FakeClock(), hub or Hub(), Limits({RING_TOTAL.name: 100} | limits))


def fits(kept: Memory, sender: str, octets: int) -> bool:
    try:
        with kept.admit(sender, octets):
            return True
    except RateLimited:
        return False


@pytest.mark.limit("message.ring_total_octets")
def test_queue_and_volatile_messages_share_one_bound_of_memory() -> None:
    kept = memory()
    kept.ring.put(BOB, 1, delivery(b"x" * 40), None, 0)
    kept.volatile.put(delivery(b"y" * 40, cursor=kept.volatile.cursor()), 1 << 40, 0)
    assert fits(kept, CAROL, 20)
    assert not fits(kept, CAROL, 21)


@pytest.mark.limit("message.ring_share")
def test_one_sender_holds_half_of_what_the_others_leave_of_it() -> None:
    kept = memory()
    kept.ring.put(BOB, 1, delivery(b"x" * 20), None, 0)
    assert fits(kept, ALICE, 30)
    with pytest.raises(RateLimited, match=r"message\.ring_share"), kept.admit(ALICE, 31):
        pass
    kept.volatile.put(delivery(b"y" * 30, cursor=kept.volatile.cursor()), 1 << 40, 0)
    with pytest.raises(RateLimited, match=r"message\.ring_share"), kept.admit(ALICE, 1):
        pass
    assert fits(kept, CAROL, 50)
    kept.ring.expire(1 << 40)
    assert fits(kept, ALICE, 20)
    kept.volatile.expire(1 << 40)
    assert (kept.ring.held, kept.volatile.held) == ({}, {})
    assert fits(kept, ALICE, 100)


def test_what_is_on_its_way_has_its_room() -> None:
    kept = memory()
    with kept.admit(ALICE, 40):
        assert fits(kept, ALICE, 10)
        assert not fits(kept, ALICE, 11)
        with kept.admit(CAROL, 60):
            assert not fits(kept, BOB, 1)
    assert fits(kept, ALICE, 100)


def test_a_message_that_no_commit_announces_is_announced_to_its_reader() -> None:
    hub, heard = Hub(), list[Event]()
    hub.attach_audience(heard.append)
    memory(hub).push(delivery(), 9, only="channel-1")
    [event] = heard
    assert (event.log, event.key, event.seq, event.kind) == ("inbox", BOB, 9, "message.received")
    assert (event.audience, event.only) == (frozenset({BOB}), "channel-1")
    assert decode(event.body, Delivery) == delivery()


def test_a_copy_of_what_somebody_sent_belongs_to_the_sender() -> None:
    assert memories.inbox_of(delivery()) == BOB
    assert memories.inbox_of(delivery(own=True)) == ALICE
    assert memories.received(delivery(own=True), 1).audience == {ALICE}


@pytest.mark.limit("message.jumps")
def test_each_channel_is_led_over_a_jump_once_and_the_oldest_is_forgotten() -> None:
    kept = memory()
    assert [kept.first_jump("a"), kept.first_jump("a")] == [True, False]
    for at in range(999):
        assert kept.first_jump(str(at))
    assert not kept.first_jump("a")
    assert kept.first_jump("one more")
    assert kept.first_jump("a")


async def test_a_reader_waits_for_queue_messages_that_have_a_number_but_no_place_yet() -> None:
    kept, done = memory(), list[str]()

    async def read() -> None:
        await kept.settled(BOB)
        done.append("read")

    async with asyncio.TaskGroup() as group:
        with kept.queueing(BOB), kept.queueing(BOB):
            assert kept.newest(BOB, ALICE) is None
            group.create_task(read())
            await turn()
            assert done == []
            kept.ring.put(BOB, 4, delivery(), None, 0)
    assert done == ["read"]
    assert kept.newest(BOB, ALICE) == 4
    await kept.settled(BOB)


async def test_other_inboxes_are_not_waited_for() -> None:
    kept = memory()
    with kept.queueing(BOB):
        await kept.settled(ALICE)
        assert kept.newest(ALICE, BOB) == 0


async def test_a_queue_message_that_failed_holds_nobody() -> None:
    kept = memory()
    with pytest.raises(OSError, match="full"), kept.queueing(BOB):
        raise OSError("full")
    await kept.settled(BOB)
    assert kept.newest(BOB, ALICE) == 0


@given(
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "e2ee.encrypted"]),
    st.sampled_from([(), ("b1",), ("b1", "b.2")]),
)
def test_a_row_is_read_as_it_was_sent(
    encrypted: bool, render: bool, own: bool, v2: bool, kind: str, devices: tuple[str, ...]
) -> None:
    sent = delivery(
        encrypted=encrypted,
        render=render,
        own=own,
        v2=v2,
        kind=kind,
        devices=devices,
        payload_type="text",
        sender_device="a1",
    )
    row = memories.row_of(sent, Stamp(1, 5))
    assert (row.aid, row.seq, row.at) == (ALICE if own else BOB, 0, Stamp(1, 5))
    assert memories.delivery_of(row) == sent


def test_a_row_says_whether_it_was_meant_for_one_device_and_whether_it_was_recalled() -> None:
    row = memories.row_of(delivery(targeted=True), Stamp(1, 5))
    assert row.flags & messages.TARGETED
    assert not memories.row_of(delivery(), Stamp(1, 5)).flags & messages.TARGETED
    buried = msgspec.structs.replace(row, flags=messages.RECALLED)
    assert memories.delivery_of(buried).recalled
    assert not memories.delivery_of(row).recalled


@pytest.mark.parametrize(("payload", "kind"), [(b'{"type":"text"}', "text"), (b'{"type":7}', ""), (b"{}", "")])
def test_the_type_of_a_payload_is_read_when_it_is_text(payload: bytes, kind: str) -> None:
    assert kind_of(decode(payload, Head)) == kind


@pytest.mark.parametrize("peer", [True, False])
def test_m13_an_ack_goes_to_the_sender_and_names_the_reader(peer: bool) -> None:
    event = memories.acknowledged(READER, ALICE, 12, 99, peer=peer)
    assert (event.key, event.seq, event.kind, event.audience) == (BOB, 12, "message.ack", frozenset({ALICE}))
    assert event.body == dumps(Acked(by=BOB, device="b1", slot="work", seq=12, sent_ms=99, sender=ALICE, peer=peer))
