from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.cli.client import Control
from edge.cli.failure import NotRunning
from edge.contract.errors import MethodNotFound, NotPermitted, RateLimited
from edge.contract.principal import Kind
from edge.contract.time import SECOND
from edge.contract.wire import dumps, loads
from edge.transports.ctl import ControlSocket
from tests.support.patience import until
from tests.support.sessions import House, gateway


@asynccontextmanager
async def controlled(folder: Path, **more: Any) -> AsyncIterator[tuple[House, Path, ControlSocket]]:
    """A gateway with a control socket in `folder`/run; the state directory is what clients name."""
    (folder / "run").mkdir(parents=True)
    async with gateway(**more) as house:
        control = ControlSocket(folder / "run", house.sessions, house.clock, house.limits, house.sessions.spawn)
        await control.start()
        try:
            yield house, folder, control
        finally:
            control.stop()


async def ask(folder: Path, name: str, **params: Any) -> Any:
    return await asyncio.to_thread(Control(folder).call, name, params)


@asynccontextmanager
async def raw(folder: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(folder / "run" / "ctl.sock", limit=2**24)
    try:
        yield reader, writer
    finally:
        writer.close()


async def test_the_operator_asks_and_is_answered(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (house, folder, _):
        assert await ask(folder, "ping") == {"pong": True}
        assert await ask(folder, "echo", value={"a": [1, 2]}) == {"a": [1, 2]}
        who = house.service.calls[-1].who
        assert (who.kind, who.via, who.scopes) == (Kind.OPERATOR, "control", frozenset({"*"}))
        await until(lambda: len(house.channels) == 0)


async def test_errors_arrive_as_the_class_that_was_raised(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, folder, _):
        with pytest.raises(RateLimited, match="come back") as refused:
            await ask(folder, "full")
        assert refused.value.data == {"retry_after_ms": 5}
        with pytest.raises(MethodNotFound):
            await ask(folder, "auth.connect", token="alice")


async def test_one_connection_serves_several_calls_at_once(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (house, folder, _), raw(folder) as (reader, writer):
        writer.write(b'{"jsonrpc":"2.0","id":"w","method":"wait"}\n\n')
        writer.write(b'{"jsonrpc":"2.0","id":2,"method":"ping"}\r\n')
        assert loads(await reader.readline())["id"] == 2
        house.service.gates["gate"].set()
        assert loads(await reader.readline()) == {"jsonrpc": "2.0", "id": "w", "result": "gate"}

        def several() -> list[Any]:
            with Control(folder) as node:
                return [node.call("echo", {"value": number}) for number in range(3)]

        assert await asyncio.to_thread(several) == [0, 1, 2]


async def test_large_answers_arrive_whole(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, folder, _):
        assert len(await ask(folder, "big", count=1_900_000)) == 1_900_000


async def test_a_stream_sends_items_in_order_and_then_its_result(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (house, folder, _), raw(folder) as (reader, writer):
        house.service.gates["gate"] = asyncio.Event()
        house.service.gates["gate"].set()
        writer.write(dumps({"jsonrpc": "2.0", "id": 9, "method": "follow", "params": {"count": 1000}}) + b"\n")
        for number in range(1000):
            frame = loads(await reader.readline())
            assert frame == {"jsonrpc": "2.0", "method": "item", "params": {"id": 9, "value": number}}
        assert loads(await reader.readline()) == {"jsonrpc": "2.0", "id": 9, "result": {"items": 1000}}
        assert house.service.closed_streams == 1
        assert house.limits.hits == {}


async def test_a_stream_waits_for_a_reader_that_is_slow(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (house, folder, _), raw(folder) as (reader, writer):
        house.service.gates["gate"] = asyncio.Event()
        house.service.gates["gate"].set()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(dumps({"jsonrpc": "2.0", "id": 9, "method": "follow", "params": {"count": 50_000}}) + b"\n")
        await until(lambda: len(house.channels) == 1 and house.channels._channels["c1"].waiting > 100)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(50_000):
            await reader.readline()
        assert loads(await reader.readline())["result"] == {"items": 50_000}
        assert house.limits.hits == {}


async def test_the_clients_stream_ends_when_the_caller_has_enough(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (house, folder, _):

        def some() -> list[int]:
            items = Control(folder).stream("follow", {"count": 3})
            found = [next(items), next(items), next(items)]
            items.close()  # type: ignore[attr-defined]
            return found

        assert await asyncio.to_thread(some) == [0, 1, 2]
        await until(lambda: house.service.closed_streams == 1)
        assert house.sessions.running == 0


async def test_nobody_listens_is_said_as_such(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(NotRunning, match="no node is running"):
            Control(folder).call("ping")
    (tmp_path / "run").mkdir()
    with pytest.raises(NotRunning):
        Control(tmp_path).call("ping")
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "run" / "ctl.sock"))
    dead.close()
    with pytest.raises(NotRunning):
        Control(tmp_path).call("ping")


async def test_a_leftover_socket_is_replaced_and_the_mode_is_private(tmp_path: Path) -> None:
    (tmp_path / "state" / "run").mkdir(parents=True)
    path = tmp_path / "state" / "run" / "ctl.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    async with gateway() as house:
        control = ControlSocket(path.parent, house.sessions, house.clock, house.limits, house.sessions.spawn)
        await control.start()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await ask(tmp_path / "state", "ping") == {"pong": True}
        control.stop()
        assert not path.exists()
        with pytest.raises(NotRunning):
            await ask(tmp_path / "state", "ping")


async def test_a_path_longer_than_a_socket_address_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    async with controlled(deep) as (_, folder, _):
        assert len(str(folder / "run" / "ctl.sock")) > 200
        assert await ask(folder, "ping") == {"pong": True}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_another_user_is_refused_even_with_an_open_door(tmp_path: Path) -> None:
    async with controlled(tmp_path / "state") as (house, folder, control):
        path = folder / "run" / "ctl.sock"
        os.chmod(path, 0o666)
        with _reachable(path.parent):
            program = (
                "import os, socket, sys\n"
                "where = os.open(sys.argv[1], os.O_PATH)\n"
                "os.setgid(65534); os.setuid(65534)\n"
                "s = socket.socket(socket.AF_UNIX); s.connect(f'/proc/self/fd/{where}/ctl.sock')\n"
                'try: s.sendall(b\'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n\')\n'
                "except BrokenPipeError: pass\n"
                "data = b''\n"
                "while True:\n"
                "    try: chunk = s.recv(4096)\n"
                "    except ConnectionResetError: break\n"
                "    if not chunk: break\n"
                "    data += chunk\n"
                "sys.stdout.write(data.decode())\n"
            )
            child = await asyncio.to_thread(
                subprocess.run, [sys.executable, "-c", program, str(path.parent)], capture_output=True, timeout=20
            )
        assert b"NotPermitted" in child.stdout, child.stderr
        assert b"pong" not in child.stdout
        assert control.refused == 1
        assert len(house.channels) == 0
        os.chmod(path, 0o600)
        assert await ask(folder, "ping") == {"pong": True}


@contextlib.contextmanager
def _reachable(folder: Path) -> Any:
    """Let everybody walk down to a folder, for the length of a test."""
    modes = {parent: parent.stat().st_mode for parent in (folder, *folder.parents) if parent.owner() == "root"}
    for parent in modes:
        os.chmod(parent, stat.S_IMODE(modes[parent]) | 0o011)
    try:
        yield
    finally:
        for parent, mode in modes.items():
            os.chmod(parent, stat.S_IMODE(mode))


def test_the_client_names_the_reason_when_it_may_not_dial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(NotPermitted, match="only its user and root"):
        Control(tmp_path).call("ping")


@pytest.mark.limit("ctl.line_octets")
async def test_a_line_over_the_limit_is_refused_and_closes(tmp_path: Path) -> None:
    async with controlled(tmp_path, limits={"ctl.line_octets": 1000}) as (house, folder, _):
        async with raw(folder) as (reader, writer):
            shell = b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"value":"%b"}}'
            writer.write(shell % (b"x" * (1000 - len(shell) + 2)) + b"\n")
            assert "result" in loads(await reader.readline())
            writer.write(shell % (b"x" * 3000) + b"\n")
            assert loads(await reader.readline())["error"]["data"]["error"] == "TooLarge"
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        assert house.limits.hits == {"ctl.line_octets": 1}


async def test_garbage_is_answered_and_the_connection_lives(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, folder, _), raw(folder) as (reader, writer):
        for garbage, name in ((b"\xff\xfe", "Malformed"), (b"[]", "InvalidRequest"), (b"[" * 10_000, "Malformed")):
            writer.write(garbage + b"\n")
            assert loads(await reader.readline())["error"]["data"]["error"] == name
        writer.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        assert loads(await reader.readline())["result"] == {"pong": True}


@pytest.mark.limit("ctl.connections")
async def test_connections_are_bounded(tmp_path: Path) -> None:
    async with controlled(tmp_path, limits={"ctl.connections": 1}) as (house, folder, _):
        async with raw(folder) as (reader, writer):
            writer.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            await reader.readline()
            async with raw(folder) as (other, _):
                assert loads(await other.readline())["error"]["data"]["error"] == "Unavailable"
                assert await other.read() == b""
        await until(lambda: len(house.channels) == 0)
        assert await ask(folder, "ping") == {"pong": True}


@pytest.mark.limit("ctl.close_seconds")
async def test_a_peer_that_does_not_read_its_last_line_is_cut_off(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (house, folder, _), raw(folder) as (reader, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        for key in range(3):
            writer.write(dumps({"jsonrpc": "2.0", "id": key, "method": "big", "params": {"count": 900_000}}) + b"\n")
        await until(lambda: house.sessions.running == 2)
        house.sessions.close_all()
        house.clock.advance(2 * SECOND)
        await until(lambda: len(house.channels) == 0)
        house.clock.advance(5 * SECOND)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionResetError):
            while await reader.read(65_536):
                pass
        assert house.limits.hits == {"session.flush_ms": 1, "ctl.close_seconds": 1}


def test_the_client_imports_standard_library_and_contract_only() -> None:
    program = (
        "import sys, edge.cli.client\n"
        "heavy = {'asyncio', 'ssl', 'starlette', 'uvicorn', 'sqlite3', 'cryptography', 'edge.session'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
