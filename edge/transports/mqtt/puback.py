"""What a foreign broker answers to a PUBLISH: the reason code of its PUBACK, which aiomqtt reads and does not hand on.

A reason code of 0x80 or more means that the message was not taken; the packet counts as acked and must not be sent
again (MQTT 5 §4.4, MQTT-4.4.0-2). Whoever tries once more does so with a PUBLISH of its own, under a new packet id.
3.1.1 has no reason codes: every PUBACK is a success there (3.1.1 §3.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiomqtt
from paho.mqtt.client import MQTT_ERR_SUCCESS
from paho.mqtt.reasoncodes import ReasonCode

from edge.contract.time import SECOND, Clock

REFUSED = 0x80
"""The least reason code that is a refusal (MQTT 5 §2.4)."""


class Acks:
    """Publishes with QoS 1 for one client of aiomqtt. Of what is private there it uses one name, `_client`, the client
    of paho below it; of that only what is public. Where the library does not call back any more every PUBACK is
    missed, which ends connections: nothing is taken for sent."""

    def __init__(self, client: aiomqtt.Client, clock: Clock, timeout_s: float) -> None:
        self._clock, self._timeout_us = clock, int(timeout_s * SECOND)
        self._paho = client._client
        after = self._paho.on_publish
        if after is None:
            raise RuntimeError("aiomqtt does not listen for what paho has published")
        self._after: Callable[..., None] = after
        self._waiting: dict[int, asyncio.Future[ReasonCode]] = {}
        self._paho.on_publish = self._acked

    def hang_up(self) -> None:
        """Close the connection, whatever aiomqtt thinks of it."""
        self._paho.disconnect()

    async def publish(self, topic: str, payload: bytes, *, retain: bool) -> ReasonCode:
        """Send with QoS 1; what the broker's PUBACK said. Raises `MqttError` when it could not be sent, or no PUBACK
        came in time."""
        info = self._paho.publish(topic, payload, 1, retain)
        if info.rc != MQTT_ERR_SUCCESS:
            raise aiomqtt.MqttCodeError(info.rc, "Could not publish message")
        answer: asyncio.Future[ReasonCode] = asyncio.get_running_loop().create_future()
        self._waiting[info.mid] = answer
        try:
            async with self._clock.until(self._clock.now().mono_us + self._timeout_us):
                return await answer
        except TimeoutError:
            raise aiomqtt.MqttError("no PUBACK in time") from None
        finally:
            del self._waiting[info.mid]

    def _acked(self, client: Any, userdata: Any, mid: int, reason: ReasonCode, properties: Any) -> None:
        """paho has a PUBACK, or has written a PUBLISH of QoS 0, which aiomqtt waits for."""
        answer = self._waiting.get(mid)
        if answer is not None and not answer.done():
            answer.set_result(reason)
        self._after(client, userdata, mid, reason, properties)
