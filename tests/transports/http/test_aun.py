from __future__ import annotations

import asyncio
import json
import struct
from contextlib import AsyncExitStack

import pytest
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect
from websockets.frames import Opcode

from edge.contract.time import SECOND
from edge.transports.http.aun import MESSAGE
from edge.transports.http.websocket import SLICE
from tests.support.patience import until
from tests.support.sessions import Caller, dial, gateway


async def refused(caller: Caller, text: str) -> tuple[object, int]:
    """Send a frame; the id and code of its refusal."""
    await caller.socket.send(text)
    frame = await caller.frame()
    return frame["id"], frame["error"]["code"]


@pytest.mark.parametrize(
    ("text", "key", "code"),
    [
        ("{", None, -32700),
        ("", None, -32700),
        ('{"jsonrpc":"2.0","id":1,"id":1,"method":"meta.ping"}', None, -32700),
        ('{"jsonrpc":"2.0","id":1,"method":"meta.ping","params":{"n":9007199254740993}}', None, -32700),
        ('{"jsonrpc":"2.0","id":1,"method":"meta.ping","params":{"n":1e400}}', None, -32700),
        ('{"jsonrpc":"2.0","id":1,"method":"meta.ping","params":{"s":"\\ud800"}}', None, -32700),
        ("[" * 250_000, None, -32700),
        ('{"a":' * 100_000, None, -32700),
        ('[{"jsonrpc":"2.0","id":1,"method":"meta.ping"}]', None, -32600),
        ("[]", None, -32600),
        ("7", None, -32600),
        ('{"id":1,"method":"meta.ping"}', 1, -32600),
        ('{"jsonrpc":"1.0","id":"a","method":"meta.ping"}', "a", -32600),
        ('{"jsonrpc":"2.0","id":1}', 1, -32600),
        ('{"jsonrpc":"2.0","id":1,"method":7}', 1, -32600),
        ('{"jsonrpc":"2.0","id":1,"method":""}', 1, -32600),
        ('{"jsonrpc":"2.0","id":null,"method":"meta.ping"}', None, -32600),
        ('{"jsonrpc":"2.0","id":[1],"method":"meta.ping"}', None, -32600),
        ('{"jsonrpc":"2.0","id":true,"method":"meta.ping"}', None, -32600),
        ('{"jsonrpc":"2.0","id":1.5,"method":"meta.ping"}', None, -32600),
        ('{"jsonrpc":"2.0","id":"%s","method":"meta.ping"}' % ("x" * 300), None, -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"meta.ping","params":[]}', 1, -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"meta.ping","params":null}', 1, -32602),
    ],
)
async def test_a_bad_frame_gets_the_error_json_rpc_names_and_the_socket_lives(
    text: str, key: object, code: int
) -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        assert await refused(caller, text) == (key, code)
        assert (await caller.ask("meta.ping"))["result"] == {"pong": True}
        assert len(house.service.calls) == 1


@pytest.mark.limit("aun.message_octets")
async def test_a_frame_at_the_limit_is_read_and_one_above_closes_with_1009() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        shell = '{"jsonrpc":"2.0","id":1,"method":"test.echo","params":{"pad":"%s"}}'
        fits = shell % ("x" * (MESSAGE.default - len(shell) + 2))
        assert len(fits) == MESSAGE.default
        await caller.socket.send(fits)
        assert (await caller.frame())["result"] is None
        await caller.socket.send(fits + " ")
        assert await caller.closed() == 1009
        assert house.limits.hits == {"aun.message_octets": 1}


@pytest.mark.limit("aun.json_depth")
async def test_nesting_has_a_limit() -> None:
    async with gateway(limits={"aun.json_depth": 5}) as house, dial(house, name="alice") as caller:
        assert (await caller.ask("test.echo", {"value": [[[]]]}))["result"] == [[[]]]
        frame = '{"jsonrpc":"2.0","id":1,"method":"test.echo","params":{"value":[[[[]]]]}}'
        assert await refused(caller, frame) == (None, -32700)


async def test_a_binary_frame_closes_with_1003() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        await caller.socket.send(b'{"jsonrpc":"2.0","id":1,"method":"meta.ping"}')
        assert await caller.closed() == 1003


async def test_bad_utf8_closes_with_1007_and_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        await caller.socket.send(b"\xff\xfe", text=True)
        assert await caller.closed() == 1007
        assert caplog.records == []


async def test_an_unmasked_frame_closes_with_1002() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        caller.socket.transport.write(b"\x81\x02hi")
        assert await caller.closed() == 1002


@pytest.mark.limit("ws.fragments")
async def test_a_message_in_endless_empty_fragments_is_cut_off() -> None:
    async with gateway(limits={"ws.fragments": 10}) as house, dial(house, name="alice") as caller:

        def fragment(opcode: Opcode, payload: bytes, fin: bool) -> bytes:
            return struct.pack("!BB4x", opcode | (0x80 if fin else 0), 0x80 | len(payload)) + payload

        text = b'{"jsonrpc":"2.0","id":1,"method":"meta.ping"}'
        head = fragment(Opcode.TEXT, text[:10], False)
        tail = fragment(Opcode.CONT, text[10:], True)
        caller.socket.transport.write(head + fragment(Opcode.CONT, b"", False) * 8 + tail)
        assert (await caller.frame())["result"] == {"pong": True}
        caller.socket.transport.write(head + fragment(Opcode.CONT, b"", False) * 10)
        assert await caller.closed() == 1008
        assert house.limits.hits == {"ws.fragments": 1}


async def test_a_peer_that_never_answers_pings_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn's own timers: shortened on the configuration of this listener."""
    async with gateway() as house, AsyncExitStack() as stack:
        house.listener._server.config.ws_ping_interval = 0.05
        house.listener._server.config.ws_ping_timeout = 0.05
        reader, writer = await asyncio.open_connection(*house.listener.address)
        stack.callback(writer.close)
        writer.write(
            b"GET /aun HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        received = await reader.read()
        assert b"101 Switching Protocols" in received
        assert received.endswith(b"\x88\x18\x03\xf3keepalive ping timeout")


async def test_other_paths_are_no_gateways() -> None:
    async with gateway() as house:
        with pytest.raises(Exception, match="403"):
            async with connect(house.url + "x", proxy=None):
                pass


async def test_the_challenge_tells_the_time_in_seconds() -> None:
    async with gateway() as house, dial(house) as caller:
        wall = house.clock.wall(house.clock.now())[0]
        params = caller.challenge["params"]
        assert params["server_time"] == pytest.approx(wall / SECOND, abs=0.001)
        assert params["protocol"] == {"min": "1.0", "max": "1.0"}
        assert params["auth_methods"] == ["kite_token", "aid"]


async def test_private_params_do_not_reach_operations() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        text = (
            '{"jsonrpc":"2.0","id":1,"method":"test.echo","params":'
            '{"_auth":{"aid":"root"},"\\u005fcaller_id":1,"_federation":{},"value":{"_kept":1},"client_signature":{"a":1}}}'
        )
        await caller.socket.send(text)
        assert (await caller.frame())["result"] == {"_kept": 1}
        assert house.service.calls[-1].raw == b'{"value":{"_kept":1},"client_signature":{"a":1}}'


async def test_a_trace_comes_back_beside_the_result_when_diag_is_allowed() -> None:
    async with gateway(trace_mode="diag") as house, dial(house, name="alice") as caller:
        trace = {"trace_id": "0" * 32, "mode": "diag", "spans": [{"node": "a", "ts": 1, "evil": "x"}]}
        answer = await caller.ask("test.echo", {"value": 1, "_trace": trace})
        assert answer["_trace"]["trace_id"] == "0" * 32
        assert [span["node"] for span in answer["_trace"]["spans"]] == ["a", "aun-edge"]
        assert "evil" not in answer["_trace"]["spans"][0]
        assert house.service.calls[-1].trace == "0" * 32
        failed = await caller.ask("test.full", {"_trace": trace})
        assert failed["error"]["data"]["trace_id"] == "0" * 32
        assert failed["_trace"]["mode"] == "diag"


async def test_a_peer_that_neither_reads_nor_pongs_is_cut_off() -> None:
    async with gateway() as house:
        house.listener._server.config.ws_ping_interval = 0.1
        house.listener._server.config.ws_ping_timeout = 2.0  # who is slow to log in is not meant
        async with dial(house, name="alice") as slow:
            slow.socket.transport.pause_reading()
            while house.channels and house.channels._channels["c1"].waiting < 4:
                house.tell("alice", size=100_000)
                await asyncio.sleep(0.001)
            await until(lambda: house.listener.connections == 0 and len(house.channels) == 0)
            slow.socket.transport.resume_reading()


@pytest.mark.limit("ws.message_octets")
async def test_a_path_without_a_limit_of_its_own_has_the_listeners(caplog: pytest.LogCaptureFixture) -> None:
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        while True:
            await socket.send_text(str(len(await socket.receive_text())))

    routes = [WebSocketRoute("/echo", echo)]
    async with gateway(limits={"ws.message_octets": 100}, routes=routes) as house:
        async with connect(house.url.replace("/aun", "/echo"), proxy=None) as socket:
            await socket.send("x" * 100)
            assert await socket.recv() == "100"
            await socket.send("x" * 101)
            await socket.wait_closed()
            assert socket.close_code == 1009
            assert house.limits.hits == {"ws.message_octets": 1}
            await until(lambda: house.listener.connections == 0)
        assert caplog.records == []


def packed(opcode: Opcode, payload: bytes = b"") -> bytes:
    """A client's frame, masked with zeros."""
    return struct.pack("!BB4x", 0x80 | opcode, 0x80 | len(payload)) + payload


@pytest.mark.limit("ws.control_frames")
@pytest.mark.parametrize("kind", [Opcode.PING, Opcode.PONG])
async def test_pings_up_to_the_limit_are_answered_and_more_close_1008(kind: Opcode) -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        for _ in range(3):
            caller.socket.transport.write(packed(kind, b"x") * 50)
            assert (await caller.ask("meta.ping"))["result"] == {"pong": True}
            house.clock.advance(SECOND)
        assert house.limits.hits == {}
        caller.socket.transport.write(packed(kind, b"x") * 51)
        await caller.socket.wait_closed()
        assert caller.socket.close_code == 1008
        assert house.limits.hits == {"ws.control_frames": 1}


@pytest.mark.parametrize("frame", [packed(Opcode.PING, b"x"), packed(Opcode.TEXT, b'{"result":1}')])
async def test_a_chunk_full_of_small_frames_is_taken_by_slices(frame: bytes) -> None:
    async with gateway(limits={"ws.control_frames": 1_000_000}) as house, dial(house, name="alice") as caller:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        meanwhile = asyncio.ensure_future(others())
        caller.socket.transport.write(frame * (200_000 // len(frame)))
        assert (await caller.ask("meta.ping"))["result"] == {"pong": True}
        meanwhile.cancel()
        assert turns > 200_000 // SLICE


async def test_messages_of_any_size_and_in_any_pieces_arrive_whole() -> None:
    async with gateway() as house, dial(house, name="alice") as caller:
        for size in (1, 125, SLICE - 1, SLICE, SLICE + 1, 3 * SLICE + 7, 300_000, 2, 1_000_000):
            assert (await caller.ask("test.echo", {"value": "x" * size}))["result"] == "x" * size
        text = json.dumps({"jsonrpc": "2.0", "id": "last", "method": "test.echo", "params": {"value": "y" * 20_000}})
        frame = struct.pack("!BBH4x", 0x80 | Opcode.TEXT, 0x80 | 126, len(text)) + text.encode()
        for at in range(0, len(frame), 777):
            caller.socket.transport.write(frame[at : at + 777])
            await asyncio.sleep(0)
        assert (await caller.frame())["result"] == "y" * 20_000
