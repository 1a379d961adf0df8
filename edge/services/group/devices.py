"""Whom a message to a group is encrypted for, device by device (spec §5.3), no more than an answer and a message hold.

Members bring what devices they like. So that one with very many keeps nobody else from being written to, the devices
that published longest ago are left out, evenly: no member has more than the same number. Whoever is left out is listed
again with its next key, which clients publish when they connect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from edge.contract.limit import Limits
from edge.contract.store import Unit
from edge.services.group import limits as bounds
from edge.store import group_keys, messages
from edge.store.group_keys import GroupSpk
from edge.store.messages import Spk

KEY_SOURCE, PEER_SOURCE = "group_device_prekey", "peer_device_prekey"
ROW_OCTETS = 256
"""Of a row in JSON without its names and keys, generously."""

Sizes = dict[str, tuple[int, int]]
"""A member's devices: when each published its key last (ms), and the bytes of its row."""


def names(unit: Unit, gid: str, members: Collection[str], limits: Limits) -> dict[str, list[str]]:
    """The devices of each of these members, by name; an AID without any key as the device "".

    When there are too many, the newest of each member, at least one; a cut is counted. Reads no keys.
    """
    own: dict[str, Sizes] = {}
    for aid, device, at_ms, octets in group_keys.spk_sizes(unit, gid):
        own.setdefault(aid, {})[device] = (at_ms, octets)
    found = {aid: _sizes(unit, aid, own.get(aid, {})) for aid in sorted(members)}
    each = _each(found.values(), limits)
    return {aid: sorted(sorted(sizes, key=sizes.__getitem__)[-each:]) for aid, sizes in found.items()}


def listed(unit: Unit, gid: str, members: Collection[str], limits: Limits) -> list[dict[str, Any]]:
    """These devices with their keys: the one for this group, else their own."""
    rows: list[dict[str, Any]] = []
    for aid, wanted in names(unit, gid, members, limits).items():
        own = {one.device: one for one in group_keys.spks_of(unit, gid, aid)}
        peer = {one.device: one for one in messages.spks(unit, aid)} if wanted != [*own] else {}
        rows += [_row(aid, name, own.get(name), peer.get(name)) for name in wanted]
    return rows


def _sizes(unit: Unit, aid: str, own: Sizes) -> Sizes:
    sizes = {device: (at_ms, octets) for device, at_ms, octets in messages.spk_sizes(unit, aid)}
    for device, (at_ms, octets) in own.items():
        sizes[device] = (max(at_ms, sizes.get(device, (0, 0))[0]), octets)
    if not sizes and not messages.prekeys(unit, aid):
        sizes[""] = (0, 0)
    return {name: (at_ms, ROW_OCTETS + len(aid) + len(name) + octets) for name, (at_ms, octets) in sizes.items()}


def _each(found: Iterable[Mapping[str, tuple[int, int]]], limits: Limits) -> int:
    """How many devices of one member are listed at most, so that all of them together fit."""
    largest = [sorted((octets for _, octets in sizes.values()), reverse=True) for sizes in found]
    rows = octets = each = 0
    while more := [sizes[each] for sizes in largest if each < len(sizes)]:
        rows, octets = rows + len(more), octets + sum(more)
        over = [
            limit for limit, size in ((bounds.LISTED, rows), (bounds.LISTED_OCTETS, octets)) if size > limits[limit]
        ]
        if over:
            limits.hit(over[0])
            break
        each += 1
    return max(1, each)


def _row(aid: str, name: str, own: GroupSpk | None, peer: Spk | None) -> dict[str, Any]:
    spk = own or peer
    if spk is None:
        return {"aid": aid, "device_id": name}
    return {
        "aid": aid,
        "device_id": name,
        "key_source": KEY_SOURCE if own else PEER_SOURCE,
        "spk_id": spk.spk_id,
        "spk_pk": spk.spk_pk,
        "spk_signature": spk.signature,
        "spk_timestamp": spk.made_s,
    }
