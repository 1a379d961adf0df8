"""The task engine: a pure step function on (task, step, moment) → task and effects (design D7).

`apply` never waits, never stores and never sends: the service commits the task first and then does what the
effects say.

A history is legal in every protocol at once. A task that jumps (a quick reading is completed before anybody said
"accepted") passes the states between, because AIP knows no edge from nothing to completed, nor from a waiting
state to failed (agent-protocols §1.3, §4.4 trap 10).
"""

from __future__ import annotations

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
from edge.contract.time import Stamp
from edge.contract.wire import dumps
from edge.protocol.task import (
    FINAL,
    WAITING,
    Accept,
    Answer,
    Arm,
    Artifact,
    Cancel,
    Complete,
    Confirm,
    Create,
    Deliver,
    Effect,
    Fail,
    Happened,
    Input,
    Lost,
    Message,
    Reject,
    Reported,
    Role,
    Send,
    State,
    Step,
    Stop,
    Task,
)


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
        case _:
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

    def work(self) -> None:
        """Be at work, whence everything leads on; by way of accepted, so that the history stays legal."""
        if self.task.state is State.QUEUED:
            self.to(State.ACCEPTED)
        if self.task.state is not State.WORKING:
            self.to(State.WORKING)

    def say(self, message: Message) -> None:
        """Keep what was said without moving."""
        self.set(messages=(*self.task.messages, message))
        self.effects.append(Happened(kind="message", state=self.task.state, message=message))

    def fail(self, reason: str, message: Message | None = None) -> None:
        """End badly: through working, since nothing else may fail (AIP)."""
        self.work()
        self.to(State.FAILED, reason, message)

    def finish(self, message: Message | None = None, reason: str = "") -> None:
        """End well, or wait for the owner's verdict where the owner's protocol has one."""
        self.work()
        self.to(State.DELIVERED if self.task.verdict else State.COMPLETED, reason, message)

    def ask(self, question: Message | None, state: State = State.NEED_INPUT) -> None:
        """It is the owner's turn."""
        if self.task.state is state:
            if question is not None:
                self.say(question)
            return
        self.work()
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
        elif task.held:
            wait = patience.hold
        else:
            wait = patience.work
        return Stamp(self.at.boot, self.at.mono_us + wait)


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
    turn.work()


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
        if task.state in (State.QUEUED, State.ACCEPTED):
            turn.work()
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
                turn.finish(step.message, step.reason)
        case State.REJECTED if turn.task.state is State.QUEUED:
            turn.to(State.REJECTED, step.reason, step.message)
        case State.CANCELED:
            turn.to(State.CANCELED, step.reason or task.reason, step.message)
        case _:
            turn.fail(step.reason, step.message)


def _progress(turn: _Turn, step: Reported) -> None:
    """Accepted and working only lead on; out of a question the device goes back to work by itself."""
    state = turn.task.state
    if step.state is State.WORKING and state not in (State.WORKING, State.DELIVERED):
        if state is State.QUEUED:
            turn.to(State.ACCEPTED)
        turn.to(State.WORKING, "", step.message)
    elif step.state is State.ACCEPTED and state is State.QUEUED:
        turn.to(State.ACCEPTED, "", step.message)
    elif step.message is not None:
        turn.say(step.message)


def _send(turn: _Turn, step: Send) -> None:
    task = turn.task
    if task.final or not task.by_node or task.aim is None:
        return
    if not task.sent:
        turn.send()
    elif step.restart and (task.aim.native or task.aim.repeat_safe):
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
    elif task.held:
        turn.fail("device_offline")
    elif task.state is State.WORKING:
        turn.fail("expired: no result came")
    elif task.sent:
        turn.fail("expired: sent, but the device never answered")
    else:
        turn.to(State.CANCELED, "expired: nobody took it")
