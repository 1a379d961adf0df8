"""`aun-edge mqtt pub|sub|user`: the operator's hands on the bus, by the control socket; as a user, by MQTT itself."""

from __future__ import annotations

import base64
import os
import sys
from argparse import Namespace
from typing import Any

from edge.cli import password, show
from edge.cli.ask import ask
from edge.cli.client import Control
from edge.cli.failure import Exit
from edge.contract.wire import dumps


def pub(options: Namespace) -> int:
    """Publish one message."""
    payload = sys.stdin.buffer.read() if options.payload == "-" else os.fsencode(options.payload)
    if options.username:
        from edge.cli.mqtt_client import publish

        publish(options, payload)
        return Exit.OK
    octets = base64.b64encode(payload).decode()
    ask(
        options.state_dir,
        "mqtt.pub",
        topic=options.topic,
        payload_b64=octets,
        qos=options.qos,
        retain=options.retain,
    )
    return Exit.OK


def sub(options: Namespace) -> int:
    """Print messages until `--count` are there, or for ever."""
    left: int = options.count

    def heard(topic: str, payload: bytes, qos: int, retain: bool, kept: bool) -> bool:
        nonlocal left
        left -= 1
        row = {"topic": topic, **_readable(payload), "qos": qos, "retain": retain, "kept": kept}
        _print(row, as_json=options.json)
        return left != 0

    if options.username:
        from edge.cli.mqtt_client import subscribe

        subscribe(options, lambda topic, payload, qos, retain: heard(topic, payload, qos, retain, retain))
        return Exit.OK
    asked = {"filters": options.filters, "retained": not options.no_retained}
    for one in Control(options.state_dir).stream("mqtt.sub", asked):
        if one.get("missed"):
            sys.stderr.write(f"aun-edge: {one['missed']} messages were too many and are not shown\n")
        payload = base64.b64decode(one["payload_b64"]) if "payload_b64" in one else one.get("payload", "").encode()
        kept = one.get("kept", False)
        if not heard(one["topic"], payload, one.get("qos", 0), one.get("retain", False), kept):
            break
    return Exit.OK


def _readable(payload: bytes) -> dict[str, str]:
    """The payload as text, or as base64 when it is none."""
    try:
        return {"payload": payload.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(payload).decode(), "encoding": "base64"}


def _print(row: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        show.json_octets(dumps(row))
    else:
        mark = "  [retained]" if row["kept"] else ""
        print(show.printable(f"{row['topic']} {row['payload']}") + mark, flush=True)


def user_add(options: Namespace) -> int:
    """Let a user in who chose a password."""
    said = ask(
        options.state_dir,
        "mqtt.user_add",
        name=options.name,
        password=password.chosen(options.password_file),
        admin=options.admin,
        topics=options.topics,
    )
    if options.json:
        show.as_json(said)
    else:
        show.facts(said)
        print("\nThe password works on this machine and over TLS; never by mqtt.plain_lan.")
    return Exit.OK


def user_list(options: Namespace) -> int:
    """All of them."""
    rows = ask(options.state_dir, "mqtt.user_list")
    if options.json:
        show.as_json(rows)
    else:
        show.table(rows, ["name", "admin", "topics"], none="no users: `aun-edge mqtt user add NAME`")
    return Exit.OK


def user_password(options: Namespace) -> int:
    """Another password."""
    ask(options.state_dir, "mqtt.user_password", name=options.name, password=password.chosen(options.password_file))
    print(f"{show.printable(options.name)} has another password; who used the old one is cut off")
    return Exit.OK


def user_remove(options: Namespace) -> int:
    """The end of a user."""
    ask(options.state_dir, "mqtt.user_remove", name=options.name)
    print(f"{show.printable(options.name)} is let in no more")
    return Exit.OK
