"""What people do with an AUN SDK, each a script that the end of the node may cut in two.

A script goes to its first `yield`, where a backup may be taken, then to its second, where the node ends and comes back;
that one says whether everything since the first was lost to a restore. Its assertions are what the node promises:
nothing acknowledged is lost, numbers go on, and clients that were connected are again without a word to them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from tests.support.peers import SOON, Agent
from tests.support.town import Client, Town

Conversation = Generator[None, bool, None]
Script = Callable[["Cast"], Conversation]

LOST = ("message.undecryptable", "group.message_undecryptable", "group.v2.fork_detected")
"""What nobody may ever hear."""

SETBACK = "e2ee.orchestration_error"
"""What the first SDK says when a restore takes the epoch of a group below one that it holds; it goes on with that."""


class Cast:
    """Who takes part, each started when first called for. `steady` are the clients that stay connected throughout."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.steady: list[Client] = []
        self._known: dict[str, Client] = {}

    def __getitem__(self, name: str) -> Client:
        if name not in self._known:
            self.add(name, self.town.client(name, **SOON))
        return self._known[name]

    def again(self, name: str) -> Client:
        """The client's process dies and another one takes its place."""
        self.steady.remove(old := self._known[name])
        return self.add(name, self.town.again(old, **SOON))

    def add(self, name: str, client: Client) -> Client:
        """A client that stays connected."""
        self._known[name] = client
        self.steady.append(client)
        return client


def heard(client: Agent, mark: str, count: int, event: str = "message.received") -> list[str]:
    """The texts of one conversation, in the order of their numbers and each once, when there are `count`."""
    found: dict[int, str] = {}
    for _ in range(40):
        rows = client.heard(event)
        assert all("payload" in row for row in rows), [row for row in rows if "payload" not in row]
        texts = [(row.get("seq"), row["payload"].get("text", "")) for row in rows]
        found = {seq: text for seq, text in texts if text.startswith(f"{mark} ")}
        if len(found) >= count:
            break
        client.heard(event, len(rows) + 1, within=0.5)
    return [found[seq] for seq in sorted(found)]


def said(client: Agent, mark: str, count: int) -> list[str]:
    """The same of what was said in groups."""
    return heard(client, mark, count, "group.message_created")


def marked(mark: str, *numbers: int) -> list[str]:
    return [f"{mark} {number}" for number in numbers]


def rising(numbers: Sequence[int]) -> None:
    """Numbers never go back, not even over a restore."""
    assert list(numbers) == sorted(set(numbers)), numbers


def plain(cast: Cast) -> Conversation:
    alice, bob = cast["alice"], cast["bobby"]
    seqs = [alice.send(bob, "plain 1")["seq"]]
    assert heard(bob, "plain", 1) == ["plain 1"]
    first = alice.send(bob, "plain 2", message_id="m-plain-2")
    yield
    late = alice.send(bob, "plain 3", message_id="m-plain-3")
    seqs += [first["seq"], late["seq"]]
    assert heard(bob, "plain", 3) == marked("plain", 1, 2, 3)
    lost = yield
    again = alice.send(bob, "plain 2", message_id="m-plain-2")
    assert (again["status"], again["seq"]) == ("duplicate", first["seq"])
    again = alice.send(bob, "plain 3", message_id="m-plain-3")
    assert (again["status"] == "duplicate") is not lost
    seqs += [again["seq"]] if lost else []
    seqs.append(alice.send(bob, "plain 4")["seq"])
    rising(seqs)
    wanted = marked("plain", 1, 2, 3, 3, 4) if lost else marked("plain", 1, 2, 3, 4)
    assert heard(bob, "plain", len(wanted)) == wanted
    bob.send(alice, "answer 1")
    assert heard(alice, "answer", 1) == ["answer 1"]


def sealed(cast: Cast) -> Conversation:
    alice, bob = cast["alice"], cast["bobby"]
    seqs = [alice.send(bob, "sealed 1", encrypt=True)["seq"]]
    assert heard(bob, "sealed", 1) == ["sealed 1"]
    yield
    seqs.append(alice.send(bob, "sealed 2", encrypt=True)["seq"])
    assert heard(bob, "sealed", 2) == marked("sealed", 1, 2)
    yield
    seqs.append(alice.send(bob, "sealed 3", encrypt=True)["seq"])
    rising(seqs)
    assert heard(bob, "sealed", 3) == marked("sealed", 1, 2, 3)
    bob.send(alice, "reply 1", encrypt=True)
    assert heard(alice, "reply", 1) == ["reply 1"]


def later_device(cast: Cast) -> Conversation:
    """A device added after the backup: a restore forgets its keys, and it reads new mail all the same.

    The first SDK remembers the keys of a recipient's devices for up to an hour: there it is another who writes.
    """
    alice, bob = cast["alice"], cast["bobby"]
    writer = alice if cast.town.sdk.prepared else cast["erinn"]
    alice.send(bob, "device 1", encrypt=True)
    assert heard(bob, "device", 1) == ["device 1"]
    yield
    tablet = cast.add("tablet", cast.town.device(bob, "tablet", **SOON))
    writer.send(bob, "device 2", encrypt=True)
    assert heard(bob, "device", 2) == marked("device", 1, 2)
    assert heard(tablet, "device", 1) == ["device 2"]
    yield
    writer.send(bob, "device 3", encrypt=True)
    assert heard(bob, "device", 3) == marked("device", 1, 2, 3)
    assert heard(tablet, "device", 2) == marked("device", 2, 3)


def away(cast: Cast) -> Conversation:
    alice = cast["alice"]
    carol = cast.town.client("carol")
    alice.send(carol, "away 1")
    assert heard(carol, "away", 1) == ["away 1"]
    carol.do("close")
    assert alice.send(carol, "away 2")["status"] == "sent"
    alice.send(carol, "away 3", encrypt=True)
    yield
    alice.send(carol, "away 4")
    lost = yield
    missed = marked("away", 2, 3) if lost else marked("away", 2, 3, 4)
    assert alice.send(carol, "away 5", encrypt=True)["status"] == "sent"
    carol = cast.town.again(carol)
    assert caught_up(cast, carol, len(missed) + 1) == [*missed, "away 5"]
    alice.send(carol, "away 6")
    assert heard(carol, "away", len(missed) + 2)[-1] == "away 6"


def caught_up(cast: Cast, client: Client, count: int) -> list[str]:
    """The first SDK's application asks for what it missed; the current SDK brings it by itself."""
    if cast.town.sdk.prepared:
        return heard(client, "away", count)
    rows: list[Any] = []
    page: dict[str, Any] = {"has_more": True, "latest_seq": 1}
    while page["has_more"]:
        page = client.call("message.pull", after_seq=page["latest_seq"], limit=2)
        rows += page["messages"]
    rising([row["seq"] for row in rows])
    return [row["payload"]["text"] for row in rows if row["payload"]["text"].startswith("away ")]


def volatile(cast: Cast) -> Conversation:
    """What lies in memory only goes with the node, and is in no history."""
    alice, bob = cast["alice"], cast["bobby"]
    gone = cast.town.client("dora")
    gone.do("close")

    def fleeting(to: Agent, text: str) -> None:
        sent = alice.send(to, text, ttl=300)
        assert (sent["status"], sent["storage"]) == ("accepted", "volatile")
        assert "seq" not in sent or sent["seq"] is None

    fleeting(bob, "volatile 1")
    assert within(bob, "volatile 1")
    fleeting(gone, "volatile 1")
    yield
    fleeting(gone, "volatile 2")
    yield
    fleeting(bob, "volatile 3")
    assert within(bob, "volatile 3")
    fleeting(gone, "volatile 4")
    alice.send(gone, "kept 1")
    gone = cast.town.again(gone)
    assert within(gone, "volatile 4")
    assert heard(gone, "kept", 1) == ["kept 1"]
    assert not {"volatile 1", "volatile 2"} & set(gone.texts(0))
    page = bob.call("message.history", sender_aid=alice.aid, before_seq=1 << 52)
    assert not [row for row in page["messages"] if row["payload"].get("text", "").startswith("volatile")]


def within(client: Agent, text: str) -> bool:
    """Whether this very text arrives."""
    for count in range(1, 60):
        if text in client.texts(min(count, len(client.texts(0)) + 1), within=0.3):
            return True
    return False


def history(cast: Cast) -> Conversation:
    alice, bob = cast["historian"], cast["bobby"]
    for number in range(1, 6):
        alice.send(bob, f"history {number}", encrypt=number % 2 == 0)
    yield
    alice.send(bob, "history 6")
    lost = yield
    alice.send(bob, "history 7", encrypt=True)
    kept = [1, 2, 3, 4, 5, 7] if lost else [1, 2, 3, 4, 5, 6, 7]
    found: list[dict[str, Any]] = []
    before, older, pages = 1 << 52, True, 0
    while older:
        page = bob.call("message.history", sender_aid=alice.aid, before_seq=before, limit=3)
        found = page["messages"] + found
        before, older, pages = page["next_before_seq"], page["has_older"], pages + 1
    assert [row["payload"]["text"] for row in found] == marked("history", *kept)
    rising([row["seq"] for row in found])
    assert pages == -(-len(kept) // 3)


def recall(cast: Cast) -> Conversation:
    alice, bob = cast["alice"], cast["bobby"]
    ids = [alice.send(bob, f"recall {number}", encrypt=number == 2)["message_id"] for number in (1, 2, 3)]
    assert heard(bob, "recall", 3) == marked("recall", 1, 2, 3)

    def withdraw(message_id: str) -> str:
        answer = alice.call("message.recall", message_ids=[message_id])
        assert answer["recalled"] == (0 if answer["errors"] else 1)
        return str(answer["errors"][0]["error"]) if answer["errors"] else "recalled"

    assert withdraw(ids[0]) == "recalled"
    yield
    assert withdraw(ids[1]) == "recalled"
    lost = yield
    assert withdraw(ids[0]) == "already_recalled"
    assert withdraw(ids[1]) == ("recalled" if lost else "already_recalled")
    assert withdraw(ids[2]) == "recalled"
    for _ in range(40):
        told = {one for event in bob.heard("message.recalled") for one in event["message_ids"]}
        if told == set(ids):
            break
        bob.heard("message.recalled", len(bob.heard("message.recalled")) + 1, within=0.5)
    assert told == set(ids)


def groups(cast: Cast) -> Conversation:
    """Create, send, pull, kick, rejoin, all of it sealed; the one who is put out after the backup is put out again."""
    alice, bob, erin = cast["alice"], cast["bobby"], cast["erinn"]
    gid = alice.call("group.create", name="Team")["group"]["group_id"]
    for one in (bob, erin):
        assert alice.call("group.add_member", group_id=gid, aid=one.aid)["member"]["aid"] == one.aid
        one.until("member_added")
    seqs = [alice.say(gid, "group 1")["seq"]]
    assert said(bob, "group", 1) == said(erin, "group", 1) == ["group 1"]
    yield
    alice.call("group.kick", group_id=gid, aid=bob.aid)
    bob.until("member_removed")
    seqs.append(alice.say(gid, "group 2")["seq"])
    assert said(erin, "group", 2) == marked("group", 1, 2)
    lost = yield
    if lost:
        alice.call("group.kick", group_id=gid, aid=bob.aid)
    seqs.append(alice.say(gid, "group 3")["seq"])
    assert said(erin, "group", 3) == marked("group", 1, 2, 3)
    alice.call("group.add_member", group_id=gid, aid=bob.aid)
    seqs.append(alice.say(gid, "group 4")["seq"])
    rising(seqs)
    assert said(erin, "group", 4) == marked("group", 1, 2, 3, 4)
    assert said(bob, "group", 2) == marked("group", 1, 4)
    bob.say(gid, "group 5")
    own = 0 if cast.town.sdk.prepared else 4  # the first SDK tells its application what it said itself
    assert said(alice, "group", own + 1) == marked("group", *range(5 - own, 6))
    seqs.append(alice.say(gid, "group 6", encrypt=False)["seq"])
    rising(seqs)
    assert said(erin, "group", 6) == marked("group", *range(1, 7))
    rows = erin.call("group.pull", group_id=gid, after_message_seq=0, limit=50)["messages"]
    kept = [row["payload"]["text"] for row in rows if row["payload"].get("text", "").startswith("group ")]
    if cast.town.sdk.prepared:
        assert kept == marked("group", *([1, 3, 4, 5, 6] if lost else range(1, 7)))
    else:  # the first SDK leaves out what it has decrypted before
        assert kept == ["group 6"]
    rising([row["seq"] for row in rows])


def certificates(cast: Cast) -> Conversation:
    """Renewed and rekeyed, renewed after the backup, renewed and rekeyed again."""
    alice, fred = cast["alice"], cast["freddy"]
    serials = [fred.do("certify", how="renew_cert")]
    serials.append(fred.do("certify", how="rekey"))
    fred = cast.again("freddy")
    yield
    serials.append(fred.do("certify", how="renew_cert"))
    yield
    serials.append(fred.do("certify", how="renew_cert"))
    serials.append(fred.do("certify", how="rekey"))
    assert len(set(serials)) == 5
    fred = cast.again("freddy")
    alice.send(fred, "certified 1", encrypt=True)
    assert heard(fred, "certified", 1) == ["certified 1"]
    fred.send(alice, "certified 2", encrypt=True)
    assert heard(alice, "certified", 1) == ["certified 2"]


SCRIPTS: dict[str, Script] = {
    "plain messages": plain,
    "encrypted messages": sealed,
    "a device added later reads new mail": later_device,
    "offline catch-up": away,
    "volatile messages": volatile,
    "history paging": history,
    "recall": recall,
    "groups with encryption: create, send, pull, kick, rejoin": groups,
    "certificate renew and rekey": certificates,
}
