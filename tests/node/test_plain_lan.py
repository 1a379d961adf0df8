"""`mqtt.plain_lan`: where it listens, and what it never does (settled G14)."""

from __future__ import annotations

import os
import subprocess
import sys
from ipaddress import ip_interface, ip_network
from pathlib import Path

import pytest

from edge.node.plain_lan import Door, doors
from edge.system.interfaces import Address


def address(interface: str, text: str, *, local: bool = True) -> Address:
    return Address(interface, ip_interface(text), local)


HOME = address("eth0", "192.168.1.5/24")
MORE = [address("eth0", "fd12::5/64"), address("eth0", "fe80::5/64"), address("eth0", "2001:db8::5/64")]
WAN = [address("eth1", "203.0.113.5/24"), address("eth1", "10.0.0.5/24")]
MODEM = address("wwan0", "10.1.0.5/24", local=False)


def test_a_subnet_opens_the_addresses_in_it() -> None:
    made, missing, refused = doors(["192.168.1.0/24"], [HOME, *MORE, *WAN])
    assert made == {"192.168.1.5": Door("192.168.1.5", "eth0", ip_network("192.168.1.0/24"))}
    assert (missing, refused) == ({}, {})


def test_an_interface_opens_its_private_addresses_each_for_its_own_network() -> None:
    """Home networks have global addresses of version 6 too; those are not listened on."""
    made, _, refused = doors(["eth0"], [HOME, *MORE])
    assert {host: str(door.network) for host, door in made.items()} == {
        "192.168.1.5": "192.168.1.0/24",
        "fd12::5": "fd12::/64",
    }
    assert refused == {}


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("eth1", "eth1 has the public address 203.0.113.5"),
        ("10.0.0.0/24", "eth1 has the public address 203.0.113.5"),
        ("wwan0", "wwan0 is a modem, a tunnel or the machine itself"),
        ("10.1.0.0/16", "wwan0 is a modem, a tunnel or the machine itself"),
    ],
)
def test_what_leads_to_the_internet_is_refused(entry: str, why: str) -> None:
    made, _, refused = doors([entry], [HOME, *WAN, MODEM])
    assert made == {}
    assert refused[entry].startswith(why)


def test_what_is_not_there_yet_is_said() -> None:
    _, missing, _ = doors(["eth7", "10.9.0.0/16"], [HOME])
    assert missing == {
        "eth7": "this machine has no interface of that name with a private address now",
        "10.9.0.0/16": "this machine has no address in it now",
    }


@pytest.mark.needs("ip", "unshare", "mosquitto_pub", "mosquitto_sub")
def test_on_real_interfaces(tmp_path: Path) -> None:
    """Devices come in, nothing of high risk, addresses come and go, never on a WAN: `plain_lan_scenario.py`."""
    alone = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode and os.environ.get("CI") != "true":
        pytest.skip("NOT RUN: this machine gives no network namespace")
    scenario = [sys.executable, "-m", "tests.node.plain_lan_scenario", str(tmp_path)]
    done = subprocess.run([*alone, *scenario], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-6000:]}"
    assert done.stdout.split() == [
        "devices_come_in",
        "nothing_of_high_risk",
        "no_way_round",
        "addresses_come_and_go",
        "never_on_a_wan",
    ]
