from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from websockets.asyncio.client import connect

from edge.contract.time import SECOND
from edge.system.ports import bind_tcp
from edge.transports.http.app import json_response, read_body
from edge.transports.http.http1 import OurH11, OurHttpTools, protocol
from tests.support.patience import until
from tests.support.sessions import House, gateway

HTTP = pytest.mark.parametrize("http", ["httptools", "h11"])


@asynccontextmanager
async def raw(house: House) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*house.listener.address)
    try:
        yield reader, writer
    finally:
        writer.close()


async def exchange(house: House, sent: bytes) -> bytes:
    """What comes back until the server hangs up."""
    async with raw(house) as (reader, writer):
        writer.write(sent)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b"reset"


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def echo() -> list[BaseRoute]:
    async def size(request: Request) -> Response:
        return json_response({"size": len(await read_body(request))})

    async def flood(request: Request) -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(2000):
                yield b"x" * 65_536

        return StreamingResponse(chunks())

    return [
        Route("/size", size, methods=["POST"]),
        Route("/flood", flood),
    ]


@HTTP
async def test_a_request_is_answered_without_server_or_date_surprises(http: str) -> None:
    async with gateway(http=http) as house:
        answer = await exchange(house, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head = answer.partition(b"\r\n\r\n")[0].lower()
        assert status(answer) == 200
        assert b"\r\nserver:" not in head
        assert b"\r\ndate:" not in head
        assert b"\r\nx-request-id: " in head


UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def asked(version: bytes, path: bytes, hosts: list[bytes], more: bytes) -> bytes:
    lines = b"".join(b"Host: %b\r\n" % host for host in hosts)
    return b"GET %b HTTP/%b\r\n%b%b\r\n" % (path, version, lines, more)


@HTTP
@pytest.mark.parametrize(("path", "more"), [(b"/healthz", b"Connection: close\r\n"), (b"/aun", UPGRADE)])
@pytest.mark.parametrize(
    ("version", "hosts"),
    [
        (b"1.1", []),
        (b"1.1", [b"localhost", b"localhost"]),
        (b"1.0", [b"localhost", b"box.lan"]),
        (b"1.1", [b"local host"]),
        (b"1.1", [b"localhost/x"]),
        (b"1.1", [b"localhost:80@evil.example"]),
        (b"1.1", [b"localhost:port"]),
    ],
)
async def test_a_request_without_a_host_or_with_two_is_no_request(
    http: str, path: bytes, more: bytes, version: bytes, hosts: list[bytes]
) -> None:
    """RFC 9112 §3.2."""
    async with gateway(http=http) as house:
        assert status(await exchange(house, asked(version, path, hosts, more))) == 400


@HTTP
@pytest.mark.parametrize(
    ("version", "hosts"),
    [(b"1.1", [b"localhost:80"]), (b"1.1", [b"[::1]:80"]), (b"1.1", [b"LocalHost"]), (b"1.0", [])],
)
async def test_a_host_may_have_a_port_and_an_old_client_none_at_all(
    http: str, version: bytes, hosts: list[bytes]
) -> None:
    async with gateway(http=http) as house:
        answer = await exchange(house, asked(version, b"/healthz", hosts, b"Connection: close\r\n"))
        assert status(answer) == 200


@HTTP
async def test_several_requests_go_over_one_connection(http: str) -> None:
    async with gateway(http=http) as house, raw(house) as (reader, writer):
        for _ in range(3):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200" in await reader.readline()
            await reader.readuntil(b'"ok"}')
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
        for _ in range(3):
            await reader.readuntil(b'"ok"}')


@pytest.mark.limit("http.head_octets")
@pytest.mark.parametrize("pieces", [1, 7, 200])
async def test_a_head_at_the_limit_passes_and_one_above_is_431(pieces: int) -> None:
    async with gateway(limits={"http.head_octets": 1000}) as house:
        fixed = len("/healthz") + len("Host") + len("localhost") + 4 + len("X") + 4

        async def ask(size: int) -> bytes:
            text = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: %b\r\n\r\n" % (b"y" * (size - fixed))
            async with raw(house) as (reader, writer):
                step = len(text) // pieces + 1
                for start in range(0, len(text), step):
                    writer.write(text[start : start + step])
                    await writer.drain()
                    await asyncio.sleep(0)
                return await reader.readline()

        assert status(await ask(1000 if pieces == 1 else 900)) == 200
        assert status(await ask(1001)) == 431
        assert house.limits.hits == {"http.head_octets": 1}


@pytest.mark.parametrize(
    "text",
    [
        b"GET /" + b"a" * 40_000,
        b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000,
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 8000,
        b"POST /size HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"e" * 40_000,
        b"POST /size HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: " + b"t" * 40_000,
    ],
)
async def test_no_part_of_a_request_grows_without_bound(text: bytes) -> None:
    async with gateway(routes=echo()) as house, raw(house) as (reader, writer):
        for start in range(0, len(text), 1000):
            if writer.is_closing():
                break
            writer.write(text[start : start + 1000])
            await asyncio.sleep(0)
        try:
            answer = await reader.read()
        except ConnectionResetError:
            answer = b""
        assert house.limits.hits["http.head_octets"] >= 1
        assert not answer or b" 431 " in answer


@HTTP
@pytest.mark.limit("http.head_seconds")
async def test_a_head_that_trickles_in_is_cut_off_after_ten_seconds(http: str) -> None:
    async with gateway(http=http) as house, raw(house) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: ")
        await until(lambda: house.listener.connections == 1)
        house.clock.advance(10 * SECOND)
        assert await reader_end(reader) == b""
        assert house.limits.hits == {"http.head_seconds": 1}


@HTTP
async def test_the_second_head_of_a_connection_may_not_trickle_either(http: str) -> None:
    async with gateway(http=http) as house, raw(house) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b'"ok"}')
        house.clock.advance(1)
        writer.write(b"GET /hea")
        await until(lambda: house.clock.next_timer() is not None)
        house.clock.advance(10 * SECOND)
        assert await reader_end(reader) == b""
        assert house.limits.hits == {"http.head_seconds": 1}


async def reader_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


@HTTP
@pytest.mark.limit("http.body_octets")
async def test_a_body_at_the_limit_is_read_and_one_above_is_413(http: str) -> None:
    async with gateway(routes=echo(), http=http, limits={"http.body_octets": 50}) as house:

        def post(size: int) -> bytes:
            head = b"POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            return head % size + b"x" * size

        assert (await exchange(house, post(50))).endswith(b'{"size":50}')
        assert status(await exchange(house, post(51))) == 413
        chunked = b"POST /size HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert (
            status(await exchange(house, chunked + b"1a\r\n" + b"x" * 26 + b"\r\n1a\r\n" + b"x" * 26 + b"\r\n")) == 413
        )
        assert house.limits.hits == {"http.body_octets": 2}


@HTTP
@pytest.mark.limit("http.body_seconds")
async def test_a_body_that_does_not_come_is_408(http: str) -> None:
    async with gateway(routes=echo(), http=http) as house, raw(house) as (reader, writer):
        writer.write(b"POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab")
        await until(lambda: house.clock.next_timer() is not None)
        await until(lambda: house.clock.next_timer() == house.clock.mono_us + 30 * SECOND)
        house.clock.advance(30 * SECOND)
        assert status(await reader.read()) == 408


@HTTP
@pytest.mark.limit("http.stall_seconds")
async def test_a_peer_that_leaves_its_answer_unread_is_cut_off(http: str) -> None:
    async with gateway(routes=echo(), http=http) as house, raw(house) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: house.clock.next_timer() == house.clock.mono_us + 60 * SECOND)
        house.clock.advance(60 * SECOND)
        await until(lambda: house.listener.connections == 0)
        assert house.limits.hits == {"http.stall_seconds": 1}


@HTTP
@pytest.mark.limit("http.connections", "http.connections_per_address")
@pytest.mark.parametrize("name", ["http.connections", "http.connections_per_address"])
async def test_connections_over_the_limit_are_closed_at_once_and_room_comes_back(http: str, name: str) -> None:
    async with gateway(http=http, limits={name: 2}) as house:
        async with raw(house), raw(house):
            await until(lambda: house.listener.connections == 2)
            async with raw(house) as (reader, _):
                assert await reader_end(reader) == b""
            assert house.limits.hits == {name: 1}
        await until(lambda: house.listener.connections == 0)
        async with raw(house) as (reader, writer):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200" in await reader.readline()


@pytest.mark.limit("http.pipelined")
async def test_requests_that_wait_for_their_turn_are_bounded() -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with gateway(http="httptools") as house:
        assert (await exchange(house, ask * 16 + last)).count(b"200 OK") == 17
        assert "http.pipelined" not in house.limits.hits
        assert (await exchange(house, ask * 18)).count(b"200 OK") < 18
        assert house.limits.hits == {"http.pipelined": 1}
        async with asyncio.timeout(30):
            await exchange(house, ask * 5000)
        await until(lambda: house.listener.connections == 0)
        assert len(house.running) == 0


async def test_requests_behind_each_other_are_answered_in_order_however_many() -> None:
    async with gateway(http="httptools", routes=echo()) as house, raw(house) as (reader, writer):
        for number in range(100):
            head = b"POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % number
            writer.write(head + b"x" * number)
            if number % 10 == 9:
                for answered in range(number - 9, number + 1):
                    assert (await reader.readuntil(b"}")).endswith(b'{"size":%d}' % answered)
        assert house.limits.hits == {}


async def test_web_sockets_count_as_connections_of_their_address() -> None:
    async with gateway(limits={"http.connections_per_address": 1}) as house:
        async with connect(house.url, proxy=None):
            async with raw(house) as (reader, _):
                assert await reader_end(reader) == b""
        await until(lambda: house.listener.connections == 0)
        async with connect(house.url, proxy=None) as socket:
            assert await socket.recv()


@HTTP
@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /aun HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET /aun HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n\r\n",
        b"POST /aun HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET /aun HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX: "
        + b"y" * 9000
        + b"\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_refused_and_the_connection_closed(http: str, text: bytes) -> None:
    async with gateway(http=http) as house:
        answer = await exchange(house, text)
        assert answer == b"reset" or not answer or 400 <= status(answer) < 500
        await until(lambda: house.listener.connections == 0)
        assert (
            status(await exchange(house, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
            == 200
        )


async def test_stopping_closes_web_sockets_with_1012_and_frees_the_port() -> None:
    async with gateway() as house:
        async with connect(house.url, proxy=None) as socket:
            await socket.recv()
            port = house.listener.address[1]
            house.listener.stop_accepting()
            await house.listener.shutdown()
            await socket.wait_closed()
            assert socket.close_code == 1012
        bind_tcp("127.0.0.1", port).close()


async def test_a_taken_port_is_an_error() -> None:
    with bind_tcp("127.0.0.1", 0) as sock:
        sock.listen()
        with pytest.raises(OSError, match="in use"):
            bind_tcp("127.0.0.1", sock.getsockname()[1])


def test_httptools_reads_http_unless_h11_is_asked_for() -> None:
    assert protocol(None) is OurHttpTools
    assert protocol("httptools") is OurHttpTools
    assert protocol("h11") is OurH11
