from __future__ import annotations

from pathlib import Path

from edge.contract.capability import Capability
from edge.contract.event import Event
from edge.contract.time import Stamp
from edge.protocol.discovery.record import Availability, Component, Presence, Reader, Refused, Writer
from edge.protocol.discovery.template import parse
from edge.store import devices as table
from edge.store.devices import CapabilityRow, Change, DeviceRow, SourceRow, capability_id
from tests.support.store import database

DEVICE = DeviceRow(slug="d", aid="d-d.edge.test", publisher="d-d.edge.test", name="D", first=Stamp(1, 2))
COMPONENT = Component(
    uid="u",
    cap=Capability(
        name="c", title="C", kind="switch", value_type="boolean", options=("a",), minimum=1.5, writable=True
    ),
    reader=Reader(topic="t", template=parse("{{ value_json.a['b'] | float * 2 }}", 100), texts=(("ON", True),)),
    writer=Writer(topic="t/set", texts=(("true", "ON"),), confirms=(("open", "opened"),)),
    availability=Availability((Presence("a", "1", "0"),), "all"),
    expire_s=5,
    unsupported=("x",),
)
CAPABILITY = CapabilityRow(id=capability_id("d", 0, "c"), slug="d", name="c", state=0, source="s", component=COMPONENT)
SOURCE = SourceRow(topic="s", publisher="p", digest=b"\x01", slug="d", refused=(Refused("x", "bad", "y"),))


async def test_a_change_is_read_back_whole_and_told_after_its_commit(tmp_path: Path) -> None:
    told: list[Event] = []
    change = Change(
        devices=[DEVICE],
        hardware=[("mac:1", "d")],
        capabilities=[CAPABILITY],
        sources=[SOURCE],
        events=[("d", "device.added")],
    )
    async with database(tmp_path, fanout=told.append) as node:
        await node.commit(lambda unit: table.save(unit, change))
        known = await node.read(table.known)
        assert (known.devices, known.hardware) == ([DEVICE], [("mac:1", "d")])
        assert (known.capabilities, known.sources) == ([CAPABILITY], [SOURCE])
        assert [(event.log, event.key, event.seq, event.kind) for event in told] == [("device", "d", 1, "device.added")]
        await node.commit(lambda unit: table.save(unit, change))
        assert await node.read(table.known) == known
        await node.commit(lambda unit: table.save(unit, Change(gone=["s"])))
        assert (await node.read(table.known)).sources == []


async def test_forgetting_leaves_a_tombstone_and_nothing_else_of_that_device(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        other = CapabilityRow(id=7, slug="d-2", name="c", state=0, source="s2", component=COMPONENT)
        second = DeviceRow(slug="d-2", aid="d-d-2.edge.test")
        change = Change(
            devices=[DEVICE, second],
            hardware=[("mac:1", "d"), ("mac:2", "d-2")],
            capabilities=[CAPABILITY, other],
            sources=[SOURCE],
        )
        await node.commit(lambda unit: table.save(unit, change))
        for skill in ("d.c", "d-2.c"):
            await node.commit(lambda unit, skill=skill: table.grant(unit, skill, "a"))
        await node.commit(lambda unit: table.forget(unit, "d"))
        known = await node.read(table.known)
        assert [(row.slug, row.state) for row in known.devices] == [("d", table.FORGOTTEN), ("d-2", table.PRESENT)]
        assert known.hardware == [("mac:2", "d-2")]
        assert [row.slug for row in known.capabilities] == ["d-2"]
        assert await node.read(table.grants) == [("d-2.c", "a")]


def test_a_capabilitys_number_is_the_same_whenever_it_is_made() -> None:
    assert capability_id("d", 0, "c") == capability_id("d", 0, "c")
    assert len({capability_id("d", 0, "c"), capability_id("d", 1, "c"), capability_id("d", 0, "e")}) == 3
    assert all(0 <= capability_id("d", 0, str(n)) < 1 << 48 for n in range(100))
