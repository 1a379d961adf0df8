"""Every setting, declared once: type, default, example, sentence and what is allowed.

A section is a record and a setting is its field; the reader, `config list`, the reference and `doctor` read these.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from edge.config import shapes
from edge.config.shapes import Shape
from edge.contract import limit

Namespace = Literal[
    "collab", "debug", "event", "group", "mail", "message", "notification", "proxy", "push", "search", "storage",
    "stream", "task",
]  # fmt: skip
"""What can be switched off (settled G34)."""
Level = Literal["debug", "info", "warning", "error"]


def say(about: str, example: object, **bounds: Any) -> Meta:
    """What people read about a setting, and its bounds."""
    return Meta(description=about, examples=[example], **bounds)


def text(about: str, example: str, shape: Shape) -> Meta:
    """A setting that is a text of some shape."""
    return say(about, example, pattern=shape.pattern, extra={"allowed": shape.words})


def each(shape: Shape) -> Meta:
    """The shape of every item of a list, or of every value of a table."""
    return Meta(pattern=shape.pattern, extra={"allowed": shape.words})


def address(about: str, example: str) -> Meta:
    """A setting that names where to listen."""
    return text(about, example, shapes.ADDRESS)


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the configuration file."""


class NodeSettings(Section, frozen=True, kw_only=True):
    """The node as a whole."""

    name: Annotated[
        str, text("Name shown to people and in the agent card; empty: the host name.", "kitchen box", shapes.LINE)
    ] = ""
    issuer: Annotated[
        str,
        text(
            "Domain that every AID here ends in; empty: made from the root key. Fixed at the first start.",
            "home.test",
            shapes.ISSUER,
        ),
    ] = ""
    owner: Annotated[
        str,
        text(
            "AID of who is told of alarms, as messages; it must be one of this node. Empty: nobody.",
            "alice.home.test",
            shapes.AID,
        ),
    ] = ""
    public_url: Annotated[
        list[Annotated[str, each(shapes.URL)]],
        say("Base URLs under which others reach this node, best first; empty: as the caller did.", ["https://box.lan"]),
    ] = []
    off: Annotated[
        list[Namespace],
        say("AUN services that this node does not offer: gone from capabilities and methods.", ["task"]),
    ] = []
    port_aliases: Annotated[bool, say("Open the alias ports of the port table as well.", True)] = False
    provider: Annotated[
        str, text("Who runs this node, as shown in cards and agent.md.", "Household Doe", shapes.LINE)
    ] = ""
    contact: Annotated[str, text("How to reach them, as shown in agent.md.", "mailto:doe@home.test", shapes.LINE)] = ""
    license: Annotated[str, text("License line of generated agent.md files.", "CC-BY-4.0", shapes.LINE)] = ""


class HttpSettings(Section, frozen=True, kw_only=True):
    """HTTP and WebSocket: AUN, A2A, PKI, health."""

    listen: Annotated[str, address("Plain HTTP and WebSocket.", "127.0.0.1:0")] = "127.0.0.1:9010"
    tls_listen: Annotated[str, address("HTTPS and WSS; by default it opens once a device exists.", "192.0.2.7:443")] = (
        "0.0.0.0:9443"
    )
    ws_listen: Annotated[str, address("A second plain door (WebSocket on its own port).", "127.0.0.1:9011")] = "off"
    vfs_listen: Annotated[str, address("A second TLS door (VFS on its own port).", "0.0.0.0:9014")] = "off"
    metrics_listen: Annotated[str, address("A second plain door (metrics on their own port).", "127.0.0.1:9015")] = (
        "off"
    )
    insecure_local: Annotated[
        bool, say("Callers from this very machine need no token; loopback listeners only.", True)
    ] = False
    hosts: Annotated[
        list[Annotated[str, each(shapes.HOST)]], say("Further names that a Host header may carry.", ["box.lan"])
    ] = []


class MqttSettings(Section, frozen=True, kw_only=True):
    """The MQTT bus."""

    listen: Annotated[str, address("Plain MQTT.", "127.0.0.1:0")] = "127.0.0.1:1883"
    tls_listen: Annotated[str, address("MQTT over TLS; opens by default once a device exists.", "192.0.2.7:8883")] = (
        "0.0.0.0:8883"
    )
    alias_listen: Annotated[str, address("A second plain MQTT door.", "127.0.0.1:9012")] = "off"
    tls_alias_listen: Annotated[str, address("A second door for MQTT over TLS.", "0.0.0.0:9013")] = "off"
    ws_listen: Annotated[str, address("MQTT over WebSocket, at the path `/mqtt`.", "127.0.0.1:9016")] = "off"
    wss_listen: Annotated[str, address("MQTT over WebSocket with TLS, at the path `/mqtt`.", "0.0.0.0:9017")] = "off"
    ws_origins: Annotated[
        list[Annotated[str, each(shapes.ORIGIN)]],
        say("Origins of pages that may connect over WebSocket, besides those of this node.", ["https://panel.lan"]),
    ] = []
    unix_socket: Annotated[
        str,
        text(
            "Path of a unix socket for programs of this machine, seen from the state directory; empty: none.",
            "run/mqtt.sock",
            shapes.FILE,
        ),
    ] = ""
    plain_lan: Annotated[
        list[Annotated[str, each(shapes.NETWORK)]],
        say(
            "Networks whose devices may connect without TLS, with their own passwords: private subnets, or interfaces.",
            ["192.168.1.0/24", "eth1"],
        ),
    ] = []
    plain_lan_port: Annotated[
        int, say("Port of `mqtt.plain_lan`, on each address in those networks (0 picks one).", 1884, ge=0, le=65535)
    ] = 1883
    engine: Annotated[
        Literal["builtin", "amqtt", "external"],
        say("Who is the broker: this node, the `amqtt` package inside it, or one of your own.", "external"),
    ] = "builtin"
    client_cert: Annotated[
        Literal["same", "off", "optional", "required"],
        say("Client certificates on the MQTT doors with TLS; `same`: as `tls.client_cert` says.", "optional"),
    ] = "same"
    sys_interval_s: Annotated[
        int, say("Seconds between the `$SYS` figures that admins may subscribe to.", 60, ge=1, le=3600)
    ] = 10


class ExternalSettings(Section, frozen=True, kw_only=True):
    """The broker of `mqtt.engine = "external"`: Mosquitto, EMQX, NanoMQ or another."""

    host: Annotated[str, text("Name or address of the broker.", "broker.lan", shapes.HOST)] = "127.0.0.1"
    port: Annotated[int, say("Its port.", 8883, ge=1, le=65535)] = 1883
    username: Annotated[str, text("The user that this node is there.", "aun-edge", shapes.LINE)] = ""
    password_file: Annotated[
        str, text("File with that user's password.", "/etc/aun-edge/broker.password", shapes.FILE)
    ] = ""
    tls: Annotated[bool, say("Speak TLS with it.", True)] = False
    tls_ca: Annotated[
        str, text("PEM file with its authority; empty: the system's.", "/etc/ssl/broker-ca.pem", shapes.FILE)
    ] = ""
    version: Annotated[
        Literal["auto", "5", "3.1.1"],
        say("MQTT version; `auto` begins with 5 and goes back to 3.1.1 where that is refused.", "3.1.1"),
    ] = "auto"
    client_id: Annotated[str, text("Client id there; empty: made from the issuer.", "kitchen-box", shapes.CLIENT)] = ""
    keepalive_s: Annotated[
        int,
        say("Seconds of silence before a ping; after twice as long the broker is taken for dead.", 60, ge=5, le=600),
    ] = 20
    filters: Annotated[
        list[Annotated[str, each(shapes.FILTER)]],
        say("Topic filters heard besides those of the conventions and the principals.", ["plant/#"]),
    ] = []
    principals: Annotated[
        dict[str, Annotated[str, each(shapes.SLUG)]],
        say(
            "Whose a topic is, by prefix: that broker does not say who publishes. Empty: one principal has all of it.",
            {"zigbee2mqtt": "zigbee", "garden/pump/": "pump"},
            extra={"allowed": "a table of topic prefixes (no wildcard; `#` is the rest) and names"},
        ),
    ] = {}
    spool_s: Annotated[
        int,
        say(
            "Seconds that what the node publishes waits for that broker; then it is declared lost.",
            60,
            ge=1,
            le=604_800,
        ),
    ] = 300


class TlsSettings(Section, frozen=True, kw_only=True):
    """Certificates of the TLS listeners; without `cert` the node issues its own."""

    cert: Annotated[str, text("PEM file with the certificate chain.", "/etc/aun-edge/tls/cert.pem", shapes.FILE)] = ""
    key: Annotated[str, text("PEM file with the private key of `cert`.", "/etc/aun-edge/tls/key.pem", shapes.FILE)] = ""
    min_version: Annotated[Literal["1.2", "1.3"], say("Oldest TLS version that is spoken.", "1.3")] = "1.2"
    client_cert: Annotated[
        Literal["off", "optional", "required"], say("Whether clients may or must show a certificate.", "optional")
    ] = "off"
    client_ca: Annotated[
        str,
        text(
            "PEM file with the authorities of client certificates, and their revocation lists; empty: our own.",
            "/etc/ssl/clients.pem",
            shapes.FILE,
        ),
    ] = ""
    names: Annotated[
        list[Annotated[str, each(shapes.CERTIFIED)]],
        say("Further names and addresses in the node's own certificate.", ["box.lan"]),
    ] = []


class AuthSettings(Section, frozen=True, kw_only=True):
    """Who may register a name."""

    registration: Annotated[
        Literal["invited", "open"],
        say("`invited`: names reserved by `aun-edge agent add`; `open`: any free name, for laboratories.", "open"),
    ] = "invited"


class LogSettings(Section, frozen=True, kw_only=True):
    """The log; all of it can be changed while the node runs."""

    level: Annotated[Level, say("Least severity that is written.", "debug")] = "info"
    levels: Annotated[dict[str, Level], say("Severity of single modules.", {"edge.transports.mqtt": "debug"})] = {}
    format: Annotated[Literal["text", "json"], say("A line of text, or a JSON object a line.", "json")] = "text"
    target: Annotated[Literal["stderr", "journald", "file"], say("Where the log goes.", "file")] = "stderr"
    file: Annotated[
        str,
        text(
            "Log file of target `file`, seen from the state directory; empty: `run/aun-edge.log`.",
            "/var/log/aun-edge.log",
            shapes.FILE,
        ),
    ] = ""
    file_kib: Annotated[int, say("KiB at which the log file is turned over.", 1024, ge=16, le=1_048_576)] = 4096
    file_count: Annotated[int, say("How many older log files are kept.", 2, ge=0, le=100)] = 3
    rate: Annotated[
        int, say("Lines a minute of one message; the rest is counted and told. 0: no bound.", 10, ge=0, le=100_000)
    ] = 60


class DevicesSettings(Section, frozen=True, kw_only=True):
    """Devices and what they announce."""

    discovery_prefix: Annotated[str, text("First level of Home Assistant discovery topics.", "ha", shapes.LEVEL)] = (
        "homeassistant"
    )
    confirm_s: Annotated[int, say("Seconds a command waits for the state that confirms it.", 5, ge=1, le=3600)] = 10


class ReadingsSettings(Section, frozen=True, kw_only=True):
    """History of what devices measured."""

    keep_days: Annotated[int, say("Days a reading is kept.", 365, ge=1, le=3650)] = 30
    keep_mib: Annotated[int, say("MiB of all readings together; the oldest go first.", 512, ge=1, le=1_048_576)] = 128


class AgentsSettings(Section, frozen=True, kw_only=True):
    """What agents are offered."""

    default_skill: Annotated[
        str,
        text(
            "Skill that a message to the node means when it names none; empty: the node asks.",
            "hall.light",
            shapes.SKILL,
        ),
    ] = ""


class A2aSettings(Section, frozen=True, kw_only=True):
    """The A2A door."""

    enabled: Annotated[bool, say("Serve the agent card and A2A requests.", False)] = True
    description: Annotated[
        str, text("What the node's agent card says it is.", "Lights of the workshop", shapes.LINE)
    ] = ""


class StoreSettings(Section, frozen=True, kw_only=True):
    """The databases."""

    wear_window_s: Annotated[
        float, say("Seconds that readings nobody waits for may gather before they are written.", 5, ge=0, le=60)
    ] = 0


SECTIONS: dict[str, type[Section]] = {
    "node": NodeSettings,
    "http": HttpSettings,
    "mqtt": MqttSettings,
    "mqtt.external": ExternalSettings,
    "tls": TlsSettings,
    "auth": AuthSettings,
    "log": LogSettings,
    "devices": DevicesSettings,
    "readings": ReadingsSettings,
    "agents": AgentsSettings,
    "a2a": A2aSettings,
    "store": StoreSettings,
}
"""Every section by its name in the file; the section `limits` comes from the declared limits instead."""


class Setting(msgspec.Struct, frozen=True):
    """One setting as people read it."""

    key: str
    kind: str
    default: Any
    example: Any
    about: str
    allowed: str


def settings() -> list[Setting]:
    """Every setting in the order of declaration; then the limits, by name, of all modules imported so far."""
    found = []
    for section, kind in SECTIONS.items():
        defaults = kind()
        for name, hint in hints(kind).items():
            meta = _meta(hint)
            example = (meta.examples or [""])[0]
            key, about = f"{section}.{name}", meta.description or ""
            found.append(Setting(key, kind_of(hint), getattr(defaults, name), example, about, allowed(hint)))
    for name in sorted(limit.REGISTRY):
        declared = limit.REGISTRY[name]
        about = f"{declared.about} ({declared.unit})" + (f"; at most `{declared.within}`" if declared.within else "")
        hint = limit_type(declared)
        found.append(
            Setting(f"limits.{name}", kind_of(hint), declared.default, declared.default * 2, about, allowed(hint))
        )
    return found


def keys() -> list[str]:
    """Every `section.key`, limits included."""
    declared = [f"{section}.{name}" for section, kind in SECTIONS.items() for name in kind.__struct_fields__]
    return declared + [f"limits.{name}" for name in limit.REGISTRY]


def split(key: str) -> tuple[str, str]:
    """Section and name of a key: the longest section that it begins with, else what stands before the first dot."""
    for section in sorted(SECTIONS, key=len, reverse=True):
        if key.startswith(f"{section}."):
            return section, key[len(section) + 1 :]
    section, _, name = key.partition(".")
    return section, name


def attribute(section: str) -> str:
    """What a section is called in `Config`."""
    return section.replace(".", "_")


def hint_of(key: str) -> Any:
    """The declared type of a key; an entry of a table (`log.levels.<module>`) has its value's. Raises `KeyError`."""
    section, name = split(key)
    if section == "limits":
        return limit_type(limit.REGISTRY[name])
    declared = hints(SECTIONS[section])
    if name in declared:
        return declared[name]
    table, _, entry = name.partition(".")
    if not entry or base_of(declared[table]) is not dict:
        raise KeyError(key)
    return get_args(_bare(declared[table]))[1]


LIMIT = Annotated[int, Meta(ge=1, le=1 << 40)]
"""The type of a limit: what fits SQLite and a clock of microseconds, whatever it is multiplied with."""


def limit_type(one: limit.Limit) -> Any:
    """The type of this limit, from the least that it may be."""
    return LIMIT if one.least == 1 else Annotated[int, Meta(ge=one.least, le=1 << 40)]


@cache
def hints(kind: type[Section]) -> dict[str, Any]:
    """The fields of a section with their types and sentences."""
    return get_type_hints(kind, include_extras=True)


def base_of(hint: Any) -> Any:
    """The plain type: `str`, `int`, `float`, `bool`, `list`, `dict` or `Literal`."""
    return get_origin(_bare(hint)) or _bare(hint)


def kind_of(hint: Any) -> str:
    """The type in words."""
    base, args = base_of(hint), get_args(_bare(hint))
    if base is dict:
        return f"table of {kind_of(args[1])}"
    if base is list:
        return f"list of {kind_of(args[0])}"
    return {Literal: "choice", str: "text", int: "whole number", float: "number", bool: "true or false"}[base]


def allowed(hint: Any) -> str:
    """What may be written, in words."""
    meta, base, args = _meta(hint), base_of(hint), get_args(_bare(hint))
    if meta.extra and "allowed" in meta.extra:
        return str(meta.extra["allowed"])
    if base is Literal:
        return ", ".join(args)
    if base is list:
        return f"a list of: {allowed(args[0])}"
    if base is dict:
        return f"a table whose values are one of: {allowed(args[1])}"
    if meta.ge is not None:
        return f"a {kind_of(hint)} from {meta.ge} " + (f"to {meta.le}" if meta.le is not None else "up")
    return kind_of(hint) if base is bool else f"a {kind_of(hint)}"


def culprit(value: Any, hint: Any) -> tuple[Any, str]:
    """What of a refused value is wrong, a single item of a list or table if it is only that; and what is allowed."""
    base, args = base_of(hint), get_args(_bare(hint))
    if base in (list, dict) and type(value) is base:
        for item in value.values() if base is dict else value:
            if not fits(item, args[-1]):
                return item, allowed(args[-1])
    return value, allowed(hint)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a declared type and within its bounds."""
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError:
        return False
    return not isinstance(value, float) or math.isfinite(value)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _meta(hint: Any) -> Meta:
    found = [part for part in get_args(hint)[1:] if isinstance(part, Meta)] if get_origin(hint) is Annotated else []
    return found[0] if found else Meta()
