"""Hands committed events to whoever watches. Events are hints: a watcher that fails loses nothing but time."""

from __future__ import annotations

import logging
from collections.abc import Callable

from edge.contract.event import Event, Watcher

log = logging.getLogger(__name__)


class Hub:
    """The node's `Fanout`. Everything here runs in the loop."""

    def __init__(self) -> None:
        self._watchers: dict[tuple[str, str | None], list[Watcher]] = {}
        self._audience: list[Watcher] = []

    def publish(self, event: Event) -> None:
        """Tell the watchers of this key, of the whole log, and whoever carries events to audiences."""
        for watcher in (
            *self._watchers.get((event.log, event.key), ()),
            *self._watchers.get((event.log, None), ()),
            *self._audience,
        ):
            try:
                watcher(event)
            except Exception:
                log.exception("watcher of %s/%s failed on %s", event.log, event.key, event.kind)

    def watched(self, log: str, key: str) -> bool:
        """Whether anybody watches this key or the whole log."""
        return (log, key) in self._watchers or (log, None) in self._watchers

    def watch(self, log: str, key: str | None, watcher: Watcher) -> Callable[[], None]:
        """Hear events of (log, key), or of the whole log with None, until the result is called."""
        place = (log, key)
        self._watchers.setdefault(place, []).append(watcher)

        def end() -> None:
            watchers = self._watchers.get(place, [])
            if watcher in watchers:
                watchers.remove(watcher)
            if not watchers:
                self._watchers.pop(place, None)

        return end

    def attach_audience(self, watcher: Watcher) -> None:
        """Hear every event; the session finds the channels of its audience."""
        self._audience.append(watcher)
