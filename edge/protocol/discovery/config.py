"""One expanded Home Assistant component and the parts that a platform makes of it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from edge.contract.capability import HIGH_RISK_KINDS, Capability
from edge.protocol.discovery import template as templates
from edge.protocol.discovery.record import (
    Availability,
    Bounds,
    Component,
    Presence,
    Reader,
    Refusal,
    Writer,
    number,
)
from edge.protocol.discovery.template import NO_SAMPLE, Phrase, Template, Unsupported

_NUMERIC_EXCEPTIONS = frozenset({"date", "enum", "timestamp", "uptime"})
_ALARMS = frozenset(
    {"carbon_monoxide", "gas", "heat", "moisture", "problem", "safety", "smoke", "tamper", "battery", "lock"}
)
_UNNAMED = re.compile(r"[^a-z0-9]+")


def slug(text: str, joint: str = "_", longest: int = 40) -> str:
    """Lower-case ASCII letters and digits joined by `joint`; "" when nothing of `text` remains."""
    return _UNNAMED.sub(joint, text.lower()).strip(joint)[:longest].strip(joint)


def topic_ok(topic: object, longest: int) -> bool:
    """Whether a discovery payload may name this topic at all: no wildcards, no `$`, no NUL."""
    return (
        isinstance(topic, str)
        and 0 < len(topic) <= longest
        and not topic.startswith("$")
        and not any(c in topic for c in "+#\0")
    )


class Part(NamedTuple):
    """What one capability of an entity is made of: the keys of the payload where its topics and texts are found.

    states: state text → value; strict: no other text counts. commands: value → payload; exact: no other value goes
    out. always: the entity is refused without this part's topics.
    """

    suffix: str = ""
    kind: str = ""
    value: str = "text"
    says: str = "state_topic"
    how: str = "value_template"
    orders: str = "command_topic"
    phrase: str = "command_template"
    states: tuple[tuple[str, bool | str], ...] = ()
    strict: bool = False
    commands: tuple[tuple[str, str], ...] = ()
    exact: bool = False
    verbs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None
    unit: str = ""
    key: str = ""
    object_only: bool = False
    with_state: str = ""
    write_key: str = ""
    confirms: tuple[tuple[str, str], ...] = ()
    repeat_safe: bool = True
    cancellable: bool = False
    history: str = ""
    always: bool = False
    off_delay: bool = False


Shared = dict[int, tuple[tuple[Presence, ...], list[str]]]
"""Identity of an availability list → its entries, and what of them is not understood."""


class Config:
    """A component after expansion, `~` and inheritance, with typed looks into it. Collects what it cannot take."""

    def __init__(
        self,
        platform: str,
        uid: str,
        fallback: str,
        fields: dict[str, object],
        bounds: Bounds,
        shared: Shared | None = None,
    ) -> None:
        """`shared` remembers, for the components of one message, the availability lists they have in common."""
        self.platform, self.fields, self.bounds = platform, fields, bounds
        self._shared: Shared = {} if shared is None else shared
        self.unsupported: list[str] = []
        named = fields.get("unique_id")
        self.uid = f"{platform}:{named}"[: bounds.text] if isinstance(named, str) and named else uid
        name = fields.get("name")
        self.title = name[: bounds.text] if isinstance(name, str) else ""
        self.name = slug(self.title) or self._unnamed(fallback)
        if not self.title and isinstance(self.device_class, str) and "name" not in fields:
            self.title = self.device_class.replace("_", " ")
        encoding = fields.get("encoding", "utf-8")
        self.encoded = isinstance(encoding, str) and encoding.lower() in ("utf-8", "utf8", "ascii", "us-ascii")

    def _unnamed(self, fallback: str) -> str:
        """A null name means the device's main thing: its class or platform says what; else the discovery key does."""
        if "name" in self.fields and self.fields["name"] is None:
            return slug(self.device_class) or self.platform
        return slug(self.device_class) or slug(fallback) or self.platform

    @property
    def device_class(self) -> str:
        """The entity's device class, "" if none."""
        return self.text("device_class")

    def text(self, key: str, default: str = "") -> str:
        """A short text; numbers and booleans become their text, as Home Assistant does."""
        value = self.fields.get(key)
        if value is None:
            return default
        if isinstance(value, bool | int | float):
            value = str(value)
        if not isinstance(value, str) or len(value) > self.bounds.text:
            raise Refusal("bad field", key)
        return value

    def number(self, key: str, default: float | None = None) -> float | None:
        """A finite number."""
        value = self.fields.get(key)
        if value is None:
            return default
        found = number(value)
        if found is NO_SAMPLE:
            raise Refusal("bad field", key)
        return found

    def flag(self, key: str, default: bool = False) -> bool:
        """A boolean."""
        value = self.fields.get(key, default)
        return value if isinstance(value, bool) else str(value).lower() in ("true", "yes", "on", "1")

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A bounded list of short texts."""
        value = self.fields.get(key)
        if value is None:
            return default
        if not isinstance(value, list) or not all(isinstance(one, str) and len(one) <= 128 for one in value):
            raise Refusal("bad field", key)
        if len(value) > self.bounds.options:
            raise Refusal("too many options", key)
        return tuple(value)

    def topic(self, key: str) -> str:
        """A topic, "" if absent."""
        value = self.fields.get(key) if key else None
        if value is None or value == "":
            return ""
        if not topic_ok(value, self.bounds.text):
            raise Refusal("bad topic", key)
        return str(value)

    def template(self, key: str) -> tuple[Template | None, bool]:
        """(value template or None for the payload as it is, whether it is understood)."""
        value = self.fields.get(key) if key else None
        if value is None or value == "":
            return None, True
        try:
            return templates.parse(_text(value), self.bounds.template), True
        except Unsupported as error:
            self.unsupported.append(f"{key}: {error}")
            return None, False

    def command(self, key: str) -> tuple[Phrase | None, bool]:
        """(command template, whether it is understood)."""
        value = self.fields.get(key) if key else None
        if value is None or value == "":
            return None, True
        try:
            return templates.parse_phrase(_text(value), self.bounds.template), True
        except Unsupported as error:
            self.unsupported.append(f"{key}: {error}")
            return None, False

    def numeric(self) -> bool:
        """Whether a sensor's state is a number (§1.8)."""
        if self.fields.get("unit_of_measurement") is not None or self.fields.get("state_class") is not None:
            return self.device_class not in _NUMERIC_EXCEPTIONS
        return bool(self.device_class) and self.device_class not in _NUMERIC_EXCEPTIONS

    def availability(self) -> Availability:
        """The availability topics, by either form. Raises `Refusal` when both are there (§1.7)."""
        single, several = self.topic("availability_topic"), self.fields.get("availability")
        if single and several:
            raise Refusal("bad field", "both availability and availability_topic")
        mode = self.text("availability_mode", "latest")
        if mode not in ("latest", "all", "any"):
            raise Refusal("bad field", "availability_mode")
        if single:
            entry = {key: self.fields.get(key) for key in ("payload_available", "payload_not_available")}
            entry |= {"topic": single, "value_template": self.fields.get("availability_template")}
            return Availability((self._presence(entry),), mode)
        if not several:
            return Availability()
        if not isinstance(several, list) or len(several) > 16 or not all(isinstance(one, dict) for one in several):
            raise Refusal("bad field", "availability")
        return Availability(self._presences(several), mode)

    def _presences(self, entries: list[Any]) -> tuple[Presence, ...]:
        """The entries of a list; a list that several components share is read once."""
        found = self._shared.get(id(entries))
        if found is None:
            before = len(self.unsupported)
            read = tuple(self._presence(one) for one in entries)
            found = self._shared[id(entries)] = (read, self.unsupported[before:])
        else:
            self.unsupported += found[1]
        return found[0]

    def _presence(self, entry: dict[str, object]) -> Presence:
        look = Config("availability", "-", "-", entry, self.bounds)
        topic = look.topic("topic")
        if not topic:
            raise Refusal("bad field", "availability without a topic")
        template, known = look.template("value_template")
        self.unsupported += [] if known else [f"availability: {look.unsupported[0]}"]
        return Presence(
            topic, look.text("payload_available", "online"), look.text("payload_not_available", "offline"), template
        )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Unsupported("not a text")
    return value


def component(config: Config, part: Part) -> Component | None:
    """The capability that a part describes; None when the payload has no topic for it. Raises `Refusal`."""
    availability = config.availability()
    reader, raw = _reader(config, part)
    writer = _writer(config, part)
    if reader is None and writer is None:
        if part.always:
            raise Refusal("incomplete", f"no {part.says} or {part.orders}")
        return None
    value_type = "text" if raw else part.value
    kind = part.kind or config.platform
    name = config.name if not part.suffix else f"{config.name}_{part.suffix}"[:64]
    title = config.title if not part.suffix else f"{config.title} {part.suffix.replace('_', ' ')}".strip()
    writable = writer is not None
    readable = reader is not None
    verbs = part.verbs if writable else ()
    risky = config.platform in HIGH_RISK_KINDS or kind in HIGH_RISK_KINDS
    cap = Capability(
        name=name,
        title=title,
        kind=kind,
        value_type=value_type,
        unit=part.unit,
        device_class=config.device_class,
        minimum=part.minimum,
        maximum=part.maximum,
        step=part.step,
        options=part.options,
        verbs=verbs,
        readable=readable,
        writable=writable,
        risk="high" if writable and risky else "low",
        repeat_safe=writable and part.repeat_safe,
        cancellable=writable and part.cancellable,
        history=part.history or ("every" if config.flag("force_update") else "change"),
        traffic=_traffic(config, writable),
    )
    expire = config.number("expire_after", 0) or 0
    delay = (config.number("off_delay", 0) or 0) if part.off_delay else 0
    return Component(
        uid=config.uid if not part.suffix else f"{config.uid}/{part.suffix}",
        cap=cap,
        reader=reader,
        writer=writer,
        availability=availability,
        expire_s=max(0.0, float(expire)) if not writable else 0.0,
        off_delay_s=max(0.0, float(delay)),
        unsupported=tuple(config.unsupported),
    )


def _reader(config: Config, part: Part) -> tuple[Reader | None, bool]:
    """(reader or None, whether only the raw text is kept because its template is not understood)."""
    topic = config.topic(part.says)
    if not topic:
        return None, False
    if not config.encoded:
        config.unsupported.append("encoding")
        return None, False
    template, known = config.template(part.how)
    if not known:
        return Reader(topic=topic), True
    return (
        Reader(
            topic=topic,
            value_type=part.value,
            template=template,
            texts=part.states,
            strict=part.strict,
            key="" if template else part.key,
            object_only=part.object_only,
        ),
        False,
    )


def _writer(config: Config, part: Part) -> Writer | None:
    topic = config.topic(part.orders)
    if not topic:
        return None
    phrase, known = config.command(part.phrase)
    if not known:
        return None
    qos = config.fields.get("qos", 0)
    return Writer(
        topic=topic,
        qos=1 if qos in (1, 2) else 0,
        retain=config.flag("retain"),
        texts=part.commands,
        strict=part.exact,
        phrase=phrase,
        key="" if phrase else part.write_key,
        with_state="" if phrase else part.with_state,
        confirms=part.confirms,
    )


def _traffic(config: Config, writable: bool) -> str:
    if config.platform in ("siren", "alarm_control_panel"):
        return "alarm"
    if config.platform == "binary_sensor":
        return "alarm" if config.device_class in _ALARMS else "state"
    return "state" if writable or config.platform not in ("sensor", "update") else "telemetry"


def on_off(config: Config, on: str = "ON", off: str = "OFF") -> tuple[tuple[str, str], ...]:
    """Boolean → payload, from `payload_on` and `payload_off`."""
    return ("true", config.text("payload_on", on)), ("false", config.text("payload_off", off))
