"""From an empty process to a node that answers, and back in the order of design D2a."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

from msgspec import structs

from edge.config import Config, ConfigError, declared
from edge.contract.errors import InvalidParams
from edge.contract.time import SECOND
from edge.node.bus import EngineMissing
from edge.node.failure import StartFailed
from edge.node.folders import make_folders, sweep
from edge.node.house import House
from edge.node.listeners import Listeners
from edge.node.ready import READY, ReadyFile
from edge.node.tasks import Tasks
from edge.node.watchdog import Watchdog
from edge.services.admin import Reloaded
from edge.store import swap
from edge.store.migrate import Unusable
from edge.store.opening import UNUSABLE, damaged
from edge.system.files import StateLock
from edge.system.lag import LoopLag
from edge.system.logs import LogPlan, Logs
from edge.system.notify import ServiceManager

log = logging.getLogger(__name__)

DRAIN_US = 2 * SECOND
"""How long what runs at SIGTERM may take to finish (design D2a)."""


class Node:
    """One node: `run` until `stop` is called. `started` is set when everything answers."""

    def __init__(
        self, config: Config, issuer: str, manager: ServiceManager, reread: Callable[[], Config] | None = None
    ) -> None:
        """`reread` reads the configuration again, from the same places as at the start."""
        self.config = config
        self._reread = reread or (lambda: config)
        self._issuer, self._manager = issuer, manager
        self._stopped = asyncio.Event()
        self._tasks: Tasks
        self._ready: ReadyFile
        self.started = asyncio.Event()
        self.on_ready: Callable[[Node], None] = lambda node: None
        self.house: House
        self.listeners: Listeners

    @property
    def issuer(self) -> str:
        """The domain behind every AID of this node."""
        return self.house.identity.issuer

    @property
    def endpoints(self) -> dict[str, str]:
        """Where it answers: URLs, by name."""
        return self.listeners.endpoints

    def stop(self) -> None:
        """Ask the node to leave in order. In the loop; idempotent."""
        self._stopped.set()

    async def run(self) -> None:
        """Start, serve, leave. Raises `StartFailed`, `DirectoryInUse`, `IdentityError`."""
        try:
            await self._run_alone()
        except Unusable as error:
            raise StartFailed(str(error)) from None
        except UNUSABLE as error:
            if self.started.is_set():
                raise
            raise StartFailed(f"{self.config.state_dir} cannot be used: {error}") from error

    async def _run_alone(self) -> None:
        """Hold the directory meanwhile."""
        make_folders(self.config.state_dir)
        lock = StateLock(self.config.state_dir / "run" / "lock")
        try:
            (self.config.state_dir / READY).unlink(missing_ok=True)  # of a node that was killed
            sweep(self.config.state_dir)
            self._finish_restore()
            try:
                await self._run()
            except Exception as error:
                if self.started.is_set() or not damaged(error):
                    raise
                log.error("a file turned out to be damaged during the start (%s): starting again", error)
                await self._run()  # the file is marked, so that it is read whole and put aside
        finally:
            lock.close()

    def _finish_restore(self) -> None:
        """Go on with a restore that was cut off. Raises `StartFailed`: half of two states is none."""
        try:
            aside = swap.finish(self.config.state_dir)
        except OSError as error:
            raise StartFailed(f"a restore that was cut off cannot go on: {error}") from None
        if aside is not None:
            log.warning("a restore was finished; the state before it is in %s", aside)

    async def _run(self) -> None:
        failure: BaseException | None = None
        async with asyncio.TaskGroup() as group:
            self._tasks = Tasks(group)
            self.house = House(self.config, self._issuer, self._tasks)
            self.listeners = Listeners(self.config, self.house, self._tasks, self._tell)
            self._ready = ReadyFile(self.config.state_dir / READY, self.house.clock, self._ready_facts)
            self._logs = Logs(self.house.clock)
            self._logs.apply(_plan(self.config))
            try:
                await self._start()
                await self._stopped.wait()
            except Exception as error:
                failure = error
            finally:
                await self._leave()
                self._logs.close()
        if failure is not None:
            raise failure

    # Coming.

    async def _start(self) -> None:
        house = self.house
        self._lag = LoopLag(house.clock)
        house.lag_us = lambda: self._lag.last_us
        try:
            await house.open(self)
        except EngineMissing as error:
            raise StartFailed(str(error)) from None
        if self.config.http.insecure_local:
            log.warning("--insecure-local: whoever runs a program on this machine is let in, without a token")
        await self.listeners.open()
        await house.ctl.start()
        self._lag.start()
        self.watchdog = Watchdog(house.clock, self._manager, house.pings())
        self._tasks.spawn(self.watchdog.run())
        self._tasks.spawn(house.renewal.run())
        self._ready.write()
        self._manager.ready(f"{self.issuer} is ready")
        self.started.set()
        self.on_ready(self)

    def _tell(self) -> None:
        """Something opened or shut since the start."""
        if not self._stopped.is_set():
            self._ready.write()

    def _ready_facts(self) -> dict[str, Any]:
        identity = self.house.identity
        return {
            "pid": os.getpid(),
            "boot": self.house.clock.boot,
            "issuer": identity.issuer,
            "state_dir": str(self.config.state_dir),
            "tls_ca": str(identity.tls_ca),
            "aun_root": str(identity.aun_root),
            "endpoints": self.endpoints,
        }

    # Going (design D2a).

    async def _leave(self) -> None:
        self._manager.stopping()
        house = self.house
        self._ready.remove()
        house.stop_accepting()
        self.listeners.stop_accepting()
        house.stop_reading()
        await house.drain(house.clock.now().mono_us + DRAIN_US)
        await self.listeners.close()
        self._lag.stop()
        self._tasks.cancel()
        await house.close()

    # Being asked.

    def reload(self) -> Reloaded:
        """Read the configuration again; log settings change now. Raises `InvalidParams`."""
        try:
            fresh = self._reread()
        except ConfigError as error:
            raise InvalidParams(f"the configuration is refused: {error}") from None
        changed = [key for key in declared.keys() if fresh.value(key) != self.config.value(key)]
        now = [key for key in changed if key.startswith("log.")]
        if now:
            self._logs.apply(_plan(fresh))
            self.config = structs.replace(self.config, log=fresh.log)
        return Reloaded(now, [key for key in changed if key not in now])

    def facts(self) -> dict[str, Any]:
        """What `status` shows."""
        return {
            **self.house.facts(),
            "state": "well" if all(self.well().values()) else "degraded",
            "pid": os.getpid(),
            "state_dir": str(self.config.state_dir),
            **self.listeners.facts(),
            "insecure_local": self.config.http.insecure_local,
            "loop_lag_us": {"last": self._lag.last_us, "worst_minute": self._lag.worst_us},
            "background_tasks": {"running": len(self._tasks), "failed": self._tasks.failed},
        }

    def well(self) -> dict[str, bool]:
        """Each part that must answer, and whether it did when it was asked last; a database must take writes too."""
        if not self.started.is_set():
            return {"started": False}
        writes = {f"{db.name}.db": not db.read_only for db in (self.house.node, self.house.hot)}
        return {"started": True} | {
            name: answered and writes.get(name, True) for name, answered in self.watchdog.answers.items()
        }


def _plan(config: Config) -> LogPlan:
    """The log as configured."""
    asked = config.log
    return LogPlan(
        level=asked.level,
        levels=dict(asked.levels),
        format=asked.format,
        target=asked.target,
        file=config.state_dir / (asked.file or "run/aun-edge.log"),
        octets=asked.file_kib << 10,
        count=asked.file_count,
        rate=asked.rate,
    )
