"""How a caller names a skill, in every dialect (settled G48, G52). A fixed grammar; nothing here guesses.

A call is `{"skill": id, "params": {…}}` in a data part or in the metadata, or a text
`<device or skill name> <verb or value>`, in English or Chinese, the verb before or behind the name. A text counts
when exactly one skill answers to the name and takes the verb or value; otherwise it is no call.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from edge.contract.capability import Capability, Skill
from edge.contract.errors import InvalidParams
from edge.protocol import parts as content
from edge.protocol.task import Aim, Part


class Reading(NamedTuple):
    """What a text asks for: `verb` is `read`, `set` (with `value`), or a word of the capability."""

    skill: str
    verb: str
    value: Any = None


VERBS: Mapping[str, tuple[str, ...]] = {
    "read": ("read", "get", "show", "读取", "读", "查询", "查看", "多少", "状态"),
    "on": ("on", "turn on", "switch on", "打开", "开启", "开"),
    "off": ("off", "turn off", "switch off", "关闭", "关掉", "关"),
    "toggle": ("toggle", "切换"),
    "press": ("press", "push", "按下", "按"),
    "open": ("open", "打开", "开"),
    "close": ("close", "关闭", "关上", "关"),
    "stop": ("stop", "停止", "停"),
    "lock": ("lock", "锁上", "上锁"),
    "unlock": ("unlock", "解锁", "开锁"),
}
"""Every verb and its words. A word may stand for two verbs; which one is meant, the capability says."""

_SET = re.compile(r"^(?:set to|set|to|=|设置为|设为|设成|设定为|调到|调至)\s*(?P<value>\S.*)$")
_NUMBER = re.compile(r"^[+-]?\d{1,15}(?:\.\d{1,15})?$")
_EDGE = " \t:=,，、。.!！?？"
_WORDS = {word: {v for v, words in VERBS.items() if word in words} for words in VERBS.values() for word in words}
_TRUE = {"true": True, "false": False}
_SHOWN = 50


def accepted(cap: Capability) -> frozenset[str]:
    """The verbs that a capability takes."""
    return frozenset(cap.verbs) | ({"read"} if cap.readable else set())


def read(text: str, skills: Iterable[Skill]) -> Reading | None:
    """Read a text by the grammar; None when no skill, or more than one, is meant."""
    line = _plain(text)
    named = list(_named(line, skills))
    longest = max((length for length, _, _ in named), default=0)
    found = {reading for length, skill, rest in named if length == longest for reading in _said(rest, skill)}
    return _as_written(found.pop(), text) if len(found) == 1 else None


def about(text: str, skill: Skill) -> Reading | None:
    """Read a text whose skill is settled: a bare verb or value; whatever it says, for what can only be read."""
    found = _said(_plain(text), skill)
    if len(found) == 1:
        return _as_written(found[0], text)
    if not skill.cap.writable and skill.cap.readable and not skill.cap.native:
        return Reading(skill.id, "read")
    return None


def default(skills: Sequence[Skill], wanted: str = "") -> Skill | None:
    """The skill of a message that names none: the declared one, or the only one (G52)."""
    for skill in skills:
        if wanted and skill.id == wanted:
            return skill
    return skills[0] if len(skills) == 1 else None


def aim(said: Sequence[Part], metadata: Mapping[str, Any], skills: Sequence[Skill], wanted: str = "") -> Aim | None:
    """What a message asks the node to do; None when it names no skill and there is no default.

    Raises `InvalidParams`, with the skills that exist, for a skill that does not, and for params that the
    capability cannot take.
    """
    for source in (*content.objects(list(said)), metadata):
        if "skill" in source:
            return _structured(source, skills)
    text = content.texts(list(said))
    reading = read(text, skills)
    if reading is not None:
        return _aim(_find(reading.skill, skills), reading.verb, reading.value)
    skill = _native(text, skills) or default(skills, wanted)
    if skill is None:
        return None
    reading = about(text, skill)
    if reading is not None:
        return _aim(skill, reading.verb, reading.value)
    return _aim(skill, "") if skill.cap.native else None


def question(skills: Sequence[Skill]) -> tuple[Part, ...]:
    """Ask the caller for a skill: a text, and a data part that lists them."""
    if not skills:
        return (content.text("There is no skill here yet."),)
    lines = [f"{skill.id}: {', '.join(sorted(usage(skill.cap)))}" for skill in skills[:_SHOWN]]
    if len(skills) > _SHOWN:
        lines.append(f"… and {len(skills) - _SHOWN} more")
    text = "Which skill? Say `<device or skill name> <verb or value>`.\n" + "\n".join(lines)
    return (content.text(text), content.data({"skills": [entry(skill) for skill in skills[:_SHOWN]]}))


def entry(skill: Skill) -> dict[str, Any]:
    """A skill in a list for callers."""
    return {"id": skill.id, "name": name(skill), "accepts": sorted(usage(skill.cap))}


def name(skill: Skill) -> str:
    """A skill's name for people."""
    return f"{skill.device_name} {skill.cap.title}"


def usage(cap: Capability) -> set[str]:
    """What may stand behind a name: verbs, and the values."""
    words = set(accepted(cap))
    if cap.writable and cap.options:
        words |= set(cap.options)
    elif cap.writable and cap.value_type == "number":
        words.add(f"<{_bound(cap.minimum)}…{_bound(cap.maximum)}{cap.unit and ' ' + cap.unit}>")
    elif cap.writable and cap.value_type in ("text", "json"):
        words.add("set <value>")
    return words


def _bound(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _plain(text: str) -> str:
    """One line, one case, one width."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(_EDGE)


def _as_written(reading: Reading, text: str) -> Reading:
    """A free text in the caller's own letters; the grammar compares without case."""
    if not isinstance(reading.value, str):
        return reading
    words, count = text.split(), len(reading.value.split())
    for start in range(len(words) - count, -1, -1):
        written = " ".join(words[start : start + count]).strip(_EDGE)
        if _plain(written) == reading.value:
            return reading._replace(value=written)
    return reading


@lru_cache(maxsize=4096)
def _names(skill_id: str, aid: str, slug: str, device_name: str, title: str, cap_name: str) -> frozenset[str]:
    """Everything that a skill answers to: its id, its device's names, its own, and both together."""
    device = {device_name, slug, skill_id.partition(".")[0]}
    own = {title, cap_name}
    both = {f"{left} {right}" for left in device for right in own}
    return frozenset(plain for plain in map(_plain, {skill_id, aid} | device | own | both) if plain)


def _named(line: str, skills: Iterable[Skill]) -> Iterable[tuple[int, Skill, str]]:
    """Every (length of the name, skill, the rest of the line) where the line begins or ends with a name."""
    for skill in skills:
        for known in _names(skill.id, skill.aid, skill.device, skill.device_name, skill.cap.title, skill.cap.name):
            if line.startswith(known) and _apart(line[: len(known)], line[len(known) :]):
                yield len(known), skill, line[len(known) :].strip(_EDGE.replace("=", ""))
            if line.endswith(known) and _apart(line[: -len(known)], known) and len(known) < len(line):
                yield len(known), skill, _no_article(line[: -len(known)].strip(_EDGE))


def _no_article(words: str) -> str:
    return "" if words == "the" else words.removesuffix(" the")


def _apart(left: str, right: str) -> bool:
    """Whether a name ends where it seems to: Latin words are parted by something that is no letter."""
    if not left or not right:
        return True
    return not (_latin(left[-1]) and _latin(right[0]))


def _latin(char: str) -> bool:
    return char.isalnum() and char < "\u2e80"


def _said(rest: str, skill: Skill) -> list[Reading]:
    """What the words mean to this skill; empty when it does not take them."""
    cap = skill.cap
    if not rest:
        return [Reading(skill.id, "read")] if cap.readable else []
    takes = accepted(cap)
    verbs = sorted((_WORDS.get(rest, set()) | {v for v in cap.verbs if _plain(v) == rest}) & takes)
    if verbs:
        return [Reading(skill.id, verb) for verb in verbs]
    if not cap.writable:
        return []
    explicit = _SET.match(rest)
    value = _value(explicit["value"] if explicit else rest, cap, free=explicit is not None)
    return [] if value is None else [Reading(skill.id, "set", value)]


def _value(words: str, cap: Capability, *, free: bool) -> Any:
    """A value of the capability; None when the words are none. Free text only behind an explicit `set`."""
    for option in cap.options:
        if _plain(option) == words:
            return option
    if cap.options:
        return None
    if cap.value_type == "boolean":
        return _TRUE.get(words)
    if cap.value_type == "number":
        return _number(words, cap)
    return words if free and cap.value_type == "text" else None


def _number(words: str, cap: Capability) -> float | int | None:
    bare = words.removesuffix(_plain(cap.unit)).strip() if cap.unit else words
    if not _NUMBER.match(bare):
        return None
    value = float(bare) if "." in bare else int(bare)
    return value if in_range(value, cap) else None


def in_range(value: float, cap: Capability) -> bool:
    """Whether a number lies in the capability's range."""
    above = cap.minimum is None or value >= cap.minimum
    return above and (cap.maximum is None or value <= cap.maximum)


def _native(text: str, skills: Sequence[Skill]) -> Skill | None:
    """The native skill that a text begins with; the device itself reads the rest."""
    named = [(length, skill) for length, skill, rest in _named(_plain(text), skills) if skill.cap.native and rest]
    longest = max((length for length, _ in named), default=0)
    found = {skill.id: skill for length, skill in named if length == longest}
    return next(iter(found.values())) if len(found) == 1 else None


def _structured(source: Mapping[str, Any], skills: Sequence[Skill]) -> Aim:
    wanted, params = source["skill"], source.get("params")
    if not isinstance(wanted, str) or not isinstance(params if params is not None else {}, dict):
        raise InvalidParams("skill must be a string, params an object")
    skill = _find(wanted, skills)
    given: dict[str, Any] = params or {}
    verb, value = given.get("verb", given.get("action", "")), given.get("value")
    if not isinstance(verb, str):
        raise InvalidParams("params.verb must be a string")
    if not verb and isinstance(value, str) and len(said := _said(_plain(value), skill)) == 1:
        return _aim(skill, said[0].verb, said[0].value, given)
    if not verb and "value" in given:
        verb = "set"
    elif not verb and (not skill.cap.native or (not given and not skill.cap.writable)):
        verb = "read"
    if verb not in ("", "set") and not skill.cap.native and verb not in accepted(skill.cap):
        raise _cannot(skill, verb)
    if verb == "set" and not skill.cap.writable:
        raise _cannot(skill, value[:80] if isinstance(value, str) else verb)
    return _aim(skill, verb, value, given)


def _cannot(skill: Skill, verb: str) -> InvalidParams:
    accepts = sorted(usage(skill.cap))
    return InvalidParams(f"{skill.id} does not take {verb!r}; it takes: {', '.join(accepts)}", data=entry(skill))


def _find(skill_id: str, skills: Sequence[Skill]) -> Skill:
    for skill in skills:
        if skill.id == skill_id:
            return skill
    known = [skill.id for skill in skills[:_SHOWN]]
    listed = ", ".join(known) if known else "none yet"
    raise InvalidParams(f"no skill {skill_id!r} here; skills: {listed}", data={"skills": known})


def _aim(skill: Skill, verb: str, value: Any = None, params: dict[str, Any] | None = None) -> Aim:
    cap = skill.cap
    given = params if params is not None else ({"value": value} if verb == "set" else {"verb": verb} if verb else {})
    return Aim(
        skill=skill.id,
        verb=verb,
        value=value,
        params=given,
        repeat_safe=cap.repeat_safe or verb == "read",
        native=cap.native,
        cancellable=cap.cancellable,
    )
