"""Ask a running node through its control socket. Standard library and contract only: a status must be quick."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from edge.contract import errors
from edge.contract.errors import EdgeError, Internal, Malformed, NotPermitted
from edge.contract.wire import JsonLimits, dumps, loads

LIMITS = JsonLimits(octets=16_777_216, depth=64)
CHUNK = 65_536


class NodeNotRunning(Exception):
    """Nobody listens at this state directory's control socket."""


class Control:
    """A node's control socket. Each call dials anew; nothing is kept open between calls."""

    def __init__(self, state_dir: str | Path, timeout_s: float | None = 60.0) -> None:
        self._run_dir = Path(state_dir) / "run"
        self._timeout_s = timeout_s

    def call(self, name: str, params: Mapping[str, Any] | None = None) -> Any:
        """Run an operation; its result. Raises `NodeNotRunning`, `TimeoutError`, and the error that the node named."""
        result = None
        for is_item, value in self._ask(name, params or {}, self._timeout_s):
            if not is_item:
                result = value
        return result

    def stream(self, name: str, params: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """Run an operation that follows something: its items, as long as they come. Raises as `call` does."""
        for is_item, value in self._ask(name, params or {}, None):
            if is_item:
                yield value

    def _ask(self, name: str, params: Mapping[str, Any], timeout_s: float | None) -> Iterator[tuple[bool, Any]]:
        request = dumps({"jsonrpc": "2.0", "id": 1, "method": name, "params": params})
        with self._dialled(timeout_s) as sock:
            with suppress(BrokenPipeError):  # refused at once: the node has already said why
                sock.sendall(request + b"\n")
            for line in _lines(sock):
                frame = loads(line, LIMITS)
                if frame.get("method") == "item":
                    yield True, frame["params"]["value"]
                elif "error" in frame:
                    raise _error(frame["error"])
                else:
                    yield False, frame.get("result")
                    return
        raise NodeNotRunning("the node closed the control socket without an answer")

    @contextmanager
    def _dialled(self, timeout_s: float | None) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(timeout_s)
            try:
                where = os.open(self._run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    sock.connect(f"/proc/self/fd/{where}/ctl.sock")  # a path has at most 107 bytes; this always fits
                finally:
                    os.close(where)
            except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
                raise NodeNotRunning(f"no node is running at {self._run_dir.parent}") from error
            except PermissionError:
                raise NotPermitted(
                    f"not permitted to ask the node at {self._run_dir.parent}: be its user, or root"
                ) from None
            yield sock


def _lines(sock: socket.socket) -> Iterator[bytes]:
    line = bytearray()
    while chunk := _received(sock):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            yield bytes(line + part)
            line.clear()
        line += rest
        if len(line) > LIMITS.octets:
            raise Malformed("an answer of the node is too long")


def _received(sock: socket.socket) -> bytes:
    try:
        return sock.recv(CHUNK)
    except ConnectionResetError:
        return b""


def _error(sent: Mapping[str, Any]) -> EdgeError:
    """The error that the node named, as the class that it raised."""
    data = dict(sent.get("data") or {})
    found = getattr(errors, str(data.pop("error", "")), Internal)
    kind = found if isinstance(found, type) and issubclass(found, EdgeError) else Internal
    data.pop("retryable", None)
    return kind(str(sent.get("message", "")), data=data)
