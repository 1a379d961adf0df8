"""Verbs that ask a running node over its control socket."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from edge.cli import show
from edge.cli.ask import ask
from edge.cli.failure import Exit, Failure
from edge.cli.places import ready
from edge.contract.errors import EdgeError
from edge.contract.wire import loads


def status(options: Namespace) -> int:
    """One screen."""
    said = ask(options.state_dir, "status")
    if options.json:
        show.as_json(said)
    else:
        show.facts(_screen(said))
    return Exit.OK


def _screen(said: Mapping[str, Any]) -> dict[str, Any]:
    """What a person wants to know first; `--json` has all of it."""
    mqtt, clock = said["mqtt"], said["clock"]
    return {
        "version": said["version"],
        "state": said["state"] if said["state"] == "well" else said["state"].upper(),
        "issuer": said["issuer"],
        "pid": said["pid"],
        "state dir": said["state_dir"],
        "doors": {name: url + _reached(said["to_network"].get(name)) for name, url in said["endpoints"].items()},
        "left off": said["left_off"],
        "store": _store(said["stores"]),
        "devices": f"{said['devices']} with {said['skills']} skills",
        "mqtt": _bus(mqtt),
        "clock": "sure" if clock["sure"] else "not sure of the date: no source has confirmed it",
        "certificate": f"until {show.moment(said['tls_until'] * 1_000_000)}" if said["tls_until"] else "not readable",
        "insecure local": "YES: callers from this machine need no token" if said["insecure_local"] else "no",
        "plain lan": _plain(said["plain_lan"]),
        "limits hit": said["limit_hits"],
        "tasks failed": said["background_tasks"]["failed"],
    }


def _store(stores: Mapping[str, Any]) -> str:
    """Whether the databases take writes, and on a full disk how long alarms will still be taken."""
    closed = [f"{name} ({store['failure']})" for name, store in stores.items() if store["read_only"]]
    if not closed:
        return "takes writes"
    left = f"; alarms are taken from a reserve: {stores['hot']['reserve'] >> 10} KiB left" * stores["hot"]["full"]
    return f"READ-ONLY: {', '.join(closed)}{left}"


def _bus(mqtt: Mapping[str, Any]) -> str:
    """The engine, how it is, and what it promises where that is less than its own."""
    if mqtt["engine"] == "external":
        return f"external broker {mqtt['broker']}: {mqtt['state']}; {mqtt['queued']} to send; {mqtt['promise']}"
    words = f"{mqtt['connections']} connected, {mqtt['retained']} retained"
    return words if mqtt["engine"] == "builtin" else f"{mqtt['engine']}: {words}; {mqtt['promise']}"


def _plain(lan: Mapping[str, Any]) -> str:
    """What devices without TLS can reach, if anything."""
    return "; ".join(plain_doors(lan)) or "off"


def plain_doors(lan: Mapping[str, Any]) -> list[str]:
    """The doors of `mqtt.plain_lan`, loudly."""
    return [f"WITHOUT TLS at {one['address']} to {one['network']} ({one['interface']})" for one in lan.get("open", [])]


def _reached(bound: str | None) -> str:
    return f"  open to other machines: {bound}" if bound else ""


def methods(options: Namespace) -> int:
    """The operations."""
    said = ask(options.state_dir, "methods", surface=options.surface)
    rows = said if options.json else [{**one, "state": _state(one, options.surface)} for one in said]
    columns = ["name", "state", "scope", "doc"] if options.scopes else ["name", "state", "doc"]
    return _list(options, rows, columns, none="no operations")


def _state(method: Mapping[str, Any], surface: str) -> str:
    """Whether a caller can have it: on, off, or off for those who come by some wires."""
    off = method.get("off", {})
    if not off:
        return "on"
    left = set(method["wire"]) & {surface} if surface else method["wire"]
    return f"off in {', '.join(off)}" if left else "off"


def device_add(options: Namespace) -> int:
    """A password for a device."""
    said = ask(options.state_dir, "device.add", name=options.name, admin=options.admin, topics=options.topics)
    if options.json:
        show.as_json(said)
        return Exit.OK
    show.facts(said)
    if not said["mqtt"] and ask(options.state_dir, "status")["mqtt"]["engine"] == "external":
        print("\nDevices connect to a broker of your own: give it a user there, and its topics this name in")
        print(f"mqtt.external.principals:  aun-edge config set mqtt.external.principals.{said['name']}={said['name']}")
        return Exit.OK
    user = f"-u {said['username']} -P {said['password']}"
    print("\nThe password is shown this once.")
    if said["mqtt"]:
        print("Try it on this machine:")
        print(f"  mosquitto_pub {_reach(said['mqtt'])} {user} -q 1 -t aun/v1/{said['username']}/online -m 1")
    else:
        print("The MQTT door of this machine is not open: aun-edge doctor says why.")
    print("From elsewhere: MQTT over TLS, on the `mqtts` door of `aun-edge status`, with the CA file")
    print(f"  {ready(options.state_dir)['tls_ca']}  (also https://BOX:PORT/pki/tls-root.crt)")
    return Exit.OK


def device_list(options: Namespace) -> int:
    """All devices."""
    rows = ask(options.state_dir, "device.list")
    if not options.json:
        rows = [{**row, **_there(row)} for row in rows]
    columns = ["name", "online", "last_seen", "title", "skills", "aid"]
    _list(options, rows, columns, none="no devices yet: `aun-edge device add NAME`")
    if not options.json and any(row["online"] == "unknown" for row in rows):
        print("\nunknown: it has not said so since the node started; some devices never do")
    return Exit.OK


def _there(row: Mapping[str, Any]) -> dict[str, str]:
    """Whether a device is there, by its own word since the node started; and when it was last heard."""
    seen = row["last_seen"]
    online = "unknown" if row["online"] is None else show.word(row["online"])
    return {"online": online, "last_seen": "never" if seen is None else show.moment(seen)}


def device_show(options: Namespace) -> int:
    """One device."""
    said = ask(options.state_dir, "device.show", name=options.name)
    if options.json:
        show.as_json(said)
        return Exit.OK
    skills, refused = said.pop("skills"), said.pop("refused")
    said.update(_there(said))
    show.facts(said)
    print()
    skills = [{**row, "value": _on_off(row["value"])} for row in skills]
    show.table(skills, ["id", "kind", "value", "unit", "writable", "risk"], none="no skills")
    if refused:
        print("\nrefused:")
        show.table(refused, ["topic", "component", "reason", "detail"], none="")
    return Exit.OK


def device_rotate(options: Namespace) -> int:
    """Another password for a device."""
    said = ask(options.state_dir, "device.rotate", name=options.name)
    if options.json:
        show.as_json(said)
        return Exit.OK
    show.facts(said)
    print("\nThe password is shown this once. The old one is no good any more, and whoever used it is cut off.")
    return Exit.OK


def device_forget(options: Namespace) -> int:
    """The end of a device."""
    ask(options.state_dir, "device.forget", name=options.name)
    print(f"{show.printable(options.name)} is forgotten")
    return Exit.OK


def agent_add(options: Namespace) -> int:
    """A name and a token for an agent. Where the profile goes is made first: the token is shown once."""
    if options.sdk_profile:
        options.sdk_profile.mkdir(mode=0o700, parents=True, exist_ok=True)
    said = ask(options.state_dir, "agent.add", name=options.name, expires_s=seconds(options.expires))
    if options.sdk_profile:
        _write_profile(options, said)
    if options.json:
        show.as_json(said)
        return Exit.OK
    minutes = said.pop("minutes")
    show.facts(said)
    waits = f"the name waits {minutes} minutes for its key in AUN" if minutes else "the name has its key already"
    print(f"\nThe token is shown this once; {waits}.")
    if options.sdk_profile:
        print(f"The AUN SDK finds the node with:  . {options.sdk_profile}/env")
    return Exit.OK


def _write_profile(options: Namespace, said: dict[str, Any]) -> None:
    """What the AUN SDK needs to find and trust this node, in the directory that was asked for."""
    from edge.cli.sdk_profile import write_sdk_profile

    node = ready(options.state_dir)
    where = node["endpoints"]
    http = where.get("http") or where.get("https")
    if not http:
        raise Failure("the node has no HTTP door that an agent could use", next_step="aun-edge status")
    gateway = where.get("aun") or http.replace("http", "ws", 1) + "/aun"
    write_sdk_profile(options.sdk_profile, said["aid"], gateway, http, node["aun_root"], node.get("tls_ca", ""))
    said["sdk_profile"] = str(options.sdk_profile)


def agent_list(options: Namespace) -> int:
    """All agents."""
    columns = ["name", "aid", "state", "token", "expires"]
    return _list(
        options, ask(options.state_dir, "agent.list"), columns, none="no agents yet: `aun-edge agent add NAME`"
    )


def agent_window(options: Namespace) -> int:
    """Let names in without a reservation, for a while."""
    ask(options.state_dir, "agent.window", minutes=options.minutes)
    print(f"any free name may register for {options.minutes} minutes" if options.minutes else "registration is closed")
    return Exit.OK


def agent_revoke(options: Namespace) -> int:
    """The end of an agent."""
    ask(options.state_dir, "agent.revoke", name=options.name)
    print(f"{show.printable(options.name)} is revoked")
    return Exit.OK


def skill_list(options: Namespace) -> int:
    """All skills with their values."""
    rows = ask(options.state_dir, "skill.list")
    if not options.json:
        rows = [{**row, "at": show.moment(row["at"]), "value": _on_off(row["value"])} for row in rows]
    columns = ["id", "kind", "value", "unit", "at", "risk"]
    return _list(options, rows, columns, none="no skills yet: aun-edge device add NAME lets a device in")


_EXAMPLE = """write it like --params '{"value": 40}'"""


def _params(options: Namespace) -> Any:
    """What is asked of a skill. Nothing said is the latest value, or the job itself, as in every dialect."""
    if not options.params:
        return {} if options.value is None else {"value": options.value}
    try:
        return loads(options.params)
    except EdgeError as error:
        raise Failure(f"--params is no JSON: {error.message}", next_step=_EXAMPLE, code=Exit.USAGE) from None


def skill_call(options: Namespace) -> int:
    """Read or act, and wait for the end."""
    params = _params(options)
    if not isinstance(params, dict):
        raise Failure("--params must be a JSON object", next_step=_EXAMPLE, code=Exit.USAGE)
    said = ask(
        options.state_dir,
        "skill.call",
        skill=options.skill,
        params=params,
        timeout_s=options.timeout,
        wait_s=options.timeout + 5,
    )
    if options.json:
        show.as_json(said)
    else:
        if said.get("text"):
            said.pop("artifacts", None)
        if "value" in said:
            said["value"] = _on_off(said["value"])
        show.facts({**said, "until": show.moment(said["until"])} if "until" in said else said)
    if said["state"] == "need_input":
        what = f"{options.skill} asks for more, which this command cannot give"
        raise Failure(what, next_step=f"aun-edge task show {said['task_id']}", code=Exit.FAILED)
    if said["state"] not in ("queued", "accepted", "working", "delivered"):
        return Exit.OK if said["state"] == "completed" else Exit.FAILED
    raise Failure(_pending(options, said), next_step=f"aun-edge task show {said['task_id']}", code=Exit.TRY_LATER)


def _pending(options: Namespace, said: Mapping[str, Any]) -> str:
    """What waits, for what, and until when."""
    device, until = options.skill.partition(".")[0], show.moment(said.get("until"))
    if said.get("kept"):
        what = f"{device} is offline: the order is kept, goes out when it is back, and ends at {until}"
    elif said["state"] == "queued":
        what = f"the order was sent to {device}, which has not answered within {options.timeout} s; it ends at {until}"
    else:
        what = f"{device} is at work, and has not ended within {options.timeout} s; the order ends at {until}"
    return f"{what}; another call would be another order"


def cap_list(options: Namespace) -> int:
    """All capabilities and grants."""
    columns = ["id", "kind", "risk", "writable", "granted"]
    return _list(options, ask(options.state_dir, "cap.list"), columns, none="no capabilities yet")


def cap_grant(options: Namespace) -> int:
    """Allow; a name that nobody has is told, for it may be a slip."""
    ask(options.state_dir, "cap.grant", cap=options.cap, agent=options.agent)
    agent = show.printable(options.agent)
    print(f"{agent} may act on {show.printable(options.cap)}")
    known = {word for row in ask(options.state_dir, "agent.list") for word in (row["name"], row["aid"])}
    if options.agent.lower() not in known:
        sys.stderr.write(f"aun-edge: there is no agent {agent} yet: whoever gets that name may act\n")
        sys.stderr.write(f"  next: aun-edge agent add {agent}, or aun-edge cap revoke {options.cap} {agent}\n")
    return Exit.OK


def cap_revoke(options: Namespace) -> int:
    """Take back."""
    ask(options.state_dir, "cap.revoke", cap=options.cap, agent=options.agent)
    print(f"{show.printable(options.agent)} may no longer act on {show.printable(options.cap)}")
    return Exit.OK


def seconds(text: str) -> int:
    """`90d`, `12h`, `30m`, `45s`, or `never` (0). Raises `Failure`."""
    if text == "never":
        return 0
    found = re.fullmatch(r"([1-9][0-9]{0,8})([dhms])", text)
    if found is None:
        raise Failure(f"{text!r} is no duration; write 90d, 12h, 30m, 45s or never", code=Exit.USAGE)
    return int(found[1]) * {"d": 86_400, "h": 3_600, "m": 60, "s": 1}[found[2]]


def _list(options: Namespace, rows: list[dict[str, Any]], columns: list[str], *, none: str) -> int:
    if options.json:
        show.as_json(rows)
    else:
        show.table(rows, columns, none=none)
    return Exit.OK


def _on_off(value: Any) -> Any:
    """A switch is on or off to people, true or false to programs."""
    return ("on" if value else "off") if isinstance(value, bool) else value


def _reach(url: str) -> str:
    """An MQTT URL as options of mosquitto's clients."""
    host, _, port = url.rpartition("//")[2].rpartition(":")
    return f"-h {host} -p {port}"
