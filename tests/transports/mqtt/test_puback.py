"""What a foreign broker answers to a PUBLISH: told by reason code, by a broker that says what the test wants."""

from __future__ import annotations

from pathlib import Path

import aiomqtt
import pytest

from edge.contract.limit import Limits
from edge.protocol.mqtt.codec import PublishPacket
from edge.system.clock import SystemClock
from edge.transports.mqtt.outbox import SPOOL_TRIES
from edge.transports.mqtt.puback import Acks
from tests.support.foreign import foreign
from tests.transports.mqtt.picky import picky

SUCCESS, UNSPECIFIED, NOT_AUTHORIZED, QUOTA = 0, 0x80, 0x87, 0x97


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (0x87, "broker_not_authorized"),
        (0x90, "broker_topic_name_invalid"),
        (0x99, "broker_payload_format_invalid"),
    ],
)
async def test_what_is_refused_for_good_is_declared_and_sent_no_more(tmp_path: Path, code: int, reason: str) -> None:
    def answers(packet: PublishPacket) -> int:
        return code if packet.payload == b"1" else SUCCESS

    async with picky(answers) as broker, foreign(tmp_path, broker.port) as made:
        made.publish("t/x", b"1")
        made.publish("t/x", b"2")
        await made.until(lambda: made.engine.stats()["connected_times"] and not made.engine.stats()["queued"])
        assert await made.drops() == {reason: 1}
        stats = made.engine.stats()
    assert broker.payloads == [b"1", b"2"]
    assert (stats["sent"], stats["refused"], stats[f"dropped.{reason}"]) == (1, 1, 1)


@pytest.mark.parametrize("code", [0x80, 0x83, 0x91, 0x97])
async def test_what_is_refused_for_the_moment_is_published_anew_and_nothing_overtakes_it(
    tmp_path: Path, code: int
) -> None:
    """What has been acked must not be sent again (MQTT-4.4.0-2): it is another PUBLISH, under another packet id."""
    codes = iter([code, code])

    def answers(packet: PublishPacket) -> int:
        return next(codes, SUCCESS) if packet.payload == b"1" else SUCCESS

    async with picky(answers) as broker, foreign(tmp_path, broker.port) as made:
        made.publish("t/x", b"1")
        await made.until(lambda: made.engine.stats().get("refused"))
        made.publish("t/x", b"2")
        await made.until(lambda: made.engine.stats()["queued"] == 0)
        stats, drops = made.engine.stats(), await made.drops()
    assert broker.payloads == [b"1", b"1", b"1", b"2"]
    assert len({one.packet_id for one in broker.heard}) == 4
    assert not any(one.dup for one in broker.heard)
    assert (stats["sent"], stats["refused"], stats["connected_times"], drops) == (2, 2, 1, {})


@pytest.mark.parametrize(("code", "reason"), [(UNSPECIFIED, "broker_refused"), (QUOTA, "broker_quota_exceeded")])
async def test_what_is_refused_again_and_again_is_declared_and_what_waits_behind_it_goes_out(
    tmp_path: Path, code: int, reason: str
) -> None:
    def answers(packet: PublishPacket) -> int:
        return code if packet.payload == b"1" else SUCCESS

    limits = Limits({SPOOL_TRIES.name: 3})
    async with picky(answers) as broker, foreign(tmp_path, broker.port, limits=limits) as made:
        made.publish("t/x", b"1")
        await made.until(lambda: made.engine.stats().get("refused"))
        made.publish("t/x", b"2")
        await made.until(lambda: made.engine.stats()["queued"] == 0)
        assert await made.drops() == {reason: 1}
    assert broker.payloads == [b"1", b"1", b"1", b"2"]
    assert limits.hits == {SPOOL_TRIES.name: 1}


async def test_no_more_are_without_a_puback_than_the_broker_takes_at_once(tmp_path: Path) -> None:
    """It would hang up (MQTT-3.3.4-9), each time as soon as so many have waited."""
    async with picky(at_once=3) as broker, foreign(tmp_path, broker.port) as made:
        for number in range(9):
            made.publish("t/x", b"%d" % number)
        await made.until(lambda: made.engine.stats().get("sent") == 9)
        assert made.engine.stats()["connected_times"] == 1
    assert broker.payloads == [b"%d" % number for number in range(9)]


async def test_a_message_without_a_puback_goes_out_again_on_the_next_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task ends the connection; the one that takes the message up in that very turn must not take it along."""
    monkeypatch.setattr("edge.transports.mqtt.foreign.TIMEOUT_S", 1)
    silent = iter([None])
    async with picky(lambda packet: next(silent, SUCCESS)) as broker, foreign(tmp_path, broker.port) as made:
        made.publish("t/x", b"1")
        await made.until(lambda: made.engine.stats().get("sent"))
        stats = made.engine.stats()
    assert (stats["queued"], stats["sent"]) == (0, 1)
    assert stats["connected_times"] >= 2
    assert len(broker.heard) >= 2


async def test_a_library_that_does_not_call_back_any_more_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    client = aiomqtt.Client("127.0.0.1")
    client._client.on_publish = None
    with pytest.raises(RuntimeError, match="does not listen to paho"):
        Acks(client, SystemClock(1), 1)
    monkeypatch.delattr(client, "_client")
    with pytest.raises(AttributeError, match="_client"):
        Acks(client, SystemClock(1), 1)


async def test_what_cannot_be_sent_is_an_error_of_the_connection() -> None:
    with pytest.raises(aiomqtt.MqttError, match="not currently connected"):
        await Acks(aiomqtt.Client("127.0.0.1"), SystemClock(1), 1).publish("t", b"", retain=False)
