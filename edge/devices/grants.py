"""Who may command what of high risk (design D24): rows in node.db, a set in memory (`Grants`)."""

from __future__ import annotations

from edge.contract.capability import Skill
from edge.contract.store import Store
from edge.store import devices as table


class GrantBook:
    """`edge.contract.task.Grants`. Changed only after the commit of the row."""

    def __init__(self, node: Store) -> None:
        self._node = node
        self._rows: set[tuple[str, str]] = set()

    async def load(self) -> None:
        """Read every grant. Before anybody may act."""
        self._rows = set(await self._node.read(table.grants))

    def may_act(self, aid: str, skill: Skill) -> bool:
        """Whether an AID may command a skill: always unless its risk is high, then only with a grant."""
        return skill.cap.risk != "high" or (bool(aid) and (skill.id, aid) in self._rows)

    def of(self, skill: str) -> list[str]:
        """Who has a grant for a skill."""
        return sorted(aid for granted, aid in self._rows if granted == skill)

    def put(self, skill: str, aid: str) -> None:
        """A grant is on disk."""
        self._rows.add((skill, aid))

    def take(self, skill: str, aid: str) -> None:
        """A grant is off the disk."""
        self._rows.discard((skill, aid))

    def drop_agent(self, aid: str) -> None:
        """An agent is revoked, and every grant it had."""
        self._rows = {row for row in self._rows if row[1] != aid}

    def drop_device(self, slug: str) -> None:
        """A device is forgotten, and every grant for it."""
        self._rows = {row for row in self._rows if row[0].partition(".")[0] != slug}
