"""Creating, finding, changing and ending groups: rules G-1, G-2, G-11, G-12 of the service spec."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import (
    GroupE2eeRequired,
    GroupNotFound,
    GroupSuspended,
    InvalidParams,
    MethodNotFound,
    NameTaken,
    NotAuthenticated,
    NotMember,
    RateLimited,
    RoleInsufficient,
    TooLarge,
)
from edge.contract.principal import GUEST
from edge.contract.store import Unit
from edge.protocol import keys
from edge.store import group_joins, group_keys, groups
from edge.store import identity as names
from tests.support.groups import events, news, publish_key, say, square, texts
from tests.support.identity import new_key
from tests.support.messaging import ALICE, BOB, CAROL, FIRST, ISSUER, PEER, Client


def public(name: str) -> str:
    """base64 of a public key."""
    return base64.b64encode(keys.spki_of(new_key(name).public_key())).decode()


@pytest.mark.seed("S0-160")
async def test_g1_every_form_of_an_id_names_the_same_group(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        made = await town.alice.call("group.create", name="Team", group_id=" G-Team ")
        gid = f"g-team.{ISSUER}"
        assert (made["group_id"], made["group_aid"]) == (gid, gid)
        for form in ("g-team", gid, f"g-team@{ISSUER}", f"group.{ISSUER}/g-team", f"  {gid.upper()} "):
            for key in ("group_id", "group_aid", "groupId"):
                assert (await town.alice.call("group.get_info", **{key: form}))["group_id"] == gid


@pytest.mark.parametrize("wrong", ["12345", "g-x", "g-UPPER_", "team.elsewhere.test", "ab", "x" * 70, "a b c d"])
async def test_g1_a_name_that_no_group_may_have_is_refused(tmp_path: Path, wrong: str) -> None:
    async with square(tmp_path) as town:
        with pytest.raises(InvalidParams):
            await town.alice.call("group.create", name="Team", group_id=wrong)
        assert (await town.alice.call("group.list_my"))["items"] == []


async def test_g1_a_name_is_given_once_to_groups_and_agents_alike(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        await town.alice.call("group.create", name="Team", group_id="porch-team")
        town.post.aids.add(f"erin.{ISSUER}")
        for taken in ("porch-team", f"porch-team.{ISSUER}", "alice", "erin"):
            with pytest.raises(NameTaken):
                await town.bob.call("group.create", name="Mine", group_id=taken)


@pytest.mark.seed("S0-160")
async def test_g2_who_creates_a_group_owns_it_and_is_alone_in_it(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        made = await town.alice.call("group.create", name="Team", description="Ours", metadata={"colour": "red"})
        group = made["group"]
        assert (group["owner_aid"], group["creator_aid"], made["aid"]) == (ALICE, ALICE, ALICE)
        assert (group["member_count"], group["message_seq"], group["event_seq"]) == (1, 0, 1)
        assert (group["visibility"], group["mention_mode"], group["status"]) == ("private", "disabled", "active")
        assert group["metadata"] == {"colour": "red"}
        assert await events(town.alice, made["group_id"]) == [(1, "upsert")]
        [mine] = (await town.alice.call("group.list_my"))["items"]
        assert (mine["group_id"], mine["role"]) == (made["group_id"], "owner")


async def test_g2_the_same_request_twice_makes_one_group(tmp_path: Path) -> None:
    async with square(tmp_path) as town:

        async def create(client: Client, **how: str) -> str:
            gid: str = (await client.call("group.create", name="Team", **how))["group_id"]
            return gid

        once = {"_create_request_id": "anon:1"}
        found = await asyncio.gather(*(create(town.alice, **once) for _ in range(5)))
        assert len(set(found)) == 1
        assert await create(town.bob, **once) != found[0]
        assert await create(town.alice) != found[0]
        assert (await town.alice.call("group.list_my"))["total"] == 2


async def test_g2_a_named_group_comes_with_a_certificate_and_twice_is_once(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        named = {"name": "Team", "group_name": "PorchTeam", "public_key": public("team")}
        first = await town.alice.call("group.create", **named)
        assert first["group_id"] == f"porchteam.{ISSUER}"
        assert first["aid_cert"]["agentid"] == first["group_id"]
        assert first["aid_cert"]["cert"].startswith("-----BEGIN CERTIFICATE-----")
        again = await town.alice.call("group.create", **named)
        assert again["aid_cert"]["cert_sn"] == first["aid_cert"]["cert_sn"]
        with pytest.raises(NameTaken):
            await town.alice.call("group.create", **{**named, "public_key": public("other")})
        with pytest.raises(NameTaken):
            await town.bob.call("group.create", **named)


@pytest.mark.limit("group.setting_octets")
async def test_a_new_groups_settings_have_the_bounds_of_any(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.setting_octets": len('["a*","b*"]')}) as town:
        before = await town.everything()
        with pytest.raises(TooLarge):
            await town.found(auto_approve_patterns=["a*", "bb*"])
        assert await town.everything() == before
        await town.found(auto_approve_patterns=["a*", "b*"])


async def test_g2_a_creation_is_not_repeated_after_the_end_of_its_group(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(_create_request_id="anon:1")
        await town.alice.call("group.dissolve", group_id=gid)
        with pytest.raises(NameTaken, match="dissolved"):
            await town.found(_create_request_id="anon:1")


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"name": "  "}, InvalidParams),
        ({"name": "x" * 129}, InvalidParams),
        ({"description": "x" * 4_001}, InvalidParams),
        ({"join_question": "x" * 4_001}, InvalidParams),
        ({"metadata": {"x": "x" * 17_000}}, TooLarge),
        ({"visibility": "secret"}, InvalidParams),
        ({"join_mode": "sometimes"}, InvalidParams),
        ({"auto_approve_patterns": ["(a+)+$"]}, InvalidParams),
        ({"max_pending": 0}, InvalidParams),
        ({"group_name": "x"}, InvalidParams),
        ({"group_name": "porchteam", "public_key": "no key"}, InvalidParams),
    ],
)
async def test_a_creation_with_a_wrong_field_makes_nothing(tmp_path: Path, how: dict[str, Any], error: type) -> None:
    async with square(tmp_path) as town:
        before = await town.everything()
        with pytest.raises(error):
            await town.found(**how)
        assert await town.everything() == before


async def test_nobody_without_an_aid_has_groups(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        nobody = Client(town.post, GUEST, None, town.alice.far)
        with pytest.raises(NotAuthenticated):
            await nobody.call("group.create", name="Team")


@pytest.mark.limit("group.created", "group.ever")
async def test_one_aid_has_only_so_many_groups_and_has_ever_had_only_so_many(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.created": 2, "group.ever": 3}) as town:
        first = await town.found()
        await town.found()
        with pytest.raises(RateLimited, match=r"group\.created"):
            await town.found()
        await town.alice.call("group.dissolve", group_id=first)
        third = await town.found()
        await town.alice.call("group.dissolve", group_id=third)
        with pytest.raises(RateLimited, match=r"group\.ever"):
            await town.found()
        assert await town.found(owner=town.bob)
        assert town.limits.hits == {"group.created": 1, "group.ever": 1}


async def test_what_anybody_may_know_of_a_group_and_what_only_members(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, description="Ours", avatar_ref="a.png", metadata={"x": 1})
        seen = await town.carol.call("group.get_info", group_id=gid)
        assert seen["found"] is True
        assert (seen["name"], seen["description"], seen["member_count"]) == ("Team", "Ours", 2)
        assert not {"owner_aid", "metadata", "message_seq", "avatar_ref", "epoch"} & seen.keys()
        with pytest.raises(NotMember):
            await town.carol.call("group.get_info", group_id=gid, required=["member"])
        inside = await town.bob.call("group.get_info", group_id=gid, required=["member", "state", "e2ee", "avatar"])
        assert (inside["owner_aid"], inside["my_role"], inside["metadata"]) == (ALICE, "member", {"x": 1})
        assert (inside["state_version"], inside["epoch"], inside["avatar_ref"]) == (0, 2, "a.png")
        with pytest.raises(InvalidParams):
            await town.bob.call("group.get_info", group_id=gid, required=["secrets"])
        missing = await town.carol.call("group.get_info", group_id="g-none")
        assert missing == {"found": False, "group_id": f"g-none.{ISSUER}", "group_aid": f"g-none.{ISSUER}"}


async def test_the_older_info_is_whole_for_members_only(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        for name in ("group.get", "group.info", "group.get_public_info"):
            assert (await town.alice.call(name, group_id=gid))["group"]["owner_aid"] == ALICE
            assert "owner_aid" not in (await town.bob.call(name, group_id=gid))["group"]
        assert (await town.bob.call("group.get", group_id="g-none"))["found"] is False


@pytest.mark.limit("group.metadata_octets")
async def test_a_change_is_one_event_and_the_servers_own_fields_are_not_for_clients(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        changed = await town.alice.call("group.update", group_id=gid, name="Us", metadata={"a": 1})
        assert (changed["group"]["name"], changed["group"]["metadata"]) == ("Us", {"a": 1})
        assert await events(town.bob, gid) == [(2, "member_added"), (3, "update")]
        for wrong in ({"pending_owner_transfer": {}}, {"transfer_history": []}):
            with pytest.raises(InvalidParams, match="server"):
                await town.alice.call("group.update", group_id=gid, metadata=wrong)
        with pytest.raises(InvalidParams):
            await town.alice.call("group.update", group_id=gid, name=" ")
        with pytest.raises(TooLarge):
            await town.alice.call("group.update", group_id=gid, metadata={"a": "x" * 17_000})
        made = await town.bob.call("group.create", name="B", metadata={"pending_owner_transfer": {"x": 1}})
        assert made["group"]["metadata"] == {}


async def test_only_public_groups_that_are_awake_are_found_by_searching(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        seen = await town.found(name="100% Chess_club", visibility="public")
        asleep = await town.found(name="Chess at night", visibility="public")
        await town.found(name="Secret chess")
        await town.alice.call("group.suspend", group_id=asleep)

        async def found(**asked: object) -> list[str]:
            return [one["group_id"] for one in (await town.bob.call("group.search", **asked))["items"]]

        assert await found(query="chess") == [seen]
        assert await found(q="s_c", limit=5) == [seen]
        assert await found(query="0% c") == [seen]
        assert await found(query="h_s") == []
        assert await found(query=seen.partition(".")[0]) == [seen]
        with pytest.raises(InvalidParams):
            await found(query="x" * 129)


async def test_g11_a_suspended_group_is_silent_but_for_its_admins(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.carol, admins=[town.bob], visibility="public")
        assert (await town.bob.call("group.suspend", group_id=gid))["status"] == "suspended"
        assert (await town.bob.call("group.suspend", group_id=gid))["status"] == "unchanged"
        with pytest.raises(GroupSuspended):
            await say(town.carol, gid)
        assert (await say(town.alice, gid, "one"))["seq"] == 1
        assert (await say(town.bob, gid, "two"))["seq"] == 2
        assert await texts(town.carol, gid) == ["one", "two"]
        for coming in (
            town.dave.call("group.request_join", group_id=gid),
            town.alice.call("group.add_member", group_id=gid, aid=town.dave.who.aid),
            town.alice.call("group.invite_member", group_id=gid, aid=town.dave.who.aid),
            town.alice.call("group.create_invite_code", group_id=gid),
        ):
            with pytest.raises(GroupSuspended):
                await coming
        assert (await town.alice.call("group.resume", group_id=gid))["status"] == "active"
        assert (await say(town.carol, gid))["seq"] == 3
        assert (await town.dave.call("group.request_join", group_id=gid))["status"] == "joined"


async def test_g12_a_dissolved_group_is_gone_and_its_members_hear_of_it(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        bob = await town.post.connect(BOB, "b1", announced=PEER)
        await town.alice.call("group.invite_member", group_id=gid, aid=CAROL)
        assert (await town.alice.call("group.dissolve", group_id=gid))["status"] == "dissolved"
        assert (await news(bob))[-1] == "dissolved"
        calls: dict[str, dict[str, Any]] = {
            "group.send": {"payload": {}},
            "group.pull": {},
            "group.get_members": {},
            "group.dissolve": {},
            "group.request_join": {},
            "group.update": {"name": "x"},
            "group.get_settings": {},
            "group.v2.bootstrap": {},
        }
        for name, params in calls.items():
            with pytest.raises(GroupNotFound, match="dissolved"):
                await town.alice.call(name, group_id=gid, **params)
        assert (await town.bob.call("group.list_my"))["items"] == []
        assert (await town.bob.call("group.get_info", group_id=gid))["found"] is False
        assert (await town.carol.call("group.list_my_invites"))["items"] == []
        assert await events(town.bob, gid) == [(2, "member_added"), (3, "dissolved")]
        with pytest.raises(NameTaken):
            await town.bob.call("group.create", name="Again", group_id=gid)


async def test_an_ended_group_keeps_nothing_but_its_name_and_its_end(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, join_mode="approval", group_name="porchteam", public_key=public("team"))
        await publish_key(town.bob, gid)
        await town.alice.call("group.ban", group_id=gid, aid=town.dave.who.aid)
        await town.alice.call("group.create_invite_code", group_id=gid)
        await town.carol.call("group.request_join", group_id=gid)
        await town.alice.call("group.dissolve", group_id=gid)

        def look(unit: Unit) -> None:
            assert groups.settings(unit, gid) == []
            assert groups.shuts(unit, gid, groups.BAN, 0) == []
            assert group_joins.codes(unit, gid) == []
            assert group_joins.count_requests(unit, gid, "") == 0
            assert group_keys.spks(unit, gid) == []
            found = names.current(unit, gid)
            assert found is not None
            assert found.state != names.ACTIVE

        await town.post.node.read(look)


async def test_counters_for_members_and_for_admins(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.carol, admins=[town.bob])
        await town.post.connect(BOB, "b1")
        await town.post.connect(BOB, "b2")
        await town.dave.call("group.request_join", group_id=gid)
        await say(town.carol, gid)
        for name in ("group.get_stats", "group.get_metrics"):
            stats = await town.bob.call(name, group_id=gid)
            assert (stats["member_count"], stats["admin_count"], stats["online_count"]) == (3, 1, 1)
            assert (stats["message_seq"], stats["pending_join_request_count"]) == (1, 1)
        assert "pending_join_request_count" not in await town.carol.call("group.get_summary", group_id=gid)
        with pytest.raises(RoleInsufficient):
            await town.carol.call("group.get_stats", group_id=gid)


async def test_groups_are_there_after_a_restart(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid, "before")
    async with square(tmp_path) as town:
        assert await texts(town.bob, gid) == ["before"]
        assert (await say(town.bob, gid, "after"))["seq"] == 2
        assert (await town.alice.call("group.list_my"))["total"] == 1


@pytest.mark.seed("S0-143")
async def test_a_group_for_encrypted_messages_takes_no_other_and_no_client_that_cannot(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, metadata={"e2ee": "required"}, join_mode="open")
        with pytest.raises(GroupE2eeRequired):
            await say(town.bob, gid)
        assert (await say(town.bob, gid, encrypted=True))["seq"] == 1
        deaf = await town.post.connect(CAROL, "c1", announced={"capabilities": {"group_e2ee": False}})
        with pytest.raises(GroupE2eeRequired):
            await deaf.call("group.request_join", group_id=gid)
        able = await town.post.connect(CAROL, "c2", announced=FIRST)
        assert (await able.call("group.request_join", group_id=gid))["status"] == "joined"


async def test_group_files_and_what_nobody_has_are_unknown_methods(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        for name in (
            "group.fs.list",
            "group.resources.list",
            "group.resources.put",
            "group.get_audit_status",
            "group.commit_state",
        ):
            with pytest.raises(MethodNotFound):
                await town.alice.call(name, group_id=gid)
