from __future__ import annotations

import contextlib
import json
import socket
import ssl
import urllib.request
from collections.abc import Iterator

import pytest

from edge.config import PORTS, Port
from tests.support.process import NodeProcess

ALL = [word for port in PORTS for word in ("--set", f"{port.key}=127.0.0.1:0")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with every listener of the port table on a port of its own."""
    with NodeProcess(tmp_path_factory.mktemp("doors") / "state", *ALL) as running:
        yield running


@pytest.mark.seed("S4-086")
@pytest.mark.parametrize("port", PORTS, ids=[port.name for port in PORTS])
def test_every_listener_of_the_port_table_answers(node: NodeProcess, port: Port) -> None:
    number = json.loads((node.state_dir / "ports.json").read_text())[port.name]
    if port.name.startswith("mqtt"):
        assert refused_by_mqtt(number, node.ready["tls_ca"] if port.tls else "")
        return
    scheme = "https" if port.tls else "http"
    trust = ssl.create_default_context(cafile=node.ready["tls_ca"]) if port.tls else None
    with urllib.request.urlopen(f"{scheme}://127.0.0.1:{number}/healthz", timeout=10, context=trust) as answer:
        assert answer.status == 200


def refused_by_mqtt(port: int, ca: str) -> bool:
    """Whether an anonymous CONNECT of MQTT 3.1.1 gets its CONNACK with a refusal."""
    with contextlib.ExitStack() as stack:
        door = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        if ca:
            trust = ssl.create_default_context(cafile=ca)
            door = stack.enter_context(trust.wrap_socket(door, server_hostname="127.0.0.1"))
        door.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01x")
        answer = door.recv(4)
    return answer[:3] == b"\x20\x02\x00" and answer[3] in (4, 5)
