"""Encryption of groups as the node sees it: rules G-19, G-20, G-23 of the service spec."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.contract.errors import (
    EpochStale,
    GroupStateMismatch,
    GroupSuspended,
    InvalidParams,
    NotFound,
    NotMember,
    NotPermitted,
    RateLimited,
    RecipientsStale,
    RoleInsufficient,
    StateStale,
    TooLarge,
)
from edge.contract.time import SECOND
from edge.contract.wire import dumps
from edge.protocol import wraps
from edge.services.group import limits as bounds
from tests.support.groups import Square, envelope, publish_key, say, seal, square
from tests.support.messaging import ALICE, BOB, CAROL, FIRST, PEER, Client
from tests.support.store import full


def snapshot(*aids: str) -> str:
    """A membership snapshot, in a spelling of its own."""
    return '{ "members": [' + ", ".join(f'{{"aid":"{aid}", "role": "x"}}' for aid in aids) + "] }"


async def propose(client: Client, gid: str, version: int = 1, previous: str = "", **more: Any) -> str:
    """group.v2.propose_state; the proposal's id."""
    asked = {
        "state_version": version,
        "state_hash": f"h{version}",
        "prev_state_hash": previous,
        "membership_snapshot": snapshot(ALICE),
        "signature": "sig",
        **more,
    }
    made = await client.call("group.v2.propose_state", group_id=gid, **asked)
    proposal_id: str = made["proposal_id"]
    return proposal_id


async def confirm(client: Client, gid: str, proposal_id: str) -> dict[str, Any]:
    return await client.call("group.v2.confirm_state", group_id=gid, proposal_id=proposal_id)


async def version(town: Square, gid: str) -> int:
    return int((await town.alice.call("group.get_state", group_id=gid))["state_version"])


async def devices(client: Client, gid: str) -> list[tuple[str, str]]:
    found = (await client.call("group.v2.bootstrap", group_id=gid))["devices"]
    return [(one["aid"], one["device_id"]) for one in found]


# Keys.


async def test_a_device_publishes_its_key_and_the_newest_counts(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        phone, tablet = town.post.offline(BOB, "b1"), town.post.offline(BOB, "b2")
        await publish_key(phone, gid)
        await publish_key(tablet, gid)
        await publish_key(phone, gid, "again")
        found = (await town.alice.call("group.v2.bootstrap", group_id=gid))["devices"]
        mine = [one for one in found if one["aid"] == BOB]
        assert [one["device_id"] for one in mine] == ["b1", "b2"]
        assert {one["key_source"] for one in mine} == {"group_device_prekey"}
        assert len({one["spk_id"] for one in mine}) == 2
        await town.bob.call("group.leave", group_id=gid)
        assert BOB not in {aid for aid, _ in await devices(town.alice, gid)}


@pytest.mark.parametrize(
    "wrong",
    [
        {"key_source": "peer_device_prekey"},
        {"spk_id": "sha256:0000000000000000"},
        {"spk_pk": "not base64"},
        {"spk_signature": "eA=="},
        {"spk_pk": "A" * 5_000},
        {"spk_timestamp": "now"},
    ],
)
@pytest.mark.limit("group.key_octets")
async def test_a_key_that_is_none_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        good = {"spk_id": "x", "spk_pk": "eA==", "spk_signature": "eA==", "spk_timestamp": 1}
        before = await town.everything()
        with pytest.raises(InvalidParams):
            await town.alice.call("group.v2.put_group_pk", group_id=gid, **{**good, **wrong})
        assert await town.everything() == before


@pytest.mark.limit("group.devices")
async def test_one_member_has_only_so_many_devices_with_keys(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.devices": 2}) as town:
        gid = await town.found()
        for device in ("a1", "a2", "a1"):
            await publish_key(town.post.offline(ALICE, device), gid)
        with pytest.raises(RateLimited, match=r"group\.devices"):
            await publish_key(town.post.offline(ALICE, "a3"), gid)


async def test_a_member_without_a_device_is_listed_as_a_whole(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        assert await devices(town.alice, gid) == [(ALICE, ""), (BOB, "")]
        loose = await town.found(visibility="public")
        found = await town.alice.call("group.v2.bootstrap", group_id=loose)
        assert (found["e2ee_security_level"], found["member_aids"]) == ("transport", [ALICE])
        assert found["e2ee_security_warning"]
        assert (await town.alice.call("group.v2.bootstrap", group_id=gid))["e2ee_security_level"] == "end_to_end"


# Messages.


async def test_a_sealed_message_reaches_each_device_with_its_own_key_only(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        alice = town.post.offline(ALICE, "a1")
        one, two = town.post.offline(BOB, "b1"), town.post.offline(BOB, "b2")
        await publish_key(one, gid)
        await publish_key(two, gid)
        await publish_key(alice, gid)
        sent = await seal(alice, gid, [(BOB, "b1"), (BOB, "b2")], "m-1")
        assert (sent["seq"], sent["status"], sent["epoch"], sent["message_id"]) == (1, "sent", 2, "m-1")
        for client in (one, two):
            [row] = (await client.call("group.v2.pull", group_id=gid))["messages"]
            assert (row["version"], row["from_aid"], row["sender_device_id"]) == ("v2", ALICE, "a1")
            found = json.loads(row["envelope_json"])
            assert (found["recipient"]["aid"], found["recipient"]["device_id"]) == (BOB, client.who.device_id)
            assert "recipients" not in found
            assert _root(found) == found["recipients_digest"]


def _root(found: dict[str, Any]) -> str:
    """What a reader makes of its own row and the proof."""
    own = found["recipient"]
    row = wraps.Row(*(own[name] for name in wraps.FIELDS))
    leaf = wraps.leaf(row)
    for step in found["merkle_proof"]:
        sibling = bytes.fromhex(step["sibling"])
        pair = [sibling, leaf] if step["position"] == "L" else [leaf, sibling]
        leaf = hashlib.sha256(b"AUN-V2-RCPT-NODE-v1" + pair[0] + pair[1]).digest()
    return leaf.hex()


async def test_g23_rows_without_a_key_for_the_device_are_left_out(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        one = town.post.offline(BOB, "b1")
        await publish_key(one, gid)
        await seal(town.alice, gid, [(BOB, "b1")], "m-1")
        await say(town.alice, gid)
        await seal(town.alice, gid, [(BOB, "b1")], "m-3")
        late = town.post.offline(BOB, "b2")
        for client, numbers in ((one, [1, 2, 3]), (late, [2])):
            for name in ("group.v2.pull", "group.pull"):
                page = await client.call(name, group_id=gid)
                assert [row["seq"] for row in page["messages"]] == numbers
                assert (page["latest_message_seq"], page["has_more"]) == (3, False)
                assert page["cursor"]["unread_count"] == len(numbers)
            found = await client.call("group.history", group_id=gid, before_seq=100)
            assert [row["seq"] for row in found["messages"]] == numbers


async def test_a_sealed_message_is_pushed_without_its_content(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob, town.carol)
        bob = await town.post.connect(BOB, "b1", announced=PEER)
        carol = await town.post.connect(CAROL, "c1", announced=FIRST)
        await publish_key(bob, gid)
        await seal(town.post.offline(ALICE, "a1"), gid, [(BOB, "b1"), (CAROL, "")])
        [told] = [one for one in await bob.events("group.v2.message_created") if "message_id" in one]
        assert (told["seq"], told["sender_device_id"]) == (1, "a1")
        assert not {"payload", "envelope_json", "inline_message"} & told.keys()
        [told] = await carol.events("group.message_created")
        assert "payload" not in told


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"epoch": 1}, EpochStale),
        ({"epoch": 3}, EpochStale),
        ({"recipients_digest": "00"}, InvalidParams),
        ({"recipients": []}, InvalidParams),
        ({"recipients": [["x"]]}, InvalidParams),
        ({"recipients": "x"}, InvalidParams),
        ({"type": "e2ee.p2p_encrypted"}, InvalidParams),
        ({"version": "v3"}, InvalidParams),
        ({"aad": {"from": BOB}}, InvalidParams),
        ({"aad": {"from_device": "other"}}, InvalidParams),
        ({"aad": {"group_id": "g-other"}}, InvalidParams),
        ({"aad": {"message_id": "m-other"}}, InvalidParams),
        ({"aad": {"epoch": "x"}}, InvalidParams),
        ({"ciphertext": "x" * 786_432}, TooLarge),
    ],
)
async def test_g20_an_envelope_that_is_not_what_it_should_be_takes_no_number(
    tmp_path: Path, wrong: dict[str, Any], error: type
) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        made = envelope(town.alice, gid, [(ALICE, ""), (BOB, "")], **{"epoch": 2, "aad": {}, **wrong})
        before = await town.everything()
        with pytest.raises(error):
            await town.alice.call("group.v2.send", group_id=gid, message_id="m-1", envelope=made)
        assert await town.everything() == before


async def test_g20_unsorted_recipients_and_a_device_twice_are_refused(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        made = envelope(town.alice, gid, [(ALICE, ""), (BOB, "")], epoch=2)
        for rows in (made["recipients"][::-1], [made["recipients"][0], *made["recipients"]]):
            with pytest.raises(InvalidParams):
                await town.alice.call(
                    "group.v2.send", group_id=gid, message_id="m-1", envelope={**made, "recipients": rows}
                )
        with pytest.raises(InvalidParams, match="envelope"):
            await town.alice.call("group.v2.send", group_id=gid, message_id="m-1", envelope="text")
        with pytest.raises(InvalidParams):
            await town.alice.call("group.v2.send", group_id=gid, message_id="x" * 129, envelope=made)


async def test_g20_who_may_not_speak_may_not_seal(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        everybody = [(ALICE, ""), (BOB, "")]
        made = envelope(town.carol, gid, everybody, epoch=2)
        with pytest.raises(NotMember):
            await town.carol.call("group.v2.send", group_id=gid, message_id="m-1", envelope=made)
        await town.alice.call("group.suspend", group_id=gid)
        with pytest.raises(GroupSuspended):
            await seal(town.bob, gid, everybody)
        assert (await seal(town.alice, gid, everybody))["seq"] == 1
        await town.alice.call("group.resume", group_id=gid)
        await town.alice.call("group.ban", group_id=gid, aid=BOB)
        with pytest.raises(NotPermitted, match="banned"):
            await seal(town.bob, gid, everybody, "m-2")


async def test_an_envelope_must_be_for_every_device_and_for_nobody_else(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        alice = town.post.offline(ALICE, "a1")
        await publish_key(alice, gid)
        for device in ("b1", "b2"):
            await publish_key(town.post.offline(BOB, device), gid)
        both = [(BOB, "b1"), (BOB, "b2")]
        with pytest.raises(RecipientsStale, match="misses 1"):
            await seal(alice, gid, both[:1])
        with pytest.raises(RecipientsStale, match="may not read"):
            await seal(alice, gid, [*both, (CAROL, "")])
        assert (await seal(alice, gid, [(BOB, "")]))["seq"] == 1
        assert (await seal(alice, gid, [*both, (BOB, "gone")], "m-2"))["seq"] == 2
        await publish_key(town.post.offline(ALICE, "a2"), gid)
        with pytest.raises(RecipientsStale):
            await seal(alice, gid, both, "m-3")
        assert (await seal(alice, gid, [(ALICE, "a2"), *both], "m-3"))["seq"] == 3


async def test_a_message_id_is_used_once_sealed_or_not(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        everybody = [(ALICE, ""), (BOB, "")]
        first = await seal(town.alice, gid, everybody, "m-1")
        again = await seal(town.alice, gid, everybody, "m-1", ciphertext="BBBB")
        assert (again["seq"], again["status"]) == (first["seq"], "duplicate")
        with pytest.raises(InvalidParams, match="already used"):
            await seal(town.bob, gid, everybody, "m-1")


@pytest.mark.limit("group.recipients")
async def test_only_so_many_devices_are_written_to_at_once(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.recipients": 2}) as town:
        gid = await town.found(town.bob)
        assert (await seal(town.alice, gid, [(ALICE, ""), (BOB, "")]))["seq"] == 1
        with pytest.raises(TooLarge, match=r"group\.recipients"):
            await seal(town.alice, gid, [(ALICE, ""), (BOB, ""), (BOB, "b1")], "m-2")


@pytest.mark.limit("group.wrap_octets")
async def test_a_recipients_row_is_short_because_it_stands_in_every_page(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        bare = [ALICE, "", "member", "group_device_prekey", "fp", "sha256:0", "bm9uY2U=", ""]
        room = town.limits[bounds.WRAP] - len(dumps(bare))
        for key, refused in (("QUJD" * (room // 4), False), ("QUJD" * (room // 4 + 1), True)):
            filled = wraps.Row(ALICE, "", "member", "group_device_prekey", "fp", "sha256:0", "bm9uY2U=", key)
            rows = [filled, msgspec.structs.replace(filled, aid=BOB, key="QUJD")]
            made = envelope(
                town.alice, gid, [(ALICE, ""), (BOB, "")], message_id=f"m-{refused}", epoch=await at(town, gid)
            )
            made["recipients"] = [list(msgspec.structs.astuple(row)) for row in rows]
            made["recipients_digest"] = wraps.root([wraps.leaf(row) for row in rows])
            sent = town.alice.call("group.v2.send", group_id=gid, message_id=f"m-{refused}", envelope=made)
            if refused:
                with pytest.raises(TooLarge, match=r"group\.wrap_octets"):
                    await sent
            else:
                assert (await sent)["seq"] == 1


async def at(town: Square, gid: str) -> int:
    """The group's epoch."""
    found: int = (await town.alice.call("group.get_info", group_id=gid, required=["e2ee"]))["epoch"]
    return found


@pytest.mark.limit("group.page_octets")
async def test_a_page_of_encrypted_messages_fits_a_frame_with_all_its_proofs(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        to = [(ALICE, ""), (BOB, ""), *((BOB, f"b{number:03}") for number in range(254))]
        for number in range(210):
            await seal(town.alice, gid, to, f"m-{number}", ciphertext='"' * 1_500)
        found, after = 0, 0
        while (page := await town.bob.call("group.v2.pull", group_id=gid, limit=200, after_seq=after))["messages"]:
            assert len(dumps(page)) < (1 << 20) - 1_000
            found, after = found + len(page["messages"]), page["messages"][-1]["seq"]
        assert found == 210


async def test_large_envelopes_are_read_off_the_loop_and_arrive(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await seal(town.alice, gid, [(ALICE, ""), (BOB, "")], ciphertext="x" * 500_000)
        [row] = (await town.bob.call("group.v2.pull", group_id=gid))["messages"]
        assert json.loads(row["envelope_json"])["ciphertext"] == "x" * 500_000


# The signed state.


@pytest.mark.seed("S0-160")
async def test_g19_a_state_follows_the_one_in_force_and_comes_back_as_it_was(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        empty = await town.bob.call("group.get_state", group_id=gid)
        assert (empty["state_version"], empty["state_hash"], empty["membership_snapshot"]) == (0, "", "")
        text = snapshot(ALICE, BOB)
        first = await propose(town.alice, gid, membership_snapshot=text, key_epoch=2, reason="start")
        waiting = (await town.bob.call("group.v2.get_proposal", group_id=gid))["proposal"]
        assert (waiting["proposal_id"], waiting["membership_snapshot"], waiting["status"]) == (first, text, "pending")
        done = await confirm(town.alice, gid, first)
        assert (done["state_version"], done["state_hash"], done["status"]) == (1, "h1", "confirmed")
        assert (await town.bob.call("group.v2.get_proposal", group_id=gid))["proposal"] is None
        found = await town.bob.call("group.get_state", group_id=gid)
        assert (found["membership_snapshot"], found["state_signature"], found["state_actor_aid"]) == (
            text,
            "sig",
            ALICE,
        )
        assert (found["state_chain"], found["key_epoch"]) == (done["state_chain"], 2)
        assert await confirm(town.alice, gid, first) == done
        second = await confirm(town.alice, gid, await propose(town.alice, gid, 2, "h1"))
        assert second["state_chain"] != done["state_chain"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"version": 3, "previous": "h1"}, GroupStateMismatch),
        ({"version": 1, "previous": ""}, GroupStateMismatch),
        ({"version": 2, "previous": "h0"}, GroupStateMismatch),
        ({"version": 0, "previous": "h1"}, InvalidParams),
        ({"version": 1 << 32, "previous": "h1"}, InvalidParams),
        ({"version": 2, "previous": "h1", "state_hash": ""}, InvalidParams),
        ({"version": 2, "previous": "h1", "membership_snapshot": "no json"}, InvalidParams),
        ({"version": 2, "previous": "h1", "membership_snapshot": '{"members": 1}'}, InvalidParams),
        ({"version": 2, "previous": "h1", "membership_snapshot": "x" * 262_145}, TooLarge),
        ({"version": 2, "previous": "h1", "signature": "x" * 4_097}, InvalidParams),
        ({"version": 2, "previous": "h1", "reason": "x" * 256}, InvalidParams),
    ],
)
@pytest.mark.limit("group.snapshot_octets")
async def test_g19_a_state_that_follows_nothing_is_refused(tmp_path: Path, wrong: dict[str, Any], error: type) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        await confirm(town.alice, gid, await propose(town.alice, gid))
        before = await town.everything()
        with pytest.raises(error):
            await propose(town.alice, gid, **wrong)
        assert await town.everything() == before


async def test_g19_of_two_confirmations_at_once_exactly_one_wins(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(admins=[town.bob])
        await confirm(town.alice, gid, await propose(town.alice, gid))
        ids = [await propose(one, gid, 2, "h1", state_hash=f"h2-{one.who.aid}") for one in (town.alice, town.bob)]
        found = await asyncio.gather(
            confirm(town.alice, gid, ids[0]), confirm(town.bob, gid, ids[1]), return_exceptions=True
        )
        won = [one for one in found if isinstance(one, dict)]
        lost = [one for one in found if isinstance(one, GroupStateMismatch)]
        assert (len(won), len(lost)) == (1, 1)
        state = await town.alice.call("group.get_state", group_id=gid)
        assert (state["state_version"], state["state_hash"]) == (2, won[0]["state_hash"])


async def test_g19_the_owner_begins_and_members_only_watch(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.carol, admins=[town.bob])
        with pytest.raises(RoleInsufficient):
            await propose(town.bob, gid)
        first = await propose(town.alice, gid)
        with pytest.raises(RoleInsufficient):
            await confirm(town.carol, gid, first)
        await confirm(town.bob, gid, first)
        with pytest.raises(NotFound):
            await confirm(town.bob, gid, "gp-none")
        other = await town.found()
        with pytest.raises(NotFound):
            await confirm(town.alice, other, first)


async def test_a_proposal_confirms_itself_when_its_time_has_come(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        bob = await town.post.connect(BOB, "b1", announced=PEER)
        await propose(town.alice, gid, auto_confirm_seconds=30)
        await town.clock.pass_(29 * SECOND)
        assert await version(town, gid) == 0
        await town.clock.pass_(2 * SECOND)
        await town.post.rest()
        assert await version(town, gid) == 1
        [told] = await bob.events("group.v2.state_confirmed")
        assert (told["state_version"], told["state_hash"]) == (1, "h1")


async def test_a_proposal_confirms_itself_after_a_restart_too(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        await propose(town.alice, gid, auto_confirm_seconds=30)
        clock = town.clock
    clock.advance(60 * SECOND)
    async with square(tmp_path, clock=clock) as town:
        assert await version(town, gid) == 1


async def test_a_proposal_whose_time_comes_on_a_full_disk_confirms_itself_once_there_is_room(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        await propose(town.alice, gid, auto_confirm_seconds=30)
        await town.clock.pass_(29 * SECOND)
        await full(town.post.node)
        await town.clock.pass_(2 * SECOND)
        assert town.post.node.read_only
        assert await version(town, gid) == 0
        while town.post.node.read_only:
            await town.clock.pass_(SECOND)
            await town.post.node.ping()
        assert await version(town, gid) == 0
        await town.clock.pass_(10 * SECOND)
        await town.post.rest()
        assert await version(town, gid) == 1


async def test_a_proposal_of_somebody_who_is_no_admin_any_more_ends(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(admins=[town.bob])
        await confirm(town.alice, gid, await propose(town.alice, gid))
        bob = await town.post.connect(BOB, "b1", announced=PEER)
        made = await propose(bob, gid, 2, "h1")
        await town.alice.call("group.set_role", group_id=gid, aid=BOB, role="member")
        await town.clock.pass_(31 * SECOND)
        await town.post.rest()
        assert await version(town, gid) == 1
        [told] = await bob.events("group.v2.state_retry_needed")
        assert told["proposal_id"] == made
        with pytest.raises(GroupStateMismatch):
            await confirm(town.alice, gid, made)


@pytest.mark.limit("group.proposals", "group.auto_confirm_s")
async def test_only_so_many_proposals_wait_and_none_waits_too_long(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.proposals": 2, "group.auto_confirm_s": 10}) as town:
        gid = await town.found()
        for _ in range(2):
            await propose(town.alice, gid, auto_confirm_seconds=10_000)
        with pytest.raises(RateLimited, match=r"group\.proposals"):
            await propose(town.alice, gid)
        await town.clock.pass_(11 * SECOND)
        await town.post.rest()
        assert await version(town, gid) == 1


async def test_admins_hear_of_a_proposal(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.carol, admins=[town.bob])
        clients = [await town.post.connect(aid, "d", announced=PEER) for aid in (ALICE, BOB, CAROL)]
        await propose(clients[0], gid)
        assert [len(await one.events("group.v2.state_proposed")) for one in clients] == [0, 1, 0]


async def test_only_those_whom_the_state_vouches_for_get_keys(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        text = snapshot(ALICE, BOB)
        await confirm(town.alice, gid, await propose(town.alice, gid, membership_snapshot=text))
        await town.alice.call("group.add_member", group_id=gid, aid=CAROL)
        await town.alice.call("group.kick", group_id=gid, aid=BOB)
        found = await town.alice.call("group.v2.bootstrap", group_id=gid)
        assert (found["member_aids"], found["committed_member_aids"]) == ([ALICE, CAROL], [ALICE])
        assert (found["pending_adds"], found["pending_removes"]) == ([CAROL], [BOB])
        assert await devices(town.alice, gid) == [(ALICE, "")]
        assert (found["state_membership_snapshot"], found["state_version"]) == (text, 1)
        with pytest.raises(RecipientsStale):
            await seal(town.alice, gid, [(ALICE, ""), (CAROL, "")])
        done = await confirm(
            town.alice, gid, await propose(town.alice, gid, 2, "h1", membership_snapshot=f'["{ALICE}", "{CAROL}"]')
        )
        assert await devices(town.alice, gid) == [(ALICE, ""), (CAROL, "")]
        stale = {"state_version": 1, "state_hash": "h1", "state_chain": ""}
        with pytest.raises(StateStale):
            await seal(town.alice, gid, [(ALICE, ""), (CAROL, "")], state=stale)
        now = {"state_version": 2, "state_hash": "h2", "state_chain": done["state_chain"]}
        assert (await seal(town.alice, gid, [(ALICE, ""), (CAROL, "")], state=now))["seq"] == 1


async def test_states_that_were_settled_long_ago_are_forgotten_but_not_the_one_in_force(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.kept_s": 60}) as town:
        gid = await town.found(town.bob)
        await confirm(town.alice, gid, await propose(town.alice, gid))
        await confirm(town.alice, gid, await propose(town.alice, gid, 2, "h1"))
        await town.bob.call("group.leave", group_id=gid)
        await town.clock.pass_(180 * SECOND)
        await town.post.rest()
        found = await town.post.node.read(lambda unit: unit.run("SELECT version FROM group_proposal"))
        assert found == [(2,)]
        assert await version(town, gid) == 2
