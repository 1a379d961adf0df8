from __future__ import annotations

from edge.contract.limit import REGISTRY, Limits
from edge.contract.op import Call, Empty
from edge.contract.principal import NODE
from edge.services.admin import AdminService, Method, MethodsAsked, Reloaded

METHODS = [
    Method("a.read", "any", {"aun": ["a.read"]}, False, "Read."),
    Method("a.write", "any", {"edge": ["a.write"]}, True, "Write."),
]


def service(limits: Limits | None = None) -> AdminService:
    return AdminService(
        lambda: {"issuer": "edge.test"}, lambda: METHODS, lambda: Reloaded(["log.level"], []), limits or Limits()
    )


async def test_status_is_what_the_node_knows_now() -> None:
    assert await service().status(Call(who=NODE, op="status", params=Empty())) == {"issuer": "edge.test"}


async def test_methods_are_listed_by_surface_or_all() -> None:
    ask = service().methods
    assert await ask(Call(who=NODE, op="methods", params=MethodsAsked())) == METHODS
    assert await ask(Call(who=NODE, op="methods", params=MethodsAsked(surface="edge"))) == METHODS[1:]


async def test_a_reload_tells_what_is_in_force_now() -> None:
    answer = await service().reload(Call(who=NODE, op="config.reload", params=Empty()))
    assert (answer.now, answer.next_start) == (["log.level"], [])


async def test_every_declared_limit_is_listed_with_its_hits() -> None:
    from edge.contract.limit import declare

    limit = declare("test.listed", 7, "rows", "for this test")
    try:
        limits = Limits({"test.listed": 9})
        limits.hit(limit, 2)
        lines = {line.name: line for line in await service(limits).limits(Call(who=NODE, op="limits", params=Empty()))}
        assert lines.keys() == REGISTRY.keys()
        assert (lines["test.listed"].value, lines["test.listed"].hits) == (9, 2)
    finally:
        del REGISTRY["test.listed"]
