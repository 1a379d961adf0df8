"""What the write-ahead log looks like from outside SQLite: salts and frames (sqlite.org/walformat.html).

`Index` reads the 48-byte header of the wal-index while the file is open, `brought_in` what the last program left of the
wal-index before it is; `cut_off` reads what of the log SQLite left unread when it opened the file. All only look.
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


_CHECKPOINTED = struct.Struct("=96xI28xI")
"""Behind the two copies of the header: frames that are in the database, and frames that a checkpoint has begun with."""


def brought_in(path: Path) -> State:
    """Salts and committed frames of the log that was in use when the last program ended, when the database had all of
    them; else, or when it is not known, (b"", 0). Before anybody opens the file: SQLite begins its index anew.

    A checkpoint counts its frames after they are synced, in the sector where the salts are: what a power cut leaves of
    the index may be old, but it was so. Raises `OSError`.
    """
    index = Path(f"{path}-shm")
    if not index.exists():
        return State(b"", 0)
    with index.open("rb") as file:
        head = file.read(_CHECKPOINTED.size)
    if len(head) < _CHECKPOINTED.size:
        return State(b"", 0)
    _, _, _, _, _, frames, _, salt = _INDEX_HEADER.unpack_from(head)
    same = head[: _INDEX_HEADER.size] == head[_INDEX_HEADER.size : 2 * _INDEX_HEADER.size]
    return State(salt, frames) if same and _CHECKPOINTED.unpack(head) == (frames, frames) else State(b"", 0)


_FILE_HEADER = struct.Struct(">III4x8s8s")
"""magic, version, page size, (checkpoints), salt, checksum."""
_FRAME_HEADER = struct.Struct(">4xI8s8s")
"""(page), pages of the database after a commit (0: no commit), salt, checksum."""
_ORDER = {0x377F0682: "<", 0x377F0683: ">"}
"""By magic, the byte order of the words that a checksum is made of: that of the machine that wrote the log."""


class Cut(NamedTuple):
    """So many commits that were on disk are hidden by damage; `log` is what there is in all, readable or not: the salts
    of its header, or else of its first frame, and the number of the last frame that has them."""

    commits: int
    log: State


def cut_off(path: Path, frames: int, page: int) -> Cut:
    """What lies behind the place where SQLite stopped reading a log, after `frames`.

    `page` is the size of a page. SQLite takes the first frame that it cannot verify for the end. A power cut leaves the
    log so; but where damage made a frame unreadable, frames of the same log go on behind it. With `synchronous=FULL` a
    commit is on disk before the next one begins, so of those that hang together all but the last were.

    Raises `OSError`.
    """
    size = _FRAME_HEADER.size + page
    most = commits = 0
    salt = before = b""
    with Path(f"{path}-wal").open("rb") as file:
        header = file.read(_FILE_HEADER.size)
        if len(header) < _FILE_HEADER.size:
            return Cut(0, State(b"", 0))
        magic, _, _, wanted, checksum = _FILE_HEADER.unpack(header)
        order = _ORDER.get(magic, "")
        if not order or _checksum(order, bytes(8), header[:24]) != checksum:
            order, wanted = "<" if sys.byteorder == "little" else ">", b""  # whose log it was, nobody knows any more
        file.seek(_FILE_HEADER.size + frames * size)
        number = whole = frames
        own = wanted
        while len(frame := file.read(size)) == size:
            last, (ends, salt, checksum) = salt, _FRAME_HEADER.unpack_from(frame)
            number += 1
            own = own or salt
            whole = number if salt == own else whole
            if wanted and salt != wanted:
                commits = 0
                continue
            if salt != last or _checksum(order, before, frame[:8], frame[_FRAME_HEADER.size :]) != checksum:
                commits = 0
            commits += ends > 0
            most = max(most, commits - 1)
            before = checksum
    return Cut(most, State(own, whole))


def _checksum(order: str, seed: bytes, *parts: bytes) -> bytes:
    """The checksum of bytes, going on from `seed`."""
    one, two = struct.unpack(">II", seed)
    for part in parts:
        words = struct.unpack(f"{order}{len(part) // 4}I", part)
        for first, second in zip(words[::2], words[1::2], strict=True):
            one = (one + first + two) & 0xFFFFFFFF
            two = (two + second + one) & 0xFFFFFFFF
    return struct.pack(">II", one, two)
