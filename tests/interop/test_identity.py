"""fastaun's own checks of certificates, chain, revocation list and OCSP against the identity half of a node."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edge.cli.sdk_profile import write_sdk_profile
from edge.system.clock import SystemClock
from tests.plugins.needs import peer
from tests.support.identity import OWNER, Desk, desk, served

pytestmark = [pytest.mark.interop, pytest.mark.needs("peer:fastaun")]

SCRIPT = Path(__file__).with_name("identity_client.py")


async def run(folder: Path, step: str) -> None:
    """One step of the peer's script, in a process of its own."""
    place = peer("fastaun")
    assert place is not None
    program = await asyncio.create_subprocess_exec(
        str(place / "bin" / "python"),
        str(SCRIPT),
        str(folder),
        step,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"AUN_NAMESERVICE_URL": "http://127.0.0.1:9", "HOME": str(folder)},
    )
    out, err = await program.communicate()
    assert (program.returncode, out) == (0, b"ok\n"), err.decode()


async def prepare(made: Desk, url: str, folder: Path) -> None:
    await made.result("agent.add", {"name": "alice"}, OWNER, surface="edge")
    gateway = f"{url.replace('http', 'ws', 1)}/aun"
    write_sdk_profile(folder, "alice.edge.test", gateway, url, made.identity.aun_root)


@pytest.mark.seed("S0-166")
async def test_a_name_lives_by_the_sdk_until_it_is_revoked(tmp_path: Path) -> None:
    """Register, connect, renew, rekey, log in again; strict checks pass; revoked, they fail."""
    async with desk(tmp_path / "node", SystemClock(1)) as made, served(made) as url:
        await prepare(made, url, tmp_path / "sdk")
        await run(tmp_path / "sdk", "life")
        await run(tmp_path / "sdk", "check")
        await made.ask("agent.revoke", {"name": "alice"}, OWNER, surface="edge")
        await run(tmp_path / "sdk", "revoked")


async def test_tokens_of_the_sdk_outlive_the_node_that_gave_them(tmp_path: Path) -> None:
    async with desk(tmp_path / "node", SystemClock(1)) as made, served(made) as url:
        await prepare(made, url, tmp_path / "sdk")
        await run(tmp_path / "sdk", "life")
    async with desk(tmp_path / "node", SystemClock(1)) as made, served(made) as url:
        await prepare(made, url, tmp_path / "sdk")
        await run(tmp_path / "sdk", "check")
