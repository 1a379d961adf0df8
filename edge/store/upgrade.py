"""The child process of `edge.store.migrate`: brings one file to this release."""

from __future__ import annotations

import sys
from pathlib import Path

from edge.store import migrate
from edge.store.connection import open_writer
from edge.store.schema import MIGRATIONS


def main(path: str, file: str) -> None:
    """Apply what is due to the database at `path`, which is `node` or `hot`."""
    conn = open_writer(Path(path))
    migrate.inline(conn, file, MIGRATIONS)
    conn.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
