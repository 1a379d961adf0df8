"""What is said in groups, and how far each device has read: numbers, pages, wraps, floors, cursors."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from edge.contract.store import INCARNATION_SHIFT, Unit
from edge.contract.time import Stamp
from edge.store import group_logs, ledger
from edge.store.database import Database
from edge.store.group_logs import Device, Place, Said, Wrap
from tests.support.store import database

GID, OTHER = "g-c0ffee.edge.test", "family.edge.test"
ALICE, BOB = "alice.edge.test", "bobb.edge.test"
HERE = Place(GID, BOB, "b1", "work")
SHOWN = 10 + group_logs.ROW_OCTETS + 6 * len("m0") + 2 * (len(ALICE) + len(GID))
"""What a row of `fill` counts for in a page."""


def said(message_id: str = "", payload: bytes = b'{"n": 1.0}', gid: str = GID, **more: Any) -> Said:
    fields: dict[str, Any] = {"sender": ALICE, "sent_ms": 7, "at": Stamp(1, 5)}
    return Said(gid=gid, seq=0, message_id=message_id, payload=payload, **(fields | more))


def v2(message_id: str) -> Said:
    return said(message_id, flags=group_logs.ENCRYPTED | group_logs.V2, leaves=b"\x00" * 32)


async def fill(node: Database, count: int, gid: str = GID, size: int = 10) -> None:
    def work(unit: Unit) -> None:
        for at in range(count):
            group_logs.add(unit, said(f"m{at}", b'{"n":%s}' % (b"1" * (size - 6)), gid))

    await node.commit(work)


async def numbers(node: Database, seq: int = 0, rows: int = 99, octets: int = 99_999, place: Place = HERE) -> list[int]:
    found, _ = await node.read(lambda unit: group_logs.after(unit, place, seq, rows=rows, octets=octets))
    return [one.seq for one in found]


async def test_a_row_comes_back_as_it_was_said(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        made = said("m", device="a1", kind="text", mode="mention-only", flags=group_logs.QUIET, attachments=b"[1]")
        seq = await node.commit(lambda unit: group_logs.add(unit, made))
    async with database(tmp_path) as node:
        found = await node.read(lambda unit: group_logs.find(unit, GID, "m"))
        assert found == Said(**{**{name: getattr(made, name) for name in made.__struct_fields__}, "seq": seq})
        assert await node.read(lambda unit: group_logs.find(unit, OTHER, "m")) is None


async def test_g_6_messages_are_numbered_per_group_without_holes(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await fill(node, 3)
        await fill(node, 2, OTHER)
        assert await numbers(node) == [1, 2, 3]
        assert await numbers(node, place=Place(OTHER, BOB)) == [1, 2]
        assert await node.read(lambda unit: group_logs.head(unit, GID)) == 3


async def test_g_21_an_id_is_used_once_in_a_group_and_a_refused_row_takes_no_number(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await fill(node, 1)
        with pytest.raises(sqlite3.IntegrityError):
            await node.commit(lambda unit: group_logs.add(unit, said("m0")))
        await node.commit(lambda unit: group_logs.add(unit, said("m0", gid=OTHER)))
        assert await node.commit(lambda unit: group_logs.add(unit, said("m1"))) == 2


async def test_numbers_after_a_restore_are_above_all_that_were_given_out(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await fill(node, 2)
    async with database(tmp_path, incarnation=1) as node:
        seq = await node.commit(lambda unit: group_logs.add(unit, said("new")))
        assert seq >> INCARNATION_SHIFT == 1


async def test_a_page_is_cut_by_rows_and_by_bytes_and_has_one_row_at_least(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await fill(node, 4, size=10)
        for rows, octets, wanted, more in (
            (2, 9 * SHOWN, [1, 2], True),
            (4, 9 * SHOWN, [1, 2, 3, 4], False),
            (9, 2 * SHOWN, [1, 2], True),
            (9, 2 * SHOWN - 1, [1], True),
            (9, 1, [1], True),
            (9, 4 * SHOWN, [1, 2, 3, 4], False),
        ):
            page, left = await node.read(
                lambda unit, rows=rows, octets=octets: group_logs.after(unit, HERE, 0, rows=rows, octets=octets)
            )
            assert ([one.seq for one in page], left) == (wanted, more)
        assert await node.read(lambda unit: group_logs.after(unit, HERE, 4, rows=9, octets=9)) == ([], False)


async def test_older_rows_are_paged_backwards_down_to_where_somebody_came_in(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await fill(node, 6)
        for seq, above, rows, wanted, more in (
            (6, 0, 2, [4, 5], True),
            (4, 2, 9, [3], False),
            (4, 1, 2, [2, 3], False),
            (1, 0, 9, [], False),
        ):
            page, older = await node.read(
                lambda unit, seq=seq, above=above, rows=rows: group_logs.before(
                    unit, HERE, seq, above, rows=rows, octets=9 * SHOWN
                )
            )
            assert ([one.seq for one in page], older) == (wanted, more)
        page, older = await node.read(lambda unit: group_logs.before(unit, HERE, 6, 0, rows=9, octets=2 * SHOWN + 5))
        assert ([one.seq for one in page], older) == ([4, 5], True)


async def test_g_23_a_device_sees_the_encrypted_rows_that_it_has_a_wrap_for_and_all_plain_ones(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def work(unit: Unit) -> None:
            group_logs.add(unit, said("plain"))
            group_logs.add(unit, v2("mine"), [Wrap(BOB, "b1", 0, b"[]")])
            group_logs.add(unit, v2("others"), [Wrap(BOB, "b2", 0, b"[]"), Wrap(ALICE, "b1", 1, b"[]")])
            group_logs.add(unit, v2("any"), [Wrap(BOB, "", 0, b"[]")])

        await node.commit(work)
        assert await numbers(node) == [1, 2, 4]
        assert await numbers(node, place=Place(GID, BOB, "b2")) == [1, 3, 4]
        assert await node.read(lambda unit: group_logs.unread(unit, HERE, 1, 99)) == 2
        assert await node.read(lambda unit: group_logs.unread(unit, HERE, 0, 2)) == 2
        assert await node.read(lambda unit: group_logs.newest(unit, HERE, 0)) == 4
        assert await node.read(lambda unit: group_logs.newest(unit, Place(GID, ALICE, "a"), 0)) == 1
        assert await node.read(lambda unit: group_logs.newest(unit, HERE, 4)) == 0
        page, older = await node.read(lambda unit: group_logs.before(unit, HERE, 4, 0, rows=9, octets=99_999))
        assert ([one.seq for one in page], older) == ([1, 2], False)


async def test_an_encrypted_row_weighs_what_its_recipients_keys_take_until_they_are_gone(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        made = said("m", b"{}", flags=group_logs.V2, leaves=b"\x00" * 32 * 3)
        await node.commit(lambda unit: group_logs.add(unit, made, [Wrap(BOB, "b1", 0, b"[]")]))
        assert await node.read(lambda unit: group_logs.usage(unit, GID)) == (1, 2 + 3 * group_logs.RECIPIENT_OCTETS)
        row = await node.read(lambda unit: group_logs.find(unit, GID, "m"))
        assert row is not None
        await node.commit(lambda unit: group_logs.bury(unit, row, "gone", b"{}"))
        assert await node.read(lambda unit: group_logs.usage(unit, GID)) == (1, 2)
        await node.commit(lambda unit: group_logs.add(unit, said("n", b"{}", leaves=b"\x00" * 32)))
        await node.commit(lambda unit: group_logs.evict(unit, GID, 0, 0))
        assert await node.read(lambda unit: group_logs.usage(unit, GID)) == (0, 0)


async def test_a_devices_own_wrap_counts_more_than_one_for_the_whole_aid(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        both = [Wrap(BOB, "", 4, b'["any"]'), Wrap(BOB, "b1", 5, b'["mine"]')]
        await node.commit(lambda unit: (group_logs.add(unit, v2("1"), both), group_logs.add(unit, v2("2"), both[:1])))
        assert await node.read(lambda unit: group_logs.wraps(unit, HERE, 1, 2)) == {
            1: (5, b'["mine"]'),
            2: (4, b'["any"]'),
        }
        assert await node.read(lambda unit: group_logs.wraps(unit, HERE, 2, 2)) == {2: (4, b'["any"]')}
        assert await node.read(lambda unit: group_logs.wraps(unit, Place(GID, ALICE, "a"), 1, 2)) == {}


async def test_g_13_a_tombstone_stands_at_the_same_number_and_everybody_sees_it(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def work(unit: Unit) -> None:
            group_logs.add(unit, v2("m"), [Wrap(BOB, "b1", 0, b"[]")])
            found = group_logs.find(unit, GID, "m")
            assert found is not None
            group_logs.bury(unit, found, "group.message_recalled", b"{}")

        await node.commit(work)
        [[row], _] = await node.read(lambda unit: group_logs.after(unit, Place(GID, ALICE), 0, rows=9, octets=99))
        assert (row.seq, row.message_id, row.kind, row.payload) == (1, "m", "group.message_recalled", b"{}")
        assert (row.flags, row.leaves, row.attachments) == (group_logs.RECALLED, b"", b"")
        assert await node.read(lambda unit: group_logs.wraps(unit, HERE, 1, 1)) == {}


async def test_the_size_of_a_group_follows_what_is_in_it(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        assert await node.read(lambda unit: group_logs.usage(unit, GID)) == (0, 0)
        await node.commit(lambda unit: group_logs.add(unit, said("m", b"12345", attachments=b"[1]")))
        await fill(node, 2)
        assert await node.read(lambda unit: group_logs.usage(unit, GID)) == (3, 28)
        found = await node.read(lambda unit: group_logs.find(unit, GID, "m"))
        assert found is not None
        await node.commit(lambda unit: group_logs.bury(unit, found, "k", b"{}"))
        assert await node.read(lambda unit: group_logs.usage(unit, GID)) == (3, 22)
        await node.commit(lambda unit: group_logs.evict(unit, GID, 1, 999))
        assert await node.read(lambda unit: group_logs.usage(unit, GID)) == (1, 10)


@pytest.mark.parametrize(("rows", "octets", "left"), [(3, 999, 3), (99, 40, 4), (99, 39, 3), (0, 0, 0), (600, 9999, 5)])
async def test_a_full_group_loses_its_oldest_rows_and_says_so(
    tmp_path: Path, rows: int, octets: int, left: int
) -> None:
    async with database(tmp_path) as node:
        await fill(node, 5)
        gap = await node.commit(lambda unit: group_logs.evict(unit, GID, rows, octets))
        assert await numbers(node) == list(range(6 - left, 6))
        assert await node.read(lambda unit: group_logs.floor(unit, GID)) == 5 - left
        declared = await node.read(lambda unit: ledger.gaps(unit, group_logs.MESSAGES, GID))
        if gap is None:
            assert (left, declared) == (5, [])
            return
        assert (gap.first, gap.last, gap.count, gap.reason) == (1, 5 - left, 5 - left, "group_full")
        assert [(one.first, one.last, one.count) for one in declared] == [(1, 5 - left, 5 - left)]


async def test_many_rows_are_evicted_at_once(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await fill(node, 600, size=8)
        gap = await node.commit(lambda unit: group_logs.evict(unit, GID, 7, 9999))
        assert gap is not None
        assert gap.count == 593
        assert await numbers(node) == list(range(594, 601))
        await node.commit(lambda unit: group_logs.add(unit, said("next")))
        assert await node.read(lambda unit: group_logs.head(unit, GID)) == 601


async def test_old_rows_of_all_groups_expire_together_and_raise_their_floors(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def work(unit: Unit) -> None:
            for gid, name in ((GID, "1"), (OTHER, "1"), (GID, "2")):
                group_logs.add(unit, said(name, gid=gid), [Wrap(BOB, "b1", 0, b"[]")])

        await node.commit(work)
        oldest = await node.read(lambda unit: group_logs.oldest(unit, 2))
        assert [at for _, at in oldest] == [Stamp(1, 5)] * 2
        assert await node.commit(lambda unit: group_logs.expire(unit, oldest[-1][0])) == 2
        assert await numbers(node) == [2]
        assert [await node.read(lambda unit, g=g: group_logs.floor(unit, g)) for g in (GID, OTHER)] == [1, 1]
        assert await node.read(lambda unit: group_logs.usage(unit, OTHER)) == (0, 0)
        assert await node.read(lambda unit: group_logs.wraps(unit, HERE, 1, 9)) == {2: (0, b"[]")}
        assert await node.read(lambda unit: unit.run("SELECT count(*) FROM group_wrap")) == [(1,)]
        assert await node.read(lambda unit: ledger.gaps(unit, group_logs.MESSAGES, GID)) == []
        assert await node.commit(lambda unit: group_logs.add(unit, said("2", gid=OTHER))) == 2


async def acked(node: Database, place: Place, now_ms: int = 1, most: int = 9, **fields: Any) -> tuple[int, int]:
    return await node.commit(lambda unit: group_logs.ack(unit, place, now_ms, most=most, **fields))


async def test_g_8_cursors_move_forward_only_and_each_device_has_its_own(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        assert await node.read(lambda unit: group_logs.cursor(unit, HERE)) == (0, 0)
        assert await acked(node, HERE, seq=5) == (5, 0)
        assert await acked(node, HERE, seq=3, event=2) == (5, 2)
        assert await acked(node, HERE, event=1) == (5, 2)
        for other in (Place(GID, BOB, "b2", "work"), Place(GID, BOB, "b1", "home"), Place(OTHER, BOB, "b1", "work")):
            assert await node.read(lambda unit, other=other: group_logs.cursor(unit, other)) == (0, 0)


async def test_without_a_device_an_aid_has_one_cursor_whatever_its_slot(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await acked(node, Place(GID, BOB, "", "work"), seq=5)
        assert await node.read(lambda unit: group_logs.cursor(unit, Place(GID, BOB, "", "home"))) == (5, 0)


async def test_a_device_is_listed_by_what_it_last_said_of_itself(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await acked(node, HERE, 1, seq=5, name="phone", kind="ios")
        await acked(node, HERE, 9, event=2)
        await acked(node, Place(GID, BOB, "b0"), 3, seq=1)
        assert await node.read(lambda unit: group_logs.devices(unit, GID, BOB)) == [
            Device("b0", "", "", 3, 1, 0),
            Device("b1", "phone", "ios", 9, 5, 2),
        ]
        assert await node.commit(lambda unit: group_logs.drop_device(unit, GID, BOB, "b0"))
        assert not await node.commit(lambda unit: group_logs.drop_device(unit, GID, BOB, "b0"))
        assert await node.read(lambda unit: group_logs.cursor(unit, HERE)) == (5, 2)


async def test_over_the_bound_of_places_the_stalest_makes_room_and_a_known_one_needs_none(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        places = [Place(GID, BOB, f"b{at}") for at in range(3)]
        for at, place in enumerate(places[:2]):
            await acked(node, place, at, 2, seq=at + 1)
        await acked(node, places[0], 5, 2, seq=7)
        assert [one.device for one in await node.read(lambda unit: group_logs.devices(unit, GID, BOB))] == ["b0", "b1"]
        await acked(node, places[2], 6, 2, seq=3)
        assert [one.device for one in await node.read(lambda unit: group_logs.devices(unit, GID, BOB))] == ["b0", "b2"]


async def test_the_furthest_reader_of_each_aid_is_what_a_sender_wants_to_know(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await acked(node, HERE, 4, seq=5)
        await acked(node, Place(GID, BOB, "b2"), 3, seq=9)
        await acked(node, Place(GID, ALICE, "a1"), 2, seq=1)
        assert await node.read(lambda unit: group_logs.furthest(unit, GID)) == {BOB: (9, 4), ALICE: (1, 2)}
        await node.commit(lambda unit: group_logs.drop_cursors(unit, GID, BOB))
        assert await node.read(lambda unit: group_logs.furthest(unit, GID)) == {ALICE: (1, 2)}
