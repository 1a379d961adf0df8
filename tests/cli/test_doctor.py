from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.cli.doctor import Examination
from edge.cli.failure import Failure
from edge.cli.main import main
from tests.support.process import NodeProcess

Verb = Callable[..., tuple[int, str, str]]


def test_without_a_directory_the_first_cause_is_told_and_the_rest_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none"
    assert main(["doctor", "--state-dir", str(path)]) == 1
    first, step, _, *checks = capsys.readouterr().out.splitlines()
    assert first == f"directory: {path} does not exist"
    assert step == f"  next: aun-edge run --state-dir {path}"
    assert [line.split()[:2] for line in checks] == [
        ["ok", "machine"],
        ["ok", "configuration"],
        ["failed", "directory"],
        ["skipped", "room"],
        ["skipped", "running"],
        ["skipped", "store"],
        ["skipped", "listeners"],
        ["skipped", "broker"],
        ["skipped", "plain_lan"],
        ["skipped", "owner"],
        ["skipped", "http"],
    ]


def test_a_directory_open_to_others_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o755)
    assert main(["doctor", "--json", "--state-dir", str(tmp_path)]) == 1
    found = {one["check"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["directory"]["next"] == f"chmod 700 {tmp_path}"


def test_a_wrong_setting_comes_before_what_it_causes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "config.d").mkdir()
    (tmp_path / "config.d" / "x.toml").write_text("[log]\nlevel = 'loud'\n")
    assert main(["doctor", "--state-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert said.startswith(f"configuration: {tmp_path}/config.d/x.toml:2: log.level: 'loud' is refused")
    assert "failed   running" in said


def test_a_listener_that_waits_for_a_device_is_no_finding_and_one_that_failed_is() -> None:
    examination = Examination(Namespace())
    examination.ready = {"endpoints": {"http": "http://127.0.0.1:1"}}
    examination.status = {
        "left_off": {"https": "opens once a device exists"},
        "waiting": ["https"],
        "mqtt": {"engine": "builtin"},
    }
    assert examination.listeners() == "http http://127.0.0.1:1"
    examination.status["left_off"]["mqtt"] = "127.0.0.1:1883 cannot be used"
    with pytest.raises(Failure, match=r"left off: mqtt: 127.0.0.1:1883 cannot be used") as told:
        examination.listeners()
    assert "aun-edge config set mqtt.listen=127.0.0.1:0" in told.value.next_step
    examination.status["left_off"] = {"mqtts": "0.0.0.0:8883 cannot be used"}
    with pytest.raises(Failure) as told:
        examination.listeners()
    assert "aun-edge config set mqtt.tls_listen=0.0.0.0:0" in told.value.next_step
    examination.status["mqtt"]["engine"] = "external"
    assert examination.listeners() == "http http://127.0.0.1:1"
    examination.status["left_off"]["https"] = "0.0.0.0:9443 cannot be used: its certificate: expired"
    examination.status["waiting"] = []
    with pytest.raises(Failure) as told:
        examination.listeners()
    assert told.value.next_step.startswith("mend tls.cert")


def test_a_healthy_node_has_no_findings(verb: Verb) -> None:
    code, out, _ = verb("doctor")
    assert code == 0
    assert {line.split()[0] for line in out.splitlines()} == {"ok"}


def test_a_door_without_tls_is_told_loudly_and_one_that_is_not_open_is_a_fault() -> None:
    examination = Examination(Namespace())
    examination.status = {"plain_lan": {}, "waiting": []}
    assert examination.plain_lan() == "MQTT without TLS: nowhere but on this machine"
    door = {"address": "192.168.1.5:1883", "network": "192.168.1.0/24", "interface": "eth0"}
    examination.status["plain_lan"] = {"open": [door], "left_off": {}}
    assert examination.plain_lan() == "WITHOUT TLS at 192.168.1.5:1883 to 192.168.1.0/24 (eth0)"
    examination.status = {"plain_lan": {"open": [], "left_off": {}}, "waiting": ["mqtt_plain"]}
    assert "opens once a device exists" in examination.plain_lan()
    examination.status["waiting"] = []
    examination.status["plain_lan"] = {"open": [], "left_off": {"eth7": "this machine has no interface of that name"}}
    with pytest.raises(Failure, match="not open: eth7: this machine has no interface of that name"):
        examination.plain_lan()


def test_a_broker_of_ones_own_that_does_not_let_the_node_in_is_a_fault() -> None:
    examination = Examination(Namespace())
    examination.status = {"mqtt": {"engine": "external", "broker": "broker.lan:1883", "state": "login, again in 4 s"}}
    with pytest.raises(Failure) as failure:
        examination.broker()
    assert failure.value.what == "the broker at broker.lan:1883: login, again in 4 s"
    assert "mqtt.external" in failure.value.next_step
    examination.status["mqtt"]["state"] = "connected"
    assert examination.broker() == "connected to broker.lan:1883"
    examination.status["mqtt"]["engine"] = "builtin"
    assert "builtin" in examination.broker()


def test_an_owner_without_an_inbox_is_a_finding(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "state", "--set", "node.owner=bobb.home.test", "--issuer", "home.test") as node:
        found = {one["check"]: one for one in json.loads(node.run("doctor", "--json").stdout)}
        assert found["owner"]["state"] == "failed"
        assert "bobb.home.test is no registered agent" in found["owner"]["text"]
        assert "aun-edge agent add" in found["owner"]["next"]
