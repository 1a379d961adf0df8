"""How far something is, on one line of a terminal; silent when nobody watches."""

from __future__ import annotations

from typing import TextIO

WIDTH = 30


class Bar:
    """Redraws its line when a percent has changed. Use as a context manager: the line is gone at the end."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown = ""
        self._watched = out.isatty()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._shown:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def __call__(self, name: str, done: int, total: int) -> None:
        """`done` of `total`, whatever the unit."""
        if not self._watched:
            return
        part = done / total if total else 1.0
        line = f"[{'#' * int(part * WIDTH):{WIDTH}}] {int(part * 100):3} % {name[:40]}"
        if line != self._shown:
            self._shown = line
            self._out.write(f"\r\x1b[K{line}")
            self._out.flush()
