"""A Mosquitto of the test's own: a process on a free loopback port; stopped, frozen and killed by its pid."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

START_S = 60.0
RUNS = " running\n"
"""What it writes once it listens."""


class Mosquitto:
    """Use as a context manager. `users` are names with passwords; without them anybody may come (loopback only)."""

    def __init__(
        self, folder: Path, *, users: Mapping[str, str] | None = None, lines: tuple[str, ...] = (), port: int = 0
    ) -> None:
        self._folder, self._users, self._lines = folder, dict(users or {}), lines
        self.port = port or free_port()
        self._fixed = bool(port)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Mosquitto:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    @property
    def log(self) -> str:
        """What it said."""
        return (self._folder / "mosquitto.log").read_text(errors="replace")

    def start(self) -> None:
        """Start, with what was stored before, and wait until it says that it runs: whoever answers at the port may be
        somebody else's. One that does not start is not left behind."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._started(time.monotonic() + START_S)
        except BaseException:
            self.kill()
            raise

    def _started(self, end: float) -> None:
        (self._folder / "mosquitto.log").touch()
        before = self.log.count(RUNS)
        self._process = self._spawned()
        while self.log.count(RUNS) == before:
            if self._process.poll() is not None and not self._fixed and time.monotonic() < end:
                self.port = free_port()  # somebody was quicker
                self._process = self._spawned()
            elif self._process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"mosquitto does not run:\n{self.log}")
            time.sleep(0.02)
        self._fixed = True

    def _spawned(self) -> subprocess.Popen[bytes]:
        with (self._folder / "mosquitto.log").open("ab") as log:
            command = [shutil.which("mosquitto") or "/usr/sbin/mosquitto", "-c", str(self._configured())]
            return subprocess.Popen(command, stdout=log, stderr=log)

    def _configured(self) -> Path:
        passwords = self._folder / "passwords"
        passwords.write_text("".join(f"{name}:{word}\n" for name, word in self._users.items()))
        if self._users:
            subprocess.run([shutil.which("mosquitto_passwd") or "mosquitto_passwd", "-U", str(passwords)], check=True)
        path = self._folder / "mosquitto.conf"
        who = f"password_file {passwords}" if self._users else "allow_anonymous true"
        user = f"user {Path.home().owner()}"
        path.write_text(
            "\n".join(
                [
                    f"listener {self.port} 127.0.0.1",
                    who,
                    user,
                    "persistence true",
                    f"persistence_location {self._folder}/",
                    "autosave_interval 1",
                    "autosave_on_changes true",
                    *self._lines,
                ]
            )
            + "\n"
        )
        return path

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nobody answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM: it stores what it holds."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(timeout=START_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(timeout=START_S)


def free_port() -> int:
    """A loopback port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
