"""Groups of the published aun-core 0.2.10 SDK, unmodified, against a real node: spec aun-services §3.11, §5.1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.peers import Agent, Refused
from tests.support.process import NodeProcess
from tests.support.town import AUN_CORE, FASTAUN, Client, Town

pytestmark = [pytest.mark.interop, pytest.mark.needs("peer:aunold")]


def read(member: Agent, count: int) -> list[str]:
    """The texts heard so far, once there are `count`; in the order of their numbers, each once."""
    heard = {one["seq"]: one["payload"] for one in member.heard("group.message_created", count)}
    return [heard[seq]["text"] for seq in sorted(heard)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for all of them."""
    with NodeProcess(tmp_path_factory.mktemp("aun-core") / "state") as made:
        yield made


@pytest.fixture
def village(node: NodeProcess, tmp_path: Path) -> Iterator[Town]:
    with ExitStack() as stack:
        yield Town(node, AUN_CORE, tmp_path, stack)


def found_group(owner: Client, *others: Client) -> str:
    """A group of these, each with the key."""
    gid: str = owner.call("group.create", name="Team")["group"]["group_id"]
    for one in others:
        assert owner.call("group.add_member", group_id=gid, aid=one.aid)["member"]["aid"] == one.aid
        one.until("member_added")
    return gid


def nothing_was_lost(*members: Client) -> None:
    for one in members:
        assert one.heard("group.message_undecryptable") == [], one.aid
        assert one.heard("e2ee.orchestration_error") == [], one.aid


@pytest.mark.seed("S0-160")
def test_plain_and_encrypted_messages_reach_every_member(village: Town) -> None:
    alice, bob, carol = village.client("alice"), village.client("bobby"), village.client("carol")
    gid = found_group(alice, bob)
    assert alice.call("group.e2ee.get_epoch", group_id=gid)["epoch"] == 2
    alice.say(gid, "plain", encrypt=False)
    alice.say(gid, "sealed")
    assert read(bob, 2) == ["plain", "sealed"]
    bob.say(gid, "answer")
    assert read(alice, 3)[-1] == "answer"
    assert alice.call("group.add_member", group_id=gid, aid=carol.aid)
    carol.until("member_added")
    alice.say(gid, "three")
    assert read(carol, 1) == ["three"]
    assert read(bob, 4)[-1] == "three"
    nothing_was_lost(alice, bob, carol)


def test_who_is_put_out_hears_no_more_and_can_come_back(village: Town) -> None:
    alice, bob, carol = village.client("alice"), village.client("bobby"), village.client("carol")
    gid = found_group(alice, bob, carol)
    before = alice.call("group.e2ee.get_epoch", group_id=gid)["epoch"]
    assert alice.call("group.kick", group_id=gid, aid=bob.aid)["removed_aid"] == bob.aid
    bob.until("member_removed")
    alice.say(gid, "without bob")
    assert read(carol, 1) == ["without bob"]
    assert alice.call("group.e2ee.get_epoch", group_id=gid)["epoch"] > before
    with pytest.raises(Refused, match="is not a member"):
        bob.say(gid, "let me", encrypt=False)
    alice.call("group.add_member", group_id=gid, aid=bob.aid)
    alice.say(gid, "all again")
    assert read(carol, 2)[-1] == "all again"
    assert read(bob, 1) == ["all again"]
    nothing_was_lost(alice, bob, carol)


def test_a_client_that_comes_back_gets_what_it_missed(village: Town) -> None:
    alice, bob = village.client("alice"), village.client("bobby")
    gid = found_group(alice, bob)
    alice.say(gid, "seen")
    assert read(bob, 1) == ["seen"]
    bob.do("close")
    wanted = [f"missed {number}" for number in range(5)]
    for number, text in enumerate(wanted):
        alice.say(gid, text, encrypt=number % 2 == 0)
    bob = village.again(bob)
    alice.say(gid, "live")
    assert read(bob, 6)[-6:] == [*wanted, "live"]
    nothing_was_lost(bob)


@pytest.mark.needs("peer:fastaun")
def test_both_generations_talk_in_the_clear_in_one_group(village: Town) -> None:
    old = village.client("alice")
    new = village.other(FASTAUN).client("bobby")
    gid = old.call("group.create", name="Team")["group"]["group_id"]
    old.call("group.add_member", group_id=gid, aid=new.aid)
    old.say(gid, "from the old one", encrypt=False)
    [heard] = new.heard("group.message_created", 1)
    assert heard["payload"]["text"] == "from the old one"
    new.call("group.send", group_id=gid, payload={"type": "text", "text": "from the new one"}, encrypt=False)
    assert read(old, 2)[-1] == "from the new one"
