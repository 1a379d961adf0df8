from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.process import NodeProcess

Verb = Callable[..., tuple[int, str, str]]


@pytest.fixture
def listener(running: NodeProcess) -> Iterator[subprocess.Popen[str]]:
    """`mqtt sub` of everything, in a process of its own."""
    line = ["mqtt", "sub", "#", "--json", "--state-dir", str(running.state_dir)]
    with subprocess.Popen([sys.executable, "-m", "edge.cli.main", *line], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def heard(listener: subprocess.Popen[str], topic: str, say: Callable[[], object]) -> dict[str, object]:
    """What the listener prints of a topic. It may still be on its way in, so the word is said until it is heard."""
    assert listener.stdout is not None
    import selectors

    with selectors.DefaultSelector() as ready:
        ready.register(listener.stdout, selectors.EVENT_READ)
        for _ in range(100):
            say()
            if ready.select(timeout=0.3):
                row: dict[str, object] = json.loads(listener.stdout.readline())
                assert row["topic"] == topic
                return row
    raise AssertionError("nothing was heard")


def test_what_is_published_is_heard(verb: Verb, listener: subprocess.Popen[str]) -> None:
    row = heard(listener, "a/b", lambda: verb("mqtt", "pub", "a/b", "grüße"))
    assert row == {"topic": "a/b", "payload": "grüße", "encoding": "utf-8", "qos": 1, "retain": False, "kept": False}


def test_what_is_retained_is_shown_first_and_marked(verb: Verb, running: NodeProcess) -> None:
    assert verb("mqtt", "pub", "kept/x", "old", "--retain")[0] == 0
    assert verb("mqtt", "sub", "kept/#", "--count", "1") == (0, "kept/x old  [retained]\n", "")
    code, out, _ = verb("mqtt", "sub", "kept/#", "--count", "1", "--json")
    row = {"topic": "kept/x", "payload": "old", "encoding": "utf-8", "qos": 1, "retain": True, "kept": True}
    assert (code, json.loads(out)) == (0, row)
    assert verb("mqtt", "pub", "kept/x", "", "--retain")[0] == 0


def test_bytes_that_are_no_text_are_shown_as_base64(running: NodeProcess, listener: subprocess.Popen[str]) -> None:
    line = [sys.executable, "-m", "edge.cli.main", "mqtt", "pub", "a/c", "-", "--state-dir", str(running.state_dir)]
    row = heard(listener, "a/c", lambda: subprocess.run(line, input=b"\xff\x00", check=True))
    assert (row["payload"], row["encoding"]) == ("/wA=", "base64")


@pytest.mark.parametrize("topic", ["a/#", "", "$SYS/x"])
def test_what_is_no_topic_is_refused(verb: Verb, topic: str) -> None:
    code, _, err = verb("mqtt", "pub", topic, "x")
    assert code == 2
    assert "not a topic" in err


@pytest.mark.needs("mosquitto_pub")
def test_a_user_with_a_password_of_their_own_comes_and_goes(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "state") as node:
        port = node.ready["endpoints"]["mqtt"].rsplit(":", 1)[1]

        def published(password: str) -> int:
            where = ["-h", "127.0.0.1", "-p", port, "-u", "bob", "-P", password]
            command = ["mosquitto_pub", *where, "-q", "1", "-t", "bob/x", "-m", "1"]
            return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode

        short = node.run("mqtt", "user", "add", "bob", "--password-file", "-", input_text="short\n")
        assert short.returncode != 0
        assert "10 characters or more" in short.stderr
        added = node.run("mqtt", "user", "add", "bob", "--password-file", "-", input_text="correct horse\n")
        assert added.returncode == 0, added.stderr
        assert published("correct horse") == 0
        assert published("wrong horse") == 4
        assert node.cli("mqtt", "user", "list") == [{"name": "bob", "admin": False, "topics": ["bob/#"]}]
        (tmp_path / "password").write_text("another horse\n")
        changed = node.run("mqtt", "user", "password", "bob", "--password-file", str(tmp_path / "password"))
        assert changed.returncode == 0, changed.stderr
        assert (published("correct horse"), published("another horse")) == (4, 0)
        assert node.stop() == 0
        node.start()
        port = node.ready["endpoints"]["mqtt"].rsplit(":", 1)[1]
        assert published("another horse") == 0
        assert node.run("mqtt", "user", "remove", "bob").returncode == 0
        assert published("another horse") == 4
        assert "horse" not in node.log
