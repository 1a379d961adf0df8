"""Every migration of both files, in order. An owner module adds its list here."""

from __future__ import annotations

from edge.store import (
    alarms,
    boot,
    credentials,
    devices,
    group_joins,
    group_keys,
    group_logs,
    groups,
    identity,
    ledger,
    logs,
    messages,
    mqtt,
    once,
    opening,
    persons,
    push,
    read_states,
    readings,
    spool,
    tasks,
)
from edge.store.migration import Migration

MIGRATIONS: list[Migration] = [
    *opening.MIGRATIONS,
    *boot.MIGRATIONS,
    *logs.MIGRATIONS,
    *ledger.MIGRATIONS,
    *once.MIGRATIONS,
    *identity.MIGRATIONS,
    *credentials.MIGRATIONS,
    *persons.MIGRATIONS,
    *devices.MIGRATIONS,
    *readings.MIGRATIONS,
    *messages.MIGRATIONS,
    *read_states.MIGRATIONS,
    *mqtt.MIGRATIONS,
    *spool.MIGRATIONS,
    *tasks.MIGRATIONS,
    *push.MIGRATIONS,
    *alarms.MIGRATIONS,
    *groups.MIGRATIONS,
    *group_joins.MIGRATIONS,
    *group_logs.MIGRATIONS,
    *group_keys.MIGRATIONS,
]
