"""What a foreign broker sends a second time: messages whose ack was lost with the connection, and our own.

MQTT 3.1.1 §4.4: after a reconnect the server sends again, under its old packet id, what it has no ack for. Only what
came just before the cut can be among that.
"""

from __future__ import annotations

from collections import OrderedDict, deque

REMEMBERED = 256
"""Messages before a cut that may come again; brokers have fewer on their way to one client."""
WINDOW_US = 60_000_000
"""How long after a reconnect they may come again."""
OWN_US = 30_000_000
"""How long a message of ours may take to come back."""

_Mark = tuple[int, str, bytes]


class Repeats:
    """Tells repeats from news. Retained messages that a subscription brings are neither."""

    def __init__(self) -> None:
        self._lately: deque[_Mark] = deque(maxlen=REMEMBERED)
        self._earlier: dict[_Mark, int] = {}
        self._until_us = 0

    def cut(self) -> None:
        """The connection has ended."""
        self._earlier = dict.fromkeys(self._lately, 1)
        self._lately.clear()

    def begun(self, now_us: int) -> None:
        """There is a new connection."""
        self._until_us = now_us + WINDOW_US

    def heard(self, packet_id: int, topic: str, payload: bytes, now_us: int) -> bool:
        """A message with an ack has come: whether it was there before the cut already. Each counts once."""
        mark = (packet_id, topic, payload)
        self._lately.append(mark)
        if not self._earlier:
            return False
        if now_us > self._until_us:
            self._earlier = {}
            return False
        return self._earlier.pop(mark, 0) > 0


class Echoes:
    """Our own messages on their way back to us, where the broker cannot leave them out (MQTT 3.1.1)."""

    def __init__(self, most: int = 1_000) -> None:
        self._most = most
        self._sent: OrderedDict[tuple[str, bytes], tuple[int, int]] = OrderedDict()

    def sent(self, topic: str, payload: bytes, now_us: int) -> None:
        """We publish this."""
        count, _ = self._sent.pop((topic, payload), (0, 0))
        self._sent[topic, payload] = count + 1, now_us
        if len(self._sent) > self._most:
            self._sent.popitem(last=False)

    def mine(self, topic: str, payload: bytes, now_us: int) -> bool:
        """Whether a message that has come is ours. Each counts once."""
        count, at_us = self._sent.pop((topic, payload), (0, 0))
        if not count or now_us - at_us > OWN_US:
            return False
        if count > 1:
            self._sent[topic, payload] = count - 1, at_us
        return True
