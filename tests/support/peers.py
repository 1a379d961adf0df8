"""Published clients in their own environments and processes, driven line by line by tests."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any, Self

from tests.plugins.needs import peer
from tests.support.process import NodeProcess

SOON = {"retry": {"initial_delay": 0.5, "max_delay": 1.0}}
"""Connect options of both SDKs: come back quickly (by default a restart of the node makes them wait 16 to 80 s)."""
AGENTS = Path(__file__).parent.parent / "interop" / "agents"
ANSWER_S = 60.0
"""How long a client may take to answer a command: above its own call time-out."""


class Refused(Exception):
    """A client's call failed; `kind` is its exception's name, `code` its number."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"{answer['type']} ({answer.get('code')}): {answer['error']}")
        self.kind, self.code, self.text = answer["type"], answer.get("code"), answer["error"]


class Profile:
    """One client's data directory and environment, as `agent add --sdk-profile` prepares it."""

    def __init__(self, node: NodeProcess, name: str, folder: Path, *, prepared: bool = True) -> None:
        """With `prepared` false only the name is reserved, as the first SDK has no use for a profile."""
        self.folder, self.name = folder, name
        profile = ["--sdk-profile", str(folder)] if prepared else []
        self.aid: str = node.cli("agent", "add", name, *profile)["aid"]
        folder.mkdir(exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of `DIR/env`, a home directory of its own, nothing of the test's."""
        file = self.folder / "env"
        lines = file.read_text().splitlines() if file.exists() else []
        found = dict(line.split("=", 1) for line in lines if "=" in line)
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        own = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "PYTHONFAULTHANDLER": "1"}
        return {**own, **found}

    def another_device(self, folder: Path) -> Profile:
        """The same AID and key on another device."""
        shutil.copytree(self.folder, folder)
        (folder / ".device_id").unlink(missing_ok=True)
        file = folder / "env"
        if file.exists():
            file.write_text(file.read_text().replace(str(self.folder), str(folder)))
        other = object.__new__(Profile)
        other.folder, other.name, other.aid = folder, self.name, self.aid
        return other


class Agent:
    """One client process. Use as a context manager: it is ended by its own pid."""

    def __init__(self, profile: Profile, environment: str = "fastaun", script: str = "fastaun_agent.py") -> None:
        self.profile, self.aid = profile, profile.aid
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._log = profile.folder / "agent.log"
        self._environment, self._script = environment, script
        self._process: subprocess.Popen[str]

    def __enter__(self) -> Self:
        place = peer(self._environment)
        assert place is not None
        command = [str(place / "bin" / "python"), str(AGENTS / self._script), str(self.profile.folder), self.aid]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.profile.environment,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait(timeout=60)
        self._reader.join(timeout=60)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("\x1e"):
                self._answers.put(line[1:])
        self._answers.put(None)

    def do(self, verb: str, **more: Any) -> Any:
        """A command and its answer. Raises `Refused`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": verb, **more}) + "\n")
        self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            self._process.send_signal(signal.SIGABRT)  # it says where it stands
            self._process.wait(timeout=60)
            raise AssertionError(f"{self.aid} does not answer to {verb} {more}:\n{self.log[-5000:]}") from None
        assert line is not None, f"the client died:\n{self.log[-3000:]}"
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer)
        return answer["ok"]

    @property
    def log(self) -> str:
        """What the client wrote to stderr."""
        return self._log.read_text(errors="replace")

    def register(self) -> Agent:
        """Make the AID; the client is ready to connect."""
        self.do("register")
        return self

    def connect(self, **more: Any) -> Agent:
        """Log in and keep a connection."""
        self.do("connect", **more)
        return self

    def call(self, method: str, **params: Any) -> Any:
        """A call through the client."""
        return self.do("call", method=method, params=params)

    def send(self, to: Agent | str, text: str, *, encrypt: bool = False, **more: Any) -> Any:
        """message.send of a text."""
        aid = to if isinstance(to, str) else to.aid
        payload = {"type": "text", "text": text}
        return self.call("message.send", to=aid, payload=payload, encrypt=encrypt, **more)

    def heard(self, event: str, count: int = 0, within: float = 45) -> list[Any]:
        """Payloads of one event: all there are once there are `count`, or when the time is up."""
        found = self.do("heard", event=event, count=count, within=within if count else 0)
        assert isinstance(found, list)
        return found

    def texts(self, count: int, within: float = 45) -> list[str]:
        """Texts of the messages heard so far."""
        return [one["payload"]["text"] for one in self.heard("message.received", count, within)]
