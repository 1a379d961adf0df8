"""Queue messages over a restart: what is lost is said, what is repeated is taken again (promise P2, rule M-1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.services.message import remembered
from edge.store import ledger
from tests.support.messaging import BOB, post_office


async def test_p2_what_a_restart_takes_from_memory_is_declared_and_may_be_sent_again(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await post.connect(BOB, "b1", mode="queue")
        for name in ("read", "unread", "unread too"):
            sent = await post.offline().send(BOB, message_id=name, delivery_mode="queue")
            if name == "read":
                await post.offline(BOB, "b1").call("message.ack", seq=sent["seq"])
    async with post_office(tmp_path) as post:
        [gap] = await post.node.read(lambda unit: ledger.gaps(unit, "inbox", BOB))
        assert (gap.first, gap.last, gap.count, gap.reason) == (2, 3, 2, "queue_restart")
        again = [await post.offline().send(BOB, message_id=name, delivery_mode="queue") for name in ("read", "unread")]
        assert [(one["seq"], one["status"]) for one in again] == [(1, "duplicate"), (4, "sent")]


async def test_p2_a_repeat_that_comes_before_the_loss_is_declared_is_taken_too(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await post.offline().send(BOB, message_id="unread", delivery_mode="queue")
        post.service._memory.life = "another life"  # as if the node had been killed just before the answer
        again = await post.offline().send(BOB, message_id="unread", delivery_mode="queue")
        assert (again["seq"], again["status"]) == (2, "sent")


@pytest.mark.parametrize("rows", [1, 2, 3])
async def test_p2_many_are_declared_a_few_at_a_time(tmp_path: Path, rows: int) -> None:
    async with post_office(tmp_path) as post:
        for name in "abc":
            await post.offline().send(BOB, message_id=name, delivery_mode="queue")
        at, steps = remembered.Lost(("", ""), True), 0
        while at.more:
            at = await post.node.commit(lambda unit, at=at: remembered.declare(unit, "later", at.after, rows))  # type: ignore[misc]
            steps += 1
        assert steps == 3 // rows + 1
        gaps = await post.node.read(lambda unit: ledger.gaps(unit, "inbox", BOB))
        assert sum(gap.count for gap in gaps) == 3
