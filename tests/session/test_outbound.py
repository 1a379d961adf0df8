from __future__ import annotations

import asyncio

import pytest

from edge.contract.limit import Limits
from edge.session.outbound import Outbound
from tests.support.clock import turn


def made(frames: int = 256, octets: int = 1_048_576) -> tuple[Outbound, Limits]:
    limits = Limits({"session.outbound_frames": frames, "session.outbound_octets": octets})
    return Outbound(limits), limits


async def drained(queue: Outbound) -> list[bytes]:
    queue.end()
    found = []
    while (frame := await queue.take()) is not None:
        found.append(frame)
        queue.sent()
    return found


async def test_classes_leave_in_order_and_frames_of_a_class_first_in_first_out() -> None:
    queue, _ = made()
    for frame, klass in ((b"e1", "event"), (b"a1", "answer"), (b"c1", "control"), (b"e2", "event"), (b"a2", "answer")):
        assert queue.put(frame, klass)
    assert await drained(queue) == [b"c1", b"a1", b"a2", b"e1", b"e2"]


@pytest.mark.limit("session.outbound_frames")
async def test_it_takes_exactly_its_number_of_frames() -> None:
    queue, limits = made(frames=3)
    assert [queue.put(b"x", "event") for _ in range(4)] == [True, True, True, False]
    assert limits.hits == {"session.outbound_frames": 1}
    await queue.take()
    assert not queue.put(b"x", "event")
    queue.sent()
    assert queue.put(b"x", "event")


@pytest.mark.limit("session.outbound_octets")
async def test_it_takes_exactly_its_bytes_but_any_frame_when_it_is_empty() -> None:
    queue, limits = made(octets=10)
    assert queue.put(b"x" * 6, "event")
    assert not queue.put(b"x" * 5, "event")
    assert queue.put(b"x" * 4, "event")
    assert limits.hits == {"session.outbound_octets": 1}
    await queue.take()
    queue.sent()
    await queue.take()
    queue.sent()
    assert queue.put(b"x" * 50, "answer")
    assert not queue.put(b"x", "control")


async def test_after_its_end_it_takes_nothing_and_gives_what_it_has() -> None:
    queue, _ = made()
    queue.put(b"x", "event")
    queue.end()
    assert not queue.put(b"y", "event")
    assert not queue.open
    assert await drained(queue) == [b"x"]


async def test_abandoned_it_is_empty_and_wakes_everybody_who_waits() -> None:
    queue, _ = made(frames=2)
    queue.put(b"x", "event")
    queue.put(b"x", "event")
    await queue.take()
    waiting = [asyncio.ensure_future(queue.flushed()), asyncio.ensure_future(queue.room())]
    await turn()
    queue.abandon()
    assert await asyncio.gather(*waiting) == [None, False]
    queue.sent()
    assert queue.waiting == 0
    assert await queue.take() is None


async def test_whoever_can_wait_gets_room_when_half_is_sent() -> None:
    queue, _ = made(frames=4)
    queue.put(b"x", "event")
    assert await queue.room()
    queue.put(b"x", "event")
    room = asyncio.ensure_future(queue.room())
    await turn()
    assert not room.done()
    await queue.take()
    queue.sent()
    assert await room


async def test_a_sender_that_waits_is_woken_by_the_next_frame() -> None:
    queue, _ = made()
    taking = asyncio.ensure_future(queue.take())
    await turn()
    queue.put(b"x", "event")
    assert await taking == b"x"
