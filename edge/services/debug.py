"""`debug.diag` and `proxy.*`: what diagnostics ask, and a service not offered here (spec aun-services §1.10)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from edge.contract.errors import InvalidParams, MethodNotFound, NotPermitted, UnsupportedOperation
from edge.contract.op import Call, Empty, Params, op
from edge.contract.principal import Principal


class Diag(Params, frozen=True, kw_only=True):
    """`action` `list`, or a method and the params that it would be called with."""

    dry_run: bool = True
    action: str = ""
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Stage(msgspec.Struct):
    """One step of a call that was looked at and not made."""

    stage: str
    status: str = "passed"
    detail: str = ""


class Report(msgspec.Struct, omit_defaults=True):
    """What was found; nothing was executed. `status` is `skipped` when the params cannot be tried; `reason` why."""

    dry_run: bool
    executed: bool
    status: str = ""
    reason: str = ""
    methods: list[str] = []
    method: str = ""
    stages: list[Stage] = []


class Services(msgspec.Struct):
    """Services behind a proxy of this node: there are none."""

    services: list[str]


DryRun = Callable[[str, bytes, Principal], list[Stage]]
"""Looks at a call by its AUN name as the dispatcher would, without making it. Raises what it would raise."""


class DebugService:
    """Answers from the table of operations. `methods` are the AUN names in force."""

    def __init__(self, methods: Callable[[], list[str]], dry_run: DryRun) -> None:
        self._methods, self._dry_run = methods, dry_run

    @op(
        "debug.diag",
        scope="any",
        wire={"aun": ("debug.diag",)},
        raises=(InvalidParams, MethodNotFound, NotPermitted),
    )
    async def diag(self, call: Call[Diag]) -> Report:
        """List the methods, or say whether a call would be let in; nothing is executed."""
        asked = call.params
        if not asked.dry_run:
            raise InvalidParams("dry_run must be true: nothing is executed here")
        if asked.action == "list":
            return Report(True, False, methods=self._methods())
        if asked.action or not asked.method:
            raise InvalidParams("action is list, or method names a method")
        stages = self._dry_run(asked.method, asked.params, call.who)
        report = Report(True, False, method=asked.method, stages=stages)
        for stage in stages:
            if stage.status == "skipped":
                report.status, report.reason = stage.status, stage.detail
        return report

    @op("proxy.list_services", scope="any", wire={"aun": ("proxy.list_services",)})
    async def list_services(self, call: Call[Empty]) -> Services:
        """The services that a proxy of this node would reach: none."""
        return Services([])

    @op(
        "proxy.register_services",
        scope="any",
        wire={"aun": ("proxy.register_services", "proxy.unregister_services")},
        raises=(UnsupportedOperation,),
    )
    async def register_services(self, call: Call[Empty]) -> Services:
        """Refused: this node has no service proxy."""
        raise UnsupportedOperation("this node has no service proxy; offer a skill, or a URL in your agent.md")
