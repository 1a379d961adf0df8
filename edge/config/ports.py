"""The one port table (settled G01)."""

from __future__ import annotations

import msgspec


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the port table. `on`: open unless the settings say otherwise. `alias`: opened beside another, by its
    own setting or all at once by `node.port_aliases`. `ws`: MQTT packets in a WebSocket."""

    name: str
    key: str
    usual: str
    about: str
    tls: bool = False
    alias: bool = False
    on: bool = True
    ws: bool = False


PORTS: tuple[Port, ...] = (
    Port(name="http", key="http.listen", usual="127.0.0.1:9010", about="HTTP and WebSocket"),
    Port(name="mqtt", key="mqtt.listen", usual="127.0.0.1:1883", about="MQTT"),
    Port(name="https", key="http.tls_listen", usual="0.0.0.0:9443", about="HTTPS and WSS", tls=True),
    Port(name="mqtts", key="mqtt.tls_listen", usual="0.0.0.0:8883", about="MQTT over TLS", tls=True),
    Port(name="ws", key="http.ws_listen", usual="127.0.0.1:9011", about="alias of `http`", alias=True, on=False),
    Port(
        name="mqtt_alias",
        key="mqtt.alias_listen",
        usual="127.0.0.1:9012",
        about="alias of `mqtt`",
        alias=True,
        on=False,
    ),
    Port(
        name="mqtts_alias",
        key="mqtt.tls_alias_listen",
        usual="0.0.0.0:9013",
        about="alias of `mqtts`",
        tls=True,
        alias=True,
        on=False,
    ),
    Port(
        name="vfs",
        key="http.vfs_listen",
        usual="0.0.0.0:9014",
        about="alias of `https`",
        tls=True,
        alias=True,
        on=False,
    ),
    Port(
        name="metrics",
        key="http.metrics_listen",
        usual="127.0.0.1:9015",
        about="alias of `http`",
        alias=True,
        on=False,
    ),
    Port(
        name="mqtt_ws",
        key="mqtt.ws_listen",
        usual="127.0.0.1:9016",
        about="MQTT over WebSocket; off",
        on=False,
        ws=True,
    ),
    Port(
        name="mqtt_wss",
        key="mqtt.wss_listen",
        usual="0.0.0.0:9017",
        about="MQTT over WebSocket with TLS; off",
        tls=True,
        on=False,
        ws=True,
    ),
)


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """An address to listen on.

    explicit: somebody asked for this one, so a taken port stops the start; otherwise it is left off and named in
    `status`. owned: opens only once a device exists.
    """

    name: str
    key: str
    host: str
    port: int
    tls: bool
    owned: bool
    explicit: bool
    ws: bool = False

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    return host in {"localhost", "::1"} or host.startswith("127.")


def listener(port: Port, asked: str, *, explicit: bool) -> Listener:
    """The listener of a row at `host:port`."""
    host, _, number = asked.rpartition(":")
    return Listener(
        name=port.name,
        key=port.key,
        host=host.strip("[]"),
        port=int(number),
        tls=port.tls,
        owned=port.tls and not explicit,
        explicit=explicit,
        ws=port.ws,
    )
