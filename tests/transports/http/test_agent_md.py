from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.protocol import agent_md as documents
from tests.services.test_agent_md import signed, text
from tests.support.http import Answer, request
from tests.support.identity import ISSUER, THERMO, Agent, Desk, desk, served

WHOLE: dict[str, Any] = {"x_aun_signature_format": "multi-v1"}


async def put(url: str, made: Desk, agent: Agent, body: bytes, *, token: str = "", **headers: str) -> Answer:
    token = token or (await made.login(agent)).access_token
    return await request(
        url,
        "/agent.md",
        "PUT",
        host=agent.aid,
        body=body,
        authorization=f"Bearer {token}",
        content_type="text/markdown; charset=utf-8",
        **headers,
    )


async def test_a_card_goes_up_once_and_comes_down_unchanged(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, served(made) as url:
        alice = await made.register("alice")
        assert (await request(url, "/agent.md", host=alice.aid, **WHOLE)).status == 404
        body = signed(alice)
        stored = await put(url, made, alice, body, if_none_match="*")
        assert (stored.status, stored.headers["content-type"]) == (200, "application/json")
        assert stored.json["aid"] == alice.aid
        assert stored.json["etag"] == stored.headers["etag"] == documents.etag(body)
        for host in (alice.aid, alice.aid.upper(), f"{alice.aid}:9010"):
            found = await request(url, "/agent.md", host=host, **WHOLE)
            assert (found.status, found.body) == (200, body)
            assert found.headers["content-type"] == "text/markdown; charset=utf-8"
            assert found.headers["etag"] == documents.etag(body)
            assert found.headers["vary"] == "X-AUN-Signature-Format, Host"
        head = await request(url, "/agent.md", "HEAD", host=alice.aid, **WHOLE)
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(body)))
        assert head.headers["etag"] == documents.etag(body)
        assert head.headers["last-modified"].endswith("GMT")


async def test_who_has_the_card_already_is_told_so(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, served(made) as url:
        tag = (await request(url, "/agent.md", host=THERMO)).headers["etag"]
        for asked in (tag, f'"x", W/{tag}', "*"):
            found = await request(url, "/agent.md", host=THERMO, if_none_match=asked)
            assert (found.status, found.body, found.headers["etag"]) == (304, b"", tag)
        assert (await request(url, "/agent.md", host=THERMO, if_none_match='"x"')).status == 200


async def test_each_failure_has_its_status(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, served(made) as url:
        alice, bobby = await made.register("alice"), await made.register("bobby")
        token = (await made.login(alice)).access_token
        assert (await request(url, "/agent.md", "PUT", host=alice.aid, body=b"x")).status == 401
        assert (await put(url, made, alice, b"x", token="bad")).status == 401
        assert (await put(url, made, bobby, signed(bobby), token=token, if_none_match="*")).status == 403
        assert (await put(url, made, alice, b"no card", token=token, if_none_match="*")).status == 400
        assert (await put(url, made, alice, b"\xff", token=token, if_none_match="*")).status == 400
        assert (await put(url, made, alice, signed(alice), token=token)).status == 428
        assert (await put(url, made, alice, signed(alice), token=token, if_match='"x"')).status == 412
        assert (await put(url, made, alice, signed(alice), token=token, if_none_match="*")).status == 200
        assert (await put(url, made, alice, signed(alice), token=token, if_none_match="*")).status == 412
        assert (await request(url, "/agent.md", "DELETE", host=alice.aid)).status == 405


async def test_an_old_clients_unsigned_card_is_taken_without_a_condition(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, served(made) as url:
        alice = await made.register("alice")
        assert (await put(url, made, alice, text(alice.aid))).status == 200
        assert (await request(url, "/agent.md", host=alice.aid)).body == text(alice.aid)


@pytest.mark.limit("agent_md.body_octets")
async def test_an_upload_has_a_limit(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, served(made) as url:
        alice = await made.register("alice")
        token = (await made.login(alice)).access_token
        for size, name in ((16_384, "agent_md.payload_octets"), (16_385, "agent_md.body_octets")):
            made.limits.hits.clear()
            assert (await put(url, made, alice, b"x" * size, token=token, if_none_match="*")).status == 413
            assert made.limits.hits == {name: 1}


@pytest.mark.parametrize("host", ["", "localhost", f"nobody.{ISSUER}", "127.0.0.1:80", "[::1]:80"])
async def test_a_host_that_is_no_aid_has_no_card(tmp_path: Path, host: str) -> None:
    async with desk(tmp_path) as made, served(made) as url:
        assert (await request(url, "/agent.md", host=host)).status == 404


async def test_the_name_service_path_works_by_host_header_alone(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, served(made) as url:
        found = await request(url, "/agent.md", host=THERMO)
        assert documents.etag(found.body) == found.headers["etag"]
        assert b'aun: "' in found.body
