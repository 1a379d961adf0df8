"""The node's one TaskGroup, and what may run in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Tasks:
    """Starts coroutines in the node's TaskGroup. What one raises is logged and counted; the others go on."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._running: set[asyncio.Task[None]] = set()
        self._ended = False
        self.failed = 0

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """`contract.op.Spawn`. After `cancel` nothing starts any more."""
        if self._ended:
            work.close()
            return
        task = self._group.create_task(self._guarded(work))
        self._running.add(task)
        task.add_done_callback(lambda task: self._over(task, work))

    def _over(self, task: asyncio.Task[None], work: Coroutine[Any, Any, None]) -> None:
        self._running.discard(task)
        work.close()  # a task that is cancelled before its first step has not begun its work

    def cancel(self) -> None:
        """End what still runs: the node is leaving and has waited long enough."""
        self._ended = True
        for task in list(self._running):
            task.cancel()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            self.failed += 1
            log.exception("a background task failed")
