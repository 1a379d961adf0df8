"""The small control-plane names of the published fastaun SDK, unmodified: spec aun-services §1.10."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.peers import Agent, Profile, Refused
from tests.support.process import NodeProcess

pytestmark = [pytest.mark.interop, pytest.mark.needs("peer:fastaun")]

Start = Callable[..., Agent]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path / "state") as made:
        yield made


@pytest.fixture
def start(node: NodeProcess, tmp_path: Path) -> Iterator[Start]:
    """Makes a registered, connected client of a name."""
    with ExitStack() as stack:

        def made(name: str, **options: Any) -> Agent:
            profile = Profile(node, name, tmp_path / name)
            client = stack.enter_context(Agent(profile, script="fastaun_small_agent.py"))
            return client.register().connect(options=options)

        yield made


def test_a_notification_reaches_another_client_and_says_who_sent_it(start: Start) -> None:
    alice, bob = start("alice"), start("bobby")
    alice.do("notify", method="notification/client.activity", params={"state": "idle"})
    alice.do("notify", method="event/app.typing", params={"thread": "t1"}, options={"to": bob.aid, "ttl_ms": 5000})
    [heard] = bob.heard("app.typing", 1)
    assert heard["thread"] == "t1"
    assert (heard["_notify"]["from_aid"], heard["_notify"]["ttl_ms"]) == (alice.aid, 5000)
    assert alice.call("meta.ping")["pong"] is True


def test_a_client_that_is_away_is_woken_by_its_push_server(start: Start) -> None:
    alice, server = start("alice"), start("pusher")
    bob = start("bobby", push_notify_aid=server.aid, push_token="opaque")
    again = bob.do("push", name="register", params={"push_notify_aid": server.aid, "push_token": "newer"})
    assert again["registration_version"] == 2
    bob.do("close")
    alice.send(bob, "wake up", encrypt=True)
    [batch] = server.heard("push.offline_message", 1, within=45)
    [item] = batch["items"]
    assert (item["target_aid"], item["push_token"]) == (bob.aid, "newer")
    ack = {"batch_id": batch["batch_id"], "status": "accepted"}
    assert server.do("push", name="ack", params=ack) == {"status": "applied"}
    assert server.do("push", name="unregister") == {"status": "disabled"}
    with pytest.raises(Refused):
        alice.do("push", name="register", params={"push_server_aid": "push.elsewhere.test", "push_token": "t"})


def test_its_diagnosis_walks_every_method_without_doing_anything(start: Start) -> None:
    alice = start("alice")
    report = alice.do("diag")
    assert [check for check in report["checks"] if check["status"] == "failed"] == []
    assert report["passed"] > 60
    assert alice.call("message.peers", filter="all")["peers"] == []
