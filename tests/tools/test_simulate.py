"""The simulated household on a real node, both in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge.cli.client import Control
from tests.support.patience import PATIENCE_S
from tests.support.process import NodeProcess

SIMULATE = Path(__file__).resolve().parents[2] / "tools" / "simulate.py"


class Simulator:
    """`tools/simulate.py` beside a node; ended by its own pid."""

    def __init__(self, node: NodeProcess, *args: str) -> None:
        self.node = node
        self.control = Control(node.state_dir)
        self.process = subprocess.Popen(
            [sys.executable, str(SIMULATE), "--state-dir", str(node.state_dir), "--json", "--interval", "0.2", *args],
            stdout=subprocess.PIPE,
            text=True,
        )

    def skills(self, *wanted: str) -> dict[str, dict[str, Any]]:
        """The node's skills by id, once all the wanted ones are there with a value."""
        until = time.monotonic() + PATIENCE_S
        while True:
            found = {line["id"]: line for line in self.control.call("skill.list")}
            if all(name in found and found[name]["value"] is not None for name in wanted):
                return found
            assert time.monotonic() < until, f"{wanted} are not in {sorted(found)}"
            assert self.process.poll() is None
            time.sleep(0.05)

    def call(self, skill: str, **params: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.control.call("skill.call", {"skill": skill, "params": params, "timeout_s": 20})
        return answer

    def stop(self) -> list[dict[str, Any]]:
        """End it; every event it told."""
        self.process.terminate()
        try:
            out, _ = self.process.communicate(timeout=PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()
        assert self.process.returncode == 0, self.process.returncode
        return [json.loads(line) for line in out.splitlines()]


def test_without_a_node_it_says_so_as_a_verb_does(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SIMULATE), "--state-dir", str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3
    assert f"no node is running on {tmp_path}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with NodeProcess(tmp_path_factory.mktemp("household") / "state") as node:
        simulator = Simulator(node, "--count", "2")
        try:
            yield simulator
        finally:
            if simulator.process.poll() is None:
                simulator.stop()


def test_the_household_appears_with_its_values(simulator: Simulator) -> None:
    found = simulator.skills(
        "sim-thermometer.temperature",
        "sim-thermometer.humidity",
        "sim-balcony.temperature",
        "sim-plug.outlet",
        "sim-lock.lock",
        "sim-lamp.light",
        "sim-lamp.light_brightness",
        "sim-worker.level",
        "sim-load-2.temperature",
    )
    assert {"sim-worker.work", "sim-lamp.flash"} <= found.keys()
    assert found["sim-lock.lock"]["risk"] == "high"
    assert found["sim-plug.outlet"]["online"] is True
    assert isinstance(found["sim-balcony.temperature"]["value"], int | float)


@pytest.mark.parametrize(
    ("skill", "params", "value"),
    [
        ("sim-plug.outlet", {"value": "on"}, True),
        ("sim-plug.outlet", {"verb": "toggle"}, False),
        ("sim-lock.lock", {"verb": "unlock"}, "unlocked"),
        ("sim-lamp.light", {"value": True}, True),
        ("sim-lamp.light_brightness", {"value": 50}, 50),
    ],
)
def test_an_actuator_does_what_it_is_told_and_confirms_it(
    simulator: Simulator, skill: str, params: dict[str, Any], value: object
) -> None:
    simulator.skills(skill)
    answer = simulator.call(skill, **params)
    assert (answer["state"], answer["value"]) == ("completed", value)
    assert answer["text"].startswith("confirmed")


@pytest.mark.parametrize(
    ("do", "state", "text"),
    [
        ("stream 2", "completed", "chunk 1 of 2"),
        ("slow 0.3", "completed", "took 0.3 s"),
        ("twice", "completed", ""),
        ("fail no wood", "failed", ""),
        ("reject", "rejected", ""),
        ("hello", "completed", ""),
    ],
)
def test_the_worker_drives_a_task_by_its_words(simulator: Simulator, do: str, state: str, text: str) -> None:
    simulator.skills("sim-worker.level")
    answer = simulator.call("sim-worker.work", do=do)
    assert answer["state"] == state
    assert text in answer.get("text", "")
    assert bool(answer.get("artifacts")) is (state == "completed")


def test_the_worker_takes_a_value_in_its_range(simulator: Simulator) -> None:
    assert simulator.call("sim-worker.level", value="42")["state"] == "completed"
    assert simulator.skills("sim-worker.level")["sim-worker.level"]["value"] == 42


def test_a_second_run_uses_the_same_users_and_tells_what_it_does(simulator: Simulator) -> None:
    simulator.skills("sim-thermometer.temperature")
    kept = simulator.node.state_dir / "run" / "simulate.json"
    before = kept.read_bytes()
    assert os.stat(kept).st_mode & 0o777 == 0o600
    again = Simulator(simulator.node, "--only", "thermometer")
    assert again.process.stdout is not None
    first = json.loads(again.process.stdout.readline())
    events = again.stop()
    assert (first["device"], first["event"]) == ("sim-thermometer", "connected")
    assert {event["device"] for event in events} <= {"sim-thermometer"}
    assert kept.read_bytes() == before


def test_who_leaves_in_order_says_so(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "state") as node:
        leaving = Simulator(node)
        try:
            all_are(leaving.control, online=True)
        finally:
            leaving.stop()
        all_are(leaving.control, online=False)


def all_are(control: Control, *, online: bool) -> None:
    """Wait until everybody who has a will is there, or gone."""
    wanted = {"sim-thermometer", "sim-worker", "sim-plug", "sim-lock", "sim-lamp"}
    until = time.monotonic() + PATIENCE_S
    while True:
        said = {one["name"]: one["online"] for one in control.call("device.list")}
        if all(said.get(name) is online for name in wanted):
            return
        assert time.monotonic() < until, said
        time.sleep(0.05)
