from __future__ import annotations

import os
from pathlib import Path

import pytest

from edge.contract.event import Event
from edge.contract.time import Stamp
from edge.store import ledger, readings
from edge.store.connection import FRAME
from edge.store.database import Database
from edge.store.readings import OVERHEAD, UNKNOWN_TIME, Readings
from tests.support.store import database


async def put(store: Readings, *rows: tuple[int, bytes], restated: bool = False) -> range:
    """Commit (capability, value) rows; their numbers. The moment is the number."""
    import asyncio

    future: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    start = store.numbers.head + 1
    stamped = [(cap, Stamp(1, start + at), None, value) for at, (cap, value) in enumerate(rows)]
    numbers = store.add(stamped, future.set_result, restated=restated)
    assert await future is None
    return numbers


async def opened(hot: Database) -> Readings:
    store = Readings(hot)
    await store.open()
    return store


async def test_readings_come_back_by_capability_in_order(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as hot:
        store = await opened(hot)
        assert await put(store, (7, b"1"), (8, b"2"), (7, b"3")) == range(1, 4)
        found, onward, more = await store.since(7, 0, 10)
        assert [(one.seq, one.value, one.at) for one in found] == [(1, b"1", Stamp(1, 1)), (3, b"3", Stamp(1, 3))]
        assert (onward, more) == (3, False)
        assert await store.since(7, 3, 10) == ([], 3, False)
        found, onward, more = await store.since(7, 0, 1)
        assert ([one.seq for one in found], onward, more) == ([1], 1, True)
        assert await store.since(9, 0, 10) == ([], 3, False)


async def test_an_empty_log_has_nothing(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as hot:
        store = await opened(hot)
        assert await store.since(7, 0, 10) == ([], 0, False)
        assert await store.newest([7], 10) == {}
        assert await store.newest([], 10) == {}
        assert await store.dated(0) is None
        assert await store.measure() == 0


async def test_one_question_walks_a_bounded_window_and_says_where_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "WINDOW", 10)
    async with database(tmp_path, "hot") as hot:
        store = await opened(hot)
        await put(store, *[(1, b"0")] * 25, (2, b"9"))
        at, seen, questions = 0, [], 0
        more = True
        while more:
            found, at, more = await store.since(2, at, 5)
            seen += found
            questions += 1
        assert ([one.seq for one in seen], questions) == ([26], 3)


async def test_numbers_go_on_after_a_restart_and_above_a_higher_incarnation(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as hot:
        await put(await opened(hot), (1, b"1"), (1, b"2"))
    async with database(tmp_path, "hot") as hot:
        assert await put(await opened(hot), (1, b"3")) == range(3, 4)
    async with database(tmp_path, "hot", incarnation=1) as hot:
        store = await opened(hot)
        (number,) = await put(store, (1, b"4"))
        assert number == (1 << 40) + 1
        found, _, more = await store.since(1, 0, 10)
        assert ([one.value for one in found], more) == ([b"1", b"2", b"3", b"4"], False)


async def test_the_newest_of_each_capability_is_found_from_the_end(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as hot:
        store = await opened(hot)
        await put(store, (1, b"1"), (2, b"2"), (1, b"3"), (3, b"4"))
        found = await store.newest([1, 2, 3, 4], 100)
        assert {cap: one.value for cap, one in found.items()} == {1: b"3", 2: b"2", 3: b"4"}
        assert set(await store.newest([1, 2], 2)) == {1}
        await put(store, *[(1, b"x")] * 5000)
        assert (await store.newest([2], 10_000))[2].value == b"2"


async def test_what_is_restated_is_the_newest_and_no_history(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as hot:
        store = await opened(hot)
        await put(store, (1, b"1"), (2, b"2"))
        await put(store, (1, b"1"), restated=True)
        assert (await store.newest([1], 1))[1].seq == 3
        found, _, _ = await store.since(1, 0, 10)
        assert [one.seq for one in found] == [1]
        assert await store.dated(1) == (2, Stamp(1, 2))
        assert await store.dated(2) is None, "the third row is no moment of its own"


async def test_a_stated_time_is_kept(tmp_path: Path) -> None:
    import asyncio

    async with database(tmp_path, "hot") as hot:
        store = await opened(hot)
        done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        rows = [(1, Stamp(1, 1), UNKNOWN_TIME, b"1"), (1, Stamp(1, 1), 5, b"2"), (1, Stamp(1, 1), None, b"3")]
        store.add(rows, done.set_result)
        assert await done is None
        assert [one.stated_us for one in (await store.since(1, 0, 9))[0]] == [0, 5, None]


async def test_ageing_out_is_no_loss_and_eviction_is(tmp_path: Path) -> None:
    events: list[Event] = []
    async with database(tmp_path, "hot", fanout=events.append) as hot:
        store = await opened(hot)
        await put(store, *[(1, b"12345")] * 10)
        assert await store.measure() == 10 * (OVERHEAD + 5)
        sweep = await store.drop(4, "")
        assert (sweep.first, sweep.rows, sweep.octets) == (1, 4, 4 * (OVERHEAD + 5))
        assert await hot.read(ledger.drops) == []
        await store.drop(6, "evicted")
        assert [(drop.log, drop.reason, drop.count) for drop in await hot.read(ledger.drops)] == [
            ("reading", "evicted", 2)
        ]
        (gap,) = await hot.read(lambda unit: ledger.gaps(unit, "reading", ""))
        assert (gap.first, gap.last, gap.count) == (5, 6, 2)
        assert store.octets == 4 * (OVERHEAD + 5)
        assert (await store.drop(6, "evicted")).rows == 0
        await put(store, (1, b"6"))
        assert store.octets == 4 * (OVERHEAD + 5) + OVERHEAD + 1
        await store.drop(11, "")
        assert await put(store, (1, b"7")) == range(12, 13)
    async with database(tmp_path, "hot") as hot:
        store = await opened(hot)
        await store.drop(12, "")
        assert await put(store, (1, b"8")) == range(13, 14)


async def test_numbers_do_not_go_back_when_every_row_is_gone(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as hot:
        store = await opened(hot)
        await put(store, (1, b"1"))
        await store.drop(1, "")
    async with database(tmp_path, "hot") as hot:
        assert await put(await opened(hot), (1, b"2")) == range(2, 3)


async def test_a_reading_that_comes_alone_writes_one_page(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as hot:
        store = await opened(hot)
        value = b"x" * 200
        await put(store, (1, value))
        wal = Path(f"{hot.path}-wal")
        sizes = []
        for _ in range(40):
            before = os.path.getsize(wal)
            await put(store, (1, value))
            sizes.append((os.path.getsize(wal) - before) // FRAME)
        assert sorted(sizes)[len(sizes) // 2] == 1
        assert sum(sizes) / len(sizes) < 1.3, "a page is split every fifteenth time"
