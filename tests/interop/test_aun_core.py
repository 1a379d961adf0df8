"""The published aun-core 0.2.10 SDK, unmodified, against a real node: spec aun-services §3.11, §5.1; settled G47."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.peers import SOON, Agent, Profile, Restored
from tests.support.village import Village

pytestmark = [pytest.mark.interop, pytest.mark.needs("peer:aunold")]


@pytest.fixture
def village(tmp_path: Path) -> Iterator[Village[Agent]]:
    with ExitStack() as stack:
        yield Village(tmp_path, stack, Agent, "aun_core_agent.py")


@pytest.mark.seed("S0-140", "S0-144")
def test_two_clients_exchange_plain_and_encrypted_messages(village: Village[Agent]) -> None:
    alice, bob = village.agent("alice"), village.agent("bobby")
    assert alice.call("meta.ping")["pong"] is True
    assert alice.send(bob, "plain")["seq"] == 1
    assert alice.send(bob, "sealed", encrypt=True)["seq"] == 2
    assert bob.texts(2) == ["plain", "sealed"]
    assert [one["encrypted"] for one in bob.heard("message.received")] == [False, True]
    assert [one["ack_seq"] for one in alice.heard("message.ack", 2)] == [1, 2]
    bob.send(alice, "answer", encrypt=True)
    assert alice.texts(1) == ["answer"]


def test_a_client_that_comes_back_pulls_what_it_missed(village: Village[Agent]) -> None:
    alice, bob = village.agent("alice"), village.agent("bobby")
    alice.send(bob, "seen")
    assert bob.texts(1) == ["seen"]
    alice.heard("message.ack", 1)
    bob.do("close")
    for number in range(5):
        alice.send(bob, f"missed {number}", encrypt=number % 2 == 0)
    bob = village.again(bob)
    page = bob.call("message.pull", after_seq=1)
    assert [row["payload"]["text"] for row in page["messages"]] == [f"missed {number}" for number in range(5)]
    alice.send(bob, "live")
    assert bob.texts(1) == ["live"]
    assert [one["ack_seq"] for one in alice.heard("message.ack", 3)][-1] == 7


def test_two_devices_each_get_an_encrypted_copy(village: Village[Agent]) -> None:
    alice, bob = village.agent("alice"), village.agent("bobby")
    tablet = village.start(bob.profile.another_device(village.folder / "tablet"))
    tablet.do("connect", **village.door)
    alice.send(bob, "for both", encrypt=True)
    assert bob.texts(1) == tablet.texts(1) == ["for both"]
    bob.send(alice, "from one of us", encrypt=True)
    assert alice.texts(1) == ["from one of us"]
    assert tablet.texts(2)[-1] == "from one of us"


def test_a_client_comes_back_by_itself_when_the_node_restarts(village: Village[Agent]) -> None:
    alice, bob = village.agent("alice", **SOON), village.agent("bobby", **SOON)
    alice.send(bob, "before")
    assert bob.texts(1) == ["before"]
    assert village.node.stop() == 0
    village.node.start()
    for client in (alice, bob):
        client.do("until_ready")
    assert alice.send(bob, "after")["seq"] == 2
    assert bob.texts(2) == ["before", "after"]


def test_a_jump_of_numbers_does_not_choke_the_client(village: Village[Agent]) -> None:
    """After a restore numbers begin anew far above (D18); this SDK lists every number of a gap in memory."""
    alice, bob = village.agent("alice", **SOON), village.agent("bobby", **SOON)
    with Restored(village.node) as node:
        alice.send(bob, "kept")
        assert bob.texts(1) == ["kept"]
        alice.heard("message.ack", 1)
        node.keep()
        for client in (alice, bob):
            client.do("until_ready")
        alice.send(bob, "lost")
        assert bob.texts(2)[-1] == "lost"
        alice.heard("message.ack", 2)
    for client in (alice, bob):
        client.do("until_ready")
    for text in ("one", "two"):
        assert alice.send(bob, text)["seq"] > 1 << 40
    assert bob.texts(4)[2:] == ["one", "two"]
    page = bob.call("message.pull", after_seq=2)
    while page["has_more"]:
        page = bob.call("message.pull", after_seq=page["latest_seq"])
    assert [row["payload"]["text"] for row in page["messages"]] == ["one", "two"]


@pytest.mark.needs("peer:fastaun")
def test_both_generations_exchange_plain_text(village: Village[Agent]) -> None:
    old = village.agent("alice")
    profile = Profile(village.node, "bobby", village.folder / "bobby")
    new = village.stack.enter_context(Agent(profile)).register().connect()
    old.send(new, "from the old one")
    assert new.texts(1) == ["from the old one"]
    new.send(old, "from the new one")
    assert old.texts(1) == ["from the new one"]


def test_large_payloads_arrive_and_too_large_ones_are_named(village: Village[Agent]) -> None:
    """The SDK drops the connection at a frame above 1 MiB, so that it gets a stand-in for the largest payloads."""
    alice, bob = village.agent("alice"), village.agent("bobby")
    alice.send(bob, "x" * 1_040_000)
    alice.send(bob, "x" * (1_048_576 - 25))
    alice.send(bob, "small")
    first, second, third = (one["payload"] for one in bob.heard("message.received", 3, within=30))
    assert len(first["text"]) == 1_040_000
    assert (second["type"], second["octets"] >= 1_048_576) == ("message.oversize", True)
    assert third["text"] == "small"
    page = bob.call("message.pull", after_seq=1)
    assert page["messages"][0]["payload"]["type"] == "message.oversize"
