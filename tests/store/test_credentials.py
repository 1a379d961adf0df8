from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from edge.store import credentials
from edge.store.credentials import Credential
from tests.support.store import database

ONE = Credential(
    user="a", digest=credentials.digest(b"x"), aid="d-a.edge.test", admin=True, publish=("#",), subscribe=("a/#", "b")
)


async def test_a_user_is_kept_once_and_read_back_whole(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        assert await node.commit(lambda unit: credentials.add(unit, ONE))
        other = msgspec.structs.replace(ONE, digest=b"other")
        assert not await node.commit(lambda unit: credentials.add(unit, other))
        assert await node.read(credentials.all_users) == [ONE]
        fresh = msgspec.structs.replace(ONE, digest=b"2" * 32)
        assert await node.commit(lambda unit: credentials.renew(unit, fresh))
        assert await node.read(lambda unit: credentials.of(unit, "a")) == fresh
        assert await node.commit(lambda unit: credentials.remove(unit, "a"))
        assert not await node.commit(lambda unit: credentials.renew(unit, fresh))
        assert await node.read(lambda unit: credentials.of(unit, "a")) is None
        assert not await node.commit(lambda unit: credentials.remove(unit, "a"))
        assert await node.read(credentials.all_users) == []


@pytest.mark.parametrize("column", ["publish", "subscribe"])
async def test_a_user_whose_row_is_damaged_is_left_out_and_named(
    tmp_path: Path, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: credentials.add(unit, ONE))
        await node.commit(lambda unit: credentials.add(unit, msgspec.structs.replace(ONE, user="b")))
        await node.commit(lambda unit: unit.run(f"UPDATE mqtt_user SET {column} = x'5b22' WHERE user = 'b'"))
        assert await node.read(credentials.all_users) == [ONE]
    assert "the MQTT user b cannot be read" in caplog.text


def test_what_is_kept_of_a_password_is_its_sha256() -> None:
    assert credentials.digest(b"abc").hex().startswith("ba7816bf")


def test_own_topics_are_those_of_the_design() -> None:
    assert credentials.own_topics("u") == (
        "aun/v1/u/#",
        "u/#",
        "homeassistant/+/u/#",
        "homeassistant/device/u/#",
        "tele/u/#",
        "stat/u/#",
        "cmnd/u/#",
    )
    assert "ha/device/u/#" in credentials.own_topics("u", "ha")
