"""`aun-edge mqtt pub|sub`: a real MQTT client on the node's own door."""

from __future__ import annotations

import asyncio
import base64
import secrets
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiomqtt

from edge.cli import show
from edge.cli.ask import ask
from edge.cli.failure import Exit, Failure
from edge.cli.places import ready
from edge.contract.errors import Conflict, EdgeError
from edge.contract.wire import dumps, loads
from edge.system.files import write_atomic

OPERATOR = "operator"
"""The MQTT user that the command line makes for itself the first time."""


def pub(options: Namespace) -> int:
    """Publish, and return when the node has acked."""
    payload = sys.stdin.buffer.read() if options.payload == "-" else options.payload.encode()

    async def run() -> None:
        async with _client(options) as client:
            await client.publish(options.topic, payload, qos=options.qos, retain=options.retain)

    _run(run())
    return Exit.OK


def sub(options: Namespace) -> int:
    """Print messages until `--count` are there, or for ever."""

    async def run() -> None:
        async with _client(options) as client:
            for topic in options.filters:
                await client.subscribe(topic, qos=options.qos)
            seen = 0
            async for message in client.messages:
                _print(message, as_json=options.json)
                seen += 1
                if seen == options.count:
                    return

    _run(run())
    return Exit.OK


def _run(work: Any) -> None:
    try:
        asyncio.run(work)
    except aiomqtt.MqttCodeError as error:
        raise Failure(f"the node refused: {error}", next_step="aun-edge device list", code=Exit.NOT_PERMITTED) from None
    except aiomqtt.MqttError as error:
        raise Failure(f"MQTT failed: {error}", next_step="aun-edge doctor", code=Exit.TRY_LATER) from None


def _client(options: Namespace) -> aiomqtt.Client:
    where = ready(options.state_dir)["endpoints"].get("mqtt", "")
    if not where:
        raise Failure("the node has no plain MQTT door", next_step="aun-edge config get mqtt.listen")
    user, password = _credentials(options)
    url = urlsplit(where)
    return aiomqtt.Client(
        url.hostname or "127.0.0.1",
        url.port or 1883,
        username=user,
        password=password,
        identifier=f"{user}-{secrets.token_hex(4)}",
    )


def _credentials(options: Namespace) -> tuple[str, str]:
    if options.username:
        if options.password_file is None:
            raise Failure("--username needs --password-file", code=Exit.USAGE)
        return options.username, options.password_file.read_text(encoding="utf-8").strip()
    return _operator(options.state_dir)


def _operator(state_dir: Path) -> tuple[str, str]:
    """The operator's account: made with the first use, its password kept with the node's own secrets."""
    kept = state_dir / "identity" / "operator-mqtt.json"
    known = {row["name"] for row in ask(state_dir, "device.list")}
    if OPERATOR in known:
        try:
            found = loads(kept.read_bytes())
            return found["username"], found["password"]
        except (OSError, EdgeError, KeyError):
            ask(state_dir, "device.forget", name=OPERATOR)
    try:
        made = ask(state_dir, "device.add", name=OPERATOR, admin=True, topics=[])
    except Conflict as error:
        raise Failure(f"the operator's MQTT account could not be made: {error.message}") from None
    write_atomic(kept, dumps({"username": made["username"], "password": made["password"]}))
    return made["username"], made["password"]


def _print(message: aiomqtt.Message, *, as_json: bool) -> None:
    payload = message.payload if isinstance(message.payload, bytes) else str(message.payload).encode()
    try:
        text, encoding = payload.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(payload).decode(), "base64"
    topic = str(message.topic)
    if as_json:
        row = {"topic": topic, "payload": text, "encoding": encoding, "qos": message.qos, "retain": message.retain}
        print(dumps(row).decode(), flush=True)
    else:
        print(show.printable(f"{topic} {text}"), flush=True)
