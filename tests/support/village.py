"""A real node and clients of the published aun-core 0.2 SDK."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Generic, TypeVar

from tests.support.peers import Agent, Profile
from tests.support.process import NodeProcess

A = TypeVar("A", bound=Agent)


class Village(Generic[A]):
    """A node, and first-generation clients that end with the test: of one kind, driven by one script."""

    def __init__(self, folder: Path, stack: ExitStack, kind: type[A], script: str) -> None:
        self.folder, self.stack, self._kind, self._script = folder, stack, kind, script
        self.node = stack.enter_context(NodeProcess(folder / "state"))

    @property
    def door(self) -> dict[str, str]:
        """Where these clients find the node, and whom they trust."""
        return {"gateway": self.node.ready["endpoints"]["aun"], "root": self.node.ready["aun_root"]}

    def start(self, profile: Profile) -> A:
        """A client's process."""
        made = self._kind(profile, "aunold", self._script)
        self.stack.enter_context(made)
        return made

    def agent(self, name: str, **options: object) -> A:
        """A registered, connected client."""
        made = self.start(Profile(self.node, name, self.folder / name, prepared=False))
        made.do("register", **self.door)
        made.do("connect", **self.door, options=options)
        return made

    def again(self, agent: A) -> A:
        """The client's process dies and another one takes its place."""
        agent.__exit__(None, None, None)
        back = self.start(agent.profile)
        back.do("connect", **self.door)
        return back
