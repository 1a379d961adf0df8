"""One question to a running node; silence is told as a verb tells a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge.cli.client import Control
from edge.cli.failure import Exit, Failure


def ask(state_dir: Path, operation: str, /, *, wait_s: float = 60, **params: Any) -> Any:
    """The node's answer. Raises `NotRunning`, `Failure` when none comes in `wait_s`, or what the node raised."""
    try:
        return Control(state_dir, wait_s).call(operation, params)
    except TimeoutError:
        what = f"the node on {state_dir} did not answer {operation} within {wait_s:.0f} s"
        raise Failure(what, next_step="aun-edge doctor", code=Exit.TRY_LATER) from None
