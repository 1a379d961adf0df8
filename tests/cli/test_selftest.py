from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edge.cli.main import main
from edge.cli.selftest import Report, ScratchNode, Trial
from edge.contract.time import SECOND
from edge.system.clock import SystemClock

Printed = pytest.CaptureFixture[str]


def test_the_conservation_line_holds_over_a_kill(tmp_path: Path, capsys: Printed) -> None:
    assert main(["selftest", "--json", "--messages", "900", "--dir", str(tmp_path)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["acked"] == said["delivered"] + said["declared"] == 3 * 600
    assert (said["unexplained"], said["twice"], said["forgotten"], said["kills"]) == (0, 0, 0, 1)
    assert {one["client"] for one in said["clients"] if one["declared"]} >= {"asleep"}
    assert list(tmp_path.iterdir()) == []


def test_people_get_one_line_to_trust(tmp_path: Path, capsys: Printed) -> None:
    assert main(["selftest", "--messages", "60", "--kills", "0", "--keep", "--dir", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[-1] == "acked 117 = delivered 117 + declared 0, unexplained 0"
    assert str(tmp_path) in said.err
    (kept,) = tmp_path.iterdir()
    assert sorted(path.name for path in kept.iterdir()) == ["node.log", "state"]


def test_too_few_messages_are_usage(capsys: Printed) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["selftest", "--messages", "9"])
    assert ended.value.code == 2
    assert "'9' is no whole number from 10 to" in capsys.readouterr().err


class Thief(ScratchNode):
    """Takes an acked message out of an absent client's queue while the node is down."""

    stolen = 0
    trial: Trial

    def kill(self) -> None:
        super().kill()
        with closing(sqlite3.connect(self.state_dir / "store" / "hot.db")) as db, db:
            rows = db.execute(
                "SELECT number, payload FROM mqtt_outgoing WHERE session ="
                " (SELECT number FROM mqtt_session WHERE user = 'asleep')"
            ).fetchall()
            number = next(number for number, payload in rows if payload in self.trial.acked)
            self.stolen += db.execute("DELETE FROM mqtt_outgoing WHERE number = ?", (number,)).rowcount


@pytest.fixture
def thief(tmp_path: Path) -> Iterator[Thief]:
    made = Thief(tmp_path / "state", SystemClock(1))
    yield made
    made.end()


async def test_a_message_that_vanishes_is_unexplained(thief: Thief) -> None:
    thief.trial = Trial(thief, SystemClock(1), 210, 1, lambda share, words: None, settle_us=3 * SECOND)
    report: Report = await thief.trial.run()
    assert (thief.stolen, report.unexplained, report.well) == (1, 1, False)
