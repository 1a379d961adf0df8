"""How one area asks another: by operation name (`contract.op.Calls`)."""

from __future__ import annotations

from typing import Any

from edge.contract.errors import Unavailable
from edge.contract.principal import Principal
from edge.dispatch.dispatcher import Dispatcher


class Areas:
    """Handed to services before the table of all their operations can exist; `bind` closes the circle."""

    def __init__(self) -> None:
        self._dispatcher: Dispatcher | None = None

    def bind(self, dispatcher: Dispatcher) -> None:
        """From here on questions are answered."""
        self._dispatcher = dispatcher

    async def call(self, op: str, params: object, who: Principal) -> Any:
        """Run an operation as `who`. Raises what it raises, `Unavailable` while the node is being built."""
        if self._dispatcher is None:
            raise Unavailable
        return await self._dispatcher.run(op, params, who)
