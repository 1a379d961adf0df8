"""The task engine: a pure step function on (task, step, moment) → task and effects (design D7).

One engine for every protocol; AUN, A2A, AIP and early A2A are Views over its ten states (agent-protocols §4.1).
`apply` never waits, never stores and never sends: the service commits the task first and then does what the
effects say.

A history is legal in every protocol at once. A task that jumps (a quick reading is completed before anybody said
"accepted") passes the states between, because AIP knows no edge from nothing to completed, nor from a waiting
state to failed (§4.4 trap 10).

Whether `delivered` (products are out, the owner has yet to say yes) exists is decided by the owner's protocol
(§4.4 trap 2): the task carries it as `verdict`.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from edge.contract.errors import (
    EdgeError,
    OutputTooLarge,
    TaskAccessDenied,
    TaskAlreadyAccepted,
    TaskCanceled,
    TaskFailed,
    TaskInputRequired,
    TaskNotCancelable,
    TaskRejected,
    TaskStateInvalid,
)
from edge.contract.time import SECOND, Stamp
from edge.contract.wire import dumps

Part = dict[str, Any]
"""One piece of content, in the form of A2A 0.3: `{"kind": "text"|"data"|"file", …, "metadata"?}`."""


class State(enum.StrEnum):
    """Where a task is (agent-protocols §4.1)."""

    QUEUED = "queued"
    ACCEPTED = "accepted"
    WORKING = "working"
    NEED_INPUT = "need_input"
    NEED_AUTH = "need_auth"
    DELIVERED = "delivered"
    COMPLETED = "completed"
    CANCELED = "canceled"
    FAILED = "failed"
    REJECTED = "rejected"


FINAL = frozenset({State.COMPLETED, State.CANCELED, State.FAILED, State.REJECTED})
WAITING = frozenset({State.NEED_INPUT, State.NEED_AUTH})
STARTED = frozenset({State.WORKING, *WAITING, State.DELIVERED})


class Role(enum.Flag):
    """What the caller is to the task; somebody may be both."""

    NONE = 0
    OWNER = enum.auto()
    ASSIGNEE = enum.auto()


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something said about a task. `by` is `owner`, `assignee` or `node`.

    `source` is the JSON value as the caller's protocol wrote it, where that is not a part list (AUN).
    """

    id: str
    by: str
    at: Stamp
    parts: tuple[Part, ...]
    metadata: dict[str, Any] = {}
    source: Any = None


class Artifact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A product. Chunks are appended to `parts` until `closed`; `source` as in `Message`."""

    id: str
    parts: tuple[Part, ...]
    name: str = ""
    closed: bool = True
    source: Any = None


class Patience(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long a task may stand still, in µs: not finished, without input, without verdict, not stopped."""

    work: int = 3600 * SECOND
    input: int = 86400 * SECOND
    verdict: int = 86400 * SECOND
    stop: int = 10 * SECOND


class Aim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the node is to do for a task it executes itself: a skill, a verb, a value or free params."""

    skill: str
    verb: str = ""
    value: Any = None
    params: dict[str, Any] = {}
    repeat_safe: bool = False
    native: bool = False
    cancellable: bool = False


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task. The primary key is ours; names that a foreign protocol chose are mapped to it elsewhere.

    dialect: the protocol it was born in (`aun`, `a2a/0.3`, `edge`, …). owner, assignee: AIDs. by_node: the node
    executes it through the device gate; otherwise the assignee moves it by calls. aim: what the node does, None
    until a skill is named. sent: the intent to act is committed. stopping: the device was asked to stop.
    due: when `Tick` is due. output: bytes of all artifacts as compact JSON. limit: how many there may be.
    """

    id: str
    dialect: str
    owner: str
    assignee: str
    visibility: str = "private"
    participants: tuple[str, ...] = ()
    parent: str = ""
    root: str = ""
    depth: int = 0
    context: str = ""
    verdict: bool = False
    by_node: bool = False
    aim: Aim | None = None
    patience: Patience = Patience()
    limit: int = 262_144

    state: State = State.QUEUED
    reason: str = ""
    sent: bool = False
    stopping: bool = False
    device_seq: int = 0
    output: int = 0
    made: Stamp = Stamp(0, 0)
    changed: Stamp = Stamp(0, 0)
    due: Stamp | None = None
    messages: tuple[Message, ...] = ()
    artifacts: tuple[Artifact, ...] = ()

    @property
    def final(self) -> bool:
        """Whether it is over for good."""
        return self.state in FINAL

    @property
    def settled(self) -> bool:
        """Whether there is nothing to wait for: it is over, or it is the caller's turn."""
        return self.state in FINAL or self.state in WAITING

    def role(self, aid: str) -> Role:
        """What `aid` is to this task."""
        owner = Role.OWNER if aid == self.owner else Role.NONE
        return owner | (Role.ASSIGNEE if aid == self.assignee else Role.NONE)


# Steps: what may happen to a task.


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """A task comes to be. With `refusal` it is rejected at once, with `question` it waits for input, with `hold`
    it is kept for a device that sleeps."""

    task: Task
    refusal: str = ""
    question: Message | None = None
    hold: bool = False


class Accept(msgspec.Struct, frozen=True, kw_only=True):
    """The assignee takes it and starts."""

    role: Role


class Reject(msgspec.Struct, frozen=True, kw_only=True):
    """The assignee does not want it."""

    role: Role
    reason: str = ""


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A participant says something: the owner answers or adds, the assignee asks (aun-services Q-4).

    `aim` or `question` go with input to a task of the node that had no skill yet.
    """

    role: Role
    message: Message
    aim: Aim | None = None
    question: Message | None = None
    hold: bool = False


class Complete(msgspec.Struct, frozen=True, kw_only=True):
    """The assignee delivers."""

    role: Role
    artifacts: tuple[Artifact, ...] = ()


class Confirm(msgspec.Struct, frozen=True, kw_only=True):
    """The owner is content with what was delivered."""

    role: Role


class Fail(msgspec.Struct, frozen=True, kw_only=True):
    """The assignee gives up."""

    role: Role
    reason: str = ""


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    """The owner does not want it any more."""

    role: Role
    reason: str = ""


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """A device says how it goes. `seq` is its own number; what is not above the last one is a repeat."""

    state: State
    seq: int = 0
    reason: str = ""
    message: Message | None = None
    artifact: Artifact | None = None
    append: bool = False


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """The device woke up, or with `restart` the node did: hand over what the device may not have yet (design D7).

    What was sent before goes out again only where that is safe: to native devices, which know the task by its id,
    and after a restart to capabilities that are repeat-safe.
    """

    restart: bool = False


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """The node cannot know any more what became of it."""

    reason: str = "outcome_unknown"


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """The deadline has come."""


Step = Create | Accept | Reject | Input | Complete | Confirm | Fail | Cancel | Reported | Send | Lost | Tick


# Effects: what the service does once the task is on disk.


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """An event to number, keep and tell: `kind` is `state`, `message` or `artifact`."""

    kind: str
    state: State
    reason: str = ""
    message: Message | None = None
    artifact: Artifact | None = None
    append: bool = False


class Deliver(msgspec.Struct, frozen=True, kw_only=True):
    """Give the order to the device."""

    again: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Give the owner's words to the device."""

    message: Message


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the device to stop."""


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """Tick at `due`; None: no more ticks."""

    due: Stamp | None


Effect = Happened | Deliver | Answer | Stop | Arm


def apply(task: Task | None, step: Step, at: Stamp) -> tuple[Task, list[Effect]]:
    """Take one step. The same task and no effects when the step says nothing new.

    Raises a `TaskError` when the move is not in the table of the state, the step and the caller's role
    (aun-services §1.8); the task is then unchanged.
    """
    if isinstance(step, Create):
        return _create(step, at)
    if task is None:
        raise TaskStateInvalid("there is no task yet")
    turn = _Turn(task, at)
    match step:
        case Accept():
            _accept(turn, step)
        case Reject():
            _reject(turn, step)
        case Input():
            _input(turn, step)
        case Complete():
            _complete(turn, step)
        case Confirm():
            _confirm(turn, step)
        case Fail():
            _fail(turn, step)
        case Cancel():
            _cancel(turn, step)
        case Reported():
            _reported(turn, step)
        case Send():
            _send(turn, step)
        case Lost():
            _lost(turn, step)
        case Tick():
            _tick(turn)
    return turn.done()


class _Turn:
    """One application of one step: the task as it becomes, and the effects so far."""

    def __init__(self, task: Task, at: Stamp) -> None:
        self.before, self.task, self.at = task, task, at
        self.effects: list[Effect] = []

    def set(self, **fields: object) -> None:
        self.task = msgspec.structs.replace(self.task, **fields)

    def to(self, state: State, reason: str = "", message: Message | None = None) -> None:
        """Move to `state`; the message goes into the history."""
        self.set(state=state, reason=reason, stopping=self.task.stopping and state not in FINAL)
        if message is not None:
            self.set(messages=(*self.task.messages, message))
        self.effects.append(Happened(kind="state", state=state, reason=reason, message=message))

    def through(self, *states: State) -> None:
        """Pass the states of `states` that lie ahead, so that the history stays legal."""
        for state in states:
            if _RANK[self.task.state] < _RANK[state]:
                self.to(state)

    def say(self, message: Message) -> None:
        """Keep what was said without moving."""
        self.set(messages=(*self.task.messages, message))
        self.effects.append(Happened(kind="message", state=self.task.state, message=message))

    def fail(self, reason: str, message: Message | None = None) -> None:
        """End badly: through working, since nothing else may fail (AIP)."""
        if self.task.state is not State.WORKING:
            self.through(State.ACCEPTED)
            self.to(State.WORKING)
        self.to(State.FAILED, reason, message)

    def finish(self, message: Message | None = None) -> None:
        """End well, or wait for the owner's verdict where the owner's protocol has one."""
        self.through(State.ACCEPTED, State.WORKING)
        self.to(State.DELIVERED if self.task.verdict else State.COMPLETED, "", message)

    def ask(self, question: Message | None, state: State = State.NEED_INPUT) -> None:
        """It is the owner's turn."""
        if self.task.state is state:
            if question is not None:
                self.say(question)
            return
        self.through(State.ACCEPTED, State.WORKING)
        if self.task.state is State.DELIVERED:
            self.to(State.WORKING)
        self.to(state, "", question)

    def send(self, *, again: bool = False) -> None:
        """Commit the intent to act; the order leaves after the commit."""
        self.set(sent=True)
        self.effects.append(Deliver(again=again))

    def put(self, artifact: Artifact, *, append: bool = False) -> None:
        """Add an artifact, replace the one with its id, or append a chunk to it."""
        known = [a for a in self.task.artifacts if a.id == artifact.id]
        whole = artifact
        if known and append:
            whole = msgspec.structs.replace(known[0], parts=known[0].parts + artifact.parts, closed=artifact.closed)
        kept = tuple(whole if a.id == artifact.id else a for a in self.task.artifacts)
        artifacts = kept if known else (*kept, whole)
        output = sum(octets(a) for a in artifacts)
        if output > self.task.limit:
            raise OutputTooLarge(data={"max": self.task.limit})
        self.set(artifacts=artifacts, output=output)
        happened = Happened(kind="artifact", state=self.task.state, artifact=artifact, append=bool(known and append))
        self.effects.append(happened)

    def done(self) -> tuple[Task, list[Effect]]:
        """Date the task and arm its next deadline if anything happened."""
        if not self.effects:
            return self.task, []
        self.set(changed=self.at)
        due = self._due()
        if due != self.before.due:
            self.set(due=due)
            self.effects.append(Arm(due=due))
        return self.task, self.effects

    def _due(self) -> Stamp | None:
        task, patience = self.task, self.task.patience
        if task.final:
            return None
        if task.stopping and self.before.stopping:
            return task.due
        if task.stopping:
            wait = patience.stop
        elif task.state in WAITING:
            wait = patience.input
        elif task.state is State.DELIVERED:
            wait = patience.verdict
        else:
            wait = patience.work
        return Stamp(self.at.boot, self.at.mono_us + wait)


_RANK = {state: rank for rank, state in enumerate(State)}


def octets(artifact: Artifact) -> int:
    """What an artifact counts: bytes of its compact JSON, as its protocol wrote it."""
    return len(dumps(artifact.source if artifact.source is not None else artifact.parts))


def over(state: State) -> EdgeError:
    """The error for acting on a task that is over (aun-services §1.8 and K-3)."""
    match state:
        case State.CANCELED:
            return TaskCanceled()
        case State.REJECTED:
            return TaskRejected()
        case State.FAILED:
            return TaskFailed()
        case _:
            return TaskStateInvalid(f"the task is {state}")


def _create(step: Create, at: Stamp) -> tuple[Task, list[Effect]]:
    turn = _Turn(msgspec.structs.replace(step.task, made=at, changed=at), at)
    turn.effects.append(Happened(kind="state", state=State.QUEUED))
    if step.refusal:
        turn.to(State.REJECTED, step.refusal)
    elif step.question is not None:
        turn.ask(step.question)
    elif step.hold:
        turn.to(State.ACCEPTED)
    elif step.task.by_node:
        turn.send()
    return turn.done()


def _only(turn: _Turn, role: Role, wanted: Role) -> None:
    """Only `wanted` may do this."""
    if not role & wanted:
        who = "owner" if wanted is Role.OWNER else "assignee"
        raise TaskAccessDenied(f"only the {who} of the task may do this")


def _live(turn: _Turn) -> None:
    if turn.task.final:
        raise over(turn.task.state)


def _accept(turn: _Turn, step: Accept) -> None:
    _only(turn, step.role, Role.ASSIGNEE)
    _live(turn)
    if turn.task.state is not State.QUEUED:
        raise TaskAlreadyAccepted
    turn.through(State.ACCEPTED, State.WORKING)


def _reject(turn: _Turn, step: Reject) -> None:
    _only(turn, step.role, Role.ASSIGNEE)
    _live(turn)
    if turn.task.state is not State.QUEUED:
        raise TaskStateInvalid("the task is already accepted")
    turn.to(State.REJECTED, step.reason)


def _input(turn: _Turn, step: Input) -> None:
    _live(turn)
    if not step.role:
        raise TaskAccessDenied
    if not step.role & Role.OWNER:
        _question(turn, step.message)
    elif turn.task.by_node and turn.task.aim is None:
        _aim(turn, step)
    elif turn.task.state in WAITING or turn.task.state is State.DELIVERED:
        turn.to(State.WORKING, "", step.message)
        _pass_on(turn, step.message)
    else:
        turn.say(step.message)
        _pass_on(turn, step.message)


def _question(turn: _Turn, message: Message) -> None:
    """The assignee asks: it must have taken the task first, and not delivered it yet."""
    if turn.task.state in (State.ACCEPTED, State.WORKING, *WAITING):
        turn.ask(message, turn.task.state if turn.task.state in WAITING else State.NEED_INPUT)
    else:
        raise TaskStateInvalid(f"no question while the task is {turn.task.state}")


def _aim(turn: _Turn, step: Input) -> None:
    """The owner names the skill at last, or still does not."""
    turn.to(State.WORKING, "", step.message)
    if step.aim is None:
        turn.ask(step.question)
        return
    turn.set(aim=step.aim)
    if not step.hold:
        turn.send()


def _pass_on(turn: _Turn, message: Message) -> None:
    if turn.task.by_node and turn.task.sent:
        turn.effects.append(Answer(message=message))


def _complete(turn: _Turn, step: Complete) -> None:
    _only(turn, step.role, Role.ASSIGNEE)
    _live(turn)
    if turn.task.state in WAITING:
        raise TaskInputRequired
    if turn.task.state not in (State.ACCEPTED, State.WORKING):
        raise TaskStateInvalid(f"the task is {turn.task.state}")
    for artifact in step.artifacts:
        turn.put(artifact)
    turn.finish()


def _confirm(turn: _Turn, step: Confirm) -> None:
    _only(turn, step.role, Role.OWNER)
    _live(turn)
    if turn.task.state is not State.DELIVERED:
        raise TaskStateInvalid("nothing was delivered yet")
    turn.to(State.COMPLETED)


def _fail(turn: _Turn, step: Fail) -> None:
    _only(turn, step.role, Role.ASSIGNEE)
    _live(turn)
    if turn.task.state is State.QUEUED:
        raise TaskStateInvalid("the task is not accepted yet")
    turn.fail(step.reason)


def _cancel(turn: _Turn, step: Cancel) -> None:
    """A physical actuator is not transactional (agent-protocols §4.4 trap 17): what runs is asked to stop first."""
    _only(turn, step.role, Role.OWNER)
    _live(turn)
    task = turn.task
    if not (task.by_node and task.sent):
        turn.to(State.CANCELED, step.reason)
    elif task.stopping:
        return
    elif task.aim is not None and task.aim.cancellable:
        turn.set(stopping=True, reason=step.reason)
        turn.effects.append(Stop())
    else:
        raise TaskNotCancelable("the command is on its way and this device cannot stop it")


def _reported(turn: _Turn, step: Reported) -> None:
    task = turn.task
    if task.final or not task.by_node or (step.seq and step.seq <= task.device_seq):
        return
    if step.seq:
        turn.set(device_seq=step.seq)
    if step.artifact is not None:
        try:
            turn.put(step.artifact, append=step.append)
        except OutputTooLarge:
            turn.fail("output too large")
            return
    match step.state:
        case State.ACCEPTED | State.WORKING:
            _progress(turn, step)
        case State.NEED_INPUT | State.NEED_AUTH:
            turn.ask(step.message, step.state)
        case State.DELIVERED | State.COMPLETED:
            if task.state is not State.DELIVERED:
                turn.finish(step.message)
        case State.REJECTED if task.state is State.QUEUED:
            turn.to(State.REJECTED, step.reason, step.message)
        case State.CANCELED:
            turn.to(State.CANCELED, step.reason or task.reason, step.message)
        case _:
            turn.fail(step.reason, step.message)


def _progress(turn: _Turn, step: Reported) -> None:
    """Accepted and working only lead on; out of a question the device goes back to work by itself."""
    task = turn.task
    if _RANK[task.state] < _RANK[step.state]:
        turn.through(State.ACCEPTED)
        if step.state is State.WORKING:
            turn.to(State.WORKING, "", step.message)
            return
    elif step.state is State.WORKING and task.state in WAITING:
        turn.to(State.WORKING, "", step.message)
        return
    if step.message is not None:
        turn.say(step.message)


def _send(turn: _Turn, step: Send) -> None:
    task = turn.task
    if task.final or not task.by_node or task.aim is None:
        return
    if not task.sent:
        turn.send()
    elif task.aim.native or (step.restart and task.aim.repeat_safe):
        turn.send(again=True)


def _lost(turn: _Turn, step: Lost) -> None:
    if not turn.task.final:
        turn.fail(step.reason)


def _tick(turn: _Turn) -> None:
    task = turn.task
    if task.due is None or (task.due.boot == turn.at.boot and turn.at < task.due):
        return
    if task.stopping:
        turn.to(State.CANCELED, "stop was sent, the device did not confirm it")
    elif task.state in WAITING:
        turn.to(State.CANCELED, "expired: no input came")
    elif task.state is State.DELIVERED:
        turn.to(State.COMPLETED, "no verdict came")
    elif task.state is State.WORKING:
        turn.fail("expired: no result came")
    elif task.sent:
        turn.fail("expired: sent, but the device never answered")
    else:
        turn.to(State.CANCELED, "expired: nobody took it")
