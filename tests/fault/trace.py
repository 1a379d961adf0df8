"""A program's system calls, and what a medium would hold if the power went after any of them.

Every 512-byte sector written and not yet synced is on the medium or not, as a coin says. Names (create, rename,
unlink) and sizes are kept in order, as a journalling file system does.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SECTOR = 512
_CALLS = "openat,close,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat"
_LINE = re.compile(r"^(\d+)\s+(.*)$")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class Op(NamedTuple):
    """One thing that happened: `kind` is write, size, sync, rename, unlink or ack (`number`)."""

    kind: str
    file: str = ""
    number: int = 0
    data: bytes = b""
    to: str = ""


def record(command: Sequence[str], trace: Path, environment: dict[str, str]) -> None:
    """Run a program to its end under strace. Raises when it fails."""
    strace = ["strace", "-f", "-xx", "-s", "1000000", "-e", f"trace={_CALLS}", "-e", "signal=none", "-o", str(trace)]
    result = subprocess.run(
        [*strace, *command], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    if result.returncode:
        raise RuntimeError(f"{command} failed: {result.stderr[-2000:]}")


def read(trace: Path, folder: Path) -> list[Op]:
    """What happened to the files of `folder`, and each `ACK n` written to descriptor 1, in order."""
    return list(_Reader(folder).ops(_whole(trace)))


def _whole(trace: Path) -> Iterator[str]:
    """Calls of several threads untangled: a write, an ack counts when it begins, a sync when it ends."""
    begun: dict[str, str] = {}
    with trace.open(encoding="latin1") as lines:
        for line in lines:
            found = _LINE.match(line.rstrip("\n"))
            if found is None:
                continue
            thread, text = found.groups()
            if text.endswith("<unfinished ...>"):
                text = text.removesuffix("<unfinished ...>")
                begun[thread] = text
                if text.startswith(("write(", "pwrite64(")):
                    yield text
            elif text.startswith("<... "):
                head = begun.pop(thread, "")
                if head and not head.startswith(("write(", "pwrite64(")):
                    yield head + text.split("resumed>", 1)[1]
            else:
                yield text


class _Reader:
    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder}/"
        self._names: dict[int, str] = {}
        self._places: dict[int, int] = {}

    def ops(self, calls: Iterator[str]) -> Iterator[Op]:
        for call in calls:
            name, _, rest = call.partition("(")
            if name == "write" and rest.startswith("1, "):
                yield from self._ack(rest)
            elif handle := getattr(self, f"_{name}", None):
                yield from handle(rest)

    def _ack(self, rest: str) -> Iterator[Op]:
        for word in _bytes(rest).split(b"\n"):
            if word.startswith(b"ACK "):
                yield Op("ack", number=int(word[4:]))

    def _openat(self, rest: str) -> Iterator[Op]:
        path, descriptor = _bytes(rest).decode(), int(rest.rpartition("= ")[2].split()[0])
        if descriptor < 0:
            return
        self._names.pop(descriptor, None)
        if path.startswith(self._folder) and not path.endswith("-shm"):
            name = path.removeprefix(self._folder)
            self._names[descriptor], self._places[descriptor] = name, 0
            if "O_CREAT" in rest:
                yield Op("create", name)
            if "O_TRUNC" in rest:
                yield Op("size", name, 0)

    def _close(self, rest: str) -> Iterator[Op]:
        self._names.pop(int(rest.split(")")[0]), None)
        return iter(())

    def _write(self, rest: str) -> Iterator[Op]:
        descriptor = int(rest.split(",")[0])
        if descriptor in self._names:
            data = _bytes(rest)
            yield Op("write", self._names[descriptor], self._places[descriptor], data)
            self._places[descriptor] += len(data)

    def _pwrite64(self, rest: str) -> Iterator[Op]:
        descriptor = int(rest.split(",")[0])
        if descriptor in self._names:
            place = int(rest.rpartition('"')[2].split(",")[2].split(")")[0])
            yield Op("write", self._names[descriptor], place, _bytes(rest))

    def _ftruncate(self, rest: str) -> Iterator[Op]:
        descriptor, size = (int(part) for part in rest.split(")")[0].split(","))
        if descriptor in self._names:
            yield Op("size", self._names[descriptor], size)

    def _fsync(self, rest: str) -> Iterator[Op]:
        descriptor = int(rest.split(")")[0])
        if descriptor in self._names:
            yield Op("sync", self._names[descriptor])

    _fdatasync = _fsync

    def _rename(self, rest: str) -> Iterator[Op]:
        source, target = (bytes.fromhex(word.replace("\\x", "")).decode() for word in _STRING.findall(rest))
        if source.startswith(self._folder) and rest.endswith("= 0"):
            yield Op("rename", source.removeprefix(self._folder), to=target.removeprefix(self._folder))

    _renameat = _renameat2 = _rename

    def _unlink(self, rest: str) -> Iterator[Op]:
        path = _bytes(rest).decode()
        if path.startswith(self._folder) and rest.endswith("= 0"):
            yield Op("unlink", path.removeprefix(self._folder))

    _unlinkat = _unlink


def _bytes(rest: str) -> bytes:
    found = _STRING.search(rest)
    return bytes.fromhex(found[1].replace("\\x", "")) if found else b""


class Medium:
    """What is on the medium for sure, and what is still on its way."""

    def __init__(self) -> None:
        self.acked: set[int] = set()
        self._durable: dict[str, bytearray] = {}
        self._pending: dict[str, list[Op]] = {}

    def apply(self, op: Op) -> None:
        """Let one thing happen."""
        match op.kind:
            case "ack":
                self.acked.add(op.number)
            case "create":
                self._durable.setdefault(op.file, bytearray())
            case "write" | "size":
                self._pending.setdefault(op.file, []).append(op)
            case "sync":
                for pending in self._pending.pop(op.file, []):
                    _put(self._durable.setdefault(op.file, bytearray()), pending, None)
            case "rename":
                self._durable[op.to] = self._durable.pop(op.file, bytearray())
                self._pending[op.to] = self._pending.pop(op.file, [])
            case "unlink":
                self._durable.pop(op.file, None)
                self._pending.pop(op.file, None)

    def cut(self, folder: Path, coin: random.Random) -> None:
        """Write what is left after a power cut now."""
        folder.mkdir(parents=True)
        for name in {*self._durable, *self._pending}:
            image = bytearray(self._durable.get(name, b""))
            for op in self._pending.get(name, []):
                _put(image, op, coin)
            (folder / name).write_bytes(image)


def _put(image: bytearray, op: Op, coin: random.Random | None) -> None:
    if op.kind == "size":
        del image[op.number :]
        image.extend(bytes(op.number - len(image)))
        return
    end = op.number + len(op.data)
    image.extend(bytes(max(0, end - len(image))))
    for start in range(op.number, end, SECTOR):
        if coin is None or coin.random() < 0.5:
            piece = op.data[start - op.number : start - op.number + SECTOR]
            image[start : start + len(piece)] = piece


PYTHON = sys.executable
