"""What `mqtt.plain_lan` may name (settled G14)."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from edge.config.lan import lan


@pytest.mark.parametrize("text", ["192.168.1.0/24", "10.0.0.0/8", "172.31.0.0/16", "169.254.0.0/16", "fd12::/64"])
def test_a_private_subnet_is_one(text: str) -> None:
    assert lan(text) == ip_network(text)


@pytest.mark.parametrize("text", ["eth0", "wlan0", "br-lan", "enx0123456789ab"])
def test_an_interface_is_named(text: str) -> None:
    assert lan(text) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("203.0.113.0/24", "is not a private network"),
        ("0.0.0.0/0", "is not a private network"),
        ("10.0.0.0/7", "is not a private network"),
        ("100.64.0.0/10", "is not a private network"),
        ("127.0.0.0/8", "is not a private network"),
        ("2001:db8::/32", "is not a private network"),
        ("::/0", "is not a private network"),
        ("192.168.1.7", "write the subnet that devices are in, for example 192.168.1.0/24"),
        ("fd12::1", "for example fd12::/64"),
        ("192.168.1.7/24", "write 192.168.1.0/24"),
        ("192.168.1.0/33", "is no subnet"),
        ("", "neither a subnet nor"),
        ("two words", "neither a subnet nor"),
        ("a-name-that-is-too-long", "neither a subnet nor"),
    ],
)
def test_anything_else_is_refused_and_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        lan(text)
