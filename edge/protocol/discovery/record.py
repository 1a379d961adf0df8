"""What every convention is turned into, and how a payload becomes a value and a value a payload.

A `Component` is a capability with its topics. It is plain data: it is stored as JSON and rebuilt from it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from edge.contract.capability import Capability
from edge.contract.errors import EdgeError
from edge.contract.wire import SAFE_INTEGER, JsonLimits, dumps, loads
from edge.protocol.discovery.template import NO_SAMPLE, NoSample, Phrase, Template, Unsupported

Value = bool | int | float | str | list[object] | dict[str, object] | None
"""A value in the capability's own terms; None is "unknown", said by the device itself."""


class Bounds(msgspec.Struct, frozen=True):
    """How much a parser takes; the numbers come from the declared limits."""

    octets: int = 65_536
    depth: int = 16
    components: int = 256
    template: int = 1_024
    text: int = 256
    value: int = 4_096
    options: int = 128


class Refusal(Exception):
    """A discovery payload, or one component of it, that is not taken. `reason` is one word for counters."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


class Refused(msgspec.Struct, frozen=True):
    """What was not taken, for `device show`: the component (""=the whole payload), why, and which thing."""

    component: str
    reason: str
    detail: str = ""


_UNREAD = object()


class Payload(msgspec.Struct, eq=False):
    """One message's payload, decoded at most once however many capabilities read it."""

    raw: bytes
    limits: JsonLimits
    _text: object = _UNREAD
    _json: object = _UNREAD
    _native: tuple[object, int | None] | None = None

    def text(self) -> str | None:
        """The payload as UTF-8 text, None when it is none."""
        if self._text is _UNREAD:
            try:
                self._text = self.raw.decode()
            except UnicodeDecodeError:
                self._text = None
        return self._text  # type: ignore[return-value]

    def json(self) -> object:
        """The payload as JSON, `NO_SAMPLE` when it is none."""
        if self._json is _UNREAD:
            try:
                self._json = loads(self.raw, self.limits)
            except EdgeError:
                self._json = NO_SAMPLE
        return self._json

    def native(self) -> tuple[object, int | None]:
        """(value, the device's own time in ms since 1970 UTC) of a native reading: a JSON value, or `{"v": value,
        "t": ms}`; `NO_SAMPLE` when it is no JSON."""
        if self._native is None:
            value, stated = self.json(), None
            if type(value) is dict and "v" in value and (len(value) == 1 or (len(value) == 2 and "t" in value)):
                value, said = value["v"], value.get("t")
                stated = int(said) if type(said) is int or type(said) is float else None
            self._native = value, stated
        return self._native


class Reader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Turns a message on `topic` into a value.

    texts: state text → value; with `strict` other texts are no sample. key: the member to take when the payload is a
    JSON object (`state` of a JSON light); a payload that is none is taken as text unless `object_only`.
    native: the payload is a JSON value or `{"v": value, "t": ms}`.
    """

    topic: str
    value_type: str = "text"
    template: Template | None = None
    texts: tuple[tuple[str, bool | str], ...] = ()
    strict: bool = False
    key: str = ""
    object_only: bool = False
    native: bool = False


class Writer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Turns a value or verb into a message on `topic`.

    texts: value (`true`, `false`, or a text) → payload text; others pass as they are unless `strict`.
    key: publish a JSON object with this member, plus `with_state` as its `state`.
    confirms: command → the state that confirms it, where that is another word.
    """

    topic: str
    qos: int = 0
    retain: bool = False
    texts: tuple[tuple[str, str], ...] = ()
    strict: bool = False
    phrase: Phrase | None = None
    key: str = ""
    with_state: str = ""
    confirms: tuple[tuple[str, str], ...] = ()


class Presence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One availability topic and its two payloads."""

    topic: str
    online: str = "online"
    offline: str = "offline"
    template: Template | None = None


class Availability(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a component counts as online: `latest` word of any topic, `all` or `any` of them."""

    topics: tuple[Presence, ...] = ()
    mode: str = "latest"


class Component(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One capability and how to reach it. `uid` is the same for the same thing by whatever message it comes.

    `cap.name` is a wish; the registry makes it unique. expire_s, off_delay_s: 0 = never.
    """

    uid: str
    cap: Capability
    reader: Reader | None = None
    writer: Writer | None = None
    availability: Availability = Availability()
    expire_s: float = 0
    off_delay_s: float = 0
    unsupported: tuple[str, ...] = ()
    """What of it could not be taken (a template, an aspect), for `device show`."""

    def topics(self) -> tuple[list[str], list[str]]:
        """(topics its publisher must be allowed to publish, topics it must be allowed to subscribe)."""
        says = [self.reader.topic] if self.reader else []
        says += [one.topic for one in self.availability.topics]
        return says, [self.writer.topic] if self.writer else []


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is said of the device. ids: normalised hardware ids, best first; hints: texts for a slug, best first."""

    ids: tuple[str, ...] = ()
    name: str = ""
    model: str = ""
    maker: str = ""
    version: str = ""
    hints: tuple[str, ...] = ()
    default_skill: str = ""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A discovery message in our terms: this source describes exactly these components of this device."""

    device: DeviceInfo
    components: tuple[Component, ...] = ()
    refused: tuple[Refused, ...] = ()
    native: str = ""
    """The `<device>` level of a native announcement."""


def json_object(payload: bytes, limits: JsonLimits) -> dict[str, Any]:
    """A payload that has to be a JSON object. Raises `Refusal`."""
    if len(payload) > limits.octets:
        raise Refusal("too large", f"{len(payload)} bytes")
    try:
        whole = loads(payload, limits)
    except EdgeError as error:
        reason = "too deep" if error.message.startswith("JSON nested") else "malformed"
        raise Refusal(reason, error.message[:120]) from None
    if not isinstance(whole, dict):
        raise Refusal("malformed", "not an object")
    return whole


def read(reader: Reader, payload: Payload) -> Value | NoSample:
    """The value that a message carries for this reader, or `NO_SAMPLE`.

    Empty text is no sample; the word `None` is "unknown" (spec/device-conventions.md §1.8).
    """
    if reader.native:
        return read_native(reader, payload)[0]
    raw = _picked(reader, payload)
    if raw is NO_SAMPLE:
        return NO_SAMPLE
    if raw is None:
        return None
    if reader.texts or reader.strict:
        found = _word(reader.texts, raw)
        if found is not None:
            return found
        if reader.strict:
            return None if raw == "None" else NO_SAMPLE
    if raw == "":
        return NO_SAMPLE
    if raw == "None":
        return None
    return typed(raw, reader.value_type)


def read_native(reader: Reader, payload: Payload) -> tuple[Value | NoSample, int | None]:
    """`read` for a native reading, and the device's own time in ms since 1970 UTC if it says one."""
    raw, stated = payload.native()
    if raw is NO_SAMPLE:
        raw = payload.text() or NO_SAMPLE
        if raw is NO_SAMPLE:
            return NO_SAMPLE, None
    return typed(raw, reader.value_type), stated


def typed(raw: object, value_type: str) -> Value | NoSample:
    """`raw` as a value of this type, or `NO_SAMPLE` when it is none: a number is never guessed (§8)."""
    if raw is None:
        return None
    match value_type:
        case "number":
            return number(raw)
        case "boolean":
            return raw if isinstance(raw, bool) else NO_SAMPLE
        case "text":
            return raw if isinstance(raw, str) else dumps(raw).decode()
        case "none":
            return NO_SAMPLE
    return raw  # type: ignore[return-value]


def number(raw: object) -> int | float | NoSample:
    """A finite number within ±(2^53−1), from a number or its plain decimal text."""
    if isinstance(raw, str):
        text = raw.strip()
        if not text or len(text) > 64 or not text.isascii() or "_" in text:
            return NO_SAMPLE
        try:
            raw = int(text) if text.lstrip("+-").isdigit() else float(text)
        except ValueError:
            return NO_SAMPLE
    kind = type(raw)
    if (kind is int or kind is float) and -SAFE_INTEGER <= raw <= SAFE_INTEGER:  # type: ignore[operator]
        return raw  # type: ignore[return-value]
    return NO_SAMPLE


def plain(value: object) -> str:
    """A value as the text that a device expects: `21` rather than `21.0`."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str):
        return value
    return dumps(value).decode()


def write(writer: Writer, value: Value) -> bytes:
    """The payload that orders `value`. Raises `Refusal` when this writer has no word for it."""
    word = plain(value)
    text = next((payload for key, payload in writer.texts if key == word), None)
    if text is None:
        if writer.strict:
            raise Refusal("no command", word)
        text = word
    if writer.phrase is not None:
        try:
            return writer.phrase.render(text).encode()
        except Unsupported as error:
            raise Refusal("no command", str(error)) from None
    if writer.key:
        member: object = text if writer.texts or isinstance(value, str) else value
        return dumps({**({"state": writer.with_state} if writer.with_state else {}), writer.key: member})
    return text.encode()


def confirmed_by(writer: Writer, value: Value) -> Value:
    """The state value that says `value` was carried out."""
    return next((state for command, state in writer.confirms if command == value), value)


def _word(texts: tuple[tuple[str, bool | str], ...], raw: object) -> bool | str | None:
    said = raw if isinstance(raw, str) else _rendered(raw)
    return next((value for text, value in texts if text == said), None)


def _rendered(raw: object) -> str:
    """How a template prints a value: Python's words for booleans, as in Home Assistant."""
    return str(raw) if isinstance(raw, bool | int | float) else dumps(raw).decode()


def _picked(reader: Reader, payload: Payload) -> object:
    if reader.template is not None:
        return reader.template.render(payload)
    if reader.key:
        whole = payload.json()
        if isinstance(whole, dict):
            return whole.get(reader.key, NO_SAMPLE)
        if reader.object_only:
            return NO_SAMPLE
    text = payload.text()
    if reader.value_type == "json" and text:
        return payload.json()
    return NO_SAMPLE if text is None else text
