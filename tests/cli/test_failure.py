from __future__ import annotations

import pytest

from edge.cli.failure import exit_code
from edge.contract import errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotPermitted(), 4),
        (errors.TokenExpired(), 4),
        (errors.NotFound(), 2),
        (errors.InvalidParams(), 2),
        (errors.MethodNotFound(), 2),
        (errors.StorageFull(), 75),
        (errors.RateLimited(), 75),
        (errors.Conflict(), 1),
        (errors.Internal(), 1),
    ],
)
def test_each_answer_has_its_exit_code(error: errors.EdgeError, code: int) -> None:
    assert exit_code(error) == code
