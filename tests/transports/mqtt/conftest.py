"""An engine on 127.0.0.1, on either event loop, and clients to go with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from edge.contract.bus import Admission, Done, Login, Publish, Refusal, Verdict
from edge.contract.limit import Limits
from edge.contract.principal import Kind, Principal
from edge.contract.store import Store
from edge.system.clock import SystemClock
from edge.transports.mqtt.builtin import BuiltinEngine
from tests.support.patience import PATIENCE_S, until
from tests.support.store import database
from tests.transports.mqtt.raw import hang_up


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """Every test runs on both loops."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Gate:
    """Lets in who shows the password `secret`; everybody may do everything unless `admissions` says otherwise."""

    def __init__(self) -> None:
        self.admissions: dict[str, Admission] = {}

    def admit(self, login: Login, then: Verdict) -> None:
        user = login.user
        if not user or login.password != b"secret":
            then(Refusal.CREDENTIALS)
            return
        who = Principal(Kind.DEVICE, f"d-{user}.test", via="mqtt")
        then(self.admissions.get(user) or Admission(who, user, ("#",), ("#", "$SYS/#")))


class Rig:
    """One engine with its store, its gate and a sink that keeps what `keeps` says (in the store's next commit)."""

    def __init__(self, folder: Path, hot: Store, limits: Limits, gate: Gate | None = None) -> None:
        self.folder, self.hot, self.limits = folder, hot, limits
        self.gate = gate or Gate()
        self.heard: list[Publish] = []
        self.keeps: Callable[[Publish], bool] = lambda publish: False
        self.clock = SystemClock(1)
        self.engine = BuiltinEngine(clock=self.clock, gatekeeper=self.gate, hot=hot, limits=limits)
        self.engine.attach(self._sink)
        self.port = 0

    def _sink(self, batch: list[Publish], done: Done) -> Collection[int]:
        self.heard += batch
        kept = [at for at, publish in enumerate(batch) if self.keeps(publish)]
        if kept:
            self.hot.write(lambda unit: None, lambda result: done(result if isinstance(result, Exception) else None))
        return kept

    async def start(self) -> None:
        await self.engine.load()
        self.port = await self.engine.listen("127.0.0.1", 0)

    async def until(self, reached: Callable[[], Any]) -> None:
        """Let the loop run until something is so."""
        await until(reached)


@asynccontextmanager
async def rig(folder: Path, *, gate: Gate | None = None, **limits: int) -> AsyncIterator[Rig]:
    """A rig on a fresh or used folder."""
    bounds = Limits({f"mqtt.{name}": value for name, value in limits.items()})
    async with database(folder, "hot", SystemClock(1)) as hot:
        made = Rig(folder, hot, bounds, gate)
        await made.start()
        try:
            yield made
        finally:
            await made.engine.close()
            hang_up()


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Rig]:
    """A rig with the default limits."""
    async with rig(tmp_path) as made:
        yield made


async def run(*command: str) -> tuple[int, str]:
    """Run a client program; its exit status and output. It does not outlive the test."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, out.decode()
