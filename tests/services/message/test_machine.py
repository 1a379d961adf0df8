"""Cursors, acks, recalls, queue evictions and restarts in any order, against a model of what a reader may be told."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge.contract.store import INCARNATION_SHIFT, Unit
from edge.services.message.records import RING_ROWS
from edge.store import ledger, messages
from tests.support.messaging import ALICE, BOB, CAROL, Client, post_office

RING = 3
SENDERS = st.sampled_from([ALICE, CAROL])
DEVICES = st.sampled_from(["b1", "b2"])


class Inbox(RuleBasedStateMachine):
    """One recipient with two devices, two senders. Everything goes through the operations, on a real database."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.rows: dict[int, tuple[str, str]] = {}
        self.ring: dict[int, tuple[str, str]] = {}
        self.owner: dict[int, str] = {}
        self.queued: dict[str, tuple[str, int]] = {}
        self.evicted: set[int] = set()
        self.lost: list[tuple[int, int, int]] = []
        self.ids: dict[str, int] = {}
        self.recalled: set[int] = set()
        self.notices: dict[int, str] = {}
        self.head = self.base = 0
        self.leapt = False
        self.whole = {"b1": 0, "b2": 0}
        self.by_sender: dict[tuple[str, str], int] = {}
        self.acked: set[int] = set()

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    @initialize()
    def open(self) -> None:
        async def begin() -> None:
            self.close = asyncio.Event()
            opened = asyncio.Event()

            async def hold() -> None:
                incarnation = self.base >> INCARNATION_SHIFT
                async with post_office(
                    Path(self.folder.name), limits={RING_ROWS.name: RING}, incarnation=incarnation
                ) as made:
                    self.post = made
                    opened.set()
                    await self.close.wait()

            self.held = asyncio.create_task(hold())
            await opened.wait()

        self.do(begin())
        for device in ("b1", "b2"):
            self.catalogue(device)

    async def end(self) -> None:
        self.close.set()
        await self.held

    @rule()
    def restart(self) -> None:
        """What only memory held and nobody had read is lost: a later life says so, and lets its id be used again."""
        self.do(self.end())
        unread = sorted(n for n in self.ring if n not in self.acked)
        if unread:
            self.lost.append((unread[0], unread[-1], len(unread)))
        for message_id, (_, seq) in list(self.queued.items()):
            if seq in unread:
                del self.queued[message_id]
        self.ring.clear()
        self.evicted.clear()
        self.leapt = False
        self.open()

    def client(self, aid: str, device: str = "") -> Client:
        return self.post.offline(aid, device)

    def next(self) -> int:
        """The number that the next message must have."""
        self.head = max(self.head, self.base) + 1
        return self.head

    def some(self, number: int) -> int:
        """A number that a reader may name: since the leap, some of the new incarnation."""
        return self.base + number // 2 if self.base and number % 2 else number

    def show(self, seq: int) -> None:
        """The first number of a run above the head makes all that follow leap above it (D18)."""
        if seq > self.head and seq >= self.base and not self.leapt:
            self.base, self.leapt = self.base + (1 << INCARNATION_SHIFT), True

    @rule(sender=SENDERS)
    def send(self, sender: str) -> None:
        sent = self.do(self.client(sender).send(BOB, message_id=f"m-{self.head + 1}"))
        assert (sent["seq"], sent["status"]) == (self.next(), "sent")
        self.rows[self.head] = (sender, sent["message_id"])
        self.ids[sent["message_id"]] = self.head

    @rule(sender=SENDERS)
    def queue(self, sender: str) -> None:
        sent = self.do(self.client(sender).send(BOB, message_id=f"q-{self.head + 1}", delivery_mode="queue"))
        assert sent["seq"] == self.next()
        self.ring[self.head] = (sender, sent["message_id"])
        self.queued[sent["message_id"]] = (sender, self.head)
        if len(self.ring) > RING:
            oldest = min(self.ring)
            del self.ring[oldest]
            self.evicted.add(oldest)
            if oldest not in self.acked:
                self.lost.append((oldest, oldest, 1))

    @rule(data=st.data())
    def queue_again(self, data: st.DataObject) -> None:
        if not self.queued:
            return
        message_id = data.draw(st.sampled_from(sorted(self.queued)))
        sender, seq = self.queued[message_id]
        again = self.do(self.client(sender).send(BOB, message_id=message_id, delivery_mode="queue"))
        assert (again["seq"], again["status"]) == (seq, "duplicate")

    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        if not self.ids:
            return
        message_id = data.draw(st.sampled_from(sorted(self.ids)))
        sender = self.rows[self.ids[message_id]][0]
        again = self.do(self.client(sender).send(BOB, message_id=message_id))
        assert (again["seq"], again["status"]) == (self.ids[message_id], "duplicate")

    @rule(device=DEVICES, seq=st.integers(0, 40))
    def ack(self, device: str, seq: int) -> None:
        seq = self.some(seq)
        answer = self.do(self.client(BOB, device).call("message.ack", seq=seq))
        self.whole[device] = max(self.whole[device], min(seq, self.head))
        assert answer["ack_seq"] == self.whole[device]
        self.show(seq)
        self.acked |= {n for n in self.ring if n <= self.whole[device] and self.owner.get(n) == device}

    @rule(device=DEVICES, sender=SENDERS, seq=st.integers(0, 40))
    def ack_sender(self, device: str, sender: str, seq: int) -> None:
        seq = self.some(seq)
        answer = self.do(
            self.client(BOB, device).call("message.v2.ack", cursor_scope="peer", sender_aid=sender, up_to_seq=seq)
        )
        mine = [n for n, (s, _) in (self.rows | {n: (s, "") for n, s in self.notices.items()}).items() if s == sender]
        mine += [n for n, (s, _) in self.ring.items() if s == sender and self.owner.get(n) == device]
        before = self.by_sender.get((device, sender), 0)
        self.by_sender[device, sender] = max(before, min(seq, max(mine, default=0)))
        assert answer["peer_ack_seq"] == self.by_sender[device, sender]
        if seq <= self.head:
            assert answer["effective_ack_seq"] >= seq
        self.show(seq)
        effective = answer["effective_ack_seq"]
        self.acked |= {
            n for n, (s, _) in self.ring.items() if s == sender and n <= effective and self.owner.get(n) == device
        }

    @rule(data=st.data())
    def recall(self, data: st.DataObject) -> None:
        if not self.ids:
            return
        message_id = data.draw(st.sampled_from(sorted(self.ids)))
        seq = self.ids[message_id]
        sender = self.rows[seq][0]
        answer = self.do(self.client(sender).call("message.recall", message_ids=[message_id]))
        if seq in self.recalled:
            assert answer["errors"] == [{"message_id": message_id, "error": "already_recalled"}]
            return
        assert answer["recalled"] == 1
        self.recalled.add(seq)
        passed = any(cursor >= seq for cursor in self.whole.values())
        passed |= any(cursor >= seq for (_, s), cursor in self.by_sender.items() if s == sender)
        if passed:
            self.notices[self.next()] = sender

    @rule(device=DEVICES, after=st.integers(0, 40), limit=st.integers(1, 5))
    def pull(self, device: str, after: int, limit: int) -> None:
        after = self.some(after)
        page = self.do(self.client(BOB, device).call("message.pull", after_seq=after, limit=limit))
        wanted = sorted(n for n in self.visible(device) if n > after)
        found = [row["seq"] for row in page["messages"]]
        assert found == wanted[:limit]
        assert page["has_more"] is (len(wanted) > limit)
        assert page["ephemeral_earliest_available_seq"] == min(self.ring, default=None)
        assert page["ephemeral_dropped_count"] == len(self.evicted)
        unread = [n for n in self.visible(device) if n > self.whole[device]]
        assert page["server_ack_seq"] == (min(unread) - 1 if unread else self.head)
        self.show(after)
        self.take(device, found)
        for row in page["messages"]:
            gone = row["seq"] in self.recalled or row["seq"] in self.notices
            assert (row["payload"]["type"] == "message.recalled") is gone

    @rule(device=DEVICES, sender=SENDERS, after=st.one_of(st.none(), st.integers(0, 40)), limit=st.integers(1, 5))
    def pull_sender(self, device: str, sender: str, after: int | None, limit: int) -> None:
        after = None if after is None else self.some(after)
        page = self.do(
            self.client(BOB, device).call(
                "message.v2.pull", cursor_scope="peer", sender_aid=sender, after_seq=after, limit=limit
            )
        )
        start = self.by_sender.get((device, sender), 0) if after is None else after
        wanted = sorted(n for n, s in self.visible(device).items() if n > start and s == sender)
        found = [row["seq"] for row in page["messages"]]
        assert found == wanted[:limit]
        assert page["persistent_has_more"] is page["has_more"] is (len(wanted) > limit)
        assert page["scan_after_seq"] == start
        covered, head = page["covered_through_seq"], page["head_seq"]
        assert start <= covered <= head
        assert page["next_after_seq"] == covered
        assert covered == head or page["persistent_has_more"]
        assert not [n for n in wanted[limit:] if n <= covered]
        assert page["server_ack_seq"] == self.by_sender.get((device, sender), 0)
        self.show(after or 0)
        self.take(device, found)

    @rule(device=DEVICES)
    def catalogue(self, device: str) -> None:
        found = self.do(self.client(BOB, device).call("message.peers"))
        assert found["bootstrap_floor_seq"] == 0
        heads: dict[str, int] = {}
        for seq, sender in self.visible(device).items():
            heads[sender] = max(seq, heads.get(sender, 0))
        pending = {s: n for s, n in heads.items() if n > self.by_sender.get((device, s), 0)}
        assert {peer["sender_aid"]: peer["head_seq"] for peer in found["peers"]} == pending

    def visible(self, device: str) -> dict[int, str]:
        ring = {n: s for n, (s, _) in self.ring.items() if self.owner.get(n, device) == device}
        return {n: s for n, (s, _) in self.rows.items()} | self.notices | ring

    def take(self, device: str, shown: list[int]) -> None:
        for seq in shown:
            if seq in self.ring:
                self.owner.setdefault(seq, device)

    @invariant()
    def honest(self) -> None:
        """What was evicted unread or lost by a restart, and nothing else, is in the ledger."""
        if not hasattr(self, "post"):
            return
        self.do(self.post.rest())
        gaps = self.do(self.post.node.read(lambda unit: ledger.gaps(unit, "inbox", BOB)))
        assert sorted((gap.first, gap.last, gap.count) for gap in gaps) == sorted(self.lost)

    @invariant()
    def counted(self) -> None:
        """What an inbox and each sender in it are said to hold is what is there."""
        if not hasattr(self, "post"):
            return

        def look(unit: Unit) -> tuple[Any, ...]:
            held = "SELECT sender, count(*), sum(length(payload)) FROM message WHERE aid = ? GROUP BY sender"
            there = unit.run(held, (BOB,))
            said = [(sender, *messages.held(unit, BOB, str(sender))) for sender, _, _ in there]
            return there, said, messages.usage(unit, BOB)

        there, said, usage = self.do(self.post.node.read(look))
        assert said == there
        assert usage == (sum(rows for _, rows, _ in there), sum(octets for _, _, octets in there))

    def teardown(self) -> None:
        if hasattr(self, "held"):
            self.do(self.end())
        self.runner.close()
        self.folder.cleanup()


TestInbox = Inbox.TestCase
TestInbox.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestInbox = pytest.mark.seed("S0-028", "S0-041", "S0-042")(TestInbox)
