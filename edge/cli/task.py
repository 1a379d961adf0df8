"""`aun-edge task`: orders that the owner gave and what became of them."""

from __future__ import annotations

from argparse import Namespace

from edge.cli import show
from edge.cli.ask import ask
from edge.cli.failure import Exit


def list_(options: Namespace) -> int:
    """The newest orders first."""
    status = {"status": options.status} if options.status else {}
    said = ask(options.state_dir, "task.list", limit=options.limit, **status)
    if options.json:
        show.as_json(said["items"])
        return Exit.OK
    columns = ["task_id", "status", "skill", "created_at", "updated_at", "reason"]
    show.table(said["items"], columns, none="no orders: aun-edge skill call SKILL gives one")
    if said["has_more"]:
        print("… and older ones: --limit")
    return Exit.OK


def show_(options: Namespace) -> int:
    """One order: what was asked, said and made."""
    said = ask(options.state_dir, "task.get", task_id=options.task)
    (show.as_json if options.json else show.facts)(said)
    return Exit.OK


def cancel(options: Namespace) -> int:
    """Call an order off."""
    said = ask(options.state_dir, "task.cancel", task_id=options.task)
    if options.json:
        show.as_json(said)
    else:
        print(f"{show.printable(options.task)} is {said['status']}")
    return Exit.OK
