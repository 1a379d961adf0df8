"""Tables of the MQTT engine: what was committed comes back as it was."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edge.contract.bus import Admission, Publish
from edge.contract.principal import GUEST, Kind, Principal
from edge.contract.time import SECOND, Stamp
from edge.protocol.mqtt.codec import Will
from edge.protocol.mqtt.journal import Changes
from edge.protocol.mqtt.message import Message, head_of
from edge.protocol.mqtt.properties import Prop
from edge.protocol.mqtt.rights import Rights
from edge.protocol.mqtt.session import RELEASED, SENT, Outgoing, Session, Subscription
from edge.store import ledger, mqtt
from edge.store.database import Database
from edge.store.mqtt import Stored, StoredSession, StoredSubscription, Texts
from tests.support.mqtt_rows import load
from tests.support.store import database

LAMP = Principal(Kind.DEVICE, "d-lamp.test", frozenset({"cap:act", "cap:read"}), "mqtt")
AT = Stamp(3, 77)


def message(topic: str = "a", payload: bytes = b"\x00\xff", expires_us: int | None = None) -> Message:
    return Message(Publish(topic, payload, 1, True, LAMP, Stamp(3, 7)), head_of(topic), b"extra", expires_us)


def session(number: int = 1, **fields: Any) -> Session:
    made = Session(("lamp", f"c{number}"), number, Rights(Admission(GUEST, "lamp", (), ("#",)), "c"), LAMP)
    made.since_us, made.expiry_s = 5, 60
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def changes(**rows: Any) -> Changes:
    made = Changes()
    for name, value in rows.items():
        setattr(made, name, value)
    return made


async def written(db: Database, made: Changes) -> Stored:
    """Commit changes; everything the file then holds."""
    await db.commit(mqtt.commit(made, AT, Texts()))
    return await db.read(load)


async def test_a_retained_message_comes_back_and_goes(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as db:
        kept = changes(retained={"ü/b": message("ü/b", expires_us=9 * SECOND), "a": message()})
        first, second = (await written(db, kept)).retained
        assert (first.topic, first.payload, first.expires_us) == ("a", b"\x00\xff", None)
        assert (second.topic, second.extra, second.expires_us) == ("ü/b", b"extra", 9 * SECOND)
        assert (second.who, second.qos, second.boot, second.mono_us) == (LAMP, 1, 3, 7)
        left = await written(db, changes(retained={"a": None, "ü/b": message("ü/b", b"new")}))
        assert [(one.topic, one.payload) for one in left.retained] == [("ü/b", b"new")]


async def test_a_session_comes_back_with_its_will(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as db:
        will = Will("w", b"\x00\xffgone", 2, True, {Prop.CONTENT_TYPE: "x", Prop.USER_PROPERTY: [("k", "v")]})
        kept = changes(sessions={1: session(will=(will, 30)), 2: session(2)})
        assert (await written(db, kept)).sessions == [
            StoredSession(1, "lamp", "c1", LAMP, 60, 3, 5, will, 30),
            StoredSession(2, "lamp", "c2", LAMP, 60, 3, 5, None, 0),
        ]
        assert [one.number for one in (await written(db, changes(sessions={1: None}))).sessions] == [2]


async def test_a_session_that_is_connected_was_left_at_no_time(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as db:
        [found] = (await written(db, changes(sessions={1: session(conn=object())}))).sessions
        assert found.since_us == -1


async def test_a_subscription_comes_back_with_all_its_options(tmp_path: Path) -> None:
    mine = session()
    shared = Subscription(mine, "a/#", 1, group="g")
    special = Subscription(mine, "b", 2, ids=(9,), no_local=True, retain_as_published=True, retain_handling=2)
    async with database(tmp_path, "hot") as db:
        found = await written(db, changes(subscriptions={(1, "$share/g/a/#"): shared, (1, "b"): special}))
        assert found.subscriptions == [
            StoredSubscription(1, "$share/g/a/#", "a/#", "g", 1, 0, False, False, 0),
            StoredSubscription(1, "b", "b", "", 2, 9, True, True, 2),
        ]
        left = await written(db, changes(subscriptions={(1, "b"): None, (2, "b"): special}))
        assert [(one.session, one.wanted) for one in left.subscriptions] == [(1, "$share/g/a/#"), (2, "b")]


def outgoing(number: int, *, state: int = SENT, packet_id: int = 7, ids: tuple[int, ...] = ()) -> Outgoing:
    made = Outgoing(number, message(), 1, True, ids)
    made.state, made.packet_id = state, packet_id
    return made


async def test_messages_on_their_way_come_back_in_the_order_in_which_they_were_taken(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as db:
        rows = {(1, number): outgoing(number, ids=(4, 5) if number == 2 else ()) for number in (3, 1, 2)}
        found = (await written(db, changes(outgoing=rows))).outgoing
        assert [one.number for one in found] == [1, 2, 3]
        assert (found[1].ids, found[1].session, found[1].packet_id) == ((4, 5), 1, 7)
        assert (found[1].granted, found[1].retain, found[1].state) == (1, True, SENT)
        assert found[1].message.payload == b"\x00\xff"


async def test_of_a_message_that_is_on_disk_only_its_packet_id_and_state_are_written(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as db:
        await written(db, changes(outgoing={(1, 1): outgoing(1), (1, 2): outgoing(2)}))
        moved = outgoing(1, state=RELEASED, packet_id=8)
        moved.written, moved.message = True, message(payload=b"not written again")
        found = (await written(db, changes(outgoing={(1, 1): moved, (1, 2): None}))).outgoing
        assert [(one.number, one.packet_id, one.state) for one in found] == [(1, 8, RELEASED)]
        assert found[0].message.payload == b"\x00\xff"


async def test_messages_that_wait_for_pubrel_come_back_and_their_packet_ids_go(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as db:
        routed = message()
        routed.routed = True
        found = (await written(db, changes(incoming={(1, 9): routed, (2, 9): message("b"), (3, 1): True}))).incoming
        assert [(one.session, one.packet_id, one.routed, one.retain) for one in found] == [
            (1, 9, True, True),
            (2, 9, False, True),
        ]
        left = (await written(db, changes(incoming={(1, 9): False}))).incoming
        assert [(one.session, one.message.topic) for one in left] == [(2, "b")]


async def test_losses_are_in_the_ledger_after_the_same_commit(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as db:
        made = changes(losses={("alarm", "queue_full", "lamp"): 2, ("telemetry", "no_room", "lamp"): 5})
        await written(db, made)
        told = await db.read(ledger.matching)
        assert {(one.log, one.key, one.reason, one.who, one.count) for one in told} == {
            (mqtt.LOG, "alarm", "queue_full", "lamp", 2),
            (mqtt.LOG, "telemetry", "no_room", "lamp", 5),
        }


@pytest.mark.parametrize("count", [399, 400, 401, 1001])
async def test_as_many_rows_as_come_are_written_and_dropped(tmp_path: Path, count: int) -> None:
    async with database(tmp_path, "hot") as db:
        rows = {(1, number): outgoing(number) for number in range(count)}
        assert len((await written(db, changes(outgoing=rows))).outgoing) == count
        for out in rows.values():
            out.written, out.state = True, RELEASED
        found = (await written(db, changes(outgoing=rows))).outgoing
        assert {one.state for one in found} == {RELEASED}
        gone = changes(outgoing=dict.fromkeys(list(rows)[1:]), incoming=dict.fromkeys(rows, False))
        assert [one.number for one in (await written(db, gone)).outgoing] == [0]


async def test_changes_are_written_as_they_were_when_they_were_handed_over(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as db:
        out = outgoing(1)
        work = mqtt.commit(changes(outgoing={(1, 1): out}), AT, Texts())
        out.state = RELEASED
        await db.commit(work)
        assert [one.state for one in (await db.read(load)).outgoing] == [SENT]


async def test_nothing_to_write_writes_nothing(tmp_path: Path) -> None:
    async with database(tmp_path, "hot") as db:
        ran: list[str] = []

        class Noting:
            def run(self, sql: str, args: object = ()) -> list[tuple[object, ...]]:
                ran.append(sql)
                return []

        noting: Any = Noting()
        mqtt.commit(Changes(), AT, Texts())(noting)
        assert ran == []
        assert await db.read(load) == Stored([], [], [], [], [])


def test_the_text_of_a_principal_is_made_once_and_not_kept_for_ever() -> None:
    texts = Texts()
    assert texts.of(LAMP) is texts.of(LAMP)
    same = Principal(LAMP.kind, LAMP.aid, LAMP.scopes, LAMP.via)
    assert texts.of(same) == texts.of(LAMP)
    others = [Principal(Kind.DEVICE, f"d-{at}.test") for at in range(mqtt.REMEMBERED + 5)]
    assert len({texts.of(one) for one in others}) == len(others)
    assert len(texts._known) <= mqtt.REMEMBERED


async def pages(db: Database, rows: int) -> list[mqtt.Page]:
    """What a start reads, so many rows at a time."""
    found, place = [], mqtt.Place()
    while True:
        found.append(await db.read(partial(mqtt.page, place=place, rows=rows)))
        end = found[-1].end
        if end is None:
            return found
        place = end


async def unreadable(db: Database) -> list[tuple[str, tuple[object, ...]]]:
    return [one for page in await pages(db, 500) for one in page.lost]


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
async def test_pages_of_any_size_hold_every_row_once_and_in_order(tmp_path: Path, rows: int) -> None:
    async with database(tmp_path, "hot") as db:
        sessions = {number: session(number=number) for number in (1, 2, 3)}
        wanted = {(number, name): Subscription(sessions[number], name, 1) for number in sessions for name in "cab"}
        everything = changes(
            retained={topic: message(topic) for topic in ("b", "a", "c/1", "c")},
            sessions=sessions,
            subscriptions=wanted,
            outgoing={(1, number): outgoing(number) for number in (7, 3, 5)},
            incoming={(2, ident): message("b") for ident in (9, 4)},
        )
        whole = await written(db, everything)
        found = await pages(db, rows)
        for name in mqtt.Stored.__struct_fields__:
            assert [one for page in found for one in getattr(page.stored, name)] == getattr(whole, name)
        assert (
            max(sum(len(getattr(page.stored, name)) for name in page.stored.__struct_fields__) for page in found)
            <= rows
        )
        assert [one.topic for one in whole.retained] == ["a", "b", "c", "c/1"]
        assert [one.number for one in whole.outgoing] == [3, 5, 7]
        assert (len(whole.sessions), len(whole.subscriptions), len(whole.incoming)) == (3, 9, 2)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("mqtt_retained", "who"),
        ("mqtt_session", "who"),
        ("mqtt_session", "will"),
        ("mqtt_outgoing", "who"),
        ("mqtt_outgoing", "ids"),
        ("mqtt_incoming", "who"),
    ],
)
async def test_a_row_that_cannot_be_read_is_declared_lost_and_the_others_stay(
    tmp_path: Path, table: str, column: str
) -> None:
    async with database(tmp_path, "hot") as db:
        will = Will("gone", b"", 0, False, {})
        everything = changes(
            retained={"a": message()},
            sessions={1: session(will=(will, 30))},
            outgoing={(1, 1): outgoing(1)},
            incoming={(1, 9): message("b")},
        )
        await written(db, everything)
        assert await unreadable(db) == []
        await db.commit(lambda unit: unit.run(f"UPDATE {table} SET {column} = '{{'"))
        [lost] = await unreadable(db)
        assert lost[0] == table
        await db.commit(lambda unit: mqtt.mend(unit, [lost]))
        assert await unreadable(db) == []
        left = await db.read(load)
        count = {"mqtt_retained": len(left.retained), "mqtt_session": len(left.sessions)}
        count |= {"mqtt_outgoing": len(left.outgoing), "mqtt_incoming": len(left.incoming)}
        assert count[table] == 0
        assert (len(left.outgoing) == 0) or table != "mqtt_session", "a session takes its own rows along"
        assert [gap.reason for gap in await db.read(ledger.recent)] == ["unreadable"]
