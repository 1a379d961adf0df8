"""How long tests wait for what must come, and how: one number, generous, for a machine that does other things too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0


async def until(reached: Callable[[], Any], seconds: float = PATIENCE_S) -> None:
    """Let the loop turn, sockets included, until something is so. Raises `TimeoutError`."""
    async with asyncio.timeout(seconds):
        while not reached():
            await asyncio.sleep(0.002)
