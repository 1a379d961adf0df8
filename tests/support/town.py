"""A node, and clients of one published SDK that end with the test."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.support.peers import Agent, Profile
from tests.support.process import NodeProcess


class Sdk(NamedTuple):
    """A published SDK: its name, its environment, the script that drives it, whether it has use for a profile."""

    name: str
    environment: str
    script: str
    prepared: bool


FASTAUN = Sdk("fastaun", "fastaun", "fastaun_groups.py", prepared=True)
AUN_CORE = Sdk("aun-core", "aunold", "aun_core_groups.py", prepared=False)


class Client(Agent):
    """A client that talks to others and in groups."""

    def __init__(self, profile: Profile, sdk: Sdk, door: dict[str, str]) -> None:
        super().__init__(profile, sdk.environment, sdk.script)
        self._door = {} if sdk.prepared else door

    def register(self) -> Self:
        """Make the AID; the client is ready to connect."""
        self.do("register", **self._door)
        return self

    def connect(self, **options: object) -> Self:
        """Log in and keep a connection."""
        self.do("connect", **self._door, options=options)
        return self

    def say(self, gid: str, text: str, *, encrypt: bool = True, **more: Any) -> Any:
        """group.send of a text."""
        return self.call("group.send", group_id=gid, payload={"type": "text", "text": text}, encrypt=encrypt, **more)

    def until(self, action: str) -> list[str]:
        """The changes of groups heard of so far, once this one is among them."""
        for _ in range(450):
            if action in (found := [one["action"] for one in self.heard("group.changed")]):
                return found
            time.sleep(0.1)
        raise AssertionError(f"{self.aid} heard nothing of {action}: {found}")


_MARKS = itertools.count(1)


class Town:
    """A node, and clients that end with the test. Every name is used once, so that tests may share a node."""

    def __init__(self, node: NodeProcess, sdk: Sdk, folder: Path, stack: ExitStack, mark: str = "") -> None:
        self.node, self.sdk, self.folder = node, sdk, folder
        self._stack, self._mark = stack, mark or f"-{next(_MARKS)}"

    def other(self, sdk: Sdk) -> Town:
        """Clients of another SDK on the same node."""
        return Town(self.node, sdk, self.folder, self._stack, self._mark)

    @property
    def door(self) -> dict[str, str]:
        """Where the first SDK finds the node: it has no profile."""
        return {"gateway": self.node.ready["endpoints"]["aun"], "root": self.node.ready["aun_root"]}

    def profile(self, name: str) -> Profile:
        """A name with what the SDK needs to use it."""
        return Profile(self.node, f"{name}{self._mark}", self.folder / name, prepared=self.sdk.prepared)

    def start(self, profile: Profile) -> Client:
        """A client process on a profile."""
        return self._stack.enter_context(Client(profile, self.sdk, self.door))

    def client(self, name: str, **options: object) -> Client:
        """A registered, connected client."""
        return self.start(self.profile(name)).register().connect(**options)

    def device(self, of: Agent, name: str, **options: object) -> Client:
        """Another device of the same AID, connected."""
        return self.start(of.profile.another_device(self.folder / name)).connect(**options)

    def end(self, client: Agent) -> None:
        """The client's process dies."""
        client.__exit__(None, None, None)

    def again(self, client: Agent, **options: object) -> Client:
        """The client's process dies and another one takes its place."""
        self.end(client)
        return self.start(client.profile).connect(**options)
