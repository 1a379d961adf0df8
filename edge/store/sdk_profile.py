"""The one row of the AUN SDK's own database that tells it where a gateway is (spec aun-connect §3.4 D).

Not one of our tables: the file belongs to the SDK, which may have made it already.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

_TABLE = """CREATE TABLE IF NOT EXISTS metadata_kv
    (key TEXT PRIMARY KEY, value TEXT NOT NULL, updated_at INTEGER NOT NULL)"""
_SET = """INSERT INTO metadata_kv (key, value, updated_at) VALUES (?, ?, 0)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value"""


def set_metadata(path: Path, key: str, value: str) -> None:
    """Set one value; the file and its table are made if they are not there."""
    conn = sqlite3.connect(path)
    try:
        with conn:
            conn.execute(_TABLE)
            conn.execute(_SET, (key, value))
    finally:
        conn.close()
