"""What waits for a foreign broker is kept in order, binary and all, and forgotten when told."""

from __future__ import annotations

from pathlib import Path

from edge.contract.time import Stamp
from edge.store import spool
from edge.store.spool import Spooled
from tests.support.store import database


def one(number: int, payload: bytes = b"\x00\xff", *, retain: bool = False) -> Spooled:
    return Spooled(number, "t/ü", payload, retain, Stamp(1, number))


async def test_messages_come_back_in_order_as_they_were(tmp_path: Path) -> None:
    kept = [one(3), one(1, retain=True), one(2, b"")]
    async with database(tmp_path, "hot") as db:
        await db.commit(lambda unit: [spool.put(unit, each) for each in kept])
    async with database(tmp_path, "hot") as db:
        assert await db.read(spool.load) == sorted(kept, key=lambda each: each.number)


async def test_what_the_broker_has_is_forgotten(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as db:
        await db.commit(lambda unit: [spool.put(unit, one(number)) for number in range(5)])
        await db.commit(lambda unit: spool.take(unit, [1, 3, 99]))
        assert [each.number for each in await db.read(spool.load)] == [0, 2, 4]
    assert one(1).octets == len("t/ü") + 2
