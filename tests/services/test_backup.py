from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import Conflict, Unavailable
from edge.contract.op import Call, Empty
from edge.contract.principal import Kind, Principal
from edge.services.backup import BackupService, Step
from edge.store.snapshot import Progress
from tests.support.clock import FakeClock
from tests.support.store import database

OWNER = Principal(Kind.OPERATOR, "", frozenset({"*"}), via="control")


class Spawned:
    """The node's TaskGroup, as far as one service is concerned."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def __call__(self, work: Any) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))


class Broken:
    """A database whose copy fails."""

    async def snapshot(self, to: Path, progress: Progress) -> None:
        raise OSError("the medium failed")


async def ask(service: BackupService) -> AsyncIterator[Step]:
    return await service.create(Call(who=OWNER, op="backup.create", params=Empty()))


async def through(steps: AsyncIterator[Step]) -> list[Step]:
    """Every step up to the folder."""
    found: list[Step] = []
    async for step in steps:
        found.append(step)
        if step.folder:
            return found
    raise AssertionError("no folder")


async def test_the_copy_is_there_until_the_caller_hangs_up(tmp_path: Path) -> None:
    (tmp_path / "ports.json").write_text("{}")
    async with database(tmp_path) as node:
        await node.commit(lambda u: u.append("inbox", "a", [b"x" * 3000] * 500))
        service = BackupService({"node": node}, tmp_path, FakeClock(), Spawned())
        steps = await ask(service)
        *told, last = await through(steps)
        assert {step.name for step in told} == {"store/node.db"}
        assert told[-1].done == told[-1].total > 1_000_000
        assert (Path(last.folder) / "store" / "node.db").stat().st_size == told[-1].total
        assert (Path(last.folder) / "ports.json").read_text() == "{}"
        assert last.made_us > 0
        await steps.aclose()  # type: ignore[attr-defined]
        assert not Path(last.folder).exists()


async def test_one_copy_at_a_time(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        service = BackupService({"node": node}, tmp_path, FakeClock(), Spawned())
        first = await ask(service)
        await through(first)
        with pytest.raises(Conflict):
            await anext(await ask(service))
        await first.aclose()  # type: ignore[attr-defined]
        again = await ask(service)
        await through(again)
        await again.aclose()  # type: ignore[attr-defined]


async def test_a_caller_that_leaves_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda u: u.append("inbox", "a", [b"x" * 3000] * 2000))
        service = BackupService({"node": node, "again": node}, tmp_path, FakeClock(), Spawned())
        steps = await ask(service)
        assert (await anext(steps)).name == "store/node.db"
        await steps.aclose()  # type: ignore[attr-defined]
        assert list((tmp_path / "run").iterdir()) == []
        assert await node.commit(lambda u: u.append("inbox", "b", [b"y"])) == 1


async def test_what_an_earlier_process_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / "run" / "backup" / "store").mkdir(parents=True)
    (tmp_path / "run" / "backup" / "store" / "node.db").write_text("old")
    async with database(tmp_path) as node:
        service = BackupService({"node": node}, tmp_path, FakeClock(), Spawned())
        steps = await ask(service)
        await through(steps)
        await steps.aclose()  # type: ignore[attr-defined]


async def test_a_copy_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    service = BackupService({"node": Broken()}, tmp_path, FakeClock(), Spawned())
    with pytest.raises(Unavailable, match="the medium failed"):
        await anext(await ask(service))
    assert list((tmp_path / "run").iterdir()) == []
