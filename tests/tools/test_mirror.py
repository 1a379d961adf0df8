from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    spec = importlib.util.spec_from_file_location("mirror", ROOT / "tools" / "mirror.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return Place(tmp_path, module)


class Place:
    """A repository of its own for the check."""

    def __init__(self, root: Path, module: object) -> None:
        self.root, self.module = root, module

    def write(self, path: str, text: str = "") -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def code(self) -> int:
        return int(self.module.main())  # type: ignore[attr-defined]


def test_a_module_without_its_test_is_told(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.write("edge/store/log.py", "def f():\n    return 1\n")
    assert place.code() == 1
    assert (
        capsys.readouterr().out
        == "edge/store/log.py: no tests/store/test_log.py, and nothing beside it imports the module\n"
    )
    place.write("tests/store/test_log.py")
    assert place.code() == 0


def test_a_package_may_be_tested_as_a_whole(place: Place) -> None:
    place.write("edge/protocol/mqtt/codec.py", "def f():\n    return 1\n")
    place.write("tests/protocol/test_mqtt.py")
    assert place.code() == 0


def test_a_test_beside_it_that_imports_a_module_counts(place: Place) -> None:
    place.write("edge/store/log.py", "def f():\n    return 1\n")
    place.write("tests/store/test_promises.py", "from edge.store import log\n")
    assert place.code() == 0


def test_ports_and_records_need_no_test(place: Place) -> None:
    place.write("edge/contract/bus.py", '"""x"""\nclass Bus:\n    def f(self):\n        """x"""\n        ...\n')
    assert place.code() == 0


def test_a_test_whose_module_is_gone_is_told(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.write("tests/store/test_gone.py")
    place.write("tests/node/test_journey.py")
    assert place.code() == 1
    assert (
        capsys.readouterr().out
        == "tests/store/test_gone.py: no edge/store/gone.py, and it imports nothing of edge.store\n"
    )


def test_a_conftest_of_other_rooms_or_of_another_folder_does_not_count(place: Place) -> None:
    place.write("tests/store/test_clients.py")
    place.write("tests/store/conftest.py", "from edge.session.doors import Doors\n")
    assert place.code() == 1
    place.write("tests/store/deeper/conftest.py", "from edge.store.log import Log\n")
    assert place.code() == 1


def test_the_conftest_beside_a_test_says_what_it_is_about(place: Place) -> None:
    place.write("tests/store/test_clients.py")
    place.write("tests/store/conftest.py", "from edge.store.log import Log\n")
    assert place.code() == 0


def test_the_scripts_are_good_shell() -> None:
    scripts = [path for path in [*(ROOT / "tools").iterdir(), ROOT / ".ci" / "run"] if path.is_file()]
    shell = [str(path) for path in scripts if path.read_text().startswith("#!/usr/bin/env bash")]
    assert len(shell) >= 8
    assert subprocess.run(["bash", "-n", *shell], check=False).returncode == 0


def test_the_tools_name_no_python_of_one_machine() -> None:
    assert not [path for path in (ROOT / "tools").iterdir() if path.is_file() and sys.prefix in path.read_text()]
