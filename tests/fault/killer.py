"""Start a program, load it, kill it at a random moment, start it again, look whether it kept its word.

For anything that says when it is ready: the store's ingest here, a whole node elsewhere.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec


class Round(msgspec.Struct):
    """One life of the program: how long it was let live, and what `load` returned."""

    number: int
    lived: float
    loaded: Any


def kill_loop(
    spawn: Callable[[], subprocess.Popen[bytes]],
    ready: Callable[[subprocess.Popen[bytes]], None],
    load: Callable[[subprocess.Popen[bytes], threading.Event], Any],
    verify: Callable[[Round], None],
    *,
    rounds: int,
    longest: float = 1.0,
    seed: int = 1,
) -> list[Round]:
    """Repeat `rounds` times: `spawn`, `ready` (blocks, or raises), `load` in a thread until its event is set, SIGKILL
    after a random time of at most `longest` seconds, `verify` with what was loaded.

    `verify` looks at what is left on disk, or starts the program itself. Raises what any of them raises.
    """
    coin = random.Random(seed)
    lives = []
    for number in range(rounds):
        process = spawn()
        try:
            ready(process)
            lived = coin.uniform(0.0, longest)
            loaded = _load_and_kill(process, load, lived)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(10)
            _close(process.stdin, process.stdout, process.stderr)
        lives.append(Round(number, lived, loaded))
        verify(lives[-1])
    return lives


def _load_and_kill(
    process: subprocess.Popen[bytes], load: Callable[[subprocess.Popen[bytes], threading.Event], Any], lived: float
) -> Any:
    stop = threading.Event()
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(load(process, stop))
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=run, name="load")
    thread.start()
    time.sleep(lived)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    stop.set()
    thread.join(30)
    if thread.is_alive():
        raise TimeoutError("the load did not end after the program had")
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


def _close(*streams: IO[bytes] | None) -> None:
    for stream in streams:
        if stream is not None:
            stream.close()


def spawn(command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """A program with pipes, working in `folder`."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)})
