"""Home Assistant MQTT discovery: `<prefix>/<component>/[<node_id>/]<object_id>/config` and its device-based form.

Pure: one message in, `Found`, or a `Refusal`, or None for a payload that is no config (`migrate_discovery`, §1.3).
Removal by an empty payload is the caller's: the topic alone says what goes.
"""

from __future__ import annotations

import re

from edge.contract.wire import JsonLimits
from edge.protocol.discovery import abbreviations
from edge.protocol.discovery.config import Config, Shared, component, slug
from edge.protocol.discovery.platforms import PLATFORMS
from edge.protocol.discovery.record import Bounds, Component, DeviceInfo, Found, Refusal, Refused, json_object

_OURS = frozenset({"aun", "name"})
"""Kinds of id that only the node gives."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_SHARED = (
    "availability",
    "availability_mode",
    "availability_template",
    "availability_topic",
    "command_topic",
    "encoding",
    "payload_available",
    "payload_not_available",
    "qos",
    "state_topic",
)
"""Options of the top level that components inherit (§1.3)."""


def address(topic: str, prefix: str = "homeassistant") -> tuple[str, str] | None:
    """(component, discovery id) of a config topic, None for any other topic.

    Raises `Refusal` when it is a config topic with an illegal id (§1.1).
    """
    levels = topic.split("/")
    depth = prefix.count("/") + 1
    if "/".join(levels[:depth]) != prefix or levels[-1] != "config" or len(levels) - depth not in (3, 4):
        return None
    ids = levels[depth + 1 : -1]
    if not all(_ID.fullmatch(one) for one in ids):
        raise Refusal("bad id", "/".join(ids)[:64])
    return levels[depth], " ".join(ids)


def parse(topic: str, payload: bytes, prefix: str = "homeassistant", bounds: Bounds | None = None) -> Found | None:
    """What a config message says. Raises `Refusal` when none of it can be taken."""
    bounds = bounds or Bounds()
    place = address(topic, prefix)
    if place is None:
        raise Refusal("bad topic")
    whole = json_object(payload, JsonLimits(bounds.octets, bounds.depth))
    top = _based(abbreviations.expand(whole, abbreviations.TOP))
    if top.get("migrate_discovery") is True:
        return None
    platform, key = place
    if platform == "device":
        return _device_based(key, top, bounds)
    config = Config(platform, f"{platform} {key}", key.split(" ")[-1], _expanded(top, top.get("~")), bounds)
    return Found(device=_device(top.get("device"), key, bounds), components=tuple(_components(config)))


def _device_based(key: str, top: dict[str, object], bounds: Bounds) -> Found:
    device, parts = top.get("device"), top.get("components")
    if not isinstance(device, dict) or not isinstance(parts, dict):
        raise Refusal("incomplete", "device and components are required")
    if len(parts) > bounds.components:
        raise Refusal("too many components", str(len(parts)))
    shared = _expanded({name: top[name] for name in _SHARED if name in top}, top.get("~"))
    known: Shared = {}
    found: list[Component] = []
    refused: list[Refused] = []
    for name, given in parts.items():
        try:
            found += _entry(key, name, given, shared, bounds, known)
        except Refusal as error:
            refused.append(Refused(name[:64], error.reason, error.detail))
    return Found(device=_device(device, key, bounds), components=tuple(found), refused=tuple(refused))


def _entry(
    key: str, name: str, given: object, shared: dict[str, object], bounds: Bounds, known: Shared
) -> list[Component]:
    """One component of the device-based form; one that is only its platform is removed (§1.3)."""
    if not isinstance(given, dict):
        raise Refusal("malformed", "not an object")
    own = _based(abbreviations.expand(given, abbreviations.TOP))
    platform = own.pop("platform", None)
    if not isinstance(platform, str):
        raise Refusal("incomplete", "no platform")
    if not own:
        return []
    fields = {**shared, **_expanded(own, own.get("~"))}
    return list(_components(Config(platform, f"{platform} {key} {name}"[:256], name, fields, bounds, known)))


def _expanded(fields: dict[str, object], base: object) -> dict[str, object]:
    """The entries of an `availability` list with their long names and their base (§1.4, §1.5)."""
    entries = fields.get("availability")
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        return fields
    return {**fields, "availability": [_based(abbreviations.expand(one, abbreviations.TOP), base) for one in entries]}


def _components(config: Config) -> list[Component]:
    make = PLATFORMS.get(config.platform)
    if make is None:
        raise Refusal("unsupported", f"platform {config.platform[:64]}")
    found = [one for part in make(config) if (one := component(config, part)) is not None]
    if not found:
        raise Refusal("incomplete", "no topic that can be used")
    return found


def _based(fields: dict[str, object], base: object = None) -> dict[str, object]:
    """Put the base topic in: one `~` at the start or the end of every value whose key ends in `topic` (§1.5)."""
    base = fields.get("~", base)
    if not isinstance(base, str):
        return fields
    made = dict(fields)
    for key, value in fields.items():
        if key.endswith("topic") and isinstance(value, str) and value:
            if value.startswith("~"):
                value = base + value[1:]
            if value.endswith("~"):
                value = value[:-1] + base
            made[key] = value
    return made


def _device(given: object, key: str, bounds: Bounds) -> DeviceInfo:
    if given is None:
        return DeviceInfo(hints=tuple(reversed(key.split(" "))))
    if not isinstance(given, dict):
        raise Refusal("malformed", "device is not an object")
    fields = abbreviations.expand(given, abbreviations.DEVICE)
    words = {name: _short(fields.get(name), bounds) for name in ("name", "model", "manufacturer", "sw_version")}
    ids = _ids(fields)
    if not ids:
        raise Refusal("incomplete", "device without identifiers or connections")
    return DeviceInfo(
        ids=ids,
        name=words["name"],
        model=words["model"],
        maker=words["manufacturer"],
        version=words["sw_version"],
        hints=tuple(hint for hint in (words["name"], ids[0].partition(":")[2], *key.split(" ")) if slug(hint)),
    )


def _short(value: object, bounds: Bounds) -> str:
    return value[: bounds.text] if isinstance(value, str) else ""


def _ids(fields: dict[str, object]) -> tuple[str, ...]:
    """Hardware ids in one spelling: `mac:aabbcc001122` for connections, `id:<identifier>` for identifiers."""
    made: list[str] = []
    connections = fields.get("connections")
    for pair in connections if isinstance(connections, list) else []:
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, str) for one in pair):
            made.append(hardware(pair[0], pair[1]))
    identifiers = fields.get("identifiers")
    for one in identifiers if isinstance(identifiers, list) else [identifiers]:
        if isinstance(one, str | int) and not isinstance(one, bool) and one != "":
            made.append(f"id:{one}"[:128])
    return tuple(dict.fromkeys(made))[:8]


def hardware(kind: str, value: str) -> str:
    """One hardware id; addresses lose their separators and their case."""
    kind = slug(kind) or "id"
    if kind in _OURS:
        kind = f"said_{kind}"
    if kind in ("mac", "bluetooth", "zigbee", "ieee"):
        value = re.sub(r"[^0-9a-z]", "", value.lower())
    return f"{kind}:{value}"[:128]
