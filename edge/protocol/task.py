"""Tasks: the record, the steps that may happen to it and the effects they have (design D7).

One record for every protocol; AUN, A2A, AIP and early A2A are Views over its ten states (agent-protocols §4.1).
`protocol/engine.py` applies the steps. Whether `delivered` (products are out, the owner has yet to say yes) exists
is decided by the owner's protocol (§4.4 trap 2): the task carries it as `verdict`.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from edge.contract.time import SECOND, Stamp

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
    """How long a task may stand still, in µs: not finished, kept for a device that is offline, without input, without
    verdict, not stopped."""

    work: int = 3600 * SECOND
    hold: int = 86400 * SECOND
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
    def held(self) -> bool:
        """Whether the node keeps it for a device that is offline."""
        return self.by_node and self.aim is not None and not self.sent and not self.final

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
    """The device woke up, or with `restart` the node did: hand over what was kept for it (design D7).

    What was sent before goes out again after a restart only, and only where that is safe: to native devices, which
    know the task by its id, and to capabilities that are repeat-safe.
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
