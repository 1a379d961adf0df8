"""Repeats after a cut are told from news, once each and only for a while; our own messages are known again."""

from __future__ import annotations

from edge.protocol.mqtt.repeats import OWN_US, REMEMBERED, WINDOW_US, Echoes, Repeats


def heard(repeats: Repeats, packet_id: int, payload: bytes = b"x", now_us: int = 0) -> bool:
    return repeats.heard(packet_id, "t", payload, now_us)


def test_what_comes_again_under_its_old_packet_id_is_a_repeat_once() -> None:
    repeats = Repeats()
    assert not heard(repeats, 1)
    repeats.cut()
    repeats.begun(0)
    assert heard(repeats, 1)
    assert not heard(repeats, 1)


def test_without_a_cut_nothing_is_a_repeat() -> None:
    repeats = Repeats()
    assert [heard(repeats, 1) for _ in range(3)] == [False] * 3


def test_another_packet_id_or_payload_is_news() -> None:
    repeats = Repeats()
    heard(repeats, 1)
    repeats.cut()
    repeats.begun(0)
    assert not heard(repeats, 2)
    assert not heard(repeats, 1, b"y")


def test_the_time_for_repeats_ends() -> None:
    repeats = Repeats()
    heard(repeats, 1)
    repeats.cut()
    repeats.begun(10)
    assert not heard(repeats, 1, now_us=11 + WINDOW_US)
    assert not heard(repeats, 1, now_us=10)


def test_only_the_last_messages_before_the_cut_may_come_again() -> None:
    repeats = Repeats()
    for number in range(REMEMBERED + 10):
        heard(repeats, number)
    repeats.cut()
    repeats.begun(0)
    assert not heard(repeats, 9)
    assert heard(repeats, 10)


def test_a_repeat_of_a_repeat_is_one_too() -> None:
    repeats = Repeats()
    heard(repeats, 1)
    for _ in range(3):
        repeats.cut()
        repeats.begun(0)
        assert heard(repeats, 1)


def test_our_own_messages_are_known_again_as_often_as_they_were_sent() -> None:
    echoes = Echoes()
    for _ in range(2):
        echoes.sent("t", b"x", 0)
    assert [echoes.mine("t", b"x", 1) for _ in range(3)] == [True, True, False]
    assert not echoes.mine("t", b"y", 1)


def test_an_echo_that_never_came_is_forgotten() -> None:
    echoes = Echoes(most=2)
    echoes.sent("t", b"x", 0)
    assert not echoes.mine("t", b"x", OWN_US + 1)
    for payload in (b"1", b"2", b"3"):
        echoes.sent("t", payload, 0)
    assert [echoes.mine("t", payload, 0) for payload in (b"1", b"2", b"3")] == [False, True, True]
