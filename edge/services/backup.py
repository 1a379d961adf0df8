"""`backup.*`: a consistent copy of the node's state while it runs, for the owner at the control socket (design D18).

The node makes the copy in its own state directory; whoever asked packs it from there, so that the node writes to no
place that a caller names. The copy lives as long as the call: it goes when the caller has gone.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from edge.contract.errors import Conflict, EdgeError, Unavailable
from edge.contract.op import Call, Empty, Spawn, op
from edge.contract.time import Clock, wall_us
from edge.store import snapshot
from edge.store.snapshot import Progress

log = logging.getLogger(__name__)

FOLDER = "backup"


class Step(msgspec.Struct, omit_defaults=True):
    """How far the copy is: `done` of `total` bytes of `name`; in the end `folder`, where it lies, and when it began
    (µs since 1970 UTC)."""

    name: str = ""
    done: int = 0
    total: int = 0
    folder: str = ""
    made_us: int = 0


class Copied(Protocol):
    """A database that can be copied while it is written to."""

    async def snapshot(self, to: Path, progress: Progress) -> None:
        """Copy it as of now."""
        ...


class Stopped(Exception):
    """Nobody wants the copy any more."""


class BackupService:
    """Copies `files` (by name) and what lies beside them in `state_dir`. One copy at a time."""

    def __init__(self, files: Mapping[str, Copied], state_dir: Path, clock: Clock, spawn: Spawn) -> None:
        self._files, self._state_dir, self._clock, self._spawn = dict(files), state_dir, clock, spawn
        self._folder = state_dir / "run" / FOLDER
        self._busy = False

    @op("backup.create", scope="backup:admin", raises=(Conflict, Unavailable), wire={"edge": ("backup.create",)})
    async def create(self, call: Call[Empty]) -> AsyncIterator[Step]:
        """Copy the whole state as of now, told step by step; the copy stays until the caller hangs up."""
        return self._steps()

    async def _steps(self) -> AsyncIterator[Step]:
        if self._busy:
            raise Conflict("another backup is being made: wait for its end")
        self._busy = True
        steps: asyncio.Queue[Step | EdgeError] = asyncio.Queue()
        wanted, ended = threading.Event(), asyncio.Event()
        wanted.set()
        self._spawn(self._copy(steps, wanted, ended))
        try:
            while True:
                step = await steps.get()
                if isinstance(step, EdgeError):
                    raise step
                yield step
        finally:
            wanted.clear()
            await ended.wait()
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            self._busy = False

    async def _copy(
        self, steps: asyncio.Queue[Step | EdgeError], wanted: threading.Event, ended: asyncio.Event
    ) -> None:
        loop = asyncio.get_running_loop()

        def progress(name: str, done: int, total: int) -> None:
            if not wanted.is_set():
                raise Stopped
            loop.call_soon_threadsafe(steps.put_nowait, Step(name, done, total))

        made_us = wall_us(self._clock)
        try:
            await asyncio.to_thread(self._empty)
            for name, file in self._files.items():
                await file.snapshot(self._folder / "store" / f"{name}.db", progress)
            await asyncio.to_thread(snapshot.copy_rest, self._state_dir, self._folder)
            steps.put_nowait(Step(folder=str(self._folder), made_us=made_us))
        except asyncio.CancelledError:
            wanted.clear()
            raise
        except Stopped:
            log.info("a backup was given up by its caller")
        except EdgeError as error:
            steps.put_nowait(error)
        except Exception as error:
            log.exception("a backup failed")
            steps.put_nowait(Unavailable(f"the copy failed: {error}"))
        finally:
            ended.set()

    def _empty(self) -> None:
        """The folder of the copy, without what an earlier process left there."""
        shutil.rmtree(self._folder, ignore_errors=True)
        (self._folder / "store").mkdir(mode=0o700, parents=True)
