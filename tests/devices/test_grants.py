from __future__ import annotations

from pathlib import Path

from edge.contract.capability import Capability, Skill
from edge.devices.grants import GrantBook
from edge.store import devices as table
from tests.support.store import database


def skill(name: str, risk: str) -> Skill:
    cap = Capability(name="x", title="x", kind="lock", risk=risk, writable=True)
    return Skill(id=name, device=name.partition(".")[0], device_name="", aid="", cap=cap)


async def test_grants_are_rows_read_at_the_start(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: table.grant(unit, "door.x", "alice.edge.test"))
        await node.commit(lambda unit: table.grant(unit, "door.x", "alice.edge.test"))
        book = GrantBook(node)
        assert not book.may_act("alice.edge.test", skill("door.x", "high"))
        await book.load()
        assert book.may_act("alice.edge.test", skill("door.x", "high"))
        assert book.of("door.x") == ["alice.edge.test"]
        assert await node.commit(lambda unit: table.revoke(unit, "door.x", "alice.edge.test"))
        assert not await node.commit(lambda unit: table.revoke(unit, "door.x", "alice.edge.test"))


async def test_a_revoked_agent_loses_its_grants_and_nobody_elses(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        for aid in ("alice.edge.test", "bobby.edge.test"):
            await node.commit(lambda unit, aid=aid: table.grant(unit, "door.x", aid))
        book = GrantBook(node)
        await book.load()
        assert await node.commit(lambda unit: table.revoke_agent(unit, "alice.edge.test"))
        assert not await node.commit(lambda unit: table.revoke_agent(unit, "alice.edge.test"))
        book.drop_agent("alice.edge.test")
        assert book.of("door.x") == ["bobby.edge.test"]
        await book.load()
        assert book.of("door.x") == ["bobby.edge.test"]


async def test_a_forgotten_device_takes_its_grants_and_no_others(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        book = GrantBook(node)
        for name in ("door.x", "door-2.x", "door.y"):
            book.put(name, "a")
        book.drop_device("door")
        assert [name for name in ("door.x", "door-2.x", "door.y") if book.of(name)] == ["door-2.x"]
        book.take("door-2.x", "a")
        book.take("door-2.x", "a")
        assert book.of("door-2.x") == []
