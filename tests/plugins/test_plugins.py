from __future__ import annotations

import json
import time

import pytest

from tests.plugins.seeds import CACHE, checklist, shown

PLUGINS = (
    "-p",
    "tests.plugins.endless",
    "-p",
    "tests.plugins.needs",
    "-p",
    "tests.plugins.parts",
    "-p",
    "tests.plugins.seeds",
)
MARKERS = "[pytest]\nmarkers =\n    seed(ids): x\n    needs(names): x\n"


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("CI", "CI_STARTED", "AUN_EDGE_PARTS", "AUN_EDGE_PEERS"):
        monkeypatch.delenv(name, raising=False)
    pytester.makeini(MARKERS)
    return Run(pytester)


class Run:
    """Runs pytest with the plugins of this project on a test file of its own."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester

    def __call__(self, text: str, name: str = "test_one") -> pytest.RunResult:
        self.pytester.makepyfile(**{name: "import pytest\n" + text})
        return self.pytester.runpytest_inprocess(*PLUGINS, "-p", "no:asyncio")

    def outcomes(self) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = json.loads((self.pytester.path / CACHE).read_text())
        return found


def test_ids_with_a_passing_test_are_kept_over_partial_runs(run: Run) -> None:
    run("@pytest.mark.seed('S0-027')\ndef test_a(): pass\n")
    run("@pytest.mark.seed('S0-028', 'C-001')\ndef test_b(): assert 0\n", "test_two")
    run.pytester.path.joinpath("test_two.py").unlink()
    run("@pytest.mark.seed('S0-029')\n@pytest.mark.skip\ndef test_c(): pass\n", "test_three")
    assert shown(run.outcomes()) == {"S0-027"}


def test_an_id_that_also_has_a_failing_test_is_not_shown(run: Run) -> None:
    run(
        "@pytest.mark.seed('S0-027')\n@pytest.mark.parametrize('good', [True, False])\n"
        "def test_a(good): assert good\n@pytest.mark.seed('S0-028')\ndef test_b(): pass\n"
    )
    assert shown(run.outcomes()) == {"S0-028"}


def test_an_id_that_nobody_wrote_down_is_a_mistake(run: Run) -> None:
    result = run("@pytest.mark.seed('S9-999')\ndef test_a(): pass\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*not in tests/seeds/checklist.md: S9-999*"])


def test_the_checklist_has_every_document() -> None:
    assert {name.partition("-")[0] for name in checklist()} == {"C", "S0", "S1", "S2", "S3", "S4"}


NEEDY = "@pytest.mark.needs('no-such-program', 'peer:nobody')\ndef test_a(): pass\n"


def test_what_is_missing_is_not_run(run: Run) -> None:
    result = run(NEEDY)
    result.assert_outcomes(skipped=1)


def test_what_is_missing_is_a_failure_in_ci(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    result = run(NEEDY)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*NOT RUN: missing no-such-program, peer:nobody*"])


def test_what_this_machine_cannot_do_is_no_failure_in_ci_and_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    result = run(
        "def test_a(): pytest.skip('NOT RUN: cannot mount')\n"
        "@pytest.fixture\ndef disk(): pytest.skip('NOT RUN: cannot mount')\n"
        "def test_b(disk): pass\ndef test_c(): pytest.skip('not for this engine')\n"
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["*NOT RUN: 2 tests*", "NOT RUN: cannot mount", "*test_one.py::test_a", "*test_one.py::test_b"]
    )
    result.stdout.no_fnmatch_line("*test_one.py::test_c")


def test_what_is_there_is_run(run: Run) -> None:
    run("@pytest.mark.needs('sh')\ndef test_a(): pass\n").assert_outcomes(passed=1)


def test_seconds_per_part_come_before_the_last_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = run.pytester.path / "parts"
    parts.write_text("checks\t12.5\n")
    monkeypatch.setenv("AUN_EDGE_PARTS", str(parts))
    result = run("def test_a(): pass\n")
    result.stdout.fnmatch_lines(["*seconds per part*", "*12.5  checks", "*test_one.py", "*1 passed*"])
    assert "1 passed" in result.outlines[-1]


@pytest.mark.parametrize(
    ("minutes", "code", "words"), [(29, 0, "*1 passed*"), (31, 0, "WARNING: 31*"), (41, 1, "FAILED: 41*")]
)
def test_too_long_a_run_warns_then_fails(
    run: Run, monkeypatch: pytest.MonkeyPatch, minutes: int, code: int, words: str
) -> None:
    (run.pytester.path / "parts").touch()
    monkeypatch.setenv("AUN_EDGE_PARTS", str(run.pytester.path / "parts"))
    monkeypatch.setenv("CI_STARTED", str(time.time() - minutes * 60))
    result = run("def test_a(): pass\n")
    assert result.ret == code
    result.stdout.fnmatch_lines([words])


def test_a_test_that_never_ends_fails_and_the_next_one_runs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUN_EDGE_TEST_SECONDS", "1")
    done = run(
        "import asyncio, threading\n"
        "def test_a(): threading.Event().wait()\n"
        "def test_b(): asyncio.run(asyncio.sleep(100))\n"
        "def test_c(): pass\n"
    )
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(["*not over after 1 s*"])
