"""The JSON examples of the user's documents, sent to a whole node as they are printed (settled G11).

`tests/seeds/<document>/<nn>.json` holds one exchange: its `place` in the document, the lines of the checklist it shows
(`seeds`), what is printed there (`request`, `answer`, `event` or `payload`), and `cases`. A case says who calls (`as`),
what happens before, what of the sample is `repaired` and by which rule, and what comes of it: the printed answer or
event, an `error`, or that the payload `reaches` somebody untouched.

The printed answer is compared member by member: each must be there with its value. `varies` names the members whose
value cannot be the printed one, and what it must be instead; `deviates` the ones in which we differ on purpose, with
the rule that decides it. What deviates and is not listed fails, and so does what is listed and does not deviate.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from edge.node.life import Node
from tests.support.node import Agent, Socket, agent, running
from tests.support.patience import PATIENCE_S

HERE = Path(__file__).resolve().parent
EXAMPLES = sorted(HERE.glob("*/*.json"))
PLACES = {"alice": ("dev-1", "default"), "bobby": ("device-001", "slot-a")}
"""Who there is, and where their connection says it is: as the examples have it."""
SETTLED = re.compile(r"(G|C-|M-|T-|Q-|K-|AC §)[\d.]+")
"""A settled point, or a rule of the service or the connection page."""
DAY = 86_400


def cases() -> Iterator[Any]:
    """Every case of every example, marked with the lines that its document has about it."""
    for path in EXAMPLES:
        example = json.loads(path.read_text(encoding="utf-8"))
        for number in range(len(example["cases"])):
            marks = [pytest.mark.seed(*example["seeds"])]
            yield pytest.param(path, number, marks=marks, id=f"{path.parent.name}-{path.stem}-{number}")


class Stage:
    """A node with the people of the examples; each connects when first needed."""

    def __init__(self, node: Node, stack: AsyncExitStack) -> None:
        self._node, self._stack = node, stack
        self._agents: dict[str, Agent] = {}
        self._wires: dict[str, Socket] = {}

    async def register(self) -> None:
        """Everybody has an AID."""
        for name, (device, slot) in PLACES.items():
            self._agents[name] = await agent(self._node, name, device=device, slot=slot)

    async def wire(self, name: str) -> Socket:
        """The connection of somebody."""
        if name not in self._wires:
            self._wires[name] = await self._stack.enter_async_context(self._agents[name].connected())
        return self._wires[name]

    async def step(self, step: Mapping[str, Any]) -> None:
        """Something that happens before."""
        if "wait_s" in step:
            await asyncio.sleep(step["wait_s"])
            return
        wire = await self.wire(step["as"])
        for _ in range(step.get("times", 1)):
            await wire.call(step["method"], step["params"])

    async def exchange(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request exactly; the frame that answers it."""
        wire = await self.wire(name)
        await wire.ws.send(json.dumps(request, ensure_ascii=False))
        while True:
            frame: dict[str, Any] = json.loads(await wire.ws.recv())
            if "method" not in frame and frame["id"] == request.get("id"):
                return frame
            wire.events.append(frame)


@asynccontextmanager
async def stage(folder: Path, *settings: str) -> AsyncIterator[Stage]:
    async with running(folder / "state", *settings, issuer="aid.pub") as node, AsyncExitStack() as stack:
        made = Stage(node, stack)
        await made.register()
        yield made


def repaired(value: Any, repairs: list[dict[str, Any]]) -> Any:
    """What is printed, with the repairs of a case."""
    for one in repairs:
        assert SETTLED.fullmatch(one["settled"]), one
        assert one["why"]
        if "from" in one:
            value = json.loads(json.dumps(value).replace(json.dumps(one["from"]), json.dumps(one["to"])))
        elif "add" in one:
            value = {**one["add"], **value}
        elif "wrap" in one:
            wrap = one["wrap"]
            value = {**wrap, "params": {**wrap["params"], "payload": value}}
        else:
            value = value if value is not None else one["request"]
    return value


def differences(printed: Any, ours: Any, varies: Mapping[str, str], at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where an answer is not the printed one: place, printed, ours. Members that nobody printed are tolerated."""
    if at in varies:
        if not fits(varies[at], ours):
            yield at, varies[at], ours
    elif isinstance(printed, dict) and isinstance(ours, dict):
        for key, value in printed.items():
            yield from differences(value, ours.get(key, "missing"), varies, f"{at}.{key}".lstrip("."))
    elif isinstance(printed, list) and isinstance(ours, list):
        for place, value in enumerate(printed):
            yield from differences(value, ours[place] if place < len(ours) else "missing", varies, f"{at}[{place}]")
    elif type(printed) is not type(ours) or printed != ours:
        yield at, printed, ours


def fits(what: str, value: Any) -> bool:
    """Whether a value is what it must be where the printed one cannot be."""
    match what:
        case "id":
            return isinstance(value, str) and value not in ("", "missing")
        case "count":
            return type(value) is int and value > 0
        case "ms" | "s":
            return type(value) is int and abs(value / (1000 if what == "ms" else 1) - time.time()) < DAY
        case "utc":
            found = datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            return abs(found.timestamp() - time.time()) < 60 * DAY
    raise AssertionError(f"nobody knows what {what} is")


def compare(printed: Any, ours: Any, case: Mapping[str, Any]) -> None:
    varies = case.get("varies", {})
    for place in varies:
        assert has(printed, place), f"{place} varies, and nobody printed it"
    listed = case.get("deviates", [])
    assert all(SETTLED.fullmatch(one["settled"]) for one in listed)
    expected = [(one["at"], one["printed"], one["ours"]) for one in listed]
    assert list(differences(printed, ours, varies)) == expected, ours


def has(value: Any, place: str) -> bool:
    for key in re.findall(r"[^.\[\]]+", place):
        try:
            value = value[int(key) if isinstance(value, list) else key]
        except (KeyError, IndexError):
            return False
    return True


@pytest.mark.parametrize(("path", "number"), list(cases()))
async def test_an_example_is_answered_as_it_is_printed(tmp_path: Path, path: Path, number: int) -> None:
    example = json.loads(path.read_text(encoding="utf-8"))
    case = example["cases"][number]
    repairs = case.get("repaired", [])
    async with asyncio.timeout(PATIENCE_S), stage(tmp_path, *example.get("settings", [])) as found:
        for name in [*case.get("online", []), *([case["to"]] if "to" in case else [])]:
            await found.wire(name)
        for step in case.get("before", []):
            await found.step(step)
        if "event" in example:
            event = repaired(example["event"], repairs)
            heard = await (await found.wire(case["to"])).event(event["method"])
            compare(event, {"jsonrpc": "2.0", "method": event["method"], "params": heard}, case)
            return
        request = repaired(example.get("request", example.get("payload")), repairs)
        answer = await found.exchange(case["as"], request)
        if "error" in case:
            assert SETTLED.fullmatch(case["settled"])
            assert answer["error"]["code"] == case["error"], answer
        elif "reaches" in case:
            assert answer["result"]["status"] == "sent", answer
            page = await (await found.wire(case["reaches"])).call("message.pull", {})
            assert [row["payload"] for row in page["messages"]] == [request["params"]["payload"]]
        else:
            compare(repaired(example["answer"], [one for one in repairs if "from" in one]), answer, case)


def test_every_example_says_where_it_stands_and_has_a_case_that_is_answered() -> None:
    numbers = [int(path.stem) for path in EXAMPLES if path.parent.name == "000"]
    assert numbers == list(range(1, len(numbers) + 1))
    for path in EXAMPLES:
        example = json.loads(path.read_text(encoding="utf-8"))
        assert example["place"], path
        assert {"request", "answer", "event", "payload"} & example.keys(), path
        assert any("error" not in case for case in example["cases"]), path


@pytest.mark.parametrize(
    ("printed", "ours", "told"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": 1}, {"a": "1"}, [("a", 1, "1")]),
        ({"a": 1}, {"a": True}, [("a", 1, True)]),
        ({"a": 1}, {}, [("a", 1, "missing")]),
        ({"a": [{"b": 1}]}, {"a": []}, [("a[0]", {"b": 1}, "missing")]),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, [("a[0].b", 1, 2)]),
        ({"a": None}, {"a": []}, [("a", None, [])]),
        ({"v": 1}, {"v": 7}, []),
        ({"v": 1}, {"v": "x"}, [("v", "count", "x")]),
    ],
)
def test_what_differs_is_told(printed: Any, ours: Any, told: list[Any]) -> None:
    assert list(differences(printed, ours, {"v": "count"})) == told
