"""`aun-edge mqtt pub|sub --username`: a real MQTT client on the node's own door, to try a user and its rights.

It speaks version 5, whose acks say why something was refused, and 3.1.1 to an engine that knows nothing newer.
"""

from __future__ import annotations

import secrets
import socket
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar
from urllib.parse import urlsplit

from edge.cli import password
from edge.cli.ask import ask
from edge.cli.failure import Exit, Failure
from edge.cli.places import ready
from edge.contract.errors import EdgeError
from edge.protocol.mqtt import codec
from edge.protocol.mqtt.codec import (
    V5,
    V311,
    Ack,
    AnyPacket,
    Connack,
    Connect,
    Disconnect,
    Ping,
    PublishPacket,
    Suback,
    Subscribe,
    Wish,
)
from edge.protocol.mqtt.fields import Fault
from edge.protocol.mqtt.reasons import REFUSED, Packet, Reason
from edge.protocol.mqtt.topics import valid_filter, valid_topic

Heard = Callable[[str, bytes, int, bool], bool]
"""Takes topic, payload, QoS and retain of a message; False ends it."""

SILENCE_S = 20
"""After so long without a packet the node is asked whether it is there; after as long again it is not."""
NO_RETAINED = 2
"""Retain Handling: no retained messages at the time of the subscription (MQTT 5 §3.8.3.1)."""

_TO_5 = {1: Reason.UNSUPPORTED_PROTOCOL_VERSION, 2: Reason.CLIENT_ID_NOT_VALID, 3: Reason.SERVER_UNAVAILABLE}
_TO_5 |= {4: Reason.BAD_USER_OR_PASSWORD, 5: Reason.NOT_AUTHORIZED}
"""Return codes of 3.1.1 §3.2.2.3 in the words of 5."""
_LATER = {Reason.SERVER_UNAVAILABLE, Reason.SERVER_BUSY, Reason.SERVER_SHUTTING_DOWN, Reason.QUOTA_EXCEEDED}
_UNKNOWN = "sent with QoS 0, and MQTT has no word for whether that was taken or refused; --qos 1 has"
_OLD = "acknowledged in MQTT 3.1.1, which has no word for a refusal: aun-edge queue drops has what was refused"


P = TypeVar("P", bound=AnyPacket)


def publish(options: Namespace, payload: bytes) -> None:
    """Publish, and return when the node has acked. Raises `Failure` when it refused, and says where nobody can tell."""
    if not valid_topic(options.topic):
        raise Failure(f"not a topic: {options.topic}", next_step="a topic has no + and no #", code=Exit.USAGE)
    with _connected(options) as door:
        door.send(PublishPacket(options.topic, payload, options.qos, options.retain, packet_id=options.qos))
        if not options.qos:
            door.send(Ping(Packet.PINGREQ))  # the answer comes after a word about the packet, if there is one
            door.awaited(Ping)
            sys.stderr.write(f"aun-edge: {_UNKNOWN}\n")
            return
        ack = door.awaited(Ack)
        if ack.reason >= REFUSED:
            raise refusal(ack.reason, f"{options.username} may not publish to {options.topic}", options.username)
        if door.version == V311:
            sys.stderr.write(f"aun-edge: {_OLD}\n")


def subscribe(options: Namespace, heard: Heard) -> None:
    """Hand over messages until `heard` has enough. Raises `Failure` when a filter is refused."""
    wrong = [one for one in options.filters if not valid_filter(one)]
    if wrong:
        raise Failure(f"not a topic filter: {wrong[0]}", next_step="+ is one whole level, # the last", code=Exit.USAGE)
    handling = NO_RETAINED if options.no_retained else 0
    with _connected(options) as door:
        wishes = [
            Wish(one, options.qos, retain_handling=handling if door.version == V5 else 0) for one in options.filters
        ]
        door.send(Subscribe(1, wishes))
        for packet in door.packets():
            if isinstance(packet, Suback):
                for reason, one in zip(packet.reasons, options.filters, strict=False):
                    if reason >= REFUSED:
                        raise refusal(reason, f"{options.username} may not read {one}", options.username)
            if isinstance(packet, PublishPacket):
                wanted = not (packet.retain and options.no_retained)
                more = not wanted or heard(packet.topic, packet.payload, packet.qos, packet.retain)
                if packet.qos:
                    door.send(Ack(Packet.PUBACK, packet.packet_id))
                if not more:
                    return
        raise _lost("the node has closed the connection")


def refusal(reason: int, what: str, user: str) -> Failure:
    """A refusal in the node's words. `what` was refused, if it is a matter of rights."""
    word = Reason(reason).name.lower().replace("_", " ")
    if reason in (Reason.NOT_AUTHORIZED, Reason.UNSPECIFIED_ERROR):
        step = f"aun-edge device show {user}, or aun-edge mqtt user list, says what it may use"
        return Failure(f"{what}: {word} (0x{reason:02x})", next_step=step, code=Exit.NOT_PERMITTED)
    if reason in _LATER:
        step = "aun-edge doctor says what is full or busy; then the same again"
        return Failure(f"the node refused: {word} (0x{reason:02x})", next_step=step, code=Exit.TRY_LATER)
    return Failure(f"the node refused: {word} (0x{reason:02x})", next_step="aun-edge queue drops")


def _lost(what: object) -> Failure:
    return Failure(f"MQTT failed: {what}", next_step="aun-edge doctor", code=Exit.TRY_LATER)


class Door:
    """One connection as one user. What goes wrong with it is a `Failure`."""

    def __init__(self, host: str, port: int, user: str, version: int) -> None:
        self.user, self.version = user, version
        self._bytes = b""
        self._pinged = False
        try:
            self._socket = socket.create_connection((host, port), SILENCE_S)
        except OSError as error:
            raise _lost(error) from None

    def login(self, secret: str) -> int | None:
        """The reason of its CONNACK in the words of 5; None when it does not understand this version."""
        name = f"{self.user}-{secrets.token_hex(4)}"
        alive = int(2 * SILENCE_S)
        self.send(Connect(name, keep_alive=alive, version=self.version, user=self.user, password=secret.encode()))
        try:
            for packet in self.packets():
                if isinstance(packet, Connack):
                    reason = packet.reason if self.version == V5 else _TO_5.get(packet.reason, packet.reason)
                    return None if reason == Reason.UNSUPPORTED_PROTOCOL_VERSION else reason
        except Fault:  # the CONNACK of 3.1.1 is none in 5
            return None
        return None

    def close(self) -> None:
        """Say goodbye."""
        with suppress(OSError):  # it has hung up before us
            self._socket.sendall(codec.encode(Disconnect(), self.version))
        self._socket.close()

    def send(self, packet: AnyPacket) -> None:
        """Send a packet. Whoever hangs up meanwhile may have said why."""
        try:
            self._socket.sendall(codec.encode(packet, self.version))
        except OSError as error:
            with suppress(OSError):
                self._bytes += self._socket.recv(65_536)
                self._whole()
            raise _lost(error) from None
        except ValueError as error:
            raise Failure(f"MQTT cannot say that: {error}", code=Exit.USAGE) from None

    def awaited(self, wanted: type[P]) -> P:
        """The first packet of a kind."""
        for packet in self.packets():
            if isinstance(packet, wanted):
                return packet
        raise _lost("the node has closed the connection")

    def packets(self) -> Iterator[AnyPacket]:
        """What the node says, until it hangs up; its goodbye is a failure. Raises `Fault` for what is no MQTT."""
        while True:
            packet = self._whole()
            if packet is not None:
                yield packet
                continue
            octets = self._received()
            if not octets:
                return
            self._bytes += octets

    def _whole(self) -> AnyPacket | None:
        found = codec.split(self._bytes)
        if isinstance(found, int):
            return None
        packet = codec.decode(found.first, self._bytes, found.start, found.end, self.version)
        self._bytes = self._bytes[found.end :]
        if isinstance(packet, Disconnect):
            raise refusal(packet.reason, f"{self.user} was sent away", self.user)
        return packet

    def _received(self) -> bytes:
        """Some bytes; b"" at the end."""
        while True:
            try:
                octets = self._socket.recv(65_536)
            except TimeoutError:
                if self._pinged:
                    raise _lost("the node does not answer") from None
                self._pinged = True
                self.send(Ping(Packet.PINGREQ))
                continue
            except OSError:
                return b""
            self._pinged = False
            return octets


def _engine(options: Namespace) -> str:
    """The node's engine, "" if it does not say so."""
    try:
        return str(ask(options.state_dir, "status")["mqtt"]["engine"])
    except (Failure, EdgeError):
        return ""


@contextmanager
def _connected(options: Namespace) -> Iterator[Door]:
    """Logged in, with 5 or else with 3.1.1."""
    if options.password_file is None:
        step = "--password-file FILE; `-` is standard input"
        raise Failure("--username needs --password-file", next_step=step, code=Exit.USAGE)
    where = ready(options.state_dir)["endpoints"].get("mqtt", "")
    engine = _engine(options)
    if engine == "external":
        step = (
            "try the user there, for example with mosquitto_pub; the address is mqtt.external in aun-edge config list"
        )
        raise Failure("devices connect to a broker of your own", next_step=step)
    if not where:
        raise Failure("the node has no plain MQTT door", next_step="aun-edge config get mqtt.listen")
    url = urlsplit(where)
    user, secret = options.username, password.from_file(options.password_file)
    for version in (V311,) if engine == "amqtt" else (V5, V311):  # amqtt lets version 5 wait for an answer for ever
        door = Door(url.hostname or "127.0.0.1", url.port or 1883, user, version)
        try:
            reason = door.login(secret)
            if reason is None:
                continue
            if reason in (Reason.BAD_USER_OR_PASSWORD, Reason.NOT_AUTHORIZED):
                step = (
                    f"aun-edge device rotate {user}, or aun-edge mqtt user password {user}, gives it another password"
                )
                what = f"the node refused {user}: {Reason(reason).name.lower().replace('_', ' ')}"
                raise Failure(what, next_step=step, code=Exit.NOT_PERMITTED)
            if reason:
                raise refusal(reason, f"{user} is not let in", user)
            yield door
            return
        except Fault as error:
            raise _lost(error) from None
        finally:
            door.close()
    raise _lost("the node speaks neither MQTT 5 nor 3.1.1")
