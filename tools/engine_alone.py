"""Our MQTT engine with nothing but its store: what the bench and `tools/broker` run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from edge.contract.bus import Gatekeeper, Sink
from edge.contract.limit import Limits
from edge.store.database import Database
from edge.store.schema import MIGRATIONS
from edge.system.clock import SystemClock
from edge.transports.mqtt.builtin import BuiltinEngine


@asynccontextmanager
async def engine(
    folder: Path, gate: Gatekeeper, limits: Limits, *, sink: Sink | None = None
) -> AsyncIterator[BuiltinEngine]:
    """An engine on `hot.db` in `folder`, loaded and not yet listening; closed in order at the end. `sink` listens to
    the bus. The folder is good for one boot of the machine: nobody here keeps account of several."""
    clock = SystemClock(1)
    hot = Database(folder / "hot.db", "hot", clock, asyncio.get_running_loop(), migrations=MIGRATIONS)
    await hot.open()
    made = BuiltinEngine(clock=clock, gatekeeper=gate, hot=hot, limits=limits)
    if sink is not None:
        made.attach(sink)
    await made.load()
    try:
        yield made
    finally:
        await made.close()
        await hot.close()
