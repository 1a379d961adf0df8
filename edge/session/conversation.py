"""One peer's requests and their answers (design D2a): the receive loop never waits for a handler.

Each request gets exactly one answer. Handlers run as tasks, at most 32 per connection; what comes above that, or
above the caller's rate, is refused at once. A handler outlives its connection: what it began to write it finishes.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import types
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from typing import Any, Protocol

from edge.contract.errors import EdgeError, Internal, NotAuthenticated, NotReady, RateLimited, TooLarge, Unavailable
from edge.contract.limit import Limits, declare
from edge.contract.op import Door, Op, Outcome, Spawn
from edge.contract.principal import GUEST, Kind, Principal
from edge.contract.time import SECOND, Clock, Stamp, later
from edge.contract.wire import dumps, loads
from edge.protocol.jsonrpc import Refused, Request
from edge.session.channels import GOING_AWAY, IDLE, Channels, LiveChannel, Shows, Stream, short_idle_us
from edge.session.limiter import BUSY_MS, Limiter, Ticket

log = logging.getLogger(__name__)

REQUESTS = declare("session.requests", 32, "requests", "of one connection running at once", RateLimited)
AUTH_SECONDS = declare(
    "session.auth_seconds", 30, "s", "a socket may take until auth.connect; it then closes, after its last answer", None
)
AUTH_ATTEMPTS = declare("session.auth_attempts", 5, "failures", "to authenticate on one socket; it then closes", None)
ANSWER = declare("session.answer_octets", 2_000_000, "bytes", "of one answer; SDKs drop longer frames", TooLarge)
REFUSALS = declare(
    "session.refusals", 100, "refusals/s", "of one connection over its rates; it is then read more slowly", None
)
GUEST_FRAME = declare(
    "session.guest_octets",
    65_536,
    "bytes",
    "of one frame before auth.connect; a longer one is refused unread",
    TooLarge,
)
NOTIFICATION = declare("session.notification_octets", 65_536, "bytes", "of one notification; longer are dropped", None)

POLICY = 1008
ENVELOPE = 1024
"""What an answer's frame may add to its result."""
BURST = 16
"""Frames that are taken in one go before others get their turn; a long one counts as several."""
LONG = 8192
"""Bytes that count as a frame more."""


class Codec(Shows, Protocol):
    """One surface's frames. Without state: it may serve many connections."""

    @property
    def surface(self) -> str:
        """The surface whose wire names it reads."""
        ...

    def read(self, frame: bytes) -> Request | Refused | None:
        """One inbound frame; None is ignored."""
        ...

    def answer(self, request: Request, value: bytes, at_ms: int, took_ms: int) -> bytes:
        """A result; `value` is JSON."""
        ...

    def refuse(self, request: Request, error: EdgeError, at_ms: int, took_ms: int) -> bytes:
        """A failure."""
        ...

    def refuse_frame(self, key: bytes, error: EdgeError) -> bytes:
        """The failure of what was no request."""
        ...

    def item(self, request: Request, value: object) -> bytes | None:
        """One item of a streamed result; None on surfaces without them."""
        ...

    def open_to_guests(self, method: str) -> bool:
        """Whether a peer that has not authenticated may ask for this."""
        ...

    def fatal(self, error: EdgeError) -> int | None:
        """The close code that follows this error, if any."""
        ...

    def dialect(self, hello: Mapping[str, Any]) -> str:
        """The dialect that `hello` announced."""
        ...


class Dispatch(Protocol):
    """What a conversation asks of the dispatcher."""

    def find(self, surface: str, name: str) -> Op | None:
        """The operation behind a wire name."""
        ...

    async def call(
        self,
        surface: str,
        name: str,
        params: bytes,
        who: Principal,
        *,
        dialect: str = "",
        door: Door | None = None,
        trace: str = "",
    ) -> Outcome:
        """Run it. Raises `EdgeError`."""
        ...


class Sessions:
    """Runs every conversation of the node. `spawn` starts tasks in the node's TaskGroup."""

    def __init__(
        self, dispatch: Dispatch, channels: Channels, limiter: Limiter, clock: Clock, limits: Limits, spawn: Spawn
    ) -> None:
        self.dispatch = dispatch
        self.channels = channels
        self.limiter = limiter
        self.clock = clock
        self.limits = limits
        self.spawn = spawn
        self._live: set[Conversation] = set()
        self._quiet = asyncio.Event()
        self.refused: Counter[str] = Counter()
        """Frames that were no requests, by the error they got."""
        self.ignored = 0
        """Notifications that nobody handles or whose handler refused them: there is nobody to tell."""

    @property
    def running(self) -> int:
        """Requests without an answer yet."""
        return sum(len(one.unanswered) for one in self._live)

    async def converse(
        self, stream: Stream, codec: Codec, door: Door, *, who: Principal = GUEST, greeting: bytes = b""
    ) -> None:
        """Serve one peer until it is gone. Closes the stream with 1013 when there are too many already."""
        try:
            channel = self.channels.open(stream, codec, door, who)
        except EdgeError as error:
            stream.close(1013, error.message[:120])
            return
        if greeting:
            channel.send(greeting, "control")
        self.spawn(channel.deliver())
        conversation = Conversation(self, channel, codec)
        self._live.add(conversation)
        try:
            await conversation.run()
        finally:
            conversation.end()
            channel.gone()
            self.channels.drop(channel)
            self._live.discard(conversation)
            self.noticed()

    def stop_reading(self) -> None:
        """Refuse what comes in from now on; what runs goes on."""
        self.channels.stop_reading()

    async def drain(self, deadline_us: int) -> bool:
        """Let what runs finish until `deadline_us`, refuse the rest, flush the queues; whether all of it finished."""
        try:
            async with self.clock.until(deadline_us):
                while self.running:
                    self._quiet.clear()
                    await self._quiet.wait()
        except TimeoutError:
            pass
        finished = not self.running
        for conversation in list(self._live):
            conversation.refuse_rest(Unavailable("the node is stopping: the outcome is unknown, ask again"))
        flushed = await self.channels.flush(max(deadline_us, self.clock.now().mono_us + SECOND // 2))
        return finished and flushed

    def close_all(self, code: int = GOING_AWAY, reason: str = "restart") -> int:
        """Close every channel; clients come back by themselves after 1012. How many."""
        return self.channels.close_all(code, reason)

    def noticed(self) -> None:
        """A request was answered."""
        if not self.running:
            self._quiet.set()


class Conversation:
    """The state of one connection: what is unanswered, and whether it must end."""

    def __init__(self, sessions: Sessions, channel: LiveChannel, codec: Codec) -> None:
        self._sessions = sessions
        self._channel = channel
        self._codec = codec
        self._numbers = itertools.count()
        self._streams: set[asyncio.Task[Any]] = set()
        self._ending = ""
        self._read_on_us = 0
        self._cancel_timer: Callable[[], None] = _nothing
        self.unanswered: dict[int, tuple[Request, Stamp]] = {}

    async def run(self) -> None:
        """Take frames until the peer is gone."""
        clock = self._sessions.clock
        if self._channel.principal.kind is Kind.GUEST:
            due = clock.now().mono_us + self._sessions.limits[AUTH_SECONDS] * SECOND
            self._cancel_timer = clock.at(due, self._too_late)
        taken = 0
        async for frame in self._channel.frames():
            self.take(frame)
            if self._read_on_us > clock.now().mono_us:
                self._sessions.limits.hit(REFUSALS)
                await clock.sleep_until(self._read_on_us)
            taken += 1 + len(frame) // LONG
            if taken >= BURST:
                taken = 0
                await _turn()

    def take(self, frame: bytes) -> None:
        """One inbound frame: refused, ignored, or handed to a task. Never waits, never raises."""
        if not self._channel.open:
            return
        self._restart_idle()
        read = self._read(frame)
        if read is None:
            return
        if isinstance(read, Refused):
            self._sessions.refused[type(read.error).__name__] += 1
            self._count_refusal()
            self._channel.send(self._codec.refuse_frame(read.id, read.error), "answer")
            return
        if not read.wants_answer and len(frame) > self._sessions.limits[NOTIFICATION]:
            self._sessions.limits.hit(NOTIFICATION)
            return
        number = next(self._numbers)
        self.unanswered[number] = (read, self._sessions.clock.now())
        try:
            ticket = self._admit(read)
        except EdgeError as error:
            if isinstance(error, RateLimited):
                self._count_refusal()
            self._refuse(number, error)
            return
        self._sessions.spawn(self._serve(number, read, ticket))

    def _read(self, frame: bytes) -> Request | Refused | None:
        """The codec's reading; a stranger's long frame is not worth the time."""
        limits = self._sessions.limits
        if self._channel.principal.kind is Kind.GUEST and len(frame) > limits[GUEST_FRAME]:
            return Refused(b"null", limits.refuse(GUEST_FRAME))
        return self._codec.read(frame)

    def _count_refusal(self) -> None:
        """Saying no costs work too: a second's worth is free, then the peer waits for each."""
        now_us = self._sessions.clock.now().mono_us
        earliest = max(self._read_on_us, now_us - SECOND)
        self._read_on_us = earliest + SECOND // self._sessions.limits[REFUSALS]

    def refuse_rest(self, error: EdgeError) -> None:
        """Answer whatever still has no answer."""
        for number in list(self.unanswered):
            self._refuse(number, error)

    def end(self) -> None:
        """The peer is gone: nobody waits for answers, streams stop."""
        self._cancel_timer()
        self.unanswered.clear()
        for stream in self._streams:
            stream.cancel()

    def _admit(self, request: Request) -> Ticket:
        sessions, who = self._sessions, self._channel.principal
        if not sessions.channels.reading:
            raise Unavailable("the node is stopping")
        if len(self.unanswered) > sessions.limits[REQUESTS]:
            raise sessions.limits.refuse(REQUESTS, again_ms=BUSY_MS)
        ticket = sessions.limiter.begin(who, self._channel.address, self._class(request))
        if who.kind is Kind.GUEST and not self._codec.open_to_guests(request.method):
            ticket.release()
            raise NotReady
        return ticket

    def _class(self, request: Request) -> str:
        if request.method.startswith("auth.") and self._channel.principal.kind is Kind.GUEST:
            return "auth"  # an agent who is in spends its own rate: its neighbours must be able to log in
        op = self._sessions.dispatch.find(self._codec.surface, request.method)
        return op.scope.partition(":")[2] if op is not None else ""

    async def _serve(self, number: int, request: Request, ticket: Ticket) -> None:
        channel = self._channel
        try:
            outcome = await self._sessions.dispatch.call(
                self._codec.surface,
                request.method,
                request.params,
                channel.principal,
                dialect=self._codec.dialect(channel.announced),
                door=channel.door(),
                trace=request.trace.id if request.trace is not None else "",
            )
            if isinstance(outcome.result, AsyncIterator):
                outcome = Outcome(result=await self._stream(request, outcome.result))
            value = dumps(outcome.result)
            if len(value) > self._sessions.limits[ANSWER]:
                raise self._sessions.limits.refuse(ANSWER, "ask for less at once")
            await channel.fits(len(value) + ENVELOPE)  # several large answers at once are no slow reader
            self._finish(number, outcome, value)
        except EdgeError as error:
            self._failed(request, error)
            self._refuse(number, error)
        except asyncio.CancelledError:
            self._refuse(number, Unavailable("the node is stopping"))
            raise
        except Exception:
            log.exception("%s %s failed", self._codec.surface, request.method)
            self._refuse(number, Internal())
        finally:
            ticket.release()

    async def _stream(self, request: Request, items: AsyncIterator[object]) -> dict[str, int]:
        """Send the items of a streamed result as the peer reads them; how many there were."""
        task, count = asyncio.current_task(), 0
        if task is not None:
            self._streams.add(task)
        try:
            async for value in items:
                frame = self._codec.item(request, value)
                if frame is None:
                    raise Internal
                if not await self._channel.room() or not self._channel.send(frame, "answer"):
                    break
                count += 1
        finally:
            if task is not None:
                self._streams.discard(task)
            if (close := getattr(items, "aclose", None)) is not None:
                await close()
        return {"items": count}

    def _finish(self, number: int, outcome: Outcome, value: bytes) -> None:
        """Apply what the outcome changes, then answer: events of the new identity come after its answer."""
        channel, sessions = self._channel, self._sessions
        if number not in self.unanswered or not channel.open:
            self.unanswered.pop(number, None)
            return
        try:
            if outcome.become is not None:
                announced = loads(outcome.hello) if outcome.hello else {}
                sessions.channels.admit(channel, outcome.become, outcome.hello, announced)
                self._cancel_timer()
                self._restart_idle()
            if outcome.watch:
                sessions.channels.watch(channel, outcome.watch)
        except EdgeError as error:
            self._refuse(number, error)
            return
        self._answer(number, lambda request, at, took: self._codec.answer(request, value, at, took))
        if outcome.become is not None and channel.instance is not None:
            for told in sessions.channels.on_admitted:
                told(channel.instance)
        if outcome.close is not None:
            channel.close(outcome.close, "")

    def _refuse(self, number: int, error: EdgeError) -> None:
        self._answer(number, lambda request, at, took: self._codec.refuse(request, error, at, took))
        if (code := self._codec.fatal(error)) is not None:
            self._channel.close(code, error.message[:120])

    def _answer(self, number: int, show: Callable[[Request, int, int], bytes]) -> None:
        """The one answer of a request: whoever comes second finds it gone."""
        found = self.unanswered.pop(number, None)
        if found is None:
            return
        request, came = found
        if request.wants_answer:
            clock = self._sessions.clock
            took_us = clock.now().mono_us - came.mono_us
            self._channel.send(show(request, clock.wall(came)[0] // 1000, took_us // 1000), "answer")
        self._sessions.noticed()
        if self._ending and not self.unanswered:
            self._channel.close(POLICY, self._ending)

    def _failed(self, request: Request, error: EdgeError) -> None:
        if not request.wants_answer:
            self._sessions.ignored += 1
        if not isinstance(error, NotAuthenticated) or not request.method.startswith("auth."):
            return
        self._channel.attempts += 1
        if self._channel.attempts >= self._sessions.limits[AUTH_ATTEMPTS]:
            self._sessions.limits.hit(AUTH_ATTEMPTS)
            self._ending = "too many failed attempts"

    def _too_late(self) -> None:
        """§6.1: not authenticated in time; the answer that is under way still leaves."""
        self._sessions.limits.hit(AUTH_SECONDS)
        self._ending = "auth.connect took too long"
        if not self.unanswered:
            self._channel.close(POLICY, self._ending)

    def _restart_idle(self) -> None:
        """A short channel closes when it has been quiet for its time (§7.4)."""
        channel, clock = self._channel, self._sessions.clock
        if channel.instance is None or channel.instance.long:
            return
        quiet_us = short_idle_us(channel.announced, self._sessions.limits)
        if quiet_us is not None:
            self._cancel_timer()
            self._cancel_timer = later(clock, quiet_us, self._idle)

    def _idle(self) -> None:
        if self.unanswered:
            self._restart_idle()
        else:
            self._channel.close(IDLE, "short connection idle")


@types.coroutine
def _turn() -> Generator[None, None, None]:
    """Let others run once: a burst of frames from one peer is not everybody's wait."""
    yield


def _nothing() -> None:
    pass
