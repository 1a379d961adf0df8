"""Units of work and logs: ack-after-commit and event-after-commit are properties of the mechanism (D5, D6, D18)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from edge.contract.event import Event
from edge.contract.gap import Gap
from edge.contract.time import Stamp

T = TypeVar("T")

INCARNATION_SHIFT = 40
"""A number is `incarnation << 40 | counter`; both fit 2^53 (design D18)."""


class Log(Protocol):
    """One append-only numbered sequence per (log, key), seen inside one unit."""

    def head(self, key: str) -> int:
        """The last number given out for `key` (0: none yet)."""
        ...

    def floor(self, key: str) -> int:
        """Rows up to and including this number are gone."""
        ...

    def append(self, key: str, rows: Sequence[bytes]) -> int:
        """Add rows; the number of the last one. The first is that minus `len(rows) - 1`."""
        ...

    def number(self, key: str, count: int = 1) -> int:
        """Reserve `count` numbers for rows kept in a table of their own; the last of them."""
        ...

    def after(self, key: str, seq: int, rows: int, octets: int) -> list[tuple[int, bytes]]:
        """Rows above `seq`, ascending: at most `rows`, and at most `octets` of body (but one row if there is any)."""
        ...

    def ack(self, key: str, reader: str, seq: int) -> int:
        """Move a reader's cursor forward; never back, never above the head. Where it stands now."""
        ...

    def cursor(self, key: str, reader: str) -> int:
        """Where a reader stands (0: nowhere yet)."""
        ...

    def raise_floor(self, key: str, seq: int) -> None:
        """Say that rows up to `seq` are gone (the owner has removed them and declared the gap)."""
        ...

    def evict(self, key: str, keep_octets: int, reason: str) -> Gap | None:
        """Drop the oldest rows until `keep_octets` remain; the gap is declared in the same unit."""
        ...

    def expire(self, key: str, before: Stamp, reason: str) -> Gap | None:
        """Drop the oldest rows as far as they are older than `before`; the gap is declared in the same unit."""
        ...

    def take_out(self, key: str, seqs: Sequence[int], reason: str) -> int:
        """Drop single rows, each declared in the same unit; their numbers stay empty. How many there were."""
        ...

    def octets(self, key: str) -> int:
        """Bytes of the bodies that are kept."""
        ...

    def keys(self) -> list[str]:
        """Every key that ever had a number."""
        ...

    def lowest_cursor(self, key: str) -> int | None:
        """Where the slowest reader stands; None without readers."""
        ...


class Unit(Protocol):
    """One unit of work in one file: a savepoint of the commit now gathering. Runs on the writer thread.

    What it does is on disk before its callback runs and before its events go out; if it raises, none of it happened.
    """

    @property
    def at(self) -> Stamp:
        """When the unit was handed over."""
        ...

    @property
    def wall_us(self) -> int:
        """µs since 1970 UTC then."""
        ...

    def run(self, sql: str, args: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Run one statement; its rows."""
        ...

    def log(self, name: str) -> Log:
        """A log of this file by name."""
        ...

    def append(self, log: str, key: str, rows: Sequence[bytes]) -> int:
        """`self.log(log).append(key, rows)`."""
        ...

    def emit(self, event: Event) -> None:
        """Publish an event once this unit is on disk."""
        ...

    def after(self, call: Callable[[], None]) -> None:
        """Call in the loop once this unit is on disk; never if it is not. Before the unit's own callback."""
        ...

    def once(self, surface: str, who: str, key: str) -> tuple[bytes, bytes] | None:
        """(digest of what was asked, the answer given) for this caller's key, if it is still kept (design D23)."""
        ...

    def keep(self, surface: str, who: str, key: str, digest: bytes, answer: bytes, until_us: int) -> None:
        """Remember the answer to a key until wall time `until_us`."""
        ...

    def lose(self, gap: Gap) -> None:
        """Write the loss ledger."""
        ...


class Store(Protocol):
    """One database file with its own single writer thread."""

    @property
    def incarnation(self) -> int:
        """The upper part of every number given out now."""
        ...

    @property
    def read_only(self) -> bool:
        """True after the medium failed or filled: reads go on, writes fail with `StorageFull`."""
        ...

    def write(
        self, work: Callable[[Unit], T], done: Callable[[T | BaseException], None], *, urgent: bool = False
    ) -> None:
        """Queue a unit for the next commit; `done` gets its result, in the loop, once it is on disk, or its error.

        `urgent`: an alarm, which a full disk takes too as long as there is a reserve.
        """
        ...

    async def commit(self, work: Callable[[Unit], T]) -> T:
        """`write`, awaited. Raises what the unit raised, or `StorageFull`."""
        ...

    def bulk(
        self,
        sql: str,
        rows: Sequence[tuple[object, ...]],
        done: Callable[[BaseException | None], None],
        *,
        lazy: bool = False,
        urgent: bool = False,
    ) -> None:
        """Queue hot rows: all rows of one statement in a commit go down together, in order.

        Between two units, statements run in the order in which each was first queued, so statements that must not
        pass each other belong into a unit. `lazy`: no ack waits for the rows, so they go with the next commit or
        after the wear window, whichever is first. `urgent`: as `write`.
        """
        ...

    async def read(self, work: Callable[[Unit], T]) -> T:
        """Run a read-only unit on a reader thread.

        Rows that it cannot read are declared lost, and it runs again.
        """
        ...

    def shown(self, seq: int, head: int, who: str) -> None:
        """An authenticated reader knows number `seq` of a log of this file, whose head it is told is `head` (D18).

        If `seq` is above it and that is believed, numbers were given out that the file has forgotten: this is
        declared, and every unit that is queued from now on gives numbers of a new incarnation, above `seq`.
        """
        ...
