"""Small file systems, for tests of a full disk, and what fills them. Mounting takes root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def mounted(parent: Path, octets: int) -> Iterator[Path]:
    """A file system of its own, of so many bytes; the test is NOT RUN where none can be mounted."""
    folder = parent / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={octets}", "none", folder]).returncode:
        pytest.skip("NOT RUN: cannot mount a small file system here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(file: Path) -> int:
    """Let `file` take all the room that is left; how long it is then."""
    with file.open("ab", buffering=0) as filler:
        for size in (1 << 16, 4096, 1):
            with suppress(OSError):
                while True:
                    filler.write(bytes(size))
        return filler.tell()
