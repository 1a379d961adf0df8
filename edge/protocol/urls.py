"""Absolute URLs that leave the node: one rule for cards, discovery, tickets and offers (settled G33).

`public_url` of the configuration decides. Without it: the URL that the caller used, when its host is one of our
names; else our TLS listener. A loopback name never goes to a caller on another machine.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import msgspec

_USUAL = {"https": 443, "http": 80}


class Names(msgspec.Struct, frozen=True):
    """What the node is called and where it listens.

    `public`: entries of `public_url`, best first: a base URL, or `SUBNET=URL` for callers from that subnet.
    `hosts`: further host names and addresses that are us. `https`, `http`: base URLs of the listeners, "" when off.
    """

    issuer: str
    public: tuple[str, ...] = ()
    hosts: frozenset[str] = frozenset()
    https: str = ""
    http: str = ""


def public_url(base: str, address: str, names: Names) -> str:
    """The base URL (`scheme://host[:port]`, no slash at the end) to show to a caller.

    `base` is the URL under which the request came in ("" when there was none), `address` the caller's IP.
    """
    if chosen := _configured(address, names):
        return chosen[0]
    host = (urlsplit(base).hostname or "").lower()
    local = not address or is_loopback(address)
    if host and (local or not is_loopback(host)) and is_ours(host, names):
        return base.rstrip("/")
    for listener in (names.https, names.http):
        if listener:
            return _reachable(listener, local, names)
    return base.rstrip("/") if local and host and is_loopback(host) else f"https://gateway.{names.issuer}"


def settled_base(base: str, names: Names) -> str:
    """`base` for what is signed and kept: its port is that of our listener of this scheme, or the usual one of a proxy;
    "" for any other. So a caller who invents ports makes nothing new; a forwarded port belongs in `public_url`."""
    url = urlsplit(base)
    try:
        port = url.port
    except ValueError:
        return ""
    if port == _USUAL.get(url.scheme):
        port = None
    listener = urlsplit(names.https if url.scheme == "https" else names.http)
    if not url.hostname or (port is not None and port != listener.port):
        return ""
    return f"{url.scheme}://{_bracketed(url.hostname)}" + ("" if port is None else f":{port}")


def gateway_url(base: str, address: str, names: Names) -> str:
    """The WebSocket URL of the node for a caller. Clients keep it for ever: a stable name, never an AID's host."""
    return _gateway(public_url(base, address, names), names)


def gateway_urls(base: str, address: str, names: Names) -> list[str]:
    """What discovery answers: every configured URL for this caller, best first, else the one there is."""
    chosen = _configured(address, names) or [public_url(base, address, names)]
    return list(dict.fromkeys(_gateway(one, names) for one in chosen))


def aid_url(aid: str, path: str, base: str, address: str, names: Names) -> str:
    """A URL at an AID's own host (`https://<aid>[:port]/agent.md`), on the port where the node is reached."""
    url = urlsplit(public_url(base, address, names))
    port = f":{url.port}" if url.port else ""
    return f"{url.scheme}://{aid}{port}{path}"


def is_ours(host: str, names: Names) -> bool:
    """Whether a Host header names this node: its issuer, anything below it, loopback, or a configured name."""
    return host == names.issuer or host.endswith(f".{names.issuer}") or host in names.hosts or is_loopback(host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address means "this very machine"."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _gateway(base: str, names: Names) -> str:
    url = urlsplit(base)
    host = (url.hostname or "").lower()
    if host.endswith(f".{names.issuer}"):
        host = f"gateway.{names.issuer}"
    port = f":{url.port}" if url.port else ""
    scheme = "wss" if url.scheme == "https" else "ws"
    return f"{scheme}://{_bracketed(host)}{port}{url.path.rstrip('/')}/aun"


def _configured(address: str, names: Names) -> list[str]:
    found = []
    for entry in names.public:
        subnet, equals, url = entry.partition("=")
        if not equals or "://" in subnet:
            found.append(entry.rstrip("/"))
        elif _within(address, subnet.strip()):
            found.append(url.strip().rstrip("/"))
    return found


def _within(address: str, subnet: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(subnet, strict=False)
    except ValueError:
        return False


def _reachable(listener: str, local: bool, names: Names) -> str:
    """A listener's URL with a host that the caller can use: a wildcard or loopback address is no name for others."""
    url = urlsplit(listener)
    host = url.hostname or ""
    port = f":{url.port}" if url.port else ""
    if host in ("", "0.0.0.0", "::") or (is_loopback(host) and not local):  # noqa: S104  read, not bound
        host = "localhost" if local else f"gateway.{names.issuer}"
    return f"{url.scheme}://{_bracketed(host)}{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
