from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Verb = Callable[..., tuple[int, str, str]]
Asked = Callable[..., Any]
Secret = Callable[[str], str]


@pytest.mark.seed("C-004")
def test_a_device_can_be_tried_with_its_password(verb: Verb, asked: Asked, secret: Secret) -> None:
    made = asked("device", "add", "porch")
    who = ["--username", "porch", "--password-file", secret(made["password"])]
    assert verb("mqtt", "pub", "porch/x", "21", "--retain", *who)[0] == 0
    assert verb("mqtt", "sub", "porch/x", "--count", "1", *who)[:2] == (0, "porch/x 21\n")


def test_a_wrong_password_is_not_permitted(verb: Verb, secret: Secret) -> None:
    code, _, err = verb("mqtt", "pub", "a", "x", "--username", "nobody", "--password-file", secret("guess"))
    assert code == 4
    assert "the node refused" in err
    assert "guess" not in err


def test_a_filter_that_a_device_may_not_read_is_told(verb: Verb, asked: Asked, secret: Secret) -> None:
    who = ["--username", "hall", "--password-file", secret(asked("device", "add", "hall")["password"])]
    code, _, err = verb("mqtt", "sub", "other/x", "--count", "1", *who)
    assert code == 4
    assert "hall may not read other/x" in err


def test_a_user_needs_a_password(verb: Verb) -> None:
    code, _, err = verb("mqtt", "pub", "a", "x", "--username", "porch")
    assert code == 2
    assert "--password-file" in err
