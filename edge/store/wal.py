"""What the write-ahead log looks like from outside SQLite: salts and frames (sqlite.org/walformat.html).

`Index` reads the 48-byte header of the wal-index while the file is open; `read` parses a WAL file before it is
opened. Both only look.
"""

from __future__ import annotations

import os
import struct
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
