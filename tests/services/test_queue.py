"""`queue.drops`: both ledgers as one answer, filtered, added up, with what has no row yet."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import InvalidParams
from edge.contract.gap import Gap
from edge.contract.op import Call
from edge.contract.principal import NODE
from edge.contract.time import SECOND, Stamp
from edge.protocol.mqtt.reasons import Reason
from edge.services.queue import RANGES, REASONS, Drops, DropsAsked, QueueService, spelled
from edge.store import ledger
from edge.store.database import Database
from tests.support.clock import FakeClock
from tests.support.store import database

DAY = 86_400 * SECOND


class Desk:
    """The service on two real files."""

    def __init__(self, clock: FakeClock, node: Database, hot: Database) -> None:
        self.clock, self.node, self.hot = clock, node, hot
        self.service = QueueService(
            {"node": node, "hot": hot}, clock, lambda: 4, lambda: {"limits": {"mqtt.connections": 2, "quiet": 0}}
        )

    async def lose(self, db: Database, reason: str, who: str, count: int = 1, klass: str = "telemetry") -> None:
        at = self.clock.now()
        await db.commit(lambda unit: unit.lose(Gap("mqtt", klass, 0, 0, count, reason, who, at)))

    async def drops(self, **asked: Any) -> Drops:
        return await self.service.drops(Call(who=NODE, op="queue.drops", params=DropsAsked(**asked)))


@asynccontextmanager
async def desk(folder: Path) -> AsyncIterator[Desk]:
    clock = FakeClock(mono_us=DAY)
    async with database(folder, "node", clock) as node, database(folder, "hot", clock) as hot:
        yield Desk(clock, node, hot)


async def test_losses_of_both_files_are_one_list_the_largest_first(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.lose(made.node, "too large", "lamp")
        await made.lose(made.hot, "queue full", "pump", 7)
        await made.lose(made.hot, "queue full", "pump", 2, klass="alarm")
        found = await made.drops()
    assert [(line.count, line.klass, line.reason, line.client) for line in found.lines] == [
        (7, "telemetry", "queue_full", "pump"),
        (2, "alarm", "queue_full", "pump"),
        (1, "telemetry", "too_large", "lamp"),
    ]
    assert [(drop.reason, drop.count) for drop in found.total] == [("queue_full", 9), ("too_large", 1)]
    assert (found.matching, found.pending, found.counters) == (10, 4, {"limits": {"mqtt.connections": 2}})


async def test_reason_and_client_narrow_the_list_and_not_the_total(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        for who in ("lamp", "pump"):
            for reason in ("queue full", "expired"):
                await made.lose(made.hot, reason, who)
        found = await made.drops(reason="expired", client="pump")
    assert [(line.reason, line.client) for line in found.lines] == [("expired", "pump")]
    assert found.matching == 1
    assert sum(drop.count for drop in found.total) == 4


async def test_since_leaves_out_what_is_older(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.lose(made.hot, "old", "pump")
        made.clock.mono_us += 3600 * SECOND
        await made.lose(made.hot, "new", "pump")
        assert [line.reason for line in (await made.drops(since_s=600)).lines] == ["new"]
        assert (await made.drops(since_s=7200)).matching == 2


async def test_since_reaches_over_a_reboot(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.lose(made.hot, "before", "pump")
        made.clock.boot, made.clock.wall_at_zero_us = 2, made.clock.wall_at_zero_us + DAY
        made.clock.mono_us = SECOND
        await made.lose(made.hot, "after", "pump")
        assert {line.reason for line in (await made.drops(since_s=86_400 * 2)).lines} == {"before", "after"}


async def test_numbered_losses_show_their_newest_ranges(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        for n in range(RANGES + 5):
            gap = Gap("inbox", "a.test", 10 * n + 1, 10 * n + 2, 2, "full", "store", Stamp(1, DAY + n))
            await made.node.commit(lambda unit, gap=gap: unit.lose(gap))
        (line,) = (await made.drops()).lines
    assert (line.count, len(line.ranges), line.ranges[0]) == (2 * (RANGES + 5), RANGES, (241, 242))


async def test_the_list_is_bounded_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        for n in range(5):
            await made.lose(made.hot, "no room", f"c{n}", n + 1)
        found = await made.drops(limit=2)
    assert [line.count for line in found.lines] == [5, 4]
    assert (found.more, found.matching) == (3, 15)


async def test_what_was_folded_away_is_still_in_the_total(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.lose(made.hot, "no room", "pump", 5)
        await made.hot.commit(lambda unit: ledger.prune(unit, 0, 0))
        found = await made.drops()
    assert found.lines == []
    assert [drop.count for drop in found.total] == [5]


# One spelling, one list.


async def test_one_reason_has_one_spelling_whoever_wrote_it_down(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        for reason in ("too large", "too_large", "Too large"):
            await made.lose(made.node, reason, "lamp")
        await made.lose(made.hot, "another's task", "lamp")
        found = await made.drops()
        assert [(line.reason, line.count) for line in found.lines] == [("too_large", 3), ("another_s_task", 1)]
        assert [(drop.reason, drop.count) for drop in found.total] == [("another_s_task", 1), ("too_large", 3)]
        for asked in ("too_large", "too large"):
            assert (await made.drops(reason=asked)).matching == 3


async def test_a_reason_that_there_is_not_is_told_with_those_there_are(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.lose(made.hot, "node.db: file is not a database", "store")
        assert (await made.drops(reason="node.db: file is not a database")).matching == 1
        assert (await made.drops(reason="queue_full")).matching == 0
        with pytest.raises(InvalidParams, match=r"no such reason: nonsense; there are: .*queue_full"):
            await made.drops(reason="nonsense")


PLACES = {"lost": 0, "_lost": (0, 2), "end_session": 1, "note": 1, "Gap": 5, "add": 3, "evict": 2, "expire": 2} | {
    "_drop": 1,
    "_give_up": 1,
    "_lose": 1,
    "Refused": 1,
    "Refusal": 0,
    "take_out": 2,
}
"""Where in a call a reason stands."""
NAMED = {"REASON", "FORGOTTEN", "_WITHOUT_TLS", "UNTAKEN", "UNSAID"}
"""Constants that are one, or whose values are."""
RETURNED = {("service.py", "_refusal"), ("marks.py", "doubt")}
"""Functions whose words are reasons."""
ELSEWHERE = {"bad_name", "taken", "secret", ""}
"""Refusals of `device add`, which are answered, and no losses."""
NO_LEDGER = {"cli", "config", "system"}


def declared() -> set[str]:
    """Every reason that the source has as a word."""
    found: set[str] = set()
    for path in sorted(Path("edge").rglob("*.py")):
        if path.parts[1] in NO_LEDGER:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                places = PLACES.get(name, ())
                for place in places if isinstance(places, tuple) else (places,):
                    found |= words(node.args[place : place + 1])
                if name == "refused" and isinstance(node.func, ast.Attribute):
                    found |= words(node.args[2:3])
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if getattr(target, "id", "") in NAMED:
                    found |= words(node.value.values if isinstance(node.value, ast.Dict) else [node.value])
            elif isinstance(node, ast.FunctionDef):
                if (path.name, node.name) in RETURNED:
                    found |= {
                        word for one in ast.walk(node) if isinstance(one, ast.Return) for word in words([one.value])
                    }
                if node.name == "_checked":  # what becomes `refused_…`
                    told = [one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)]
                    found |= {f"refused_{one.lower()}" for one in told if one.isupper() and one in Reason.__members__}
    return {spelled(one) for one in found}


def words(values: list[Any]) -> set[str]:
    """The texts among some expressions."""
    return {
        one.value
        for value in values
        if value is not None
        for one in ([value.body, value.orelse] if isinstance(value, ast.IfExp) else [value])
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }


INDIRECT = {"session_expired", "too_deep", "malformed"}
"""Reasons that reach their call by a variable."""


def test_the_list_of_reasons_is_that_of_the_source() -> None:
    assert declared() - REASONS.keys() - ELSEWHERE == set(), "explain it in REASONS (edge/services/queue.py)"
    assert REASONS.keys() - declared() - INDIRECT == set(), "no source says it any more"
