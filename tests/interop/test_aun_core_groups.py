"""Groups of the published aun-core 0.2.10 SDK, unmodified, against a real node: spec aun-services §3.11, §5.1."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.peers import SOON, Agent, Profile, Refused, Restored
from tests.support.village import Village

pytestmark = [pytest.mark.interop, pytest.mark.needs("peer:aunold")]


class Member(Agent):
    """A client that talks in groups."""

    def say(self, gid: str, text: str, *, encrypt: bool = True) -> Any:
        """group.send of a text."""
        return self.call("group.send", group_id=gid, payload={"type": "text", "text": text}, encrypt=encrypt)

    def read(self, count: int, within: float = 15) -> list[str]:
        """The texts heard so far, once there are `count`; in the order of their numbers, each once."""
        heard = {one["seq"]: one["payload"] for one in self.heard("group.message_created", count, within)}
        return [heard[seq]["text"] for seq in sorted(heard)]

    def until(self, action: str) -> None:
        """Wait until this change of a group was heard of."""
        for _ in range(150):
            if action in (found := [one["action"] for one in self.heard("group.changed")]):
                return
            time.sleep(0.1)
        raise AssertionError(f"{action} was not heard: {found}")


@pytest.fixture
def village(tmp_path: Path) -> Iterator[Village[Member]]:
    with ExitStack() as stack:
        yield Village(tmp_path, stack, Member, "aun_core_groups.py")


def found_group(owner: Member, *others: Member) -> str:
    """A group of these, each with the key."""
    gid: str = owner.call("group.create", name="Team")["group"]["group_id"]
    for one in others:
        assert owner.call("group.add_member", group_id=gid, aid=one.aid)["member"]["aid"] == one.aid
        one.until("member_added")
    return gid


def nothing_was_lost(*members: Member) -> None:
    for one in members:
        assert one.heard("group.message_undecryptable") == [], one.aid
        assert one.heard("e2ee.orchestration_error") == [], one.aid


@pytest.mark.seed("S0-160")
def test_plain_and_encrypted_messages_reach_every_member(village: Village[Member]) -> None:
    alice, bob, carol = village.agent("alice"), village.agent("bobby"), village.agent("carol")
    gid = found_group(alice, bob)
    assert alice.call("group.e2ee.get_epoch", group_id=gid)["epoch"] == 2
    alice.say(gid, "plain", encrypt=False)
    alice.say(gid, "sealed")
    assert bob.read(2) == ["plain", "sealed"]
    bob.say(gid, "answer")
    assert alice.read(3)[-1] == "answer"
    assert alice.call("group.add_member", group_id=gid, aid=carol.aid)
    carol.until("member_added")
    alice.say(gid, "three")
    assert carol.read(1) == ["three"]
    assert bob.read(4)[-1] == "three"
    nothing_was_lost(alice, bob, carol)


def test_who_is_put_out_hears_no_more_and_can_come_back(village: Village[Member]) -> None:
    alice, bob, carol = village.agent("alice"), village.agent("bobby"), village.agent("carol")
    gid = found_group(alice, bob, carol)
    before = alice.call("group.e2ee.get_epoch", group_id=gid)["epoch"]
    assert alice.call("group.kick", group_id=gid, aid=bob.aid)["removed_aid"] == bob.aid
    bob.until("member_removed")
    alice.say(gid, "without bob")
    assert carol.read(1) == ["without bob"]
    assert alice.call("group.e2ee.get_epoch", group_id=gid)["epoch"] > before
    with pytest.raises(Refused, match="is not a member"):
        bob.say(gid, "let me", encrypt=False)
    alice.call("group.add_member", group_id=gid, aid=bob.aid)
    alice.say(gid, "all again")
    assert carol.read(2)[-1] == "all again"
    assert bob.read(1) == ["all again"]
    nothing_was_lost(alice, bob, carol)


def test_a_client_that_comes_back_gets_what_it_missed(village: Village[Member]) -> None:
    alice, bob = village.agent("alice"), village.agent("bobby")
    gid = found_group(alice, bob)
    alice.say(gid, "seen")
    assert bob.read(1) == ["seen"]
    bob.do("close")
    wanted = [f"missed {number}" for number in range(5)]
    for number, text in enumerate(wanted):
        alice.say(gid, text, encrypt=number % 2 == 0)
    bob = village.again(bob)
    alice.say(gid, "live")
    assert bob.read(6)[-6:] == [*wanted, "live"]
    nothing_was_lost(bob)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_nothing_said_is_lost_when_the_node_goes_in_the_middle(village: Village[Member], end: str) -> None:
    alice, bob = village.agent("alice", **SOON), village.agent("bobby", **SOON)
    gid = found_group(alice, bob)
    alice.say(gid, "before")
    assert alice.read(1) == bob.read(1) == ["before"]
    getattr(village.node, end)()
    village.node.start()
    for member in (alice, bob):
        member.do("until_ready")
    assert alice.say(gid, "after")["seq"] == 2
    assert bob.read(2) == ["before", "after"]
    nothing_was_lost(alice, bob)


def test_a_jump_of_numbers_does_not_choke_the_client(village: Village[Member]) -> None:
    """After a restore numbers begin anew far above (D18); this SDK lists every number of a gap in memory."""
    alice, bob = village.agent("alice", **SOON), village.agent("bobby", **SOON)
    gid = found_group(alice, bob)
    with Restored(village.node) as node:
        alice.say(gid, "kept")
        assert bob.read(1) == ["kept"]
        node.keep()
        for member in (alice, bob):
            member.do("until_ready")
        alice.say(gid, "lost", encrypt=False)
        assert bob.read(2)[-1] == "lost"
    for member in (alice, bob):
        member.do("until_ready")
    for text in ("one", "two"):
        assert alice.say(gid, text)["seq"] > 1 << 40
    assert bob.read(4)[2:] == ["one", "two"]
    alice.call("group.set_role", group_id=gid, aid=bob.aid, role="admin")
    bob.until("role_changed")


@pytest.mark.needs("peer:fastaun")
def test_both_generations_talk_in_the_clear_in_one_group(village: Village[Member]) -> None:
    old = village.agent("alice")
    profile = Profile(village.node, "bobby", village.folder / "bobby")
    new = village.stack.enter_context(Agent(profile, "fastaun", "fastaun_groups.py")).register().connect()
    gid = old.call("group.create", name="Team")["group"]["group_id"]
    old.call("group.add_member", group_id=gid, aid=new.aid)
    old.say(gid, "from the old one", encrypt=False)
    [heard] = new.heard("group.message_created", 1)
    assert heard["payload"]["text"] == "from the old one"
    new.call("group.send", group_id=gid, payload={"type": "text", "text": "from the new one"}, encrypt=False)
    assert old.read(2)[-1] == "from the new one"
