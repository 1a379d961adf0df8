from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

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
    assert row == {"topic": "a/b", "payload": "grüße", "encoding": "utf-8", "qos": 1, "retain": False}


def test_bytes_that_are_no_text_are_shown_as_base64(running: NodeProcess, listener: subprocess.Popen[str]) -> None:
    line = [sys.executable, "-m", "edge.cli.main", "mqtt", "pub", "a/c", "-", "--state-dir", str(running.state_dir)]
    row = heard(listener, "a/c", lambda: subprocess.run(line, input=b"\xff\x00", check=True))
    assert (row["payload"], row["encoding"]) == ("/wA=", "base64")


@pytest.mark.parametrize("topic", ["a/#", "", "$SYS/x"])
def test_what_is_no_topic_is_refused(verb: Verb, topic: str) -> None:
    code, _, err = verb("mqtt", "pub", topic, "x")
    assert code == 2
    assert "not a topic" in err
