"""Conversations of both SDKs through the end of the node: a restart, `kill -9`, a restore from a backup.

All of them go on at once on one node, so that each end costs one start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.interop.conversations import LOST, SCRIPTS, SETBACK, Cast
from tests.interop.matrix import left_out
from tests.support.peers import SOON, Refused
from tests.support.process import NodeProcess
from tests.support.town import AUN_CORE, FASTAUN, Sdk, Town

pytestmark = pytest.mark.interop

LOUD = ("--set", "log.levels=edge.dispatch=debug", "--set", "log.rate=0")
"""The log names every call, so that logins can be counted."""


@contextmanager
def told(phrase: str) -> Iterator[None]:
    """A failure names the conversation."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the conversation: {phrase}")
        raise


def logins(node: NodeProcess) -> int:
    return node.log.count("auth.aid_login2 by ")


@pytest.mark.parametrize("end", ["stop", "kill", "restore"])
@pytest.mark.parametrize(
    "sdk",
    [
        pytest.param(FASTAUN, marks=pytest.mark.needs("peer:fastaun"), id="fastaun"),
        pytest.param(AUN_CORE, marks=pytest.mark.needs("peer:aunold"), id="aun-core"),
    ],
)
def test_every_conversation_goes_on_after_the_node_ended_in_the_middle(tmp_path: Path, sdk: Sdk, end: str) -> None:
    backup = tmp_path / "kept.backup"
    with ExitStack() as stack:
        node = stack.enter_context(NodeProcess(tmp_path / "state", *LOUD))
        cast = Cast(Town(node, sdk, tmp_path, stack))
        running = {phrase: script(cast) for phrase, script in SCRIPTS.items() if not left_out(phrase, sdk.name)}
        for phrase, script in running.items():
            with told(phrase):
                next(script)
        if end == "restore":
            node.cli("backup", "create", str(backup))
        for phrase, script in running.items():
            with told(phrase):
                next(script)
        before = logins(node)
        assert before >= len(cast.steady)
        if end == "kill":
            node.kill()
        else:
            assert node.stop() == 0
        if end == "restore":
            node.cli("backup", "restore", "--force", str(backup))
        node.start()
        for client in cast.steady:
            client.do("until_ready")
        assert logins(node) == before
        for phrase, script in running.items():
            with told(phrase), pytest.raises(StopIteration):
                script.send(end == "restore")
        for client in cast.steady:
            assert [client.heard(name) for name in LOST] == [[]] * len(LOST), client.aid
            assert end == "restore" or client.heard(SETBACK) == [], client.aid


@pytest.mark.needs("peer:fastaun")
def test_what_a_restore_forgot_is_done_again_as_the_page_for_operators_says(tmp_path: Path) -> None:
    """An agent that was added since, and one that changed its key since; each registers again with the key it has."""
    backup = tmp_path / "kept.backup"
    with ExitStack() as stack:
        node = stack.enter_context(NodeProcess(tmp_path / "state"))
        town = Town(node, FASTAUN, tmp_path, stack)
        alice, bob = town.client("alice"), town.client("bobby", **SOON)
        alice.send(bob, "before", encrypt=True)
        assert bob.texts(1) == ["before"]
        node.cli("backup", "create", str(backup))
        alice.do("certify", how="rekey")
        carol = town.client("carol")
        for client in (alice, carol):
            town.end(client)
        assert node.stop() == 0
        node.cli("backup", "restore", "--force", str(backup))
        node.start()
        bob.do("until_ready")

        alice, carol = town.start(alice.profile), town.start(carol.profile)
        with pytest.raises(Refused, match="not registered"):
            carol.connect()
        alice.connect()
        with pytest.raises(Refused, match="signature verification failed"):
            alice.send(bob, "with a key that is gone")
        town.end(alice)
        assert node.run("agent", "revoke", alice.profile.name).returncode == 0
        for client in (alice, carol):
            node.cli("agent", "add", client.profile.name)
        for name, client in (("alice", town.start(alice.profile)), ("carol", carol)):
            client.register().connect()
            client.send(bob, f"{name} is back", encrypt=True)
            assert bob.texts(2 if name == "alice" else 3)[-1] == f"{name} is back"
            bob.send(client, "welcome", encrypt=True)
            assert client.texts(1) == ["welcome"]
