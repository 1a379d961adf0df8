"""One turn: the batch to the sinks, acks that wait for nothing on their way, one write per connection."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from edge.contract.bus import Publish
from edge.protocol.mqtt.ackline import AckLine
from edge.protocol.mqtt.delivery import Delivery, Release
from edge.protocol.mqtt.hold import Hold
from edge.protocol.mqtt.reasons import Reason
from edge.protocol.mqtt.router import ALARM
from edge.protocol.mqtt.sender import Sender
from edge.protocol.mqtt.session import READY, Outgoing, Session
from edge.protocol.mqtt.wire import JOURNAL, URGENT, Reply

logger = logging.getLogger(__name__)

SEARCH_STEPS = 4_000
"""Levels of retained topics that one turn looks at for new subscribers before it lets others have theirs."""


class Turns(Delivery):
    """What happens between two looks of the loop at its sockets."""

    def turn(self) -> None:
        """Hand the batch to the sinks, let go of acks that wait for nothing, write what gathered."""
        self.scheduled = False
        due, self._due, self.unfinished = self._due, self.unfinished, []
        for connection in due:
            connection.go_on()
        if self._due:
            self.need_turn()
        if self._searching:
            self._search()
        if self.batch or self.acks:
            self._settle_turn()
        if self._unsent:
            self._await_journal()
        self.journal.flush(self.now_us)
        if self.journal.recoveries != self._recoveries:
            self._send_again()
        if self.journal.failing and self.retrying is None:
            self.retrying = self.deadlines.at(self.journal.retry_us, self._retry)
        dirty, self.dirty = self.dirty, []
        unsent = len(self._unsent)
        for sender in dirty:
            sender.flush()
            if sender.stalled:
                sender.pump()
        if len(self._unsent) > unsent:
            self.need_turn()
        self.moment = None

    def _await_journal(self) -> None:
        """Alarms do not wait for what a full disk refuses."""
        unsent, self._unsent = self._unsent, []
        alarms = [one for one in unsent if one[1].message.rank == ALARM]
        others = [one for one in unsent if one[1].message.rank != ALARM]
        if alarms:
            self.journal.after(lambda error: self._durable(alarms, error), urgent=True)
        if others:
            self.journal.after(lambda error: self._durable(others, error))

    def _send_again(self) -> None:
        """The store takes everything again: who waits for an ack that never comes is to send again now."""
        self._recoveries = self.journal.recoveries
        for connection in [one for one in self.connections if one.owed]:
            self.count("closed.store_well_again")
            connection.close(Reason.SERVER_BUSY, "send again what was not acked")
        self.dirty += [one for one in self.connections if one.stalled]

    def _retry(self) -> None:
        """Try the store again: the turn that follows hands over what it refused."""
        self.retrying = None

    def search(self, sender: Sender) -> None:
        """Look for the retained messages of a connection's new subscriptions, when it is its turn."""
        self._searching.append(sender)
        self.need_turn()

    def _search(self) -> None:
        """Search within what one turn may cost; at least once."""
        steps = 0
        while self._searching and steps < SEARCH_STEPS:
            steps += self._searching.popleft().search()
        if self._searching:
            self.need_turn()

    def _settle_turn(self) -> None:
        batch, self.batch = self.batch, []
        alarms, self.alarms = self.alarms, set()
        self.messages_in += len(batch)
        acks, self.acks = self.acks, []
        awaited, self.awaited = self.awaited, []
        journaled, self.journaled = self.journaled, set()
        hold, urgent = Hold(), Hold(ALARM)
        kept = self._offer(batch, alarms, hold, urgent, bool(acks or awaited)) if batch else set()
        both = kept & journaled
        on_journal = {hold: bool(both - alarms), urgent: bool(both & alarms)}
        alarms.add(URGENT)
        journaled |= {JOURNAL, URGENT}
        line: AckLine | None = None
        waiting: Hold | None = None
        replies: list[bytes | Reply] = []
        for waits_for, connection, reply in acks:
            mine = urgent if waits_for in alarms else hold
            wait: Hold | None = None
            if isinstance(reply, Release):
                reply.decide(waits_for in kept, mine, connection)
                wait, on_journal[mine] = mine, True
            elif waits_for in kept:
                wait = mine
            elif waits_for in journaled:
                wait, on_journal[mine] = mine, True
            if connection is line and wait is waiting and type(reply) is bytes:
                replies.append(reply)
                continue
            if line is not None:
                line.acked_with(replies, waiting)
            line, waiting, replies = connection, wait, [reply]
            if type(reply) is not bytes:
                line = None
                connection.acked_with(replies, wait)
        if line is not None:
            line.acked_with(replies, waiting)
        for position, told in awaited:
            if position in kept or position in journaled:
                mine = urgent if position in alarms else hold
                mine.calls.append(told)
                on_journal[mine] = on_journal[mine] or position in journaled
            else:
                told(None)
        for one, waits in on_journal.items():
            if waits:
                one.open += 1
                self.journal.after(one.done, urgent=one is urgent)
            one.done()

    def _offer(self, batch: list[Publish], alarms: set[int], hold: Hold, urgent: Hold, matters: bool) -> set[int]:
        """Hand the batch to the sinks, alarms apart and first: when the store refuses the rest, they are no part of
        it. The positions that some sink keeps."""
        if not alarms:
            return self._offer_to_sinks(batch, hold, matters)
        kept: set[int] = set()
        others = [at for at in range(len(batch)) if at not in alarms]
        for places, wait in ((sorted(alarms), urgent), (others, hold)):
            if places:
                mine = self._offer_to_sinks([batch[at] for at in places], wait, matters)
                kept.update(places[at] for at in mine)
        return kept

    def _offer_to_sinks(self, batch: list[Publish], hold: Hold, matters: bool) -> set[int]:
        """The positions that some sink keeps, where that `matters`: somebody waits for an ack."""
        kept: set[int] = set()
        for sink in self._sinks:
            hold.open += 1
            try:
                mine: Iterable[int] = sink(batch, hold.done)
            except Exception as error:
                logger.exception("a sink of the bus raised")
                kept.update(range(len(batch)))
                hold.done(error)
                continue
            if not mine:
                hold.open -= 1
            elif matters:
                kept.update(mine)
        return kept

    def _durable(self, unsent: list[tuple[Session, Outgoing]], error: BaseException | None) -> None:
        """Packet ids of QoS 2 are on disk: publish. If they are not, they wait for the next commit."""
        if error is not None:
            self._give_way(unsent)
            return
        for session, out in unsent:
            if session.inflight.get(out.packet_id) is not out:
                continue  # it was given up meanwhile
            out.state = READY
            if session.conn is not None:
                session.conn.durable(out)
        self.need_turn()

    def _give_way(self, unsent: list[tuple[Session, Outgoing]]) -> None:
        """What the store refuses waits for the next try; where it fills a window, outside of that, so that alarms go
        through. What a new connection has yet to take up stays in its place."""
        full = {session for session, _ in unsent if len(session.inflight) >= session.window}
        kept: list[tuple[Session, Outgoing]] = []
        open_again: set[Session] = set()
        for session, out in reversed(unsent):
            conn = session.conn
            if session not in full or out.message.rank == ALARM or (conn is not None and conn.resuming(out)):
                kept.append((session, out))
            else:
                session.give_back(out)
                open_again.add(session)
        self._unsent += reversed(kept)
        if open_again:
            self.dirty += [session.conn for session in open_again if session.conn is not None]
            self.need_turn()

    def declare(self) -> None:
        """Losses go to the ledger now. Before the store closes."""
        self.journal.declare(self.now_us)

    @property
    def quiet(self) -> bool:
        """Nothing gathers, nothing waits for the store."""
        if self.batch or self.acks or not self.journal.idle:
            return False
        return not any(connection.holds_acks for connection in self.connections)
