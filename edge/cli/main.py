"""`aun-edge`: find the verb, run it, and turn what went wrong into what, why, next command and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from edge.cli.failure import Exit, Failure, exit_code
from edge.cli.parser import build
from edge.cli.places import default_state_dir
from edge.contract.errors import EdgeError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; its exit code."""
    options = build().parse_args(argv)
    if "does" not in options:
        options.help_of.print_help(sys.stderr)
        return Exit.USAGE
    if options.state_dir is None:
        options.state_dir = default_state_dir(os.environ, os.geteuid())
    module, _, function = options.does.partition(":")
    try:
        return int(getattr(importlib.import_module(f"edge.cli.{module}"), function)(options) or Exit.OK)
    except Failure as failure:
        return _complain(failure.what, failure.next_step, failure.code)
    except EdgeError as error:
        return _complain(error.message, str(error.data.get("next", "")), exit_code(error))
    except PermissionError as error:
        step = "run this as the user of the node, or as root"
        return _complain(f"{error.filename or 'this'} may not be used by you", step, Exit.NOT_PERMITTED)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK


def _complain(what: str, next_step: str, code: int) -> int:
    sys.stderr.write(f"aun-edge: {what}\n" + (f"  next: {next_step}\n" if next_step else ""))
    return code


if __name__ == "__main__":
    sys.exit(main())
