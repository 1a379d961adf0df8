"""Where amqtt meets the node: a plugin that asks us, and adapters that watch the bytes. Needs the extra `amqtt`.

Only public names of amqtt are used. What its broker leaves open, and bytes can close, is closed here: a silent
connection, a packet too large, a retained message for somebody who may not read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter
from amqtt.contexts import Action, BaseContext
from amqtt.mqtt.disconnect import DisconnectPacket
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin

from edge.protocol.mqtt.rights import Rights

PATH = f"{__name__}.Porter"
"""How amqtt's configuration names the plugin."""

_PUBLISH = 3


class Desk(Protocol):
    """The engine, as the plugin sees it. A session is amqtt's own record of a client."""

    def met(self, context: Any) -> None:
        """The broker's context, once."""
        ...

    async def admit(self, session: Any) -> bool:
        """Whether a client may come in."""
        ...

    def rights(self, session: Any) -> Rights | None:
        """What a client may do; None for one that nobody let in."""
        ...

    def heard(self, client_id: str, message: Any) -> None:
        """A client published something that it may."""
        ...

    def connected(self, session: Any) -> None:
        """A client is in."""
        ...

    def goodbye(self, session: Any) -> None:
        """A client said DISCONNECT."""
        ...

    def left(self, session: Any) -> None:
        """A client is gone."""
        ...


DESKS: dict[str, Desk] = {}
"""Engines by the word in their plugin's configuration: amqtt makes the plugin itself."""


class Porter(BaseAuthPlugin, BaseTopicPlugin):
    """The one plugin: who may come in, who may do what, what was said."""

    @dataclass
    class Config:
        """`desk` is the engine's word in `DESKS`."""

        desk: str = ""

    def __init__(self, context: BaseContext) -> None:
        super().__init__(context)
        self._desk = DESKS[self.config.desk]
        self._desk.met(context)

    async def authenticate(self, *, session: Any) -> bool:
        """Asked by amqtt."""
        return await self._desk.admit(session)

    async def topic_filtering(
        self, *, session: Any = None, topic: str | None = None, action: Action | None = None
    ) -> bool:
        """Asked by amqtt."""
        rights = self._desk.rights(session)
        if rights is None or topic is None:
            return False
        if action == Action.PUBLISH:
            return rights.may_publish(topic)
        return rights.may_subscribe(topic) if action == Action.SUBSCRIBE else rights.may_read(topic)

    async def on_broker_message_broadcast(self, *, client_id: str, message: Any) -> None:
        """Told by amqtt."""
        self._desk.heard(client_id, message)

    async def on_broker_client_connected(self, *, client_id: str, client_session: Any) -> None:
        """Told by amqtt."""
        self._desk.connected(client_session)

    async def on_broker_client_disconnected(self, *, client_id: str, client_session: Any) -> None:
        """Told by amqtt."""
        self._desk.left(client_session)

    async def on_mqtt_packet_received(self, *, packet: Any, session: Any = None) -> None:
        """Told by amqtt."""
        if isinstance(packet, DisconnectPacket) and session is not None:
            self._desk.goodbye(session)


class Reader(StreamReaderAdapter):
    """Bytes from a client: none too many at once. `cut` ends the connection."""

    def __init__(self, reader: asyncio.StreamReader, most: int, cut: Callable[[], None]) -> None:
        super().__init__(reader)
        self._most, self._cut = most, cut
        self.too_large = False

    async def read(self, n: int = -1) -> bytes:
        """Read; the end, when more is asked for than a packet may have."""
        if n > self._most:
            self.too_large = True
            self._cut()
            return b""
        data: bytes = await super().read(n)
        return data


class Writer(StreamWriterAdapter):
    """Packets to a client; one that it may not read is left out and counted in `withheld`."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        super().__init__(writer)
        self.rights: Rights | None = None
        self.withheld = 0

    def write(self, data: bytes) -> None:
        """Write one packet (amqtt hands over whole ones)."""
        if data and data[0] >> 4 == _PUBLISH and (self.rights is None or not self.rights.may_read(topic_of(data))):
            self.withheld += 1
            return
        super().write(data)

    def abort(self) -> None:
        """Close at once."""
        self.is_closed = True
        self._writer.transport.abort()


def topic_of(packet: bytes) -> str:
    """The topic of a PUBLISH packet."""
    at = 1
    while packet[at] & 0x80:
        at += 1
    length = int.from_bytes(packet[at + 1 : at + 3], "big")
    return bytes(packet[at + 3 : at + 3 + length]).decode("utf-8", "replace")
