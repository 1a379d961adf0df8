"""Learning the time re-dates everything by one row; the floor and the numbers of boots come from the table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from edge.contract.time import SECOND, Stamp
from edge.store.boot import Boots
from edge.store.database import Database
from edge.store.marks import Marks
from edge.system.clock import SystemClock
from edge.system.walltime import BUILD_US, UNSURE_US, YEAR, Reading
from tests.support.store import database

NOW = BUILD_US + YEAR // 2


class Wall:
    """What the system's clock says, in the test's hands."""

    def __init__(self, wall_us: int, *, synchronised: bool) -> None:
        self.reading = Reading(wall_us, 5_000, synchronised)

    def __call__(self) -> Reading:
        return self.reading


@asynccontextmanager
async def boot(folder: Path, boot_id: str, wall: Wall) -> AsyncIterator[tuple[Database, SystemClock, Boots]]:
    marks = Marks.load(folder / "incarnation")
    clock = SystemClock(marks.begin_boot(boot_id), read=wall)
    async with database(folder, clock=clock, marks=marks) as db:
        boots = Boots(db, clock, marks)
        await boots.start()
        yield db, clock, boots
        boots.stop()


async def test_a_stamp_of_an_earlier_boot_keeps_its_wall_time(tmp_path: Path) -> None:
    async with boot(tmp_path, "a", Wall(NOW, synchronised=True)) as (_, clock, _):
        stamp = clock.now()
        told = clock.wall(stamp)
    async with boot(tmp_path, "b", Wall(0, synchronised=False)) as (_, clock, _):
        assert clock.boot == stamp.boot + 1
        assert clock.wall(stamp) == told
        assert clock.wall(Stamp(77, 5))[1] == UNSURE_US


async def test_the_last_sure_time_is_the_floor_of_an_unsure_boot(tmp_path: Path) -> None:
    async with boot(tmp_path, "a", Wall(NOW, synchronised=True)):
        pass
    async with boot(tmp_path, "b", Wall(0, synchronised=False)) as (_, clock, _):
        assert not clock.sure
        assert NOW <= clock.floor_us <= NOW + 10 * SECOND
        assert clock.wall(clock.now())[0] >= clock.floor_us


async def test_an_unsure_time_never_raises_the_floor(tmp_path: Path) -> None:
    async with boot(tmp_path, "a", Wall(NOW, synchronised=False)):
        pass
    async with boot(tmp_path, "b", Wall(0, synchronised=False)) as (_, clock, _):
        assert clock.floor_us == BUILD_US


async def test_learning_the_time_later_re_dates_what_was_stamped_before_also_after_a_restart(tmp_path: Path) -> None:
    wall = Wall(0, synchronised=False)
    async with boot(tmp_path, "a", wall) as (db, clock, boots):
        stamp = clock.now()
        wall.reading = Reading(NOW, 5_000, True)
        boots._look()
        await db.ping()
        assert clock.sure
        assert abs(clock.wall(stamp)[0] - NOW) < 10 * SECOND
    async with boot(tmp_path, "a", Wall(0, synchronised=False)) as (_, clock, _):
        assert clock.sure
        assert clock.boot == stamp.boot
    async with boot(tmp_path, "b", Wall(0, synchronised=False)) as (_, clock, _):
        assert abs(clock.wall(stamp)[0] - NOW) < 10 * SECOND


async def test_a_lost_incarnation_file_does_not_give_a_boot_number_out_twice(tmp_path: Path) -> None:
    for boot_id in "abc":
        async with boot(tmp_path, boot_id, Wall(NOW, synchronised=True)) as (_, clock, _):
            last = clock.boot
    (tmp_path / "incarnation").unlink()
    async with boot(tmp_path, "d", Wall(NOW, synchronised=True)) as (_, clock, _):
        assert clock.boot == last + 1
    assert Marks.load(tmp_path / "incarnation").boot == last + 1
