from __future__ import annotations

import sys
import threading

import pytest

from edge.contract.errors import RateLimited, TooLarge
from edge.contract.limit import REGISTRY, Limit, Limits, declare

SIZE = Limit("test.size", 10, "bytes", "for this test")


def test_a_limit_has_its_default_unless_it_is_overridden() -> None:
    assert Limits()[SIZE] == 10
    assert Limits({"test.size": 3})[SIZE] == 3


def test_a_refusal_is_counted_and_says_name_maximum_and_unit() -> None:
    limits = Limits()
    error = limits.refuse(SIZE, "from alice")
    limits.hit(SIZE, 2)
    assert isinstance(error, TooLarge)
    assert error.message == "test.size: over 10 bytes (from alice)"
    assert error.data == {"limit": "test.size", "max": 10}
    assert limits.hits == {"test.size": 3}


def test_a_refusal_says_when_to_come_back_where_that_helps() -> None:
    assert Limits().refuse(SIZE, again_ms=0).data == {"limit": "test.size", "max": 10, "retry_after_ms": 0}


def test_threads_that_hit_at_once_are_all_counted() -> None:
    limits, before = Limits(counting=threading.Lock()), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda: [limits.hit(SIZE) for _ in range(20_000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert limits.hits == {SIZE.name: 80_000}


def test_a_limit_without_an_error_still_has_one_to_raise() -> None:
    assert isinstance(Limits().refuse(Limit("test.none", 1, "", "", None)), TooLarge)
    assert isinstance(Limits().refuse(Limit("test.rate", 1, "/s", "", RateLimited)), RateLimited)


def test_a_name_is_declared_once() -> None:
    try:
        assert declare("test.declared", 1, "bytes", "for this test") is REGISTRY["test.declared"]
        with pytest.raises(ValueError, match="declared twice"):
            declare("test.declared", 2, "bytes", "for this test")
    finally:
        del REGISTRY["test.declared"]
