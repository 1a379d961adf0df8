"""Passwords that a verb is given: from a file, or asked for."""

from __future__ import annotations

import getpass
import sys
import warnings
from pathlib import Path

from edge.cli.failure import Exit, Failure


def from_file(path: Path) -> str:
    """The first line of a file; `-` is standard input. Raises `Failure`."""
    try:
        whole = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        step = "name a file whose first line is the password, or `-` for standard input"
        raise Failure(f"the password cannot be read from {path}: {why}", next_step=step, code=Exit.USAGE) from None
    return whole.partition("\n")[0].rstrip("\r")


def chosen(path: Path | None) -> str:
    """A new password: from the file that was named, else asked for, twice. Raises `Failure`."""
    if path is not None:
        return from_file(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)
            first = getpass.getpass("Password: ")
            again = getpass.getpass("Again: ")
    except getpass.GetPassWarning:  # there is no terminal, and it would be read from wherever, and shown
        step = "--password-file FILE; `-` is standard input"
        raise Failure(
            "the password is asked for on a terminal, and there is none", next_step=step, code=Exit.USAGE
        ) from None
    except EOFError:
        raise Failure("no password was typed", code=Exit.USAGE) from None
    if again != first:
        raise Failure("these were two different passwords", next_step="type it twice again", code=Exit.USAGE)
    return first
