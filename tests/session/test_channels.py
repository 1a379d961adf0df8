from __future__ import annotations

import asyncio

import pytest

from edge.contract.event import Event
from edge.contract.time import SECOND
from tests.support.patience import until
from tests.support.sessions import ISSUER, dial, gateway


async def test_an_event_reaches_every_long_channel_of_its_audience_and_nobody_else() -> None:
    async with (
        gateway() as house,
        dial(house, name="alice", device="d1") as one,
        dial(house, name="alice", device="d2") as two,
        dial(house, name="alice", device="d3", kind="short") as short,
        dial(house, name="bobb") as other,
        dial(house) as guest,
    ):
        house.tell("alice")
        assert (await one.frame())["method"] == "event/message.received"
        assert (await two.frame())["params"]["n"] == 1
        for quiet in (short, other, guest):
            assert (await quiet.ask("meta.ping"))["result"] == {"pong": True}
            assert quiet.events == []


async def test_an_event_for_one_channel_reaches_that_channel_only() -> None:
    async with (
        gateway() as house,
        dial(house, name="alice", device="d1") as one,
        dial(house, name="alice", device="d2") as two,
    ):
        house.tell("alice", only=house.channels.instances(f"alice.{ISSUER}")[1].channel)
        assert (await two.frame())["params"]["n"] == 1
        await one.ask("meta.ping")
        assert one.events == []


async def test_an_event_that_the_dialect_does_not_know_is_not_sent() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        house.tell("alice", kind="hidden")
        await caller.ask("meta.ping")
        assert caller.events == []


async def test_a_watched_event_comes_once_even_to_its_audience() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        await caller.ask("test.watch")
        await caller.ask("test.watch")
        house.hub.publish(Event("task", "t0", 4, kind="task.updated", audience=frozenset({f"alice.{ISSUER}"})))
        await caller.ask("meta.ping")
        assert len(caller.events) == 1


async def test_watches_end_with_the_channel() -> None:
    async with gateway() as house:
        async with dial(house, name="alice") as caller:
            await caller.ask("test.watch", {"count": 3})
        await until(lambda: len(house.channels) == 0)
        assert house.hub._watchers == {}


@pytest.mark.limit("session.watches")
async def test_a_channel_watches_up_to_its_limit() -> None:
    async with gateway(limits={"session.watches": 4}) as house, dial(house, name="alice") as caller:
        assert (await caller.ask("test.watch", {"count": 4}))["result"] == 4
        assert (await caller.ask("test.watch", {"count": 5}))["error"]["data"]["limit"] == "session.watches"


async def test_the_newest_long_channel_of_a_slot_wins_and_the_old_one_is_told() -> None:
    async with (
        gateway() as house,
        dial(house, name="alice", slot="work/a") as old,
        dial(house, name="alice", slot="work/b") as new,
    ):
        assert await old.closed() == 4009
        assert old.events == [
            {
                "jsonrpc": "2.0",
                "method": "event/gateway.disconnect",
                "params": {"code": 4009, "reason": "replaced", "detail": {"device_id": "d1", "slot_id": "work/b"}},
            }
        ]
        assert (await new.ask("meta.ping"))["result"] == {"pong": True}
        assert len(house.channels.instances(f"alice.{ISSUER}")) == 1


async def test_other_slots_and_devices_stay() -> None:
    async with (
        gateway() as house,
        dial(house, name="alice", slot="a") as one,
        dial(house, name="alice", slot="b") as two,
        dial(house, name="alice", slot="a", device="d2") as three,
    ):
        for caller in (one, two, three):
            assert (await caller.ask("meta.ping"))["result"] == {"pong": True}
        assert [one.slot for one in house.channels.instances(f"alice.{ISSUER}")] == ["a", "b", "a"]


async def test_a_socket_may_connect_again_without_replacing_itself() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        assert (await caller.login("alice"))["result"] == {"status": "ok"}
        assert len(house.channels.instances(f"alice.{ISSUER}")) == 1


async def test_a_socket_of_one_aid_does_not_become_anothers_and_its_challenge_is_used_up() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        error = (await caller.login("bobb"))["error"]
        assert (error["code"], f"alice.{ISSUER}'s" in error["message"]) == (4010, True)
        assert [one.aid for one in house.channels.instances(f"alice.{ISSUER}")] == [f"alice.{ISSUER}"]
        assert house.channels.instances(f"bobb.{ISSUER}") == []
        assert (await caller.ask("test.echo", {"value": 1}))["result"] == 1
        assert [call.who.aid for call in house.service.calls][-1] == f"alice.{ISSUER}"
        assert [bool(call.door.nonce) for call in house.service.calls] == [True, False, False]


async def test_presence_knows_long_channels_and_devices() -> None:
    async with gateway() as house:
        house.channels.attach_availability(lambda aid: aid == "d-lamp.edge.test")
        async with dial(house, name="alice", mode="queue", peer=True), dial(house, name="bobb", kind="short"):
            assert house.channels.online(f"alice.{ISSUER}")
            assert not house.channels.online(f"bobb.{ISSUER}")
            assert house.channels.online("d-lamp.edge.test")
            found = house.channels.instances(f"alice.{ISSUER}")[0]
            assert (found.mode, found.peer_pull, found.long, found.device_id) == ("queue", True, True, "d1")
        await until(lambda: not house.channels.online(f"alice.{ISSUER}"))


async def test_one_aid_uses_one_delivery_mode() -> None:
    async with gateway() as house, dial(house, name="alice", device="d1"), dial(house) as other:
        error = (await other.login("alice", device="d2", mode="queue"))["error"]
        assert error["code"] == 4090
        assert "delivery_mode_conflict" in error["message"]
        assert (await other.login("alice", device="d2"))["result"] == {"status": "ok"}


@pytest.mark.limit("session.short_channels")
async def test_ten_short_channels_of_a_slot_and_no_more() -> None:
    async with gateway(limits={"session.short_channels": 2}) as house:
        async with (
            dial(house, name="alice", kind="short"),
            dial(house, name="alice", kind="short"),
            dial(house, name="alice"),
            dial(house) as third,
        ):
            error = (await third.login("alice", kind="short"))["error"]
            assert error["code"] == -32029
            assert "aid_device_slot" in error["message"]
            assert (await third.login("alice", kind="short", slot="other"))["result"] == {"status": "ok"}


@pytest.mark.limit("session.short_idle_ms")
async def test_a_quiet_short_channel_closes_after_its_time() -> None:
    async with gateway() as house, dial(house, name="alice", kind="short", short_ttl_ms=5000) as caller:
        house.clock.advance(4 * SECOND)
        await caller.ask("meta.ping")
        house.clock.advance(4 * SECOND)
        await caller.ask("meta.ping")
        await caller.send("test.wait", key=5)
        await until(lambda: house.service.waiting == 1)
        house.clock.advance(6 * SECOND)
        house.service.gates["gate"].set()
        assert (await caller.frame())["result"] == "gate"
        house.clock.advance(5 * SECOND)
        assert await caller.closed() == 4014


async def test_no_short_channel_may_ask_for_more_than_the_limit() -> None:
    async with gateway() as house, dial(house, name="alice", kind="short", short_ttl_ms=10**9) as caller:
        house.clock.advance(600 * SECOND)
        assert await caller.closed() == 4014


@pytest.mark.limit("session.channels_per_aid")
async def test_one_aid_has_a_bounded_number_of_channels() -> None:
    async with gateway(limits={"session.channels_per_aid": 2}) as house:
        async with dial(house, name="alice", device="a"), dial(house, name="alice", device="b"), dial(house) as third:
            assert (await third.login("alice", device="c"))["error"]["code"] == -32029
            assert (await third.login("alice", device="b"))["result"] == {"status": "ok"}


@pytest.mark.limit("session.guests_per_address")
async def test_guests_of_one_address_are_bounded_and_make_room_when_they_go() -> None:
    async with gateway(limits={"session.guests_per_address": 2}) as house, dial(house) as first:
        async with dial(house):
            with pytest.raises(Exception, match="1013"):
                async with dial(house):
                    pass
            assert house.limits.hits == {"session.guests_per_address": 1}
        await until(lambda: len(house.channels) == 1)
        async with dial(house) as second:
            await first.login("alice")
            async with dial(house) as third:
                assert third.challenge
                assert second.challenge
        assert house.limits.hits == {"session.guests_per_address": 1}


@pytest.mark.limit("session.guests")
async def test_guests_are_bounded_and_make_room_when_they_authenticate() -> None:
    async with gateway(limits={"session.guests": 1}) as house, dial(house) as first:
        with pytest.raises(Exception, match="1013"):
            async with dial(house):
                pass
        await first.login("alice")
        async with dial(house) as second:
            assert second.challenge["method"] == "challenge"
        assert house.limits.hits == {"session.guests": 1}


@pytest.mark.limit("session.channels")
async def test_the_node_has_a_bounded_number_of_channels() -> None:
    async with gateway(limits={"session.channels": 1}) as house, dial(house, name="alice"):
        with pytest.raises(Exception, match="1013"):
            async with dial(house):
                pass


async def test_expel_closes_every_channel_of_an_aid_with_a_farewell() -> None:
    async with gateway() as house, dial(house, name="alice") as one, dial(house, name="bobb") as other:
        assert house.channels.expel(f"alice.{ISSUER}", 4001, "revoked") == 1
        assert await one.closed() == 4001
        assert one.events[-1]["params"] == {"code": 4001, "reason": "revoked", "detail": {}}
        assert not house.channels.online(f"alice.{ISSUER}")
        assert (await other.ask("meta.ping"))["result"] == {"pong": True}


@pytest.mark.limit("session.outbound_octets", "session.outbound_frames")
@pytest.mark.parametrize(("size", "count"), [(20_000, 2000), (20_000, 4000)])
async def test_a_peer_that_does_not_read_is_closed_with_1013_and_others_hear_everything(size: int, count: int) -> None:
    frames = {"session.outbound_octets": 10**9} if count == 4000 else {}
    async with (
        gateway(limits=frames) as house,
        dial(house, name="alice") as slow,
        dial(house, name="bobb") as quick,
    ):
        slow.socket.transport.pause_reading()
        for number in range(count):
            house.tell("alice", number, size=size)
            if number % 50 == 0:
                house.tell("bobb", number)
                assert (await quick.frame())["params"]["n"] == number
        assert not house.channels.online(f"alice.{ISSUER}") or house.limits.hits
        assert set(house.limits.hits) <= {"session.outbound_octets", "session.outbound_frames"}
        assert len(house.limits.hits) == 1
        slow.socket.transport.resume_reading()
        assert await slow.closed() == 1013
        numbers = [event["params"]["n"] for event in slow.events]
        assert numbers == list(range(len(numbers)))


@pytest.mark.limit("http.close_seconds")
async def test_a_peer_that_does_not_even_read_the_close_is_cut_off() -> None:
    async with gateway() as house, dial(house, name="alice") as slow:
        slow.socket.transport.pause_reading()
        for number in range(1000):
            house.tell("alice", number, size=20_000)
            await asyncio.sleep(0)
        await until(lambda: len(house.channels) == 0)
        assert house.listener.connections == 1
        house.clock.advance(5 * SECOND)
        await until(lambda: house.listener.connections == 0)
        slow.socket.transport.resume_reading()


@pytest.mark.limit("session.flush_ms")
async def test_a_closing_channel_has_two_seconds_to_flush() -> None:
    async with gateway() as house, dial(house, name="alice") as slow:
        slow.socket.transport.pause_reading()
        limit = 0
        while not house.channels._channels["c1"].waiting > 3:
            house.tell("alice", limit, size=100_000)
            limit += 1
            await asyncio.sleep(0.001)
        house.sessions.close_all()
        await asyncio.sleep(0)
        assert len(house.channels) == 1
        house.clock.advance(2 * SECOND)
        await until(lambda: len(house.channels) == 0)
        assert house.limits.hits == {"session.flush_ms": 1}
        slow.socket.transport.resume_reading()
        assert await slow.closed() == 1012


async def test_a_closing_channel_first_sends_what_is_queued() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        for number in range(100):
            house.tell("alice", number, size=1000)
        house.sessions.close_all()
        assert await caller.closed() == 1012
        assert len(caller.events) == 100
