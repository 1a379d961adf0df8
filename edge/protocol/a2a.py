"""The A2A 0.3 View over JSON-RPC: reads its requests, shows tasks in its words, and writes the agent card.

Specs: agent-protocols §2.1 (methods), §2.2 (required behaviours), §2.3 (card), §2.7 (errors), §3.4 (which dialect a
method belongs to), §4.1 (states); settled G51. Early A2A and 1.0 are Views of their own beside this one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from edge.contract.capability import Skill
from edge.contract.errors import (
    ContentTypeNotSupported,
    EdgeError,
    ExtendedCardNotConfigured,
    Internal,
    InvalidParams,
    InvalidRequest,
    Malformed,
    MethodNotFound,
    PushNotSupported,
    TaskError,
    TaskNotCancelable,
    TaskNotFound,
    TooLarge,
    UnknownAid,
    UnsupportedOperation,
)
from edge.contract.wire import dumps, loads
from edge.protocol import grammar, parts
from edge.protocol.jsonrpc import ErrorTable, Request
from edge.protocol.task import Artifact, Message, Part, State, Task
from edge.protocol.view import Send, Show, Stop, When, iso

DIALECT = "a2a/0.3"
VERSION = "0.3.0"

BLOCK_MS = 4000
"""Both Python SDKs give up after 5 s; a longer block would look like a failure although the device acted (§2.2)."""
GRACE_MS = 250
"""When `blocking` is absent: quick actuators answer completed, slow ones stay cancellable."""
CARD_SKILLS = 200
OUTPUT_MODES = ("text/plain", "application/json")
INPUT_MODES = ("text/plain", "application/json")

STATES: Mapping[State, str] = {
    State.QUEUED: "submitted",
    State.ACCEPTED: "submitted",
    State.WORKING: "working",
    State.NEED_INPUT: "input-required",
    State.NEED_AUTH: "auth-required",
    State.DELIVERED: "working",
    State.COMPLETED: "completed",
    State.CANCELED: "canceled",
    State.FAILED: "failed",
    State.REJECTED: "rejected",
}

NUMBERS = ErrorTable(
    {
        EdgeError: -32603,
        Malformed: -32700,
        InvalidRequest: -32600,
        TooLarge: -32600,
        MethodNotFound: -32601,
        InvalidParams: -32602,
        UnknownAid: -32602,
        Internal: -32603,
        TaskError: -32602,
        TaskNotFound: -32001,
        TaskNotCancelable: -32002,
        PushNotSupported: -32003,
        UnsupportedOperation: -32004,
        ContentTypeNotSupported: -32005,
        ExtendedCardNotConfigured: -32007,
    }
)
"""Error class → JSON-RPC code (§2.7). A task that is over takes no input: -32602 in this dialect."""

CANCEL_NUMBERS = NUMBERS.over({TaskError: -32002, TaskNotFound: -32001})
"""For `tasks/cancel` every state that has no way to canceled is "not cancelable"."""

_OFF: Mapping[str, type[EdgeError]] = {
    "message/stream": UnsupportedOperation,
    "tasks/resubscribe": UnsupportedOperation,
    "tasks/pushNotificationConfig/set": PushNotSupported,
    "tasks/pushNotificationConfig/get": PushNotSupported,
    "tasks/pushNotificationConfig/list": PushNotSupported,
    "tasks/pushNotificationConfig/delete": PushNotSupported,
    "agent/getAuthenticatedExtendedCard": ExtendedCardNotConfigured,
}
"""Methods of the dialect that the card says are off, and the error that says so."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request in the words of the task service, and how its answer is to look.

    `method` is the wire name; `wait_ms` how long the answer may wait for the task; `history` how many messages it
    shows (None: all).
    """

    method: str
    params: Send | Show | Stop
    wait_ms: int = 0
    history: int | None = None


def dialect_of(method: str) -> str:
    """The A2A generation that a method belongs to (§3.4): `early`, `a2a/0.3`, `a2a/1.0`, or "" for all of them."""
    if method in ("tasks/send", "tasks/sendSubscribe") or method.startswith("tasks/pushNotification/"):
        return "early"
    if method in ("tasks/get", "tasks/cancel", "tasks/resubscribe"):
        return ""
    return "a2a/1.0" if method[:1].isupper() else DIALECT


def numbers(method: str) -> ErrorTable:
    """The error table of a method."""
    return CANCEL_NUMBERS if method == "tasks/cancel" else NUMBERS


def read(request: Request, to: str, repeat: str = "") -> Asked:
    """Read a request; `to` is the AID of the address it came to ("" for the node's own), `repeat` names its bytes.

    Raises `MethodNotFound`, `InvalidParams`, `ContentTypeNotSupported`, or what says that the method is off.
    """
    if request.method in _OFF:
        raise _OFF[request.method]
    params = loads(request.params)
    match request.method:
        case "message/send":
            return _send(params, to, repeat)
        case "tasks/get":
            return Asked(
                method="tasks/get",
                params=Show(task_id=_text(params, "id")),
                history=_history(params),
            )
        case "tasks/cancel":
            return Asked(method="tasks/cancel", params=Stop(task_id=_text(params, "id"), wait_ms=BLOCK_MS))
        case _:
            raise MethodNotFound(f"method not found: {request.method}")


def _send(params: dict[str, Any], to: str, repeat: str) -> Asked:
    message = params.get("message")
    if not isinstance(message, dict):
        raise InvalidParams("params.message must be an object")
    if message.get("kind", "message") != "message":
        raise InvalidParams('message.kind must be "message"')
    if message.get("role") != "user":
        raise InvalidParams('message.role must be "user"')
    configuration = _object(params, "configuration")
    _check_modes(configuration.get("acceptedOutputModes"))
    if configuration.get("pushNotificationConfig") is not None:
        raise PushNotSupported
    for ignored in ("referenceTaskIds", "extensions"):
        _texts(message.get(ignored), f"message.{ignored}")
    send = Send(
        to=to,
        task_id=_optional(message, "taskId"),
        context_id=_optional(message, "contextId"),
        message_id=_text(message, "messageId"),
        parts=parts.strict(message.get("parts")),
        metadata={**_object(params, "metadata"), **_object(message, "metadata")},
        dialect=DIALECT,
        repeat=repeat,
    )
    wait = _wait(configuration.get("blocking"))
    return Asked(method="message/send", params=send, wait_ms=wait, history=_history(configuration))


def _wait(blocking: object) -> int:
    if blocking is None:
        return GRACE_MS
    if not isinstance(blocking, bool):
        raise InvalidParams("configuration.blocking must be a boolean")
    return BLOCK_MS if blocking else 0


def _history(params: Mapping[str, Any]) -> int | None:
    value = params.get("historyLength")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise InvalidParams("historyLength must be an integer from 0 on")
    return value


def _check_modes(modes: object) -> None:
    """A caller that can read nothing that we write is told so (§2.2)."""
    wanted = _texts(modes, "configuration.acceptedOutputModes")
    plain = {mode.partition(";")[0].strip().lower() for mode in wanted}
    readable = {*OUTPUT_MODES, "*/*", "text/*", "application/*", "text", "data"}
    if plain and not plain & readable:
        raise ContentTypeNotSupported(f"answers are {' or '.join(OUTPUT_MODES)}")


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidParams(f"{name} must be a non-empty string")
    return value


def _optional(params: Mapping[str, Any], name: str) -> str:
    """An absent or null name is none; anything else must be a name."""
    return "" if params.get(name) is None else _text(params, name)


def _object(params: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = params.get(name)
    if value is not None and not isinstance(value, dict):
        raise InvalidParams(f"{name} must be an object")
    return value or {}


def _texts(value: object, name: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidParams(f"{name} must be an array of strings")
    return value


def show(task: Task, when: When, history: int | None = None) -> dict[str, Any]:
    """A task in 0.3 JSON, with its newest `history` messages (None: all; 0: the key is absent)."""
    shown: dict[str, Any] = {
        "kind": "task",
        "id": task.id,
        "contextId": task.context,
        "status": _status(task, when),
    }
    if task.artifacts:
        shown["artifacts"] = [_artifact(artifact) for artifact in task.artifacts]
    said = task.messages if history is None else task.messages[len(task.messages) - min(history, len(task.messages)) :]
    if said:
        shown["history"] = [_message(task, message) for message in said]
    if task.aim is not None:
        shown["metadata"] = {"skill": task.aim.skill}
    return shown


def _status(task: Task, when: When) -> dict[str, Any]:
    """The state, when it began, and what goes with it: the open question, or the reason of an end."""
    status: dict[str, Any] = {"state": STATES[task.state], "timestamp": iso(when(task.changed))}
    last = task.messages[-1] if task.messages else None
    if task.settled and last is not None and last.by != "owner":
        status["message"] = _message(task, last)
    elif task.reason:
        said: tuple[Part, ...] = (parts.text(task.reason),)
        reason = Message(id=f"{task.id}-{task.state}", by="node", at=task.changed, parts=said)
        status["message"] = _message(task, reason)
    return status


def _message(task: Task, message: Message) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "kind": "message",
        "role": "user" if message.by == "owner" else "agent",
        "messageId": message.id,
        "parts": list(message.parts),
        "taskId": task.id,
        "contextId": task.context,
    }
    if message.metadata:
        shown["metadata"] = message.metadata
    return shown


def _artifact(artifact: Artifact) -> dict[str, Any]:
    named = {"name": artifact.name} if artifact.name else {}
    return {"artifactId": artifact.id, **named, "parts": list(artifact.parts)}


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What a card says. `url` is where JSON-RPC answers; `secured`: whether a bearer token is demanded there."""

    name: str
    description: str
    url: str
    version: str
    skills: Sequence[Skill]
    secured: bool
    mutual_tls: bool = False
    provider: str = ""
    provider_url: str = ""


def card(facts: Card, *, early: bool = False) -> bytes:
    """The agent card (§2.3): 0.3 with the keys of 1.0 beside them; with `early` also the oldest one's (G51)."""
    interface = {"url": facts.url, "transport": "JSONRPC"}
    shown: dict[str, Any] = {
        "protocolVersion": VERSION,
        "name": facts.name,
        "description": facts.description,
        "url": facts.url,
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [interface],
        "supportedInterfaces": [{"url": facts.url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}],
        "version": facts.version,
        "capabilities": {"streaming": False, "pushNotifications": False, "stateTransitionHistory": False},
        "defaultInputModes": list(INPUT_MODES),
        "defaultOutputModes": list(OUTPUT_MODES),
        "skills": [_skill(skill) for skill in facts.skills[:CARD_SKILLS]],
        "supportsAuthenticatedExtendedCard": False,
    }
    if facts.provider:
        shown["provider"] = {"organization": facts.provider, "url": facts.provider_url or facts.url}
    if facts.secured:
        shown |= _security(mutual_tls=facts.mutual_tls)
    if early:
        shown["authentication"] = {"schemes": ["bearer"] if facts.secured else []}
    return dumps(shown)


def _security(*, mutual_tls: bool) -> dict[str, Any]:
    """Schemes with the keys of both generations in them; every SDK we ran reads that. One of them is enough."""
    schemes: dict[str, Any] = {
        "bearer": {"type": "http", "scheme": "bearer", "httpAuthSecurityScheme": {"scheme": "bearer"}}
    }
    if mutual_tls:
        schemes["certificate"] = {"type": "mutualTLS", "mtlsSecurityScheme": {}}
    return {
        "securitySchemes": schemes,
        "security": [{name: []} for name in schemes],
        "securityRequirements": [{"schemes": {name: {"list": []}}} for name in schemes],
    }


def _skill(skill: Skill) -> dict[str, Any]:
    cap = skill.cap
    accepts = sorted(grammar.usage(cap))
    unit = f" in {cap.unit}" if cap.unit else ""
    return {
        "id": skill.id,
        "name": grammar.name(skill),
        "description": f"{cap.title} of {skill.device_name}{unit}. Say: {skill.id} {' | '.join(accepts)}",
        "tags": sorted({cap.kind, cap.device_class, "device"} - {""}),
        "examples": [f"{skill.id} {word}" for word in accepts if not word.startswith("<")][:3],
        "inputModes": list(INPUT_MODES),
        "outputModes": list(OUTPUT_MODES),
    }


def etag(body: bytes) -> str:
    """A strong validator of a card."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'
