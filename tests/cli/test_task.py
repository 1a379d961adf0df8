from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.process import NodeProcess

Verb = Callable[..., tuple[int, str, str]]
Asked = Callable[..., Any]


ROBOT = '{"name":"Robot","capabilities":[{"name":"run","kind":"switch","value_type":"boolean","writable":true}]}'


@pytest.fixture(scope="module")
def robot(running: NodeProcess) -> str:
    """A native device that has announced itself and says that it is offline."""
    made = running.cli("device", "add", "robot")
    for topic, payload in (("announce", ROBOT), ("online", "0")):
        line = ["mqtt", "pub", f"aun/v1/robot/{topic}", payload, "--retain", "--username", "robot"]
        said = running.run(*line, "--password-file", "-", input_text=made["password"])
        assert said.returncode == 0, said.stderr
    return "robot.run"


def test_an_order_that_waits_says_for_what_until_when_and_how_to_see_it(verb: Verb, asked: Asked, robot: str) -> None:
    code, out, err = verb("skill", "call", robot, "on", "--timeout", "0")
    order = asked("task", "list")[0]["task_id"]
    assert code == 75
    assert "robot is offline: the order is kept, goes out when it is back, and ends at 2" in err
    assert f"next: aun-edge task show {order}" in err
    assert order in out


def test_orders_are_listed_shown_and_called_off(verb: Verb, asked: Asked, robot: str) -> None:
    code, out, _ = verb("skill", "call", robot, "on", "--timeout", "0", "--json")
    said = json.loads(out)
    assert (code, said["kept"], said["until"] > 0) == (75, True, True)
    order = said["task_id"]
    assert [one["skill"] for one in asked("task", "list", "--limit", "1")] == [robot]
    assert order in [one["task_id"] for one in asked("task", "list", "--status", "submitted")]
    assert asked("task", "show", order)["status"] == "submitted"
    assert "… and older ones: --limit" in verb("task", "list", "--limit", "1")[1]
    assert verb("task", "cancel", order) == (0, f"{order} is canceled\n", "")
    assert asked("task", "show", order)["status"] == "canceled"
    code, _, err = verb("task", "cancel", order)
    assert (code, "next: aun-edge task list" in err) == (1, True)
    code, _, err = verb("task", "show", "nobody")
    assert (code, "next: aun-edge task list" in err) == (2, True)
    code, _, err = verb("task", "list", "--status", "nonsense")
    assert (code, "no such status" in err) == (2, True)


def test_an_order_that_nobody_answers_says_so(verb: Verb, robot: str, running: NodeProcess, asked: Asked) -> None:
    assert verb("mqtt", "pub", "aun/v1/robot/online", "1")[0] == 0
    code, _, err = verb("skill", "call", robot, "on", "--timeout", "1")
    assert code == 75
    assert "the order was sent to robot, which has not answered within 1 s; it ends at" in err
