"""Readings (hot.db): one row for every value that is kept, one page written for every row that comes alone.

There is no index and no table of latest values (design D5, D6). The number is the key; a capability's readings are
found by walking, some 10 million rows a second. So that the latest value of everything lies near the end, a
capability that has been silent is *restated* from time to time: its latest value is written again with its old time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Rows
from functools import partial
from typing import cast

import msgspec

from edge.contract.store import Store, Unit
from edge.contract.time import Stamp
from edge.store.migration import statements
from edge.store.numbers import Sequence

LOG = "reading"
HIGHEST = "SELECT max(seq) FROM reading"
WINDOW = 250_000
"""How many rows one question walks at most; the answer says where to go on."""

MIGRATIONS = [
    statements(
        "hot",
        "readings-001",
        """CREATE TABLE reading (seq INTEGER PRIMARY KEY, cap INTEGER NOT NULL, boot INTEGER NOT NULL,
            mono_us INTEGER NOT NULL, stated_us INTEGER, restated INTEGER, value BLOB NOT NULL) STRICT""",
    )
]

_INSERT = "INSERT INTO reading (seq, cap, boot, mono_us, stated_us, restated, value) VALUES (?, ?, ?, ?, ?, ?, ?)"
_COLUMNS = "seq, cap, boot, mono_us, stated_us, value"
_SINCE = (
    f"SELECT {_COLUMNS} FROM reading WHERE seq > ? AND seq <= ? AND cap = ? AND restated IS NULL ORDER BY seq LIMIT ?"  # noqa: S608
)
_NEWEST = f"SELECT {_COLUMNS} FROM reading WHERE seq <= ? ORDER BY seq DESC LIMIT ?"  # noqa: S608
_EDGE = "SELECT seq FROM reading WHERE seq > ? ORDER BY seq LIMIT 1 OFFSET ?"
_SIZE = "SELECT count(*), coalesce(sum(length(value)), 0), max(seq) FROM (SELECT seq, value FROM reading WHERE seq > ? ORDER BY seq LIMIT ?)"  # noqa: E501
_DATED = "SELECT seq, boot, mono_us FROM reading WHERE seq >= ? AND restated IS NULL ORDER BY seq LIMIT 1"
_NTH = "SELECT seq FROM reading ORDER BY seq LIMIT 1 OFFSET ?"
_DROP = "DELETE FROM reading WHERE seq <= ?"

OVERHEAD = 24
"""Bytes of a row beside its value, for the byte budget."""

UNKNOWN_TIME = 0
"""`stated_us` of a retained state: last known, nobody says since when (spec/device-conventions.md §0 rule 5)."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One value. `value` is JSON. stated_us: µs UTC said by the device, `UNKNOWN_TIME`, or None: it is `at`."""

    seq: int
    cap: int
    at: Stamp
    value: bytes
    stated_us: int | None = None


class Sweep(msgspec.Struct, frozen=True):
    """What a removal took away."""

    first: int
    last: int
    rows: int
    octets: int


class Readings:
    """The table, its numbers and its size. Numbers are taken in the loop; `rows` and `octets` follow the commits."""

    def __init__(self, hot: Store) -> None:
        self._hot = hot
        self.numbers = Sequence(LOG, "", HIGHEST)
        self.octets: int | None = None
        """Estimated bytes of all rows; None until `measure` has walked them."""

    async def open(self) -> None:
        """Find where numbers go on. Before the first `add`."""
        await self.numbers.open(self._hot)

    def add(
        self,
        rows: Rows[tuple[int, Stamp, int | None, bytes]],
        done: Callable[[BaseException | None], None],
        *,
        restated: bool = False,
        lazy: bool = False,
        urgent: bool = False,
    ) -> range:
        """Queue (capability, at, stated_us, JSON value) for the next commit; their numbers.

        `done` runs in the loop when they are on disk. `lazy`: nobody waits, they may stay for the wear window.
        `urgent`: among them is an alarm, which a full disk takes too as long as there is a reserve.
        """
        seqs = self.numbers.take(len(rows))
        mark = 1 if restated else None
        self._hot.bulk(
            _INSERT,
            [
                (seq, cap, at.boot, at.mono_us, stated_us, mark, value)
                for seq, (cap, at, stated_us, value) in zip(seqs, rows, strict=True)
            ],
            done,
            lazy=lazy,
            urgent=urgent,
        )
        if self.octets is not None:
            self.octets += OVERHEAD * len(rows) + sum([len(value) for _, _, _, value in rows])
        return seqs

    def hurry(self) -> None:
        """Let what was added lazily go with a commit now: somebody waits for it after all."""
        self._hot.bulk(_INSERT, [], lambda error: None)

    async def since(self, cap: int, seq: int, rows: int, who: str = "") -> tuple[list[Reading], int, bool]:
        """(readings of a capability after `seq`, oldest first; where to go on; whether there may be more).

        At most `rows` of them, and at most `WINDOW` rows are walked. `who`, if authenticated, knows of `seq`.
        """
        if who:
            self._hot.shown(seq, self.numbers.head, who)
        return await self._hot.read(lambda unit: _since(unit, cap, seq, rows))

    async def newest(self, wanted: Iterable[int], rows: int) -> dict[int, Reading]:
        """The newest reading of each wanted capability among the last `rows` rows; stops when all are found."""
        missing, found = set(wanted), dict[int, Reading]()
        at, step = 1 << 62, 2_000
        while rows > 0 and missing:
            page = await self._hot.read(partial(_newest, missing=frozenset(missing), at=at, rows=min(step, rows)))
            found |= page.found
            missing -= page.found.keys()
            if page.end is None:
                break
            rows -= step
            at, step = page.end, 20_000
        return found

    async def measure(self) -> int:
        """Walk the table once, in steps, to know its size; kept up to date from then on."""
        if self.octets is None:
            total, at = 0, 0
            while True:
                rows, octets, last = await self._hot.read(lambda unit, at=at: unit.run(_SIZE, (at, 50_000))[0])  # type: ignore[misc]
                if not rows:
                    break
                total, at = total + cast(int, octets) + OVERHEAD * cast(int, rows), cast(int, last)
            self.octets = total
        return self.octets

    async def dated(self, rows: int) -> tuple[int, Stamp] | None:
        """(number, time) of a reading `rows` above the oldest; None when there are not so many."""
        return await self._hot.read(lambda unit: _dated(unit, rows))

    async def drop(self, last: int, reason: str) -> Sweep:
        """Remove rows up to `last`. `reason` "" is the stated policy of age; anything else is declared as a gap."""
        sweep = await self._hot.commit(lambda unit: self._drop(unit, last, reason))
        if self.octets is not None:
            self.octets -= sweep.octets
        return sweep

    def _drop(self, unit: Unit, last: int, reason: str) -> Sweep:
        [(count, octets, first)] = unit.run(
            "SELECT count(*), coalesce(sum(length(value)), 0), coalesce(min(seq), 0) FROM reading WHERE seq <= ?",
            (last,),
        )
        sweep = Sweep(cast(int, first), last, cast(int, count), cast(int, octets) + OVERHEAD * cast(int, count))
        if not sweep.rows:
            return sweep
        unit.run(_DROP, (last,))
        if reason:
            self.numbers.removed(unit, sweep.first, last, sweep.rows, reason)
        else:
            self.numbers.aged(unit, last)
        return sweep


def _since(unit: Unit, cap: int, seq: int, rows: int) -> tuple[list[Reading], int, bool]:
    highest = cast("int | None", unit.run(HIGHEST)[0][0])
    if highest is None or seq >= highest:
        return [], seq, False
    edge = unit.run(_EDGE, (seq, WINDOW - 1))
    end = cast(int, edge[0][0]) if edge else highest
    found = [_reading(row) for row in unit.run(_SINCE, (seq, end, cap, rows))]
    if len(found) == rows:
        end = found[-1].seq
    return found, end, end < highest


class _Newest(msgspec.Struct):
    """What one read found going down; `end` is the next row below, None at the last."""

    found: dict[int, Reading]
    end: int | None


def _newest(unit: Unit, missing: frozenset[int], at: int, rows: int) -> _Newest:
    found: dict[int, Reading] = {}
    page = unit.run(_NEWEST, (at, rows))
    for row in page:
        if row[1] in missing and row[1] not in found:
            reading = _reading(row)
            found[reading.cap] = reading
            if len(found) == len(missing):
                break
    return _Newest(found, cast(int, page[-1][0]) - 1 if len(page) == rows else None)


def _dated(unit: Unit, rows: int) -> tuple[int, Stamp] | None:
    nth = unit.run(_NTH, (rows,))
    found = unit.run(_DATED, nth[0]) if nth else []
    if not found:
        return None
    seq, boot, mono_us = cast("tuple[int, int, int]", found[0])
    return seq, Stamp(boot, mono_us)


def _reading(row: tuple[object, ...]) -> Reading:
    seq, cap, boot, mono_us, stated_us, value = row
    return Reading(
        seq=cast(int, seq),
        cap=cast(int, cap),
        at=Stamp(cast(int, boot), cast(int, mono_us)),
        stated_us=cast("int | None", stated_us),
        value=cast(bytes, value),
    )
