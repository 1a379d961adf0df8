from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from edge.contract.store import Unit
from edge.contract.time import Stamp
from edge.protocol.task import Artifact, Message, State, Task
from edge.store import tasks
from tests.support.store import database

AT = Stamp(1, 5)
PART = {"kind": "text", "text": "x"}


def task(ident: str, owner: str = "alice", assignee: str = "bob", **fields: object) -> Task:
    return Task(id=ident, dialect="aun", owner=owner, assignee=assignee, changed=AT, **fields)  # type: ignore[arg-type]


def message(ident: str) -> Message:
    return Message(id=ident, by="owner", at=AT, parts=(PART,))


def add(unit: Unit, *made: Task) -> None:
    for one in made:
        tasks.save(unit, None, one, [("state", b"{}")])


async def test_a_task_is_read_as_it_was_saved(tmp_path: Path) -> None:
    whole = task("T", messages=(message("m1"),), artifacts=(Artifact(id="a", parts=(PART,)),), due=Stamp(2, 7))
    async with database(tmp_path) as node:
        await node.commit(lambda unit: add(unit, whole))
        assert await node.read(lambda unit: tasks.load(unit, "T")) == whole
        assert await node.read(lambda unit: tasks.load(unit, "U")) is None
    async with database(tmp_path) as node:
        assert await node.read(lambda unit: tasks.load(unit, "T")) == whole


async def test_what_was_added_and_replaced_is_saved(tmp_path: Path) -> None:
    first = task("T", messages=(message("m1"),), artifacts=(Artifact(id="a", parts=(PART,)),))
    longer = msgspec.structs.replace(
        first,
        state=State.WORKING,
        messages=(*first.messages, message("m2")),
        artifacts=(Artifact(id="a", parts=(PART, PART)), Artifact(id="b", parts=(PART,))),
    )
    async with database(tmp_path) as node:
        await node.commit(lambda unit: add(unit, first))
        await node.commit(lambda unit: tasks.save(unit, first, longer, []))
        assert await node.read(lambda unit: tasks.load(unit, "T")) == longer


async def test_events_are_numbered_over_all_tasks_and_read_per_task(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: add(unit, task("A"), task("B")))
        old = task("A")
        kinds = [("state", b'{"n":1}'), ("message", b'{"n":2}')]
        numbers = await node.commit(lambda unit: tasks.save(unit, old, old, kinds))
        assert numbers == [3, 4]
        found = await node.read(lambda unit: tasks.events(unit, "A"))
        assert [(one.seq, one.kind, one.body) for one in found] == [
            (1, "state", b"{}"),
            (3, "state", b'{"n":1}'),
            (4, "message", b'{"n":2}'),
        ]
        assert [one.seq for one in await node.read(lambda unit: tasks.events(unit, "A", after=1, rows=1))] == [3]


async def test_numbers_of_events_never_go_back(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: add(unit, task("A", state=State.COMPLETED)))
        await node.commit(lambda unit: tasks.forget(unit, ["A"]))
        await node.commit(lambda unit: add(unit, task("B")))
        assert [one.seq for one in await node.read(lambda unit: tasks.events(unit, "B"))] == [2]
        assert await node.read(lambda unit: tasks.load(unit, "A")) is None
        assert await node.read(lambda unit: tasks.events(unit, "A")) == []
        assert await node.read(lambda unit: tasks.page(unit, "alice", 9)) == [(2, task("B"))]


async def test_pages_are_of_one_party_newest_first_and_by_state(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        mine = [task(f"T{n}", state=State.WORKING if n % 2 else State.QUEUED) for n in range(5)]
        await node.commit(lambda unit: add(unit, *mine, task("X", owner="carol", assignee="dave")))
        page = await node.read(lambda unit: tasks.page(unit, "alice", 2))
        assert [head.id for _, head in page if head] == ["T4", "T3"]
        place = page[-1][0]
        assert [head.id for _, head in await node.read(lambda unit: tasks.page(unit, "bob", 9, place)) if head] == [
            "T2",
            "T1",
            "T0",
        ]
        found = await node.read(lambda unit: tasks.page(unit, "alice", 9, None, [State.WORKING, State.FAILED]))
        assert [head.id for _, head in found if head] == ["T3", "T1"]


async def test_what_lives_is_found_and_counted_per_owner(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        some = [task("A"), task("B", state=State.FAILED), task("C", owner="carol")]
        await node.commit(lambda unit: add(unit, *some))
        assert [name for name, _ in await node.read(tasks.live)] == ["A", "C"]
        assert [name for name, _ in await node.read(lambda unit: tasks.live(unit, after="A", rows=1))] == ["C"]
        assert await node.read(lambda unit: tasks.count_live(unit, "alice")) == 1
        assert await node.read(lambda unit: tasks.finished(unit, 9)) == [("B", AT)]


async def test_parties_of_a_tree_are_known(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        child = task("C", owner="bob", assignee="carol", root="A", parent="A")
        await node.commit(lambda unit: add(unit, task("A"), child, task("B", participants=("erin",))))
        for aid, found in (("alice", True), ("carol", True), ("erin", False)):
            assert await node.read(lambda unit, aid=aid: tasks.takes_part(unit, "A", aid)) is found
        assert [head.id for _, head in await node.read(lambda unit: tasks.page(unit, "erin", 9)) if head] == ["B"]


@pytest.mark.parametrize("garbage", [b"", b"{", b"\xff", b"[]", b'{"id":5}'])
async def test_a_damaged_row_is_no_task_and_keeps_nobody_from_the_others(tmp_path: Path, garbage: bytes) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: add(unit, task("A"), task("B")))
        await node.commit(lambda unit: unit.run("UPDATE task SET head = ? WHERE id = 'A'", (garbage,)))
        assert await node.read(lambda unit: tasks.load(unit, "A")) is None
        assert [(name, head is None) for name, head in await node.read(tasks.live)] == [("A", True), ("B", False)]
        page = await node.read(lambda unit: tasks.page(unit, "alice", 9))
        assert [head and head.id for _, head in page] == ["B", None]


async def test_a_task_with_a_damaged_message_is_no_task(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: add(unit, task("A", messages=(message("m1"),))))
        await node.commit(lambda unit: unit.run("UPDATE task_message SET body = x'ff'"))
        assert await node.read(lambda unit: tasks.load(unit, "A")) is None
