"""Ask a running node through its control socket. Standard library and contract only: a status must be quick."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from edge.cli.failure import NotRunning
from edge.contract import errors
from edge.contract.errors import EdgeError, Internal, Malformed, NotPermitted
from edge.contract.wire import JsonLimits, dumps, loads

LIMITS = JsonLimits(octets=16_777_216, depth=64)
CHUNK = 65_536


class Control:
    """A node's control socket. `with` dials once for several calls; without it each call dials anew."""

    def __init__(self, state_dir: str | Path, timeout_s: float | None = 60.0) -> None:
        self._state_dir = Path(state_dir)
        self._timeout_s = timeout_s
        self._kept: _Connection | None = None

    def __enter__(self) -> Control:
        self._kept = _Connection(self._state_dir, self._timeout_s)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def call(self, name: str, params: Mapping[str, Any] | None = None) -> Any:
        """Run an operation; its result. Raises `NotRunning`, `TimeoutError`, and the error that the node named."""
        connection = self._kept or _Connection(self._state_dir, self._timeout_s)
        try:
            return next(value for is_item, value in connection.ask(name, params or {}) if not is_item)
        finally:
            if connection is not self._kept:
                connection.close()

    def stream(self, name: str, params: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """Run an operation that follows something: its items, as long as they come. Raises as `call` does."""
        connection = _Connection(self._state_dir, None)
        try:
            yield from (value for is_item, value in connection.ask(name, params or {}) if is_item)
        finally:
            connection.close()


class _Connection:
    """One dialled connection; questions one after the other."""

    def __init__(self, state_dir: Path, timeout_s: float | None) -> None:
        self._state_dir = state_dir
        self._socket = _dial(state_dir, timeout_s)
        self._lines = _lines(self._socket)
        self._ids = itertools.count(1)

    def ask(self, name: str, params: Mapping[str, Any]) -> Iterator[tuple[bool, Any]]:
        """Items as (True, value), then the result as (False, value)."""
        key = next(self._ids)
        with suppress(BrokenPipeError):  # refused at once: the node has already said why
            self._socket.sendall(dumps({"jsonrpc": "2.0", "id": key, "method": name, "params": params}) + b"\n")
        for line in self._lines:
            frame = loads(line, LIMITS)
            if frame.get("method") == "item" and frame["params"]["id"] == key:
                yield True, frame["params"]["value"]
            elif "error" in frame and frame["id"] in (key, None):
                raise _error(frame["error"])
            elif "result" in frame and frame["id"] == key:
                yield False, frame["result"]
                return
        raise NotRunning(self._state_dir)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def _dial(state_dir: Path, timeout_s: float | None) -> socket.socket:
    """Through a descriptor of `run/`: a Unix socket's path has at most 107 bytes, this one always fits."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout_s)
    try:
        where = os.open(state_dir / "run", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sock.connect(f"/proc/self/fd/{where}/ctl.sock")
        finally:
            os.close(where)
    except OSError as error:
        sock.close()
        if isinstance(error, PermissionError):
            raise NotPermitted(f"only its user and root may ask the node at {state_dir}") from None
        if isinstance(error, FileNotFoundError | NotADirectoryError | ConnectionRefusedError):
            raise NotRunning(state_dir) from None
        raise
    return sock


def _lines(sock: socket.socket) -> Iterator[bytes]:
    line = bytearray()
    while chunk := _received(sock):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            whole = bytes(line + part)
            line.clear()
            yield whole
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
