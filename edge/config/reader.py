"""Reads every place a setting can come from, checks all of it, and freezes it; edits `config set`'s file."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from edge.config import declared
from edge.config.declared import SECTIONS
from edge.config.lan import lan
from edge.config.ports import PORTS, Listener, listener
from edge.contract import limit
from edge.contract.wire import dumps

SYSTEM_FILE = Path("/etc/aun-edge/aun-edge.toml")
"""The owner's file; never written by the program."""

LOCAL_FILE = "config.d/90-local.toml"
"""What `config set` writes, below the state directory."""

PROFILE_PLACES = (
    Path("/etc/aun-edge/profiles"),
    Path("/usr/share/aun-edge/profiles"),
    Path(__file__).resolve().parents[2] / "firmware-profiles",
)
"""Where `--profile NAME` is looked up; the first match wins."""


VARIABLE = "AUN_EDGE_"
"""What the environment variable of a setting begins with."""

CLOSE = 0.75
"""How alike (0 to 1) a word must be to a known one to be taken for a slip of the pen."""


class Origin(msgspec.Struct, frozen=True):
    """Where a value comes from: `default`, `profile`, `file`, `state`, `environment` or `option`; and its place."""

    layer: str
    place: str = ""
    line: int = 0

    def __str__(self) -> str:
        return (self.place or self.layer) + (f":{self.line}" if self.line else "")


class Problem(msgspec.Struct, frozen=True):
    """Why the configuration is refused."""

    key: str
    origin: Origin
    why: str

    def __str__(self) -> str:
        return f"{self.origin}: " + (f"{self.key}: " if self.key else "") + self.why


class ConfigError(Exception):
    """The configuration is refused; every problem is named with its place."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting in force, and where each came from."""

    state_dir: Path
    profile: str = ""
    node: declared.NodeSettings = declared.NodeSettings()
    http: declared.HttpSettings = declared.HttpSettings()
    mqtt: declared.MqttSettings = declared.MqttSettings()
    mqtt_external: declared.ExternalSettings = declared.ExternalSettings()
    tls: declared.TlsSettings = declared.TlsSettings()
    auth: declared.AuthSettings = declared.AuthSettings()
    log: declared.LogSettings = declared.LogSettings()
    devices: declared.DevicesSettings = declared.DevicesSettings()
    readings: declared.ReadingsSettings = declared.ReadingsSettings()
    agents: declared.AgentsSettings = declared.AgentsSettings()
    a2a: declared.A2aSettings = declared.A2aSettings()
    store: declared.StoreSettings = declared.StoreSettings()
    limits: Mapping[str, int] = {}
    origins: Mapping[str, Origin] = {}

    def origin(self, key: str) -> Origin:
        """Where the value of `section.key` comes from."""
        return self.origins.get(key, Origin("default"))

    def value(self, key: str) -> Any:
        """The value of `section.key`. Raises `KeyError`."""
        section, name = declared.split(key)
        if section == "limits":
            return self.limits[name] if name in self.limits else limit.REGISTRY[name].default
        if name not in SECTIONS[section].__struct_fields__:
            raise KeyError(key)
        return getattr(getattr(self, declared.attribute(section)), name)

    def limits_overrides(self) -> dict[str, int]:
        """The limits that differ from their declaration, for `Limits(overrides)`."""
        return dict(self.limits)

    def listeners(self) -> list[Listener]:
        """Every listener that is not off, in the order of the port table."""
        found = []
        for port in PORTS:
            asked = self.value(port.key)
            explicit = self.origin(port.key).layer not in {"default", "profile"}
            if asked == "off" and port.alias and self.node.port_aliases and not explicit:
                asked = port.usual
            if asked != "off":
                found.append(listener(port, asked, explicit=explicit))
        if self.http.insecure_local:
            return [one for one in found if one.explicit or one.loopback]
        return found


def load_config(
    *,
    state_dir: Path,
    config_file: Path | None = None,
    profile: str = "",
    sets: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    system_file: Path = SYSTEM_FILE,
) -> Config:
    """Read every place, later ones winning. Raises `ConfigError` with every problem found.

    Limits are known once the modules that declare them are imported: import the node first.
    """
    return _gather(
        state_dir=state_dir,
        config_file=config_file,
        profile=profile,
        sets=sets,
        environ=os.environ if environ is None else environ,
        system_file=system_file,
    )


def edit_local(
    state_dir: Path,
    changes: Mapping[str, str | None],
    *,
    config_file: Path | None = None,
    system_file: Path = SYSTEM_FILE,
) -> str:
    """The new text of `DIR/config.d/90-local.toml` with keys set to what the texts say, or dropped with None.

    Raises `ConfigError` when the node would refuse to start with the result.
    """
    path = state_dir / LOCAL_FILE
    local = _Reading()
    if path.exists():
        local.file(path, "state")
    for key, text in changes.items():
        local.change(key, text, Origin("option", "config set"))
    local.refuse()
    _gather(state_dir=state_dir, config_file=config_file, system_file=system_file, local=local)
    return _toml(local.values)


def _gather(
    *,
    state_dir: Path,
    config_file: Path | None = None,
    profile: str = "",
    sets: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    system_file: Path = SYSTEM_FILE,
    local: _Reading | None = None,
) -> Config:
    """All places in order; `local` stands in for the local file of the state directory."""
    reading = _Reading()
    if profile:
        reading.file(_profile_file(profile), "profile")
    owner = config_file or system_file
    if config_file is not None or owner.exists():
        reading.file(owner, "file")
    for path in _drop_ins(owner.parent / f"{owner.name}.d"):
        reading.file(path, "file")
    for path in _drop_ins(state_dir / "config.d"):
        if local is None or path != state_dir / LOCAL_FILE:
            reading.file(path, "state")
    if local is not None:
        reading.values.update(local.values)
        reading.origins.update(local.origins)
    reading.environment(environ or {})
    for text in sets:
        reading.option(text)
    return reading.config(state_dir, profile)


class _Reading:
    """Values and problems gathered over all places."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self.problems: list[Problem] = []

    def file(self, path: Path, layer: str) -> None:
        try:
            text = path.read_text(encoding="utf-8")
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"at line (\d+)", str(error))
            at = Origin(layer, str(path), int(line[1]) if line else len(text.splitlines()))
            self.problems.append(Problem("", at, f"not TOML: {error}"))
            return
        except (OSError, UnicodeError) as error:
            self.problems.append(Problem("", Origin(layer, str(path)), f"cannot be read: {error}"))
            return
        lines = _key_lines(text)
        for key, value in _leaves(tables):
            self.take(key, value, Origin(layer, str(path), _line_of(lines, key)))

    def environment(self, environ: Mapping[str, str]) -> None:
        names = {VARIABLE + re.sub(r"\W", "_", key).upper(): key for key in declared.keys()}
        for variable, text in sorted(environ.items()):
            section = variable.removeprefix(VARIABLE).partition("_")[0].lower()
            origin = Origin("environment", variable)
            if variable in names:
                self.text(names[variable], text, origin)
            elif variable.startswith(VARIABLE) and (section in SECTIONS or section == "limits"):
                self.problems.append(Problem("", origin, "no such setting" + _variable_meant(variable, list(names))))

    def option(self, text: str) -> None:
        key, equals, value = text.partition("=")
        origin = Origin("option", f"--set {key.strip()}")
        if equals:
            self.text(key.strip(), value.strip(), origin)
        else:
            self.problems.append(Problem("", origin, "a value is missing; write --set section.key=value"))

    def text(self, key: str, text: str, origin: Origin) -> None:
        """Take what a text from the environment or the command line means for this setting."""
        hint = self.hint(key, origin)
        if hint is not None:
            self.take(key, _from_text(text, hint), origin)

    def change(self, key: str, text: str | None, origin: Origin) -> None:
        """Set or drop a key."""
        if text is not None:
            self.text(key, text, origin)
        elif self.hint(key, origin) is not None:
            self.values.pop(key, None)
            self.origins.pop(key, None)

    def take(self, key: str, value: Any, origin: Origin) -> None:
        hint = self.hint(key, origin)
        if hint is None:
            return
        if declared.fits(value, hint):
            self.values[key] = msgspec.convert(value, hint)
            self.origins[key] = origin
        else:
            item, words = declared.culprit(value, hint)
            self.problems.append(Problem(key, origin, f"{item!r} is refused; allowed: {words}"))

    def hint(self, key: str, origin: Origin) -> Any:
        """The declared type of a key, or None with the problem noted."""
        try:
            return declared.hint_of(key)
        except KeyError:
            self.problems.append(Problem(key, origin, "no such setting" + _suggest(key)))
            return None

    def config(self, state_dir: Path, profile: str) -> Config:
        sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
        limits: dict[str, int] = {}
        for key, value in self.values.items():
            section, name = declared.split(key)
            table, _, entry = name.partition(".")
            if section == "limits":
                limits[name] = value
            elif entry:
                sections[section][table] = {**sections[section].get(table, {}), entry: value}
            else:
                sections[section][name] = value
        made: dict[str, Any] = {declared.attribute(name): kind(**sections[name]) for name, kind in SECTIONS.items()}
        config = Config(state_dir=state_dir, profile=profile, limits=limits, origins=self.origins, **made)
        self.problems.extend(_disagreements(config))
        self.refuse()
        return config

    def refuse(self) -> None:
        if self.problems:
            raise ConfigError(self.problems)


def _disagreements(config: Config) -> Iterator[Problem]:
    """Settings that are right alone and wrong together."""
    for one in config.listeners():
        why = ""
        if one.port > 65535:
            why = f"port {one.port} is refused; allowed: 0 to 65535"
        elif not one.tls and not one.loopback:
            why = f"{one.host} is not of this machine alone, and this door is not TLS; allowed: a loopback address"
        elif config.http.insecure_local and not one.loopback:
            why = f"http.insecure_local is on, and {one.host} is not of this machine alone; allowed: a loopback address"
        if why:
            yield Problem(one.key, config.origin(one.key), why)
    for given, missing in (("tls.cert", "tls.key"), ("tls.key", "tls.cert")):
        if config.value(given) and not config.value(missing):
            yield Problem(given, config.origin(given), f"{missing} is missing; a certificate and its key come together")
    yield from _plain_lan(config)
    for name in config.limits:
        outer = limit.REGISTRY[name].within
        if outer and config.limits[name] > (most := config.value(f"limits.{outer}")):
            why = f"{config.limits[name]} is refused; allowed: at most limits.{outer} ({most})"
            yield Problem(f"limits.{name}", config.origin(f"limits.{name}"), why)
    for prefix in config.mqtt_external.principals:
        if not re.fullmatch(r"#|[^+#\s$][^+#\0]*", prefix):
            key = f"mqtt.external.principals.{prefix}"
            yield Problem(key, config.origin(key), f"{prefix!r} is refused; allowed: a topic prefix, or #")


def _plain_lan(config: Config) -> Iterator[Problem]:
    """`mqtt.plain_lan` names the owner's own networks, and is not for a node that lets its own machine in untold."""
    key = "mqtt.plain_lan"
    for entry in config.mqtt.plain_lan:
        try:
            lan(entry)
        except ValueError as error:
            yield Problem(key, config.origin(key), f"{entry!r} {error}")
    if config.mqtt.plain_lan and config.http.insecure_local:
        yield Problem(key, config.origin(key), "http.insecure_local is on; it is for loopback listeners only")


def _from_text(text: str, hint: Any) -> Any:
    """The value a text stands for; what it cannot stand for stays text, to be refused with the allowed values."""
    base = declared.base_of(hint)
    try:
        if base is list:
            return tomllib.loads(f"v = {text}")["v"] if text.startswith("[") else _parts(text)
        if base is dict:
            return dict(part.split("=", 1) for part in _parts(text))
        if base is bool:
            return {"true": True, "false": False}.get(text.lower(), text)
        return base(text) if base in {int, float} else text
    except ValueError:
        return text


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _variable_meant(variable: str, names: Sequence[str]) -> str:
    bare = [name.removeprefix(VARIABLE) for name in names]
    return _meant(variable.removeprefix(VARIABLE), bare, before=VARIABLE)


def _suggest(key: str) -> str:
    section, name = declared.split(key)
    if section not in {*SECTIONS, "limits"}:
        return _meant(key, declared.keys(), "; allowed sections: " + ", ".join([*SECTIONS, "limits"]))
    own = [found for one in declared.keys() for at, found in [declared.split(one)] if at == section]
    shown = own
    if section == "limits":  # there are too many of them for a line
        area = f"{name.partition('.')[0]}."
        shown = [one for one in own if one.startswith(area)] or sorted({f"{one.partition('.')[0]}.…" for one in own})
    return _meant(name, own, f"; allowed in [{section}]: " + ", ".join(shown), f"{section}.")


def _meant(word: str, words: Sequence[str], otherwise: str = "", before: str = "") -> str:
    """The one word that is close enough to be meant; what both begin with for sure makes nothing close."""
    near = difflib.get_close_matches(word, words, 1, CLOSE)
    return f"; did you mean {before}{near[0]}?" if near else otherwise


def _leaves(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tables.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _key_lines(text: str) -> list[tuple[str, int]]:
    """(dotted key, line) of each header and assignment: tomllib keeps no places."""
    found: list[tuple[str, int]] = []
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+([^\]]+)\]+", line):
            table = _dotted(header[1])
            found.append((table, number))
        elif assignment := re.match(r"\s*([^=#]+?)\s*=", line):
            found.append((f"{table}.{_dotted(assignment[1])}".lstrip("."), number))
    return found


def _dotted(written: str) -> str:
    return re.sub(r"\s*\.\s*", ".", written.strip()).replace('"', "").replace("'", "")


def _line_of(lines: Sequence[tuple[str, int]], key: str) -> int:
    """The line of a key, or of the nearest table around it (what is inside an inline table has no line of its own)."""
    while key:
        for name, number in reversed(lines):
            if name == key:
                return number
        key = key.rpartition(".")[0]
    return 0


def _drop_ins(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.toml")) if folder.is_dir() else []


def _profile_file(profile: str) -> Path:
    if "/" in profile or profile.endswith(".toml"):
        return Path(profile)
    for place in PROFILE_PLACES:
        if (place / f"{profile}.toml").exists():
            return place / f"{profile}.toml"
    known = sorted({path.stem for place in PROFILE_PLACES for path in _drop_ins(place)})
    why = f"no profile {profile!r}; allowed: {', '.join(known)}, or the path of a file"
    raise ConfigError([Problem("", Origin("profile", "--profile"), why)])


def _toml(values: Mapping[str, Any]) -> str:
    lines = ["# Written by `aun-edge config set`. What you write by hand belongs in another file of this directory."]
    lines += [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in sorted(values.items())]
    return "\n".join(lines) + "\n"


def _toml_key(key: str) -> str:
    section, name = declared.split(key)
    if section == "limits":
        return f'limits."{name}"'
    table, _, entry = name.partition(".")
    return f'{section}.{table}."{entry}"' if entry else key


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_value(name)} = {_toml_value(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return dumps(value).decode()
