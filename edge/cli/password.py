"""Passwords that a verb is given: from a file, or asked for."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

from edge.cli.failure import Exit, Failure


def from_file(path: Path) -> str:
    """The first line of a file; `-` is standard input. Raises `Failure`."""
    try:
        whole = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise Failure(f"the password cannot be read: {error}", code=Exit.USAGE) from None
    return whole.partition("\n")[0].rstrip("\r")


def chosen(path: Path | None) -> str:
    """A new password: from the file that was named, else asked for, twice. Raises `Failure`."""
    if path is not None:
        return from_file(path)
    first = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != first:
        raise Failure("these were two different passwords", code=Exit.USAGE)
    return first
