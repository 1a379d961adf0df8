from __future__ import annotations

import asyncio
import logging

import pytest

from edge.contract.time import SECOND
from tests.support.clock import turn
from tests.support.patience import until
from tests.support.sessions import dial, gateway


async def test_the_first_frame_is_a_challenge_with_a_nonce_of_this_socket() -> None:
    async with gateway() as house, dial(house) as one, dial(house, "/ws") as two:
        assert one.challenge["method"] == "challenge"
        assert one.challenge["params"]["nonce"] != two.challenge["params"]["nonce"]
        await one.login("alice")
        assert house.service.calls[0].door.nonce == one.challenge["params"]["nonce"]
        assert house.service.calls[0].door.base == house.url.removesuffix("/aun").replace("ws:", "http:")


async def test_before_auth_connect_only_auth_and_two_meta_methods_are_answered() -> None:
    async with gateway() as house, dial(house) as caller:
        assert (await caller.ask("meta.ping"))["result"] == {"pong": True}
        assert (await caller.ask("test.echo"))["error"]["code"] == -32013
        assert (await caller.ask("no.such"))["error"]["code"] == -32013
        assert (await caller.ask("meta.trust_roots"))["error"]["code"] == -32601


async def test_an_unknown_method_is_answered_promptly() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        assert (await caller.ask("group.list_my"))["error"]["code"] == -32601


async def test_a_slow_handler_holds_up_nobody() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        await caller.send("test.wait", {}, key=7)
        await until(lambda: house.service.waiting == 1)
        assert (await caller.ask("meta.ping", key=8))["result"] == {"pong": True}
        pong = await caller.socket.ping()
        await pong
        house.service.gates["gate"].set()
        assert await caller.frame() == {"jsonrpc": "2.0", "id": 7, "result": "gate"}


@pytest.mark.limit("session.requests")
async def test_over_32_requests_at_once_the_rest_is_refused_at_once_and_each_gets_one_answer() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        for key in range(40):
            await caller.send("test.wait", {}, key=key)
        refused = [await caller.frame() for _ in range(8)]
        assert {frame["error"]["code"] for frame in refused} == {-32029}
        assert all(frame["error"]["data"]["retryable"] for frame in refused)
        house.service.gates["gate"].set()
        answered = [await caller.frame() for _ in range(32)]
        assert {frame["result"] for frame in answered} == {"gate"}
        assert sorted(frame["id"] for frame in refused + answered) == list(range(40))
        assert (await caller.ask("meta.ping", key=99))["result"] == {"pong": True}
        assert house.limits.hits == {"session.requests": 8}


@pytest.mark.limit("session.refusals")
async def test_who_is_refused_too_often_is_read_more_slowly() -> None:
    limits = {"session.requests": 1, "session.refusals": 10}
    async with gateway(limits=limits) as house, dial(house, name="alice") as caller:
        for key in range(20):
            await caller.send("test.wait", {}, key=key)
        refused = [await caller.frame() for _ in range(11)]  # a second's worth, and the one that it then waits for
        assert [frame["id"] for frame in refused] == list(range(1, 12))
        assert all(frame["error"]["data"]["retry_after_ms"] == 100 for frame in refused)
        for key in range(12, 15):
            house.clock.advance(SECOND // 10)
            assert (await caller.frame())["id"] == key
        assert house.limits.hits["session.refusals"] == 4
        house.clock.advance(60 * SECOND)
        house.service.gates["gate"].set()
        found = {(await caller.frame())["id"] for _ in range(6)}
        assert found == {0, *range(15, 20)}


async def test_what_breaks_inside_is_an_internal_error_without_details(caplog: pytest.LogCaptureFixture) -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        with caplog.at_level(logging.CRITICAL, "edge"):
            error = (await caller.ask("test.break"))["error"]
        assert error == {"code": -32603, "message": "internal error", "data": {"retryable": False}}


async def test_an_error_says_whether_a_retry_helps_and_keeps_its_data() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        error = (await caller.ask("test.full"))["error"]
        assert error == {"code": -32029, "message": "come back", "data": {"retryable": True, "retry_after_ms": 5}}


@pytest.mark.limit("session.answer_octets")
async def test_an_answer_that_sdks_would_drop_is_an_error_instead() -> None:
    async with gateway(limits={"session.answer_octets": 100}) as house, dial(house, name="alice") as caller:
        assert len((await caller.ask("test.big", {"count": 98}))["result"]) == 98
        assert (await caller.ask("test.big", {"count": 99}))["error"]["data"]["limit"] == "session.answer_octets"


async def test_notifications_are_run_and_never_answered() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        await caller.send("test.echo", {"value": 5}, key=None)
        await caller.send("notification/client.activity", {}, key=None)
        assert (await caller.ask("meta.ping"))["result"] == {"pong": True}
        assert caller.events == []
        assert bytes(house.service.calls[-1].params.value) == b"5"
        assert house.sessions.ignored == 1


@pytest.mark.limit("session.notification_octets")
async def test_a_notification_over_64_kib_is_dropped_and_counted() -> None:
    async with gateway(limits={"session.notification_octets": 200}) as house, dial(house, name="alice") as caller:
        await caller.send("test.echo", {"value": "x" * 200}, key=None)
        await caller.ask("meta.ping")
        assert [call.op for call in house.service.calls] == ["auth.connect"]
        assert house.limits.hits == {"session.notification_octets": 1}


async def test_an_answer_to_nothing_is_ignored() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        await caller.socket.send('{"jsonrpc":"2.0","id":4,"result":{}}')
        assert (await caller.ask("meta.ping"))["result"] == {"pong": True}
        assert caller.events == []


async def test_a_failed_login_keeps_the_socket_and_its_nonce() -> None:
    async with gateway() as house, dial(house) as caller:
        assert (await caller.login("old"))["error"]["code"] == 4001
        assert (await caller.login("bad"))["error"]["code"] == 4001
        assert (await caller.login(""))["error"]["code"] == 4000
        assert (await caller.login("alice"))["result"] == {"status": "ok"}
        assert [call.door.attempts for call in house.service.calls] == [0, 1, 2, 2]
        assert len({call.door.nonce for call in house.service.calls}) == 1


@pytest.mark.limit("session.auth_attempts")
async def test_the_fifth_failed_login_closes_after_its_answer() -> None:
    async with gateway() as house, dial(house) as caller:
        for _ in range(4):
            await caller.login("bad")
        assert (await caller.login("bad"))["error"]["code"] == 4001
        assert await caller.closed() == 1008
        assert house.limits.hits == {"session.auth_attempts": 1}


@pytest.mark.limit("session.auth_seconds")
async def test_a_socket_that_never_authenticates_closes_after_30_seconds() -> None:
    async with gateway() as house, dial(house) as caller:
        house.clock.advance(30 * SECOND - 1)
        assert (await caller.ask("meta.ping"))["result"] == {"pong": True}
        house.clock.advance(1)
        assert await caller.closed() == 1008


async def test_the_answer_under_way_still_leaves_when_the_30_seconds_are_over() -> None:
    async with gateway() as house, dial(house) as caller:
        await caller.send("auth.slow", {}, key=3)
        await until(lambda: house.service.waiting == 1)
        house.clock.advance(31 * SECOND)
        house.service.gates["gate"].set()
        assert (await caller.frame())["result"] == "gate"
        assert await caller.closed() == 1008


async def test_an_authenticated_socket_stays_open() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        house.clock.advance(3600 * SECOND)
        assert (await caller.ask("meta.ping"))["result"] == {"pong": True}


async def test_no_common_protocol_version_answers_and_closes() -> None:
    async with gateway() as house, dial(house) as caller:
        error = (await caller.login("future"))["error"]
        assert error["code"] == -32000
        assert error["data"]["server_range"] == ["1.0", "1.0"]
        assert await caller.closed() == 1002


async def test_an_outcome_may_close_the_channel_after_its_answer() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        assert (await caller.ask("test.bye"))["result"] == "bye"
        assert await caller.closed() == 4001


async def test_a_handler_outlives_its_connection_and_nobody_is_answered() -> None:
    async with gateway() as house:
        async with dial(house, name="alice") as caller:
            await caller.send("test.wait")
            await until(lambda: house.service.waiting == 1)
        await until(lambda: len(house.channels) == 0)
        assert house.service.waiting == 1
        house.service.gates["gate"].set()
        await until(lambda: house.service.waiting == 0)


async def test_streams_have_no_place_on_the_aun_surface(caplog: pytest.LogCaptureFixture) -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        assert (await caller.ask("test.follow", {"count": 1}))["error"]["code"] == -32603
        assert house.service.closed_streams == 1


async def test_stopping_refuses_what_comes_finishes_what_runs_and_says_1012_without_farewell() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        await caller.send("test.wait", {}, key=1)
        await until(lambda: house.service.waiting == 1)
        house.listener.stop_accepting()
        house.sessions.stop_reading()
        refused = await caller.ask("test.echo", key=2)
        assert refused["error"]["code"] == 5003
        assert refused["error"]["data"]["retryable"] is True
        drain = asyncio.ensure_future(house.sessions.drain(house.clock.mono_us + 2 * SECOND))
        house.service.gates["gate"].set()
        assert await drain is True
        house.sessions.close_all()
        assert await caller.closed() == 1012
        assert caller.events == [{"jsonrpc": "2.0", "id": 1, "result": "gate"}]


async def test_what_does_not_finish_in_time_is_refused_once() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        await caller.send("test.wait", {}, key=1)
        await until(lambda: house.service.waiting == 1)
        house.sessions.stop_reading()
        drain = asyncio.ensure_future(house.sessions.drain(house.clock.mono_us + 2 * SECOND))
        await until(lambda: house.clock.next_timer() is not None)
        house.clock.advance(2 * SECOND)
        assert await drain is False
        assert (await caller.frame())["error"]["code"] == 5003
        house.service.gates["gate"].set()
        await until(lambda: house.service.waiting == 0)
        house.sessions.close_all()
        assert await caller.closed() == 1012
        assert caller.events == []


async def test_a_new_socket_is_turned_away_while_the_node_stops() -> None:
    async with gateway() as house:
        house.sessions.stop_reading()
        with pytest.raises(Exception, match="1013"):
            async with dial(house):
                pass


async def test_a_burst_from_one_peer_lets_others_have_their_turn() -> None:
    async with gateway() as house, dial(house, name="alice") as loud, dial(house, name="bobb") as quiet:
        for key in range(200):
            await loud.send("test.echo", {"value": key}, key=key)
        assert (await quiet.ask("meta.ping"))["result"] == {"pong": True}
        answers = [await loud.frame() for _ in range(200)]
        assert sorted(frame["id"] for frame in answers) == list(range(200))


async def test_several_large_answers_at_once_are_no_slow_reader() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        for key in range(8):
            await caller.send("test.big", {"count": 900_000}, key=key)
        answers = [await caller.frame() for _ in range(8)]
        assert sorted(frame["id"] for frame in answers) == list(range(8))
        assert {len(frame["result"]) for frame in answers} == {900_000}
        assert house.limits.hits == {}


async def test_a_handler_that_is_cut_off_still_answers() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        before = set(house.running)
        await caller.send("test.wait", {}, key=1)
        await until(lambda: house.service.waiting == 1)
        for task in house.running - before:
            task.cancel()
        assert (await caller.frame())["error"]["code"] == 5003


async def test_whoever_wants_to_know_is_told_of_an_identity_behind_its_answer() -> None:
    async with gateway() as house, dial(house) as caller:
        house.channels.on_admitted.append(lambda instance: house.tell(instance.aid.partition(".")[0]))
        await caller.login("alice")
        assert caller.events == []
        assert (await caller.frame())["method"] == "event/message.received"


async def test_a_peer_that_leaves_queues_full_does_not_hold_up_the_end() -> None:
    async with gateway() as house, dial(house, name="alice") as slow, dial(house, name="bobb") as quick:
        slow.socket.transport.pause_reading()
        while house.channels._channels["c1"].waiting < 4:
            house.tell("alice", size=100_000)
            await asyncio.sleep(0.001)
        house.sessions.stop_reading()
        drain = asyncio.ensure_future(house.sessions.drain(house.clock.mono_us + 2 * SECOND))
        await turn()
        house.clock.advance(2 * SECOND)
        assert await drain is False
        house.sessions.close_all()
        assert await quick.closed() == 1012
        house.clock.advance(10 * SECOND)
        slow.socket.transport.resume_reading()


@pytest.mark.limit("session.guest_octets")
async def test_a_strangers_long_frame_is_refused_unread_and_an_agents_is_not() -> None:
    async with gateway() as house, dial(house) as caller:
        frame = '{"jsonrpc":"2.0","id":1,"method":"meta.ping","params":{"pad":"%s"}}'
        room = 65_536 - len(frame % "")
        await caller.socket.send(frame % ("x" * room))
        assert (await caller.frame())["result"] == {"pong": True}
        await caller.socket.send(frame % ("x" * (room + 1)))
        refused = await caller.frame()
        assert (refused["id"], refused["error"]["code"]) == (None, -32602)
        assert house.limits.hits == {"session.guest_octets": 1}
        await caller.login("alice")
        await caller.socket.send(frame % ("x" * (room + 1)))
        assert (await caller.frame())["result"] == {"pong": True}


async def test_frames_that_are_no_requests_are_counted_by_what_is_wrong_with_them() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        for text in ("{", "[]", "[]", '{"jsonrpc":"2.0","id":1,"method":"meta.ping","params":[]}'):
            await caller.socket.send(text)
            assert "error" in await caller.frame()
        assert house.sessions.refused == {"Malformed": 1, "InvalidRequest": 2, "InvalidParams": 1}


async def test_an_agent_who_is_in_does_not_use_up_the_logins_of_its_address() -> None:
    async with gateway(limits={"rate.auth": 2}) as house, dial(house, name="alice") as caller, dial(house) as neighbour:
        for _ in range(10):
            assert (await caller.ask("auth.none"))["error"]["code"] == -32601
        assert (await neighbour.login("bob"))["result"] == {"status": "ok"}
