"""`run/ready.json`: what installers and scripts read; there only while the node answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edge.contract.time import SECOND, Clock, later
from edge.contract.wire import dumps
from edge.system.files import write_atomic

log = logging.getLogger(__name__)

READY = Path("run") / "ready.json"
"""Where it lies in the state directory."""
VERSION = 1
AGAIN_US = 5 * SECOND


class ReadyFile:
    """The file of one run; `write` whenever what it says has changed."""

    def __init__(self, path: Path, clock: Clock, facts: Callable[[], Mapping[str, Any]]) -> None:
        self._path, self._clock, self._facts = path, clock, facts
        self._cancel: Callable[[], None] = lambda: None

    def write(self) -> None:
        """Say what is true now; where the disk does not take it, once it does."""
        self._cancel()
        try:
            write_atomic(self._path, dumps({"version": VERSION, **self._facts()}) + b"\n")
        except OSError as error:
            log.error("the ready file cannot be written yet: %s", error)
            self._cancel = later(self._clock, AGAIN_US, self.write)

    def remove(self) -> None:
        """The node answers no more."""
        self._cancel()
        self._path.unlink(missing_ok=True)
