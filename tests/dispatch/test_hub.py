from __future__ import annotations

import logging

import pytest

from edge.contract.event import Event
from edge.dispatch.hub import Hub


def test_a_watcher_hears_its_key_only_and_a_log_watcher_hears_all() -> None:
    hub, one, every = Hub(), [], []
    hub.watch("task", "a", one.append)
    hub.watch("task", None, every.append)
    events = [Event("task", "a", 1), Event("task", "b", 1), Event("inbox", "a", 1)]
    for event in events:
        hub.publish(event)
    assert one == events[:1]
    assert every == events[:2]


def test_who_makes_an_event_can_ask_whether_anybody_watches() -> None:
    hub = Hub()
    end_one = hub.watch("task", "a", lambda event: None)
    assert [hub.watched(*place) for place in (("task", "a"), ("task", "b"), ("inbox", "a"))] == [True, False, False]
    end_all = hub.watch("task", None, lambda event: None)
    assert hub.watched("task", "b")
    end_one()
    end_all()
    assert not hub.watched("task", "a")


def test_a_watch_that_ended_hears_nothing_more_and_may_end_twice() -> None:
    hub, heard = Hub(), []
    end = hub.watch("task", "a", heard.append)
    end()
    end()
    hub.publish(Event("task", "a", 1))
    assert heard == []


def test_a_watcher_may_end_itself_while_it_is_told() -> None:
    hub, heard = Hub(), []

    def once(event: Event) -> None:
        heard.append(event)
        end()

    end = hub.watch("task", "a", once)
    hub.watch("task", "a", heard.append)
    hub.publish(Event("task", "a", 1))
    hub.publish(Event("task", "a", 2))
    assert [event.seq for event in heard] == [1, 1, 2]


def test_one_failing_watcher_does_not_keep_the_others_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    hub, heard = Hub(), []

    def broken(event: Event) -> None:
        raise RuntimeError("no")

    hub.watch("task", "a", broken)
    hub.attach_audience(heard.append)
    with caplog.at_level(logging.ERROR):
        hub.publish(Event("task", "a", 1))
    assert len(heard) == 1
    assert "watcher of task/a failed" in caplog.text
