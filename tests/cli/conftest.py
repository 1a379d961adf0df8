from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edge.cli.main import main
from tests.support.process import NodeProcess


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node of its own for the verbs of one test file."""
    with NodeProcess(tmp_path_factory.mktemp("node") / "state") as node:
        yield node


Said = tuple[int, str, str]


@pytest.fixture
def verb(running: NodeProcess, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a verb against that node: its exit code, what it printed, what it complained of."""

    def run(*line: str) -> Said:
        try:
            code = main([*line, "--state-dir", str(running.state_dir)])
        except SystemExit as ended:  # what the parser itself refuses
            code = int(ended.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def asked(verb: Callable[..., Said]) -> Callable[..., Any]:
    """The JSON that a verb prints; it must succeed."""

    def run(*line: str) -> Any:
        code, out, err = verb(*line, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


@pytest.fixture
def secret(tmp_path: Path) -> Callable[[str], str]:
    """A file that holds a password."""

    def write(text: str) -> str:
        path = tmp_path / "password"
        path.write_text(text + "\n")
        return str(path)

    return write
