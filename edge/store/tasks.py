"""Tables of tasks: heads, what was said, what came out, what happened and when (node.db).

One number from the log `task` counts every event of every task; within a task it grows, with holes. It is the
event number that protocols resume at, it orders tasks by their last change, and it never goes back (D18).
A finished task stays `KEEP_DAYS`, then it ages out by policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from edge.contract.store import Unit
from edge.contract.time import Stamp
from edge.contract.wire import dumps
from edge.protocol.task import Artifact, Message, State, Task
from edge.store.migration import statements

LOG = "task"
KEEP_DAYS = 30

MIGRATIONS = [
    statements(
        "node",
        "tasks-001",
        """CREATE TABLE task (id TEXT PRIMARY KEY, made INTEGER NOT NULL, changed INTEGER NOT NULL,
            owner TEXT NOT NULL, assignee TEXT NOT NULL, root TEXT NOT NULL, context TEXT NOT NULL,
            state TEXT NOT NULL, live INTEGER NOT NULL, boot INTEGER NOT NULL, mono_us INTEGER NOT NULL,
            head BLOB NOT NULL) STRICT""",
        "CREATE INDEX task_live ON task (live, changed)",
        "CREATE INDEX task_owner ON task (owner, live)",
        "CREATE INDEX task_root ON task (root)",
        """CREATE TABLE task_party (aid TEXT NOT NULL, made INTEGER NOT NULL, task TEXT NOT NULL,
            PRIMARY KEY (aid, made)) STRICT, WITHOUT ROWID""",
        """CREATE TABLE task_message (task TEXT NOT NULL, n INTEGER NOT NULL, body BLOB NOT NULL,
            PRIMARY KEY (task, n)) STRICT""",
        """CREATE TABLE task_artifact (task TEXT NOT NULL, n INTEGER NOT NULL, body BLOB NOT NULL,
            PRIMARY KEY (task, n)) STRICT""",
        """CREATE TABLE task_event (seq INTEGER PRIMARY KEY, task TEXT NOT NULL, kind TEXT NOT NULL,
            boot INTEGER NOT NULL, mono_us INTEGER NOT NULL, body BLOB NOT NULL) STRICT""",
        "CREATE INDEX task_event_by_task ON task_event (task, seq)",
    )
]

_PUT = """INSERT INTO task (id, made, changed, owner, assignee, root, context, state, live, boot, mono_us, head)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET changed = max(changed, excluded.changed),
    state = excluded.state, live = excluded.live, boot = excluded.boot, mono_us = excluded.mono_us,
    head = excluded.head"""
_PUT_PARTY = "INSERT INTO task_party (aid, made, task) VALUES (?, ?, ?)"
_PUT_MESSAGE = "INSERT INTO task_message (task, n, body) VALUES (?, ?, ?)"
_PUT_ARTIFACT = (
    "INSERT INTO task_artifact (task, n, body) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET body = excluded.body"
)
_PUT_EVENT = "INSERT INTO task_event (seq, task, kind, boot, mono_us, body) VALUES (?, ?, ?, ?, ?, ?)"
_HEAD = "SELECT head FROM task WHERE id = ?"
_MESSAGES = "SELECT body FROM task_message WHERE task = ? ORDER BY n"
_ARTIFACTS = "SELECT body FROM task_artifact WHERE task = ? ORDER BY n"
_EVENTS = "SELECT seq, kind, boot, mono_us, body FROM task_event WHERE task = ? AND seq > ? ORDER BY seq LIMIT ?"
_LIVE = "SELECT id, head FROM task WHERE live = 1 AND id > ? ORDER BY id LIMIT ?"
_COUNT_LIVE = "SELECT count(*) FROM task WHERE owner = ? AND live = 1"
_PAGE = """SELECT p.made, t.head FROM task_party p JOIN task t ON t.id = p.task
    WHERE p.aid = ? AND p.made < ? ORDER BY p.made DESC LIMIT ?"""
_PAGE_STATES = """SELECT p.made, t.head FROM task_party p JOIN task t ON t.id = p.task
    WHERE p.aid = ? AND p.made < ? AND t.state IN ({}) ORDER BY p.made DESC LIMIT ?"""
_PARTY = "SELECT 1 FROM task_party p JOIN task t ON t.id = p.task WHERE t.root = ? AND p.aid = ? LIMIT 1"
_FINISHED = "SELECT id, boot, mono_us FROM task WHERE live = 0 ORDER BY changed LIMIT ?"
_FORGET = (
    "DELETE FROM task_party WHERE task = ?",
    "DELETE FROM task_message WHERE task = ?",
    "DELETE FROM task_artifact WHERE task = ?",
    "DELETE FROM task_event WHERE task = ?",
    "DELETE FROM task WHERE id = ?",
)


class Entry(msgspec.Struct, frozen=True):
    """One stored event of a task."""

    seq: int
    kind: str
    at: Stamp
    body: bytes


def save(unit: Unit, old: Task | None, new: Task, events: Sequence[tuple[str, bytes]]) -> list[int]:
    """Write what changed from `old` to `new`, and number and keep the events (kind, JSON); their numbers."""
    first = unit.log(LOG).number("", len(events)) - len(events) + 1 if events else 0
    numbers = list(range(first, first + len(events)))
    last = numbers[-1] if numbers else 0
    _put_head(unit, new, first, last)
    if old is None:
        for aid in sorted({new.owner, new.assignee, *new.participants} - {""}):
            unit.run(_PUT_PARTY, (aid, first, new.id))
    _put_lists(unit, old, new)
    for seq, (kind, body) in zip(numbers, events, strict=True):
        unit.run(_PUT_EVENT, (seq, new.id, kind, unit.at.boot, unit.at.mono_us, body))
    return numbers


def _put_head(unit: Unit, task: Task, first: int, last: int) -> None:
    head = dumps(msgspec.structs.replace(task, messages=(), artifacts=()))
    when = (task.changed.boot, task.changed.mono_us)
    names = (task.owner, task.assignee, task.root or task.id, task.context)
    unit.run(_PUT, (task.id, first, last, *names, str(task.state), int(not task.final), *when, head))


def _put_lists(unit: Unit, old: Task | None, new: Task) -> None:
    known = len(old.messages) if old else 0
    for number, message in enumerate(new.messages[known:], known):
        unit.run(_PUT_MESSAGE, (new.id, number, dumps(message)))
    before = old.artifacts if old else ()
    for number, artifact in enumerate(new.artifacts):
        if number >= len(before) or before[number] is not artifact:
            unit.run(_PUT_ARTIFACT, (new.id, number, dumps(artifact)))


def load(unit: Unit, task_id: str) -> Task | None:
    """One task with everything that was said and made; None also for one whose rows are damaged."""
    rows = unit.run(_HEAD, (task_id,))
    head = _task(rows[0][0]) if rows else None
    if head is None:
        return None
    try:
        return msgspec.structs.replace(
            head,
            messages=tuple(_read(unit, _MESSAGES, task_id, Message)),
            artifacts=tuple(_read(unit, _ARTIFACTS, task_id, Artifact)),
        )
    except (msgspec.DecodeError, UnicodeError):
        return None


def _read(unit: Unit, sql: str, task_id: str, kind: Any) -> Iterable[Any]:
    return (msgspec.json.decode(cast(bytes, body), type=kind) for (body,) in unit.run(sql, (task_id,)))


def _task(head: object) -> Task | None:
    """SQLite vouches for the shape of a file, not for what is in a row."""
    try:
        return msgspec.json.decode(cast(bytes, head), type=Task)
    except (msgspec.DecodeError, UnicodeError):
        return None


def events(unit: Unit, task_id: str, after: int = 0, rows: int = 1000) -> list[Entry]:
    """What happened to a task after event number `after`, oldest first."""
    found = cast(list[tuple[int, str, int, int, bytes]], unit.run(_EVENTS, (task_id, after, rows)))
    return [Entry(seq, kind, Stamp(boot, mono), body) for seq, kind, boot, mono, body in found]


def live(unit: Unit, after: str = "", rows: int = 500) -> list[tuple[str, Task | None]]:
    """Heads of tasks that are not over, by id from above `after` on; None for a damaged one."""
    return [(cast(str, task_id), _task(head)) for task_id, head in unit.run(_LIVE, (after, rows))]


def count_live(unit: Unit, owner: str) -> int:
    """How many tasks of an owner are not over."""
    return cast(int, unit.run(_COUNT_LIVE, (owner,))[0][0])


def page(
    unit: Unit, aid: str, rows: int, before: int | None = None, states: Sequence[State] = ()
) -> list[tuple[int, Task | None]]:
    """Heads of the tasks that `aid` takes part in, newest first, each with its place; go on below the last place.

    None for a damaged one.
    """
    top = 1 << 62 if before is None else before
    if states:
        sql = _PAGE_STATES.format(", ".join("?" * len(states)))
        found = unit.run(sql, (aid, top, *map(str, states), rows))
    else:
        found = unit.run(_PAGE, (aid, top, rows))
    return [(cast(int, made), _task(head)) for made, head in found]


def takes_part(unit: Unit, root: str, aid: str) -> bool:
    """Whether `aid` is a party of the task `root` or of any task below it."""
    return bool(unit.run(_PARTY, (root, aid)))


def finished(unit: Unit, rows: int) -> list[tuple[str, Stamp]]:
    """The tasks that have been over for longest: id, and when they ended."""
    found = cast(list[tuple[str, int, int]], unit.run(_FINISHED, (rows,)))
    return [(task_id, Stamp(boot, mono)) for task_id, boot, mono in found]


def forget(unit: Unit, task_ids: Iterable[str]) -> None:
    """Remove tasks with all that belongs to them."""
    for task_id in task_ids:
        for sql in _FORGET:
            unit.run(sql, (task_id,))
