from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge.cli.main import main
from tests.support.process import NodeProcess

Verb = Callable[..., tuple[int, str, str]]
Asked = Callable[..., Any]


@pytest.fixture
def alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Verb:
    """A verb on a state directory without a running node."""

    def run(*line: str) -> tuple[int, str, str]:
        code = main([*line, "--state-dir", str(tmp_path / "state")])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_a_backup_of_a_running_node_is_good(asked: Asked, verb: Verb, running: NodeProcess, tmp_path: Path) -> None:
    running.cli("device", "add", "lamp")
    made = asked("backup", "create", str(tmp_path / "a.backup"))
    assert made["issuer"] == running.ready["issuer"]
    assert asked("backup", "verify", str(tmp_path / "a.backup")) == {k: v for k, v in made.items() if k != "file"}
    code, out, _ = verb("backup", "verify", str(tmp_path / "a.backup"))
    assert code == 0
    assert out.splitlines()[-1] == "the backup is good"
    assert (tmp_path / "a.backup").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["a.backup"]


def test_without_a_name_it_lies_here_under_issuer_and_time(
    asked: Asked, running: NodeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = asked("backup", "create")
    [file] = tmp_path.iterdir()
    assert made["file"] == str(file)
    assert file.name.startswith(f"aun-edge-{running.ready['issuer']}-2")


def test_a_file_that_is_there_is_not_overwritten(verb: Verb, running: NodeProcess, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    code, _, err = verb("backup", "create", str(tmp_path / "mine"))
    assert code == 1
    assert "already there" in err
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_place_that_cannot_be_written_is_named(verb: Verb, running: NodeProcess, tmp_path: Path) -> None:
    code, _, err = verb("backup", "create", str(tmp_path / "no" / "such" / "a.backup"))
    assert code == 1
    assert f"there is no directory {tmp_path / 'no' / 'such'}" in err


def test_a_restore_over_a_running_node_is_refused(verb: Verb, running: NodeProcess, tmp_path: Path) -> None:
    code, _, err = verb("backup", "restore", "--force", str(tmp_path / "a.backup"))
    assert code == 1
    assert "a node runs on" in err
    assert running.alive


def test_a_resting_node_is_backed_up_and_restored(alone: Verb, tmp_path: Path) -> None:
    file = str(tmp_path / "a.backup")
    assert alone("init", "--issuer", "edge.test")[0] == 0
    code, out, _ = alone("backup", "create", file)
    assert code == 0
    assert f"written: {file}" in out
    code, _, err = alone("backup", "restore", file)
    assert code == 1
    assert f"backup restore --force {file} --state-dir {tmp_path / 'state'}" in err
    code, out, _ = alone("backup", "restore", "--force", file, "--json")
    assert code == 0
    done = json.loads(out)
    assert (done["issuer"], done["incarnation"]) == ("edge.test", 1)
    assert os.listdir(done["aside"])
    code, out, _ = alone("backup", "restore", "--force", file)
    assert code == 0
    assert out.startswith("edge.test is as it was at ")


def test_a_restore_makes_a_node_in_an_empty_directory(alone: Verb, tmp_path: Path) -> None:
    assert alone("init", "--issuer", "edge.test")[0] == 0
    assert alone("backup", "create", str(tmp_path / "a.backup"))[0] == 0
    (tmp_path / "state").rename(tmp_path / "old")
    assert alone("backup", "restore", str(tmp_path / "a.backup"))[0] == 0
    assert (tmp_path / "state" / "identity" / "pki" / "issuer").read_text() == "edge.test\n"


def test_where_there_is_no_node_there_is_nothing_to_back_up(alone: Verb, tmp_path: Path) -> None:
    code, _, err = alone("backup", "create", str(tmp_path / "a.backup"))
    assert code == 1
    assert "there is no node in" in err


def test_a_damaged_backup_is_called_so(alone: Verb, tmp_path: Path) -> None:
    (tmp_path / "photo").write_bytes(os.urandom(3000))
    for line in (("verify",), ("restore", "--force")):
        code, _, err = alone("backup", *line, str(tmp_path / "photo"))
        assert code == 1
        assert "no backup, or damaged" in err
    for line in (("verify",), ("restore", "--force")):
        code, _, err = alone("backup", *line, str(tmp_path / "nothing"))
        assert code == 1
        assert f"there is no file {tmp_path / 'nothing'}" in err
