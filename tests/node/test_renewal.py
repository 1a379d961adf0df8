from __future__ import annotations

import contextlib
import datetime
import logging
import os
import ssl
import time
from pathlib import Path

import pytest

from edge.node.renewal import Renewal
from edge.store.keyring import Identity, TlsFiles, load_identity
from tests.support.clock import FakeClock
from tests.transports.mqtt.certificates import Authority


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


async def test_the_end_that_is_told_is_that_of_the_certificate_in_use(tmp_path: Path) -> None:
    ours, theirs = identity(tmp_path), Authority(tmp_path)
    assert Renewal(ours, TlsFiles(), [], FakeClock()).until == ours.tls_until
    first, second = (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (2098, 2099))
    cert, key = theirs.issue("box", end=first)
    renewal = Renewal(ours, TlsFiles(cert=str(cert), key=str(key)), [], FakeClock())
    renewal.context()
    assert renewal.until == int(first.timestamp())
    theirs.issue("box", end=second)
    assert renewal.until == int(first.timestamp())
    assert await renewal.look()
    assert renewal.until == int(second.timestamp())
    cert.write_text("no certificate")
    assert not await renewal.look()
    assert renewal.until == int(second.timestamp())
    assert Renewal(ours, TlsFiles(cert=str(cert), key=str(key)), [], FakeClock()).until == 0


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


# Authorities of clients.


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    """Whether a server takes a client's certificate; without any socket."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = server.wrap_bio(to_server, to_client, server_side=True)
    there = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    for _ in range(4):
        for end in (there, here):
            with contextlib.suppress(ssl.SSLWantReadError):
                try:
                    end.do_handshake()
                except ssl.SSLError as error:
                    if isinstance(error, ssl.SSLWantReadError):
                        raise
                    return False
    return bool(here.getpeercert())


def authorities(folder: Path) -> tuple[Authority, Authority]:
    made = []
    for name in ("one", "two"):
        (folder / name).mkdir()
        made.append(Authority(folder / name, f"CA {name}"))
    return made[0], made[1]


def shows(ours: Identity, authority: Authority, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ours.tls_ca))
    context.load_cert_chain(*authority.issue(name))
    return context


async def test_an_authority_of_clients_that_is_added_counts_without_a_restart(tmp_path: Path) -> None:
    ours, (one, two) = identity(tmp_path), authorities(tmp_path)
    renewal = Renewal(ours, TlsFiles(client_ca=str(one.file), client_cert="required"), [], FakeClock())
    context = renewal.context()
    lamp, porch = shows(ours, one, "lamp"), shows(ours, two, "porch")
    assert (handshake(context, lamp), handshake(context, porch)) == (True, False)
    one.file.write_bytes(one.file.read_bytes() + two.file.read_bytes())
    assert await renewal.look()
    assert not await renewal.look()
    assert (handshake(context, lamp), handshake(context, porch)) == (True, True)


async def test_a_certificate_on_the_revocation_list_beside_its_authority_is_refused(tmp_path: Path) -> None:
    """Settled G02: what the authority revokes does not come in, from the next look on; the others do."""
    ours, (one, _) = identity(tmp_path), authorities(tmp_path)
    renewal = Renewal(ours, TlsFiles(client_ca=str(one.file), client_cert="required"), [], FakeClock())
    context = renewal.context()
    lamp, porch = shows(ours, one, "lamp"), shows(ours, one, "porch")
    assert (handshake(context, lamp), handshake(context, porch)) == (True, True)
    one.revoke(one.folder / "lamp.crt")
    assert await renewal.look()
    assert (handshake(context, lamp), handshake(context, porch)) == (False, True)
    fresh = renewal.context()
    assert (handshake(fresh, lamp), handshake(fresh, porch)) == (False, True)


async def test_an_authority_that_is_taken_out_is_trusted_until_the_restart_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, (one, two) = identity(tmp_path), authorities(tmp_path)
    renewal = Renewal(ours, TlsFiles(client_ca=str(one.file), client_cert="required"), [], FakeClock())
    renewal.context()
    one.file.write_bytes(two.file.read_bytes())
    with caplog.at_level(logging.WARNING):
        assert await renewal.look()
    assert "1 authorities that tls.client_ca names no more are trusted until the node restarts" in caplog.text


async def test_a_bad_file_of_authorities_is_not_taken_and_the_old_ones_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, (one, two) = identity(tmp_path), authorities(tmp_path)
    renewal = Renewal(ours, TlsFiles(client_ca=str(one.file), client_cert="optional"), [], FakeClock())
    asked, unasked = renewal.context(), renewal.context("off")
    lamp, good = shows(ours, one, "lamp"), one.file.read_bytes()
    for bad in (b"no certificate", None):
        one.file.write_bytes(bad) if bad is not None else one.file.unlink()
        with caplog.at_level(logging.ERROR):
            assert not await renewal.look()
        assert "the new tls.client_ca is not taken, the old one stays" in caplog.text
        caplog.clear()
        assert (handshake(asked, lamp), handshake(unasked, lamp)) == (True, False)
    one.file.write_bytes(good + two.file.read_bytes())
    assert await renewal.look()
    assert handshake(asked, shows(ours, two, "porch"))


async def test_a_session_that_showed_a_certificate_is_not_resumed(tmp_path: Path) -> None:
    """A resumed session brings the certificate of its first handshake, which nobody verifies again."""
    ours, (one, _) = identity(tmp_path), authorities(tmp_path)
    files = TlsFiles(client_ca=str(one.file), client_cert="optional")
    context = Renewal(ours, files, [], FakeClock()).context()
    assert context.num_tickets == 0
    assert context.options & ssl.OP_NO_TICKET
