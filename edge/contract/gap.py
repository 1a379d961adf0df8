"""What was lost. The only way to drop something (promise P2)."""

from __future__ import annotations

import msgspec

from edge.contract.time import Stamp


class Gap(msgspec.Struct, frozen=True):
    """Rows `first`…`last` of log `log`, key `key`: `count` of them are gone, for `reason`, by `who`, at `at`.

    For things that never had a number (a refused publish) `first` and `last` are 0.
    """

    log: str
    key: str
    first: int
    last: int
    count: int
    reason: str
    who: str
    at: Stamp
