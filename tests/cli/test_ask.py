from __future__ import annotations

import socket
from pathlib import Path

import pytest

from edge.cli.ask import ask
from edge.cli.failure import Failure, NotRunning


def test_a_node_that_does_not_answer_in_time_is_told(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(tmp_path / "run" / "ctl.sock"))
        silent.listen()
        with pytest.raises(Failure, match="did not answer status") as told:
            ask(tmp_path, "status", wait_s=0.05)
    assert (told.value.code, told.value.next_step) == (75, "aun-edge doctor")


def test_a_socket_that_nobody_serves_is_no_node(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / "run" / "ctl.sock"))
    with pytest.raises(NotRunning):
        ask(tmp_path, "status")
