"""The log (settled G08): one event, one line; bounded per message, per line and per file; never a secret."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
import threading
import traceback
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any

import msgspec

from edge.contract.time import SECOND, Clock

LINE = 8192
"""Characters of one log line; what is longer is cut and says so."""

MESSAGES = 512
"""How many different messages the rate limit tells apart; the oldest are forgotten."""

JOURNAL = "/run/systemd/journal/socket"

QUIET = {"asyncio": "warning", "uvicorn": "warning", "websockets": "warning", "aiomqtt": "warning", "mqtt": "warning"}
"""Libraries that would tell every connection; `log.levels` overrules."""


class LogPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to log. `rate` is lines a minute of one message, 0 without bound; `octets` is the size of one file."""

    level: str = "info"
    levels: dict[str, str] = {}
    format: str = "text"
    target: str = "stderr"
    file: Path = Path("aun-edge.log")
    octets: int = 4 << 20
    count: int = 3
    rate: int = 60


class Logs:
    """The process's log set-up. `apply` may be called again at any time; nothing is lost in between."""

    def __init__(self, clock: Clock, journal: str = JOURNAL) -> None:
        self._clock, self._journal = clock, journal
        self._handler: logging.Handler | None = None
        self._named: list[str] = []

    def apply(self, plan: LogPlan) -> None:
        """Log as planned from now on. Raises `OSError` when a log file cannot be written; the old way then stays."""
        fresh = self._make(plan)
        fresh.setFormatter(JsonLine() if plan.format == "json" else TextLine())
        fresh.addFilter(RateLimit(self._clock, plan.rate, fresh))
        root = logging.getLogger()
        root.addHandler(fresh)
        self._drop()
        self._handler = fresh
        root.setLevel(plan.level.upper())
        levels = {**QUIET, **plan.levels}
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level.upper())
        self._named = list(levels)

    def close(self) -> None:
        """Tell what is still untold, close files, and leave logging as it was found."""
        self._drop()
        logging.getLogger().setLevel(logging.WARNING)

    def _make(self, plan: LogPlan) -> logging.Handler:
        if plan.target == "file":
            plan.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return PrivateFile(plan.file, maxBytes=plan.octets, backupCount=plan.count, encoding="utf-8")
        if plan.target == "journald" and os.path.exists(self._journal):
            return Journal(self._journal)
        return logging.StreamHandler(sys.stderr)

    def _drop(self) -> None:
        """Take the old handler and the old levels away."""
        for name in self._named:
            logging.getLogger(name).setLevel(logging.NOTSET)
        self._named = []
        old, self._handler = self._handler, None
        if old is not None:
            logging.getLogger().removeHandler(old)
            for one in old.filters:
                if isinstance(one, RateLimit):
                    one.tell_all()
            old.close()


class TextLine(logging.Formatter):
    """`2026-01-31T12:00:00.123Z info edge.node: text aid=… trace=…`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the arguments hold."""
        facts = "".join(f" {name}={value}" for name, value in _facts(record).items())
        return _line(f"{_when(record)} {record.levelname.lower()} {record.name}: {_said(record)}{facts}")


class JsonLine(logging.Formatter):
    """One JSON object a line: time, level, module, text and, where known, aid and trace."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the arguments hold."""
        said = _line(_said(record))
        fields: dict[str, Any] = {"time": _when(record), "level": record.levelname.lower(), "module": record.name}
        return json.dumps({**fields, "text": said, **_facts(record)}, ensure_ascii=False)


class RateLimit(logging.Filter):
    """At most `rate` lines a minute of one message (logger and template); then it counts, and tells the count."""

    def __init__(self, clock: Clock, rate: int, out: logging.Handler) -> None:
        super().__init__()
        self._clock, self._rate, self._out = clock, rate, out
        self._seen: dict[tuple[str, str], _Window] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this line is written."""
        if not self._rate or getattr(record, "is_count", False):
            return True
        now = self._clock.now().mono_us
        with self._lock:
            over = self._over(now)
            window = self._window((record.name, str(record.msg)), record.levelno, now)
            window.lines += 1
            passes = window.lines <= self._rate
            window.suppressed += not passes
        self._tell(over)
        return passes

    def tell_all(self) -> None:
        """Tell every count that is still untold."""
        with self._lock:
            over = self._over(None)
        self._tell(over)

    def _window(self, key: tuple[str, str], level: int, now: int) -> _Window:
        if key not in self._seen:
            self._seen[key] = _Window(level, now + 60 * SECOND)
        return self._seen[key]

    def _over(self, now: int | None) -> list[tuple[tuple[str, str], _Window]]:
        """Take out the windows that have ended, and the oldest beyond `MESSAGES`; those that hid something."""
        beyond = len(self._seen) - MESSAGES
        done = [
            (key, window)
            for place, (key, window) in enumerate(self._seen.items())
            if now is None or window.until <= now or place < beyond
        ]
        for key, _ in done:
            del self._seen[key]
        return [(key, window) for key, window in done if window.suppressed]

    def _tell(self, over: list[tuple[tuple[str, str], _Window]]) -> None:
        for (name, template), window in over:
            made = logging.LogRecord(
                name, window.level, "", 0, "%d more lines suppressed: %s", (window.suppressed, template), None
            )
            made.is_count = True
            self._out.handle(made)


class _Window:
    """One minute of one message."""

    def __init__(self, level: int, until: int) -> None:
        self.level, self.until, self.lines, self.suppressed = level, until, 0, 0


class PrivateFile(RotatingFileHandler):
    """A log file of bounded size that only its owner reads."""

    def _open(self) -> IO[Any]:  # type: ignore[override]
        return open(self.baseFilename, "a", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600))


class Journal(logging.Handler):
    """journald's native datagrams (systemd: "Native Journal Protocol")."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def emit(self, record: logging.LogRecord) -> None:
        """Send one line with its priority."""
        priority = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}.get(record.levelno, 2)
        fields = {"MESSAGE": self.format(record), "PRIORITY": priority, "SYSLOG_IDENTIFIER": "aun-edge"}
        text = "".join(f"{name}={value}\n" for name, value in fields.items())
        try:
            self._socket.sendto(text.encode(errors="replace"), self._path)
        except OSError:
            self.handleError(record)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()
        super().close()


_SECRETS = (
    (re.compile(r"aet_[A-Za-z0-9_-]{8,}"), "aet_…"),
    (re.compile(r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"), "jwt…"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL), "key…"),
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _line(text: str) -> str:
    """No secret, no control character (log injection), no more than `LINE` characters."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    text = _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return text if len(text) <= LINE else f"{text[: LINE - 20]} … {len(text)} characters"


def _said(record: logging.LogRecord) -> str:
    """The text with, for an exception, its type and where it came from, innermost first."""
    text = record.getMessage()
    if record.exc_info and record.exc_info[1] is not None:
        frames = reversed(traceback.extract_tb(record.exc_info[2])[-12:])
        places = " < ".join(f"{_short(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames)
        text += f": {record.exc_info[1]!r} ({places})"
    return text


def _short(filename: str) -> str:
    return "/".join(filename.rsplit("/", 3)[-3:])


def _facts(record: logging.LogRecord) -> dict[str, str]:
    found = {name: getattr(record, name, "") for name in ("aid", "trace")}
    return {name: _line(str(value)) for name, value in found.items() if value}


def _when(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
