from __future__ import annotations

from edge.contract.limit import REGISTRY, Limits
from edge.devices.limits import bounds


def test_the_parsers_bounds_are_the_limits_in_force() -> None:
    made = bounds(Limits({"devices.discovery_octets": 1, "devices.options": 2}))
    assert (made.octets, made.options, made.components) == (1, 2, 256)


def test_the_stated_defaults_are_those_of_the_specification() -> None:
    assert REGISTRY["devices.discovery_octets"].default == 64 * 1024
    assert all(REGISTRY[name].about for name in REGISTRY if name.startswith("devices."))
