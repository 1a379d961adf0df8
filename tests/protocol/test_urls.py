from __future__ import annotations

import pytest

from edge.protocol.urls import Names, aid_url, gateway_url, gateway_urls, is_loopback, is_ours, public_url, settled_base

HERE, LAN = "127.0.0.1", "192.168.1.20"
PLAIN = Names(issuer="edge.test", http="http://127.0.0.1:9010")
TLS = Names(
    issuer="edge.test", http="http://127.0.0.1:9010", https="https://0.0.0.0:9443", hosts=frozenset({"box.lan"})
)
SAID = Names(issuer="edge.test", public=("192.168.0.0/16=https://192.168.1.5:9443", "https://home.example.org/"))


@pytest.mark.parametrize(
    ("base", "address", "names", "url"),
    [
        ("http://127.0.0.1:9010", HERE, PLAIN, "http://127.0.0.1:9010"),
        ("http://localhost:9010", HERE, PLAIN, "http://localhost:9010"),
        ("https://box.lan:9443", LAN, TLS, "https://box.lan:9443"),
        ("https://gateway.edge.test:9443", LAN, TLS, "https://gateway.edge.test:9443"),
        ("https://d-thermo.edge.test", LAN, TLS, "https://d-thermo.edge.test"),
        ("https://evil.example", LAN, TLS, "https://gateway.edge.test:9443"),
        ("https://evil.example", HERE, TLS, "https://localhost:9443"),
        ("http://localhost:9010", LAN, TLS, "https://gateway.edge.test:9443"),
        ("", HERE, PLAIN, "http://127.0.0.1:9010"),
        ("", LAN, PLAIN, "http://gateway.edge.test:9010"),
        ("", "", TLS, "https://localhost:9443"),
        ("http://127.0.0.1:1", HERE, Names(issuer="edge.test"), "http://127.0.0.1:1"),
        ("http://evil.example", LAN, Names(issuer="edge.test"), "https://gateway.edge.test"),
        ("", LAN, Names(issuer="edge.test", https="https://[2001:db8::1]:9443"), "https://[2001:db8::1]:9443"),
        ("http://127.0.0.1:9010", LAN, SAID, "https://192.168.1.5:9443"),
        ("http://127.0.0.1:9010", HERE, SAID, "https://home.example.org"),
        ("http://127.0.0.1:9010", "not an address", SAID, "https://home.example.org"),
    ],
)
def test_one_rule_decides_what_a_caller_is_shown(base: str, address: str, names: Names, url: str) -> None:
    assert public_url(base, address, names) == url


@pytest.mark.parametrize("base", ["http://localhost:9010", "http://127.0.0.1:9010", "http://[::1]:9010", ""])
@pytest.mark.parametrize("names", [PLAIN, TLS, Names(issuer="edge.test"), SAID])
def test_a_loopback_name_never_goes_to_another_machine(base: str, names: Names) -> None:
    for url in (public_url(base, LAN, names), gateway_url(base, LAN, names)):
        assert not any(name in url for name in ("localhost", "127.0.0.1", "::1"))


@pytest.mark.parametrize(
    ("base", "address", "names", "url"),
    [
        ("http://127.0.0.1:9010", HERE, PLAIN, "ws://127.0.0.1:9010/aun"),
        ("https://alice.edge.test:9443", LAN, TLS, "wss://gateway.edge.test:9443/aun"),
        ("https://edge.test", LAN, TLS, "wss://edge.test/aun"),
        ("http://[::1]:9010", HERE, PLAIN, "ws://[::1]:9010/aun"),
        ("", HERE, Names(issuer="edge.test", public=("https://h.example/edge",)), "wss://h.example/edge/aun"),
    ],
)
def test_discovery_names_a_host_that_stays(base: str, address: str, names: Names, url: str) -> None:
    assert gateway_url(base, address, names) == url


def test_discovery_lists_every_configured_way_in_once() -> None:
    names = Names(
        issuer="edge.test", public=("https://a.example", "10.0.0.0/8=https://b.example", "https://a.example/")
    )
    assert gateway_urls("", LAN, names) == ["wss://a.example/aun"]
    assert gateway_urls("", "10.1.2.3", names) == ["wss://a.example/aun", "wss://b.example/aun"]
    assert gateway_urls("http://127.0.0.1:9010", HERE, PLAIN) == ["ws://127.0.0.1:9010/aun"]


def test_an_aid_has_its_own_host_on_the_same_port() -> None:
    url = aid_url("alice.edge.test", "/agent.md", "https://box.lan:9443", LAN, TLS)
    assert url == "https://alice.edge.test:9443/agent.md"
    assert aid_url("a.edge.test", "/agent.md", "", LAN, SAID) == "https://a.edge.test:9443/agent.md"
    assert aid_url("a.edge.test", "/agent.md", "", "8.8.8.8", SAID) == "https://a.edge.test/agent.md"


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_loopback_has_many_names(host: str) -> None:
    assert is_loopback(host)
    assert is_ours(host, PLAIN)


@pytest.mark.parametrize("host", ["edge.test.evil", "evil-edge.test", "192.168.1.5", ""])
def test_other_names_are_not_ours(host: str) -> None:
    assert not is_ours(host, PLAIN)


@pytest.mark.parametrize(
    ("base", "settled"),
    [
        ("http://d-lamp.edge.test:9010", "http://d-lamp.edge.test:9010"),
        ("http://D-Lamp.edge.test:09010", "http://d-lamp.edge.test:9010"),
        ("https://d-lamp.edge.test:9443", "https://d-lamp.edge.test:9443"),
        ("https://d-lamp.edge.test", "https://d-lamp.edge.test"),
        ("https://d-lamp.edge.test:443", "https://d-lamp.edge.test"),
        ("http://[::1]:9010", "http://[::1]:9010"),
        ("http://d-lamp.edge.test:9443", ""),
        ("https://d-lamp.edge.test:9010", ""),
        ("http://d-lamp.edge.test:9011", ""),
        ("http://d-lamp.edge.test:99999", ""),
        ("http://d-lamp.edge.test:0", ""),
        ("http://:9010", ""),
        ("", ""),
    ],
)
def test_what_is_signed_is_signed_for_a_port_of_ours_and_for_no_invented_one(base: str, settled: str) -> None:
    names = Names("edge.test", https="https://0.0.0.0:9443", http="http://127.0.0.1:9010")
    assert settled_base(base, names) == settled
