"""Messages to device and service AIDs are understood (settled G19).

An automaton reads its inbox like anybody, behind a cursor, so nothing is forgotten by a restart: text by the fixed
grammar and `{skill, params}` become a task, whose result is answered; anything else is answered by what is
understood. Answers carry `reply_to` and `auto: true`; a message with `auto: true` is never answered. What came sealed
is answered sealed.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from edge.contract.errors import EdgeError, RecipientsStale, Unavailable
from edge.contract.event import Event, Fanout
from edge.contract.op import Calls, Spawn
from edge.contract.principal import AGENT_SCOPES, NODE, Kind, Principal
from edge.contract.store import Store, Unit
from edge.contract.task import DeviceGate
from edge.contract.time import SECOND, Clock, later
from edge.contract.wire import decode
from edge.protocol import aid as aids
from edge.protocol import grammar, parts
from edge.protocol.aun_events import Delivery
from edge.services.message.letters import Letters
from edge.services.message.memory import acknowledged
from edge.store import messages
from edge.store.messages import ENCRYPTED, RECALLED, Message, Owed, Reader

logger = logging.getLogger(__name__)

RETRY_US = 5 * SECOND
"""How long what the store refused waits for another try."""
FINAL = frozenset({"completed", "failed", "canceled", "rejected"})

SEALED = (
    "This message is encrypted in a way that nothing here can read: send it as the current SDK does, or plain "
    "(`encrypt` false, `--no-encrypt`)."
)

Reply = Callable[[str, str, str, Mapping[str, Any]], Awaitable[None]]
"""Send a payload: from which AID, to whom, under which message id."""


class Automata:
    """Answers for devices and services."""

    def __init__(
        self,
        node: Store,
        clock: Clock,
        gate: DeviceGate,
        calls: Calls,
        spawn: Spawn,
        fanout: Fanout,
        issuer: str,
        reply: Reply,
        letters: Letters,
    ) -> None:
        self._clock, self._stopped = clock, False
        self._node, self._gate, self._calls, self._spawn, self._fanout = node, gate, calls, spawn, fanout
        self._reply, self._letters = reply, letters
        self._services = {f"{name}.{issuer}" for name in (*aids.SERVICES, "gateway")}
        self._callers: dict[tuple[str, int], Principal] = {}
        self._reading: set[str] = set()
        self._again: set[str] = set()
        self._due: dict[str, Owed] = {}

    def start(self) -> None:
        """Take up what the last run left: unread inboxes, answers that are due."""
        self._fanout.watch("task", None, self._task_moved)
        self._spawn(self._resume())

    def stop(self) -> None:
        """Nothing is tried again."""
        self._stopped = True

    def received(self, message: Delivery, seq: int, who: Principal) -> None:
        """A message is on disk in its inbox."""
        if message.to in self._services or any(skill.aid == message.to for skill in self._gate.skills()):
            self._callers[message.to, seq] = who
            self._wake(message.to)

    async def _resume(self) -> None:
        try:
            due = await self._node.read(messages.owed)
        except Unavailable as error:
            self.later(self._resume, error)
            return
        for owed in due:
            self._due[owed.task_id] = owed
            await self._settle(owed.task_id)
        for aid in sorted(self._services | {skill.aid for skill in self._gate.skills()}):
            self._wake(aid)

    def later(self, work: Callable[[], Coroutine[Any, Any, None]], error: Unavailable) -> None:
        """The store takes nothing, or says nothing, for now: what was to be done is done when it does."""
        logger.warning("messages wait for the store: %s", error)
        if not self._stopped:
            later(self._clock, RETRY_US, lambda: self._spawn(work()))

    async def _read_again(self, aid: str) -> None:
        self._wake(aid)

    def _wake(self, aid: str) -> None:
        if aid in self._reading:
            self._again.add(aid)
            return
        self._reading.add(aid)
        self._spawn(self._read(aid))

    async def _read(self, aid: str) -> None:
        """Read an inbox to its end, message by message; the cursor follows what is dealt with."""
        reader = Reader(aid)
        try:
            while True:
                self._again.discard(aid)
                rows = await self._node.read(lambda unit: _unread(unit, reader))
                if not rows and aid not in self._again:
                    return
                for row in rows:
                    await self._take(row, self._callers.get((aid, row.seq)))
                    self._callers.pop((aid, row.seq), None)
        except Unavailable as error:
            self.later(lambda: self._read_again(aid), error)
        finally:
            self._reading.discard(aid)

    async def _take(self, row: Message, who: Principal | None) -> None:
        sealed = bool(row.flags & ENCRYPTED)
        payload = await self._letters.open(row) if sealed else decode(row.payload, dict[str, Any])
        silent = (payload or {}).get("auto") is True or row.flags & RECALLED or not _from_agent(row.sender)
        owed = None
        if not silent:
            who = who or Principal(Kind.AGENT, row.sender, AGENT_SCOPES, "aun")
            owed = await self._understand(row, payload, who)
        await self._node.commit(lambda unit: _taken(unit, row, owed))
        if owed is not None:
            self._due[owed.task_id] = owed
            await self._settle(owed.task_id)

    async def _understand(self, row: Message, payload: dict[str, Any] | None, who: Principal) -> Owed | None:
        """Make a task of a message, or answer it at once. Without a payload it could not be opened."""
        skills = [skill for skill in self._gate.skills() if row.aid in self._services or skill.aid == row.aid]
        said = None if payload is None else _said(payload)
        sealed = payload is not None and bool(row.flags & ENCRYPTED)
        try:
            if said is not None and grammar.aim(said, {}, skills) is not None:
                key = hashlib.sha256(f"{row.aid}|{row.seq}".encode()).hexdigest()[:32]
                task = {"to": row.aid, "input": {"type": "parts", "parts": list(said)}, "idempotency_key": key}
                made = await self._calls.call("task.create", task, who)
                return Owed(_field(made, "task_id"), row.aid, row.sender, row.message_id, sealed)
            answer = f"{SEALED}\n" * (payload is None) + parts.texts(grammar.question(skills))
        except Unavailable:
            raise
        except EdgeError as error:
            answer = error.message
        at_once = Owed("", row.aid, row.sender, row.message_id, sealed)
        await self._send(at_once, f"re-{_digest(row)}", {"text": answer})
        return None

    def _task_moved(self, event: Event) -> None:
        if event.key in self._due:
            self._spawn(self._settle(event.key))

    async def _settle(self, task_id: str) -> None:
        """Answer when the task is over, or when it asks; now, or once the store takes the answer."""
        owed = self._due.get(task_id)
        if owed is None:
            return
        try:
            await self._answer(task_id, owed)
        except Unavailable as error:
            self.later(lambda: self._settle(task_id), error)

    async def _answer(self, task_id: str, owed: Owed) -> None:
        """Answers with one id are sent once."""
        try:
            task = await self._calls.call("task.get", {"task_id": task_id}, NODE)
        except Unavailable:
            raise
        except EdgeError as error:
            task = {"status": "failed", "reason": error.message}
        status = str(task.get("status", ""))
        if status not in FINAL and status != "input_required":
            return
        final = status in FINAL
        body = _outcome(task) | {"task_id": task_id, "status": status}
        await self._send(owed, f"re-{task_id}" + ("" if final else "-ask"), body)
        if final and task_id in self._due:
            await self._node.commit(lambda unit: messages.paid(unit, task_id))
            self._due.pop(task_id, None)

    async def _send(self, owed: Owed, message_id: str, body: Mapping[str, Any]) -> None:
        payload = {"type": "text", **body, "reply_to": owed.message_id, "auto": True}
        try:
            try:
                await self._post(owed, message_id, payload)
            except RecipientsStale:  # another device of theirs has come meanwhile
                await self._post(owed, message_id, payload)
        except Unavailable:
            raise
        except EdgeError as error:
            logger.warning("answer of %s to %s was not accepted: %s", owed.aid, owed.sender, error)

    async def _post(self, owed: Owed, message_id: str, payload: Mapping[str, Any]) -> None:
        if owed.sealed:
            payload = await self._letters.seal(owed.aid, owed.sender, message_id, payload)
        await self._reply(owed.aid, owed.sender, message_id, payload)


def _unread(unit: Unit, reader: Reader) -> list[Message]:
    return messages.after(unit, reader, messages.cursor(unit, reader), rows=20, octets=1 << 20)[0]


def _taken(unit: Unit, row: Message, owed: Owed | None) -> None:
    now = messages.ack(unit, Reader(row.aid), row.seq)
    unit.emit(acknowledged(Reader(row.aid), row.sender, now, unit.wall_us // 1000))
    if owed is not None:
        messages.owe(unit, owed)


def _said(payload: Mapping[str, Any]) -> tuple[parts.Part, ...] | None:
    """What a payload says, as parts; None when an automaton cannot read its type. The SDK's command line names none."""
    kind, inner = payload.get("type"), payload.get("data")
    if kind in (None, "json", "data"):
        for found in (payload, inner):
            if isinstance(found, dict) and isinstance(found.get("skill"), str):
                return (parts.data({key: found[key] for key in ("skill", "params") if key in found}),)
    words = payload.get("text", payload.get("content"))
    if kind in (None, "text") and isinstance(words, str):
        return (parts.text(words),)
    return None


def _outcome(task: Mapping[str, Any]) -> dict[str, Any]:
    """The text and the artifacts that answer for a task."""
    artifacts = [found for found in task.get("artifacts", []) if isinstance(found, dict)]
    told = [found for found in task.get("messages", [])[-1:] if isinstance(found, dict)]
    said = artifacts or ([] if task.get("reason") else told)
    words = [str(found["content"]) for found in said if isinstance(found.get("content"), str)]
    text = "\n".join(word for word in words if word) or str(task.get("reason") or task.get("status", ""))
    return {"text": text, "artifacts": artifacts} if artifacts else {"text": text}


def _field(made: Any, name: str) -> str:
    return str(made[name] if isinstance(made, Mapping) else getattr(made, name))


def _digest(row: Message) -> str:
    return hashlib.sha256(f"{row.aid}|{row.seq}|{row.message_id}".encode()).hexdigest()[:32]


def _from_agent(sender: str) -> bool:
    """Devices do not talk to each other through us."""
    return not sender.startswith("d-")
