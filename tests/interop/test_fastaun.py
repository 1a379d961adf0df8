"""The published fastaun SDK, unmodified, against a real node: spec aun-services §3, DESIGN D9."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.needs import peer
from tests.support.peers import SOON, Agent, Profile, Refused
from tests.support.process import NodeProcess
from tests.support.town import FASTAUN, Town

pytestmark = [pytest.mark.interop, pytest.mark.needs("peer:fastaun")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for all that do not end it."""
    with NodeProcess(tmp_path_factory.mktemp("fastaun") / "state") as made:
        yield made


@pytest.fixture
def town(node: NodeProcess, tmp_path: Path) -> Iterator[Town]:
    with ExitStack() as stack:
        yield Town(node, FASTAUN, tmp_path, stack)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Town]:
    """A node of its own."""
    with ExitStack() as stack, NodeProcess(tmp_path / "state") as made:
        yield Town(made, FASTAUN, tmp_path, stack)


def command_line(profile: Profile) -> Callable[..., str]:
    """The `aun` command of the SDK, as the owner of a profile."""
    place = peer("fastaun")
    assert place is not None

    def aun(*args: str) -> str:
        done = subprocess.run(
            [str(place / "bin" / "aun"), *args],
            capture_output=True,
            text=True,
            timeout=90,
            env=profile.environment,
        )
        assert done.returncode == 0, f"{args}: {done.stdout}\n{done.stderr}"
        return done.stdout

    return aun


def test_the_command_line_registers_logs_in_and_finds_everything_well(town: Town) -> None:
    profile = town.profile("alice")
    aun = command_line(profile)
    assert f"Registered: {profile.aid}" in aun("register", profile.aid, "--type", "ai")
    assert f"Authenticated: {profile.aid}" in aun("login")
    assert "READY" in aun("status")
    assert "6/6 checks passed" in aun("doctor")
    town.profile("bobby")
    sent = aun("--json", "send", profile.aid, "note to self", "--no-encrypt")
    assert "message_id" in sent


@pytest.mark.needs("mosquitto_pub", "mosquitto_sub")
def test_the_command_line_talks_to_a_device_as_the_readme_says(own: Town) -> None:
    Things(own)
    [sensor] = [skill for skill in own.node.cli("skill", "list") if skill["kind"] == "sensor"]
    profile = own.profile("alice")
    aun = command_line(profile)
    aun("register", profile.aid, "--type", "human")
    aun("send", sensor["aid"], "temperature read")
    for _ in range(60):
        if "21.5" in (heard := aun("pull")):
            return
        time.sleep(0.5)
    raise AssertionError(heard)


def test_two_clients_ping_and_exchange_messages(town: Town) -> None:
    alice, bob = town.client("alice"), town.client("bobby")
    assert alice.call("meta.ping")["pong"] is True
    sent = alice.send(bob, "hello")
    assert (sent["status"], sent["delivery_mode"], sent["seq"]) == ("delivered", "fanout", 1)
    assert bob.texts(1) == ["hello"]
    assert bob.send(alice, "hello yourself")["seq"] == 1
    assert alice.texts(1) == ["hello yourself"]
    acked = alice.heard("message.ack", 1)
    assert (acked[0]["to"], acked[0]["ack_seq"]) == (bob.aid, 1)
    online = alice.call("message.query_online", aids=[bob.aid, "nobody." + bob.aid.partition(".")[2]])
    assert list(online["online"].values()) == [True, False]


def test_a_client_that_comes_back_gets_what_it_missed(town: Town) -> None:
    alice, bob = town.client("alice"), town.client("bobby")
    alice.send(bob, "before")
    assert bob.texts(1) == ["before"]
    bob.do("close")
    town.end(bob)
    wanted = [f"missed {number}" for number in range(45)]
    for text in wanted:
        assert alice.send(bob, text)["status"] == "sent"
    back = town.start(bob.profile).connect()
    assert back.texts(45) == wanted
    alice.send(bob, "after")
    assert back.texts(46)[-1] == "after"


def test_nothing_acknowledged_is_lost_when_the_node_is_killed(own: Town) -> None:
    alice, bob = own.client("alice", **SOON), own.client("bobby")
    bob.do("close")
    sent = [alice.send(bob, f"{number}") for number in range(20)]
    own.node.kill()
    own.node.start()
    alice.do("until_ready")
    assert alice.send(bob, "20")["seq"] > sent[-1]["seq"]
    back = own.again(bob)
    assert back.texts(21) == [str(number) for number in range(21)]


@pytest.mark.seed("S0-140", "S0-144")
def test_encrypted_messages_reach_every_device_and_nobody_else(town: Town) -> None:
    alice, bob = town.client("alice"), town.client("bobby")
    sent = alice.send(bob, "for one device", encrypt=True)
    assert sent["envelope"]["encrypted"] is True
    [message] = bob.heard("message.received", 1)
    assert message["payload"]["text"] == "for one device"
    assert message["encrypted"] is True
    tablet = town.device(bob, "tablet")
    alice.send(bob, "for two devices", encrypt=True)
    assert bob.texts(2)[-1] == "for two devices"
    assert tablet.texts(1) == ["for two devices"]
    assert tablet.heard("message.undecryptable") == []
    bob.send(alice, "answer", encrypt=True)
    assert alice.texts(1) == ["answer"]
    store = town.node.state_dir / "store"
    stored = b"".join((store / name).read_bytes() for name in ("node.db", "node.db-wal"))
    assert b"for two devices" not in stored


def test_an_encrypted_message_waits_for_somebody_who_has_never_connected(town: Town) -> None:
    alice = town.client("alice")
    bob = town.start(town.profile("bobby")).register()
    alice.send(bob, "welcome", encrypt=True)
    bob.connect()
    assert bob.texts(1) == ["welcome"]


def test_history_recall_and_volatile_messages(town: Town) -> None:
    alice, bob = town.client("alice"), town.client("bobby")
    ids = [alice.send(bob, f"{number}", encrypt=number % 2 == 0)["message_id"] for number in range(5)]
    assert bob.texts(5) == list("01234")
    page = bob.call("message.history", sender_aid=alice.aid, before_seq=6, limit=3)
    assert [row["payload"]["text"] for row in page["messages"]] == ["2", "3", "4"]
    assert page["has_older"] is True
    page = bob.call("message.history", sender_aid=alice.aid, before_seq=page["next_before_seq"], limit=3)
    assert ([row["payload"]["text"] for row in page["messages"]], page["has_older"]) == (["0", "1"], False)

    answer = alice.call("message.recall", message_ids=[ids[4]])
    assert (answer["recalled"], answer["errors"]) == (1, None)
    [recalled] = bob.heard("message.recalled", 1)
    assert recalled["message_ids"] == [ids[4]]

    sent = alice.send(bob, "soon gone", ttl=30)
    assert (sent["status"], sent["storage"]) == ("accepted", "volatile")
    assert bob.texts(6)[-1] == "soon gone"
    assert len(bob.call("message.history", sender_aid=alice.aid, before_seq=1_000)["messages"]) == 6


def test_thoughts_and_read_positions(town: Town) -> None:
    alice, bob = town.client("alice"), town.client("bobby")
    run = {"type": "run", "id": "run-1"}
    put = alice.call("message.thought.put", to=bob.aid, context=run, payload={"type": "thought", "text": "hm"})
    assert put["stored_count"] == 1
    found = bob.call("message.thought.get", sender_aid=alice.aid, context=run)
    assert [one["payload"]["text"] for one in found["thoughts"]] == ["hm"]

    sent = alice.send(bob, "read me")
    bob.texts(1)
    state = {"scope": "p2p", "topic_key": "t", "last_read_message_id": sent["message_id"]}
    assert bob.call("message.read", states=[state])["updated"] == 1
    [shared] = bob.call("message.read_state")["states"]
    assert (shared["mapping_status"], shared["current_device_seq"]) == ("resolved", sent["seq"])
    [changed] = bob.heard("message.read_changed", 1)
    assert changed["last_read_message_id"] == sent["message_id"]


def test_a_burst_arrives_once_and_in_order(town: Town) -> None:
    alice, bob = town.client("alice"), town.client("bobby")
    wanted = [str(number) for number in range(40)]
    sent = alice.do("burst", to=bob.aid, texts=wanted)
    assert sorted(one["seq"] for one in sent) == list(range(1, 41))
    order = [text for _, text in sorted(zip([one["seq"] for one in sent], wanted, strict=True))]
    assert bob.texts(40) == order
    assert bob.heard("message.ack") == []
    assert len(bob.texts(41, within=1)) == 40


@pytest.mark.parametrize(("routing", "shares"), [("round_robin", [3, 3]), ("sender_affinity", [0, 6])])
def test_of_two_workers_one_gets_each_queue_message(town: Town, routing: str, shares: list[int]) -> None:
    alice = town.client("alice")
    queue = {"delivery_mode": {"mode": "queue", "routing": routing}}
    one = town.client("bobby", **queue)
    two = town.device(one, "second", **queue)
    for number in range(6):
        sent = alice.send(one, f"job {number}")
        assert (sent["delivery_mode"], sent["status"]) == ("queue", "delivered")
    for _ in range(600):
        found = [worker.texts(0) for worker in (one, two)]
        if len(found[0] + found[1]) >= 6 and alice.heard("message.ack")[-1]["ack_seq"] == 6:
            break
        time.sleep(0.05)
    assert sorted(map(len, found)) == shares
    assert sorted(found[0] + found[1]) == [f"job {number}" for number in range(6)]


def test_a_recall_reaches_a_client_that_was_away(town: Town) -> None:
    alice, bob = town.client("alice"), town.client("bobby")
    sent = alice.send(bob, "oops")
    assert bob.texts(1) == ["oops"]
    alice.heard("message.ack", 1)
    bob.do("close")
    town.end(bob)
    assert alice.call("message.recall", message_ids=[sent["message_id"]])["recalled"] == 1
    back = town.start(bob.profile).connect()
    [recalled] = back.heard("message.recalled", 1)
    assert recalled["message_ids"] == [sent["message_id"]]


def test_wrong_calls_get_the_error_their_name_says(town: Town) -> None:
    alice = town.client("alice")
    issuer = alice.aid.partition(".")[2]
    with pytest.raises(Refused) as unknown:
        alice.send(f"nobody.{issuer}", "hello")
    assert (unknown.value.kind, unknown.value.code) == ("NotFoundError", -32008)
    with pytest.raises(Refused) as missing:
        alice.call("mail.list")
    assert missing.value.code == -32601
    with pytest.raises(Refused) as wrong:
        alice.call("message.query_online", aids=[])
    assert (wrong.value.kind, wrong.value.code) == ("ValidationError", -32602)
    assert alice.call("meta.ping")["pong"] is True


def test_who_has_filled_their_share_of_an_inbox_is_told_and_goes_on(tmp_path: Path) -> None:
    with ExitStack() as stack, NodeProcess(tmp_path / "state", "--set", "limits.message.inbox_rows=4") as node:
        town = Town(node, FASTAUN, tmp_path, stack)
        alice, carol, bob = (town.client(name) for name in ("alice", "carol", "bobby"))
        for text in ("one", "two"):
            alice.send(bob, text)
        with pytest.raises(Refused) as over:
            alice.send(bob, "three")
        assert (over.value.kind, over.value.code) == ("RateLimitError", -32029)
        carol.send(bob, "from another")
        assert sorted(bob.texts(3)) == ["from another", "one", "two"]
        alice.send(carol, "elsewhere")
        assert carol.texts(1) == ["elsewhere"]


class Things:
    """A thermometer and a switch, as Debian's mosquitto_pub announces them."""

    def __init__(self, town: Town) -> None:
        self.added = town.node.cli("device", "add", "porch", "--admin")
        host, _, port = town.node.ready["endpoints"]["mqtt"].removeprefix("mqtt://").partition(":")
        self._door = ["-h", host, "-p", port, "-u", self.added["username"], "-P", self.added["password"]]
        device = {"identifiers": ["porch-1"], "name": "Porch"}
        thermometer = {"name": "Temperature", "unique_id": "porch_t", "state_topic": "porch/t", "device": device}
        thermometer |= {"device_class": "temperature", "unit_of_measurement": "°C"}
        switch = {"name": "Light", "unique_id": "porch_l", "device": device}
        switch |= {"state_topic": "porch/l", "command_topic": "porch/l/set"}
        self.publish("homeassistant/sensor/porch_t/config", json.dumps(thermometer), "-r")
        self.publish("homeassistant/switch/porch_l/config", json.dumps(switch), "-r")
        self.publish("porch/t", "21.5")
        self.publish("porch/l", "OFF")

    def publish(self, topic: str, text: str, *more: str) -> None:
        """One message, at least once."""
        subprocess.run(
            ["mosquitto_pub", *self._door, "-q", "1", "-t", topic, "-m", text, *more], check=True, timeout=60
        )

    def listen(self, topic: str) -> subprocess.Popen[str]:
        """A subscriber that has subscribed, and ends with the first message."""
        retained = "homeassistant/switch/porch_l/config"
        command = ["mosquitto_sub", *self._door, "-t", topic, "-t", retained, "-C", "2", "-W", "60"]
        listener = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert listener.stdout is not None
        assert "porch_l" in listener.stdout.readline()
        return listener


def finished(agent: Agent, task_id: str) -> Any:
    """The task once it is over. The SDK passes no task events to its application, so one has to ask."""
    for _ in range(1000):
        task = agent.call("task.get", task_id=task_id)
        if task["status"] in ("completed", "failed", "canceled", "rejected"):
            return task
        time.sleep(0.05)
    raise AssertionError(f"{task_id} does not end: {task}")


@pytest.mark.needs("mosquitto_pub", "mosquitto_sub")
def test_an_agent_reads_a_thermometer_and_turns_a_switch(own: Town) -> None:
    things = Things(own)
    skills = {skill["kind"]: skill for skill in own.node.cli("skill", "list")}
    alice = own.client("alice")
    sensor, switch = skills["sensor"], skills["switch"]

    asked = {"type": "data", "data": {"skill": sensor["id"]}}
    read = finished(alice, alice.call("task.create", to=sensor["aid"], input=asked)["task_id"])
    assert read["status"] == "completed"
    assert "21.5" in json.dumps(read["artifacts"])

    asked = {"type": "data", "data": {"skill": switch["id"], "params": {"verb": "on"}}}
    with things.listen("porch/l/set") as heard:
        made = alice.call("task.create", to=switch["aid"], input=asked)
        assert heard.stdout is not None
        assert heard.stdout.read().strip() == "ON"
    things.publish("porch/l", "ON")
    assert finished(alice, made["task_id"])["status"] == "completed"


@pytest.mark.needs("mosquitto_pub", "mosquitto_sub")
def test_a_device_is_talked_to_by_message(own: Town) -> None:
    Things(own)
    [sensor] = [skill for skill in own.node.cli("skill", "list") if skill["kind"] == "sensor"]
    alice = own.client("alice")
    sent = alice.send(sensor["aid"], "temperature")
    [answer] = alice.heard("message.received", 1)
    assert answer["from"] == sensor["aid"]
    assert "21.5" in answer["payload"]["text"]
    assert answer["payload"]["reply_to"] == sent["message_id"]


@pytest.mark.needs("mosquitto_pub", "mosquitto_sub")
def test_a_device_is_talked_to_sealed_and_answers_sealed(own: Town) -> None:
    """What the SDK does by itself: nobody has to switch encryption off for a device."""
    Things(own)
    [sensor] = [skill for skill in own.node.cli("skill", "list") if skill["kind"] == "sensor"]
    alice = own.client("alice")
    sent = alice.send(sensor["aid"], "temperature", encrypt=True)
    assert sent["envelope"]["encrypted"] is True
    [answer] = alice.heard("message.received", 1)
    assert (answer["from"], answer["encrypted"]) == (sensor["aid"], True)
    assert "21.5" in answer["payload"]["text"]
    assert (answer["payload"]["reply_to"], answer["payload"]["auto"]) == (sent["message_id"], True)
    tablet = own.device(alice, "tablet")
    alice.send(sensor["aid"], "sing me a song", encrypt=True)
    assert f"{sensor['id']}" in alice.heard("message.received", 2)[-1]["payload"]["text"]
    assert sensor["id"] in tablet.texts(1)[-1]
    stored = b"".join(path.read_bytes() for path in own.node.state_dir.glob("store/node.db*"))
    assert b"sing me a song" not in stored


def test_large_payloads_arrive(town: Town) -> None:
    """The SDK itself sends no frame above 1 MiB."""
    alice, bob = town.client("alice"), town.client("bobby")
    wanted = ["x" * 900_000, "y" * 700_000, "z" * 60_000]
    for text, sealed in zip(wanted, (False, True, True), strict=True):
        alice.send(bob, text, encrypt=sealed)
    assert bob.texts(3, within=30) == wanted
    found: list[str] = []
    before = 100
    while before:
        page = bob.call("message.history", sender_aid=alice.aid, before_seq=before)
        found = [row["payload"]["text"] for row in page["messages"]] + found
        before = page["next_before_seq"] if page["has_older"] else 0
    assert found == wanted
