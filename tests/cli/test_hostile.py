"""Every verb with arguments and surroundings that nobody planned: what, why, next command; never a traceback."""

from __future__ import annotations

import errno
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.cli.parser import build, verbs_of
from tests.support.process import NodeProcess

VERB = [sys.executable, "-m", "edge.cli.main"]
BAD = b"\xff\xfe"
TOO_MANY = "9" * 30


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A running node with one user of MQTT."""
    with NodeProcess(tmp_path_factory.mktemp("hostile") / "state") as one:
        made = one.run("mqtt", "user", "add", "bobb", "--password-file", "-", input_text="correct horse\n")
        assert made.returncode == 0, made.stderr
        yield one


def ended(*line: str | bytes, state_dir: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """A verb in a process of its own, with nothing to read and no terminal to ask at."""
    where = ["--state-dir", str(state_dir)]
    return subprocess.run(
        [*VERB, *where, *line],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
        start_new_session=True,
        env={**os.environ, **(env or {})},
    )


def told(done: subprocess.CompletedProcess[bytes], code: int) -> str:
    """What it complained of: no traceback, the exit code, and what to do next."""
    said = done.stderr.decode()
    assert "Traceback" not in said
    assert done.returncode == code, said
    assert "next: " in said or "aun-edge " in said.partition(": ")[2], said
    assert "a fault of aun-edge" not in said
    return said


def takes_names() -> list[list[str]]:
    """Every verb with a word for each name that it takes."""
    rows = []
    for words, verb in verbs_of(build()):
        wanted = [action for action in verb._actions if not action.option_strings and action.type is None]
        if wanted and words != "mqtt pub":
            rows.append([*words.split(), *["NAME"] * len(wanted)])
    return rows


@pytest.mark.parametrize("line", takes_names(), ids=" ".join)
def test_a_name_that_is_no_text_is_refused(line: list[str], tmp_path: Path) -> None:
    words = [BAD if word == "NAME" else word for word in line]
    assert "is not UTF-8 text" in told(ended(*words, state_dir=tmp_path), 2)


READS = [words for words, verb in verbs_of(build()) if any("--json" in one.option_strings for one in verb._actions)]
READS.remove("selftest")  # it brings a node of its own


@pytest.mark.parametrize("words", READS)
def test_every_answer_in_json_has_an_end_without_a_node(words: str, tmp_path: Path) -> None:
    verb = dict(verbs_of(build()))[words]
    count = sum(1 for one in verb._actions if not one.option_strings and one.nargs not in ("?",))
    password = tmp_path / "password"
    password.write_text("correct horse\n")
    rest = ["--password-file", str(password)] if words == "mqtt user add" else []
    done = ended(*words.split(), *["porch"] * count, "--json", *rest, state_dir=tmp_path / "none")
    assert b"Traceback" not in done.stderr
    assert done.returncode in (0, 1, 2, 3)
    if done.returncode and words != "doctor":
        told(done, done.returncode)


HOSTILE = [
    (["device", "add", "x"], 2),
    (["device", "add", "hall", "--topics", "a/#/b"], 2),
    (["device", "show", "nobody"], 2),
    (["device", "forget", "nobody\x1b[2J"], 2),
    (["agent", "add", "abc"], 2),
    (["agent", "add", "abcd", "--expires", "5y"], 2),
    (["agent", "add", "abcd", "--sdk-profile", "/dev/null/x"], 1),
    (["agent", "window", "61"], 2),
    (["agent", "window", "-1"], 2),
    (["agent", "revoke", "nobody"], 2),
    (["skill", "call", "a.b"], 2),
    (["skill", "call", "a.b", "--params", "{"], 2),
    (["skill", "call", "a.b", "--params", "[1]"], 2),
    (["skill", "call", "a.b", "--params", "[" * 2000], 2),
    (["skill", "call", "a.b", "--timeout", TOO_MANY], 2),
    (["cap", "grant", "a.b", "bobb"], 2),
    (["cap", "revoke", "a.b", "bobb"], 2),
    (["queue", "drops", "--limit", TOO_MANY], 2),
    (["queue", "drops", "--limit", "0"], 2),
    (["queue", "drops", "--since", "5y"], 2),
    (["backup", "create", "/dev/null/x"], 1),
    (["backup", "create", "/tmp"], 1),
    (["backup", "verify", "/tmp"], 1),
    (["backup", "verify", "/dev/null"], 1),
    (["backup", "restore", "/dev/null"], 1),
    (["config", "get", "nothing"], 2),
    (["config", "set", "x"], 2),
    (["config", "set", "log.level=loud"], 2),
    (["config", "list", "--config", "/dev/null/x"], 1),
    (["config", "list", "--profile", "nope"], 1),
    (["mqtt", "pub", "a/#", "x"], 2),
    (["mqtt", "sub", "a/#/b"], 2),
    (["mqtt", "sub", "a", "--count", "-1"], 2),
    (["mqtt", "user", "add", "bobb", "--password-file", "-"], 1),
    (["mqtt", "user", "add", "zed"], 2),
    (["mqtt", "user", "password", "bobb"], 2),
    (["mqtt", "user", "remove", "nobody"], 2),
    (["mqtt", "pub", "a", "x", "--username", "bobb"], 2),
    (["mqtt", "pub", "a", "x", "--username", "bobb", "--password-file", "/dev/null/x"], 2),
    (["methods", "--surface", "nope"], 2),
    (["selftest", "--messages", "9"], 2),
    (["selftest", "--dir", "/dev/null/x"], 1),
    (["run"], 1),
    (["init"], 1),
    (["nosuch"], 2),
    (["device", "nosuch"], 2),
]


@pytest.mark.parametrize(("line", "code"), HOSTILE, ids=[" ".join(line)[:60] for line, _ in HOSTILE])
def test_what_cannot_be_is_told_with_the_next_command(line: list[str], code: int, node: NodeProcess) -> None:
    assert "\x1b" not in told(ended(*line, state_dir=node.state_dir), code)


def test_a_profile_that_cannot_be_written_costs_no_token(node: NodeProcess) -> None:
    """The token is shown once: the directory is made before it."""
    told(ended("agent", "add", "careful", "--sdk-profile", "/dev/null/x", state_dir=node.state_dir), 1)
    assert "careful" not in [one["name"] for one in node.cli("agent", "list")]


def test_a_payload_may_be_any_bytes(node: NodeProcess, tmp_path: Path) -> None:
    assert ended("mqtt", "pub", "a/b", BAD, state_dir=node.state_dir).returncode == 0


@pytest.mark.parametrize("line", [["methods", "--json"], ["config", "list"], ["config", "list", "--json"], ["--help"]])
def test_a_reader_that_goes_at_once_is_no_failure(line: list[str], node: NodeProcess) -> None:
    words = [*VERB, "--state-dir", str(node.state_dir), *line]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait(timeout=60)) == (b"", 0)


@pytest.mark.parametrize("line", [["methods"], ["methods", "--json"], ["--help"]])
def test_an_output_that_takes_nothing_is_told(line: list[str], node: NodeProcess) -> None:
    words = [*VERB, "--state-dir", str(node.state_dir), *line]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert os.strerror(errno.ENOSPC) in told(done, 1)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_stream_that_was_closed_before_is_no_fault(closed: str, node: NodeProcess) -> None:
    line = f"exec {sys.executable} -m edge.cli.main methods --json --state-dir {node.state_dir} {closed}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("user", [[], ["--username", "bobb", "--password-file", "PASSWORD"]], ids=["operator", "user"])
def test_ctrl_c_ends_a_verb_with_130(user: list[str], node: NodeProcess, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("correct horse\n")
    user = [str(password) if word == "PASSWORD" else word for word in user]
    words = [*VERB, "mqtt", "sub", "bobb/#", *user, "--state-dir", str(node.state_dir)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            assert _first_line(process, node) == b"bobb/x 1\n"
            process.send_signal(signal.SIGINT)
            assert (process.wait(timeout=60), process.stderr.read()) == (130, b"")
        finally:
            process.kill()


def _first_line(process: subprocess.Popen[bytes], node: NodeProcess) -> bytes:
    """What it prints first; it may still be on its way in, so the word is said until it is heard."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        for _ in range(100):
            if ready.select(timeout=0.5):
                return process.stdout.readline()
            node.run("mqtt", "pub", "bobb/x", "1")
    raise AssertionError("nothing was heard")


def test_json_is_utf_8_and_text_is_escaped_where_the_terminal_knows_only_ascii(node: NodeProcess) -> None:
    env = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    assert node.run("device", "add", "Küche").returncode == 0
    rows = json.loads(ended("device", "list", "--json", state_dir=node.state_dir, env=env).stdout)
    assert "Küche" in [row["title"] for row in rows]
    assert b"K\\xfcche" in ended("device", "list", state_dir=node.state_dir, env=env).stdout


@pytest.mark.parametrize("columns", ["40", "1"])
def test_a_narrow_terminal_without_colour_is_served(columns: str, node: NodeProcess) -> None:
    env = {"COLUMNS": columns, "NO_COLOR": "1", "TERM": "dumb"}
    for line in (["--help"], ["device", "add", "--help"], ["status"], ["device", "list"]):
        done = ended(*line, state_dir=node.state_dir, env=env)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\x1b" not in done.stdout
