"""Feeds the service manager's watchdog, but only when loop, writers and bus have just answered."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from edge.contract.time import SECOND, Clock
from edge.system.notify import ServiceManager

log = logging.getLogger(__name__)

EVERY_US = 10 * SECOND
"""How often the parts are asked when nobody set a watchdog: `/readyz` tells what they said."""


class Watchdog:
    """Asks every part in turn, for ever. `answers` is what each said last."""

    def __init__(
        self, clock: Clock, manager: ServiceManager, parts: Mapping[str, Callable[[], Awaitable[None]]]
    ) -> None:
        self._clock, self._manager, self._parts = clock, manager, parts
        self._every_us = manager.watchdog_us // 3 or EVERY_US
        self.answers: dict[str, bool] = dict.fromkeys(parts, True)

    async def run(self) -> None:
        """Ask, feed, wait; until cancelled."""
        while True:
            due = self._clock.now().mono_us + self._every_us
            if await self.ask():
                self._manager.alive()
            await self._clock.sleep_until(due)

    async def ask(self) -> bool:
        """Whether every part answers within a third of the watchdog's time."""
        for name, ping in self._parts.items():
            answered = True
            try:
                async with self._clock.until(self._clock.now().mono_us + self._every_us):
                    await ping()
            except Exception as error:
                answered = False
                log.error("%s does not answer: %s", name, error or "timed out")
            self.answers[name] = answered
        return all(self.answers.values())
