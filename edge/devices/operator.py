"""`mqtt.pub` and `mqtt.sub` at the control socket: the operator's hands on the bus."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Iterable, Iterator

from edge.contract.bus import Bus, Publish
from edge.contract.errors import EdgeError, InvalidParams, RateLimited, TooLarge, Unavailable
from edge.contract.limit import Limits
from edge.contract.op import Call, op
from edge.contract.time import Clock
from edge.devices import limits as bounds
from edge.devices.records import Done, PublishAsked, SubscribeAsked
from edge.devices.tap import Heard, Taps
from edge.protocol.mqtt.topics import valid_filter, valid_topic


class OperatorService:
    """Publishes as whoever calls, and lets them listen. `taps.sink` is attached to the same bus."""

    def __init__(self, bus: Bus, clock: Clock, limits: Limits, taps: Taps) -> None:
        self._bus, self._clock, self._limits, self._taps = bus, clock, limits, taps

    @op("mqtt.pub", scope="mqtt:admin", raises=(InvalidParams, TooLarge, Unavailable), wire={"edge": ("mqtt.pub",)})
    async def publish(self, call: Call[PublishAsked]) -> Done:
        """Publish as the operator; routed, retained and seen by the devices area like a client's. The answer comes when
        what is kept of it is on disk."""
        asked = call.params
        if not valid_topic(asked.topic) or asked.topic.startswith("$"):
            raise InvalidParams(f"not a topic: {asked.topic[:80]!r}")
        if asked.qos not in (0, 1):
            raise InvalidParams("qos is 0 or 1")
        payload = self._payload(asked)
        if len(payload) > self._limits[bounds.PUBLISH_OCTETS]:
            raise self._limits.refuse(bounds.PUBLISH_OCTETS)
        await self._kept(Publish(asked.topic, payload, asked.qos, asked.retain, call.who, self._clock.now()))
        return Done()

    async def _kept(self, message: Publish) -> None:
        """Publish, and wait for the commit. Raises what kept it from disk."""
        kept: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

        def told(error: BaseException | None) -> None:
            if not kept.done():
                kept.set_result(error)

        self._bus.publish(message, told)
        error = await kept
        if error is not None:
            raise error if isinstance(error, EdgeError) else Unavailable("the store did not keep the message")

    def _payload(self, asked: PublishAsked) -> bytes:
        if not asked.payload_b64:
            return asked.payload.encode()
        try:
            return base64.b64decode(asked.payload_b64, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidParams("payload_b64 is not base64") from None

    @op("mqtt.sub", scope="mqtt:admin", raises=(InvalidParams, RateLimited), wire={"edge": ("mqtt.sub",)})
    async def subscribe(self, call: Call[SubscribeAsked]) -> AsyncIterator[Heard]:
        """Hear the retained messages, then what the bus hands over from now on, until the caller goes."""
        filters = call.params.filters
        if not 0 < len(filters) <= 32 or not all(valid_filter(one) for one in filters):
            raise InvalidParams("1 to 32 valid topic filters")
        return self._taps.open(filters, _once([self._bus.kept(one) for one in filters]) if call.params.retained else ())


def _once(found: Iterable[Iterator[Publish]]) -> Iterator[Publish]:
    """Messages of several filters, each topic once."""
    told: set[str] = set()
    for messages in found:
        for message in messages:
            if message.topic not in told:
                told.add(message.topic)
                yield message
