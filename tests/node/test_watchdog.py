from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from edge.contract.time import SECOND
from edge.node.watchdog import Watchdog
from edge.system.notify import ServiceManager
from tests.support.clock import FakeClock


async def well() -> None:
    pass


async def silent() -> None:
    await asyncio.Event().wait()


def manager(path: Path) -> tuple[ServiceManager, socket.socket]:
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(str(path))
    heard.setblocking(False)
    return ServiceManager({"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": str(30 * SECOND)}), heard


async def test_the_watchdog_is_fed_while_every_part_answers(tmp_path: Path) -> None:
    service, heard = manager(tmp_path / "notify")
    clock = FakeClock()
    watchdog = Watchdog(clock, service, {"bus": well, "node.db": well})
    run = asyncio.ensure_future(watchdog.run())
    for _ in range(3):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        clock.advance(10 * SECOND)
    await asyncio.sleep(0)
    run.cancel()
    fed = [heard.recv(100) for _ in range(3)]
    heard.close()
    assert fed == [b"WATCHDOG=1"] * 3


async def test_a_part_that_does_not_answer_is_named_and_nobody_is_fed(tmp_path: Path) -> None:
    service, heard = manager(tmp_path / "notify")
    clock = FakeClock()
    watchdog = Watchdog(clock, service, {"bus": silent, "node.db": well})
    asked = asyncio.ensure_future(watchdog.ask())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    clock.advance(10 * SECOND)
    assert await asked is False
    assert watchdog.answers == {"bus": False, "node.db": True}
    heard.close()
