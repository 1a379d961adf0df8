from __future__ import annotations

from pathlib import Path

import pytest

from edge.contract.errors import NotAuthenticated, TokenExpired
from edge.contract.time import SECOND
from edge.protocol import jwt, keys
from tests.support.clock import FakeClock
from tests.support.identity import ISSUER, OWNER, Desk, desk

YEAR = 365 * 86_400 * SECOND


async def token_of(made: Desk) -> str:
    return str((await made.login(await made.register("alice"))).access_token)


async def test_a_token_ends_after_an_hour_and_a_breath(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        token = await token_of(made)
        clock.advance(3600 * SECOND)
        assert (await made.auth.principal(token)).aid == f"alice.{ISSUER}"
        clock.advance(7 * SECOND)
        for _ in range(2):
            with pytest.raises(TokenExpired):
                await made.auth.principal(token)


async def test_learning_the_time_does_not_end_the_tokens_of_this_boot(tmp_path: Path) -> None:
    clock = FakeClock()
    clock.uncertainty_us = 10**15
    async with desk(tmp_path, clock) as made:
        token = await token_of(made)
        clock.wall_at_zero_us += YEAR
        clock.uncertainty_us = 0
        made.auth.tokens.forget()
        assert await made.auth.principal(token)
        clock.advance(3607 * SECOND)
        with pytest.raises(TokenExpired):
            await made.auth.principal(token)


async def test_tokens_of_an_earlier_boot_go_by_the_wall(tmp_path: Path) -> None:
    first = FakeClock()
    async with desk(tmp_path, first) as made:
        token = await token_of(made)
    second = FakeClock(boot=2, wall_at_zero_us=first.wall_at_zero_us + first.mono_us)
    async with desk(tmp_path, second) as made:
        second.advance(3500 * SECOND)
        assert await made.auth.principal(token)
        second.advance(200 * SECOND)
        with pytest.raises(TokenExpired):
            await made.auth.principal(token)


async def test_another_nodes_token_is_refused(tmp_path: Path) -> None:
    async with desk(tmp_path / "a") as made, desk(tmp_path / "b") as other:
        await other.register("alice")
        with pytest.raises(NotAuthenticated):
            await other.auth.principal(await token_of(made))


@pytest.mark.parametrize("alg", ["none", "HS256"])
async def test_an_unsigned_token_or_one_signed_with_the_public_key_is_refused(tmp_path: Path, alg: str) -> None:
    async with desk(tmp_path) as made:
        head, body, _ = (await token_of(made)).split(".")
        forged = head.replace(head, jwt._b64(f'{{"alg":"{alg}","kid":"{made.identity.auth.serial}"}}'.encode()))
        signature = jwt._b64(keys.sha256(made.identity.auth.pem.encode()).encode()) if alg == "HS256" else ""
        with pytest.raises(NotAuthenticated):
            await made.auth.principal(f"{forged}.{body}.{signature}")


async def test_a_token_of_nobody_we_know_is_refused(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        token, _ = made.auth.tokens.access(f"nobody.{ISSUER}")
        with pytest.raises(NotAuthenticated, match="not registered here"):
            await made.auth.principal(token)


@pytest.mark.parametrize("token", ["", "x" * 5000, "tökén", "aet_", "aet_unknown"])
async def test_what_is_no_token_is_refused(tmp_path: Path, token: str) -> None:
    async with desk(tmp_path) as made:
        with pytest.raises(NotAuthenticated):
            await made.auth.principal(token)


async def test_a_token_never_outlives_the_certificate_of_its_key(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        clock.advance_to((made.identity.auth.end - 60) * SECOND - clock.wall_at_zero_us)
        _, seconds = made.auth.tokens.access(f"alice.{ISSUER}")
        assert seconds == 60


@pytest.mark.limit("auth.cached_tokens")
async def test_remembered_tokens_are_limited(tmp_path: Path) -> None:
    async with desk(tmp_path, limits={"auth.cached_tokens": 2}) as made:
        tokens = [
            (await made.result("agent.add", {"name": f"alice{n}"}, OWNER, surface="edge")).token for n in range(3)
        ]
        for token in [*tokens, *tokens]:
            assert (await made.auth.principal(token)).aid.startswith("alice")
        assert made.limits.hits["auth.cached_tokens"] >= 1
