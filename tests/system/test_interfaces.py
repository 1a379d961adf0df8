"""The kernel's own list of addresses."""

from __future__ import annotations

import socket
from ipaddress import ip_interface
from pathlib import Path

from edge.system.interfaces import _modem, addresses


def test_the_machines_own_addresses_are_there_and_loopback_leads_nowhere() -> None:
    found = {str(one.address): one for one in addresses()}
    assert found["127.0.0.1/8"].interface == "lo"
    assert not found["127.0.0.1/8"].local
    assert found["127.0.0.1/8"].address == ip_interface("127.0.0.1/8")
    assert {one.interface for one in found.values()} <= {name for _, name in socket.if_nameindex()}


def test_a_mobile_modem_is_known_by_what_the_kernel_says_of_it(tmp_path: Path) -> None:
    said = tmp_path / "uevent"
    assert not _modem(said)
    said.write_text("DEVTYPE=wlan\nINTERFACE=wlan0\n")
    assert not _modem(said)
    said.write_text("DEVTYPE=wwan\nINTERFACE=wwan0\n")
    assert _modem(said)
