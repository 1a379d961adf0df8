from __future__ import annotations

from pathlib import Path

from edge.store import alarms
from tests.support.store import database


async def test_the_value_told_last_is_kept_by_capability_until_it_is_forgotten(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        assert await node.read(alarms.told) == {}
        await node.commit(lambda unit: alarms.tell(unit, [(1, b"true"), (2, b'"armed"')]))
        await node.commit(lambda unit: alarms.tell(unit, [(1, b"false")]))
    async with database(tmp_path) as node:
        assert await node.read(alarms.told) == {1: b"false", 2: b'"armed"'}
        await node.commit(lambda unit: alarms.forget(unit, {1, 7}))
        assert await node.read(alarms.told) == {2: b'"armed"'}
