from __future__ import annotations

import pytest

from edge.contract.errors import InvalidParams, Malformed, TooLarge
from edge.contract.task import Report
from edge.contract.time import Stamp
from edge.protocol.task import Artifact, Message, Reported, State
from edge.services.task.reports import LIMITS, step_of

AT = Stamp(1, 77)


def report(state: str = "working", **more: object) -> Report:
    return Report(task_id="T", state=state, **more)  # type: ignore[arg-type]


def test_a_bare_report_is_a_bare_step() -> None:
    assert step_of(report(seq=3, reason="x" * 2000), AT) == Reported(state=State.WORKING, seq=3, reason="x" * 1000)


def test_a_message_gets_an_id_that_is_its_own() -> None:
    said = ({"kind": "text", "text": "hi"},)
    assert step_of(report(message=b'"hi"', seq=2), AT).message == Message(id="T-2", by="assignee", at=AT, parts=said)
    other = step_of(report(message=b'[{"type":"text","text":"hi"}]'), AT).message
    assert other == Message(id="T-77", by="assignee", at=AT, parts=said)
    assert step_of(report(message=b"[]"), AT).message is None


@pytest.mark.parametrize(
    ("raw", "expected", "append"),
    [
        (b'{"id":"log","name":"n","append":true,"last":false,"parts":["a"]}', ("log", "n", False), True),
        (b'{"parts":["a"]}', ("1", "", True), False),
        (b'{"id":7,"name":7,"last":true,"append":"yes","parts":["a"]}', ("7", "", True), False),
        (b'["a"]', ("1", "", True), False),
        (b'"a"', ("1", "", True), False),
    ],
)
def test_artifacts_are_read_leniently(raw: bytes, expected: tuple[str, str, bool], append: bool) -> None:
    step = step_of(report(artifact=raw), AT)
    ident, name, closed = expected
    assert step.artifact == Artifact(id=ident, name=name, closed=closed, parts=({"kind": "text", "text": "a"},))
    assert step.append is append


@pytest.mark.parametrize("state", ["queued", "sleeping", ""])
def test_states_that_no_device_may_claim_are_refused(state: str) -> None:
    with pytest.raises(InvalidParams):
        step_of(report(state), AT)


def test_what_is_not_json_or_too_much_of_it_is_refused() -> None:
    with pytest.raises(Malformed):
        step_of(report(message=b"{"), AT)
    with pytest.raises(TooLarge):
        step_of(report(artifact=b" " * (LIMITS.octets + 1)), AT)
