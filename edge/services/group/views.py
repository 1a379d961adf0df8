"""Groups, members and what hangs on them as answers show them (spec aun-services §1.3)."""

from __future__ import annotations

from typing import Any

import msgspec

from edge.contract.store import Unit
from edge.contract.wire import decode
from edge.protocol import group_rules
from edge.protocol.aun_group_events import GroupMessage
from edge.protocol.group_rules import ADMIN
from edge.store import group_logs, groups
from edge.store.group_joins import Code, Invite, Request
from edge.store.group_logs import EVENTS, Said
from edge.store.groups import Group, Member, Shut
from edge.store.keyring import Issued


def group(unit: Unit, found: Group) -> dict[str, Any]:
    """The whole group, for its members."""
    return {
        "group_id": found.gid,
        "group_aid": found.gid,
        "name": found.name,
        "owner_aid": found.owner,
        "creator_aid": found.creator,
        "visibility": found.visibility,
        "status": found.status,
        "description": found.description,
        "avatar_ref": found.avatar,
        "metadata": metadata(found),
        "mention_mode": mention_mode(unit, found.gid),
        "member_count": found.members,
        "message_seq": group_logs.head(unit, found.gid),
        "event_seq": unit.log(EVENTS).head(found.gid),
        "e2ee_epoch": found.legacy_epoch,
        "created_at": found.created_ms,
        "updated_at": found.updated_ms,
    }


def public(found: Group) -> dict[str, Any]:
    """What anybody may know of a group."""
    return {
        "group_id": found.gid,
        "group_aid": found.gid,
        "name": found.name,
        "visibility": found.visibility,
        "status": found.status,
        "description": found.description,
        "member_count": found.members,
        "created_at": found.created_ms,
    }


def metadata(found: Group) -> dict[str, Any]:
    """The members' metadata, with the transfer that is under way."""
    fields: dict[str, Any] = decode(found.metadata, dict[str, Any])
    return {**fields, "pending_owner_transfer": transfer(found)} if found.pending else fields


def transfer(found: Group) -> dict[str, Any]:
    """The owner transfer that waits for the new owner."""
    fields: dict[str, Any] = decode(found.pending, dict[str, Any])
    return fields


def mention_mode(unit: Unit, gid: str) -> str:
    """The mode in force."""
    found = groups.setting(unit, gid, "mention_mode")
    return decode(found.value, str) if found is not None else "disabled"


def join_mode(unit: Unit, found: Group) -> str:
    """How one comes in."""
    kept = groups.setting(unit, found.gid, "join.mode")
    return decode(kept.value, str) if kept is not None else group_rules.default_mode(found.visibility)


def member(found: Member, acked: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    """A member; `acked` is how far one of their devices has read, and when it said so (ms)."""
    return {
        "group_id": found.gid,
        "aid": found.aid,
        "role": found.role,
        "member_type": found.kind,
        "joined_at": found.joined_ms,
        "last_ack_seq": acked[0],
        "last_pull_at": acked[1],
    }


def status(found: Member) -> dict[str, Any]:
    """What a member says about themselves, and when they last spoke."""
    return {
        "group_id": found.gid,
        "aid": found.aid,
        "online_status": found.online,
        "work_status": found.work,
        "updated_at": found.status_ms,
        "last_message_at": found.said_ms,
        "last_payload_type": found.said_kind,
    }


def shut(row: Shut) -> dict[str, Any]:
    """A ban or a block."""
    shown = {"group_id": row.gid, "subject": row.subject, "reason": row.reason, "created_at": row.created_ms}
    if row.what == groups.BAN:
        return shown | {"banned_by": row.by, "expires_at": row.until_ms}
    return shown | {"blocked_by": row.by}


def told(found: list[Invite]) -> dict[str, Any]:
    """What the invitee hears of invitations to one group."""
    return {
        "invitee_aid": found[0].invitee,
        "invite_id": found[0].invite_id,
        "invite_ids": [one.invite_id for one in found],
        "inviter_aid": found[0].inviter,
        "inviter_aids": [one.inviter for one in found],
        "member_type": found[0].kind,
        "status": found[0].status,
    }


def invite(found: Invite) -> dict[str, Any]:
    """One invitation."""
    return {
        "invite_id": found.invite_id,
        "group_id": found.gid,
        "group_aid": found.gid,
        "invitee_aid": found.invitee,
        "inviter_aid": found.inviter,
        "member_type": found.kind,
        "status": found.status,
        "created_at": found.created_ms,
        "updated_at": found.updated_ms,
    }


def invitation(found: list[Invite]) -> dict[str, Any]:
    """All pending invitations of one AID to one group, as one."""
    return {
        "group_id": found[0].gid,
        "group_aid": found[0].gid,
        "invitee_aid": found[0].invitee,
        "invite_ids": [one.invite_id for one in found],
        "inviter_aids": [one.inviter for one in found],
        "status": found[0].status,
        "created_at": found[0].created_ms,
    }


def request(found: Request) -> dict[str, Any]:
    """A request to join."""
    return {
        "group_id": found.gid,
        "aid": found.aid,
        "message": found.message,
        "answer": found.answer,
        "status": found.status,
        "created_at": found.created_ms,
        "updated_at": found.updated_ms,
        "reviewed_by": found.by or None,
        "rejection_reason": found.reason or None,
    }


def code(found: Code, now_ms: int) -> dict[str, Any]:
    """An invite code."""
    return {
        "group_id": found.gid,
        "code": found.code,
        "created_by": found.by,
        "expires_at": found.until_ms,
        "max_uses": found.max_uses,
        "used_count": found.used,
        "status": found.status(now_ms),
        "created_at": found.created_ms,
    }


def certificate(made: Issued, chain: str) -> dict[str, Any]:
    """The certificate of a group's identity; `chain` is issuer, registry and root in PEM."""
    end = "-----END CERTIFICATE-----\n"
    parts = [part + end for part in chain.split(end) if part.strip()]
    return {
        "cert": made.pem,
        "agentid": made.aid,
        "ca_cert": parts[0],
        "ca_chain": parts[1:],
        "cert_sn": made.serial,
        "curve": made.curve,
    }


def counts(unit: Unit, found: Group, online: int) -> dict[str, Any]:
    """The counters of a group."""
    kinds = [one.kind for one in groups.members(unit, found.gid)]
    return {
        "group_id": found.gid,
        "group_aid": found.gid,
        "name": found.name,
        "owner_aid": found.owner,
        "status": found.status,
        "visibility": found.visibility,
        "member_count": len(kinds),
        "human_count": kinds.count("human"),
        "ai_count": kinds.count("ai"),
        "admin_count": groups.count_members(unit, found.gid, ADMIN),
        "online_count": online,
        "message_seq": group_logs.head(unit, found.gid),
        "event_seq": unit.log(EVENTS).head(found.gid),
        "e2ee_epoch": found.legacy_epoch,
        "created_at": found.created_ms,
        "updated_at": found.updated_ms,
    }


def delivery(said: Said, wrap: dict[str, Any] | None = None, proof: list[dict[str, str]] | None = None) -> GroupMessage:
    """A stored message as its readers get it."""
    return GroupMessage(
        gid=said.gid,
        sender=said.sender,
        message_id=said.message_id,
        payload=msgspec.Raw(said.payload),
        sent_ms=said.sent_ms,
        device=said.device,
        kind=said.kind,
        mode=said.mode,
        attachments=msgspec.Raw(said.attachments or b"[]"),
        encrypted=bool(said.flags & group_logs.ENCRYPTED),
        render=not said.flags & group_logs.QUIET,
        v2=bool(said.flags & group_logs.V2),
        wrap=wrap or {},
        proof=proof,
    )
