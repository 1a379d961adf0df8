"""What lies under a connection, and what its acks may wait for."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

URGENT, AT_ONCE, JOURNAL = -3, -2, -1
"""What an ack waits for besides the position of a message in the batch: what the journal has of alarms; nothing of its
own; the whole journal."""


class State(Enum):
    """NEW waits for CONNECT, OPENING for what CONNACK waits for."""

    NEW = 1
    OPENING = 2
    OPEN = 3
    CLOSED = 4


class Wire(Protocol):
    """What carries the bytes."""

    def write(self, data: bytes) -> None:
        """Send; never waits."""
        ...

    def buffered(self) -> int:
        """Bytes written and not yet taken by the kernel."""
        ...

    def pause(self) -> None:
        """Read no more for now."""
        ...

    def resume(self) -> None:
        """Read again."""
        ...

    def close(self) -> None:
        """Close once what is buffered has been taken."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class Reply:
    """An ack with something to do: `kept` when what it waits for is on disk, or `failed`; then `sent`."""

    __slots__ = ("data",)

    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    def kept(self) -> bytes:
        """The bytes to send."""
        return self.data

    def failed(self) -> bytes | None:
        """The bytes to send instead; None keeps the ack back."""
        return None

    def sent(self) -> None:
        """The bytes of `kept` are on their way."""
