"""What a foreign broker answers to a PUBLISH: the reason code of its PUBACK, which aiomqtt reads and does not hand on.

A reason code of 0x80 or more means that the message was not taken; the packet counts as acked and must not be sent
again (MQTT 5 §4.4, MQTT-4.4.0-2). Whoever tries once more does so with a PUBLISH of its own, under a new packet id.
3.1.1 has no reason codes: every PUBACK is a success there (3.1.1 §3.4).

Nor does aiomqtt heed what a broker announces in its CONNACK, the largest packet (MQTT 5 §3.2.2.3.6) and how many may be
without a PUBACK (§3.2.2.3.3): the broker hangs up on more, and would again on every connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiomqtt
from paho.mqtt.client import MQTT_ERR_SUCCESS
from paho.mqtt.reasoncodes import ReasonCode

from edge.contract.time import SECOND, Clock
from edge.protocol.mqtt.codec import V5, PublishPacket, encode
from edge.protocol.mqtt.reasons import Reason

AT_ONCE = 65_535
"""Receive Maximum of a broker that does not say one (MQTT 5 §3.2.2.3.3)."""


class Acks:
    """Publishes with QoS 1 for one client of aiomqtt. Of what is private there it uses one name, `_client`, the client
    of paho below it; of that only what is public. Where the library does not call back any more every PUBACK is
    missed, which ends connections: nothing is taken for sent."""

    def __init__(self, client: aiomqtt.Client, clock: Clock, timeout_s: float) -> None:
        self._clock, self._timeout_us = clock, int(timeout_s * SECOND)
        self._paho = client._client
        published, connected = self._paho.on_publish, self._paho.on_connect
        if published is None or connected is None:
            raise RuntimeError("aiomqtt does not listen to paho any more")
        self._then_published: Callable[..., None] = published
        self._then_connected: Callable[..., None] = connected
        self._waiting: dict[int, asyncio.Future[ReasonCode]] = {}
        self._largest: int | None = None
        self.at_once = AT_ONCE
        """How many may be without a PUBACK, once there is a connection (MQTT-3.3.4-9)."""
        self._paho.on_publish, self._paho.on_connect = self._published, self._connected

    def hang_up(self) -> None:
        """Close the connection, whatever aiomqtt thinks of it."""
        self._paho.disconnect()

    def fits(self, topic: str, payload: bytes, qos: int) -> bool:
        """Whether the broker takes a packet of that size."""
        if self._largest is None:
            return True
        return len(encode(PublishPacket(topic, payload, qos, packet_id=qos), V5)) <= self._largest

    async def publish(self, topic: str, payload: bytes, *, retain: bool) -> int:
        """Send with QoS 1; the reason code of the broker's PUBACK, or that of a packet too large where it said before
        that it would not take it. Raises `MqttError` when it could not be sent, or no PUBACK came in time."""
        if not self.fits(topic, payload, 1):
            return Reason.PACKET_TOO_LARGE  # it may not be sent (MQTT-3.2.2-15)
        info = self._paho.publish(topic, payload, 1, retain)
        if info.rc != MQTT_ERR_SUCCESS:
            raise aiomqtt.MqttCodeError(info.rc, "Could not publish message")
        answer: asyncio.Future[ReasonCode] = asyncio.get_running_loop().create_future()
        self._waiting[info.mid] = answer
        try:
            async with self._clock.until(self._clock.now().mono_us + self._timeout_us):
                return (await answer).value
        except TimeoutError:
            raise aiomqtt.MqttError("no PUBACK in time") from None
        finally:
            del self._waiting[info.mid]

    def _connected(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any = None) -> None:
        """paho has a CONNACK; in 3.1.1 it has no properties."""
        self._largest = getattr(properties, "MaximumPacketSize", None)
        self.at_once = getattr(properties, "ReceiveMaximum", AT_ONCE)
        self._then_connected(client, userdata, flags, reason, properties)

    def _published(self, client: Any, userdata: Any, mid: int, reason: ReasonCode, properties: Any) -> None:
        """paho has a PUBACK, or has written a PUBLISH of QoS 0, which aiomqtt waits for."""
        answer = self._waiting.get(mid)
        if answer is not None and not answer.done():
            answer.set_result(reason)
        self._then_published(client, userdata, mid, reason, properties)
