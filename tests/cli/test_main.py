from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge.cli.main import main


def imported(*line: str) -> set[str]:
    """The modules that a verb has loaded when it ends."""
    script = f"import sys; from edge.cli.main import main; main({list(line)!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def test_without_a_node_a_verb_says_so_and_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--state-dir", str(tmp_path)]) == 3
    assert capsys.readouterr().err.splitlines() == [
        f"aun-edge: no node is running on {tmp_path}",
        f"  next: aun-edge run --state-dir {tmp_path}, or name the directory of a running one with --state-dir",
    ]


@pytest.mark.parametrize(("line", "verb"), [([], "doctor"), (["device"], "forget"), (["config"], "validate")])
def test_half_a_command_shows_what_may_follow(line: list[str], verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: aun-edge")
    assert verb in said


def test_verbs_that_ask_a_node_import_the_contract_only(tmp_path: Path) -> None:
    loaded = imported("status", "--state-dir", str(tmp_path))
    ours = {name for name in loaded if name.startswith("edge.")}
    assert {name.split(".")[1] for name in ours} == {"cli", "contract"}
    assert not loaded & {"asyncio", "sqlite3", "ssl", "starlette", "uvicorn", "websockets", "cryptography", "aiomqtt"}


def test_the_default_directory_is_used_without_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["device", "list"]) == 3
    assert f"{tmp_path}/aun-edge" in capsys.readouterr().err


def test_a_reader_that_went_away_is_no_failure(tmp_path: Path) -> None:
    script = f"{sys.executable} -m edge.cli.main config list --state-dir {tmp_path} | head -n 1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {script}"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
