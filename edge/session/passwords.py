"""Passwords that people chose, checked one at a time off the loop; what waits is bounded, and shared by address.

A check costs time and memory (`edge.store.persons`), so strangers may not have as many as they like: each address has
a few in hand, from its CONNECT to its answer, late refusals included, and who has none comes before who has several,
and before those whose address has failed lately: to keep somebody out takes fresh addresses all the time.
Who has been in since the start is known again by a keyed hash in memory, without a check: wrong passwords do not keep
the right one waiting.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable

from edge.contract.limit import Limits, declare
from edge.store import persons
from edge.store.persons import Person

log = logging.getLogger(__name__)

CHECKS = declare(
    "mqtt.password_checks",
    32,
    "logins",
    "with a person's password that wait at once; an address with most, or that failed lately, gives way",
    None,
)
PER_ADDRESS = declare(
    "mqtt.password_checks_per_address",
    4,
    "logins",
    "of those, from one address, late refusals included; more are told to try later",
    None,
)

Checked = Callable[[bool | None], None]
"""True or False; None: nobody could look, there is too much to do."""


class Passwords:
    """Used in the loop only."""

    def __init__(self, limits: Limits, failed_lately: Callable[[str], bool] = lambda address: False) -> None:
        """`failed_lately` tells of an address whether a login from it was refused not long ago."""
        self._limits, self._failed_lately = limits, failed_lately
        self._key = secrets.token_bytes(32)
        self._known: dict[str, bytes] = {}
        self._in_hand: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[tuple[Person, bytes, Checked]]] = OrderedDict()
        self._busy = False

    def forget(self, user: str) -> None:
        """A user has another password now, or is gone."""
        self._known.pop(user, None)

    def check(self, address: str, one: Person, password: bytes, then: Checked) -> None:
        """Say whether a password is right, now or later. After True or False call `release(address)`, once."""
        if hmac.compare_digest(self._known.get(one.user, b""), self._mark(one, password)):
            self._in_hand[address] = self._in_hand.get(address, 0) + 1
            then(True)
            return
        if self._in_hand.get(address, 0) >= self._limits[PER_ADDRESS]:
            self._limits.hit(PER_ADDRESS)
            then(None)
            return
        if not self._room(address):
            then(None)
            return
        self._in_hand[address] = self._in_hand.get(address, 0) + 1
        self._waiting.setdefault(address, deque()).append((one, password, then))
        self._next()

    def _room(self, address: str) -> bool:
        """Whether one more may wait. An address that has nothing in hand takes the place of one with several; one that
        has not failed lately that of one that has."""
        if sum(map(len, self._waiting.values())) < self._limits[CHECKS]:
            return True
        self._limits.hit(CHECKS)
        gives_way = "" if address in self._in_hand else self._last_of_all(address)
        if not gives_way:
            return False
        _, _, then = self._waiting[gives_way].pop()
        if not self._waiting[gives_way]:
            del self._waiting[gives_way]
        self.release(gives_way)
        then(None)
        return True

    def _last_of_all(self, address: str) -> str:
        """Who gives way to an address with nothing in hand, "" if nobody does."""
        most = max(self._waiting, key=lambda one: len(self._waiting[one]))
        if len(self._waiting[most]) > 1:
            return most
        if self._failed_lately(address):
            return ""
        return next((one for one in reversed(self._waiting) if self._failed_lately(one)), "")

    def release(self, address: str) -> None:
        """A login from this address has its answer."""
        left = self._in_hand[address] - 1
        if left:
            self._in_hand[address] = left
        else:
            del self._in_hand[address]

    def _next(self) -> None:
        """Look at the next one; addresses take turns."""
        if self._busy or not self._waiting:
            return
        address, mine = self._waiting.popitem(last=False)
        one, password, then = mine.popleft()
        if mine:
            self._waiting[address] = mine
        self._busy = True
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(None, persons.slow_digest, password, one.salt, one.cost)
        work.add_done_callback(lambda done: self._done(done, one, password, then))

    def _done(self, done: asyncio.Future[bytes], one: Person, password: bytes, then: Checked) -> None:
        self._busy = False
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            log.error("the password of the MQTT user %s cannot be checked: %s", one.user, error)
        right = error is None and hmac.compare_digest(done.result(), one.digest)
        if right:
            self._known[one.user] = self._mark(one, password)
        then(right)
        self._next()

    def _mark(self, one: Person, password: bytes) -> bytes:
        return hmac.digest(self._key, one.digest + password, "sha256")
