from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import NodeProcess

PAYLOAD = "a-payload-that-nobody-logs"
GUESS = "a-wrong-password-that-nobody-logs"


def ask(node: NodeProcess, token: str, text: str) -> dict[str, Any] | int:
    """One A2A request; its answer, or the HTTP status of a refusal."""
    message = {"kind": "message", "role": "user", "messageId": text, "parts": [{"kind": "text", "text": text}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(node.ready["endpoints"]["a2a"], json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


@pytest.mark.seed("S4-088")
def test_no_secret_and_no_payload_is_logged(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "state", "--set", "log.level=debug", "--set", "log.rate=0") as node:
        device = node.cli("device", "add", "porch")
        agent = node.cli("agent", "add", "butler", "--sdk-profile", str(tmp_path / "profile"))
        password = tmp_path / "password"
        for text, code in ((device["password"], 0), (GUESS, 4)):
            password.write_text(text)
            who = ["--username", "porch", "--password-file", str(password)]
            assert node.run("mqtt", "pub", "porch/x", PAYLOAD, *who).returncode == code
        assert isinstance(ask(node, agent["token"], PAYLOAD), dict)
        assert ask(node, agent["token"] + "x", PAYLOAD) == 401
        assert ask(node, "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJib2IifQ.c2lnbmF0dXJl", PAYLOAD) == 401
        node.cli("agent", "revoke", "butler", check=False)
        assert node.stop() == 0
        log = node.log
    keys = [
        path.read_text() for path in (tmp_path / "state" / "identity").rglob("*") if path.suffix in {".key", ".pem"}
    ]
    secrets = [line for text in keys if "PRIVATE" in text for line in text.splitlines() if not line.startswith("-----")]
    assert secrets
    assert "device.add by operator" in log
    for secret in (device["password"], agent["token"], GUESS, PAYLOAD, "c2lnbmF0dXJl", *secrets):
        assert secret not in log


def test_the_state_directory_is_private(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "state") as node:
        node.cli("device", "add", "porch")
        node.cli("agent", "add", "butler")
        look = ["find", str(node.state_dir), "-perm", "/077", "-not", "-type", "l"]
        assert subprocess.run(look, capture_output=True, text=True, check=True).stdout == ""


def test_at_debug_the_log_follows_who_comes_asks_and_goes(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "state", "--set", "log.level=debug", "--set", "log.rate=0") as node:
        password = tmp_path / "password"
        for text in (node.cli("device", "add", "porch")["password"], GUESS):
            password.write_text(text)
            node.run("mqtt", "pub", "porch/x", "1", "--username", "porch", "--password-file", str(password))
        token = node.cli("agent", "add", "butler")["token"]
        ask(node, token, "hello")
        assert node.stop() == 0
        log = node.log
    assert "as 'porch' from 127.0.0.1: let in" in log
    assert "as 'porch' from 127.0.0.1: refused" in log
    assert "as 'porch' from 127.0.0.1: gone" in log
    assert f"task.send by butler.{node.ready['issuer']} via token: ok" in log
