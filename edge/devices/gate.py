"""The only way to act on the world: orders out as commands or native tasks, what comes back as reports (`DeviceGate`).

Reading is answered at once with the latest value. A command to a topic is confirmed by the state that it asks for;
after a stated deadline it ends with the truth: sent, not confirmed. A native device gets the task itself, with all
its parts, and says what becomes of it. What is meant for a device that is offline waits, and goes out once, when it
comes back. Nothing here is kept over a restart: the task service delivers again what was under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from edge.contract.bus import Bus, Done, Publish
from edge.contract.capability import Capability, Skill
from edge.contract.errors import EdgeError, InvalidParams, NotFound
from edge.contract.principal import NODE
from edge.contract.task import Order, Report, TaskSink
from edge.contract.time import SECOND, Clock, later
from edge.contract.wire import JsonLimits, dumps, loads
from edge.devices import limits as bounds
from edge.devices.acks import Losses
from edge.devices.model import Cap, Device, Latest
from edge.devices.registry import Registry
from edge.protocol.discovery import native
from edge.protocol.discovery.record import Refusal, Value, Writer, confirmed_by, number, plain, write
from edge.protocol.discovery.template import NO_SAMPLE
from edge.protocol.view import iso

log = logging.getLogger(__name__)

CONFIRM_US = 3 * SECOND
"""How long a command waits for the state that confirms it, unless the configuration says otherwise."""

AFTER_CANCEL_US = 60 * SECOND
"""How long the end of a canceled native task is still matched with its order."""

RETRY_US = SECOND

_FINAL = frozenset({"completed", "failed", "rejected", "canceled"})
_SWITCH = {"on": True, "off": False}
_GIVEN = JsonLimits(65_536, 32)


class _Open:
    """An order under way: what was asked, what would confirm it, and its timer."""

    __slots__ = ("cancel_timer", "cap", "heard", "order", "sent", "seq", "value")

    def __init__(self, order: Order, cap: Cap, value: Value) -> None:
        self.order, self.cap, self.value = order, cap, value
        self.sent = False
        self.heard = False
        self.seq = 0
        self.cancel_timer: Callable[[], None] | None = None


class Gate:
    """`DeviceGate` over the registry and the bus. Everything runs in the loop and returns at once."""

    def __init__(self, registry: Registry, bus: Bus, clock: Clock, *, confirm_us: int = CONFIRM_US) -> None:
        self._registry, self._bus, self._clock, self._confirm_us = registry, bus, clock, confirm_us
        self._limits, self._counters = registry.limits, registry.counters
        self._losses = Losses(registry.node, clock)
        self._sink: TaskSink | None = None
        self._open: dict[str, _Open] = {}
        registry.on_value.append(self._valued)
        registry.on_presence.append(self._present)
        registry.on_gone.append(self._gone)

    def report_to(self, sink: TaskSink) -> None:
        """Where reports go. Before anything is delivered."""
        self._sink = sink

    def skills(self) -> list[Skill]:
        """Every skill there is now, by id, with latest values."""
        return self._registry.skills()

    def skill(self, skill_id: str) -> Skill | None:
        """One skill."""
        return self._registry.skill(skill_id)

    def check(self, order: Order) -> None:
        """Whether the order makes sense. Raises `NotFound`, `InvalidParams` with what the capability takes."""
        cap = self._registry.cap(order.skill)
        if cap is None:
            raise NotFound(f"no skill {order.skill!r} here")
        if cap.what.native and order.verb == "" and cap.what.writable:
            return
        if not _reads(order, cap.what):
            self._value(order, cap)

    def deliver(self, order: Order) -> None:
        """Carry an order out; after the commit that records the intent. Reports come through the sink."""
        cap = self._registry.cap(order.skill)
        if cap is None:
            self._report(order, "failed", reason="skill_gone", text=f"{order.skill} is not there any more")
            return
        if _reads(order, cap.what):
            self._answer_reading(order, cap)
            return
        if len(self._open) >= self._limits[bounds.OPEN_ORDERS] and order.task_id not in self._open:
            self._limits.hit(bounds.OPEN_ORDERS)
            self._report(order, "failed", reason="busy", text="too many orders are under way")
            return
        try:
            value = None if cap.what.native else self._value(order, cap)
        except EdgeError as error:
            self._report(order, "failed", reason="invalid_params", text=error.message)
            return
        if order.again and not cap.what.native and (order.verb == "toggle" or not cap.what.repeat_safe):
            self._report(order, "failed", reason="outcome_unknown", text="interrupted; it may have been carried out")
            return
        self._close(order.task_id)
        entry = self._open[order.task_id] = _Open(order, cap, value)
        if self._offline(cap):
            self._hold(entry)
        else:
            self._send(entry)

    def cancel(self, order: Order) -> None:
        """Ask the device to stop. What was never sent is simply not sent."""
        entry = self._open.get(order.task_id)
        if entry is not None and not entry.sent:
            self._close(order.task_id)
            self._report(order, "canceled", reason="not_sent")
            return
        cap = entry.cap if entry is not None else self._registry.cap(order.skill)
        if cap is None:
            return
        if cap.what.native:
            self._tell(cap, order.task_id, "cancel", {"task_id": order.task_id})
            if entry is not None:
                self._drop_after(entry, AFTER_CANCEL_US)
            return
        writer = cap.component.writer
        if writer is not None and cap.what.cancellable and "stop" in cap.what.verbs:
            self._close(order.task_id)
            self._publish(writer, write(writer, "stop"))
            self._report(order, "canceled", reason="stop_sent", text="the stop command was sent")

    def answer(self, task_id: str, skill: str, parts: bytes) -> None:
        """Hand the caller's input to a device that asked."""
        cap = self._registry.cap(skill)
        if cap is not None and cap.what.native:
            self._tell(cap, task_id, "input", {"task_id": task_id, "parts": loads(parts)})

    def event(self, device: str, task_id: str, said: native.Event, done: Done) -> None:
        """A native device says something of a task; `done` once it is on disk. Repeats are taken as said."""
        entry = self._open.get(task_id)
        if entry is not None:
            if entry.cap.device.slug != device:
                self._counters["event of another's task"] += 1
                self._losses.add("task", task_id, 1, "another's task", device, done)
                return
            entry.heard = True
            if said.seq and said.seq <= entry.seq:
                done(None)
                return
        report = Report(
            task_id=task_id,
            state=said.state,
            seq=said.seq,
            reason=said.reason,
            message=said.message,
            artifact=said.artifact,
            device=device,
        )

        def taken(error: BaseException | None) -> None:
            if error is not None and not _may_pass(error):
                self._refused(report, error, done)
                return
            if error is None and entry is not None:
                entry.seq = max(entry.seq, said.seq)
                if said.state in _FINAL and self._open.get(task_id) is entry:
                    self._close(task_id)
            done(error)

        if self._sink is None:
            done(None)
            return
        self._sink.report(report, taken)

    def _refused(self, report: Report, error: BaseException, done: Done) -> None:
        """What a device said can never be taken: it is acked and in the ledger, and its task ends with why."""
        self._counters["refused reports"] += 1
        log.warning("task %s: what %s said is refused: %s", report.task_id, report.device, error)
        self._losses.add("task", report.task_id, 1, "refused report", report.device, done)
        entry = self._open.get(report.task_id)
        if entry is not None:
            self._close(report.task_id)
            text = error.message if isinstance(error, EdgeError) else "what the device said cannot be used"
            self._report(entry.order, "failed", reason="bad_report", text=text)

    # Orders.

    def _value(self, order: Order, cap: Cap) -> Value:
        """The command in the capability's own terms. Raises `InvalidParams`."""
        what = cap.what
        if not what.writable:
            raise InvalidParams(f"{cap.skill_id} can only be read")
        if order.verb == "toggle" and "toggle" in what.verbs:
            if what.native:
                return "toggle"
            latest = cap.latest.value if cap.latest is not None else None
            if not isinstance(latest, bool):
                raise InvalidParams(f"{cap.skill_id} cannot be toggled: its state is not known")
            return not latest
        if order.verb in ("", "set"):
            if not order.value:
                raise InvalidParams(f"{cap.skill_id} takes {_takes(what)}")
            value = loads(order.value, JsonLimits(self._limits[bounds.COMMAND_OCTETS], 16))
            return self._checked(value, cap)
        if order.verb not in what.verbs:
            raise InvalidParams(f"{cap.skill_id} does not take {order.verb!r}; it takes {_takes(what)}")
        if what.value_type == "boolean" and order.verb in _SWITCH:
            return _SWITCH[order.verb]
        return order.verb

    def _checked(self, value: Any, cap: Cap) -> Value:
        what, size = cap.what, len(dumps(value))
        if size > self._limits[bounds.COMMAND_OCTETS]:
            raise self._limits.refuse(bounds.COMMAND_OCTETS, cap.skill_id)
        good = _fits(value, what)
        if good and not what.native and cap.component.writer is not None:
            try:
                write(cap.component.writer, value)
            except Refusal as error:
                raise InvalidParams(f"{cap.skill_id}: {error.detail or error.reason}") from None
        if not good:
            raise InvalidParams(f"{cap.skill_id} takes {_takes(what)}")
        return number(value) if what.value_type == "number" else value  # type: ignore[return-value]

    def _offline(self, cap: Cap) -> bool:
        own = cap.online()
        return (cap.device.online() if own is None else own) is False

    def _hold(self, entry: _Open) -> None:
        """The device is asleep or away: the order waits, for a stated time at most."""
        hold_s = self._limits[bounds.HOLD_S]
        due = self._clock.now().mono_us + hold_s * SECOND

        def over() -> None:
            self._limits.hit(bounds.HOLD_S)
            self._close(entry.order.task_id)
            self._report(entry.order, "failed", reason="device_offline", text=f"the device was offline for {hold_s} s")

        entry.cancel_timer = self._clock.at(due, over)
        text = f"{entry.cap.device.title} is offline; the order is sent when it is back"
        self._report(entry.order, "accepted", reason="device_offline", text=text)

    def _send(self, entry: _Open) -> None:
        if entry.cancel_timer is not None:
            entry.cancel_timer()
            entry.cancel_timer = None
        entry.sent = True
        if entry.cap.what.native:
            self._send_native(entry)
            return
        writer = entry.cap.component.writer
        if writer is None:
            self._close(entry.order.task_id)
            self._report(entry.order, "failed", reason="not_writable", text="the capability takes no commands any more")
            return
        try:
            payload = write(writer, entry.value)
        except Refusal as error:
            self._close(entry.order.task_id)
            self._report(entry.order, "failed", reason="invalid_params", text=error.detail or error.reason)
            return
        if not entry.cap.what.readable:
            self._publish(writer, payload)
            self._close(entry.order.task_id)
            self._sent_only(entry, "command sent; this device reports no state")
            return
        due = self._clock.now().mono_us + self._confirm_us
        entry.cancel_timer = self._clock.at(due, lambda: self._unconfirmed(entry))
        self._publish(writer, payload)

    def _send_native(self, entry: _Open) -> None:
        order, cap = entry.order, entry.cap
        body = {
            "task_id": order.task_id,
            "message_id": order.message_id,
            "context_id": order.context_id,
            "skill": order.skill,
            "cap": cap.name,
            "params": _params(order),
            "parts": loads(order.parts or b"[]"),
            "metadata": loads(order.metadata or b"{}"),
            "deadline_ms": order.deadline_us // 1000,
        }
        self._tell(cap, "", "", body)
        self._drop_after(entry, self._limits[bounds.HOLD_S] * SECOND)

    def _drop_after(self, entry: _Open, us: int) -> None:
        """Forget an order of which its device says nothing more; the task itself has its own deadline."""
        if entry.cancel_timer is not None:
            entry.cancel_timer()
        due = self._clock.now().mono_us + us
        entry.cancel_timer = self._clock.at(due, lambda: self._close(entry.order.task_id))

    def _tell(self, cap: Cap, task_id: str, word: str, body: dict[str, Any]) -> None:
        level = cap.device.row.native or cap.device.slug
        topic = native.task_topic(level, *([task_id, word] if word else []))
        self._bus.publish(Publish(topic, dumps(body), 1, False, NODE, self._clock.now()))

    def _publish(self, writer: Writer, payload: bytes) -> None:
        self._bus.publish(Publish(writer.topic, payload, writer.qos, writer.retain, NODE, self._clock.now()))

    def _close(self, task_id: str) -> None:
        entry = self._open.pop(task_id, None)
        if entry is not None and entry.cancel_timer is not None:
            entry.cancel_timer()
            entry.cancel_timer = None

    # What the registry says.

    def _valued(self, cap: Cap, latest: Latest, live: bool) -> None:
        """A state came in: it may be the one that a command waits for."""
        if not live or not self._open:
            return
        writer = cap.component.writer
        for entry in [one for one in self._open.values() if one.cap is cap and one.sent and not cap.what.native]:
            if writer is not None and _confirms(cap.what, confirmed_by(writer, entry.value), latest.value):
                self._close(entry.order.task_id)
                self._completed(entry, f"confirmed: {_said(cap.what, latest.value)}", latest.value, confirmed=True)

    def _present(self, device: Device) -> None:
        """A device came back: what waits for it goes out, what it never answered goes out again."""
        if device.online() is not True:
            return
        for entry in [one for one in self._open.values() if one.cap.device is device]:
            if not entry.sent and entry.cap.what.risk != self._registry.routes.risk(entry.cap):
                self._close(entry.order.task_id)
                text = f"{entry.cap.skill_id} became high risk while the order waited"
                self._report(entry.order, "failed", reason="high_risk", text=text)
            elif not entry.sent or (entry.cap.what.native and not entry.heard):
                self._send(entry)

    def _gone(self, cap: Cap) -> None:
        """A capability was withdrawn: what waits for it has an end."""
        for entry in [one for one in self._open.values() if one.cap is cap]:
            self._close(entry.order.task_id)
            self._report(entry.order, "failed", reason="skill_gone", text=f"{cap.skill_id} was withdrawn")

    # Reports.

    def _answer_reading(self, order: Order, cap: Cap) -> None:
        skill = self._registry.skill_of(cap)
        if cap.latest is None or skill.value is None:
            self._report(order, "failed", reason="no_value", text=f"{cap.skill_id} has not reported a value yet")
            return
        said = f"{_said(cap.what, skill.value)}" + ("" if skill.online is not False else " (last known; offline)")
        self._report(order, "completed", artifact=_artifact(cap, said, skill.value, skill.at, {"online": skill.online}))

    def _unconfirmed(self, entry: _Open) -> None:
        entry.cancel_timer = None
        self._close(entry.order.task_id)
        self._counters["unconfirmed"] += 1
        self._sent_only(entry, f"command sent, state not confirmed within {self._confirm_us / SECOND:g} s")

    def _sent_only(self, entry: _Open, text: str) -> None:
        latest = entry.cap.latest
        self._completed(entry, text, latest.value if latest is not None else None, confirmed=False)

    def _completed(self, entry: _Open, text: str, value: object, *, confirmed: bool) -> None:
        at = self._registry.skill_of(entry.cap).at
        more = {"confirmed": confirmed, "ordered": entry.value}
        artifact = _artifact(entry.cap, text, value, at, more)
        self._report(entry.order, "completed", reason="" if confirmed else "state_not_confirmed", artifact=artifact)

    def _report(self, order: Order, state: str, *, reason: str = "", text: str = "", artifact: bytes = b"") -> None:
        message = dumps([{"kind": "text", "text": text}]) if text else b""
        self._hand_in(
            Report(task_id=order.task_id, state=state, reason=reason, message=message, artifact=artifact),
            self._limits[bounds.REPORT_TRIES],
        )

    def _hand_in(self, report: Report, left: int) -> None:
        """A report of the node's own; tried again while the store refuses it."""

        def taken(error: BaseException | None) -> None:
            if error is None or not _may_pass(error):
                return
            if left <= 0:
                self._counters["reports lost"] += 1
                self._limits.hit(bounds.REPORT_TRIES)
                log.error("what became of task %s could not be written: %s", report.task_id, error)
                self._lost(report)
                return
            later(self._clock, RETRY_US, lambda: self._hand_in(report, left - 1))

        if self._sink is not None:
            self._sink.report(report, taken)

    def _lost(self, report: Report) -> None:
        """A report of the node's own was given up: the ledger says so as soon as the store takes anything."""

        def written(error: BaseException | None) -> None:
            if error is not None:
                later(self._clock, RETRY_US, lambda: self._lost(report))

        self._losses.add("task", report.task_id, 1, "report lost", "node", written)


def _may_pass(error: BaseException) -> bool:
    """Whether it is the store or the moment, not what was said."""
    return isinstance(error, OSError) or (isinstance(error, EdgeError) and error.retryable)


def _params(order: Order) -> dict[str, Any]:
    """What the caller gave, with the verb and the value as they were understood."""
    given: dict[str, Any] = loads(order.params or b"{}", _GIVEN)
    if order.verb not in ("", "set"):
        return {**given, "verb": order.verb}
    return {**given, "value": loads(order.value)} if order.value else given


def _reads(order: Order, what: Capability) -> bool:
    """Whether an order asks for the value and nothing else."""
    return what.readable and (order.verb == "read" or (order.verb == "" and not order.value and not what.writable))


def _fits(value: Any, what: Capability) -> bool:
    if what.options:
        return value in what.options if isinstance(value, str) else False
    match what.value_type:
        case "boolean":
            return isinstance(value, bool)
        case "number":
            found = number(value)
            if found is NO_SAMPLE:
                return False
            low, high = what.minimum, what.maximum
            return (low is None or found >= low) and (high is None or found <= high)
        case "text":
            if not isinstance(value, str):
                return False
            shortest, longest = what.minimum or 0, what.maximum
            return len(value) >= shortest and (longest is None or len(value) <= longest)
        case "none":
            return False
    return True


def _takes(what: Capability) -> str:
    """What a capability takes, for an error that helps."""
    words = [*what.verbs]
    if what.options:
        words += [one for one in what.options if one not in words]
    elif what.value_type == "number":
        low = "" if what.minimum is None else plain(float(what.minimum))
        high = "" if what.maximum is None else plain(float(what.maximum))
        words.append(f"a number {low}…{high} {what.unit}".strip())
    elif what.value_type == "boolean":
        words.append("true or false")
    elif what.value_type == "text":
        words.append("a text")
    return ", ".join(words) or "no value"


def _confirms(what: Capability, wanted: object, value: object) -> bool:
    if what.value_type == "number" and isinstance(wanted, int | float) and isinstance(value, int | float):
        return abs(float(wanted) - float(value)) <= (what.step or 0) / 2 + 1e-9
    return type(wanted) is type(value) and wanted == value


def _said(what: Capability, value: object) -> str:
    word = ("on" if value else "off") if isinstance(value, bool) else plain(value)
    return f"{word} {what.unit}".strip()


def _artifact(cap: Cap, text: str, value: object, at: int | None, more: dict[str, Any]) -> bytes:
    """One artifact: a text for people, a data part for programs. `at` is ISO 8601 UTC, null when nobody knows."""
    data = {"skill": cap.skill_id, "value": value, "unit": cap.what.unit, "at": None if at is None else iso(at), **more}
    parts = [{"kind": "text", "text": text}, {"kind": "data", "data": data}]
    return dumps({"id": "reading", "name": cap.skill_id, "append": False, "last": True, "parts": parts})
