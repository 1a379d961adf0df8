"""`run/ready.json`: there while the node answers, later where the disk is full, gone with the node."""

from __future__ import annotations

import json
import os
from pathlib import Path

from edge.node.life import Node
from edge.node.ready import AGAIN_US, ReadyFile
from tests.support.clock import FakeClock
from tests.support.node import ISSUER, running


async def test_the_ready_file_is_there_while_the_node_answers(node: Node) -> None:
    path = node.config.state_dir / "run" / "ready.json"
    ready = json.loads(path.read_bytes())
    assert ready["pid"] == os.getpid()
    assert ready["issuer"] == ISSUER
    assert ready["endpoints"] == node.endpoints
    assert Path(ready["tls_ca"]).read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert Path(ready["aun_root"]).read_text().startswith("-----BEGIN CERTIFICATE-----")


async def test_a_node_that_left_takes_its_ready_file_along(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        path = node.config.state_dir / "run" / "ready.json"
        assert path.exists()
    assert not path.exists()
    assert not (tmp_path / "state" / "store" / "node.db-wal").exists()


async def test_what_the_disk_does_not_take_is_written_later_and_never_after_the_node_left(tmp_path: Path) -> None:
    clock, ports = FakeClock(), {"http": "http://127.0.0.1:1"}
    path = tmp_path / "run" / "ready.json"
    ready = ReadyFile(path, clock, lambda: {"endpoints": ports})
    ready.write()
    path.parent.mkdir()
    clock.advance(AGAIN_US - 1)
    assert not path.exists()
    ports["mqtt"] = "mqtt://127.0.0.1:2"
    clock.advance(1)
    assert json.loads(path.read_bytes()) == {"version": 1, "endpoints": ports}
    path.unlink()
    path.mkdir()  # which no file replaces
    ready.write()
    path.rmdir()
    ready.remove()
    clock.advance(AGAIN_US)
    assert not path.exists()
