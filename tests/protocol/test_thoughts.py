from __future__ import annotations

from edge.contract.limit import Limit, Limits
from edge.contract.wire import dumps
from edge.protocol.thoughts import RECORD_OCTETS, Bounds, Shelf

CONTEXTS, ITEMS = Limit("t.contexts", 2, "", ""), Limit("t.items", 3, "", "")
OCTETS, TOTAL = Limit("t.octets", 10_000, "", ""), Limit("t.total", 30_000, "", "")


def shelf(**limits: int) -> tuple[Shelf, Limits]:
    made = Limits({f"t.{name}": value for name, value in limits.items()})
    return Shelf(made, Bounds(CONTEXTS, ITEMS, OCTETS, TOTAL), thinker=1), made


def ids(found: Shelf, *key: str) -> list[object]:
    return [one["id"] for one in found.get(key)[0]]


def put(at: Shelf, name: str, *key: str, size: int = 0, now_ms: int = 1) -> int:
    return at.put(key, name, {"id": name, "pad": "x" * size}, now_ms)


def weight(name: str, size: int = 0) -> int:
    return len(dumps({"id": name, "pad": "x" * size})) + RECORD_OCTETS


def test_a_head_holds_its_thoughts_oldest_first_and_the_time_of_the_last() -> None:
    kept, _ = shelf()
    assert [put(kept, name, "a", "c", now_ms=at) for at, name in enumerate("xy", 5)] == [1, 2]
    assert (ids(kept, "a", "c"), kept.get(("a", "c"))[1]) == (["x", "y"], 6)
    assert kept.get(("a", "other")) == ([], 0)


def test_a_thought_put_again_replaces_itself_as_the_newest() -> None:
    kept, _ = shelf()
    for name in "xyx":
        put(kept, name, "a", "c", size=100)
    assert ids(kept, "a", "c") == ["y", "x"]
    assert kept.octets == 2 * weight("x", 100)


def test_the_oldest_thoughts_of_a_head_give_way() -> None:
    kept, limits = shelf()
    for name in "vwxy":
        put(kept, name, "a", "c")
    assert ids(kept, "a", "c") == ["w", "x", "y"]
    assert limits.hits == {"t.items": 1}


def test_the_bytes_of_a_head_have_a_bound_but_the_newest_thought_stays() -> None:
    kept, limits = shelf(octets=2 * weight("x", 100))
    for name in "xyz":
        put(kept, name, "a", "c", size=100)
    assert ids(kept, "a", "c") == ["y", "z"]
    put(kept, "w", "a", "c", size=5_000)
    assert (ids(kept, "a", "c"), kept.octets) == (["w"], weight("w", 5_000))
    assert limits.hits == {"t.octets": 3}


def test_an_empty_thought_is_not_free() -> None:
    kept, limits = shelf(items=1_000, contexts=1_000, total=10 * weight("1234"))
    for number in range(1_000, 1_100):
        kept.put(("a", str(number)), str(number), {}, 1)
    assert len(kept) < 20
    assert limits.hits["t.total"] > 80


def test_a_thinker_keeps_the_newest_contexts_only() -> None:
    kept, limits = shelf()
    for context in ("1", "2", "1", "3"):
        put(kept, "x", "a", context)
    put(kept, "x", "b", "2")
    assert [ids(kept, "a", one) for one in "123"] == [["x"], [], ["x"]]
    assert ids(kept, "b", "2") == ["x"]
    assert limits.hits == {"t.contexts": 1}


def test_when_memory_is_full_the_stalest_head_goes_and_then_the_oldest_of_the_only_one() -> None:
    kept, limits = shelf(total=2 * weight("x", 1_000))
    put(kept, "x", "a", "c", size=1_000)
    put(kept, "y", "b", "c", size=1_000)
    put(kept, "z", "b", "c", size=1_000)
    assert (ids(kept, "a", "c"), ids(kept, "b", "c")) == ([], ["y", "z"])
    put(kept, "w", "b", "c", size=1_000)
    assert (ids(kept, "b", "c"), kept.octets) == (["z", "w"], 2 * weight("w", 1_000))
    put(kept, "v", "b", "c", size=5_000)
    assert (ids(kept, "b", "c"), len(kept)) == (["v"], 1)
    assert limits.hits == {"t.total": 4}
