"""All that hot.db keeps for MQTT, as one."""

from __future__ import annotations

from edge.contract.store import Unit
from edge.store.mqtt import Place, Stored, page


def load(unit: Unit) -> Stored:
    """All pages as one, for as many rows as one read has the time for."""
    whole, place = Stored([], [], [], [], []), Place()
    while True:
        part = page(unit, place)
        for name in Stored.__struct_fields__:
            getattr(whole, name).extend(getattr(part.stored, name))
        if part.end is None:
            return whole
        place = part.end
