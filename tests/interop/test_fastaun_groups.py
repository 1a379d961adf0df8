"""Groups of the published fastaun SDK, unmodified, against a real node: spec aun-services §3.6, §5.3."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.peers import SOON, Agent, Profile, Refused
from tests.support.process import NodeProcess

pytestmark = [pytest.mark.interop, pytest.mark.needs("peer:fastaun")]

LOST = ("group.message_undecryptable", "group.v2.fork_detected")
"""What nobody may ever hear."""


class Member(Agent):
    """A client that talks in groups."""

    def say(self, gid: str, text: str, *, encrypt: bool = True, **more: Any) -> Any:
        """group.send of a text."""
        return self.call("group.send", group_id=gid, payload={"type": "text", "text": text}, encrypt=encrypt, **more)

    def read(self, count: int, within: float = 45) -> list[str]:
        """The texts heard so far, once there are `count`."""
        return [one["payload"]["text"] for one in self.heard("group.message_created", count, within)]

    def news(self, count: int = 0, within: float = 45) -> list[str]:
        """The actions heard of so far."""
        return [one["action"] for one in self.heard("group.changed", count, within)]

    def until(self, action: str) -> list[str]:
        """The actions heard of so far, once this one is among them."""
        for _ in range(450):
            if action in (found := self.news()):
                return found
            time.sleep(0.1)
        raise AssertionError(f"{action} was not heard: {found}")

    def facade(self, method: str, **params: Any) -> Any:
        """A method of the SDK's group facade, with everything it may ask for."""
        return self.do("facade", method=method, params=params, store=True)

    def sign(self, method: str, **params: Any) -> Any:
        """A method of the facade that signs."""
        return self.do("facade", method=method, params=params, signer=True)


class Town:
    """A node, and clients that end with the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.node = stack.enter_context(NodeProcess(folder / "state"))

    def start(self, profile: Profile) -> Member:
        """A client process on a profile."""
        return self._stack.enter_context(Member(profile, "fastaun", "fastaun_groups.py"))

    def member(self, name: str, **options: object) -> Member:
        """A registered, connected client."""
        made = self.start(Profile(self.node, name, self.folder / name))
        made.register().connect(options=options)
        return made

    def acked(self, gid: str, member: Member) -> int:
        """The last message that a member has acked, as the files of the ended node have it."""
        copy = self.folder / "files"
        shutil.copytree(self.node.state_dir / "store", copy, dirs_exist_ok=True)
        with closing(sqlite3.connect(copy / "node.db")) as conn:
            [(seq,)] = conn.execute(
                "SELECT coalesce(max(seq), 0) FROM group_cursor WHERE gid = ? AND aid = ?", (gid, member.aid)
            )
        return int(seq)

    def again(self, member: Member) -> Member:
        """The client's process dies and another one takes its place."""
        member.__exit__(None, None, None)
        back = self.start(member.profile)
        back.connect()
        return back


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with ExitStack() as stack:
        yield Town(tmp_path, stack)


def found_group(owner: Member, *others: Member, **more: Any) -> str:
    """A group of these."""
    gid: str = owner.call("group.create", name="Team", **more)["group"]["group_id"]
    for one in others:
        assert owner.call("group.add_member", group_id=gid, aid=one.aid)["member"]["role"] == "member"
    return gid


def nothing_was_lost(*members: Member) -> None:
    for one in members:
        assert [one.heard(name) for name in LOST] == [[], []], one.aid


@pytest.mark.seed("S0-026", "S0-144", "S0-160")
def test_plain_and_encrypted_messages_reach_every_member_and_nobody_else(town: Town) -> None:
    alice, bob, carol = town.member("alice"), town.member("bobby"), town.member("carol")
    gid = found_group(alice, bob)
    assert bob.until("member_added")
    assert alice.say(gid, "plain", encrypt=False)["seq"] == 1
    assert alice.say(gid, "sealed")["seq"] == 2
    assert bob.read(2) == ["plain", "sealed"]
    assert bob.heard("group.message_created")[1]["encrypted"] is True
    bob.say(gid, "answer")
    assert alice.read(1) == ["answer"]
    assert carol.read(0) == []
    with pytest.raises(Refused) as outside:
        carol.call("group.send", group_id=gid, payload={"type": "text", "text": "me too"}, encrypt=False)
    assert outside.value.code == -33006
    stored = b"".join((town.folder / "state" / "store" / name).read_bytes() for name in ("node.db", "node.db-wal"))
    assert b'"sealed"' not in stored
    nothing_was_lost(alice, bob)


def test_who_is_put_out_learns_it_hears_no_more_and_can_come_back(town: Town) -> None:
    alice, bob, carol = town.member("alice"), town.member("bobby"), town.member("carol")
    gid = found_group(alice, bob, carol)
    alice.say(gid, "all three")
    assert bob.read(1) == carol.read(1) == ["all three"]
    assert alice.call("group.kick", group_id=gid, aid=bob.aid)["removed_aid"] == bob.aid
    bob.until("member_removed")
    alice.say(gid, "without bob")
    assert carol.read(2)[-1] == "without bob"
    with pytest.raises(Refused):
        bob.say(gid, "let me")
    alice.call("group.add_member", group_id=gid, aid=bob.aid)
    alice.say(gid, "all again")
    assert bob.read(2) == ["all three", "all again"]
    bob.say(gid, "back")
    assert carol.read(4)[-1] == "back"
    nothing_was_lost(alice, bob, carol)


def test_a_second_device_reads_what_is_said_from_then_on(town: Town) -> None:
    alice, bob = town.member("alice"), town.member("bobby")
    gid = found_group(alice, bob)
    alice.say(gid, "for one device")
    assert bob.read(1) == ["for one device"]
    tablet = town.start(bob.profile.another_device(town.folder / "tablet"))
    tablet.connect()
    for number in range(3):
        alice.say(gid, f"for two {number}")
    assert bob.read(4)[1:] == ["for two 0", "for two 1", "for two 2"]
    assert tablet.read(3)[-3:] == ["for two 0", "for two 1", "for two 2"]


def test_who_was_away_catches_up_with_messages_and_events(town: Town) -> None:
    alice, bob, carol = town.member("alice"), town.member("bobby"), town.member("carol")
    gid = found_group(alice, bob)
    alice.say(gid, "seen")
    assert bob.read(1) == ["seen"]
    bob.do("close")
    wanted = [f"missed {number}" for number in range(25)]
    for number, text in enumerate(wanted):
        alice.say(gid, text, encrypt=number % 3 == 0)
    alice.call("group.add_member", group_id=gid, aid=carol.aid)
    bob = town.again(bob)
    assert bob.read(25) == wanted
    bob.until("member_added")
    nothing_was_lost(bob)


def test_who_was_put_out_while_away_learns_it_at_the_next_connect(town: Town) -> None:
    alice, bob = town.member("alice"), town.member("bobby")
    gid = found_group(alice, bob)
    bob.until("member_added")
    bob.do("close")
    alice.call("group.kick", group_id=gid, aid=bob.aid)
    bob = town.again(bob)
    assert "member_removed" in bob.until("member_removed")
    assert bob.call("group.list_my")["items"] == []


def test_a_certified_group_its_invitations_documents_and_change_of_owner(town: Town) -> None:
    alice, bob = town.member("alice"), town.member("bobby")
    made = alice.facade("create", name="Certified", members=[bob.aid])
    gid = made["group"]["group_id"]
    assert made["group"]["owner_aid"] == alice.aid
    [invite] = bob.heard("group.invite_received", 1)
    assert bob.call("group.accept_invite", invite_id=invite["invite_ids"][0])["status"] == "accepted"
    alice.until("joined")
    alice.say(gid, "sealed")
    assert bob.read(1) == ["sealed"]

    alice.sign("update_announcement", group_id=gid, content="Hello")
    alice.sign("update_rules", group_id=gid, content="Be nice")
    assert bob.facade("get_announcement", group_id=gid)["announcement"]["content"] == "Hello"
    assert bob.facade("get_rules", group_id=gid)["rules"]["content"] == "Be nice"

    assert alice.facade("renew_group_aid", group_id=gid)["old_cert_revoked"] is True
    bob.do("keep_store")
    assert alice.facade("transfer_owner", group_id=gid, new_owner=bob.aid)["status"] == "pending_rekey"
    bob.until("owner_transferred")
    assert alice.call("group.get_info", group_id=gid, required=["member"])["owner_aid"] == bob.aid
    bob.say(gid, "mine now")
    assert alice.read(1) == ["mine now"]
    nothing_was_lost(alice, bob)


def test_a_recall_reaches_who_was_there_and_who_was_away(town: Town) -> None:
    alice, bob, carol = town.member("alice"), town.member("bobby"), town.member("carol")
    gid = found_group(alice, bob, carol)
    sent = alice.say(gid, "oops")
    assert bob.read(1) == carol.read(1) == ["oops"]
    carol.do("close")
    assert alice.call("group.recall", group_id=gid, message_ids=[sent["message_id"]])["recalled"]
    [heard] = bob.heard("group.message_recalled", 1)
    assert heard["message_ids"] == [sent["message_id"]]
    carol = town.again(carol)
    [heard] = carol.heard("group.message_recalled", 1)
    assert heard["message_ids"] == [sent["message_id"]]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_nothing_said_is_lost_and_nothing_acked_comes_again_when_the_node_goes_in_the_middle(
    town: Town, end: str
) -> None:
    alice, bob = town.member("alice", **SOON), town.member("bobby", **SOON)
    gid = found_group(alice, bob)
    # Nothing sealed before a kill: the SDK answers each sealed message with a new prekey, and throws its private half
    # away when the answer to group.v2.put_group_pk is lost, though the node may have it on disk and hand it out.
    for number in range(4):
        alice.say(gid, f"before {number}", encrypt=end == "stop" and number % 2 == 0)
    getattr(town.node, end)()
    acked = town.acked(gid, bob)
    town.node.start()
    for member in (alice, bob):
        member.do("until_ready")
    sent = [alice.say(gid, f"after {number}", encrypt=number % 2 == 0)["seq"] for number in range(4)]
    assert sent == [5, 6, 7, 8]
    said = [f"{when} {number}" for when in ("before", "after") for number in range(4)]
    heard = bob.read(len(said))
    while len(dict.fromkeys(heard)) < len(said):
        more = bob.read(len(heard) + 1)
        assert len(more) > len(heard), f"not heard: {sorted(set(said) - set(heard))}"
        heard = more
    assert list(dict.fromkeys(heard)) == said
    # A client that had heard a message but not acked it pulls it again, and its SDK forgets at every reconnect what it
    # had handed out (aun_core/_client/runtime.py, reset_seq_tracking_state). What was acked never comes again.
    again = {text for text in said if heard.count(text) > 1}
    assert again <= set(said[acked:4])
    assert len(heard) == len(said) + len(again)
    bob.say(gid, "heard you")
    assert alice.read(1) == ["heard you"]
    nothing_was_lost(alice, bob)


def test_the_history_of_a_group_pages_backwards(town: Town) -> None:
    alice, bob = town.member("alice"), town.member("bobby")
    gid = found_group(alice, bob)
    for number in range(7):
        alice.say(gid, f"{number}", encrypt=number % 2 == 0)
    assert bob.read(7) == list("0123456")
    pages: list[list[str]] = []
    before, older = 1 << 50, True
    while older:
        page = bob.call("group.history", group_id=gid, before_seq=before, limit=3)
        seqs = [row["seq"] for row in page["messages"]]
        assert seqs == sorted(set(seqs))
        assert page["next_before_seq"] == page["window_start_seq"] == seqs[0] < before
        pages.append([row["payload"]["text"] for row in page["messages"]])
        before, older = page["next_before_seq"], page["has_older"]
    assert pages == [["4", "5", "6"], ["1", "2", "3"], ["0"]]
    nothing_was_lost(alice, bob)


def test_the_ways_in_open_by_code_and_on_request(town: Town) -> None:
    alice, bob, carol = town.member("alice"), town.member("bobby"), town.member("carol")
    gid = found_group(alice)
    code = alice.call("group.create_invite_code", group_id=gid)["invite_code"]["code"]
    assert bob.call("group.use_invite_code", code=code)["status"] == "joined"
    with pytest.raises(Refused) as used:
        carol.call("group.use_invite_code", code=code)
    assert used.value.code == -33008
    assert carol.call("group.request_join", group_id=gid, message="please")["status"] == "pending"
    alice.until("join_requested")
    assert alice.call("group.review_join_request", group_id=gid, aid=carol.aid, approve=True)["status"] == "approved"
    alice.say(gid, "welcome")
    assert bob.read(1) == carol.read(1) == ["welcome"]
    alice.call("group.dissolve", group_id=gid)
    carol.until("dissolved")
    assert bob.call("group.list_my")["items"] == []
    nothing_was_lost(alice, bob, carol)
