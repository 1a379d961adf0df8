"""Every failure that may leave the node, by name. Numbers belong to the codecs (design §8).

EdgeError
├── Malformed · InvalidRequest · MethodNotFound · InvalidParams · Internal
├── NotReady · ProtocolVersion · PreconditionRequired · TooLarge · RateLimited
├── ContentTypeNotSupported · PushNotSupported · ExtendedCardNotConfigured
├── NotAuthenticated
│   └── TokenExpired · SignatureInvalid · CertificateInvalid · NonceInvalid
├── NotPermitted
│   └── RegistrationClosed · NotMember · RoleInsufficient · JoinRejected · GroupE2eeRequired
├── NotFound
│   └── UnknownAid · GroupNotFound · InviteCodeInvalid
├── Conflict
│   ├── NameTaken · VersionConflict · PreconditionFailed
│   ├── MemberLimit · AlreadyMember · GroupEpochMismatch · GroupStateMismatch
│   ├── RecipientsStale
│   │   └── EpochStale · StateStale
│   └── GroupStateInvalid
│       └── GroupSuspended
├── Unavailable
│   └── StorageFull · TimedOut
├── UnsupportedOperation
│   └── SwitchedOff
└── TaskError
    ├── TaskNotFound · TaskAccessDenied · TaskStateInvalid · TaskAlreadyAccepted · TaskInputRequired
    └── TaskCanceled · TaskRejected · TaskFailed · TaskTerminal · TaskNotCancelable · OutputTooLarge
"""

from __future__ import annotations

from collections.abc import Mapping

MESSAGE_LENGTH = 2_000
"""Characters of an error's message, at most; one may repeat what the peer wrote, and that has no end."""


class EdgeError(Exception):
    """A named failure. `message` is for the peer: what, why and, where there is one, the next step.

    It is cut to `MESSAGE_LENGTH`.
    """

    retryable: bool = False
    summary: str = "failed"

    def __init__(self, message: str = "", *, data: Mapping[str, object] | None = None) -> None:
        whole = message or self.summary
        self.message = whole if len(whole) <= MESSAGE_LENGTH else whole[: MESSAGE_LENGTH - 1] + "…"
        self.data: dict[str, object] = dict(data or {})
        super().__init__(self.message)


class Malformed(EdgeError):
    """Bytes that are not what they claim to be (bad JSON, bad UTF-8, too deep, too big a number)."""

    summary = "malformed JSON"


class InvalidRequest(EdgeError):
    """JSON, but no valid envelope."""

    summary = "invalid request"


class MethodNotFound(EdgeError):
    """No such operation on this surface."""

    summary = "method not found"


class InvalidParams(EdgeError):
    """A parameter is missing, has the wrong type or lies out of range."""

    summary = "invalid params"


class Internal(EdgeError):
    """Something broke inside; the traceback is in the log, not on the wire."""

    summary = "internal error"


class NotAuthenticated(EdgeError):
    """The caller did not prove who they are."""

    summary = "authentication failed"


class TokenExpired(NotAuthenticated):
    """The token was good once."""

    summary = "token expired"


class SignatureInvalid(NotAuthenticated):
    """A signature does not verify."""

    summary = "signature verification failed"


class CertificateInvalid(NotAuthenticated):
    """A certificate is unknown, foreign, expired, revoked or not for this AID."""

    summary = "certificate invalid"


class NonceInvalid(NotAuthenticated):
    """A nonce is unknown, expired or used."""

    summary = "nonce invalid or expired"


class NotReady(EdgeError):
    """The channel has not authenticated yet: auth.connect comes first."""

    summary = "initialization required: call auth.connect first"


class NotPermitted(EdgeError):
    """The caller is known and may not."""

    summary = "permission denied"


class RegistrationClosed(NotPermitted):
    """Nobody reserved this name."""

    summary = "registration is closed"


class ProtocolVersion(EdgeError):
    """No protocol version in common."""

    summary = "no common protocol version"


class NotFound(EdgeError):
    """No such object, or none that the caller may know of."""

    summary = "not found"


class UnknownAid(NotFound):
    """No such AID on this node."""

    summary = "aid not registered"


class Conflict(EdgeError):
    """The object is already there, or two callers want different things of it."""

    summary = "conflict"


class NameTaken(Conflict):
    """The name belongs to another key."""

    summary = "already exists"


class VersionConflict(Conflict):
    """Somebody changed it meanwhile."""

    summary = "version conflict"


class RecipientsStale(Conflict):
    """An encrypted message misses a current device of its recipient: look them up again, encrypt and resend."""

    summary = "recipient set no longer matches"


class EpochStale(RecipientsStale):
    """An encrypted group message is of another epoch: the members have changed since its sender looked."""

    summary = "epoch no longer matches"


class StateStale(RecipientsStale):
    """An encrypted group message stands on another signed state than the confirmed one."""

    summary = "state commitment no longer matches"


class PreconditionFailed(Conflict):
    """HTTP If-Match or If-None-Match did not hold."""

    summary = "precondition failed"


class PreconditionRequired(EdgeError):
    """HTTP If-Match or If-None-Match is missing."""

    summary = "precondition required"


class TooLarge(EdgeError):
    """Over a byte limit."""

    summary = "too large"


class RateLimited(EdgeError):
    """Over a rate, count or concurrency limit; later it may pass."""

    retryable = True
    summary = "rate limited"


class Unavailable(EdgeError):
    """The node cannot do it now (starting, stopping, store read-only)."""

    retryable = True
    summary = "service unavailable"


class StorageFull(Unavailable):
    """The store is read-only: no room, or the medium failed."""

    summary = "storage unavailable: the store is read-only"


class TimedOut(Unavailable):
    """It took too long."""

    summary = "timed out"


class UnsupportedOperation(EdgeError):
    """Known, but not offered here."""

    summary = "unsupported operation"


class SwitchedOff(UnsupportedOperation):
    """A service that this node could offer and, by its configuration, does not."""

    summary = "switched off on this node"


class ContentTypeNotSupported(EdgeError):
    """No common content type."""

    summary = "content type not supported"


class PushNotSupported(EdgeError):
    """Push notifications are off."""

    summary = "push notifications are not supported"


class ExtendedCardNotConfigured(EdgeError):
    """There is no extended agent card."""

    summary = "no authenticated extended card is configured"


class TaskError(EdgeError):
    """Something about a task."""

    summary = "task error"


class TaskNotFound(TaskError):
    """No such task, or none that the caller may know of."""

    summary = "task not found"


class TaskStateInvalid(TaskError):
    """The task's state has no such move."""

    summary = "task state invalid"


class TaskInputRequired(TaskError):
    """The task waits for an answer first."""

    summary = "task input required"


class TaskCanceled(TaskError):
    """The task was canceled."""

    summary = "task canceled"


class TaskRejected(TaskError):
    """The task was rejected."""

    summary = "task rejected"


class TaskFailed(TaskError):
    """The task has failed; the failure is recorded."""

    summary = "task failure recorded"


class TaskAlreadyAccepted(TaskError):
    """Second accept."""

    summary = "task already accepted"


class TaskNotCancelable(TaskError):
    """The task is over, or its actuator cannot stop."""

    summary = "task not cancelable"


class TaskTerminal(TaskError):
    """No input after the end."""

    summary = "task is in a terminal state"


class TaskAccessDenied(TaskError):
    """Not a participant."""

    summary = "task access denied"


class OutputTooLarge(TaskError):
    """Artifacts over the limit; use storage and send a reference."""

    summary = "task output too large: store it and send a reference"


class GroupNotFound(NotFound):
    """No such group, or it was dissolved."""

    summary = "group not found"


class GroupStateInvalid(Conflict):
    """The group is not in a state that allows this."""

    summary = "group state invalid"


class GroupSuspended(GroupStateInvalid):
    """The group is suspended: only its owner and admins may speak, nobody comes in."""

    summary = "group is suspended"


class MemberLimit(Conflict):
    """The group is full."""

    summary = "group member limit reached"


class AlreadyMember(Conflict):
    """Already in the group."""

    summary = "already a member"


class NotMember(NotPermitted):
    """Only for members."""

    summary = "not a member"


class RoleInsufficient(NotPermitted):
    """A member, but of too low a role."""

    summary = "role insufficient"


class InviteCodeInvalid(NotFound):
    """The code is unknown, used up, revoked or over."""

    summary = "invite code invalid or expired"


class JoinRejected(NotPermitted):
    """The group lets nobody in this way, or not this one."""

    summary = "join rejected"


class GroupEpochMismatch(Conflict):
    """A first-generation group message is encrypted with a key that is no longer, or not yet, the group's."""

    summary = "e2ee epoch too old"


class GroupStateMismatch(Conflict):
    """A proposed group state does not follow the confirmed one."""

    summary = "group state does not follow the confirmed one"


class GroupE2eeRequired(NotPermitted):
    """The group is for clients that can encrypt for groups."""

    summary = "E2EE capability required"
