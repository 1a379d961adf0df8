from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge.store import migrate
from tests.support.process import QUIET, READY_S, NodeProcess


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edge.cli.main", *args], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )


def test_the_program_starts_says_one_line_and_leaves_in_order(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "state", "--issuer", "edge.test")
    node.start()
    ready = node.ready
    assert stat.S_IMODE((tmp_path / "state" / "run" / "ready.json").stat().st_mode) == 0o600
    assert node.stop() == 0
    points = ready["endpoints"]
    assert f"ready edge.test mqtt={points['mqtt']} http={points['http']}" in node.log.splitlines()


def test_everything_in_the_state_directory_is_the_owners_alone(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "state") as node:
        for path in node.state_dir.rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_second_node_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "state") as node:
        done = run("run", "--state-dir", str(node.state_dir))
        assert done.returncode == 1
        assert "another node already runs" in done.stderr


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("log.level=loud", "debug, info, warning, error"),
        ("log.leveel=info", "log.level"),
        ("http.listen=here", "host:port"),
    ],
)
def test_a_wrong_setting_is_refused_at_the_start_with_what_is_allowed(tmp_path: Path, setting: str, says: str) -> None:
    done = run("run", "--state-dir", str(tmp_path / "state"), "--set", setting)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_key_in_a_file_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text('[log]\n# a comment\nlevell = "info"\n')
    done = run("run", "--state-dir", str(tmp_path / "state"), "--config", str(file))
    assert done.returncode == 2
    assert f"{file}:3" in done.stderr


def test_another_issuer_than_at_the_first_start_is_refused(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "state", "--issuer", "edge.test") as node:
        node.stop()
    done = run(
        "run", "--state-dir", str(tmp_path / "state"), "--issuer", "other.test", "--set", "http.listen=127.0.0.1:0"
    )
    assert done.returncode == 1
    assert "the issuer of this node is edge.test" in done.stderr


@pytest.mark.parametrize("name", ["quarantine", "run", "store/node.db", "run/lock", "run/ctl.sock"])
def test_what_is_in_the_way_is_named_without_a_traceback(tmp_path: Path, name: str) -> None:
    state = tmp_path / "state"
    way = state / name
    way.parent.mkdir(parents=True)
    if "/" in name:
        way.mkdir()
    else:
        way.write_text("in the way")
    ports = [part for key in ("http.listen", "mqtt.listen") for part in ("--set", f"{key}=127.0.0.1:0")]
    done = run("run", "--state-dir", str(state), "--issuer", "edge.test", *ports)
    assert done.returncode == 1
    assert str(state) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_step_back_by_one_release_starts_and_a_longer_one_says_what_to_do(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "s") as node:
        node.stop()
        _change(
            tmp_path / "s",
            "INSERT INTO migration VALUES ('future-001', 'now')",
            "CREATE TABLE future (n INTEGER) STRICT",
        )
        node.start()
        node.stop()
        assert "node: a newer release added to it (future-001)" in node.log
        _change(tmp_path / "s", f"UPDATE meta SET value = {migrate.SCHEMA + 1} WHERE name = 'schema_oldest'")
        with pytest.raises(AssertionError, match="the node ended with 1"):
            node.start()
        said = node.log[node.log.rindex("the node does not start") :]
        assert "next: install the newer release again" in said
        assert "Traceback" not in said
        assert list((tmp_path / "s" / "store").glob("*-wal")) == [], "the other file was closed in order"
        _change(tmp_path / "s", "UPDATE meta SET value = 0 WHERE name = 'schema_oldest'")
        node.start()
        assert "may have lost commits" not in node.log
        assert node.stop() == 0


def test_a_schema_change_that_fails_says_what_to_do(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "s") as node:
        node.stop()
        _change(tmp_path / "s", "UPDATE migration SET name = 'messages-0q1' WHERE name = 'messages-001'")
        with pytest.raises(AssertionError, match="the node ended with 1"):
            node.start()
        said = node.log[node.log.rindex("the node does not start") :]
        assert "node.db cannot be brought to this release" in said
        assert "next: " in said
        assert "Traceback" not in said


def _change(state: Path, *sql: str) -> None:
    conn = sqlite3.connect(state / "store" / "node.db")
    with conn:
        for statement in sql:
            conn.execute(statement)
    conn.close()


def test_init_makes_the_identity_once(tmp_path: Path) -> None:
    first = run("init", "--state-dir", str(tmp_path / "state"), "--issuer", "edge.test")
    again = run("init", "--state-dir", str(tmp_path / "state"))
    assert first.returncode == again.returncode == 0, first.stderr + again.stderr
    assert "edge.test" in first.stdout
    assert "edge.test" in again.stdout
    assert json.loads((tmp_path / "state" / "identity" / "incarnation").read_bytes())["boot"] == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="NOT RUN: no /dev/full here")
def test_a_node_whose_output_finds_no_room_runs_and_leaves_in_order(tmp_path: Path) -> None:
    """Standard output and error in a file on a full disk: every write to them fails."""
    state = tmp_path / "state"
    command = [sys.executable, "-m", "edge.cli.main", "run", "--state-dir", str(state), "--set", "log.level=debug"]
    with open("/dev/full", "wb") as nowhere:
        process = subprocess.Popen([*command, *QUIET], stdout=nowhere, stderr=nowhere)
    try:
        until = time.monotonic() + READY_S
        while not (state / "run" / "ready.json").exists():
            assert process.poll() is None, "the node ended"
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(READY_S) == 0
    finally:
        process.kill()
        process.wait(READY_S)
