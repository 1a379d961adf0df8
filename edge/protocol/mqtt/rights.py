"""What one client may do: an `Admission` with its patterns filled in."""

from __future__ import annotations

from collections.abc import Callable

from edge.contract.bus import Admission
from edge.protocol.mqtt.reasons import Reason
from edge.protocol.mqtt.topics import matches, within


class Rights:
    """Topic filters of one client. `%c` and `%u` in a filter are its client id and user.

    A filter is left out when what would be filled in is empty or could widen it (`+`, `#`, `/`). What `closed` says of
    a topic stands above every filter, and may change.
    """

    __slots__ = ("_publish", "_subscribe", "_withheld", "closed")

    def __init__(self, admission: Admission, client_id: str, closed: Callable[[str], bool] | None = None) -> None:
        self.closed = closed
        self._publish = _filled(admission.publish, admission.user, client_id)
        self._subscribe = _filled(admission.subscribe, admission.user, client_id)
        self._withheld = dict(admission.withheld)

    def may_publish(self, topic: str) -> bool:
        """Whether it may publish to a topic name."""
        return any(matches(allowed, topic) for allowed in self._publish) and not self._shut(topic)

    def may_subscribe(self, wanted: str) -> bool:
        """Whether a filter may be subscribed to."""
        return not self.refusal(wanted)

    def refusal(self, wanted: str) -> int:
        """Why a filter may not be subscribed to: 0 when the whole of it lies inside one allowed filter."""
        if not any(within(wanted, allowed) for allowed in self._subscribe):
            return Reason.NOT_AUTHORIZED
        return self._withheld.get(wanted, 0)

    def may_read(self, topic: str) -> bool:
        """Whether a message of this topic may be delivered to it."""
        return any(matches(allowed, topic) for allowed in self._subscribe) and not self._shut(topic)

    def _shut(self, topic: str) -> bool:
        return self.closed is not None and self.closed(topic)


def _filled(filters: tuple[str, ...], user: str, client_id: str) -> tuple[str, ...]:
    found = []
    for wanted in filters:
        for mark, value in (("%c", client_id), ("%u", user)):
            if mark in wanted and (not value or any(sign in value for sign in "+#/")):
                break
            wanted = wanted.replace(mark, value)
        else:
            found.append(wanted)
    return tuple(found)
