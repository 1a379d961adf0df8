from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from edge.contract.errors import (
    ContentTypeNotSupported,
    EdgeError,
    ExtendedCardNotConfigured,
    InvalidParams,
    InvalidRequest,
    Malformed,
    MethodNotFound,
    OutputTooLarge,
    PushNotSupported,
    TaskAccessDenied,
    TaskCanceled,
    TaskFailed,
    TaskNotCancelable,
    TaskNotFound,
    TaskRejected,
    TaskStateInvalid,
    TooLarge,
    Unavailable,
    UnknownAid,
    UnsupportedOperation,
)
from edge.contract.time import Stamp
from edge.protocol import a2a, parts
from edge.protocol.a2a import Card, card, dialect_of, etag, read, show
from edge.protocol.jsonrpc import Request
from edge.protocol.task import Aim, Artifact, Message, State, Task
from edge.protocol.view import Send, Show, Stop
from tests.support.tasks import DIMMER, LAMP, ROBOT, THERMOMETER, skill

AT = Stamp(1, 0)
HELLO = {"role": "user", "messageId": "m1", "parts": [{"kind": "text", "text": "hi"}]}


def when(at: Stamp) -> int:
    return 1_750_000_000_000_000 + at.mono_us


def ask(method: str, params: Any) -> Request:
    return Request(b"1", method, json.dumps(params).encode())


def send(message: Any = None, **params: Any) -> a2a.Asked:
    return read(ask("message/send", {"message": {**HELLO, **(message or {})}, **params}), "", "digest")


@pytest.mark.seed("S2-005")
def test_a_message_is_read_with_all_that_it_carries() -> None:
    asked = send(
        {
            "kind": "message",
            "taskId": "T",
            "contextId": "C",
            "metadata": {"b": 2},
            "referenceTaskIds": ["x"],
            "extensions": None,
        },
        metadata={"a": 1, "b": 1},
        configuration=None,
    )
    assert asked.params == Send(
        task_id="T",
        context_id="C",
        message_id="m1",
        parts=(parts.text("hi"),),
        metadata={"a": 1, "b": 2},
        dialect="a2a/0.3",
        repeat="digest",
    )
    assert (asked.method, asked.history) == ("message/send", None)


def test_null_is_as_good_as_nothing_for_what_is_optional() -> None:
    bare = {"taskId": None, "contextId": None, "metadata": None, "referenceTaskIds": None}
    empty = {"acceptedOutputModes": None, "historyLength": None, "blocking": None, "pushNotificationConfig": None}
    assert send(bare, configuration=empty, metadata=None) == send()


@pytest.mark.seed("S2-009")
@pytest.mark.parametrize(("blocking", "wait"), [(True, 4000), (False, 0), (None, 250)])
def test_blocking_decides_how_long_the_answer_waits(blocking: bool | None, wait: int) -> None:
    assert send(configuration={"blocking": blocking}).wait_ms == wait


@pytest.mark.seed("S2-007")
@pytest.mark.parametrize("length", [0, 1, 10**6, None])
def test_history_length_is_how_many_messages_are_shown(length: int | None) -> None:
    assert send(configuration={"historyLength": length}).history == length
    assert read(ask("tasks/get", {"id": "T", "historyLength": length}), "").history == length


@pytest.mark.parametrize(
    ("message", "params"),
    [
        ({"role": "agent"}, {}),
        ({"role": None}, {}),
        ({"kind": "task"}, {}),
        ({"messageId": None}, {}),
        ({"messageId": ""}, {}),
        ({"messageId": 7}, {}),
        ({"parts": []}, {}),
        ({"parts": None}, {}),
        ({"parts": [{"kind": "hologram"}]}, {}),
        ({"taskId": 7}, {}),
        ({"taskId": ""}, {}),
        ({"contextId": ["c"]}, {}),
        ({"metadata": "m"}, {}),
        ({"referenceTaskIds": "x"}, {}),
        ({"extensions": [1]}, {}),
        ({}, {"metadata": []}),
        ({}, {"configuration": "fast"}),
        ({}, {"configuration": {"blocking": "yes"}}),
        ({}, {"configuration": {"historyLength": -1}}),
        ({}, {"configuration": {"historyLength": True}}),
        ({}, {"configuration": {"historyLength": 1.5}}),
        ({}, {"configuration": {"acceptedOutputModes": "text"}}),
    ],
)
def test_a_message_with_a_fault_is_invalid_params(message: Any, params: Any) -> None:
    with pytest.raises(InvalidParams):
        send(message, **params)


@pytest.mark.parametrize("params", [{}, {"message": None}, {"message": "hi"}])
def test_no_message_is_invalid_params(params: Any) -> None:
    with pytest.raises(InvalidParams):
        read(ask("message/send", params), "")


@pytest.mark.seed("S2-006")
def test_a_caller_that_reads_nothing_we_write_is_told_so() -> None:
    for modes in ([], ["text/plain"], ["image/png", "application/json"], ["*/*"], ["text"], ["Text/Plain; q=1"]):
        send(configuration={"acceptedOutputModes": modes})
    with pytest.raises(ContentTypeNotSupported):
        send(configuration={"acceptedOutputModes": ["image/png"]})


@pytest.mark.seed("S2-008")
def test_a_webhook_is_refused_while_webhooks_are_off() -> None:
    with pytest.raises(PushNotSupported):
        send(configuration={"pushNotificationConfig": {"url": "http://x"}})


@pytest.mark.seed("S2-012", "S2-015")
def test_get_and_cancel_name_their_task() -> None:
    assert read(ask("tasks/get", {"id": "T"}), "").params == Show(task_id="T")
    assert read(ask("tasks/cancel", {"id": "T"}), "").params == Stop(task_id="T", wait_ms=4000)
    for method in ("tasks/get", "tasks/cancel"):
        for params in ({}, {"id": 1}, {"id": ""}, {"id": None}):
            with pytest.raises(InvalidParams):
                read(ask(method, params), "")


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("message/stream", UnsupportedOperation),
        ("tasks/resubscribe", UnsupportedOperation),
        ("tasks/pushNotificationConfig/set", PushNotSupported),
        ("tasks/pushNotificationConfig/delete", PushNotSupported),
        ("agent/getAuthenticatedExtendedCard", ExtendedCardNotConfigured),
        ("tasks/list", MethodNotFound),
        ("SendMessage", MethodNotFound),
        ("tasks/send", MethodNotFound),
        ("nonsense", MethodNotFound),
    ],
)
def test_what_is_not_offered_has_its_own_error(method: str, error: type[EdgeError]) -> None:
    with pytest.raises(error):
        read(ask(method, {}), "")


def test_every_method_belongs_to_a_generation() -> None:
    early = ("tasks/send", "tasks/sendSubscribe", "tasks/pushNotification/set")
    assert {dialect_of(method) for method in early} == {"early"}
    now = ("message/send", "message/stream", "tasks/list", "tasks/pushNotificationConfig/set", "agent/x")
    assert {dialect_of(method) for method in now} == {"a2a/0.3"}
    assert {dialect_of(method) for method in ("SendMessage", "GetTask")} == {"a2a/1.0"}
    assert {dialect_of(method) for method in ("tasks/get", "tasks/cancel", "tasks/resubscribe")} == {""}


@pytest.mark.seed("S2-023", "S2-024")
@pytest.mark.parametrize(
    ("error", "send_number", "cancel_number"),
    [
        (Malformed, -32700, -32700),
        (InvalidRequest, -32600, -32600),
        (TooLarge, -32600, -32600),
        (MethodNotFound, -32601, -32601),
        (InvalidParams, -32602, -32602),
        (UnknownAid, -32602, -32602),
        (Unavailable, -32603, -32603),
        (TaskNotFound, -32001, -32001),
        (TaskNotCancelable, -32002, -32002),
        (PushNotSupported, -32003, -32003),
        (UnsupportedOperation, -32004, -32004),
        (ContentTypeNotSupported, -32005, -32005),
        (ExtendedCardNotConfigured, -32007, -32007),
        (TaskStateInvalid, -32602, -32002),
        (TaskCanceled, -32602, -32002),
        (TaskRejected, -32602, -32002),
        (TaskFailed, -32602, -32002),
        (TaskAccessDenied, -32602, -32002),
        (OutputTooLarge, -32602, -32002),
    ],
)
def test_every_error_has_the_number_of_the_protocol(
    error: type[EdgeError], send_number: int, cancel_number: int
) -> None:
    assert a2a.numbers("message/send").number(error) == send_number
    assert a2a.numbers("tasks/cancel").number(error) == cancel_number


# Showing.


def task(state: State, *messages: Message, **fields: Any) -> Task:
    return Task(
        id="T", dialect="a2a/0.3", owner="o", assignee="a", context="C", state=state, messages=messages, **fields
    )


def said(ident: str, by: str) -> Message:
    return Message(id=ident, by=by, at=AT, parts=(parts.text(ident),), metadata={"n": 1} if by == "owner" else {})


@pytest.mark.seed("S2-010")
def test_a_finished_task_shows_its_artifacts_and_history() -> None:
    found = task(
        State.COMPLETED,
        said("m1", "owner"),
        artifacts=(
            Artifact(id="value", name="reading", parts=(parts.text("21.5"), parts.data({"value": 21.5}))),
            Artifact(id="b", parts=(parts.text("x"),)),
        ),
        aim=Aim(skill="thermo.temperature"),
    )
    assert show(found, when) == {
        "kind": "task",
        "id": "T",
        "contextId": "C",
        "status": {"state": "completed", "timestamp": "2025-06-15T15:06:40.000Z"},
        "artifacts": [
            {"artifactId": "value", "name": "reading", "parts": [parts.text("21.5"), parts.data({"value": 21.5})]},
            {"artifactId": "b", "parts": [parts.text("x")]},
        ],
        "history": [
            {
                "kind": "message",
                "role": "user",
                "messageId": "m1",
                "parts": [parts.text("m1")],
                "taskId": "T",
                "contextId": "C",
                "metadata": {"n": 1},
            }
        ],
        "metadata": {"skill": "thermo.temperature"},
    }


def test_history_is_cut_from_the_front() -> None:
    found = task(State.WORKING, said("m1", "owner"), said("m2", "assignee"), said("m3", "owner"))
    shown = [[one["messageId"] for one in show(found, when, n).get("history", [])] for n in (None, 0, 1, 2, 9)]
    assert shown == [["m1", "m2", "m3"], [], ["m3"], ["m2", "m3"], ["m1", "m2", "m3"]]


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_word_and_a_delivered_task_is_never_completed(state: State) -> None:
    word = show(task(state), when)["status"]["state"]
    assert word in {
        "submitted",
        "working",
        "input-required",
        "auth-required",
        "completed",
        "canceled",
        "failed",
        "rejected",
    }
    assert word == {"delivered": "working"}.get(state, word)


def test_the_status_says_the_question_or_the_reason() -> None:
    asked = show(task(State.NEED_INPUT, said("m1", "owner"), said("q", "node")), when)["status"]["message"]
    assert (asked["messageId"], asked["role"]) == ("q", "agent")
    failed = show(task(State.FAILED, said("m1", "owner"), reason="outcome_unknown"), when)["status"]["message"]
    assert (failed["messageId"], failed["parts"]) == ("T-failed", [parts.text("outcome_unknown")])
    assert "message" not in show(task(State.WORKING, said("m1", "assignee")), when)["status"]


# The card.

FACTS = Card(
    name="house", description="d", url="http://h/a2a", version="1", skills=[LAMP, DIMMER, THERMOMETER], secured=True
)


def loaded(facts: Card, *, early: bool = False) -> Any:
    return json.loads(card(facts, early=early))


@pytest.mark.seed("S2-022", "S2-027")
def test_the_card_says_what_is_true() -> None:
    shown = loaded(FACTS)
    assert shown["protocolVersion"] == "0.3.0"
    assert shown["preferredTransport"] == "JSONRPC"
    assert shown["additionalInterfaces"] == [{"url": "http://h/a2a", "transport": "JSONRPC"}]
    assert shown["supportedInterfaces"] == [
        {"url": "http://h/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}
    ]
    assert not any(shown["capabilities"].values())
    assert shown["security"] == [{"bearer": []}]
    assert shown["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert shown["supportsAuthenticatedExtendedCard"] is False
    assert "authentication" not in shown
    assert "provider" not in shown
    assert [one["id"] for one in shown["skills"]] == [LAMP.id, DIMMER.id, THERMOMETER.id]
    assert shown["skills"][1]["name"] == "lamp brightness"
    assert shown["skills"][1]["examples"] == ["lamp.brightness read"]
    assert "in %" in shown["skills"][1]["description"]
    assert shown["skills"][2]["tags"] == ["device", "sensor"]


def test_without_a_demand_for_tokens_the_card_declares_none() -> None:
    shown = loaded(msgspec.structs.replace(FACTS, secured=False))
    assert not {"security", "securitySchemes", "securityRequirements"} & set(shown)
    assert loaded(msgspec.structs.replace(FACTS, secured=False), early=True)["authentication"] == {"schemes": []}


def test_a_node_that_takes_client_certificates_says_so_beside_the_token() -> None:
    shown = loaded(msgspec.structs.replace(FACTS, mutual_tls=True))
    assert shown["security"] == [{"bearer": []}, {"certificate": []}]
    assert shown["securitySchemes"]["certificate"]["type"] == "mutualTLS"
    assert shown["securityRequirements"][1] == {"schemes": {"certificate": {"list": []}}}


def test_the_early_card_has_the_early_authentication_beside_all_else() -> None:
    shown = loaded(FACTS, early=True)
    assert shown.pop("authentication") == {"schemes": ["bearer"]}
    assert shown == loaded(FACTS)


def test_a_card_lists_two_hundred_skills_at_most() -> None:
    many = [skill(f"d{number:03}", "power", "switch") for number in range(201)]
    assert len(loaded(msgspec.structs.replace(FACTS, skills=many))["skills"]) == 200


def test_a_provider_is_shown_when_there_is_one() -> None:
    shown = loaded(msgspec.structs.replace(FACTS, provider="Us", provider_url="https://us"))
    assert shown["provider"] == {"organization": "Us", "url": "https://us"}
    assert loaded(msgspec.structs.replace(FACTS, provider="Us"))["provider"]["url"] == "http://h/a2a"


def test_an_etag_follows_the_content() -> None:
    assert etag(card(FACTS)) == etag(card(FACTS))
    assert etag(card(FACTS)) != etag(card(msgspec.structs.replace(FACTS, skills=[ROBOT])))
