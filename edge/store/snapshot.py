"""A consistent copy of a node's state in a folder, while the node runs or while it does not (design D18).

Each database is copied page by page inside one read transaction, so the copy is the file of one moment and commits
go on meanwhile (the write-ahead log grows until the copy is done). The databases come first and the identity last:
an incarnation in the copy is never older than the numbers beside it.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

from edge.store.connection import open_reader
from edge.system.files import sync_directory

DATABASES = ("node", "hot")
FOLDERS = ("identity", "config.d")
FILES = ("ports.json",)

STEP_PAGES = 256
"""Pages copied between two looks at whether somebody still wants the copy."""

Progress = Callable[[str, int, int], None]
"""Name of the file, bytes done, bytes in all. What it raises ends the work."""


def copy_database(source: Path, to: Path, name: str, progress: Progress) -> None:
    """Copy an open or closed database as of now; on disk when this returns. Blocks. Raises `OSError`."""
    os.close(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        _copy_pages(source, to, name, progress)
    except sqlite3.Error as error:
        raise OSError(errno.EIO, f"{name} cannot be copied: {error}") from None
    sync_file(to)


def _copy_pages(source: Path, to: Path, name: str, progress: Progress) -> None:
    reader = open_reader(source)
    try:
        [(page,)] = reader.execute("PRAGMA page_size").fetchall()
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchall()  # the snapshot begins with the first read
        writer = sqlite3.connect(to, isolation_level=None)
        try:
            writer.execute("PRAGMA synchronous = OFF")  # one sync at the end is enough: half a copy is none
            reader.backup(
                writer,
                pages=STEP_PAGES,
                progress=lambda status, left, pages: progress(name, (pages - left) * page, pages * page),
            )
        finally:
            writer.close()
    finally:
        reader.close()


def copy_rest(state_dir: Path, to: Path) -> None:
    """Copy identity, local configuration and remembered ports. Blocks. Raises `OSError`."""
    for name in FOLDERS:
        (to / name).mkdir(mode=0o700)
        if (state_dir / name).is_dir():
            _copy_folder(state_dir / name, to / name)
    for name in FILES:
        if (state_dir / name).is_file():
            _copy_file(state_dir / name, to / name)


def make(state_dir: Path, to: Path, progress: Progress) -> None:
    """The whole copy of a node that does not run; the caller holds its lock. Blocks. Raises `OSError`."""
    (to / "store").mkdir(mode=0o700, parents=True)
    for name in DATABASES:
        if (source := state_dir / "store" / f"{name}.db").exists():
            copy_database(source, to / "store" / source.name, f"store/{source.name}", progress)
    copy_rest(state_dir, to)


def _copy_folder(source: Path, to: Path) -> None:
    """Regular files and folders; what is being written anew (`.name.pid.new`) is left out."""
    for entry in sorted(source.iterdir()):
        if entry.is_symlink() or (entry.name.startswith(".") and entry.name.endswith(".new")):
            continue
        if entry.is_dir():
            (to / entry.name).mkdir(mode=0o700)
            _copy_folder(entry, to / entry.name)
        elif entry.is_file():
            _copy_file(entry, to / entry.name)


def _copy_file(source: Path, to: Path) -> None:
    descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with source.open("rb") as old, os.fdopen(descriptor, "wb") as new:
        shutil.copyfileobj(old, new)


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Make a folder and everything in it durable."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            sync_file(Path(place) / name)
        sync_directory(Path(place))
