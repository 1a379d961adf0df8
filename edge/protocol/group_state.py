"""The signed state of a group as a server sees it: strings that members vouch for (spec aun-services §5.3, Q-14)."""

from __future__ import annotations

import hashlib

from edge.contract.errors import EdgeError
from edge.contract.wire import JsonLimits, loads

MAX_VERSION = (1 << 32) - 1
"""Clients hash the version as 32 bits."""


def chain(previous: str, state_hash: str) -> str:
    """The hash of every state up to this one; clients only compare it."""
    return hashlib.sha256(f"aun-edge state chain v1|{previous}|{state_hash}".encode()).hexdigest()


def committed(snapshot: str, limits: JsonLimits) -> frozenset[str] | None:
    """The members a snapshot vouches for; None when it cannot be read.

    Snapshots are `{"members": [{"aid": …}, …]}`, or from earlier clients an array of AIDs.
    """
    try:
        found = loads(snapshot, limits)
    except EdgeError:
        return None
    listed = found.get("members") if isinstance(found, dict) else found
    if not isinstance(listed, list):
        return None
    aids = [one.get("aid") if isinstance(one, dict) else one for one in listed]
    return frozenset(aid for aid in aids if isinstance(aid, str))
