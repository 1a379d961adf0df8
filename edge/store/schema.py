"""Every migration of both files, in order. An owner module adds its list here."""

from __future__ import annotations

from edge.store import ledger, logs, once
from edge.store.migration import Migration

MIGRATIONS: list[Migration] = [
    *logs.MIGRATIONS,
    *ledger.MIGRATIONS,
    *once.MIGRATIONS,
]
