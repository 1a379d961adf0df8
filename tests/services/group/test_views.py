"""Groups, members and what hangs on them as answers show them: the fields of spec aun-services §1.3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.contract.time import Stamp
from edge.protocol.aun_group_events import GroupMessage
from edge.services.group import views
from edge.store import group_joins, group_logs, groups
from edge.store.group_joins import Code, Invite, Request
from edge.store.group_logs import Said
from edge.store.groups import Group, Member, Setting, Shut
from edge.store.keyring import Issued
from tests.support.messaging import ALICE, BOB, CAROL, ISSUER
from tests.support.store import database

GID = f"g-team.{ISSUER}"


def team(**more: Any) -> Group:
    fields: dict[str, Any] = {"name": "Team", "owner": ALICE, "creator": ALICE, "visibility": "private"}
    return Group(gid=GID, created_ms=7, updated_ms=9, **(fields | more))


def somebody(aid: str, role: str = "member", kind: str = "human") -> Member:
    return Member(gid=GID, aid=aid, role=role, kind=kind, joined_ms=8, join_seq=0, join_event=0)


async def test_members_see_the_whole_group_and_others_its_public_part(tmp_path: Path) -> None:
    found = team(description="Ours", avatar="blob:1", metadata=b'{"colour":"red"}', members=3, legacy_epoch=4)
    async with database(tmp_path) as node:
        await node.commit(lambda unit: (groups.add(unit, found), unit.log(group_logs.EVENTS).append(GID, [b"{}"])))
        whole = await node.read(lambda unit: views.group(unit, found))
    assert whole == {
        "group_id": GID,
        "group_aid": GID,
        "name": "Team",
        "owner_aid": ALICE,
        "creator_aid": ALICE,
        "visibility": "private",
        "status": "active",
        "description": "Ours",
        "avatar_ref": "blob:1",
        "metadata": {"colour": "red"},
        "mention_mode": "disabled",
        "member_count": 3,
        "message_seq": 0,
        "event_seq": 1,
        "e2ee_epoch": 4,
        "created_at": 7,
        "updated_at": 9,
    }
    public = views.public(found)
    assert public.items() < whole.items()
    assert not public.keys() & {"owner_aid", "creator_aid", "metadata", "message_seq", "event_seq", "e2ee_epoch"}


def test_a_transfer_that_is_under_way_stands_in_the_metadata() -> None:
    waiting = team(metadata=b'{"a":1}', pending=b'{"new_owner":"bobb.edge.test"}')
    assert views.metadata(waiting) == {"a": 1, "pending_owner_transfer": {"new_owner": BOB}}
    assert views.metadata(team(metadata=b'{"a":1}')) == {"a": 1}


@pytest.mark.parametrize(("visibility", "mode"), [("public", "open"), ("private", "approval")])
async def test_a_mode_that_nobody_set_is_the_default_and_a_set_one_is_in_force(
    tmp_path: Path, visibility: str, mode: str
) -> None:
    found = team(visibility=visibility)
    async with database(tmp_path) as node:
        assert await node.read(lambda unit: views.join_mode(unit, found)) == mode
        assert await node.read(lambda unit: views.mention_mode(unit, GID)) == "disabled"
        for key, value in (("join.mode", b'"closed"'), ("mention_mode", b'"mention-only"')):
            one = Setting(key, value, ALICE, 1)
            await node.commit(lambda unit, one=one: groups.put_setting(unit, GID, one))
        assert await node.read(lambda unit: views.join_mode(unit, found)) == "closed"
        assert await node.read(lambda unit: views.mention_mode(unit, GID)) == "mention-only"


def test_a_member_shows_how_far_they_have_read_and_how_they_are() -> None:
    one = msgspec.structs.replace(
        somebody(BOB, kind="ai"), online="away", work="busy", status_ms=3, said_ms=4, said_kind="text"
    )
    assert views.member(one, (12, 99)) == {
        "group_id": GID,
        "aid": BOB,
        "role": "member",
        "member_type": "ai",
        "joined_at": 8,
        "last_ack_seq": 12,
        "last_pull_at": 99,
    }
    assert views.member(one)["last_ack_seq"] == 0
    assert views.status(one) == {
        "group_id": GID,
        "aid": BOB,
        "online_status": "away",
        "work_status": "busy",
        "updated_at": 3,
        "last_message_at": 4,
        "last_payload_type": "text",
    }


def test_a_ban_has_an_end_and_a_block_has_none() -> None:
    common = {"group_id": GID, "subject": BOB, "reason": "r", "created_at": 5}
    rows = [
        Shut(gid=GID, what=what, subject=BOB, by=ALICE, reason="r", until_ms=9, created_ms=5)
        for what in (groups.BAN, groups.BLOCK)
    ]
    assert [views.shut(row) for row in rows] == [
        common | {"banned_by": ALICE, "expires_at": 9},
        common | {"blocked_by": ALICE},
    ]


def test_the_invitations_of_several_members_are_shown_as_one() -> None:
    found = [
        Invite(name, GID, BOB, by, "human", group_joins.PENDING, at, at)
        for name, by, at in (("1", ALICE, 5), ("2", CAROL, 6))
    ]
    assert views.invitation(found) == {
        "group_id": GID,
        "group_aid": GID,
        "invitee_aid": BOB,
        "invite_ids": ["1", "2"],
        "inviter_aids": [ALICE, CAROL],
        "status": "pending",
        "created_at": 5,
    }
    shown = views.invite(found[1])
    assert (shown["invite_id"], shown["inviter_aid"], shown["member_type"]) == ("2", CAROL, "human")
    assert shown.keys() == {
        "invite_id",
        "group_id",
        "group_aid",
        "invitee_aid",
        "inviter_aid",
        "member_type",
        "status",
        "created_at",
        "updated_at",
    }


@pytest.mark.parametrize(("by", "reason"), [("", ""), (ALICE, "full")])
def test_a_request_that_nobody_reviewed_names_nobody(by: str, reason: str) -> None:
    shown = views.request(Request(GID, BOB, "hello", "42", "pending", by, reason, 5, 6))
    assert (shown["reviewed_by"], shown["rejection_reason"]) == (by or None, reason or None)
    assert (shown["aid"], shown["message"], shown["answer"], shown["created_at"]) == (BOB, "hello", "42", 5)


def test_a_code_shows_what_it_is_worth_now() -> None:
    one = Code("abc", GID, ALICE, 100, 2, 1, 0, 5)
    assert views.code(one, 99) == {
        "group_id": GID,
        "code": "abc",
        "created_by": ALICE,
        "expires_at": 100,
        "max_uses": 2,
        "used_count": 1,
        "status": "active",
        "created_at": 5,
    }
    assert views.code(one, 100)["status"] == "expired"


def test_a_certificate_comes_with_its_issuer_and_the_chain_above_it() -> None:
    pems = [
        f"-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n" for name in ("issuer", "registry", "root")
    ]
    made = Issued(
        aid=GID,
        serial="0a",
        pem="pem",
        cert_sha256="c",
        spki_sha256="s",
        curve="P-256",
        start=1,
        end=2,
        sure=True,
    )
    assert views.certificate(made, "".join(pems)) == {
        "cert": "pem",
        "agentid": GID,
        "ca_cert": pems[0],
        "ca_chain": pems[1:],
        "cert_sn": "0a",
        "curve": "P-256",
    }


async def test_counters_count_people_machines_and_admins(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(
            lambda unit: (
                groups.add(unit, team()),
                groups.join(unit, somebody(ALICE, "owner")),
                groups.join(unit, somebody(BOB, "admin")),
                groups.join(unit, somebody(CAROL, kind="ai")),
            )
        )
        shown = await node.read(lambda unit: views.counts(unit, team(), 2))
        names = ("member_count", "human_count", "ai_count", "admin_count", "online_count", "message_seq")
        assert [shown[name] for name in names] == [3, 2, 1, 1, 2, 0]


def test_a_stored_message_is_what_its_readers_get() -> None:
    said = Said(
        gid=GID,
        seq=3,
        sender=ALICE,
        device="a1",
        message_id="m",
        kind="text",
        mode="mention-only",
        flags=group_logs.ENCRYPTED | group_logs.QUIET,
        sent_ms=7,
        at=Stamp(1, 5),
        payload=b'{"n": 1.0}',
        attachments=b"[1]",
    )
    shown = views.delivery(said)
    assert shown == GroupMessage(
        gid=GID,
        sender=ALICE,
        message_id="m",
        payload=msgspec.Raw(b'{"n": 1.0}'),
        sent_ms=7,
        device="a1",
        kind="text",
        mode="mention-only",
        attachments=msgspec.Raw(b"[1]"),
        encrypted=True,
        render=False,
    )
    plain = views.delivery(msgspec.structs.replace(said, flags=0, attachments=b""))
    assert (plain.encrypted, plain.render, plain.v2, bytes(plain.attachments)) == (False, True, False, b"[]")
    sealed = views.delivery(msgspec.structs.replace(said, flags=group_logs.V2), {"aid": BOB}, [{"sibling": "00"}])
    assert (sealed.v2, sealed.wrap, sealed.proof) == (True, {"aid": BOB}, [{"sibling": "00"}])
