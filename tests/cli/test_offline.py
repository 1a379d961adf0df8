from __future__ import annotations

from pathlib import Path

import pytest

from edge.cli.main import main
from tests.support.process import NodeProcess

Said = pytest.CaptureFixture[str]


def test_init_makes_the_keys_and_the_issuer_once(tmp_path: Path, capsys: Said) -> None:
    state = tmp_path / "state"
    assert main(["init", "--issuer", "home.test", "--state-dir", str(state)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"made: home.test in {state}",
        f"  next: aun-edge run --state-dir {state}",
    ]
    assert main(["init", "--state-dir", str(state)]) == 0
    assert capsys.readouterr().out.startswith("already there: home.test")
    assert state.stat().st_mode & 0o777 == 0o700


def test_the_issuer_cannot_change(tmp_path: Path, capsys: Said) -> None:
    main(["init", "--issuer", "home.test", "--state-dir", str(tmp_path / "state")])
    assert main(["init", "--issuer", "other.test", "--state-dir", str(tmp_path / "state")]) == 1
    assert "home.test" in capsys.readouterr().err


def test_init_beside_a_running_node_is_refused(running: NodeProcess, capsys: Said) -> None:
    assert main(["init", "--state-dir", str(running.state_dir)]) == 1
    assert "another node already runs" in capsys.readouterr().err


def test_a_second_node_on_a_directory_is_refused(running: NodeProcess) -> None:
    done = running.run("run")
    assert done.returncode == 1
    assert "another node already runs" in done.stderr


@pytest.mark.parametrize("word", ["http.listen=1.2.3.4:80", "htp.listen=x", "http.listen"])
def test_a_refused_setting_ends_the_start_with_usage(running: NodeProcess, tmp_path: Path, word: str) -> None:
    done = NodeProcess(tmp_path / "fresh").run("run", "--set", word)
    assert done.returncode == 2
    assert f"--set {word.partition('=')[0]}" in done.stderr
    assert "next: aun-edge config validate" in done.stderr
