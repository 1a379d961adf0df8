from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest

from edge.node.renewal import Renewal
from edge.store.keyring import Identity, TlsFiles, load_identity
from tests.support.clock import FakeClock


def identity(folder: Path) -> Identity:
    now_us = time.time_ns() // 1000
    return load_identity(folder, "edge.test", now_us, now_us)


def operators(folder: Path, ours: Identity) -> TlsFiles:
    """A certificate that the operator brings (here: a copy of ours)."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(ours.tls_cert.read_bytes())
    key.write_bytes(ours.tls_key.read_bytes())
    return TlsFiles(cert=str(cert), key=str(key))


async def test_nothing_changed_nothing_is_reloaded(tmp_path: Path) -> None:
    ours = identity(tmp_path)
    renewal = Renewal(ours, operators(tmp_path, ours), [], FakeClock())
    renewal.context()
    assert not await renewal.look()
    assert renewal.reloads == 0


async def test_a_changed_file_is_taken_up(tmp_path: Path) -> None:
    ours = identity(tmp_path)
    files = operators(tmp_path, ours)
    renewal = Renewal(ours, files, [], FakeClock())
    renewal.context()
    os.utime(files.cert, ns=(1, 1))
    assert await renewal.look()
    assert not await renewal.look()
    assert renewal.reloads == 1


async def test_a_bad_file_is_not_taken_and_the_old_certificate_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = identity(tmp_path)
    files = operators(tmp_path, ours)
    renewal = Renewal(ours, files, [], FakeClock())
    renewal.context()
    Path(files.cert).write_text("no certificate")
    with caplog.at_level(logging.ERROR):
        assert not await renewal.look()
    assert "the old one stays" in caplog.text
    Path(files.cert).write_bytes(ours.tls_cert.read_bytes())
    assert await renewal.look()
