"""`$SYS`: figures under the field's names, for those who ask."""

from __future__ import annotations

from edge.protocol.mqtt.codec import PublishPacket
from tests.protocol.mqtt.box import Box, Client


def figures(client: Client) -> dict[str, str]:
    """What a client was told, without the common beginning."""
    found = [one for one in client.read() if isinstance(one, PublishPacket)]
    return {one.topic.removeprefix("$SYS/broker/"): one.payload.decode() for one in found}


def test_nobody_listens_and_nothing_is_published() -> None:
    box = Box()
    box.client().subscribe("#")
    box.pass_(60)
    assert box.broker.stats()["retained"] == 0


def test_a_subscriber_gets_the_fields_usual_figures_at_once_and_again() -> None:
    box = Box()
    box.client("other").publish("a", b"x", retain=True)
    box.client("asleep", clean=False).drop()
    client = box.client()
    client.subscribe("$SYS/#")
    told = figures(client)
    assert told["version"].startswith("aun-edge ")
    assert told["clients/connected"] == "2"
    assert told["clients/disconnected"] == "1"
    assert told["clients/maximum"] == "2"
    assert told["subscriptions/count"] == "0"
    box.pass_(9.9)
    assert figures(client) == {}
    box.host("a", b"y")
    box.pass_(0.1)
    told = figures(client)
    assert told["uptime"] == "10 seconds"
    assert told["publish/messages/received"] == "2"
    assert "version" not in told


def test_figures_stop_when_the_listener_goes() -> None:
    box = Box()
    client = box.client()
    client.subscribe("$SYS/broker/uptime")
    client.drop()
    box.pass_(60)
    assert box.broker.deadlines.next() is None


def test_figures_are_not_for_the_hosts_sinks_nor_for_the_disk() -> None:
    box = Box(instant=False)
    box.client().subscribe("$SYS/#")
    assert box.heard == []
    assert box.disk == []


def test_asking_twice_does_not_tell_twice() -> None:
    box = Box()
    client = box.client()
    client.subscribe("$SYS/broker/uptime")
    client.read()
    client.subscribe("$SYS/broker/version")
    client.read()
    box.pass_(10)
    assert list(figures(client)) == ["uptime"]
