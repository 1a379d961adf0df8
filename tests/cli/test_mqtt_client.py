from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from edge.cli import mqtt_client
from edge.cli.main import main
from tests.support.process import NodeProcess

Verb = Callable[..., tuple[int, str, str]]
Asked = Callable[..., Any]
Secret = Callable[[str], str]


@pytest.mark.seed("C-004")
def test_a_device_can_be_tried_with_its_password(verb: Verb, asked: Asked, secret: Secret) -> None:
    made = asked("device", "add", "porch")
    who = ["--username", "porch", "--password-file", secret(made["password"])]
    assert verb("mqtt", "pub", "porch/x", "21", "--retain", *who)[0] == 0
    assert verb("mqtt", "sub", "porch/x", "--count", "1", *who)[:2] == (0, "porch/x 21  [retained]\n")


def test_a_wrong_password_is_not_permitted(verb: Verb, secret: Secret) -> None:
    code, _, err = verb("mqtt", "pub", "a", "x", "--username", "nobody", "--password-file", secret("guess"))
    assert code == 4
    assert "the node refused" in err
    assert "guess" not in err


def test_a_filter_that_a_device_may_not_read_is_told(verb: Verb, asked: Asked, secret: Secret) -> None:
    who = ["--username", "hall", "--password-file", secret(asked("device", "add", "hall")["password"])]
    code, _, err = verb("mqtt", "sub", "other/x", "--count", "1", *who)
    assert code == 4
    assert "hall may not read other/x" in err


def test_a_user_needs_a_password(verb: Verb) -> None:
    code, _, err = verb("mqtt", "pub", "a", "x", "--username", "porch")
    assert code == 2
    assert "--password-file" in err


def test_a_publish_that_the_node_refuses_is_not_permitted(verb: Verb, asked: Asked, secret: Secret) -> None:
    who = ["--username", "shed", "--password-file", secret(asked("device", "add", "shed")["password"])]
    code, out, err = verb("mqtt", "pub", "other/x", "1", *who)
    assert (code, out) == (4, "")
    assert "shed may not publish to other/x: not authorized (0x87)" in err
    assert "next: aun-edge device show shed" in err
    assert verb("mqtt", "pub", "shed/x", "1", *who) == (0, "", "")


def test_with_qos_0_nobody_can_tell_and_that_is_said(verb: Verb, asked: Asked, secret: Secret) -> None:
    who = ["--username", "cellar", "--password-file", secret(asked("device", "add", "cellar")["password"])]
    for topic in ("cellar/x", "other/x"):
        code, out, err = verb("mqtt", "pub", topic, "1", "--qos", "0", *who)
        assert (code, out) == (0, "")
        assert "MQTT has no word for whether that was taken or refused" in err


@pytest.mark.parametrize("line", [["pub", "a/#", "x"], ["pub", "", "x"], ["sub", "a/#/b"]], ids=" ".join)
def test_what_is_no_topic_is_not_even_sent(line: list[str], verb: Verb, secret: Secret) -> None:
    code, _, err = verb("mqtt", *line, "--username", "porch", "--password-file", secret("x"))
    assert code == 2
    assert "not a topic" in err


def test_retained_messages_can_be_left_out(verb: Verb, asked: Asked, secret: Secret) -> None:
    who = ["--username", "attic", "--password-file", secret(asked("device", "add", "attic")["password"])]
    assert verb("mqtt", "pub", "attic/old", "1", "--retain", *who)[0] == 0
    assert verb("mqtt", "sub", "attic/#", "--count", "1", *who)[:2] == (0, "attic/old 1  [retained]\n")


class Answering(threading.Thread):
    """A server that answers each connection by bytes of a list, one list for each connection in turn."""

    def __init__(self, *scripts: list[bytes], leaves: bool = False) -> None:
        """`leaves`: hangs up after the last answer, instead of hearing what comes then."""
        super().__init__(daemon=True)
        self._scripts, self._leaves = scripts, leaves
        self.heard: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(60)
        self.port: int = self._listening.getsockname()[1]

    def __enter__(self) -> Answering:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listening.close()
        self.join(60)

    def run(self) -> None:
        for script in self._scripts:
            with suppress(OSError):
                one, _ = self._listening.accept()
                with one:
                    one.settimeout(60)
                    for answer in script:
                        self.heard.append(one.recv(65_536))
                        one.sendall(answer)
                    if not self._leaves:
                        self.heard.append(one.recv(65_536))


def at(port: int, tmp_path: Path, *line: str) -> int:
    """A verb that finds the server where a node would be."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ready.json").write_text(json.dumps({"endpoints": {"mqtt": f"mqtt://127.0.0.1:{port}"}}))
    (tmp_path / "password").write_text("secret\n")
    who = ["--username", "bob", "--password-file", str(tmp_path / "password"), "--state-dir", str(tmp_path)]
    return main(["mqtt", *line, *who])


OLD, TAKEN = b"\x20\x02\x00\x01", b"\x20\x02\x00\x00"
FIVE = b"\x20\x03\x00\x00\x00"
Printed = pytest.CaptureFixture[str]


@pytest.mark.parametrize("first", [[OLD], [b""]], ids=["told by a return code", "not told"])
def test_an_engine_that_knows_only_3_1_1_is_spoken_to_in_that(
    first: list[bytes], tmp_path: Path, capsys: Printed
) -> None:
    with Answering(first, [TAKEN, b"\x40\x02\x00\x01"], leaves=True) as server:
        assert at(server.port, tmp_path, "pub", "a/b", "x") == 0
    assert b"\x00\x04MQTT\x04" in b"".join(server.heard)
    assert "no word for a refusal: aun-edge queue drops" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answers", "code", "words"),
    [
        ([FIVE, b"\x40\x03\x00\x01\x97"], 75, "quota exceeded (0x97)"),
        ([FIVE, b"\x40\x03\x00\x01\x99"], 1, "payload format invalid (0x99)"),
        ([FIVE, b"\xe0\x01\x95"], 1, "packet too large (0x95)"),
        ([FIVE, b"\xe0\x01\x8b"], 75, "server shutting down (0x8b)"),
        ([b"\x20\x03\x00\x89\x00"], 75, "server busy (0x89)"),
        ([b"\x20\x03\x00\x87\x00"], 4, "the node refused bob: not authorized"),
        ([FIVE, b"\xff\xff\xff\xff\xff\xff"], 75, "MQTT failed"),
    ],
)
def test_each_refusal_has_its_word_and_its_exit_code(
    answers: list[bytes], code: int, words: str, tmp_path: Path, capsys: Printed
) -> None:
    with Answering(answers) as server:
        assert at(server.port, tmp_path, "pub", "a/b", "x") == code
    said = capsys.readouterr().err
    assert words in said
    assert "next: " in said


@pytest.mark.parametrize("scripts", [[[FIVE]], [[], []]], ids=["after the login", "before it"])
def test_a_node_that_hangs_up_is_told(scripts: list[list[bytes]], tmp_path: Path, capsys: Printed) -> None:
    with Answering(*scripts, leaves=True) as server:
        assert at(server.port, tmp_path, "sub", "a/#") == 75
    assert "MQTT failed" in capsys.readouterr().err


def test_who_listens_asks_whether_a_silent_node_is_there(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_client, "SILENCE_S", 0.2)
    with Answering([FIVE, b"\x90\x04\x00\x01\x00\x01", b""]) as server:
        assert at(server.port, tmp_path, "sub", "a/#") == 75
    assert b"\xc0\x00" in b"".join(server.heard)
    assert "the node does not answer" in capsys.readouterr().err


@pytest.mark.skipif(find_spec("amqtt") is None, reason="needs the extra amqtt")
def test_amqtt_is_spoken_to_in_its_only_version_at_once(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "state", "--set", "mqtt.engine=amqtt") as node:
        made = node.cli("device", "add", "porch")
        line = ["mqtt", "pub", "porch/x", "1", "--username", "porch", "--password-file", "-"]
        taken = node.run(*line, input_text=made["password"])
        assert taken.returncode == 0
        assert "no word for a refusal" in taken.stderr
        assert "mqtt.connect_s" not in node.cli("status")["limit_hits"], "nothing waited to be cut off"
        refused = node.run(*line, input_text="wrong")
        assert refused.returncode == 4
        assert "next: aun-edge device rotate porch" in refused.stderr


def test_a_user_of_another_broker_is_tried_there(tmp_path: Path) -> None:
    engine = ["--set", "mqtt.engine=external", "--set", "mqtt.external.host=127.0.0.1", "--set", "mqtt.external.port=1"]
    with NodeProcess(tmp_path / "state", *engine) as node:
        done = node.run("mqtt", "pub", "a", "x", "--username", "bob", "--password-file", "-", input_text="secret")
        assert done.returncode == 1
        assert "devices connect to a broker of your own" in done.stderr
        said = node.run("config", "set", "mqtt.external.principals.pump=pump").stdout
        assert "in force at the next start: mqtt.external.principals.pump" in said
