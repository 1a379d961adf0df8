from __future__ import annotations

import socket
from pathlib import Path

import pytest

from edge.system.ports import Ports, bind_remembered, bind_tcp


def port_of(bound: socket.socket) -> int:
    with bound:
        return int(bound.getsockname()[1])


def test_port_0_picks_once_and_is_remembered(tmp_path: Path) -> None:
    first = port_of(bind_remembered(Ports(tmp_path / "ports.json"), "http", "127.0.0.1", 0))
    again = port_of(bind_remembered(Ports(tmp_path / "ports.json"), "http", "127.0.0.1", 0))
    assert first == again


def test_a_remembered_port_that_is_taken_is_replaced(tmp_path: Path) -> None:
    ports = Ports(tmp_path / "ports.json")
    with bind_remembered(ports, "http", "127.0.0.1", 0) as taken:
        taken.listen()
        other = port_of(bind_remembered(ports, "http", "127.0.0.1", 0))
        assert other != taken.getsockname()[1]
    assert Ports(tmp_path / "ports.json").remembered("http") == other


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"http":"x"}', b"\xff"])
def test_a_damaged_memory_is_no_memory_and_is_told(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ports.json").write_bytes(content)
    assert Ports(tmp_path / "ports.json").remembered("http") == 0
    assert "ports are picked anew" in caplog.text


def test_a_given_port_that_is_taken_says_so(tmp_path: Path) -> None:
    with bind_tcp("::1", 0) as taken:
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            bind_remembered(Ports(tmp_path / "ports.json"), "http", "::1", taken.getsockname()[1])
