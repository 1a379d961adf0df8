"""The unmodified a2a-sdk 0.3.26 client against the node's A2A side."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from edge.system.clock import SystemClock
from tests.plugins.needs import peer
from tests.support.tasks import BELL, DOOR, LAMP, ROBOT, THERMOMETER, reads
from tests.transports.http.test_a2a import Site, site

pytestmark = [pytest.mark.interop, pytest.mark.needs("peer:a2a")]

SCRIPT = Path(__file__).with_name("a2a_client.py")


async def converse(here: Site, *texts: str, token: str = "good") -> Any:
    """Run the peer's script against this site; what it saw."""
    place = peer("a2a")
    assert place is not None
    base = f"http://127.0.0.1:{here.house.listener.address[1]}"
    program = await asyncio.create_subprocess_exec(
        str(place / "bin" / "python"),
        str(SCRIPT),
        base,
        token,
        *texts,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await program.communicate()
    assert program.returncode == 0, err.decode()
    return json.loads(out)


@pytest.mark.seed("S2-028", "S2-010", "S2-012", "S2-022")
async def test_the_sdk_reads_the_card_and_gets_the_reading_as_an_artifact(tmp_path: Path) -> None:
    async with site(tmp_path, LAMP, THERMOMETER, DOOR, ROBOT, BELL) as here:
        here.tasks.gate.acts[THERMOMETER.id] = reads
        here.tasks.gate.acts[LAMP.id] = lambda gate, order: gate.tell(order.task_id, "completed")
        saw = await converse(here, "lamp on", "thermo temperature read")
        assert saw["skills"] == sorted([LAMP.id, THERMOMETER.id, DOOR.id, ROBOT.id, BELL.id])
        assert saw["schemes"] == ["bearer"]
        assert saw["same_card"] is True
        lamp, reading = saw["tasks"]
        assert lamp["status"]["state"] == "completed"
        assert reading["status"]["state"] == "completed"
        text, data = reading["artifacts"][0]["parts"]
        assert (text["text"], data["data"]["value"]) == ("21.5", 21.5)
        assert saw["again"]["artifacts"] == reading["artifacts"]
        assert "history" not in saw["again"]
        assert (saw["cancel"], saw["unknown"], saw["continue"]) == (-32002, -32001, -32001)


async def test_an_application_of_the_sdk_can_learn_why_it_is_refused(tmp_path: Path) -> None:
    """As docs/agents.md tells it: the exception's own text is the status, its cause has our answer."""
    async with site(tmp_path, DOOR) as here:
        saw = await converse(here, "--refused", "door unlock")
        assert saw["status"] == 403
        assert "aun-edge cap grant door.lock alice.edge.test" in saw["reason"]
        assert (await converse(here, "--refused", "door unlock", token="bad"))["status"] == 401


async def test_the_sdk_is_asked_which_skill(tmp_path: Path) -> None:
    async with site(tmp_path, LAMP, THERMOMETER, insecure_local=True, secured=False) as here:
        saw = await converse(here, "make it cosy", token="")
        assert saw["schemes"] == []
        assert saw["tasks"][0]["status"]["state"] == "input-required"
        assert LAMP.id in saw["tasks"][0]["status"]["message"]["parts"][0]["text"]
        assert saw["cancel"] == 0


async def test_the_sdk_gets_an_answer_before_its_own_time_is_up(tmp_path: Path) -> None:
    """The real clock: a device that never answers costs the SDK four seconds, not its five-second timeout."""
    async with site(tmp_path, ROBOT, clock=SystemClock(1)) as here:
        saw = await converse(here, "robot kitchen")
        assert saw["tasks"][0]["status"]["state"] == "submitted"
