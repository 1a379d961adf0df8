from __future__ import annotations

import io
from pathlib import Path

import pytest

from edge.cli.failure import Failure
from edge.cli.password import chosen, from_file


def test_a_password_is_asked_for_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = iter(["correct horse", "correct horse", "correct horse", "corect horse"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(said))
    assert chosen(None) == "correct horse"
    with pytest.raises(Failure, match="two different passwords"):
        chosen(None)
    with pytest.raises(Failure, match="the password cannot be read"):
        chosen(tmp_path / "none")


@pytest.mark.parametrize("text", ["correct horse", "correct horse\n", "correct horse\r\nsecond line\n"])
def test_a_password_is_the_first_line_of_a_file_or_of_standard_input(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "password"
    path.write_bytes(text.encode())
    monkeypatch.setattr("sys.stdin", io.StringIO(text, newline=""))
    assert from_file(path) == chosen(path) == from_file(Path("-")) == "correct horse"
