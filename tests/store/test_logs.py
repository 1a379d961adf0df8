"""Numbered logs: what a reader may rely on, and one stateful proof for all of them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from edge.contract.gap import Gap
from edge.contract.store import INCARNATION_SHIFT
from edge.contract.time import Stamp
from edge.store import ledger, migrate
from edge.store.connection import open_writer
from edge.store.logs import TableLog
from edge.store.schema import MIGRATIONS
from edge.store.unit import WriteUnit
from tests.support.clock import FakeClock


class File:
    """One migrated file and units on it, without the threads."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock, self.incarnation = path, FakeClock(), 0
        self.open()

    def open(self) -> None:
        self.conn = open_writer(self.path, synchronous="OFF")
        migrate.inline(self.conn, "node", MIGRATIONS)

    def unit(self, work: Callable[[TableLog], Any], *, commit: bool = True) -> Any:
        self.conn.execute("BEGIN IMMEDIATE")
        unit = WriteUnit(self.conn, self.clock.now(), self.clock, self.incarnation)
        result = work(TableLog(unit, "inbox"))
        if commit:
            self.conn.execute("COMMIT")
        return result

    def drops(self) -> int:
        return sum(drop.count for drop in ledger.drops(WriteUnit(self.conn, Stamp(1, 1), self.clock, 0)))


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    opened = File(tmp_path / "node.db")
    yield opened
    opened.conn.close()


def test_numbers_begin_at_1_and_keys_do_not_disturb_each_other(file: File) -> None:
    assert file.unit(lambda log: (log.head("a"), log.append("a", [b"x", b"y"]), log.append("b", [b"z"]))) == (0, 2, 1)
    assert file.unit(lambda log: (log.head("a"), log.head("b"), log.keys())) == (2, 1, ["a", "b"])


def test_nothing_appended_is_no_number(file: File) -> None:
    file.unit(lambda log: log.append("a", [b"x"]))
    assert file.unit(lambda log: log.append("a", [])) == 1


def test_numbers_can_be_reserved_for_rows_kept_elsewhere(file: File) -> None:
    assert file.unit(lambda log: (log.number("a"), log.number("a", 5), log.append("a", [b"x"]))) == (1, 6, 7)
    with pytest.raises(ValueError, match="at least one"):
        file.unit(lambda log: log.number("a", 0))


def test_a_page_is_bounded_by_rows_and_by_bytes_but_never_empty(file: File) -> None:
    file.unit(lambda log: log.append("a", [b"x" * 10] * 600))
    page = lambda *args: [seq for seq, _ in file.unit(lambda log: log.after("a", *args))]  # noqa: E731
    assert page(0, 3, 1000) == [1, 2, 3]
    assert page(3, 100, 25) == [4, 5]
    assert page(3, 100, 1) == [4]
    assert page(0, 600, 10_000) == list(range(1, 601))
    assert page(600, 10, 100) == []
    assert page(0, 0, 100) == []


def test_a_cursor_never_goes_back_nor_above_the_head(file: File) -> None:
    file.unit(lambda log: log.append("a", [b"x"] * 5))
    assert file.unit(lambda log: (log.cursor("a", "r"), log.ack("a", "r", 3), log.ack("a", "r", 2))) == (0, 3, 3)
    assert file.unit(lambda log: (log.ack("a", "r", 99), log.ack("a", "r", -1), log.cursor("a", "r"))) == (5, 5, 5)
    assert file.unit(lambda log: (log.ack("a", "s", 2), log.lowest_cursor("a"), log.lowest_cursor("b"))) == (2, 2, None)
    assert file.unit(lambda log: log.ack("nobody", "r", 3)) == 0


def test_eviction_keeps_the_newest_bytes_and_declares_the_gap(file: File) -> None:
    file.unit(lambda log: log.append("a", [b"x" * 10] * 1000))
    gap = file.unit(lambda log: log.evict("a", 105, "full"))
    assert (gap.log, gap.key, gap.first, gap.last, gap.count, gap.reason) == ("inbox", "a", 1, 990, 990, "full")
    assert file.unit(lambda log: (log.floor("a"), log.octets("a"), log.head("a"))) == (990, 100, 1000)
    assert file.unit(lambda log: log.after("a", 0, 1, 100)) == [(991, b"x" * 10)]
    assert file.unit(lambda log: log.evict("a", 105, "full")) is None
    assert file.unit(lambda log: log.evict("nobody", 0, "full")) is None
    assert file.drops() == 990


def test_an_evicted_log_does_not_give_its_numbers_out_again(file: File) -> None:
    file.unit(lambda log: log.append("a", [b"x"] * 3))
    file.unit(lambda log: log.evict("a", 0, "full"))
    assert file.unit(lambda log: log.append("a", [b"y"])) == 4


def test_rows_age_out_up_to_the_first_that_is_young_enough(file: File) -> None:
    file.unit(lambda log: log.append("a", [b"1", b"2"]))
    file.clock.advance(100)
    file.unit(lambda log: log.append("a", [b"3"]))
    assert file.unit(lambda log: log.expire("a", Stamp(1, 0), "old")) is None
    gap = file.unit(lambda log: log.expire("a", file.clock.now(), "old"))
    assert (gap.first, gap.last, gap.count) == (1, 2, 2)
    gap = file.unit(lambda log: log.expire("a", Stamp(2, 0), "old"))
    assert (gap.first, gap.last) == (3, 3)


def test_a_row_can_be_taken_out_and_its_number_stays_empty(file: File) -> None:
    file.unit(lambda log: log.append("a", [b"1", b"22", b"3"]))
    assert file.unit(lambda log: log.take_out("a", [2, 2, 9], "unreadable")) == 1
    assert file.unit(lambda log: ([seq for seq, _ in log.after("a", 0, 9, 99)], log.octets("a"))) == ([1, 3], 2)
    assert file.unit(lambda log: (log.head("a"), log.append("a", [b"4"]))) == (3, 4)
    assert file.unit(lambda log: log.take_out("nobody", [1], "unreadable")) == 0
    assert file.drops() == 1


def test_raising_the_floor_is_silent_because_the_owner_has_spoken(file: File) -> None:
    file.unit(lambda log: log.append("a", [b"x"] * 5))
    file.unit(lambda log: (log.raise_floor("a", 3), log.raise_floor("a", 2), log.raise_floor("nobody", 2)))
    assert file.unit(lambda log: (log.floor("a"), [seq for seq, _ in log.after("a", 0, 9, 99)])) == (3, [4, 5])
    assert file.unit(lambda log: (log.raise_floor("a", 99), log.floor("a"))) == (None, 5)
    assert file.drops() == 0


class LogMachine(RuleBasedStateMachine):
    """Any order of appends, reads, acks, evictions, kills, losses of the file's end with a new incarnation."""

    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="log-machine-"))
        self.file = File(self.folder / "node.db")
        self.given: dict[str, int] = {}
        self.rows: dict[str, dict[int, bytes]] = {}
        self.floor: dict[str, int] = {}
        self.cursor: dict[str, int] = {}
        self.lost = 0
        self.saved: tuple[Any, ...] | None = None

    def teardown(self) -> None:
        self.file.conn.close()
        shutil.rmtree(self.folder)

    @initialize()
    def begin(self) -> None:
        self.save()

    @rule(target=keys, key=st.sampled_from("abc"))
    def key(self, key: str) -> str:
        return key

    @rule(key=keys, bodies=st.lists(st.binary(max_size=40), max_size=6))
    def append(self, key: str, bodies: list[bytes]) -> None:
        last = self.file.unit(lambda log: log.append(key, bodies))
        if bodies:
            self._given(key, last - len(bodies) + 1, last)
            self.rows.setdefault(key, {}).update(enumerate(bodies, last - len(bodies) + 1))

    @rule(key=keys, count=st.integers(1, 5))
    def number(self, key: str, count: int) -> None:
        last = self.file.unit(lambda log: log.number(key, count))
        self._given(key, last - count + 1, last)

    def _given(self, key: str, first: int, last: int) -> None:
        assert first > self.given.get(key, 0)
        assert first >> INCARNATION_SHIFT == last >> INCARNATION_SHIFT == self.file.incarnation
        assert last < 1 << 53
        self.given[key] = last

    @rule(key=keys, seq=st.integers(0, 60), rows=st.integers(1, 9), octets=st.integers(1, 200))
    def after(self, key: str, seq: int, rows: int, octets: int) -> None:
        page = self.file.unit(lambda log: log.after(key, seq, rows, octets))
        expected = [(n, body) for n, body in sorted(self.rows.get(key, {}).items()) if n > seq][:rows]
        assert page == expected[: len(page)]
        if len(page) < len(expected):
            assert sum(len(body) for _, body in expected[: len(page) + 1]) > octets
        assert bool(page) == bool(expected)

    @rule(key=keys, seq=st.integers(-5, 2**41))
    def ack(self, key: str, seq: int) -> None:
        now, head = self.file.unit(lambda log: (log.ack(key, "r", seq), log.head(key)))
        self.cursor[key] = max(self.cursor.get(key, 0), min(max(seq, 0), head))
        assert now == self.cursor[key]

    @rule(key=keys, keep=st.integers(0, 120))
    def evict(self, key: str, keep: int) -> None:
        self._drop(key, self.file.unit(lambda log: log.evict(key, keep, "full")))
        assert sum(map(len, self.rows.get(key, {}).values())) <= keep

    @rule(key=keys, ago=st.integers(0, 50))
    def expire(self, key: str, ago: int) -> None:
        before = Stamp(1, self.file.clock.mono_us - ago)
        self._drop(key, self.file.unit(lambda log: log.expire(key, before, "old")))

    def _drop(self, key: str, gap: Gap | None) -> None:
        if gap is None:
            return
        gone = [n for n in self.rows[key] if n <= gap.last]
        assert (gap.first, gap.count) == (min(gone), len(gone))
        for n in gone:
            del self.rows[key][n]
        self.floor[key] = gap.last
        self.lost += gap.count

    @rule(key=keys, seqs=st.lists(st.integers(0, 60), max_size=3))
    def take_out(self, key: str, seqs: list[int]) -> None:
        gone = {n for n in seqs if n in self.rows.get(key, {})}
        assert self.file.unit(lambda log: log.take_out(key, seqs, "unreadable")) == len(gone)
        for n in gone:
            del self.rows[key][n]
        self.lost += len(gone)

    @rule(key=keys, seq=st.integers(0, 60))
    def raise_floor(self, key: str, seq: int) -> None:
        head = self.file.unit(lambda log: (log.raise_floor(key, seq), log.head(key)))[1]
        self.floor[key] = max(self.floor.get(key, 0), min(seq, head))
        self.rows[key] = {n: body for n, body in self.rows.get(key, {}).items() if n > self.floor[key]}

    @rule(us=st.integers(1, 30))
    def wait(self, us: int) -> None:
        self.file.clock.advance(us)

    @rule(key=keys)
    def kill(self, key: str) -> None:
        """Whatever was not committed never was."""
        self.file.unit(lambda log: log.append(key, [b"never"]), commit=False)
        self.file.conn.close()
        self.file.open()

    @rule()
    def save(self) -> None:
        """Remember the file as it is, for a restore."""
        self.file.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        rows = {key: dict(rows) for key, rows in self.rows.items()}
        content = self.file.path.read_bytes()
        self.saved = (content, rows, dict(self.floor), dict(self.cursor), self.lost)

    @rule()
    def restore(self) -> None:
        """The file goes back; numbers do not, because the incarnation goes up."""
        assert self.saved is not None
        self.file.conn.close()
        content, rows, self.floor, self.cursor, self.lost = self.saved
        self.floor, self.cursor = dict(self.floor), dict(self.cursor)
        self.rows = {key: dict(kept) for key, kept in rows.items()}
        for part in ("-wal", "-shm"):
            Path(f"{self.file.path}{part}").unlink(missing_ok=True)
        self.file.path.write_bytes(content)
        self.file.incarnation += 1
        self.file.open()

    @invariant()
    def honest(self) -> None:
        for key, rows in self.rows.items():
            floor, octets, head = self.file.unit(lambda log, key=key: (log.floor(key), log.octets(key), log.head(key)))
            assert floor == self.floor.get(key, 0)
            assert octets == sum(map(len, rows.values()))
            assert head <= self.given.get(key, 0)
        assert self.file.drops() == self.lost


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
