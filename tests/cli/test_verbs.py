from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge.cli.failure import Failure
from edge.cli.verbs import seconds
from tests.support.process import NodeProcess

Verb = Callable[..., tuple[int, str, str]]
Asked = Callable[..., Any]

SENSOR = '{"name":"Warmth","unique_id":"p","state_topic":"porch/t","unit_of_measurement":"°C"}'
LOCK = '{"name":"Door","unique_id":"l","command_topic":"porch/set","state_topic":"porch/l"}'


@pytest.fixture(scope="module")
def porch(running: NodeProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A thermometer and a lock that have announced themselves."""
    made: dict[str, Any] = running.cli("device", "add", "porch")
    password = tmp_path_factory.mktemp("porch") / "password"
    password.write_text(made["password"])
    for topic, payload in (
        ("homeassistant/sensor/porch/t/config", SENSOR),
        ("homeassistant/lock/porch/l/config", LOCK),
        ("porch/t", "21.5"),
    ):
        who = ["--username", "porch", "--password-file", str(password)]
        assert running.run("mqtt", "pub", topic, payload, "--retain", *who).returncode == 0
    return made


def test_status_is_one_screen(verb: Verb, running: NodeProcess) -> None:
    code, out, _ = verb("status")
    assert code == 0
    assert len(out.splitlines()) <= 24
    assert running.ready["issuer"] in out
    assert running.ready["endpoints"]["http"] in out


def test_status_as_json_has_everything(asked: Asked, running: NodeProcess) -> None:
    said = asked("status")
    assert said["pid"] == running.pid
    assert set(said["stores"]) == {"node", "hot"}


def test_methods_show_their_scopes(verb: Verb, asked: Asked) -> None:
    assert {one["name"] for one in asked("methods", "--surface", "aun")} >= {"meta.ping", "message.send", "task.create"}
    _, out, _ = verb("methods", "--scopes")
    assert [line for line in out.splitlines() if line.startswith("cap.grant ") and "cap:admin" in line]


def test_a_device_gets_a_password_once(asked: Asked, running: NodeProcess) -> None:
    made = asked("device", "add", "cellar", "--topics", "extra/#")
    assert set(made) == {"name", "aid", "username", "password", "mqtt"}
    assert made["mqtt"] == running.ready["endpoints"]["mqtt"]
    shown = asked("device", "show", "cellar")
    assert "extra/#" in shown["publish"]
    assert made["password"] not in str(shown)


def test_a_new_device_is_told_how_to_connect(verb: Verb, running: NodeProcess) -> None:
    _, out, _ = verb("device", "add", "attic")
    assert f"-p {running.ready['endpoints']['mqtt'].rpartition(':')[2]} -u attic -P " in out


def test_a_second_device_of_a_name_is_refused_with_the_way_out(verb: Verb, porch: dict[str, Any]) -> None:
    code, _, err = verb("device", "add", porch["name"])
    assert code == 1
    assert "aun-edge device rotate porch" in err
    assert "aun-edge device forget porch" in err


def test_devices_are_listed_and_shown(verb: Verb, asked: Asked, porch: dict[str, Any]) -> None:
    assert porch["aid"] in [row["aid"] for row in asked("device", "list")]
    assert porch["aid"] in verb("device", "list")[1]
    _, out, _ = verb("device", "show", "porch")
    assert "porch.warmth" in out


def test_a_forgotten_device_is_gone(verb: Verb, asked: Asked) -> None:
    asked("device", "add", "shed")
    assert verb("device", "forget", "shed")[0] == 0
    assert verb("device", "show", "shed")[0] == 2
    assert verb("device", "forget", "shed")[0] == 2


@pytest.mark.usefixtures("porch")
def test_skills_have_values(verb: Verb, asked: Asked) -> None:
    (skill,) = [row for row in asked("skill", "list") if row["kind"] == "sensor"]
    assert set(skill) >= {"id", "device", "aid", "kind", "unit", "value", "at", "risk"}
    assert (skill["value"], skill["unit"]) == (21.5, "°C")
    assert "21.5" in verb("skill", "list")[1]


@pytest.mark.usefixtures("porch")
def test_a_skill_is_read_by_a_call(asked: Asked, verb: Verb) -> None:
    (skill,) = [row["id"] for row in asked("skill", "list") if row["kind"] == "sensor"]
    said = asked("skill", "call", skill)
    assert (said["state"], said["value"]) == ("completed", 21.5)
    assert "21.5" in verb("skill", "call", skill)[1]


@pytest.mark.usefixtures("porch")
def test_a_switch_that_is_read_is_on_or_off_to_people(asked: Asked, verb: Verb) -> None:
    announced = '{"capabilities": [{"name": "bell", "kind": "switch", "value_type": "boolean"}]}'
    assert verb("mqtt", "pub", "aun/v1/porch/announce", announced, "--retain")[0] == 0
    assert verb("mqtt", "pub", "aun/v1/porch/state/bell", "true")[0] == 0
    assert asked("skill", "call", "porch.bell")["value"] is True
    assert ["value", "on"] in [line.split() for line in verb("skill", "call", "porch.bell")[1].splitlines()]


@pytest.mark.usefixtures("porch")
def test_a_job_is_ordered_by_its_name_alone(verb: Verb) -> None:
    announced = '{"skills": [{"name": "water"}], "capabilities": []}'
    assert verb("mqtt", "pub", "aun/v1/porch/announce", announced, "--retain")[0] == 0
    code, out, err = verb("skill", "call", "porch.water", "--timeout", "0")
    assert (code, "queued" in out) == (75, True), err
    assert "another call would be another order" in err


def test_a_device_added_while_the_mqtt_door_is_shut_is_not_sent_to_a_foreign_broker(
    verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = "builtin"

    def answer(_: Path, method: str, **__: Any) -> Any:
        made = {"name": "hall", "username": "hall", "password": "xyzzy-xyzzy", "mqtt": ""}
        return {"mqtt": {"engine": engine}} if method == "status" else made

    monkeypatch.setattr("edge.cli.verbs.ask", answer)
    out = verb("device", "add", "hall")[1]
    assert "broker of your own" not in out
    assert "aun-edge doctor says why" in out
    engine = "external"
    assert "broker of your own" in verb("device", "add", "hall")[1]


def test_a_skill_that_does_not_exist_is_no_match(verb: Verb) -> None:
    code, _, err = verb("skill", "call", "nowhere.nothing")
    assert code == 2
    assert "no skill 'nowhere.nothing'" in err


@pytest.mark.usefixtures("porch")
def test_a_call_that_takes_longer_says_that_the_task_goes_on(verb: Verb) -> None:
    code, _, err = verb("skill", "call", "porch.door", "lock", "--timeout", "0")
    assert code == 75
    assert "has not answered within 0 s; it ends at" in err


@pytest.mark.usefixtures("porch")
def test_a_grant_to_nobody_is_told(verb: Verb) -> None:
    code, out, err = verb("cap", "grant", "porch.door", "nobody")
    assert (code, out) == (0, "nobody may act on porch.door\n")
    assert "no agent nobody yet" in err
    assert verb("cap", "revoke", "porch.door", "nobody")[0] == 0


def test_parameters_must_be_an_object(verb: Verb) -> None:
    assert verb("skill", "call", "a.b", "--params", "[1]")[0] == 2
    code, _, err = verb("skill", "call", "a.b", "--params", "{")
    assert code == 2
    assert err.startswith("aun-edge: --params is no JSON: ")
    assert "next: write it like --params" in err


@pytest.mark.usefixtures("porch")
def test_a_grant_is_seen_and_taken_back(asked: Asked, verb: Verb) -> None:
    (lock,) = [row["id"] for row in asked("cap", "list") if row["kind"] == "lock"]
    (aid,) = [asked("agent", "add", "keeper")["aid"]]
    assert verb("cap", "grant", lock, "keeper")[:2] == (0, f"keeper may act on {lock}\n")
    assert [row["granted"] for row in asked("cap", "list") if row["id"] == lock] == [[aid]]
    assert verb("cap", "revoke", lock, "keeper")[0] == 0
    assert verb("cap", "revoke", lock, "keeper")[0] == 2
    assert verb("cap", "list")[0] == 0


def test_an_agent_gets_a_token_once_and_loses_it(asked: Asked, verb: Verb) -> None:
    made = asked("agent", "add", "butler", "--expires", "1d")
    assert made["token"].startswith("aet_")
    (row,) = [row for row in asked("agent", "list") if row["name"] == "butler"]
    assert made["token"] not in str(row)
    assert "butler" in verb("agent", "list")[1]
    assert verb("agent", "revoke", "butler")[0] == 0
    assert verb("agent", "revoke", "nobody")[0] == 2


def test_registration_is_opened_for_a_while_and_closed(verb: Verb) -> None:
    assert verb("agent", "window", "5")[:2] == (0, "any free name may register for 5 minutes\n")
    assert verb("agent", "window", "0")[:2] == (0, "registration is closed\n")
    assert verb("agent", "window", "-1")[0] == 2


def test_what_an_agent_gets_is_told(verb: Verb) -> None:
    _, out, _ = verb("agent", "add", "cook")
    assert "The token is shown this once" in out


def test_an_sdk_profile_is_written_for_an_agent(asked: Asked, verb: Verb, tmp_path: Path) -> None:
    made = asked("agent", "add", "alice", "--sdk-profile", str(tmp_path / "profile"))
    assert (tmp_path / "profile" / "AIDs" / made["aid"] / "aun.db").exists()
    assert "AUN_DATA_ROOT=" in (tmp_path / "profile" / "env").read_text()
    assert f". {tmp_path}/other/env" in verb("agent", "add", "alec", "--sdk-profile", str(tmp_path / "other"))[1]


@pytest.mark.parametrize(("text", "count"), [("never", 0), ("90d", 7_776_000), ("2h", 7200), ("5m", 300), ("9s", 9)])
def test_durations(text: str, count: int) -> None:
    assert seconds(text) == count


@pytest.mark.parametrize("text", ["", "0d", "-1d", "1w", "1.5h", "d", "9999999999d", "１d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(Failure, match="is no duration"):
        seconds(text)


def test_after_a_restart_the_list_says_when_a_device_was_last_seen(tmp_path: Path) -> None:
    """`unknown`, which is the truth, and a time, which is of use; both from what is on disk."""

    def row(node: NodeProcess) -> str:
        return next(line for line in node.run("device", "list").stdout.splitlines() if line.startswith("cellar"))

    with NodeProcess(tmp_path / "state") as node:
        made = node.cli("device", "add", "cellar")
        assert row(node).split()[1:3] == ["unknown", "never"]
        for topic, payload in (("announce", '{"capabilities":[{"name":"t"}]}'), ("online", "1")):
            line = ["mqtt", "pub", f"aun/v1/cellar/{topic}", payload, "--retain", "--username", "cellar"]
            assert node.run(*line, "--password-file", "-", input_text=made["password"]).returncode == 0
        [before] = node.cli("device", "list")
        assert (before["online"], before["last_seen"] > 0) == (True, True)
        assert row(node).split()[1] == "yes"
        node.kill()
        node.start()
        [after] = node.cli("device", "list")
        assert after["online"] is None
        assert abs(after["last_seen"] - before["last_seen"]) < 2_000_000, "two views of one moment"
        assert row(node).split()[1] == "unknown"
        assert "it has not said so since the node started" in node.run("device", "list").stdout
        assert "last seen      2" in node.run("device", "show", "cellar").stdout
