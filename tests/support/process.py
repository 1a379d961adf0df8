"""The real program in a process of its own: started, asked, stopped, killed and started again by tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

READY_S = 60.0
"""How long a start may take here: generous, because the machine is shared; the budget is the bench's business."""

QUIET = (
    "--set",
    "http.listen=127.0.0.1:0",
    "--set",
    "mqtt.listen=127.0.0.1:0",
    "--set",
    "http.tls_listen=off",
    "--set",
    "mqtt.tls_listen=off",
)
"""Loopback and free ports only."""


class NodeProcess:
    """`aun-edge run` on a state directory. Use as a context manager: it is ended by its own pid at the end."""

    def __init__(self, state_dir: Path, *args: str, quiet: tuple[str, ...] = QUIET) -> None:
        self.state_dir = state_dir
        self.args = (*quiet, *args)
        self.ready: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> NodeProcess:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.alive:
            self.kill()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What the node wrote to stderr so far."""
        return self._log_path.read_text(errors="replace")

    @property
    def _log_path(self) -> Path:
        return self.state_dir.parent / f"{self.state_dir.name}.log"

    def start(self) -> float:
        """Start and wait until the ready file of this very process is there; seconds it took. One that does not get
        so far is not left behind."""
        try:
            return self._started()
        except BaseException:
            self.__exit__()
            raise

    def _started(self) -> float:
        self.state_dir.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "edge.cli.main", "run", "--state-dir", str(self.state_dir), *self.args],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        path = self.state_dir / "run" / "ready.json"
        while time.monotonic() - started < READY_S:
            if self._process.poll() is not None:
                raise AssertionError(f"the node ended with {self._process.returncode}:\n{self.log[-4000:]}")
            try:
                found = json.loads(path.read_bytes())
            except (FileNotFoundError, ValueError):
                found = {}
            if found.get("pid") == self._process.pid:
                self.ready = found
                return time.monotonic() - started
            time.sleep(0.02)
        raise AssertionError(f"not ready after {READY_S} s:\n{self.log[-4000:]}")

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=READY_S)

    def kill(self) -> None:
        """`kill -9`: no goodbye of any kind."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=READY_S)

    def cli(self, *args: str, check: bool = True) -> Any:
        """A verb of the program as its user would type it, with `--json`; the parsed answer."""
        done = self.run(*args, "--json")
        if check:
            assert done.returncode == 0, f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout) if done.stdout.strip() else None

    def run(self, *args: str, input_text: str | None = None) -> subprocess.CompletedProcess[str]:
        """A verb of the program, whole outcome."""
        verb, rest = args[0], args[1:]
        return subprocess.run(
            [sys.executable, "-m", "edge.cli.main", verb, *rest, "--state-dir", str(self.state_dir)],
            capture_output=True,
            text=True,
            timeout=60,
            input=input_text,
        )
