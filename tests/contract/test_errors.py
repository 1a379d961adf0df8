from __future__ import annotations

import inspect

import pytest

from edge.contract import errors
from edge.contract.errors import EdgeError, RateLimited, RegistrationClosed, TaskNotFound, Unavailable

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


def test_a_failure_knows_whether_a_retry_can_help() -> None:
    assert RateLimited.retryable
    assert Unavailable.retryable
    assert not TaskNotFound.retryable
