from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.system.notify import ServiceManager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind(path)
        door.settimeout(5)
        yield door, path


def test_each_word_arrives_at_the_service_manager(manager: tuple[socket.socket, str]) -> None:
    door, path = manager
    ours = ServiceManager({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "5000000", "WATCHDOG_PID": str(os.getpid())})
    ours.ready("2 devices\nREADY=0")
    ours.alive()
    ours.status("catching up")
    ours.stopping()
    heard = [door.recv(4096).decode().splitlines() for _ in range(4)]
    assert heard == [
        ["READY=1", "STATUS=2 devices READY=0", f"MAINPID={os.getpid()}"],
        ["WATCHDOG=1"],
        ["STATUS=catching up"],
        ["STOPPING=1"],
    ]
    assert ours.watchdog_us == 5_000_000


def test_an_abstract_socket_is_reached() -> None:
    name = f"aun-edge-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind("\0" + name)
        door.settimeout(5)
        ServiceManager({"NOTIFY_SOCKET": "@" + name}).stopping()
        assert door.recv(100) == b"STOPPING=1"


def test_without_a_watchdog_nothing_is_fed(manager: tuple[socket.socket, str]) -> None:
    door, path = manager
    for environ in ({}, {"WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}):
        ServiceManager({"NOTIFY_SOCKET": path, **environ}).alive()
    ServiceManager({"NOTIFY_SOCKET": path}).stopping()
    assert door.recv(100) == b"STOPPING=1"


def test_without_a_service_manager_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager({}).ready("up")
    assert not caplog.records


def test_a_service_manager_that_is_gone_is_logged_and_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).ready("up")
    assert "does not hear us" in caplog.text
