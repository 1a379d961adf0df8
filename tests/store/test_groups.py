"""Tables of groups: groups, members, who left, bans and blocks, settings, what was read."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from edge.contract.store import Unit
from edge.store import groups
from edge.store.groups import Group, Leaver, Member, Read, Setting, Shut
from tests.support.store import database

GID, OTHER = "g-c0ffee.edge.test", "family.edge.test"
ALICE, BOB, CAROL = (f"{name}.edge.test" for name in ("alice", "bobb", "carol"))


def group(gid: str = GID, **more: Any) -> Group:
    fields: dict[str, Any] = {
        "name": "House",
        "owner": ALICE,
        "creator": ALICE,
        "visibility": "public",
        "created_ms": 7,
        "updated_ms": 7,
    }
    return Group(gid=gid, **(fields | more))


def somebody(aid: str = ALICE, role: str = "member", gid: str = GID, **more: Any) -> Member:
    fields: dict[str, Any] = {"kind": "human", "joined_ms": 8, "join_seq": 3, "join_event": 4}
    return Member(gid=gid, aid=aid, role=role, **(fields | more))


def filled(unit: Unit) -> None:
    """One group with an owner, an admin and a member."""
    groups.add(unit, group())
    for aid, role in ((CAROL, "member"), (ALICE, "owner"), (BOB, "admin")):
        groups.join(unit, somebody(aid, role))


async def test_a_group_comes_back_as_it_was_added(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        made = group(description="d", avatar="a", metadata=b'{"n": 1.0}', pending=b"{}", epoch=2, legacy_epoch=3)
        await node.commit(lambda unit: groups.add(unit, made, "key"))
    async with database(tmp_path) as node:
        assert await node.read(lambda unit: groups.find(unit, GID)) == made
        assert await node.read(lambda unit: groups.by_create_key(unit, "key")) == made
        assert await node.read(lambda unit: groups.by_create_key(unit, "other")) is None
        assert await node.read(lambda unit: groups.find(unit, OTHER)) is None


async def test_g_2_a_create_key_and_a_name_are_used_once_and_no_key_is_not_a_key(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: (groups.add(unit, group()), groups.add(unit, group("a.edge.test"))))
        await node.commit(lambda unit: groups.add(unit, group(OTHER), "key"))
        for again, key in ((group("b.edge.test"), "key"), (group(), "new")):
            with pytest.raises(sqlite3.IntegrityError):
                await node.commit(lambda unit, again=again, key=key: groups.add(unit, again, key))


async def test_a_change_touches_its_columns_and_the_time(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(filled)
        now = await node.commit(lambda unit: groups.change(unit, GID, 99, name="New", owner=BOB))
        assert (now.name, now.owner, now.updated_ms, now.description) == ("New", BOB, 99, "")
        for name in ("create_key", "members = 0; --"):
            with pytest.raises(ValueError, match="no such column"):
                await node.commit(lambda unit, name=name: groups.change(unit, GID, 99, **{name: 1}))


async def test_g_12_a_dissolved_group_keeps_its_name_and_has_no_owner(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(filled)
        assert await node.read(lambda unit: groups.owner(unit, GID)) == ALICE
        await node.commit(lambda unit: groups.change(unit, GID, 9, status=groups.DISSOLVED))
        assert await node.read(lambda unit: groups.owner(unit, GID)) == ""
        assert await node.read(lambda unit: groups.owner(unit, OTHER)) == ""
        assert (await node.read(lambda unit: groups.find(unit, GID))) is not None
        assert await node.read(lambda unit: groups.of(unit, ALICE, 9)) == []
        assert await node.read(lambda unit: groups.count_of(unit, ALICE)) == 0
        assert await node.read(lambda unit: groups.made_by(unit, ALICE)) == (1, 0)
        assert await node.read(lambda unit: groups.search(unit, "House", 9)) == []


async def test_somebodys_groups_are_listed_most_lately_changed_first(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for at, gid in enumerate(("a", "b", "c")):
                groups.add(unit, group(gid))
                groups.join(unit, somebody(BOB, gid=gid))
                groups.change(unit, gid, 100 - at)

        await node.commit(fill)
        found = await node.read(lambda unit: groups.of(unit, BOB, 2))
        assert [(one.gid, member.aid) for one, member in found] == [("a", BOB), ("b", BOB)]
        assert await node.read(lambda unit: groups.count_of(unit, BOB)) == 3
        assert await node.read(lambda unit: groups.made_by(unit, ALICE)) == (3, 3)


async def test_a_search_takes_its_text_literally_and_shows_public_groups_only(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            groups.add(unit, group("a.edge.test", name="100% of_it\\"))
            groups.add(unit, group("b.edge.test", name="100 of it"))
            groups.add(unit, group("c.edge.test", name="100% of_it", visibility="private"))
            groups.add(unit, group("d.edge.test", name="100% of_it", status=groups.SUSPENDED))
            groups.join(unit, somebody(gid="b.edge.test"))

        await node.commit(fill)
        for text, wanted in (("0% o", ["a"]), ("f_i", ["a"]), ("it\\", ["a"]), ("100", ["b", "a"]), ("B.EDGE", ["b"])):
            found = await node.read(lambda unit, text=text: groups.search(unit, text, 9))
            assert [one.gid[0] for one in found] == wanted
        assert len(await node.read(lambda unit: groups.search(unit, "100", 1))) == 1


async def test_members_are_counted_and_every_coming_and_going_is_a_new_epoch(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(filled)
        found = await node.read(lambda unit: groups.find(unit, GID))
        assert found is not None
        assert (found.members, found.epoch, found.updated_ms) == (3, 3, 8)
        await node.commit(lambda unit: groups.leave(unit, somebody(BOB), 12, 50))
        found = await node.read(lambda unit: groups.find(unit, GID))
        assert found is not None
        assert (found.members, found.epoch, found.updated_ms) == (2, 4, 50)
        with pytest.raises(sqlite3.IntegrityError):
            await node.commit(lambda unit: groups.join(unit, somebody(ALICE)))


async def test_the_owner_stands_first_then_admins_then_members(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(filled)
        everybody = await node.read(lambda unit: groups.members(unit, GID))
        assert [one.aid for one in everybody] == [ALICE, BOB, CAROL]
        page = await node.read(lambda unit: groups.members(unit, GID, limit=1, offset=1))
        assert [one.aid for one in page] == [BOB]
        assert [one.aid for one in await node.read(lambda unit: groups.members(unit, GID, role="member"))] == [CAROL]
        assert await node.read(lambda unit: groups.member_aids(unit, GID)) == sorted([ALICE, BOB, CAROL])
        assert await node.read(lambda unit: groups.count_members(unit, GID)) == 3
        assert await node.read(lambda unit: groups.count_members(unit, GID, "admin")) == 1


async def test_a_member_has_a_role_a_status_and_a_last_word(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(filled)

        def change(unit: Unit) -> None:
            groups.set_role(unit, GID, CAROL, "admin")
            groups.set_status(unit, GID, CAROL, "away", "busy", 20)
            groups.said(unit, GID, CAROL, "text", 30)

        await node.commit(change)
        assert await node.read(lambda unit: groups.member(unit, GID, CAROL)) == somebody(
            CAROL, "admin", online="away", work="busy", status_ms=20, said_ms=30, said_kind="text"
        )
        untouched = await node.read(lambda unit: groups.member(unit, GID, BOB))
        assert untouched == somebody(BOB, "admin")


async def test_who_left_is_remembered_until_they_return_or_it_is_long_ago(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(filled)
        await node.commit(
            lambda unit: (groups.leave(unit, somebody(BOB), 12, 50), groups.leave(unit, somebody(CAROL), 13, 60))
        )
        assert await node.read(lambda unit: groups.member(unit, GID, BOB)) is None
        assert await node.read(lambda unit: groups.leaver(unit, GID, BOB)) == Leaver(GID, BOB, 4, 12)
        assert await node.read(lambda unit: groups.departures(unit, CAROL)) == [Leaver(GID, CAROL, 4, 13)]
        await node.commit(lambda unit: groups.join(unit, somebody(CAROL)))
        assert await node.read(lambda unit: groups.leaver(unit, GID, CAROL)) is None
        assert not await node.read(lambda unit: groups.has_old_departures(unit, 50))
        assert await node.read(lambda unit: groups.has_old_departures(unit, 51))
        assert await node.commit(lambda unit: groups.forget_departures(unit, 51)) == [(GID, BOB)]
        assert await node.read(lambda unit: groups.departures(unit, BOB)) == []


async def test_g_9_a_ban_ends_when_its_time_is_over_or_when_it_is_lifted(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def shut(unit: Unit) -> None:
            for subject, until_ms, created_ms in ((BOB, 0, 5), (CAROL, 100, 4)):
                groups.shut(
                    unit,
                    Shut(
                        gid=GID,
                        what=groups.BAN,
                        subject=subject,
                        by=ALICE,
                        reason="r",
                        until_ms=until_ms,
                        created_ms=created_ms,
                    ),
                )

        await node.commit(shut)

        async def banned(subject: str, now_ms: int) -> bool:
            return await node.read(lambda unit: groups.is_shut(unit, GID, groups.BAN, subject, now_ms))

        assert [await banned(CAROL, now_ms) for now_ms in (99, 100)] == [True, False]
        assert await banned(BOB, 1 << 50)
        listed = await node.read(lambda unit: groups.shuts(unit, GID, groups.BAN, 99))
        assert [one.subject for one in listed] == [CAROL, BOB]
        assert [one.subject for one in await node.read(lambda unit: groups.shuts(unit, GID, groups.BAN, 100))] == [BOB]
        assert not await node.read(lambda unit: groups.is_shut(unit, GID, groups.BLOCK, BOB, 1))
        assert not await node.commit(lambda unit: groups.lift(unit, GID, groups.BLOCK, BOB, 1_500))
        assert await node.commit(lambda unit: groups.lift(unit, GID, groups.BAN, BOB, 1_500))
        assert not await banned(BOB, 1)


async def test_the_last_ban_of_somebody_counts(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        for until_ms in (0, 10):
            row = Shut(gid=GID, what=groups.BAN, subject=BOB, by=ALICE, until_ms=until_ms, created_ms=1)
            await node.commit(lambda unit, row=row: groups.shut(unit, row))
        assert await node.read(lambda unit: groups.shuts(unit, GID, groups.BAN, 1)) == [row]


async def test_settings_are_written_over_and_forgotten_one_by_one(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        first, second = Setting("rules.content", b'"a"', ALICE, 1), Setting("join.mode", b'"open"', BOB, 2)

        def fill(unit: Unit) -> None:
            for one in (first, second, Setting("rules.content", b'"b"', BOB, 3)):
                groups.put_setting(unit, GID, one)

        await node.commit(fill)
        changed = Setting("rules.content", b'"b"', BOB, 3)
        assert await node.read(lambda unit: groups.settings(unit, GID)) == [second, changed]
        assert await node.read(lambda unit: groups.setting(unit, GID, "rules.content")) == changed
        await node.commit(lambda unit: groups.drop_setting(unit, GID, "join.mode"))
        assert await node.read(lambda unit: groups.setting(unit, GID, "join.mode")) is None
        assert await node.read(lambda unit: groups.settings(unit, OTHER)) == []


async def test_an_ended_group_keeps_no_bans_and_no_settings_and_others_keep_theirs(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def fill(unit: Unit) -> None:
            for gid in (GID, OTHER):
                groups.put_setting(unit, gid, Setting("join.mode", b'"open"', ALICE, 1))
                groups.shut(unit, Shut(gid=gid, what=groups.BLOCK, subject=BOB, by=ALICE, created_ms=1))

        await node.commit(fill)
        await node.commit(lambda unit: groups.clear(unit, GID))
        for gid, left in ((GID, 0), (OTHER, 1)):
            assert len(await node.read(lambda unit, gid=gid: groups.settings(unit, gid))) == left
            assert len(await node.read(lambda unit, gid=gid: groups.shuts(unit, gid, groups.BLOCK, 2))) == left


async def test_what_was_read_is_shown_to_its_device_and_what_is_shared_to_all(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        shared, mine, theirs = (Read(GID, "t", device, "m", 4, 9) for device in ("", "a1", "a2"))

        def fill(unit: Unit) -> None:
            for one in (mine, shared, theirs, Read(GID, "t", "a1", "m2", 5, 10)):
                groups.put_read(unit, ALICE, one)

        await node.commit(fill)
        found = await node.read(lambda unit: groups.reads(unit, ALICE, "a1"))
        assert found == [shared, Read(GID, "t", "a1", "m2", 5, 10)]
        assert await node.read(lambda unit: groups.reads(unit, BOB, "a1")) == []
        assert await node.read(lambda unit: groups.count_reads(unit, ALICE)) == 3
