"""Certificates of groups and who owns them: rule G-4, contradiction C-10 of the service spec; §1.3, §3.6."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import (
    Conflict,
    GroupNotFound,
    GroupStateInvalid,
    InvalidParams,
    NotMember,
    NotPermitted,
    RoleInsufficient,
    SignatureInvalid,
    VersionConflict,
)
from edge.contract.time import SECOND
from edge.protocol import keys
from edge.store import identity as names
from tests.support.groups import Square, events, square
from tests.support.identity import new_key
from tests.support.messaging import ALICE, BOB, CAROL, ISSUER, Client


def public(name: str) -> str:
    """base64 of a public key."""
    return base64.b64encode(keys.spki_of(new_key(name).public_key())).decode()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def proof(town: Square, key: str, *fields: str, late_s: int = 0, nonce: str = "n-1") -> dict[str, Any]:
    """A proof as the SDK makes it, by the key of this name."""
    issued_ms = town.clock.wall(town.clock.now())[0] // 1000 - late_s * 1000
    signature = keys.sign(new_key(key), "|".join((*fields, nonce, str(issued_ms))).encode())
    return {"nonce": nonce, "issued_ms": issued_ms, "signature": signature}


async def register(town: Square, aid: str) -> None:
    """Give an AID the key `new_key(aid)`."""
    spki = keys.spki_of(new_key(aid).public_key())
    made = town.service._room.identity.issue(aid, spki, town.clock.wall(town.clock.now())[0], 0)
    await town.post.node.commit(
        lambda unit: names.issue(unit, made, kind="agent", spki=spki, operation="agent_cert_issue")
    )


async def bind(client: Client, gid: str, key: str = "team", **more: Any) -> dict[str, Any]:
    return await client.call("group.bind_group_aid", group_id=gid, public_key=public(key), **more)


async def renew(town: Square, gid: str, old: str = "team", new: str = "fresh", **more: Any) -> dict[str, Any]:
    text = ("aun-group-aid-renew-v1", gid, gid, digest(public(old)), digest(public(new)))
    fields = {"old_public_key": public(old), "new_public_key": public(new), "renew_proof": proof(town, old, *text)}
    return await town.alice.call("group.renew_group_aid", group_id=gid, **(fields | more))


async def transfer(town: Square, gid: str, to: str = BOB, **more: Any) -> dict[str, Any]:
    signed = proof(town, "team", "aun-group-owner-transfer-v1", gid, gid, to)
    fields = {"new_owner": to, "transfer_auth": signed, **more}
    return await town.alice.call("group.transfer_owner", group_id=gid, **fields)


async def complete(town: Square, client: Client, gid: str, key: str = "fresh", **more: Any) -> dict[str, Any]:
    me = client.who.aid
    text = ("aun-group-owner-transfer-accept-v1", gid, gid, me, digest(public(key)))
    fields = {"public_key": public(key), "transfer_accept": proof(town, me, *text), **more}
    return await client.call("group.complete_transfer", group_id=gid, **fields)


async def owners(town: Square, gid: str) -> list[str]:
    page = await town.alice.call("group.get_members", group_id=gid)
    return [one["aid"] for one in page["members"] if one["role"] == "owner"]


async def states(town: Square, gid: str) -> list[str]:
    """The states of the group's certificates, newest first."""
    return [one.state for one in await town.post.node.read(lambda unit: names.certificates(unit, gid))]


@pytest.mark.parametrize("method", ["group.bind_group_aid", "group.bind_aid"])
async def test_a_group_gets_a_certificate_for_its_key_and_the_same_one_again(tmp_path: Path, method: str) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        first = await town.alice.call(method, group_id=gid, public_key=public("team"), curve="P-256")
        assert first["group"]["group_aid"] == first["aid_cert"]["agentid"] == gid
        certified = keys.spki_of(_leaf(first["aid_cert"]["cert"]).public_key())  # type: ignore[arg-type]
        assert base64.b64encode(certified).decode() == public("team")
        assert (await bind(town.alice, gid))["aid_cert"] == first["aid_cert"]
        assert await states(town, gid) == [names.ACTIVE]
        with pytest.raises(Conflict, match="group_aid_already_bound_different_key"):
            await bind(town.alice, gid, "other")


def _leaf(pem: str) -> Any:
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem.encode())


async def test_a_group_is_certified_under_the_name_that_it_has(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(group_id="porch-team")
        with pytest.raises(InvalidParams, match="keeps the name"):
            await bind(town.alice, gid, group_name="another")
        assert (await bind(town.alice, gid, group_name=" Porch-Team "))["group_id"] == gid
        for wrong in ({"public_key": "no key"}, {"curve": "P-384"}):
            fields = {"group_id": await town.found(), "public_key": public("team"), **wrong}
            with pytest.raises(InvalidParams):
                await town.alice.call("group.bind_group_aid", **fields)


async def test_only_the_owner_has_a_group_certified(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(admins=[town.bob])
        with pytest.raises(RoleInsufficient):
            await bind(town.bob, gid)
        assert await states(town, gid) == []


async def test_the_old_key_signs_for_the_new_one_and_is_revoked(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        before = await bind(town.alice, gid)
        after = await renew(town, gid)
        assert after["old_cert_revoked"] is True
        assert after["aid_cert"]["cert_sn"] != before["aid_cert"]["cert_sn"]
        assert await states(town, gid) == [names.ACTIVE, names.REVOKED]
        with pytest.raises(VersionConflict):
            await renew(town, gid)


async def test_a_renewal_that_the_old_key_did_not_sign_for_the_new_one_changes_nothing(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        await bind(town.alice, gid)
        before = await town.everything()
        text = ("aun-group-aid-renew-v1", gid, gid, digest(public("team")), digest(public("fresh")))
        elsewhere = ("aun-group-aid-renew-v1", "x", "x", *text[3:])
        for wrong, error in (
            ({"renew_proof": proof(town, "fresh", *text)}, SignatureInvalid),
            ({"renew_proof": proof(town, "team", *elsewhere)}, SignatureInvalid),
            ({"renew_proof": {**proof(town, "team", *text), "nonce": "n-2"}}, SignatureInvalid),
            ({"renew_proof": {**proof(town, "team", *text), "signature": "no base64"}}, SignatureInvalid),
            ({"old_public_key": public("other")}, VersionConflict),
            ({"new_public_key": public("other")}, SignatureInvalid),
            ({"new_public_key": "no key"}, InvalidParams),
        ):
            with pytest.raises(error):
                await renew(town, gid, **wrong)
        with pytest.raises(InvalidParams, match="is the old one"):
            await renew(town, gid, new="team")
        assert await town.everything() == before


@pytest.mark.limit("group.proof_skew_s")
async def test_a_proof_is_good_for_five_minutes_unless_the_time_is_not_sure(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        await bind(town.alice, gid)
        text = ("aun-group-aid-renew-v1", gid, gid, digest(public("team")), digest(public("fresh")))
        for late_s in (301, -301):
            with pytest.raises(InvalidParams):
                await renew(town, gid, renew_proof=proof(town, "team", *text, late_s=late_s))
        town.clock.uncertainty_us = 400 * 86_400 * SECOND
        assert (await renew(town, gid, renew_proof=proof(town, "team", *text, late_s=90_000)))["old_cert_revoked"]
        town.clock.uncertainty_us = 0
        back = ("aun-group-aid-renew-v1", gid, gid, digest(public("fresh")), digest(public("team")))
        edge = proof(town, "fresh", *back, late_s=300)
        assert (await renew(town, gid, "fresh", "team", renew_proof=edge))["old_cert_revoked"]


@pytest.mark.limit("group.read_length")
async def test_a_nonce_has_its_length(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        await bind(town.alice, gid)
        text = ("aun-group-aid-renew-v1", gid, gid, digest(public("team")), digest(public("fresh")))
        with pytest.raises(InvalidParams):
            await renew(town, gid, renew_proof=proof(town, "team", *text, nonce="x" * 129))
        await renew(town, gid, renew_proof=proof(town, "team", *text, nonce="x" * 128))


@pytest.mark.parametrize("name", ["new_owner", "aid"])
async def test_c10_a_group_without_a_certificate_is_handed_over_at_once(tmp_path: Path, name: str) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        done = await town.alice.call("group.transfer_owner", group_id=gid, **{name: BOB.upper()})
        assert (done["status"], done["old_owner"], done["new_owner"]) == ("transferred", ALICE, BOB)
        assert "complete_rpc" not in done
        assert await owners(town, gid) == [BOB]
        assert (await town.alice.call("group.get_info", group_id=gid, required=["member"]))["my_role"] == "admin"
        assert (await events(town.bob, gid))[-1][1] == "owner_transferred"


async def test_c10_who_cannot_become_the_owner(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        for how, error in (
            ({"new_owner": CAROL}, NotMember),
            ({"new_owner": ALICE}, InvalidParams),
            ({"new_owner": "no aid"}, InvalidParams),
            ({"new_owner": BOB, "transfer_auth": proof(town, "team", "x")}, GroupStateInvalid),
        ):
            with pytest.raises(error):
                await town.alice.call("group.transfer_owner", group_id=gid, **how)
        assert await owners(town, gid) == [ALICE]


async def test_c10_a_certified_group_waits_for_the_new_owners_key(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        await register(town, BOB)
        gid = await town.found(town.bob, town.carol)
        await bind(town.alice, gid)
        waits = await transfer(town, gid)
        assert (waits["status"], waits["requires_ca_rekey"], waits["complete_rpc"]) == (
            "pending_rekey",
            True,
            "group.complete_transfer",
        )
        assert waits["pending_owner_transfer"]["new_owner"] == BOB
        assert await owners(town, gid) == [ALICE]
        with pytest.raises(GroupStateInvalid):
            await complete(town, town.carol, gid)
        done = await complete(town, town.bob, gid)
        assert (done["status"], done["old_owner"], done["new_owner"]) == ("transferred", ALICE, BOB)
        assert "pending_owner_transfer" not in done["group"]["metadata"]
        assert await owners(town, gid) == [BOB]
        assert await states(town, gid) == [names.ACTIVE, names.REVOKED]
        assert [action for _, action in await events(town.carol, gid)][-2:] == [
            "owner_transfer_rekey_pending",
            "owner_transferred",
        ]
        again = await complete(town, town.bob, gid)
        assert (again["status"], again["aid_cert"]) == ("transferred", done["aid_cert"])
        assert await states(town, gid) == [names.ACTIVE, names.REVOKED]


async def test_c10_a_transfer_that_the_groups_key_did_not_sign_is_refused(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await bind(town.alice, gid)
        before = await town.everything()
        to_bob = ("aun-group-owner-transfer-v1", gid, gid, BOB)
        for signed, error in (
            (None, InvalidParams),
            (proof(town, "other", *to_bob), SignatureInvalid),
            (proof(town, "team", *to_bob[:3], CAROL), SignatureInvalid),
            (proof(town, "team", *to_bob, late_s=301), InvalidParams),
        ):
            with pytest.raises(error):
                await transfer(town, gid, transfer_auth=signed)
        assert await town.everything() == before


async def test_c10_the_new_owner_signs_with_their_own_key_for_a_new_group_key(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await bind(town.alice, gid)
        await transfer(town, gid)
        with pytest.raises(NotPermitted, match="has no key here"):
            await complete(town, town.bob, gid)
        await register(town, BOB)
        text = ("aun-group-owner-transfer-accept-v1", gid, gid, BOB, digest(public("fresh")))
        with pytest.raises(SignatureInvalid):
            await complete(town, town.bob, gid, transfer_accept=proof(town, "fresh", *text))
        with pytest.raises(InvalidParams, match="old key"):
            await complete(town, town.bob, gid, "team")
        assert await owners(town, gid) == [ALICE]
        assert (await complete(town, town.bob, gid))["status"] == "transferred"


async def test_a_card_is_stale_when_it_was_signed_with_an_earlier_certificate(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()

        async def entity() -> Any:
            return await town.post.dispatcher.run("group.entity", {"group_id": gid}, town.bob.who)

        with pytest.raises(GroupNotFound, match="no certificate"):
            await entity()
        await bind(town.alice, gid)
        found = await entity()
        assert (found.owner_aid, found.status) == (ALICE, "current")
        card = names.AgentMd(aid=gid, body=found.cert_sha256.encode(), etag="e", modified_s=1, signed=True)
        await town.post.node.commit(lambda unit: names.put_agent_md(unit, card))
        assert (await entity()).status == "current"
        await renew(town, gid)
        assert (await entity()).status == "stale"
        with pytest.raises(GroupNotFound):
            await town.post.dispatcher.run("group.entity", {"group_id": f"g-nothing.{ISSUER}"}, town.bob.who)
