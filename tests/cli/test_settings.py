from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge.cli.main import main
from tests.support.process import NodeProcess

Said = pytest.CaptureFixture[str]


def run(*line: str) -> int:
    return main(["config", *line])


def answer(said: Said) -> Any:
    return json.loads(said.readouterr().out)


@pytest.fixture
def state(tmp_path: Path) -> str:
    return f"--state-dir={tmp_path / 'state'}"


def test_a_setting_is_told_with_where_it_comes_from(state: str, tmp_path: Path, capsys: Said) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("[log]\nrate = 7\n")
    assert run("get", "log.rate", "--json", f"--config={mine}", state) == 0
    assert answer(capsys) == {"key": "log.rate", "value": 7, "origin": f"{mine}:2"}


def test_an_unknown_setting_ends_with_no_match(state: str, capsys: Said) -> None:
    assert run("get", "log.rte", state) == 2
    assert "no such setting: log.rte" in capsys.readouterr().err


def test_a_changed_setting_is_in_force_for_the_next_start(state: str, tmp_path: Path, capsys: Said) -> None:
    assert run("set", "log.rate", "9", state) == 0
    assert run("set", "log.level=debug", "node.name=", state) == 0
    said = capsys.readouterr().out
    assert "in force at the next start" in said
    assert run("list", "--json", state) == 0
    changed = {row["key"]: row["value"] for row in answer(capsys) if row["origin"] != "default"}
    assert changed == {"log.rate": 9, "log.level": "debug", "node.name": ""}
    assert (tmp_path / "state" / "config.d" / "90-local.toml").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


def test_an_unset_setting_is_the_default_again(state: str, capsys: Said) -> None:
    run("set", "log.rate", "9", state)
    assert run("set", "--unset", "log.rate", state) == 0
    capsys.readouterr()
    run("get", "log.rate", state)
    assert capsys.readouterr().out == "60\n"


@pytest.mark.parametrize("change", ["log.rate=-1", "log.rte=1", "log.rate"])
def test_a_change_that_would_stop_the_start_is_refused(state: str, tmp_path: Path, capsys: Said, change: str) -> None:
    assert run("set", change, state) == 2
    assert "next: aun-edge config" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


def test_another_issuer_than_at_the_first_start_is_refused_before_the_next(
    state: str, tmp_path: Path, capsys: Said
) -> None:
    assert run("set", "node.issuer=Home.Test", state) == 0
    assert main(["init", state]) == 0
    assert run("set", "node.issuer=home.test.", state) == 0
    assert run("set", "node.issuer=other.test", state) == 2
    assert "the issuer of this node is home.test, fixed at its first start" in capsys.readouterr().err
    local = tmp_path / "state" / "config.d" / "90-local.toml"
    assert "home.test" in local.read_text()
    local.write_text('[log]\nrate = 7\n[node]\nissuer = "other.test"\n')
    assert run("validate", state) == 1
    assert f"{local}:4: node.issuer: the issuer of this node is home.test" in capsys.readouterr().err
    assert main(["doctor", state]) == 1
    assert f"configuration: {local}:4: node.issuer" in capsys.readouterr().out
    assert main(["init", state]) == 2
    assert main(["run", state]) == 2
    assert f"{local}:4: node.issuer" in capsys.readouterr().err
    assert run("set", "--unset", "node.issuer", state) == 0
    assert run("validate", state) == 0


def test_limits_are_settings(state: str, capsys: Said) -> None:
    run("list", "--json", state)
    limits = [row for row in answer(capsys) if row["key"].startswith("limits.")]
    assert len(limits) > 5


def test_a_bad_file_is_validated_with_its_lines(state: str, tmp_path: Path, capsys: Said) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("[log]\nlevel = 'loud'\n")
    assert run("validate", "--json", f"--config={bad}", state) == 1
    assert answer(capsys) == [
        {"key": "log.level", "place": f"{bad}:2", "why": "'loud' is refused; allowed: debug, info, warning, error"}
    ]
    assert run("validate", f"--config={bad}", state) == 1
    assert f"{bad}:2: log.level" in capsys.readouterr().err


def test_a_good_configuration_is_said_to_be_good(state: str, capsys: Said) -> None:
    assert run("validate", state) == 0
    assert capsys.readouterr().out == "the configuration is good\n"
    assert run("validate", "--json", state) == 0
    assert answer(capsys) == []


Verb = Callable[..., tuple[int, str, str]]


def test_a_running_node_takes_log_settings_at_once(verb: Verb, running: NodeProcess) -> None:
    assert "in force now" in verb("config", "set", "log.level=debug")[1]
    assert "in force at the next start: node.name" in verb("config", "set", "log.level=info", "node.name=x")[1]
    verb("config", "set", "log.format=json")
    verb("device", "add", "porch")
    last = [line for line in running.log.splitlines() if "device.add" in line][-1]
    assert json.loads(last)["module"] == "edge.audit"
