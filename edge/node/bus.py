"""Which broker is the node's bus: one factory, three engines (design D4)."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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

if TYPE_CHECKING:
    from edge.transports.mqtt.external import ExternalEngine

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


class Ports(NamedTuple):
    """What an engine needs of the house. `routes` are the topics that capabilities read; `lag_us` is how late the
    loop was lately."""

    clock: Clock
    gatekeeper: Gatekeeper
    hot: Store
    limits: Limits
    losses: Losses
    spawn: Spawn
    routes: Routes
    lag_us: Callable[[], int]


def make_bus(config: Config, issuer: str, ports: Ports) -> tuple[BusEngine, Admissions]:
    """The engine that `mqtt.engine` names, and who says what a publisher on it may do. Raises `EngineMissing`."""
    admission: Admissions = ports.gatekeeper.admission
    engine: BusEngine
    match config.mqtt.engine:
        case "external":
            engine = foreign = _external(config, issuer, ports)
            admission = foreign.admission
        case "amqtt":
            engine = _amqtt(ports)
        case _:
            engine = _builtin(config, ports)
    ports.routes.on_change.append(engine.topics_changed)
    return engine, admission


def _builtin(config: Config, ports: Ports) -> BusEngine:
    return BuiltinEngine(
        clock=ports.clock,
        gatekeeper=ports.gatekeeper,
        hot=ports.hot,
        limits=ports.limits,
        traffic=ports.routes.traffic,
        closed=ports.routes.closed,
        sys_s=config.mqtt.sys_interval_s,
        figures={"load/loop lag": lambda: f"{ports.lag_us()} microseconds"},
    )


def _amqtt(ports: Ports) -> BusEngine:
    from edge.transports.mqtt.amqtt_engine import AmqttEngine

    try:
        return AmqttEngine(
            clock=ports.clock,
            gatekeeper=ports.gatekeeper,
            limits=ports.limits,
            losses=ports.losses,
            spawn=ports.spawn,
            traffic=ports.routes.traffic,
            closed=ports.routes.closed,
        )
    except ModuleNotFoundError as error:
        raise EngineMissing(
            f"mqtt.engine = amqtt needs the package {error.name}, which is not there: "
            "in the clone, .venv/bin/pip install -e '.[amqtt]'"
        ) from None


def _external(config: Config, issuer: str, ports: Ports) -> ExternalEngine:
    from edge.transports.mqtt.external import ExternalEngine
    from edge.transports.mqtt.foreign import Where

    asked, prefix = config.mqtt_external, config.devices.discovery_prefix
    return ExternalEngine(
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
        clock=ports.clock,
        hot=ports.hot,
        limits=ports.limits,
        losses=ports.losses,
        spawn=ports.spawn,
        plan=[*_discovery(prefix), *CONVENTIONS, *asked.filters],
        reads=ports.routes.topics,
        traffic=ports.routes.traffic,
        spool_us=asked.spool_s * SECOND,
    )


def _discovery(prefix: str) -> Collection[str]:
    return f"{prefix}/+/+/config", f"{prefix}/+/+/+/config"


def _reader(path: str) -> Callable[[], str]:
    """The password in a file, read at each connection; nothing without a file."""
    return (lambda: Path(path).read_text(encoding="utf-8").strip()) if path else (lambda: "")
