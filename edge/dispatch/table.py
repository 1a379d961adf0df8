"""One table of operations, made from the declarations on the services; keyed by (surface, wire name)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Annotated, Any, get_args, get_origin

import msgspec

from edge.contract.op import Call, Empty, Op


class OpTable:
    """Every operation of the node. Raises `ValueError` when two declarations claim one name."""

    def __init__(self, *services: object) -> None:
        self._ops: dict[str, Op] = {}
        self._wire: dict[tuple[str, str], Op] = {}
        self._off: frozenset[str] = frozenset()
        for service in services:
            self.add(service)

    def add(self, service: object) -> None:
        """Take every declared operation of one service."""
        for attribute in dir(type(service)):
            mark = getattr(getattr(type(service), attribute, None), "__op__", None)
            if mark is not None:
                self._enter(_bind(service, getattr(service, attribute), mark))

    def find(self, surface: str, name: str) -> Op | None:
        """The operation that `name` means on `surface`."""
        return None if self.off(surface, name) else self._wire.get((surface, name))

    def switch_off(self, namespaces: Collection[str]) -> None:
        """Offer these AUN namespaces no more (settled G34); the operations stay for the node itself."""
        self._off = frozenset(namespaces)

    def off(self, surface: str, name: str) -> str:
        """The namespace of a name that is switched off, "" of any other."""
        namespace = _namespace(name)
        return namespace if surface == "aun" and namespace in self._off else ""

    def offered(self, op: Op) -> dict[str, list[str]]:
        """Surface → the names of an operation there, without those that are switched off."""
        found = {at: [name for name in names if not self.off(at, name)] for at, names in op.wire.items()}
        return {at: names for at, names in found.items() if names}

    def withheld(self, op: Op) -> dict[str, list[str]]:
        """Surface → the names of an operation there that are switched off."""
        found = {at: [name for name in names if self.off(at, name)] for at, names in op.wire.items()}
        return {at: names for at, names in found.items() if names}

    def get(self, name: str) -> Op:
        """An operation by its own name. Raises `KeyError`."""
        return self._ops[name]

    def names(self, surface: str) -> list[str]:
        """The wire names of a surface, sorted, without those that are switched off."""
        return sorted(name for at, name in self._wire if at == surface and not self.off(at, name))

    def namespaces(self, surface: str) -> list[str]:
        """The namespaces of its requests, sorted: the part of a name before its first dot."""
        return sorted({_namespace(name) for name in self.names(surface) if "/" not in name})

    def __iter__(self) -> Iterator[Op]:
        return iter(self._ops.values())

    def __len__(self) -> int:
        return len(self._ops)

    def _enter(self, op: Op) -> None:
        if op.name in self._ops:
            raise ValueError(f"operation {op.name} is declared twice")
        self._ops[op.name] = op
        for surface, names in op.wire.items():
            for name in names:
                if (surface, name) in self._wire:
                    raise ValueError(f"{surface} {name} is claimed by {op.name} and {self._wire[surface, name].name}")
                self._wire[surface, name] = op


def _namespace(name: str) -> str:
    return name.partition("/" if "/" in name else ".")[0]


def _bind(service: object, run: Callable[..., Any], mark: dict[str, Any]) -> Op:
    params, result = types_of(run)
    before = mark["before"]
    return Op(
        **{key: value for key, value in mark.items() if key != "before"},
        params=params,
        result=result,
        run=run,
        before=getattr(service, before) if before else None,
    )


def types_of(run: Callable[..., Any]) -> tuple[type[Any], type[Any]]:
    """The records named in `call: Call[P]` and `-> R`; only those two annotations are looked up.

    What answers with an outcome says `-> Annotated[Outcome, R]`.
    """
    function = getattr(run, "__func__", run)
    scope = {**vars(msgspec), **function.__globals__}
    call = _resolve(function.__annotations__.get("call"), scope)
    params = get_args(call)[0] if get_origin(call) is Call and get_args(call) else Empty
    result = _resolve(function.__annotations__.get("return"), scope)
    if get_origin(result) is Annotated:
        result = get_args(result)[1]
    return params, object if result is None else result


def _resolve(annotation: object, scope: dict[str, Any]) -> Any:
    if isinstance(annotation, str):
        return eval(annotation, scope)  # noqa: S307  our own source text, read at start
    return annotation
