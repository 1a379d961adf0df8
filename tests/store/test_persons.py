from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from edge.store import persons
from edge.store.persons import Person, slow_digest, with_password
from tests.support.store import database

BOB = Person(user="bob", digest=b"d", salt=b"s", cost=4, admin=True, publish=("#",), subscribe=("bob/#",))


async def test_a_person_is_kept_once_and_read_back_whole(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        assert await node.commit(lambda unit: persons.add(unit, BOB))
        other = msgspec.structs.replace(BOB, digest=b"other")
        assert not await node.commit(lambda unit: persons.add(unit, other))
        assert await node.read(persons.all_users) == [BOB]
        await node.commit(lambda unit: persons.put(unit, other))
        assert await node.read(lambda unit: persons.of(unit, "bob")) == other
        assert await node.commit(lambda unit: persons.remove(unit, "bob"))
        assert not await node.commit(lambda unit: persons.remove(unit, "bob"))
        assert await node.read(lambda unit: persons.of(unit, "bob")) is None


async def test_a_damaged_row_lets_nobody_in_and_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: persons.add(unit, BOB))
        await node.commit(lambda unit: unit.run("UPDATE mqtt_person SET publish = x'5b'"))
        assert await node.read(persons.all_users) == []
    assert "the MQTT user bob cannot be read any more" in caplog.text


def test_the_hash_is_scrypt_with_a_salt_of_its_own() -> None:
    one, two = with_password(BOB, b"correct horse"), with_password(BOB, b"correct horse")
    assert one.salt != two.salt
    assert one.digest != two.digest
    assert one.digest == slow_digest(b"correct horse", one.salt, one.cost)
    assert b"correct horse" not in one.digest
    assert one.aid == "mqtt:bob"
