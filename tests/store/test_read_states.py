from __future__ import annotations

from pathlib import Path

import msgspec

from edge.store import read_states
from edge.store.read_states import ReadMark
from tests.support.store import database

ALICE, BOB = "alice.edge.test", "bobb.edge.test"


def mark(topic: str = "family", device: str = "phone", **more: object) -> ReadMark:
    return msgspec.structs.replace(ReadMark(topic, device, False, "m-1", 10, 20), **more)


async def test_the_last_position_of_a_device_in_a_topic_is_the_one_that_is_kept(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        await db.commit(lambda unit: read_states.put(unit, ALICE, mark()))
        later = mark(message_id="m-2", sent_ms=0, at_ms=30)
        await db.commit(lambda unit: read_states.put(unit, ALICE, later))
        assert await db.read(lambda unit: read_states.marks(unit, ALICE, "family")) == [later]


async def test_a_message_for_one_device_has_a_position_of_its_own(tmp_path: Path) -> None:
    kept = [mark(), mark(targeted=True, message_id="m-9"), mark(device="tablet")]
    async with database(tmp_path) as db:
        for one in kept:
            await db.commit(lambda unit, one=one: read_states.put(unit, ALICE, one))
        found = await db.read(lambda unit: read_states.marks(unit, ALICE, "family"))
        assert sorted(found, key=msgspec.structs.astuple) == sorted(kept, key=msgspec.structs.astuple)


async def test_positions_belong_to_an_aid_and_all_its_topics_come_by_name(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        for topic in ("work", "family"):
            await db.commit(lambda unit, topic=topic: read_states.put(unit, ALICE, mark(topic)))
        await db.commit(lambda unit: read_states.put(unit, ALICE, mark("family", "tablet")))
        found = await db.read(lambda unit: read_states.marks(unit, ALICE))
        assert [(one.topic, one.device) for one in found] == [
            ("family", "phone"),
            ("family", "tablet"),
            ("work", "phone"),
        ]
        assert await db.read(lambda unit: read_states.topics(unit, ALICE)) == 2
        assert await db.read(lambda unit: read_states.marks(unit, BOB)) == []
        assert await db.read(lambda unit: read_states.topics(unit, BOB)) == 0
