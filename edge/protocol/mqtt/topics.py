"""Topic names and filters (MQTT §4.7): validity, matching, containment, the filter tree and the topic tree."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

SHARE = "$share/"


def valid_topic(topic: str) -> bool:
    """At least one character, no wildcards (MQTT-3.3.2-2, MQTT-4.7.3-1), no U+0000, at most 65 535 bytes."""
    return bool(topic) and "+" not in topic and "#" not in topic and "\0" not in topic and _fits(topic)


def valid_filter(wanted: str) -> bool:
    """`+` alone in a level, `#` alone in the last (MQTT-4.7.1-1, -2)."""
    if not wanted or "\0" in wanted or not _fits(wanted):
        return False
    if "+" not in wanted and "#" not in wanted:
        return True
    levels = wanted.split("/")
    if any("#" in level for level in levels[:-1]) or ("#" in levels[-1] and levels[-1] != "#"):
        return False
    return all("+" not in level or level == "+" for level in levels)


def _fits(name: str) -> bool:
    return len(name) <= 0xFFFF and (len(name) * 4 <= 0xFFFF or len(name.encode("utf-8", "replace")) <= 0xFFFF)


def share_of(wanted: str) -> tuple[str, str] | None:
    """Group and filter of `$share/<group>/<filter>`; None when it is not well formed (MQTT-4.8.2-1, -2)."""
    group, slash, inner = wanted[len(SHARE) :].partition("/")
    if not slash or not group or "+" in group or "#" in group or not valid_filter(inner):
        return None
    return group, inner


def matches(wanted: str, topic: str) -> bool:
    """Whether a topic name matches a filter; wildcards in the first level do not match `$` (MQTT-4.7.2-1)."""
    if wanted == topic:
        return True
    levels, names = wanted.split("/"), topic.split("/")
    if topic.startswith("$") and levels[0] in ("+", "#"):
        return False
    for at, level in enumerate(levels):
        if level == "#":
            return True
        if at == len(names) or (level != "+" and level != names[at]):
            return False
    return len(levels) == len(names)


def within(wanted: str, allowed: str) -> bool:
    """Whether every topic that `wanted` matches is matched by `allowed`.

    Both are filters; a topic name is a filter that matches itself.
    """
    levels, bounds = wanted.split("/"), allowed.split("/")
    if levels[0].startswith("$") and bounds[0] in ("+", "#"):
        return False
    for at, bound in enumerate(bounds):
        if bound == "#":
            return True
        if at == len(levels) or levels[at] == "#" or (bound != "+" and bound != levels[at]):
            return False
    return len(levels) == len(bounds)


class _Node(Generic[K, T]):
    __slots__ = ("children", "values")

    def __init__(self) -> None:
        self.children: dict[str, _Node[K, T]] | None = None
        self.values: dict[K, T] | None = None


class FilterTree(Generic[K, T]):
    """Filters with values: at most one value per filter and key. Finding costs the depth of the topic."""

    def __init__(self) -> None:
        self._root: _Node[K, T] = _Node()
        self.size = 0

    def put(self, wanted: str, key: K, value: T) -> None:
        """Set the value of (filter, key)."""
        node = self._root
        for level in wanted.split("/"):
            if node.children is None:
                node.children = {}
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        if node.values is None:
            node.values = {}
        self.size += key not in node.values
        node.values[key] = value

    def take(self, wanted: str, key: K) -> T | None:
        """Remove the value of (filter, key); empty branches go with it."""
        path: list[tuple[_Node[K, T], str]] = []
        node = self._root
        for level in wanted.split("/"):
            child = (node.children or {}).get(level)
            if child is None:
                return None
            path.append((node, level))
            node = child
        if node.values is None or key not in node.values:
            return None
        value = node.values.pop(key)
        self.size -= 1
        if not node.values:
            node.values = None
            self._prune(path)
        return value

    def _prune(self, path: list[tuple[_Node[K, T], str]]) -> None:
        for parent, level in reversed(path):
            assert parent.children is not None  # noqa: S101 - the path was walked through it
            node = parent.children[level]
            if node.children or node.values:
                return
            del parent.children[level]
            if not parent.children:
                parent.children = None

    def has(self, level: str) -> bool:
        """Whether a filter begins with this level."""
        return level in (self._root.children or {})

    def find(self, topic: str) -> list[T]:
        """The values of every filter that matches a topic name."""
        names = topic.split("/")
        found: list[T] = []
        nodes = [self._root]
        for at, name in enumerate(names):
            below: list[_Node[K, T]] = []
            wild = at > 0 or not name.startswith("$")
            for node in nodes:
                children = node.children
                if not children:
                    continue
                child = children.get(name)
                if child is not None:
                    below.append(child)
                if wild:
                    child = children.get("+")
                    if child is not None:
                        below.append(child)
                    child = children.get("#")
                    if child is not None and child.values:
                        found.extend(child.values.values())
            nodes = below
            if not nodes:
                return found
        for node in nodes:
            if node.values:
                found.extend(node.values.values())
            child = node.children.get("#") if node.children else None
            if child is not None and child.values:
                found.extend(child.values.values())
        return found


class _Leaf(Generic[T]):
    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Leaf[T]] = {}
        self.value: T | None = None


class TopicTree(Generic[T]):
    """Topic names with a value each, found by filter: the retained messages."""

    def __init__(self) -> None:
        self._root: _Leaf[T] = _Leaf()
        self._flat: dict[str, _Leaf[T]] = {}

    def __len__(self) -> int:
        return len(self._flat)

    def get(self, topic: str) -> T | None:
        """The value of a topic name."""
        leaf = self._flat.get(topic)
        return leaf.value if leaf is not None else None

    def put(self, topic: str, value: T) -> None:
        """Set the value of a topic name."""
        leaf = self._flat.get(topic)
        if leaf is None:
            leaf = self._root
            for name in topic.split("/"):
                child = leaf.children.get(name)
                if child is None:
                    child = leaf.children[name] = _Leaf()
                leaf = child
            self._flat[topic] = leaf
        leaf.value = value

    def take(self, topic: str) -> T | None:
        """Remove a topic name; its value."""
        leaf = self._flat.pop(topic, None)
        if leaf is None:
            return None
        value, leaf.value = leaf.value, None
        path = [self._root]
        names = topic.split("/")
        for name in names:
            path.append(path[-1].children[name])
        for at in range(len(names) - 1, -1, -1):
            if path[at + 1].children or path[at + 1].value is not None:
                break
            del path[at].children[names[at]]
        return value

    def find(self, wanted: str) -> tuple[list[T], int]:
        """The values of every topic name that a filter matches, and how many levels were looked at."""
        if "+" not in wanted and "#" not in wanted:
            value = self.get(wanted)
            return ([] if value is None else [value]), 1
        levels = wanted.split("/")
        leaves = [self._root]
        steps = 0
        for at, level in enumerate(levels):
            steps += len(leaves)
            if level == "#":
                found, below = self._below(leaves, at == 0)
                return found, steps + below
            if level == "+":
                leaves = [
                    child
                    for leaf in leaves
                    for name, child in leaf.children.items()
                    if at > 0 or not name.startswith("$")
                ]
            else:
                leaves = [leaf.children[level] for leaf in leaves if level in leaf.children]
        return [leaf.value for leaf in leaves if leaf.value is not None], steps + len(leaves)

    def _below(self, leaves: list[_Leaf[T]], top: bool) -> tuple[list[T], int]:
        """Values of these leaves and everything under them; at the top `$` names stay out."""
        found: list[T] = []
        steps = 0
        stack = list(leaves)
        while stack:
            at = stack.pop()
            steps += 1
            if at.value is not None:
                found.append(at.value)
            if top and at is self._root:
                stack.extend(child for name, child in at.children.items() if not name.startswith("$"))
            else:
                stack.extend(at.children.values())
        return found, steps

    def __iter__(self) -> Iterator[T]:
        return (leaf.value for leaf in self._flat.values() if leaf.value is not None)
