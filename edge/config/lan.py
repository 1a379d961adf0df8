"""What `mqtt.plain_lan` may name: subnets of private networks, or interfaces (settled G14)."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network

PRIVATE: tuple[Network, ...] = tuple(
    ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7")
)
"""Addresses that the internet does not carry: RFC 1918, RFC 3927, RFC 4193."""

_INTERFACE = re.compile(r"[^\s/:]{1,15}")


def lan(text: str) -> Network | str:
    """The subnet, or the name of an interface. Raises `ValueError` with what is wrong and what is allowed."""
    try:
        alone = ip_address(text)
    except ValueError:
        pass
    else:
        raise ValueError(f"is one address; write the subnet that devices are in, for example {_around(alone)}")
    if "/" not in text:
        if _INTERFACE.fullmatch(text):
            return text
        raise ValueError("is neither a subnet nor the name of an interface")
    try:
        found = ip_network(text, strict=False)
    except ValueError:
        raise ValueError("is no subnet; allowed: for example 192.168.1.0/24, or the name of an interface") from None
    if str(found) != text and str(found.network_address) != text.partition("/")[0]:
        raise ValueError(f"is an address in a subnet; write {found}")
    if not private(found):
        raise ValueError(
            f"is not a private network; allowed: subnets of {', '.join(map(str, PRIVATE))}; "
            "others come over TLS: mqtt.tls_listen"
        )
    return found


def private(network: Network) -> bool:
    """Whether all of a network is private."""
    return any(one.version == network.version and network.subnet_of(one) for one in PRIVATE)  # type: ignore[arg-type]


def _around(address: IPv4Address | IPv6Address) -> Network:
    return ip_network(f"{address}/{24 if address.version == 4 else 64}", strict=False)
