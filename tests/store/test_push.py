from __future__ import annotations

from pathlib import Path

from edge.store import push
from edge.store.push import Installation
from tests.support.store import database

BOB = "bobb.edge.test"


def one(device: str, token: str = "t") -> Installation:
    return Installation(aid=BOB, device=device, slot="", server="push.edge.test", token=token)


async def test_an_installation_keeps_its_id_and_counts_its_versions(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        assert await db.commit(lambda u: push.register(u, one("b1"), "pr-1")) == ("pr-1", 1)
        assert await db.commit(lambda u: push.register(u, one("b1", "new"), "pr-2")) == ("pr-1", 2)
        assert await db.read(lambda u: push.of(u, BOB)) == [one("b1", "new")]
        assert await db.read(lambda u: push.aids(u)) == {BOB}


async def test_a_disabled_one_is_forgotten_until_it_registers_again(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        await db.commit(lambda u: push.register(u, one("b1"), "pr-1"))
        await db.commit(lambda u: push.register(u, one("b2"), "pr-2"))
        assert await db.read(lambda u: push.others(u, BOB, "b1", "")) == 1
        await db.commit(lambda u: push.disable(u, BOB, "b1", ""))
        assert await db.read(lambda u: push.of(u, BOB)) == [one("b2")]
        assert await db.read(lambda u: push.others(u, BOB, "b2", "")) == 0
        assert await db.read(lambda u: u.run("SELECT token FROM push_registration WHERE device = 'b1'")) == [("",)]
        assert await db.commit(lambda u: push.register(u, one("b1"), "pr-3")) == ("pr-1", 2)
