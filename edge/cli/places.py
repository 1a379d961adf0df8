"""Where a node keeps its state, and what it says about itself there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge.cli.failure import Exit, Failure, NotRunning
from edge.contract.errors import EdgeError
from edge.contract.wire import loads


def default_state_dir(environ: Mapping[str, str], uid: int) -> Path:
    """`/var/lib/aun-edge` for root, else `$XDG_STATE_HOME/aun-edge` (`~/.local/state/aun-edge`)."""
    if uid == 0:
        return Path("/var/lib/aun-edge")
    base = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME", "."), ".local", "state")
    return Path(base) / "aun-edge"


def ready(state_dir: Path) -> dict[str, Any]:
    """What the node wrote when it was ready. Raises `NotRunning`."""
    path = state_dir / "run" / "ready.json"
    try:
        found = loads(path.read_bytes())
    except PermissionError:
        raise Failure(
            f"{path} may not be read", next_step="run this as the user of the node", code=Exit.NOT_PERMITTED
        ) from None
    except (OSError, EdgeError):
        raise NotRunning(state_dir) from None
    if not isinstance(found, dict):
        raise NotRunning(state_dir)
    return found
