"""Who gets a message: subscriptions, shared groups, the cache from topic to receivers, the retained messages."""

from __future__ import annotations

from collections.abc import Callable

from edge.contract.limit import Limit, Limits
from edge.contract.principal import Principal
from edge.protocol.mqtt import limits
from edge.protocol.mqtt.message import Message, head_of
from edge.protocol.mqtt.session import Subscription
from edge.protocol.mqtt.topics import FilterTree, TopicTree

_Place = tuple[int, str]

CLASSES = ("telemetry", "state", "alarm")
"""Traffic classes, least important first: what goes first when room runs out."""
ALARM = CLASSES.index("alarm")
"""The class that a full disk still takes."""


def rank_of(klass: str) -> int:
    """The place of a class; an unknown one is telemetry."""
    return CLASSES.index(klass) if klass in CLASSES else 0


class Route:
    """A topic with its receivers as of `generation`.

    `plain` need nothing special with QoS 0: one packet for all of them. `special` have identifiers, No Local or
    Retain As Published; `groups` are shared subscriptions, one member of each gets the message.
    """

    __slots__ = ("generation", "groups", "head", "plain", "rank", "special", "topic", "turn")

    def __init__(self, topic: str, head: bytes) -> None:
        self.topic, self.head = topic, head
        self.generation = -1
        self.plain: list[Subscription] = []
        self.special: list[Subscription] = []
        self.groups: list[list[Subscription]] = []
        self.turn = 0
        self.rank = 0
        """The traffic class: an index of `CLASSES`."""


class Router:
    """Subscriptions of all sessions. Every change makes a new `generation`; routes of older ones look again."""

    def __init__(self, bounds: Limits, traffic: Callable[[str], str]) -> None:
        self._traffic = traffic
        self._tree: FilterTree[_Place, Subscription] = FilterTree()
        self._routes: dict[str, Route] = {}
        self._most_routes = bounds[limits.ROUTES]
        self.generation = 0

    @property
    def subscriptions(self) -> int:
        """How many there are."""
        return self._tree.size

    def heard(self, level: str) -> bool:
        """Whether somebody subscribes below a first level."""
        return self._tree.has(level)

    def put(self, subscription: Subscription) -> None:
        """Add or replace the subscription of this session, filter and group."""
        self.generation += 1
        self._tree.put(subscription.filter, (subscription.session.number, subscription.group), subscription)

    def take(self, subscription: Subscription) -> None:
        """Remove a subscription."""
        self.generation += 1
        self._tree.take(subscription.filter, (subscription.session.number, subscription.group))

    def route(self, topic: str) -> Route:
        """The route of a topic, current."""
        route = self._routes.get(topic)
        if route is None:
            if len(self._routes) >= self._most_routes:
                self._routes.clear()
            route = self._routes[topic] = Route(topic, head_of(topic))
        if route.generation != self.generation:
            self.refresh(route)
        return route

    def rank(self, topic: str) -> int:
        """The traffic class of a topic."""
        return rank_of(self._traffic(topic))

    def refresh(self, route: Route) -> None:
        """Find the receivers anew: who subscribed and may (still) read the topic."""
        route.generation = self.generation
        route.rank = self.rank(route.topic)
        mine: dict[int, list[Subscription]] = {}
        shared: dict[tuple[str, str], list[Subscription]] = {}
        for found in self._tree.find(route.topic):
            if not found.session.rights.may_read(route.topic):
                continue
            if found.group:
                shared.setdefault((found.group, found.filter), []).append(found)
            else:
                mine.setdefault(found.session.number, []).append(found)
        receivers = [found[0] if len(found) == 1 else _merged(found) for found in mine.values()]
        route.plain = [found for found in receivers if not _special(found)]
        route.special = [found for found in receivers if _special(found)]
        route.groups = list(shared.values())

    def pick(self, route: Route, group: list[Subscription]) -> Subscription:
        """The member of a shared subscription whose turn it is; connected ones first (MQTT 5 §4.8.2)."""
        route.turn += 1
        start = route.turn % len(group)
        turns = group[start:] + group[:start]
        return next((found for found in turns if found.session.conn is not None), turns[0])


def _special(found: Subscription) -> bool:
    return bool(found.ids) or found.no_local or found.retain_as_published


def _merged(found: list[Subscription]) -> Subscription:
    """One delivery for overlapping subscriptions: highest QoS (MQTT-3.3.4-2), every identifier (MQTT-3.3.4-4)."""
    return Subscription(
        found[0].session,
        found[0].filter,
        max(one.qos for one in found),
        ids=tuple(ident for one in found for ident in one.ids),
        no_local=all(one.no_local for one in found),
        retain_as_published=any(one.retain_as_published for one in found),
    )


class Retained:
    """Retained messages by topic, within a number of topics and of bytes, over all and for each publisher.

    The node's own messages have no share: they are bounded by what it says.
    """

    def __init__(self, bounds: Limits) -> None:
        self._tree: TopicTree[Message] = TopicTree()
        self._most = bounds[limits.RETAINED_TOPICS]
        self._most_octets = bounds[limits.RETAINED_OCTETS]
        self._share = bounds[limits.RETAINED_TOPICS_PER_USER]
        self._share_octets = bounds[limits.RETAINED_OCTETS_PER_USER]
        self._shares: dict[str, list[int]] = {}
        """Topics and bytes by the AID of who published them."""
        self.octets = 0

    def __len__(self) -> int:
        return len(self._tree)

    def refuses(self, topic: str, octets: int, who: Principal) -> Limit | None:
        """The limit that a message of this topic, weight and publisher would break."""
        old = self._tree.get(topic)
        topics, weight = 1, octets
        mine, mine_octets = self._shares.get(who.aid, (0, 0)) if who.aid else (-1, -octets)
        if old is not None:
            topics, weight = 0, octets - old.octets
            if old.publish.who.aid == who.aid and who.aid:
                mine, mine_octets = mine - 1, mine_octets - old.octets
        if len(self._tree) + topics > self._most:
            return limits.RETAINED_TOPICS
        if self.octets + weight > self._most_octets:
            return limits.RETAINED_OCTETS
        if mine + 1 > self._share:
            return limits.RETAINED_TOPICS_PER_USER
        if mine_octets + octets > self._share_octets:
            return limits.RETAINED_OCTETS_PER_USER
        return None

    def put(self, message: Message) -> None:
        """Keep a message as its topic's."""
        self.take(message.publish.topic)
        self._tree.put(message.publish.topic, message)
        self.octets += message.octets
        self._count(message, 1)

    def take(self, topic: str) -> Message | None:
        """Forget a topic's message; which it was."""
        old = self._tree.take(topic)
        if old is not None:
            self.octets -= old.octets
            self._count(old, -1)
        return old

    def _count(self, message: Message, sign: int) -> None:
        aid = message.publish.who.aid
        share = self._shares.setdefault(aid, [0, 0])
        share[0] += sign
        share[1] += sign * message.octets
        if not share[0]:
            del self._shares[aid]

    def get(self, topic: str, now_us: int) -> Message | None:
        """A topic's message, unless it has expired."""
        message = self._tree.get(topic)
        return None if message is None or message.expired(now_us) else message

    def find(self, wanted: str) -> tuple[list[str], int]:
        """The topics of what a filter matches, and what looking cost."""
        found, steps = self._tree.find(wanted)
        return [message.publish.topic for message in found], steps
