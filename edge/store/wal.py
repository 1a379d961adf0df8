"""What the write-ahead log looks like from outside SQLite: salts and frames (sqlite.org/walformat.html).

`Index` reads the 48-byte header of the wal-index while the file is open; `cut_off` reads what of the log SQLite left
unread when it opened the file. Both only look.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import NamedTuple

_INDEX_HEADER = struct.Struct("=4xIIBBHII8x8s8x")
"""unused iVersion: (unused, iChange, isInit, bigEndCksum, szPage, mxFrame, nPage, aFrameCksum, aSalt, aCksum)."""


class State(NamedTuple):
    """Salts of the WAL now in use and how many of its frames are committed."""

    salt: bytes
    frames: int


class Index:
    """The wal-index of an open database, read beside SQLite (its header is one page of shared memory).

    One for all of a process: POSIX drops every lock that a process holds on a file when it closes any descriptor of
    it, and with its locks gone the next program that opens the database would take the wal-index away under SQLite.
    """

    def __init__(self, path: Path) -> None:
        self._file: int | None = None
        self._path = Path(f"{path}-shm")

    def state(self) -> State:
        """Salts and committed frames now; (b"", 0) as long as there is no wal-index."""
        if self._file is None:
            try:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return State(b"", 0)
        header = os.pread(self._file, _INDEX_HEADER.size, 0)
        if len(header) < _INDEX_HEADER.size:
            return State(b"", 0)
        _, _, _, _, _, frames, _, salt = _INDEX_HEADER.unpack(header)
        return State(salt, frames)

    def pages(self) -> int:
        """How many pages the database has once everything is in it; 0 as long as there is no wal-index."""
        header = os.pread(self._file, _INDEX_HEADER.size, 0) if self._file is not None else b""
        return int(_INDEX_HEADER.unpack(header)[6]) if len(header) == _INDEX_HEADER.size else 0

    def close(self) -> None:
        """Let the file go; after the last connection of this process is closed."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


_FILE_HEADER = struct.Struct(">III4x8s8s")
"""magic, version, page size, (checkpoints), salt, checksum."""
_FRAME_HEADER = struct.Struct(">4xI8s8s")
"""(page), pages of the database after a commit (0: no commit), salt, checksum."""
_ORDER = {0x377F0682: "<", 0x377F0683: ">"}
"""By magic, the byte order of the words that a checksum is made of: that of the machine that wrote the log."""


def cut_off(path: Path, frames: int, page: int) -> int:
    """How many commits that were on disk lie behind the place where SQLite stopped reading a log, after `frames`.

    `page` is the size of a page. SQLite takes the first frame that it cannot verify for the end. A power cut leaves the
    log so; but where damage made a frame unreadable, frames of the same log go on behind it. With `synchronous=FULL` a
    commit is on disk before the next one begins, so of those that hang together all but the last were.

    Raises `OSError`.
    """
    size = _FRAME_HEADER.size + page
    with Path(f"{path}-wal").open("rb") as file:
        header = file.read(_FILE_HEADER.size)
        file.seek(_FILE_HEADER.size + frames * size)
        log = file.read()
    if len(header) < _FILE_HEADER.size:
        return 0
    magic, _, _, wanted, checksum = _FILE_HEADER.unpack(header)
    order = _ORDER.get(magic, "")
    if not order or _checksum(order, bytes(8), header[:24]) != checksum:
        order, wanted = "<" if sys.byteorder == "little" else ">", b""  # whose log it was, nobody knows any more
    most = commits = 0
    salt = before = b""
    for start in range(0, len(log) - size + 1, size):
        last, (ends, salt, checksum) = salt, _FRAME_HEADER.unpack_from(log, start)
        if wanted and salt != wanted:
            commits = 0
            continue
        if salt != last or _checksum(order, before, log[start : start + 8], log[start + 24 : start + size]) != checksum:
            commits = 0
        commits += ends > 0
        most = max(most, commits - 1)
        before = checksum
    return most


def _checksum(order: str, seed: bytes, *parts: bytes) -> bytes:
    """The checksum of bytes, going on from `seed`."""
    one, two = struct.unpack(">II", seed)
    for part in parts:
        words = struct.unpack(f"{order}{len(part) // 4}I", part)
        for first, second in zip(words[::2], words[1::2], strict=True):
            one = (one + first + two) & 0xFFFFFFFF
            two = (two + second + one) & 0xFFFFFFFF
    return struct.pack(">II", one, two)
