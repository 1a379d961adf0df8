"""`push.*`: wake an application that is not connected, by a push server that is (spec aun-services §1.10).

A push server is an ordinary AID of this node with a long connection; it gets `event/push.offline_message` without
any content of the message, calls the platform's service, and confirms the batch. The message itself waits in its
inbox either way: a wake-up is a hint, kept in memory, and one that is given up is counted in the loss ledger.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable
from functools import partial

import msgspec

from edge.contract.channel import Presence
from edge.contract.errors import InvalidParams, NotPermitted, RateLimited, TooLarge, UnknownAid
from edge.contract.event import Event, Fanout
from edge.contract.gap import Gap
from edge.contract.limit import Limits, declare
from edge.contract.op import Call, Empty, Params, Spawn, op
from edge.contract.principal import Principal
from edge.contract.store import Store, Unit
from edge.contract.time import SECOND, Clock, later, wall_ms
from edge.contract.wire import dumps
from edge.protocol.aid import normal
from edge.store import push
from edge.store.push import Installation

log = logging.getLogger(__name__)

TOKEN = declare("push.token_octets", 4_096, "bytes", "of a push token, provider or app id", TooLarge)
INSTALLATIONS = declare("push.installations", 32, "installations", "of one AID that are woken", RateLimited)
WAITING = declare("push.waiting", 10_000, "AIDs", "with a wake-up under way; more are counted and dropped", RateLimited)

GRACE_US = 5 * SECOND
"""A client that was only changing networks is back by then."""
PAUSES_US = (30 * SECOND, 120 * SECOND, 600 * SECOND)
"""When nobody confirms, or the push server is away: how long until the next try; after the last it is given up."""
KINDS = frozenset({"message.received", "group.message_created"})
LOG = "push"

Known = Callable[[Unit, str], bool]


class Register(Params, frozen=True, kw_only=True):
    """Wake this device and slot; `push_token` is the push server's own."""

    push_server_aid: str
    push_token: str
    provider: str = ""
    app_id: str = ""


class Registered(msgspec.Struct):
    """`registration_version` counts how often this installation has registered."""

    registration_id: str
    registration_version: int


class State(msgspec.Struct):
    """What became of it."""

    status: str


class Ack(Params, frozen=True, kw_only=True):
    """A push server's word on a whole batch."""

    batch_id: str
    status: str


class _Wake(msgspec.Struct):
    """A wake-up under way: what is new for one AID, and how often that was tried."""

    aid: str
    category: str = ""
    """`message` or `group`: what came last."""
    count: int = 0
    at_ms: int = 0
    tried: int = 0
    ident: str = ""
    """Tells this wake-up from the next one of the same AID; the same in every try."""
    cancel: Callable[[], None] = lambda: None
    batches: dict[str, str] = {}
    """Batches without an ack: id → push server."""


class PushService:
    """Registrations in node.db, wake-ups in memory. `heard` is attached to the fan-out."""

    def __init__(
        self, store: Store, clock: Clock, presence: Presence, fanout: Fanout, spawn: Spawn, known: Known, limits: Limits
    ) -> None:
        self._store, self._clock, self._presence, self._fanout = store, clock, presence, fanout
        self._spawn, self._known, self._limits = spawn, known, limits
        self._aids: set[str] = set()
        self._wakes: dict[str, _Wake] = {}
        self._done: dict[str, None] = {}

    async def start(self) -> None:
        """Learn who wants to be woken."""
        self._aids = await self._store.read(push.aids)

    def stop(self) -> None:
        """No more timers."""
        for wake in self._wakes.values():
            wake.cancel()
        self._wakes.clear()

    # -- operations ---------------------------------------------------------------------------------------------------

    @op(
        "push.register",
        scope="message:read",
        wire={"aun": ("push.register",)},
        raises=(InvalidParams, UnknownAid, TooLarge, RateLimited),
        writes=True,
    )
    def register(self, call: Call[Register], unit: Unit) -> Registered:
        """Have this device and slot woken by a push server of this node while the AID is not connected."""
        asked, who = call.params, call.who
        server = normal(asked.push_server_aid)
        if not asked.push_token:
            raise InvalidParams("push_token is empty")
        if max(len(text.encode()) for text in (asked.push_token, asked.provider, asked.app_id)) > self._limits[TOKEN]:
            raise self._limits.refuse(TOKEN)
        if not self._known(unit, server):
            raise UnknownAid(f"aid not registered: {server}: a push server is an AID of this node")
        if push.others(unit, who.aid, who.device_id, who.slot) >= self._limits[INSTALLATIONS]:
            raise self._limits.refuse(INSTALLATIONS)
        place = {"aid": who.aid, "device": who.device_id, "slot": who.slot}
        words = {"server": server, "token": asked.push_token, "provider": asked.provider, "app": asked.app_id}
        ident, version = push.register(unit, Installation(**place, **words), f"pr-{secrets.token_hex(12)}")
        unit.after(lambda: self._aids.add(who.aid))
        return Registered(ident, version)

    @op("push.unregister", scope="message:read", wire={"aun": ("push.unregister",)}, writes=True)
    def unregister(self, call: Call[Empty], unit: Unit) -> State:
        """Wake this device and slot no more."""
        push.disable(unit, call.who.aid, call.who.device_id, call.who.slot)
        if not push.of(unit, call.who.aid):
            unit.after(lambda: self._aids.discard(call.who.aid))
        return State("disabled")

    @op("push.ack", scope="message:read", wire={"aun": ("push.ack",)}, raises=(InvalidParams, NotPermitted))
    async def ack(self, call: Call[Ack]) -> State:
        """A push server says what became of a batch: accepted, retryable_failure or permanent_failure."""
        asked = call.params
        if asked.status not in ("accepted", "retryable_failure", "permanent_failure"):
            raise InvalidParams("status is accepted, retryable_failure or permanent_failure")
        wake = next((wake for wake in self._wakes.values() if asked.batch_id in wake.batches), None)
        if wake is None:
            return State("duplicate" if asked.batch_id in self._done else "stale")
        if wake.batches[asked.batch_id] != call.who.aid:
            raise NotPermitted("the batch was for another push server")
        if asked.status != "retryable_failure":
            del wake.batches[asked.batch_id]
            self._remember(asked.batch_id)
            if asked.status == "permanent_failure":
                self._lose(wake, "refused by the push server", call.who)
            if not wake.batches:
                self._end(wake)
        return State("applied")

    # -- waking -------------------------------------------------------------------------------------------------------

    def heard(self, event: Event) -> None:
        """A message came for somebody who may be away."""
        if event.kind not in KINDS or not event.seq:
            return
        for aid in event.audience & self._aids:
            if not self._presence.online(aid):
                self._begin(aid, event.kind.partition(".")[0])

    def _begin(self, aid: str, category: str) -> None:
        wake = self._wakes.get(aid)
        if wake is None:
            wake = _Wake(aid, ident=secrets.token_hex(8), batches={})
            if len(self._wakes) >= self._limits[WAITING]:
                self._limits.hit(WAITING)
                self._lose(wake, "too many wake-ups")
                return
            self._wakes[aid] = wake
            self._again(wake, GRACE_US)
        wake.count += 1
        wake.category = category
        wake.at_ms = wall_ms(self._clock)

    def _again(self, wake: _Wake, pause_us: int) -> None:
        wake.cancel = later(self._clock, pause_us, lambda: self._spawn(self._wake(wake)))

    async def _wake(self, wake: _Wake) -> None:
        """Tell the push servers, unless the client has come; then wait for their word."""
        if self._presence.online(wake.aid):
            self._end(wake)
            return
        installations = await self._store.read(partial(push.of, aid=wake.aid))
        if not installations or self._wakes.get(wake.aid) is not wake:
            self._end(wake)
            return
        if wake.tried > len(PAUSES_US) - 1:
            self._lose(wake, "no push server confirmed it")
            self._end(wake)
            return
        wake.batches = {}
        for server in {one.server for one in installations}:
            self._hand_over(wake, server, [one for one in installations if one.server == server])
        wake.tried += 1
        self._again(wake, PAUSES_US[wake.tried - 1])

    def _hand_over(self, wake: _Wake, server: str, installations: list[Installation]) -> None:
        """To the oldest long connection of the push server; without one, the next try may find one."""
        batch = secrets.token_hex(32)
        wake.batches[batch] = server
        long = [one for one in self._presence.instances(server) if one.long]
        if not long:
            return
        body = {
            "protocol_version": "1",
            "batch_id": batch,
            "expires_at_ms": wall_ms(self._clock) + PAUSES_US[wake.tried] // 1000,
            "items": [_item(wake, one) for one in installations],
        }
        audience = frozenset({server})
        event = Event(LOG, server, 0, "push.offline_message", dumps(body), audience, long[0].channel)
        self._fanout.publish(event)

    def _end(self, wake: _Wake) -> None:
        wake.cancel()
        if self._wakes.get(wake.aid) is wake:
            del self._wakes[wake.aid]

    def _remember(self, batch: str) -> None:
        self._done[batch] = None
        if len(self._done) > 1_000:
            del self._done[next(iter(self._done))]

    def _lose(self, wake: _Wake, reason: str, who: Principal | None = None) -> None:
        at = self._clock.now()
        gap = Gap(LOG, wake.aid, 0, 0, max(1, wake.count), reason, who.aid if who else "push", at)
        self._store.write(lambda unit: unit.lose(gap), _log_failure)


def _item(wake: _Wake, one: Installation) -> dict[str, object]:
    return {
        "delivery_id": hashlib.sha256(f"{wake.ident}|{one.device}|{one.slot}".encode()).hexdigest()[:32],
        "target_aid": one.aid,
        "device_id": one.device,
        "slot_id": one.slot,
        "push_token": one.token,
        "category": wake.category,
        "new_count": wake.count,
        "latest_at_ms": wake.at_ms,
    }


def _log_failure(result: object) -> None:
    if isinstance(result, Exception):
        log.warning("a lost wake-up was not written down: %s", result)
