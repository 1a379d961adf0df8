from __future__ import annotations

import inspect
import re

import pytest

from edge.contract import errors
from edge.contract.errors import (
    MESSAGE_LENGTH,
    EdgeError,
    InvalidParams,
    RateLimited,
    RegistrationClosed,
    TaskNotFound,
    Unavailable,
)

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, EdgeError)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_failure_says_something_without_being_told(kind: type[EdgeError]) -> None:
    error = kind()
    assert error.message == kind.summary != ""
    assert str(error) == error.message
    assert error.data == {}
    assert kind.__doc__


def test_a_failure_carries_its_own_text_and_data() -> None:
    error = RegistrationClosed("registration is closed: aun-edge agent add alice", data={"name": "alice"})
    assert error.message.endswith("agent add alice")
    assert error.data == {"name": "alice"}


def test_what_a_failure_repeats_of_a_peers_words_has_an_end() -> None:
    assert InvalidParams("x" * MESSAGE_LENGTH).message == "x" * MESSAGE_LENGTH
    assert InvalidParams("x" * 200_000).message == str(InvalidParams("x" * 200_000)) == "x" * (MESSAGE_LENGTH - 1) + "…"


def test_a_failure_knows_whether_a_retry_can_help() -> None:
    assert RateLimited.retryable
    assert Unavailable.retryable
    assert not TaskNotFound.retryable


def test_the_tree_at_the_top_of_the_file_is_the_one_there_is() -> None:
    above: dict[int, type[EdgeError]] = {}
    drawn = {EdgeError}
    for line in (errors.__doc__ or "").splitlines():
        names = re.findall(r"[A-Z]\w+", line) if re.match(r"EdgeError$|[│├└ ]+── ", line) else []
        depth = next((place for place, char in enumerate(line) if char.isalpha()), 0) // 4
        for name in names:
            kind: type[EdgeError] = getattr(errors, name)
            above[depth] = kind
            drawn.add(kind)
            assert depth == 0 or kind.__bases__ == (above[depth - 1],), name
    assert drawn == set(CLASSES)
