"""`message.peers`: who has written to an inbox, and how far a reader has read each of them (M-19, §3.3)."""

from __future__ import annotations

import msgspec

from edge.contract.errors import InvalidParams, NotPermitted
from edge.contract.limit import Limits
from edge.contract.op import Call, op
from edge.contract.store import Store, Unit
from edge.services.message import records as r
from edge.services.message.memory import Memory
from edge.services.message.places import clamp, place_of, reader_of
from edge.store import messages
from edge.store.messages import Reader

PEERS_DEFAULT = 100


class CatalogueService:
    """The senders of an inbox, as a reader that fetches by sender sees them."""

    def __init__(self, node: Store, memory: Memory, limits: Limits) -> None:
        self._node, self._memory, self._limits = node, memory, limits

    @op(
        "message.peers",
        scope="message:read",
        wire={"aun": ("message.peers",)},
        raises=(InvalidParams, NotPermitted),
    )
    async def peers(self, call: Call[r.Peers]) -> r.Catalogue:
        """Who has written, and how far this device has read each of them."""
        asked, reader = call.params, reader_of(call, r.Place())
        if asked.filter not in ("pending", "all"):
            raise InvalidParams("filter is pending or all")
        if asked.filter == "pending" and (asked.limit is not None or asked.page_token is not None):
            raise InvalidParams("pending is not paged")
        if not await self._node.read(lambda unit: messages.frozen(unit, reader)):
            await self._node.commit(lambda unit: messages.freeze(unit, reader))
        await self._memory.settled(reader.aid)
        if asked.filter == "pending":
            return await self._pending(reader)
        limit = clamp(asked.limit, PEERS_DEFAULT, self._limits[r.PAGE_ROWS])
        return await self._everybody(reader, asked.page_token or "", limit)

    async def _pending(self, reader: Reader) -> r.Catalogue:
        def work(unit: Unit) -> tuple[list[messages.Peer], int, int, int, dict[str, int]]:
            waiting = {row.message.sender for row in queued} | volatile
            found = messages.peers(unit, reader)
            extra = {name: messages.cursor(unit, reader, name) for name in waiting}
            return (
                found,
                messages.head(unit, reader.aid),
                messages.floor(unit, reader.aid),
                messages.boot(unit, reader),
                extra,
            )

        ring, now = self._memory.ring, self._memory.now_us
        queued = ring.visible(reader.aid, place_of(reader), now)
        volatile = self._memory.volatile.senders(reader.aid, place_of(reader), now)
        found, head, floor, boot, cursors = await self._node.read(work)
        heads = {peer.sender: (peer.head, peer.acked) for peer in found}
        for row in queued:
            last, acked = heads.get(row.message.sender, (0, cursors[row.message.sender]))
            heads[row.message.sender] = (max(last, row.seq), acked)
        for name in volatile:
            heads.setdefault(name, (0, cursors[name]))
        entries = [
            _entry(name, last, acked, boot, floor, volatile=name in volatile)
            for name, (last, acked) in sorted(heads.items())
            if last > max(acked, floor) or name in volatile
        ]
        return _catalogue(reader, boot, head, entries, "pending")

    async def _everybody(self, reader: Reader, above: str, limit: int) -> r.Catalogue:
        def work(unit: Unit) -> tuple[list[messages.Peer], int, int, int]:
            found = messages.peers(unit, reader, above=above, limit=limit + 1)
            return found, messages.head(unit, reader.aid), messages.floor(unit, reader.aid), messages.boot(unit, reader)

        found, head, floor, boot = await self._node.read(work)
        volatile = self._memory.volatile.senders(reader.aid, place_of(reader), self._memory.now_us)
        entries = [
            _entry(peer.sender, peer.head, peer.acked, boot, floor, volatile=peer.sender in volatile)
            for peer in found[:limit]
        ]
        answer = _catalogue(reader, boot, head, entries, "all")
        answer.has_more = len(found) > limit
        if answer.has_more:
            answer.next_page_token = found[limit - 1].sender
        return answer


def _entry(sender: str, head: int, acked: int, boot: int, floor: int, *, volatile: bool) -> r.PeerEntry:
    return r.PeerEntry(
        sender_aid=sender,
        head_seq=max(head, acked),
        server_ack_seq=acked,
        initial_after_seq=acked,
        initialization_source="peer" if acked > boot else "bootstrap",
        next_pending_seq=acked if head > acked else msgspec.UNSET,
        volatile_has_more=volatile,
        retention_floor_seq=floor,
        earliest_available_seq=floor + 1 if floor else None,
    )


def _catalogue(reader: Reader, boot: int, head: int, entries: list[r.PeerEntry], asked: str) -> r.Catalogue:
    return r.Catalogue(
        cursor_scope="peer",
        receiver_aid=reader.aid,
        device_id=reader.device,
        bootstrap_floor_seq=boot,
        catalog_ready=True,
        catalog_revision=head,
        peers=entries,
        filter=asked,
    )
