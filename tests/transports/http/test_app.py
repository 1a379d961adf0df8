from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from edge.contract import errors
from edge.contract.errors import EdgeError, TooLarge
from edge.contract.principal import Kind, Principal
from edge.contract.wire import loads
from edge.session.doors import Doors, Hosts, door_of, principal_of, principal_or_guest
from edge.transports.http.app import STATUS, json_response
from tests.support.patience import until
from tests.support.sessions import House, NoTokens, gateway
from tests.transports.http.test_listener import echo, exchange, raw, status


def pages() -> list[BaseRoute]:
    async def who(request: Request) -> Response:
        found = await principal_of(request)
        again = await principal_of(request)
        assert found is again
        return json_response({"aid": found.aid, "via": found.via, "scopes": sorted(found.scopes)})

    async def maybe(request: Request) -> Response:
        return json_response((await principal_or_guest(request)).kind)

    async def where(request: Request) -> Response:
        return json_response(door_of(request))

    async def fail(request: Request) -> Response:
        raise getattr(errors, request.query_params["kind"])(data={"field": "x"})

    async def broken(request: Request) -> Response:
        raise ZeroDivisionError("secret")

    return [
        Route("/who", who),
        Route("/maybe", maybe),
        Route("/where", where),
        Route("/fail", fail),
        Route("/broken", broken),
    ]


async def get(house: House, path: str, host: str = "localhost", **headers: str) -> tuple[int, dict[str, str], Any]:
    """Status, headers, JSON body."""
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"Host: {host}\r\n" if host else ""
    text = f"GET {path} HTTP/{'1.1' if host else '1.0'}\r\n{head}Connection: close\r\n{more}\r\n"
    answer = await exchange(house, text.encode())
    lines, _, body = answer.partition(b"\r\n\r\n")
    found = dict(line.decode().lower().split(": ", 1) for line in lines.split(b"\r\n")[1:])
    return status(answer), found, loads(body) if body else None


async def test_a_bearer_token_is_a_principal_and_nothing_is_401() -> None:
    async with gateway(routes=pages()) as house:
        assert (await get(house, "/who", authorization="Bearer good"))[2]["aid"] == "alice.edge.test"
        assert (await get(house, "/who", authorization="bearer  good"))[0] == 200
        for headers in ({}, {"authorization": "Bearer bad"}, {"authorization": "Basic Z29vZA=="}):
            code, found, body = await get(house, "/who", **headers)
            assert (code, found["www-authenticate"]) == (401, "bearer")
            assert body["error"] == "NotAuthenticated"
        assert (await get(house, "/who", authorization="Bearer old"))[2]["error"] == "TokenExpired"
        assert (await get(house, "/who", authorization="Bearer " + "x" * 9000))[0] == 401


async def test_a_guest_may_stay_one_but_a_bad_token_is_refused() -> None:
    async with gateway(routes=pages()) as house:
        assert (await get(house, "/maybe"))[2] == "guest"
        assert (await get(house, "/maybe", authorization="Bearer good"))[2] == "agent"
        assert (await get(house, "/maybe", authorization="Bearer bad"))[0] == 401


async def test_insecure_local_makes_a_plain_local_caller_an_agent_without_admin() -> None:
    async with gateway(routes=pages(), insecure_local=True) as house:
        code, _, body = await get(house, "/who")
        assert (code, body["aid"], body["via"]) == (200, "local", "local")
        assert "*" not in body["scopes"]
        assert not any(scope.endswith(":admin") for scope in body["scopes"])
        assert (await get(house, "/who", authorization="Bearer good"))[2]["aid"] == "alice.edge.test"
        assert (await get(house, "/who", authorization="Bearer bad"))[0] == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"forwarded": "for=1.2.3.4"},
        {"x_forwarded_for": "1.2.3.4"},
        {"host": "evil.example"},
        {"host": "edge.test.evil.example:9010"},
        {"host": "127.0.0.1.evil.example"},
    ],
)
async def test_insecure_local_refuses_pages_and_proxies(headers: dict[str, str]) -> None:
    async with gateway(routes=pages(), insecure_local=True) as house:
        code, _, body = await get(house, "/who", **headers)
        assert (code, body["error"]) == (403, "NotPermitted")


async def test_a_forwarding_header_never_decides_who_the_client_is() -> None:
    async with gateway(routes=pages()) as house:
        body = (await get(house, "/where", x_forwarded_for="9.9.9.9", x_forwarded_proto="https"))[2]
        assert (body["address"], body["base"]) == ("127.0.0.1", "http://localhost")


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:9010", "[::1]:9010", "edge.test", "d-lamp.edge.test:80", "Gateway.Edge.Test.", ""]
)
async def test_a_loopback_listener_answers_to_its_own_names(host: str) -> None:
    async with gateway(routes=pages()) as house:
        code, _, body = await get(house, "/where", host)
        assert code == 200
        assert body["base"] == f"http://{host.lower()}" if host else house.listener.url


@pytest.mark.parametrize("host", ["evil.example", "evil-edge.test", "edge.test.evil"])
async def test_a_rebound_name_is_refused(host: str) -> None:
    async with gateway(routes=pages()) as house:
        assert (await get(house, "/where", host))[0] == 403


async def test_every_error_has_a_status_and_says_whether_a_retry_helps() -> None:
    async with gateway(routes=pages()) as house:
        kinds = [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, EdgeError)]
        assert len(kinds) > 30
        for name in kinds:
            code, headers, body = await get(house, f"/fail?kind={name}")
            kind = getattr(errors, name)
            assert code == STATUS.number(kind)
            assert body == {
                "field": "x", "error": name, "message": kind.summary, "retryable": kind.retryable
            }  # fmt: skip
            assert ("retry-after" in headers) == (code in (429, 503))


async def test_what_breaks_is_a_500_without_details(caplog: pytest.LogCaptureFixture) -> None:
    async with gateway(routes=pages()) as house:
        with caplog.at_level(logging.CRITICAL, "edge"):
            code, _, body = await get(house, "/broken")
        assert (code, body["error"]) == (500, "Internal")
        assert "secret" not in str(body)
        assert caplog.records == []


async def test_there_are_no_default_pages_and_errors_are_json() -> None:
    async with gateway(routes=pages()) as house:
        for path in ("/", "/docs", "/openapi.json", "/who/"):
            code, headers, body = await get(house, path)
            assert (code, body["error"], headers["content-type"]) == (404, "NotFound", "application/json")
        answer = await exchange(
            house, b"POST /who HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        assert status(answer) == 405


async def test_every_request_has_an_id_of_its_own() -> None:
    async with gateway(routes=pages()) as house:
        ids = {(await get(house, "/where"))[1]["x-request-id"] for _ in range(3)}
        assert len(ids) == 3


@pytest.mark.limit("rate.address")
async def test_an_address_over_its_rate_is_429_with_retry_after() -> None:
    async with gateway(routes=pages(), limits={"rate.address": 2}) as house:
        codes = [(await get(house, "/where"))[0] for _ in range(5)]
        assert codes == [200, 200, 200, 200, 429]
        _, headers, body = await get(house, "/where")
        assert int(headers["retry-after"]) >= 1
        assert body["retry_after_ms"] > 0
        house.clock.advance(1_000_000)
        assert (await get(house, "/where"))[0] == 200


@pytest.mark.limit("rate.principal")
async def test_a_principal_over_its_rate_is_429_and_others_are_not() -> None:
    async with gateway(routes=pages(), insecure_local=True, limits={"rate.principal": 2}) as house:
        codes = [(await get(house, "/who", authorization="Bearer good"))[0] for _ in range(5)]
        assert codes == [200, 200, 200, 200, 429]
        assert (await get(house, "/who"))[0] == 200


@pytest.mark.limit("rate.auth")
async def test_guessing_tokens_is_slowed_down() -> None:
    async with gateway(routes=pages(), limits={"rate.auth": 2}) as house:
        codes = [(await get(house, "/who", authorization="Bearer bad"))[0] for _ in range(5)]
        assert codes == [401, 401, 401, 401, 429]
        assert (await get(house, "/who", authorization="Bearer good"))[0] == 200


async def test_a_client_certificate_may_be_a_principal() -> None:
    machine = Principal(kind=Kind.DEVICE, aid="d-lamp.edge.test", via="certificate")

    async def known(der: bytes) -> Principal | None:
        return machine if der == b"lamp" else None

    async with gateway() as house:
        doors = Doors(NoTokens(), house.limiter, Hosts(), certificates=known)
        scope: dict[str, Any] = {"type": "http", "headers": [], "client": ("192.0.2.1", 5)}
        request = Request({**scope, "extensions": {"tls": {"client_cert": b"lamp"}}})
        assert await doors.principal(request) == machine
        with pytest.raises(errors.NotAuthenticated):
            await doors.principal(Request({**scope, "extensions": {"tls": {"client_cert": b"other"}}}))


def test_the_status_of_a_class_without_a_row_is_its_ancestors() -> None:
    class Odd(TooLarge):
        pass

    assert STATUS.number(Odd) == 413
    assert msgspec.json.decode(json_response({"a": 1}).body) == {"a": 1}


@pytest.mark.parametrize("http", ["httptools", "h11"])
async def test_a_peer_that_leaves_in_the_middle_of_its_body_is_no_failure(
    http: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(routes=echo(), http=http) as house, raw(house) as (_, writer):
        writer.write(b"POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab")
        await until(lambda: house.clock.next_timer() == house.clock.mono_us + 30_000_000)
        writer.close()
        await until(lambda: house.listener.connections == 0)
        await until(lambda: house.clock.next_timer() is None)
        assert caplog.records == []
