from __future__ import annotations

import pytest

from edge.contract.errors import Unavailable
from edge.contract.op import Call, Empty, op
from edge.contract.principal import NODE
from edge.dispatch.areas import Areas
from edge.dispatch.dispatcher import Dispatcher
from edge.dispatch.table import OpTable


class Echo:
    @op("echo.who", scope="any", wire={})
    async def who(self, call: Call[Empty]) -> str:
        """Say who asked."""
        return str(call.who.kind)


async def test_an_area_is_asked_by_name_as_whoever_asks() -> None:
    areas = Areas()
    areas.bind(Dispatcher(OpTable(Echo()), {}))
    assert await areas.call("echo.who", {}, NODE) == "node"


async def test_a_question_before_the_house_stands_is_refused() -> None:
    with pytest.raises(Unavailable):
        await Areas().call("echo.who", {}, NODE)
