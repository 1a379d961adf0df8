"""`aun-edge queue`: what was given up, why and whose (promise P2)."""

from __future__ import annotations

from argparse import Namespace

from edge.cli import show
from edge.cli.ask import ask
from edge.cli.failure import Exit
from edge.cli.verbs import seconds


def drops(options: Namespace) -> int:
    """The loss ledger."""
    said = ask(
        options.state_dir,
        "queue.drops",
        reason=options.reason,
        client=options.client,
        since_s=seconds(options.since) if options.since else 0,
        limit=options.limit,
    )
    if options.json:
        show.as_json(said)
        return Exit.OK
    rows = [{**line, "last": show.moment(line.get("last"))} for line in said["lines"]]
    show.table(rows, ["count", "log", "class", "reason", "client", "last"], none="nothing was lost")
    if said["more"]:
        print(f"… and {said['more']} lines more: --limit, or --json")
    if said["pending"]:
        print(f"\n{said['pending']} are counted and not yet written")
    if not (options.reason or options.client or options.since):
        print("\never, by log and reason:")
        show.table(said["total"], ["count", "log", "reason"], none="nothing")
        print("\nsince the start:")
        show.facts(said["counters"])
    return Exit.OK
