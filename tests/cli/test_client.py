from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from edge.cli.client import Control
from edge.cli.failure import NotRunning
from edge.contract.errors import InvalidParams, MethodNotFound, NotFound
from tests.support.process import NodeProcess


def test_one_connection_serves_several_questions(running: NodeProcess) -> None:
    with Control(running.state_dir) as node:
        assert node.call("status")["pid"] == running.pid
        assert node.call("device.list", {}) == []


def test_the_error_that_the_node_raised_is_raised_here(running: NodeProcess) -> None:
    node = Control(running.state_dir)
    for error, name, params in (
        (NotFound, "device.show", {"name": "nobody"}),
        (InvalidParams, "device.show", {}),
        (MethodNotFound, "device.dance", {}),
    ):
        with pytest.raises(error):
            node.call(name, params)


def test_items_of_a_stream_come_as_they_happen(running: NodeProcess) -> None:
    node = Control(running.state_dir)
    heard = node.stream("mqtt.sub", {"filters": ["a/#"]})
    stop = threading.Event()

    def say() -> None:
        while not stop.wait(0.05):  # whoever listens is on the way in: say it until it is heard
            node.call("mqtt.pub", {"topic": "a/b", "payload": "x"})

    speaker = threading.Thread(target=say)
    speaker.start()
    try:
        assert next(heard)["payload"] == "x"
    finally:
        stop.set()
        speaker.join()
        heard.close()  # type: ignore[attr-defined]


def test_a_long_path_is_no_obstacle(tmp_path: Path) -> None:
    state = tmp_path / ("long" * 30)
    (state / "run").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        here = tmp_path / "ctl.sock"
        door.bind(str(here))
        here.rename(state / "run" / "ctl.sock")
        door.listen()
        with pytest.raises(TimeoutError):
            Control(state, timeout_s=0.05).call("status")


def test_a_node_that_hangs_up_is_not_running(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(str(tmp_path / "run" / "ctl.sock"))
        door.listen()

        def hang_up() -> None:
            door.accept()[0].close()

        server = threading.Thread(target=hang_up)
        server.start()
        with pytest.raises(NotRunning):
            Control(tmp_path, timeout_s=5).call("status")
        server.join()


def test_without_a_directory_nobody_is_running(tmp_path: Path) -> None:
    with pytest.raises(NotRunning):
        Control(tmp_path / "none").call("status")
