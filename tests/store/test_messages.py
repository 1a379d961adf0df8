"""Tables of messages: what the service relies on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge.contract.store import Unit
from edge.contract.time import Stamp
from edge.store import messages
from edge.store.messages import Message, Owed, Peer, Reader, Spk
from tests.support.store import database

BOB = "bobb.edge.test"
READER = Reader(BOB, "b1", "")


def row(sender: str = "alice.edge.test", **more: Any) -> Message:
    fields: dict[str, Any] = {
        "aid": BOB,
        "seq": 0,
        "sender": sender,
        "message_id": "m",
        "sent_ms": 7,
        "at": Stamp(1, 5),
    }
    return Message(**(fields | {"payload": b'{"a": 1}'} | more))


async def test_rows_come_back_as_they_went_in(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        sent = row(sender_device="a1", kind="k", devices=("b1", "b.2"), flags=messages.ENCRYPTED | messages.V2)
        seq = await node.commit(lambda unit: messages.add(unit, sent))
        [found], more = await node.read(lambda unit: messages.after(unit, READER, 0, rows=9, octets=99))
        assert (found, more) == (
            Message(**{**{f: getattr(sent, f) for f in sent.__struct_fields__}, "seq": seq}),
            False,
        )


async def test_a_device_name_is_compared_whole(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: messages.add(unit, row(devices=("b11", "xb1"))))
        assert await node.read(lambda unit: messages.after(unit, READER, 0, rows=9, octets=99)) == ([], False)
        assert await node.read(lambda unit: messages.next_seen(unit, READER, 0)) == 0
        assert await node.read(lambda unit: messages.next_seen(unit, Reader(BOB, "xb1"), 0)) == 1


async def test_the_size_of_an_inbox_follows_what_is_in_it(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        for _ in range(3):
            await node.commit(lambda unit: messages.add(unit, row()))
        assert await node.read(lambda unit: messages.usage(unit, BOB)) == (3, 24)
        [first, *_], _ = await node.read(lambda unit: messages.after(unit, READER, 0, rows=9, octets=99))
        await node.commit(lambda unit: messages.bury(unit, first, "message.recalled", b"{}"))
        assert await node.read(lambda unit: messages.usage(unit, BOB)) == (3, 18)
        assert await node.commit(lambda unit: messages.expire(unit, 2)) == 2
        assert await node.read(lambda unit: messages.usage(unit, BOB)) == (1, 8)
        assert await node.read(lambda unit: messages.floor(unit, BOB)) == 2


async def test_what_each_sender_holds_of_an_inbox_follows_what_is_in_it(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        async def held() -> dict[str, tuple[int, int]]:
            rows = await node.read(lambda unit: unit.run("SELECT sender FROM message_share"))
            names = [str(sender) for (sender,) in rows]
            return {name: await node.read(lambda unit, name=name: messages.held(unit, BOB, name)) for name in names}

        for sender in ("alice", "carol", "alice", "carol", "carol"):
            await node.commit(lambda unit, sender=sender: messages.add(unit, row(sender)))
        assert await held() == {"alice": (2, 16), "carol": (3, 24)}
        assert await node.read(lambda unit: messages.senders(unit, BOB)) == 2
        [first, *_], _ = await node.read(lambda unit: messages.after(unit, READER, 0, rows=9, octets=99))
        await node.commit(lambda unit: messages.bury(unit, first, "message.recalled", b"{}"))
        assert await held() == {"alice": (2, 10), "carol": (3, 24)}
        assert await node.commit(lambda unit: messages.expire(unit, 4)) == 4
        assert await held() == {"carol": (1, 8)}
        assert await node.read(lambda unit: messages.floor(unit, BOB)) == 4
        assert await node.read(lambda unit: messages.held(unit, BOB, "alice")) == (0, 0)
        await node.commit(lambda unit: messages._take_out(unit, BOB, [5]))
        assert await held() == {}
        assert await node.read(lambda unit: messages.usage(unit, BOB)) == (0, 0)


async def test_what_senders_hold_is_counted_when_a_store_of_before_is_opened(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        for sender in ("alice", "carol", "alice"):
            await node.commit(lambda unit, sender=sender: messages.add(unit, row(sender)))

        def older(unit: Unit) -> None:
            unit.run("DROP TABLE message_share")
            unit.run("DELETE FROM migration WHERE name = 'messages-003'")

        await node.commit(older)
    async with database(tmp_path) as node:
        assert await node.read(lambda unit: messages.held(unit, BOB, "alice")) == (2, 16)
        assert await node.read(lambda unit: messages.held(unit, BOB, "carol")) == (1, 8)


async def test_senders_are_found_without_reading_their_messages(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> list[tuple[object, ...]]:
            for sender in ("carol", "alice", "bob", "alice"):
                messages.add(unit, row(sender))
            messages.add(unit, row("dora", devices=("elsewhere",)))
            return unit.run(f"EXPLAIN QUERY PLAN {messages._SENDERS}", (BOB, "", "b1", 99))

        plan = await node.commit(fill)
        assert not [line for line in plan if str(line[3]).startswith("SCAN message")]
        found = await node.read(lambda unit: messages.peers(unit, READER))
        assert found == [Peer("alice", 4, 0), Peer("bob", 3, 0), Peer("carol", 1, 0), Peer("dora", 0, 0)]
        page = await node.read(lambda unit: messages.peers(unit, READER, above="alice", limit=2))
        assert [peer.sender for peer in page] == ["bob", "carol"]


async def test_no_question_about_an_inbox_reads_the_whole_table(tmp_path: Path) -> None:
    questions: dict[str, tuple[object, ...]] = {
        messages._INBOX_SIZES: (BOB, 0, "b1", 9),
        messages._PEER_SIZES: (BOB, "alice", 0, "b1", 9),
        messages._INBOX_OLDER: (BOB, 9, "b1", 9),
        messages._PEER_OLDER: (BOB, "alice", 9, "b1", 9),
        messages._INBOX_ROWS: (BOB, 0, 9, "b1"),
        messages._PEER_ROWS: (BOB, "alice", 0, 9, "b1"),
        messages._NEXT_SEEN: (BOB, 0, "b1"),
        messages._LAST_OF: (BOB, "alice"),
        messages._FIND: ("m", "alice"),
        messages._KNOWN_ID: ("m",),
        messages._COVERED: (BOB, 0, 9),
        messages._EXPIRING: (9,),
        messages._HELD: (BOB, "alice"),
        messages._COUNT_SENDERS: (BOB,),
    }
    async with database(tmp_path) as node:
        for sql, args in questions.items():
            plan = await node.read(lambda unit, sql=sql, args=args: unit.run(f"EXPLAIN QUERY PLAN {sql}", args))
            lines = [str(line[3]) for line in plan]
            assert not [line for line in lines if line.startswith("SCAN message")], (sql, lines)


async def test_a_frozen_floor_is_a_copy_that_stays(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: [messages.add(unit, row()) for _ in range(5)])
        await node.commit(lambda unit: messages.ack(unit, READER, 3))
        assert await node.read(lambda unit: messages.frozen(unit, READER)) is False
        assert await node.commit(lambda unit: messages.freeze(unit, READER)) == 3
        await node.commit(lambda unit: messages.ack(unit, READER, 5))
        assert await node.commit(lambda unit: messages.freeze(unit, READER)) == 3
        assert await node.read(lambda unit: messages.cursor(unit, READER, "anybody")) == 3


async def test_expiry_forgets_the_cursors_it_makes_pointless(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: [messages.add(unit, row(s)) for s in ("alice", "bob", "alice")])
        await node.commit(lambda unit: [messages.ack(unit, READER, 2, s) for s in ("alice", "bob")])
        await node.commit(lambda unit: messages.ack(unit, READER, 3, "alice"))
        await node.commit(lambda unit: messages.expire(unit, 2))
        assert await node.read(lambda unit: unit.run("SELECT sender, seq FROM message_cursor")) == [("alice", 3)]


async def test_the_senders_an_ack_covers_are_those_of_rows_that_are_there(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: [messages.add(unit, row(s)) for s in ("alice", "bob", "carol")])
        await node.commit(lambda unit: messages.expire(unit, 1))
        assert await node.read(lambda unit: messages.covered(unit, BOB, 0, 2)) == {"bob"}


async def test_keys_and_debts_are_kept(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        old, new = Spk("b1", "id", "pk", "sig", 1), Spk("b1", "id2", "pk2", "sig2", 2)
        await node.commit(lambda unit: messages.put_spk(unit, BOB, old, 10))
        await node.commit(lambda unit: messages.put_spk(unit, BOB, new, 20))
        assert await node.read(lambda unit: messages.spks(unit, BOB)) == [new]
        assert await node.read(lambda unit: messages.spk_sizes(unit, BOB)) == [("b1", 20, 7)]
        owed = Owed("t1", "d-porch.edge.test", "alice.edge.test", "m-1")
        await node.commit(lambda unit: messages.owe(unit, owed))
        assert await node.read(messages.owed) == [owed]
        await node.commit(lambda unit: messages.paid(unit, "t1"))
        assert await node.read(messages.owed) == []
