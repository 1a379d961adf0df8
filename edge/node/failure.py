"""Why a node does not start."""

from __future__ import annotations


class StartFailed(Exception):
    """The node cannot start as it was told to: what, and why."""
