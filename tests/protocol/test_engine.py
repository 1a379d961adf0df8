from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge.contract.errors import (
    EdgeError,
    OutputTooLarge,
    TaskAccessDenied,
    TaskAlreadyAccepted,
    TaskCanceled,
    TaskError,
    TaskFailed,
    TaskInputRequired,
    TaskNotCancelable,
    TaskRejected,
    TaskStateInvalid,
)
from edge.contract.time import SECOND, Stamp
from edge.protocol.engine import apply
from edge.protocol.task import (
    FINAL,
    WAITING,
    Accept,
    Aim,
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
    Patience,
    Reject,
    Reported,
    Role,
    Send,
    State,
    Step,
    Stop,
    Task,
    Tick,
)

AT = Stamp(1, 1000 * SECOND)
AIM = Aim(skill="robot.clean", cancellable=True, native=True)
OWNER, ASSIGNEE, NONE = Role.OWNER, Role.ASSIGNEE, Role.NONE

LEGAL = {
    State.QUEUED: {State.ACCEPTED, State.REJECTED, State.CANCELED},
    State.ACCEPTED: {State.WORKING, State.CANCELED},
    State.WORKING: {State.NEED_INPUT, State.NEED_AUTH, State.DELIVERED, State.COMPLETED, State.FAILED, State.CANCELED},
    State.NEED_INPUT: {State.WORKING, State.CANCELED},
    State.NEED_AUTH: {State.WORKING, State.CANCELED},
    State.DELIVERED: {State.WORKING, State.COMPLETED, State.CANCELED},
}
"""Every edge that AIP (agent-protocols §1.3), A2A and AUN allow between the states; the final ones have none."""


def said(text: str = "hello", by: str = "owner") -> Message:
    return Message(id=text, by=by, at=AT, parts=({"kind": "text", "text": text},))


def made(text: str = "out", ident: str = "a1", closed: bool = True) -> Artifact:
    return Artifact(id=ident, parts=({"kind": "text", "text": text},), closed=closed)


def fresh(**fields: Any) -> Task:
    return Task(id="T", dialect="aun", owner="o", assignee="a", messages=(said(),), **fields)


def new(**fields: Any) -> Task:
    return apply(None, Create(task=fresh(**fields)), AT)[0]


def later(seconds: int = 1) -> Stamp:
    return Stamp(AT.boot, AT.mono_us + seconds * SECOND)


def states(effects: list[Effect]) -> list[State]:
    return [effect.state for effect in effects if isinstance(effect, Happened) and effect.kind == "state"]


def others(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if not isinstance(effect, Happened | Arm)]


def put(state: State, **fields: Any) -> Task:
    """A task that stands in `state`."""
    task, _ = apply(None, Create(task=fresh(**fields)), AT)
    return msgspec.structs.replace(task, state=state, due=None if state in FINAL else later(3600))


def agent(state: State) -> Task:
    return put(state, verdict=state is State.DELIVERED)


OVER = {
    State.COMPLETED: TaskStateInvalid,
    State.CANCELED: TaskCanceled,
    State.REJECTED: TaskRejected,
    State.FAILED: TaskFailed,
}
BAD = TaskStateInvalid
TABLE: dict[str, dict[State, Any]] = {
    "accept": {
        State.QUEUED: State.WORKING,
        **dict.fromkeys(
            (State.ACCEPTED, State.WORKING, State.NEED_INPUT, State.NEED_AUTH, State.DELIVERED), TaskAlreadyAccepted
        ),
    },
    "reject": {
        State.QUEUED: State.REJECTED,
        **dict.fromkeys((State.ACCEPTED, State.WORKING, State.NEED_INPUT, State.NEED_AUTH, State.DELIVERED), BAD),
    },
    "complete": {
        State.QUEUED: BAD,
        State.ACCEPTED: State.COMPLETED,
        State.WORKING: State.COMPLETED,
        State.NEED_INPUT: TaskInputRequired,
        State.NEED_AUTH: TaskInputRequired,
        State.DELIVERED: BAD,
    },
    "fail": {
        State.QUEUED: BAD,
        **dict.fromkeys(
            (State.ACCEPTED, State.WORKING, State.NEED_INPUT, State.NEED_AUTH, State.DELIVERED), State.FAILED
        ),
    },
    "cancel": dict.fromkeys(
        (State.QUEUED, State.ACCEPTED, State.WORKING, State.NEED_INPUT, State.NEED_AUTH, State.DELIVERED),
        State.CANCELED,
    ),
    "confirm": {
        **dict.fromkeys((State.QUEUED, State.ACCEPTED, State.WORKING, State.NEED_INPUT, State.NEED_AUTH), BAD),
        State.DELIVERED: State.COMPLETED,
    },
    "answer": {
        State.QUEUED: State.QUEUED,
        State.ACCEPTED: State.ACCEPTED,
        **dict.fromkeys((State.WORKING, State.NEED_INPUT, State.NEED_AUTH, State.DELIVERED), State.WORKING),
    },
    "question": {
        State.QUEUED: BAD,
        State.ACCEPTED: State.NEED_INPUT,
        State.WORKING: State.NEED_INPUT,
        State.NEED_INPUT: State.NEED_INPUT,
        State.NEED_AUTH: State.NEED_AUTH,
        State.DELIVERED: BAD,
    },
}
"""Every (state, method) of the role that has it: the state that follows, or the error (aun-services §1.8, K-1)."""

WHO = {"cancel": OWNER, "confirm": OWNER, "answer": OWNER}


def step(name: str, role: Role) -> Step:
    steps: dict[str, Step] = {
        "accept": Accept(role=role),
        "reject": Reject(role=role, reason="no"),
        "complete": Complete(role=role),
        "fail": Fail(role=role, reason="no"),
        "cancel": Cancel(role=role, reason="no"),
        "confirm": Confirm(role=role),
        "answer": Input(role=role, message=said("more")),
        "question": Input(role=role, message=said("which?", "assignee")),
    }
    return steps[name]


@pytest.mark.seed("S0-112")
@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("name", TABLE)
def test_every_move_has_its_state_or_its_error(name: str, state: State) -> None:
    task = agent(state)
    expected = OVER[state] if state in OVER else TABLE[name][state]
    move = step(name, WHO.get(name, ASSIGNEE))
    if isinstance(expected, State):
        after, effects = apply(task, move, later())
        assert after.state is expected
        check_path(state, effects)
        both, _ = apply(task, step(name, OWNER | ASSIGNEE), later())
        assert both.state is expected or name == "question"
    else:
        with pytest.raises(expected) as caught:
            apply(task, move, later())
        assert type(caught.value) is expected


@pytest.mark.parametrize("state", [state for state in State if state not in FINAL])
@pytest.mark.parametrize("name", ["accept", "reject", "complete", "fail", "cancel", "confirm"])
def test_the_wrong_participant_is_denied_in_every_state(name: str, state: State) -> None:
    wrong = OWNER if WHO.get(name, ASSIGNEE) is ASSIGNEE else ASSIGNEE
    for role in (wrong, NONE):
        with pytest.raises(TaskAccessDenied):
            apply(agent(state), step(name, role), later())
    with pytest.raises(TaskAccessDenied):
        apply(agent(state), step("answer", NONE), later())


def check_path(state: State, effects: list[Effect]) -> None:
    """The states of the effects follow each other by legal edges."""
    for following in states(effects):
        assert following in LEGAL[state], (state, following)
        state = following


def test_no_step_but_create_makes_a_task() -> None:
    with pytest.raises(TaskStateInvalid):
        apply(None, Accept(role=ASSIGNEE), AT)


def test_a_new_task_is_queued_dated_and_has_a_deadline() -> None:
    task, effects = apply(None, Create(task=fresh()), AT)
    assert (task.state, task.made, task.changed) == (State.QUEUED, AT, AT)
    assert task.due == later(3600)
    assert effects == [Happened(kind="state", state=State.QUEUED), Arm(due=later(3600))]
    assert (task.final, task.settled) == (False, False)
    assert task.role("o") is OWNER
    assert task.role("a") is ASSIGNEE
    assert task.role("x") is NONE


def test_a_task_of_the_node_is_delivered_with_its_intent_on_disk() -> None:
    task, effects = apply(None, Create(task=fresh(by_node=True, aim=AIM)), AT)
    assert task.sent is True
    assert others(effects) == [Deliver()]


def test_a_refused_task_is_rejected_and_has_no_deadline() -> None:
    task, effects = apply(None, Create(task=fresh(by_node=True, aim=AIM), refusal="offline"), AT)
    assert (task.state, task.reason, task.due) == (State.REJECTED, "offline", None)
    assert states(effects) == [State.QUEUED, State.REJECTED]
    assert task.settled


def test_a_task_without_a_skill_asks_and_takes_the_answer() -> None:
    question = said("which?", "node")
    task, effects = apply(None, Create(task=fresh(by_node=True), question=question), AT)
    assert states(effects) == [State.QUEUED, State.ACCEPTED, State.WORKING, State.NEED_INPUT]
    assert task.messages[-1] == question
    assert task.settled
    task, effects = apply(task, Input(role=OWNER, message=said("hm"), question=question), later())
    assert states(effects) == [State.WORKING, State.NEED_INPUT]
    kept, effects = apply(task, Input(role=OWNER, message=said("robot"), aim=AIM, hold=True), later())
    assert (kept.aim, kept.sent, others(effects)) == (AIM, False, [])
    sent, effects = apply(task, Input(role=OWNER, message=said("robot"), aim=AIM), later())
    assert (sent.aim, sent.sent, others(effects)) == (AIM, True, [Deliver()])
    assert sent.state is State.WORKING


def test_a_held_task_is_sent_once_and_again_only_where_that_is_safe() -> None:
    task, effects = apply(None, Create(task=fresh(by_node=True, aim=AIM), hold=True), AT)
    assert (task.state, task.sent, others(effects)) == (State.ACCEPTED, False, [])
    task, effects = apply(task, Send(), later())
    assert others(effects) == [Deliver()]
    assert apply(task, Send(), later()) == (task, [])
    assert others(apply(task, Send(restart=True), later())[1]) == [Deliver(again=True)]
    command = msgspec.structs.replace(task, aim=Aim(skill="s", repeat_safe=True))
    assert apply(command, Send(), later()) == (command, [])
    assert others(apply(command, Send(restart=True), later())[1]) == [Deliver(again=True)]
    toggle = msgspec.structs.replace(task, aim=Aim(skill="s"))
    assert apply(toggle, Send(restart=True), later()) == (toggle, [])
    for still in (put(State.COMPLETED, by_node=True, aim=AIM), put(State.QUEUED), put(State.QUEUED, by_node=True)):
        assert apply(still, Send(restart=True), later()) == (still, [])


def test_answers_go_to_the_device_that_has_the_task() -> None:
    task = new(by_node=True, aim=AIM)
    answer = said("first")
    assert others(apply(task, Input(role=OWNER, message=answer), later())[1]) == [Answer(message=answer)]
    asking = apply(task, Reported(state=State.NEED_INPUT, message=said("?", "assignee")), later())[0]
    after, effects = apply(asking, Input(role=OWNER, message=answer), later())
    assert (after.state, others(effects)) == (State.WORKING, [Answer(message=answer)])
    held = apply(None, Create(task=fresh(by_node=True, aim=AIM), hold=True), AT)[0]
    assert others(apply(held, Input(role=OWNER, message=answer), later())[1]) == []


# Cancel.


def test_a_device_at_work_is_asked_to_stop_before_the_task_is_canceled() -> None:
    task = new(by_node=True, aim=AIM)
    stopping, effects = apply(task, Cancel(role=OWNER, reason="enough"), later())
    assert (stopping.state, stopping.stopping, others(effects)) == (State.QUEUED, True, [Stop()])
    assert stopping.due == later(1 + 10)
    assert apply(stopping, Cancel(role=OWNER), later(2)) == (stopping, [])
    working, _ = apply(stopping, Reported(state=State.WORKING), later(5))
    assert (working.stopping, working.due) == (True, stopping.due)
    done, effects = apply(working, Reported(state=State.CANCELED), later(6))
    assert (done.state, done.stopping, done.due) == (State.CANCELED, False, None)
    assert Arm(due=None) in effects
    assert apply(stopping, Reported(state=State.CANCELED), later(6))[0].reason == "enough"
    late, _ = apply(stopping, Tick(), later(11))
    assert (late.state, late.reason) == (State.CANCELED, "stop was sent, the device did not confirm it")
    truth, _ = apply(stopping, Reported(state=State.COMPLETED), later(6))
    assert truth.state is State.COMPLETED


def test_what_cannot_be_stopped_is_not_cancelable_and_what_was_not_sent_is_canceled() -> None:
    command = Aim(skill="bell.ring")
    with pytest.raises(TaskNotCancelable):
        apply(new(by_node=True, aim=command), Cancel(role=OWNER), later())
    held, _ = apply(None, Create(task=fresh(by_node=True, aim=command), hold=True), AT)
    assert apply(held, Cancel(role=OWNER), later())[0].state is State.CANCELED
    odd = msgspec.structs.replace(new(by_node=True), sent=True)
    with pytest.raises(TaskNotCancelable):
        apply(odd, Cancel(role=OWNER), later())


# Devices.


@pytest.mark.parametrize("verdict", [False, True])
@pytest.mark.parametrize("product", [None, made()])
@pytest.mark.parametrize("state", [state for state in State if state not in FINAL])
@pytest.mark.parametrize("report", [state for state in State if state is not State.QUEUED])
def test_reports_move_by_legal_edges_only(report: State, state: State, product: Artifact | None, verdict: bool) -> None:
    task = put(state, by_node=True, aim=AIM, verdict=verdict)
    message = said("said", "assignee")
    step = Reported(state=report, seq=1, reason="why", message=message, artifact=product)
    after, effects = apply(task, step, later())
    check_path(state, effects)
    assert after.device_seq == 1
    assert apply(after, Reported(state=report, seq=1, message=message), later()) == (after, [])
    if report in (State.COMPLETED, State.DELIVERED):
        assert after.state is (State.DELIVERED if verdict or state is State.DELIVERED else State.COMPLETED)
    elif report is State.REJECTED:
        assert after.state is (State.REJECTED if state is State.QUEUED and product is None else State.FAILED)
    elif report in (State.FAILED, State.CANCELED, *WAITING):
        assert after.state is report
    elif report is State.WORKING and state is not State.DELIVERED:
        assert after.state is State.WORKING


def test_reports_about_agents_tasks_and_about_what_is_over_say_nothing() -> None:
    for task in (new(), put(State.COMPLETED, by_node=True, aim=AIM)):
        assert apply(task, Reported(state=State.FAILED, seq=9), later()) == (task, [])


def test_progress_without_news_is_silent_and_with_words_is_heard() -> None:
    task = put(State.WORKING, by_node=True, aim=AIM)
    assert apply(task, Reported(state=State.WORKING), later()) == (task, [])
    again, effects = apply(task, Reported(state=State.ACCEPTED, message=said("still", "assignee")), later())
    assert (again.state, [effect.kind for effect in effects if isinstance(effect, Happened)]) == (
        State.WORKING,
        ["message"],
    )
    silent, effects = apply(put(State.NEED_INPUT, by_node=True, aim=AIM), Reported(state=State.NEED_INPUT), later())
    assert (silent.state, effects) == (State.NEED_INPUT, [])
    queued, effects = apply(new(by_node=True, aim=AIM), Reported(state=State.ACCEPTED, message=said("ok")), later())
    assert (queued.state, len(queued.messages)) == (State.ACCEPTED, 2)


def test_a_device_may_say_how_it_came_to_an_end() -> None:
    done, _ = apply(new(by_node=True, aim=AIM), Reported(state=State.COMPLETED, reason="state_not_confirmed"), later())
    assert (done.state, done.reason) == (State.COMPLETED, "state_not_confirmed")


def test_chunks_are_appended_replaced_and_counted() -> None:
    task = put(State.WORKING, by_node=True, aim=AIM, limit=100)
    quick = Reported(state=State.COMPLETED, artifact=made())
    task, effects = apply(task, Reported(state=State.WORKING, artifact=made("a", closed=False), append=True), later())
    assert [effect.append for effect in effects if isinstance(effect, Happened)] == [False]
    task, effects = apply(task, Reported(state=State.WORKING, artifact=made("b"), append=True), later())
    [whole] = task.artifacts
    assert ([part["text"] for part in whole.parts], whole.closed) == (["a", "b"], True)
    kinds = [
        effect.kind for effect in apply(new(by_node=True, aim=AIM), quick, later())[1] if isinstance(effect, Happened)
    ]
    assert kinds == ["state", "state", "artifact", "state"]
    assert effects[0] == Happened(kind="artifact", state=State.WORKING, artifact=made("b"), append=True)
    task, _ = apply(task, Reported(state=State.WORKING, artifact=made("c")), later())
    assert task.artifacts == (made("c"),)
    task, _ = apply(task, Reported(state=State.WORKING, artifact=made("d", "a2")), later())
    assert [one.id for one in task.artifacts] == ["a1", "a2"]
    assert task.output == len(b'[{"kind":"text","text":"c"}]') * 2
    big, _ = apply(task, Reported(state=State.COMPLETED, artifact=made("x" * 90, "a3")), later())
    assert (big.state, big.reason, big.artifacts) == (State.FAILED, "output too large", task.artifacts)


def test_an_assignees_artifacts_count_as_its_protocol_wrote_them() -> None:
    source = {"id": "a", "type": "storage", "object_key": "k"}
    task = put(State.WORKING, limit=len(msgspec.json.encode(source)))
    artifact = Artifact(id="a", parts=(), source=source)
    done, _ = apply(task, Complete(role=ASSIGNEE, artifacts=(artifact,)), later())
    assert (done.state, done.output) == (State.COMPLETED, task.limit)
    with pytest.raises(OutputTooLarge):
        apply(task, Complete(role=ASSIGNEE, artifacts=(artifact, made())), later())


# The owner's verdict.


def test_delivered_exists_only_where_the_owners_protocol_has_a_verdict() -> None:
    task = put(State.WORKING, verdict=True)
    task, _ = apply(task, Complete(role=ASSIGNEE, artifacts=(made(),)), later())
    assert (task.state, task.settled) == (State.DELIVERED, False)
    assert apply(task, Confirm(role=OWNER), later())[0].state is State.COMPLETED
    assert apply(task, Input(role=OWNER, message=said("redo")), later())[0].state is State.WORKING


# Deadlines.


def test_deadlines_end_a_task_by_where_it_stands() -> None:
    patience = Patience(work=10 * SECOND, input=20 * SECOND, verdict=30 * SECOND)
    ends = {
        State.QUEUED: (10, State.CANCELED, "expired: nobody took it"),
        State.WORKING: (10, State.FAILED, "expired: no result came"),
        State.NEED_INPUT: (20, State.CANCELED, "expired: no input came"),
        State.DELIVERED: (30, State.COMPLETED, "no verdict came"),
    }
    moves: dict[State, list[Step]] = {
        State.QUEUED: [],
        State.WORKING: [Accept(role=ASSIGNEE)],
        State.NEED_INPUT: [Accept(role=ASSIGNEE), Input(role=ASSIGNEE, message=said("?", "assignee"))],
        State.DELIVERED: [Accept(role=ASSIGNEE), Complete(role=ASSIGNEE)],
    }
    for state, (seconds, end, reason) in ends.items():
        task = new(patience=patience, verdict=True)
        for move in moves[state]:
            task, _ = apply(task, move, AT)
        assert task.state is state
        assert task.due == later(seconds)
        assert apply(task, Tick(), Stamp(AT.boot, later(seconds).mono_us - 1)) == (task, [])
        after, effects = apply(task, Tick(), later(seconds))
        assert (after.state, after.reason, after.due) == (end, reason, None)
        check_path(state, effects)
        assert apply(after, Tick(), later(99)) == (after, [])
        assert apply(task, Tick(), Stamp(2, 0))[0].state is end


def test_an_order_for_a_device_that_is_offline_waits_longer_than_work_may_take() -> None:
    patience = Patience(work=10 * SECOND, hold=50 * SECOND)
    kept, _ = apply(None, Create(task=fresh(by_node=True, aim=AIM, patience=patience), hold=True), AT)
    assert (kept.state, kept.held, kept.due) == (State.ACCEPTED, True, later(50))
    after, effects = apply(kept, Tick(), later(50))
    assert (after.state, after.reason, after.held) == (State.FAILED, "device_offline", False)
    check_path(State.ACCEPTED, effects)
    sent, _ = apply(kept, Send(), later(20))
    assert (sent.held, sent.due) == (False, later(30))


def test_a_sent_task_without_an_answer_fails_by_a_legal_path() -> None:
    task = new(by_node=True, aim=AIM)
    after, effects = apply(task, Tick(), later(3600))
    assert (after.state, after.reason) == (State.FAILED, "expired: sent, but the device never answered")
    check_path(State.QUEUED, effects)


def test_an_unknown_outcome_fails_what_lives_and_leaves_the_rest() -> None:
    task, _ = apply(new(by_node=True, aim=AIM), Lost(), later())
    assert (task.state, task.reason) == (State.FAILED, "outcome_unknown")
    assert apply(task, Lost(), later()) == (task, [])


# Any order of steps.

STEPS = st.one_of(
    st.builds(Accept, role=st.sampled_from([OWNER, ASSIGNEE])),
    st.builds(Reject, role=st.sampled_from([OWNER, ASSIGNEE])),
    st.builds(Fail, role=st.sampled_from([OWNER, ASSIGNEE]), reason=st.just("no")),
    st.builds(Cancel, role=st.sampled_from([OWNER, ASSIGNEE])),
    st.builds(Confirm, role=st.sampled_from([OWNER, ASSIGNEE])),
    st.builds(Complete, role=st.sampled_from([OWNER, ASSIGNEE]), artifacts=st.sampled_from([(), (made(),)])),
    st.builds(
        Input,
        role=st.sampled_from([OWNER, ASSIGNEE, OWNER | ASSIGNEE]),
        message=st.just(said("more")),
        aim=st.sampled_from([None, AIM]),
    ),
    st.builds(
        Reported,
        state=st.sampled_from([state for state in State if state is not State.QUEUED]),
        seq=st.integers(0, 6),
        message=st.sampled_from([None, said("x", "assignee")]),
        artifact=st.sampled_from([None, made("x" * 60, closed=False)]),
        append=st.booleans(),
    ),
    st.builds(Send, restart=st.booleans()),
    st.just(Lost()),
    st.just(Tick()),
)


class TaskMachine(RuleBasedStateMachine):
    """Any steps in any order: histories stay legal, what is over stays over, promises about effects hold."""

    @initialize(
        by_node=st.booleans(),
        verdict=st.booleans(),
        aim=st.sampled_from([None, AIM, Aim(skill="bell.ring"), Aim(skill="lamp.power", repeat_safe=True)]),
        hold=st.booleans(),
    )
    def create(self, by_node: bool, verdict: bool, aim: Aim | None, hold: bool) -> None:
        self.now = AT
        self.delivered = 0
        self.path: list[State] = []
        by_node = by_node and aim is not None
        draft = fresh(by_node=by_node, verdict=verdict, aim=aim if by_node else None, limit=200)
        self.task, effects = apply(None, Create(task=draft, hold=hold and by_node), AT)
        self.follow(effects)

    @rule(step=STEPS, seconds=st.sampled_from([0, 1, 11, 4000, 90000]))
    def move(self, step: Step, seconds: int) -> None:
        self.now = Stamp(1, self.now.mono_us + seconds * SECOND)
        before = self.task
        try:
            self.task, effects = apply(before, step, self.now)
        except TaskError:
            self.task = before
            return
        except EdgeError as error:  # pragma: no cover
            raise AssertionError from error
        if before.final:
            assert (self.task, effects) == (before, [])
        if any(isinstance(effect, Deliver) for effect in effects):
            assert self.task.sent
        self.follow(effects)

    def follow(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Happened) and effect.kind == "state":
                assert not self.path or effect.state in LEGAL[self.path[-1]]
                self.path.append(effect.state)
            elif isinstance(effect, Deliver) and not effect.again:
                self.delivered += 1
            elif isinstance(effect, Deliver):
                assert self.task.aim is not None
                assert self.task.aim.native or self.task.aim.repeat_safe

    @invariant()
    def honest(self) -> None:
        assert self.path[-1] is self.task.state
        assert sum(state in FINAL for state in self.path) == self.task.final
        assert self.delivered <= 1
        assert (self.task.due is None) == self.task.final
        assert not (self.task.final and self.task.stopping)
        assert self.task.output <= self.task.limit
        assert self.task.verdict or State.DELIVERED not in self.path
        assert self.task.by_node or not self.task.sent


TestAnyOrderOfSteps = TaskMachine.TestCase
TestAnyOrderOfSteps.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
