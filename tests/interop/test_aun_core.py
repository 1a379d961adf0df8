"""The published aun-core 0.2.10 SDK, unmodified, against a real node: spec aun-services §3.11, §5.1; settled G47."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.peers import Refused
from tests.support.process import NodeProcess
from tests.support.town import AUN_CORE, FASTAUN, Town

pytestmark = [pytest.mark.interop, pytest.mark.needs("peer:aunold")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for all of them."""
    with NodeProcess(tmp_path_factory.mktemp("aun-core") / "state") as made:
        yield made


@pytest.fixture
def village(node: NodeProcess, tmp_path: Path) -> Iterator[Town]:
    with ExitStack() as stack:
        yield Town(node, AUN_CORE, tmp_path, stack)


@pytest.mark.seed("S0-140", "S0-144")
def test_two_clients_exchange_plain_and_encrypted_messages(village: Town) -> None:
    alice, bob = village.client("alice"), village.client("bobby")
    assert alice.call("meta.ping")["pong"] is True
    assert alice.send(bob, "plain")["seq"] == 1
    assert alice.send(bob, "sealed", encrypt=True)["seq"] == 2
    assert bob.texts(2) == ["plain", "sealed"]
    assert [one["encrypted"] for one in bob.heard("message.received")] == [False, True]
    assert [one["ack_seq"] for one in alice.heard("message.ack", 2)] == [1, 2]
    bob.send(alice, "answer", encrypt=True)
    assert alice.texts(1) == ["answer"]


def test_a_client_that_comes_back_pulls_what_it_missed(village: Town) -> None:
    alice, bob = village.client("alice"), village.client("bobby")
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


def test_two_devices_each_get_an_encrypted_copy(village: Town) -> None:
    alice, bob = village.client("alice"), village.client("bobby")
    tablet = village.device(bob, "tablet")
    alice.send(bob, "for both", encrypt=True)
    assert bob.texts(1) == tablet.texts(1) == ["for both"]
    bob.send(alice, "from one of us", encrypt=True)
    assert alice.texts(1) == ["from one of us"]
    assert tablet.texts(2)[-1] == "from one of us"


def test_a_recall_reaches_the_recipient_and_leaves_a_tombstone(village: Town) -> None:
    alice, bob = village.client("alice"), village.client("bobby")
    sent = [alice.send(bob, text, encrypt=text == "oops") for text in ("first", "oops", "last")]
    assert sorted(bob.texts(3)) == ["first", "last", "oops"]
    answer = alice.call("message.recall", message_ids=[sent[1]["message_id"], "m-unknown"])
    assert (answer["accepted"], answer["recalled"]) == (2, 1)
    assert [(one["message_id"], one["error"]) for one in answer["errors"]] == [("m-unknown", "not_found")]
    [recalled] = bob.heard("message.recalled", 1)
    assert recalled["message_ids"] == [sent[1]["message_id"]]
    rows = {row["seq"]: row for row in bob.call("message.pull", after_seq=0)["messages"]}
    assert [rows[one["seq"]].get("type") == "message.recalled" for one in sent] == [False, True, False]
    assert "oops" not in str(rows)
    with pytest.raises(Refused) as nobodys:
        alice.call("message.recall", message_ids=[])
    assert nobodys.value.code == -32602


def test_the_calls_for_new_certificates_that_pass_no_signature_are_refused(village: Town) -> None:
    """The SDK gives its application no nonce to sign; its session alone must not be able to change a key."""
    alice = village.client("alice")
    for method in ("auth.renew_cert", "auth.rekey"):
        with pytest.raises(Refused) as refused:
            alice.call(method, aid=alice.aid, public_key="", new_public_key="")
        assert refused.value.code == -32602
    assert alice.call("meta.ping")["pong"] is True


@pytest.mark.needs("peer:fastaun")
def test_both_generations_exchange_plain_text(village: Town) -> None:
    old = village.client("alice")
    new = village.other(FASTAUN).client("bobby")
    old.send(new, "from the old one")
    assert new.texts(1) == ["from the old one"]
    new.send(old, "from the new one")
    assert old.texts(1) == ["from the new one"]


def test_large_payloads_arrive_and_too_large_ones_are_named(village: Town) -> None:
    """The SDK drops the connection at a frame above 1 MiB, so that it gets a stand-in for the largest payloads."""
    alice, bob = village.client("alice"), village.client("bobby")
    alice.send(bob, "x" * 1_040_000)
    alice.send(bob, "x" * (1_048_576 - 25))
    alice.send(bob, "small")
    first, second, third = (one["payload"] for one in bob.heard("message.received", 3, within=30))
    assert len(first["text"]) == 1_040_000
    assert (second["type"], second["octets"] >= 1_048_576) == ("message.oversize", True)
    assert third["text"] == "small"
    page = bob.call("message.pull", after_seq=1)
    assert page["messages"][0]["payload"]["type"] == "message.oversize"


def test_who_has_filled_their_share_of_an_inbox_is_told_and_goes_on(tmp_path: Path) -> None:
    with ExitStack() as stack, NodeProcess(tmp_path / "state", "--set", "limits.message.inbox_rows=4") as node:
        village = Town(node, AUN_CORE, tmp_path, stack)
        alice, bob = village.client("alice"), village.client("bobby")
        for text in ("one", "two"):
            alice.send(bob, text)
        with pytest.raises(Refused) as over:
            alice.send(bob, "three")
        assert (over.value.kind, over.value.code) == ("RateLimitError", -32029)
        assert bob.texts(2) == ["one", "two"]
        assert alice.call("meta.ping")["pong"] is True
