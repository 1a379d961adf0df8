from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edge.contract.bus import Done, Publish
from edge.contract.errors import InvalidParams, RateLimited, StorageFull, TooLarge, Unavailable
from edge.contract.limit import Limits
from edge.devices.records import PublishAsked, SubscribeAsked
from tests.support.house import OPERATOR, house


async def test_the_operator_publishes_text_or_bytes(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await h.call("mqtt.pub", PublishAsked(topic="a/b", payload="x", qos=1, retain=True))
        await h.call("mqtt.pub", PublishAsked(topic="a/b", payload_b64="AAE="))
        first, second = h.bus.sent
        assert (first.topic, first.payload, first.qos, first.retain, first.who) == ("a/b", b"x", 1, True, OPERATOR)
        assert second.payload == b"\x00\x01"


@pytest.mark.parametrize(
    "asked",
    [
        PublishAsked(topic="a/#"),
        PublishAsked(topic=""),
        PublishAsked(topic="$SYS/x"),
        PublishAsked(topic="a", qos=2),
        PublishAsked(topic="a", payload_b64="?"),
    ],
)
async def test_what_cannot_be_published_is_refused(tmp_path: Path, asked: PublishAsked) -> None:
    async with house(tmp_path) as h:
        with pytest.raises(InvalidParams):
            await h.call("mqtt.pub", asked)
        assert h.bus.sent == []


async def test_a_payload_of_the_limit_is_published_and_a_larger_one_is_not(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits({"devices.publish_octets": 3})) as h:
        await h.call("mqtt.pub", PublishAsked(topic="a", payload="123"))
        with pytest.raises(TooLarge):
            await h.call("mqtt.pub", PublishAsked(topic="a", payload="1234"))
        assert len(h.bus.sent) == 1


@pytest.mark.parametrize("filters", [(), ("a/#/b",), ("a",) * 33])
async def test_bad_filters_are_refused(tmp_path: Path, filters: tuple[str, ...]) -> None:
    async with house(tmp_path) as h:
        with pytest.raises(InvalidParams):
            await h.call("mqtt.sub", SubscribeAsked(filters=filters))


async def test_the_operator_hears_what_matches(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        heard = await h.call("mqtt.sub", SubscribeAsked(filters=("dev/+", "other")))
        await h.say(who, "dev/a", "x", retain=True)
        await h.say(who, "dev/a/b", "x")
        await h.say(who, "other", b"\xff")
        first, second = await anext(heard), await anext(heard)
        assert (first.topic, first.payload, first.retain, first.user) == ("dev/a", "x", True, "dev")
        assert (second.topic, second.payload, second.payload_b64) == ("other", "", "/w==")
        await heard.aclose()


async def test_only_so_many_may_listen_at_once(tmp_path: Path) -> None:
    async with house(tmp_path, limits=Limits({"devices.taps": 1})) as h:
        who = await h.add("dev")
        first = await h.call("mqtt.sub", SubscribeAsked(filters=("#",)))
        with pytest.raises(RateLimited):
            await h.call("mqtt.sub", SubscribeAsked(filters=("#",)))
        await h.say(who, "dev/x", "1")
        await anext(first)
        await first.aclose()
        second = await h.call("mqtt.sub", SubscribeAsked(filters=("#",)))
        await h.say(who, "dev/x", "2")
        assert (await anext(second)).payload == "2"
        await second.aclose()


async def test_the_answer_follows_the_commit(tmp_path: Path) -> None:
    """P1: the operator's message is acknowledged like a device's."""
    async with house(tmp_path) as h:
        owed: list[Done] = []

        def keep(batch: list[Publish], done: Done) -> range:
            owed.append(done)
            return range(len(batch))

        h.bus.attach(keep)
        asked = asyncio.ensure_future(h.call("mqtt.pub", PublishAsked(topic="a/b", payload="x")))
        while not owed:
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        assert not asked.done()
        owed.pop()(None)
        await asked


@pytest.mark.parametrize(
    ("error", "kind"), [(StorageFull(), StorageFull), (OSError("no space left"), Unavailable)], ids=["full", "other"]
)
async def test_what_the_store_does_not_keep_is_an_error(
    tmp_path: Path, error: Exception, kind: type[Exception]
) -> None:
    async with house(tmp_path) as h:

        def refuse(batch: list[Publish], done: Done) -> range:
            asyncio.get_running_loop().call_soon(done, error)
            return range(len(batch))

        h.bus.attach(refuse)
        with pytest.raises(kind):
            await h.call("mqtt.pub", PublishAsked(topic="a/b", payload="x"))


async def test_a_caller_who_has_gone_is_no_matter_to_the_commit(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        owed: list[Done] = []

        def keep(batch: list[Publish], done: Done) -> range:
            owed.append(done)
            return range(len(batch))

        h.bus.attach(keep)
        asked = asyncio.ensure_future(h.call("mqtt.pub", PublishAsked(topic="a/b", payload="x")))
        while not owed:
            await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        owed.pop()(None)


async def test_who_listens_hears_first_what_is_retained(tmp_path: Path) -> None:
    """Each topic once, marked; then what comes."""
    async with house(tmp_path) as h:
        who = await h.add("dev")
        for topic in ("dev/a", "dev/b", "other"):
            await h.say(who, topic, topic, retain=True)
        heard = await h.call("mqtt.sub", SubscribeAsked(filters=("dev/+", "dev/#")))
        await h.say(who, "dev/c", "now")
        got = [await anext(heard) for _ in range(3)]
        assert [(one.topic, one.kept) for one in got] == [("dev/a", True), ("dev/b", True), ("dev/c", False)]
        await heard.aclose()


async def test_what_is_retained_can_be_left_out(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        who = await h.add("dev")
        await h.say(who, "dev/a", "old", retain=True)
        heard = await h.call("mqtt.sub", SubscribeAsked(filters=("dev/+",), retained=False))
        await h.say(who, "dev/a", "new")
        assert (await anext(heard)).payload == "new"
        await heard.aclose()
