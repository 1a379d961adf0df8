"""Appointments are kept in order, once, unless cancelled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.mqtt.deadlines import Deadlines


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=200), st.integers(0, 60))
def test_what_is_due_runs_in_order_and_what_is_cancelled_never(plan: list[tuple[int, bool]], now: int) -> None:
    deadlines = Deadlines()
    ran: list[int] = []
    made = [deadlines.at(due, lambda at=at: ran.append(at)) for at, (due, _) in enumerate(plan)]  # type: ignore[misc]
    for deadline, (_, cancelled) in zip(made, plan, strict=True):
        if cancelled:
            deadlines.cancel(deadline)
            deadlines.cancel(deadline)
    kept = [(due, at) for at, (due, cancelled) in enumerate(plan) if not cancelled]
    assert deadlines.next() == min((due for due, _ in kept), default=None)
    deadlines.run(now)
    assert ran == [at for due, at in sorted(kept) if due <= now]
    deadlines.run(60)
    assert len(ran) == len(kept)
    assert deadlines.next() is None


def test_an_appointment_made_while_one_is_kept_is_kept_too() -> None:
    deadlines = Deadlines()
    ran: list[int] = []
    deadlines.at(1, lambda: (ran.append(1), deadlines.at(2, lambda: ran.append(2))) and None)
    deadlines.run(2)
    assert ran == [1, 2]


def test_cancelled_appointments_do_not_pile_up() -> None:
    deadlines = Deadlines()
    for at in range(10_000):
        deadlines.cancel(deadlines.at(at + 10**9, lambda: None))
    assert len(deadlines._heap) < 200
