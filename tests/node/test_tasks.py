from __future__ import annotations

import asyncio
import inspect
import logging

import pytest

from edge.node.tasks import Tasks


async def test_a_task_that_fails_is_logged_and_counted_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()

    async def broken() -> None:
        raise RuntimeError("no")

    async def well() -> None:
        done.set()

    with caplog.at_level(logging.ERROR):
        async with asyncio.TaskGroup() as group:
            tasks = Tasks(group)
            tasks.spawn(broken())
            tasks.spawn(well())
    assert done.is_set()
    assert (tasks.failed, len(tasks)) == (1, 0)
    assert "a background task failed" in caplog.text


async def test_what_still_runs_can_be_ended() -> None:
    async with asyncio.TaskGroup() as group:
        tasks = Tasks(group)
        tasks.spawn(asyncio.Event().wait())  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert len(tasks) == 1
        tasks.cancel()
    assert len(tasks) == 0


@pytest.mark.parametrize("cancelled_before", [True, False])
async def test_work_that_never_begins_is_not_left_behind(cancelled_before: bool) -> None:
    begun = []

    async def work() -> None:
        begun.append(1)

    coroutine = work()
    async with asyncio.TaskGroup() as group:
        tasks = Tasks(group)
        if cancelled_before:
            tasks.cancel()
        tasks.spawn(coroutine)
        tasks.cancel()
    assert begun == []
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    assert len(tasks) == 0
