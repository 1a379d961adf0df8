from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.contract.time import SECOND
from edge.system.logs import LINE, LogPlan, Logs
from tests.support.clock import FakeClock

log = logging.getLogger("edge.test")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def logs(clock: FakeClock, tmp_path: Path) -> Iterator[Logs]:
    made = Logs(clock, journal=str(tmp_path / "journal"))
    yield made
    made.close()


def plan(tmp_path: Path, **more: object) -> LogPlan:
    return LogPlan(**{"target": "file", "file": tmp_path / "log" / "node.log", **more})  # type: ignore[arg-type]


def lines(tmp_path: Path) -> list[str]:
    return (tmp_path / "log" / "node.log").read_text().splitlines()


def test_one_event_is_one_line_whatever_it_holds(logs: Logs, tmp_path: Path) -> None:
    logs.apply(plan(tmp_path))
    log.warning("topic %s refused", "a\nb\r\x1b[31m\u2028c", extra={"aid": "bob.home.test", "trace": "t1"})
    (line,) = lines(tmp_path)
    assert line.endswith(r"warning edge.test: topic a\nb\r\x1b[31m\u2028c refused aid=bob.home.test trace=t1")


@pytest.mark.seed("S4-088")
def test_json_lines_carry_the_same_facts(logs: Logs, tmp_path: Path) -> None:
    logs.apply(plan(tmp_path, format="json"))
    log.error("went %s", "wrong", extra={"aid": "bob.home.test"})
    (line,) = lines(tmp_path)
    said = json.loads(line)
    assert said.pop("time").endswith("Z")
    assert said == {"level": "error", "module": "edge.test", "text": "went wrong", "aid": "bob.home.test"}


def test_an_exception_is_one_line_with_its_places(logs: Logs, tmp_path: Path) -> None:
    logs.apply(plan(tmp_path))
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("unexpected")
    (line,) = lines(tmp_path)
    assert r"unexpected: ValueError('two\nlines') (" in line
    assert "test_logs.py:" in line


@pytest.mark.parametrize(
    "secret",
    [
        "aet_" + "A1b2" * 11,
        "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJib2IifQ.c2lnbmF0dXJl",
        "-----BEGIN PRIVATE KEY-----\nMIGEAgEAMBAGByqGSM49\n-----END PRIVATE KEY-----",
    ],
)
def test_secrets_are_never_written(logs: Logs, tmp_path: Path, secret: str) -> None:
    logs.apply(plan(tmp_path))
    log.warning("header %s", f"Bearer {secret}")
    (line,) = lines(tmp_path)
    assert not any(part in line for part in secret.splitlines() if len(part) > 12)


def test_a_long_line_is_cut_and_says_so(logs: Logs, tmp_path: Path) -> None:
    logs.apply(plan(tmp_path))
    log.warning("%s", "x" * (LINE * 3))
    (line,) = lines(tmp_path)
    assert len(line) <= LINE + 20
    assert line.endswith("characters")


@pytest.mark.parametrize(("extra", "written"), [(0, 60), (1, 60)])
def test_one_message_has_its_rate_a_minute(logs: Logs, tmp_path: Path, extra: int, written: int) -> None:
    logs.apply(plan(tmp_path, rate=60))
    for number in range(60 + extra):
        log.info("refused %d", number)
    log.info("another message")
    assert len(lines(tmp_path)) == written + 1


def test_what_was_suppressed_is_counted_and_told(logs: Logs, clock: FakeClock, tmp_path: Path) -> None:
    logs.apply(plan(tmp_path, rate=2))
    for number in range(10):
        log.info("refused %d", number)
    clock.advance(61 * SECOND)
    log.info("refused %d", 99)
    assert [line.split("edge.test: ")[1] for line in lines(tmp_path)] == [
        "refused 0",
        "refused 1",
        "8 more lines suppressed: refused %d",
        "refused 99",
    ]


def test_the_count_is_told_at_the_end_too(logs: Logs, tmp_path: Path) -> None:
    logs.apply(plan(tmp_path, rate=1))
    log.info("refused")
    log.info("refused")
    logs.close()
    assert lines(tmp_path)[-1].endswith("1 more lines suppressed: refused")


def test_without_a_rate_every_line_is_written(logs: Logs, tmp_path: Path) -> None:
    logs.apply(plan(tmp_path, rate=0))
    for _ in range(200):
        log.info("refused")
    assert len(lines(tmp_path)) == 200


@pytest.mark.seed("S4-088")
def test_levels_of_modules_change_while_it_runs(logs: Logs, tmp_path: Path) -> None:
    logs.apply(plan(tmp_path, level="warning", levels={"edge.test": "debug"}))
    log.debug("seen")
    logging.getLogger("edge.other").info("not seen")
    logs.apply(plan(tmp_path, level="info"))
    log.debug("not seen")
    logging.getLogger("edge.other").info("seen too")
    assert [line.rsplit(": ", 1)[1] for line in lines(tmp_path)] == ["seen", "seen too"]


def test_files_turn_over_at_their_size_and_are_private(logs: Logs, tmp_path: Path) -> None:
    logs.apply(plan(tmp_path, octets=2000, count=2, rate=0))
    for _ in range(100):
        log.info("x" * 100)
    found = sorted((tmp_path / "log").iterdir())
    assert [path.name for path in found] == ["node.log", "node.log.1", "node.log.2"]
    assert all(path.stat().st_size <= 2000 and path.stat().st_mode & 0o777 == 0o600 for path in found)


def test_a_file_that_cannot_be_written_leaves_the_old_log_in_force(logs: Logs, tmp_path: Path) -> None:
    logs.apply(plan(tmp_path))
    (tmp_path / "blocked").touch()
    with pytest.raises(OSError, match="blocked"):
        logs.apply(plan(tmp_path, file=tmp_path / "blocked" / "x.log"))
    log.info("still here")
    assert lines(tmp_path)[-1].endswith("still here")


def test_the_journal_gets_the_line_with_its_priority(logs: Logs, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "journal"))
        journal.settimeout(5)
        logs.apply(plan(tmp_path, target="journald"))
        log.error("disk %s", "full")
        message, priority, name = journal.recv(9000).decode().splitlines()
    assert message.endswith("error edge.test: disk full")
    assert (priority, name) == ("PRIORITY=3", "SYSLOG_IDENTIFIER=aun-edge")


def test_without_a_journal_the_log_goes_to_stderr(
    logs: Logs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.apply(plan(tmp_path, target="journald"))
    log.error("disk full")
    assert capsys.readouterr().err.endswith("edge.test: disk full\n")
