"""Which broker is the node's bus: one factory, three engines (design D4)."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection
from pathlib import Path

from edge.config import Config
from edge.contract.bus import Admission, BusEngine
from edge.contract.limit import Limits
from edge.contract.op import Spawn
from edge.contract.principal import Principal
from edge.contract.store import Store
from edge.contract.time import SECOND, Clock
from edge.devices.model import Routes
from edge.protocol.mqtt.prefixes import Prefixes
from edge.session.gatekeeper import Gatekeeper
from edge.store.credentials import own_topics
from edge.store.losses import Losses
from edge.transports.mqtt.builtin import BuiltinEngine

WHOLE = {"#": "broker"}
"""Whose the topics of a foreign broker are when nothing was said: all of one principal."""

CONVENTIONS = (
    "aun/v1/#",
    "tasmota/discovery/+/config",
    "tasmota/discovery/+/sensors",
    "zigbee2mqtt/bridge/devices",
    "zigbee2mqtt/bridge/state",
    "zigbee2mqtt/+/availability",
    "+/5/+/$state",
    "homie/+/$homie",
    "homie/+/$state",
    "+/online",
    "+/events/rpc",
    "shellies/announce",
    "shellies/+/online",
    "spBv1.0/#",
)
"""What devices announce themselves by (spec/device-conventions.md §0), Home Assistant's prefix apart."""


class EngineMissing(Exception):
    """The engine that was asked for is not installed: what to do."""


Admissions = Callable[[Principal], Admission | None]


def make_bus(
    config: Config,
    issuer: str,
    *,
    clock: Clock,
    gatekeeper: Gatekeeper,
    hot: Store,
    limits: Limits,
    losses: Losses,
    spawn: Spawn,
    routes: Routes,
) -> tuple[BusEngine, Admissions]:
    """The engine that `mqtt.engine` names, and who says what a publisher on it may do."""
    engine, admission = _engine(config, issuer, clock, gatekeeper, hot, limits, losses, spawn, routes)
    routes.on_change.append(engine.topics_changed)
    return engine, admission


def _engine(
    config: Config,
    issuer: str,
    clock: Clock,
    gatekeeper: Gatekeeper,
    hot: Store,
    limits: Limits,
    losses: Losses,
    spawn: Spawn,
    routes: Routes,
) -> tuple[BusEngine, Admissions]:
    if config.mqtt.engine == "amqtt":
        return _amqtt(clock, gatekeeper, limits, losses, spawn, routes), gatekeeper.admission
    if config.mqtt.engine == "builtin":
        made = BuiltinEngine(clock=clock, gatekeeper=gatekeeper, hot=hot, limits=limits, traffic=routes.traffic)
        return made, gatekeeper.admission
    return _external(config, issuer, clock, hot, limits, losses, spawn, routes)


def _amqtt(
    clock: Clock, gatekeeper: Gatekeeper, limits: Limits, losses: Losses, spawn: Spawn, routes: Routes
) -> BusEngine:
    from edge.transports.mqtt.amqtt_engine import AmqttEngine

    try:
        return AmqttEngine(
            clock=clock, gatekeeper=gatekeeper, limits=limits, losses=losses, spawn=spawn, traffic=routes.traffic
        )
    except ModuleNotFoundError as error:
        raise EngineMissing(f"mqtt.engine = amqtt needs a package: pip install 'aun-edge[amqtt]' ({error})") from None


def _external(
    config: Config,
    issuer: str,
    clock: Clock,
    hot: Store,
    limits: Limits,
    losses: Losses,
    spawn: Spawn,
    routes: Routes,
) -> tuple[BusEngine, Admissions]:
    from edge.transports.mqtt.external import ExternalEngine
    from edge.transports.mqtt.foreign import Where

    asked, prefix = config.mqtt_external, config.devices.discovery_prefix
    engine = ExternalEngine(
        Where(
            host=asked.host,
            port=asked.port,
            client_id=asked.client_id or f"aun-edge-{issuer}",
            username=asked.username,
            password=_reader(asked.password_file),
            tls=ssl.create_default_context(cafile=asked.tls_ca or None) if asked.tls else None,
            version=asked.version,
            keepalive_s=asked.keepalive_s,
        ),
        Prefixes(asked.principals or WHOLE, lambda name: own_topics(name, prefix), lambda name: f"d-{name}.{issuer}"),
        clock=clock,
        hot=hot,
        limits=limits,
        losses=losses,
        spawn=spawn,
        plan=[*_discovery(prefix), *CONVENTIONS, *asked.filters],
        reads=routes.topics,
        traffic=routes.traffic,
        spool_us=asked.spool_s * SECOND,
    )
    return engine, engine.admission


def _discovery(prefix: str) -> Collection[str]:
    return f"{prefix}/+/+/config", f"{prefix}/+/+/+/config"


def _reader(path: str) -> Callable[[], str]:
    """The password in a file, read at each connection; nothing without a file."""
    return (lambda: Path(path).read_text(encoding="utf-8").strip()) if path else (lambda: "")
