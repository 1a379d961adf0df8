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
        self.failed = 0

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """`contract.op.Spawn`."""
        task = self._group.create_task(self._guarded(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def cancel(self) -> None:
        """End what still runs: the node is leaving and has waited long enough."""
        for task in list(self._running):
            task.cancel()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            self.failed += 1
            log.exception("a background task failed")
