from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.contract.time import SECOND
from edge.node.watchdog import Watchdog
from edge.system.notify import ServiceManager
from tests.support.clock import FakeClock


async def well() -> None:
    pass


async def silent() -> None:
    await asyncio.Event().wait()


Manager = tuple[ServiceManager, socket.socket]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """One that wants to be fed, and what it hears."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(path)
        heard.setblocking(False)
        yield ServiceManager({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": str(30 * SECOND)}), heard


async def test_the_watchdog_is_fed_while_every_part_answers(manager: Manager) -> None:
    service, heard = manager
    clock = FakeClock()
    watchdog = Watchdog(clock, service, {"bus": well, "node.db": well})
    run = asyncio.ensure_future(watchdog.run())
    for _ in range(3):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        clock.advance(10 * SECOND)
    await asyncio.sleep(0)
    run.cancel()
    assert [heard.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3


async def test_a_part_that_does_not_answer_is_named_and_nobody_is_fed(manager: Manager) -> None:
    service, _ = manager
    clock = FakeClock()
    watchdog = Watchdog(clock, service, {"bus": silent, "node.db": well})
    asked = asyncio.ensure_future(watchdog.ask())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    clock.advance(10 * SECOND)
    assert await asked is False
    assert watchdog.answers == {"bus": False, "node.db": True}
