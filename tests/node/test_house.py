from __future__ import annotations

from edge.node.life import Node
from tests.support.node import agent


async def test_status_tells_of_every_part(node: Node) -> None:
    facts = node.facts()
    assert facts["issuer"] == "edge.test"
    assert facts["mqtt"]["engine"] == "builtin"
    assert set(facts["stores"]) == {"node", "hot"}
    assert facts["stores"]["node"]["read_only"] is False
    assert facts["left_off"] == {}
    assert set(facts["endpoints"]) == {"http", "aun", "a2a", "mqtt"}


async def test_methods_list_every_name_once(node: Node) -> None:
    listed = node.house.methods()
    assert [one.name for one in listed] == sorted(op.name for op in node.house.table)
    assert all(one.doc for one in listed)


async def test_who_can_be_spoken_to(node: Node) -> None:
    await agent(node, "alice")
    known = node.house._known
    asked = ["alice.edge.test", "gateway.edge.test", "storage.edge.test", "nobody.edge.test", "d-none.edge.test"]
    assert await node.house.node.read(lambda unit: [known(unit, one) for one in asked]) == [
        True,
        True,
        True,
        False,
        False,
    ]
