from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.process import NodeProcess

Verb = Callable[..., tuple[int, str, str]]
Asked = Callable[..., Any]

FOREIGN = '{"name":"Warmth","unique_id":"f","state_topic":"somebody/else"}'


@pytest.fixture(scope="module")
def attic(running: NodeProcess, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A device that named another one's topic."""
    made = running.cli("device", "add", "attic")
    password = tmp_path_factory.mktemp("attic") / "password"
    password.write_text(made["password"])
    who = ["--username", "attic", "--password-file", str(password)]
    done = running.run("mqtt", "pub", "homeassistant/sensor/attic/f/config", FOREIGN, *who)
    assert (done.returncode, done.stderr) == (0, "")
    return "attic"


def test_drops_are_told_by_reason_and_client(asked: Asked, attic: str) -> None:
    (line,) = asked("queue", "drops", "--client", attic)["lines"]
    assert (line["log"], line["reason"], line["count"]) == ("discovery", "foreign_topic", 1)
    assert asked("queue", "drops", "--reason", "foreign topic", "--since", "1h")["matching"] >= 1


def test_a_reason_that_there_is_not_is_told_with_those_there_are(verb: Verb, attic: str) -> None:
    code, _, err = verb("queue", "drops", "--reason", "nonsense")
    assert code == 2
    assert "no such reason: nonsense; there are: " in err
    assert "queue_full" in err
    assert verb("queue", "drops", "--reason", "queue_full") == (0, "nothing was lost\n", "")


def test_drops_are_a_table_for_people(verb: Verb, attic: str) -> None:
    code, out, _ = verb("queue", "drops")
    assert code == 0
    assert out.splitlines()[0].split() == ["COUNT", "LOG", "CLASS", "REASON", "CLIENT", "LAST"]
    assert [line for line in out.splitlines() if "foreign_topic" in line and attic in line]
    assert "ever, by log and reason:" in out


def test_nothing_lost_is_said(verb: Verb, running: NodeProcess) -> None:
    assert verb("queue", "drops", "--client", "nobody")[:2] == (0, "nothing was lost\n")


def test_a_strange_duration_is_usage(verb: Verb, running: NodeProcess) -> None:
    code, _, err = verb("queue", "drops", "--since", "soon")
    assert code == 2
    assert "soon" in err
