"""`aun-edge mqtt pub|sub --username`: a real MQTT client on the node's own door, to try a device's password."""

from __future__ import annotations

import asyncio
import secrets
from argparse import Namespace
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import aiomqtt

from edge.cli import password
from edge.cli.failure import Exit, Failure
from edge.cli.places import ready

Heard = Callable[[str, bytes, int, bool], bool]
"""Takes topic, payload, QoS and retain of a message; False ends it."""


_REFUSED = 0x80
"""A SUBACK's codes from here on are refusals."""

_PASSWORDS = "aun-edge device rotate NAME, or aun-edge mqtt user password NAME, gives it another password"


def publish(options: Namespace, payload: bytes) -> None:
    """Publish, and return when the node has acked."""

    async def work() -> None:
        async with _client(options) as client:
            await client.publish(options.topic, payload, qos=options.qos, retain=options.retain)

    _run(work())


def subscribe(options: Namespace, heard: Heard) -> None:
    """Hand over messages until `heard` has enough."""

    async def work() -> None:
        async with _client(options) as client:
            for one in options.filters:
                granted = await client.subscribe(one, qos=options.qos)
                if any(getattr(code, "value", code) >= _REFUSED for code in granted):
                    what = f"{options.username} may not read {one}"
                    raise Failure(what, next_step="aun-edge device show NAME", code=Exit.NOT_PERMITTED)
            async for message in client.messages:
                payload = message.payload if isinstance(message.payload, bytes) else str(message.payload).encode()
                if not heard(str(message.topic), payload, message.qos, message.retain):
                    return

    _run(work())


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(work)
    except aiomqtt.MqttCodeError as error:
        raise Failure(f"the node refused: {error}", next_step=_PASSWORDS, code=Exit.NOT_PERMITTED) from None
    except aiomqtt.MqttError as error:
        raise Failure(f"MQTT failed: {error}", next_step="aun-edge doctor", code=Exit.TRY_LATER) from None


def _client(options: Namespace) -> aiomqtt.Client:
    where = ready(options.state_dir)["endpoints"].get("mqtt", "")
    if not where:
        raise Failure("the node has no plain MQTT door", next_step="aun-edge config get mqtt.listen")
    if options.password_file is None:
        raise Failure("--username needs --password-file", code=Exit.USAGE)
    url = urlsplit(where)
    return aiomqtt.Client(
        url.hostname or "127.0.0.1",
        url.port or 1883,
        username=options.username,
        password=password.from_file(options.password_file),
        identifier=f"{options.username}-{secrets.token_hex(4)}",
    )
