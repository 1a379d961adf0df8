"""How a verb fails: what, why, the next command, and the exit code (design §4)."""

from __future__ import annotations

from argparse import Namespace
from enum import IntEnum
from pathlib import Path

from edge.contract.errors import (
    Conflict,
    EdgeError,
    InvalidParams,
    MethodNotFound,
    NameTaken,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    TaskError,
    TaskNotFound,
)

NOT_YOU = "run this as the user of the node, or as root"
"""The next step of who may not."""


class Exit(IntEnum):
    """Exit codes that scripts rely on."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_RUNNING = 3
    NOT_PERMITTED = 4
    TRY_LATER = 75
    INTERRUPTED = 130


class Failure(Exception):
    """What went wrong and why; `next_step` is a command or an act that helps, "" if none is known."""

    def __init__(self, what: str, *, next_step: str = "", code: int = Exit.FAILED) -> None:
        super().__init__(what)
        self.what, self.next_step, self.code = what, next_step, code


class NotRunning(Failure):
    """Nobody answers for this state directory."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(
            f"no node is running on {state_dir}",
            next_step=f"aun-edge run --state-dir {state_dir}, or name the directory of a running one with --state-dir",
            code=Exit.NOT_RUNNING,
        )


def exit_code(error: EdgeError) -> int:
    """The exit code that stands for what a node answered."""
    if isinstance(error, NotPermitted | NotAuthenticated):
        return Exit.NOT_PERMITTED
    if isinstance(error, NotFound | TaskNotFound | InvalidParams | MethodNotFound):
        return Exit.USAGE
    return Exit.TRY_LATER if error.retryable else Exit.FAILED


def following(what: str, code: int, options: Namespace, error: EdgeError | None = None) -> str:
    """The next command after a failure that names none: what lists the names there are, the help of the verb, or the
    doctor. "" when `what` says a command itself."""
    if "aun-edge " in what:
        return ""
    listing = getattr(options, "listing", "")
    if listing and isinstance(error, NotFound | TaskError | NameTaken):
        return f"aun-edge {listing}"
    if code == Exit.USAGE or isinstance(error, Conflict):
        return f"{options.help_of.prog} --help"
    if code == Exit.NOT_PERMITTED:
        return NOT_YOU
    return "the same again in a while, or aun-edge doctor" if code == Exit.TRY_LATER else "aun-edge doctor"
