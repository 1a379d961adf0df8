from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.discovery.native import Address, address, event, parse, task_topic, task_topic_of
from edge.protocol.discovery.record import Bounds, Found, Refusal


def announced(payload: object, **bounds: int) -> Found:
    return parse("worker", json.dumps(payload).encode(), Bounds(**bounds))


def test_an_announcement_names_device_values_and_jobs() -> None:
    found = announced(
        {
            "name": "Worker",
            "model": "W1",
            "manufacturer": "Acme",
            "version": "1.2",
            "hardware_id": "mac:AA:BB:cc:00:11:22",
            "default_skill": "work",
            "capabilities": [
                {
                    "name": "temperature",
                    "kind": "sensor",
                    "value_type": "number",
                    "unit": "°C",
                    "min": -40,
                    "max": 85,
                    "history": "30",
                    "traffic": "alarm",
                },
                {"name": "mode", "kind": "select", "options": ["eco", "full"], "writable": True, "repeat_safe": True},
                {"name": "heat", "kind": "switch", "value_type": "boolean", "writable": True, "readable": False},
            ],
            "skills": [{"name": "work", "title": "Works", "cancellable": True}],
        }
    )
    temperature, mode, heat, work = found.components
    assert found.native == "worker"
    assert found.device.ids == ("aun:worker", "mac:aabbcc001122")
    assert (found.device.name, found.device.default_skill) == ("Worker", "work")
    assert (temperature.cap.minimum, temperature.cap.history, temperature.cap.traffic) == (-40, "30", "alarm")
    assert temperature.cap.title == "temperature"
    assert mode.cap.verbs == ("eco", "full")
    assert heat.cap.verbs == ("on", "off", "toggle")
    assert heat.reader is None
    assert (work.cap.kind, work.cap.value_type, work.cap.readable, work.cap.cancellable) == (
        "skill",
        "none",
        False,
        True,
    )
    assert work.cap.verbs == ()
    assert all(component.cap.native for component in found.components)
    assert temperature.reader is not None
    assert temperature.reader.topic == "aun/v1/worker/state/temperature"
    assert temperature.availability.topics[0].topic == "aun/v1/worker/online"


@pytest.mark.parametrize(
    ("kind", "risk", "writable", "expected"),
    [
        ("switch", "low", True, "low"),
        ("switch", "high", True, "high"),
        ("lock", "low", True, "high"),
        ("heater", "", True, "high"),
        ("lock", "low", False, "low"),
    ],
)
def test_a_device_may_only_raise_its_risk(kind: str, risk: str, writable: bool, expected: str) -> None:
    (component,) = announced(
        {"capabilities": [{"name": "x", "kind": kind, "risk": risk, "writable": writable}]}
    ).components
    assert component.cap.risk == expected


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"name": "Bad Name"}, "bad id"),
        ({"name": ""}, "bad id"),
        ({"kind": "sensor"}, "bad id"),
        ("text", "bad id"),
        ({"name": "x", "value_type": "colour"}, "bad field"),
        ({"name": "x", "history": "sometimes"}, "bad field"),
        ({"name": "x", "traffic": "heavy"}, "bad field"),
        ({"name": "x", "options": "a,b"}, "bad field"),
        ({"name": "x", "options": [1]}, "bad field"),
        ({"name": "x", "min": "low"}, "bad field"),
        ({"name": "good"}, "announced twice"),
    ],
)
def test_a_bad_entry_is_refused_and_the_others_stay(entry: object, reason: str) -> None:
    found = announced({"capabilities": [{"name": "good"}, entry]})
    assert [component.uid for component in found.components] == ["good"]
    assert [refused.reason for refused in found.refused] == [reason]


@pytest.mark.parametrize(
    "payload", [[], "x", {"capabilities": {}}, {"skills": "x"}, {"capabilities": [], "skills": {}}]
)
def test_an_announcement_of_another_shape_is_refused(payload: object) -> None:
    with pytest.raises(Refusal) as caught:
        announced(payload)
    assert caught.value.reason == "malformed"


def test_limits_of_an_announcement_hold_at_their_edge() -> None:
    payload: dict[str, Any] = {"capabilities": [{"name": "a"}], "skills": [{"name": "b"}]}
    size = len(json.dumps(payload))
    assert len(announced(payload, components=2, octets=size).components) == 2
    with pytest.raises(Refusal, match="too many components"):
        announced(payload, components=1)
    with pytest.raises(Refusal, match="too large"):
        announced(payload, octets=size - 1)
    with pytest.raises(Refusal, match="malformed"):
        parse("worker", b"{")
    options = {"capabilities": [{"name": "a", "options": ["1", "2", "3"]}]}
    assert announced(options, options=3).refused == ()
    assert announced(options, options=2).refused[0].reason == "too many options"


@pytest.mark.parametrize(
    ("topic", "place"),
    [
        ("aun/v1/w/announce", Address("w", "announce")),
        ("aun/v1/w/online", Address("w", "online")),
        ("aun/v1/w/state/t", Address("w", "state", "t")),
        ("aun/v1/w/task/01AB/event", Address("w", "event", "01AB")),
        ("aun/v1/w/task", None),
        ("aun/v1/w/task/01AB/cancel", None),
        ("aun/v1/w/task/a b/event", None),
        ("aun/v1/w/state/t/more", None),
        ("aun/v1//announce", None),
        ("aun/v1/ä/announce", None),
        ("aun/v2/w/announce", None),
    ],
)
def test_a_native_topic_is_recognised(topic: str, place: Address | None) -> None:
    assert address(topic) == place


def test_task_topics_are_below_the_device() -> None:
    assert task_topic("w") == "aun/v1/w/task"
    assert task_topic("w", "T1", "cancel") == "aun/v1/w/task/T1/cancel"


@pytest.mark.parametrize(
    ("topic", "tasks"),
    [
        ("aun/v1/lock/task", "aun/v1/lock/task"),
        ("aun/v1/lock/task/t1/event", "aun/v1/lock/task"),
        ("aun/v1/lock/state/task", ""),
        ("aun/v1/lock/tasks", ""),
        ("lock/task/t1", ""),
    ],
)
def test_a_topic_belongs_to_the_tasks_of_a_device(topic: str, tasks: str) -> None:
    assert task_topic_of(topic) == tasks


def test_an_event_is_read_leniently_in_its_parts_and_strictly_in_its_state() -> None:
    said = event(b'{"seq": 3, "state": "working", "message": "half way", "reason": "busy"}', 1000)
    assert (said.seq, said.state, said.reason, said.message) == (3, "working", "busy", b'["half way"]')
    said = event(
        b'{"state": "completed", "artifact": {"id": "a", "name": "A", "append": true, "last": false, "parts": []}}',
        1000,
    )
    artifact = json.loads(said.artifact)
    assert artifact == {"id": "a", "name": "A", "append": True, "last": False, "parts": []}
    assert json.loads(event(b'{"state": "completed", "artifact": {"parts": {"x": 1}}}', 1000).artifact) == {
        "id": "result", "append": False, "last": True, "parts": [{"x": 1}],
    }  # fmt: skip
    assert event(b'{"state": "working", "message": [{"kind": "text", "text": "x"}], "reason": 7}', 1000).reason == ""


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b'{"state": "done"}',
        b'{"state": ["completed"]}',
        b'{"state": "working", "seq": -1}',
        b'{"state": "working", "seq": true}',
        b'{"state": "working", "seq": "1"}',
        b'{"state": "working", "artifact": "x"}',
        b'{"state": "working"}' + b" " * 1000,
        b"[]",
        b"{",
    ],
)
def test_another_event_is_refused(payload: bytes) -> None:
    with pytest.raises(Refusal):
        event(payload, 1000)


@given(st.binary(max_size=100))
def test_no_payload_breaks_the_parsers(payload: bytes) -> None:
    for parser in (lambda: parse("w", payload), lambda: event(payload, 1000)):
        try:
            parser()
        except Refusal:
            continue
