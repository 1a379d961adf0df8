from __future__ import annotations

import pytest

from edge.config.declared import settings
from edge.config.ports import PORTS, is_loopback, listener

DEFAULTS = {one.key: one.default for one in settings()}


def test_the_port_table_and_the_settings_agree() -> None:
    assert {port.name: DEFAULTS[port.key] for port in PORTS} == {
        port.name: port.usual if port.on else "off" for port in PORTS
    }


def test_no_two_listeners_share_a_port() -> None:
    numbers = [port.usual.rpartition(":")[2] for port in PORTS]
    assert len(numbers) == len(set(numbers))


def test_an_ipv6_address_loses_its_brackets() -> None:
    made = listener(PORTS[0], "[::1]:9010", explicit=True)
    assert (made.host, made.port, made.loopback) == ("::1", 9010, True)


@pytest.mark.parametrize(
    ("host", "own"), [("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("0.0.0.0", False), ("::", False)]
)
def test_only_addresses_of_this_machine_are_loopback(host: str, own: bool) -> None:
    assert is_loopback(host) is own
