"""The addresses of this machine by network interface, as the kernel tells them (rtnetlink(7)); no program is run."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from pathlib import Path

import msgspec

ETHERNET = 1
"""ARPHRD_ETHER: cable, Wi-Fi, bridges; a modem, a tunnel or PPP is something else."""

_NEWLINK, _GETLINK, _NEWADDR, _GETADDR, _DONE, _ERROR = 16, 18, 20, 22, 3, 2
_REQUEST_DUMP = 0x301
_IFLA_NAME, _IFA_ADDRESS, _IFA_LOCAL = 3, 1, 2
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_ANSWER = 1 << 16


class Address(msgspec.Struct, frozen=True):
    """One address with its network. `local` is False for an interface that leads out: a modem, a tunnel, PPP."""

    interface: str
    address: IPv4Interface | IPv6Interface
    local: bool


def addresses(sysfs: Path = Path("/sys/class/net")) -> list[Address]:
    """Every address there is now. Raises `OSError` when the kernel does not tell."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as wire:
        wire.settimeout(5)
        names: dict[int, str] = {}
        kinds: dict[int, int] = {}
        for body in _dump(wire, _GETLINK, _NEWLINK):
            _, kind, index = struct.unpack_from("=BxHi", body)
            names[index] = _attributes(body, 16).get(_IFLA_NAME, b"").rstrip(b"\0").decode(errors="replace")
            kinds[index] = kind
        found = []
        for body in _dump(wire, _GETADDR, _NEWADDR):
            _, prefix, _, _, index = struct.unpack_from("=BBBBi", body)
            said = _attributes(body, 8)
            raw = said.get(_IFA_LOCAL) or said.get(_IFA_ADDRESS)
            if raw is None or index not in names:
                continue
            text = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
            local = kinds[index] == ETHERNET and not _modem(sysfs / names[index] / "uevent")
            found.append(Address(names[index], ip_interface(f"{text}/{prefix}"), local))
        return found


def _dump(wire: socket.socket, ask: int, wanted: int) -> Iterator[bytes]:
    """The bodies of all records of one kind."""
    wire.send(_HEADER.pack(_HEADER.size + 16, ask, _REQUEST_DUMP, 1, 0) + bytes(16))
    while True:
        data = wire.recv(_ANSWER)
        while len(data) >= _HEADER.size:
            length, kind, _, _, _ = _HEADER.unpack_from(data)
            if kind == _DONE:
                return
            if kind == _ERROR or length < _HEADER.size:
                raise OSError("the kernel does not tell its network interfaces")
            if kind == wanted:
                yield data[_HEADER.size : length]
            data = data[(length + 3) & ~3 :]


def _attributes(body: bytes, at: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size:
            break
        found[kind] = body[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    return found


def _modem(uevent: Path) -> bool:
    """Whether an interface that looks like Ethernet is a mobile modem."""
    try:
        return "DEVTYPE=wwan" in uevent.read_text(errors="replace").splitlines()
    except OSError:
        return False
