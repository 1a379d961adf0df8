"""`aun-edge`: find the verb, run it, and turn what went wrong into what, why, next command and an exit code."""

from __future__ import annotations

import importlib
import io
import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from edge.cli.failure import NOT_YOU, Exit, Failure, exit_code, following
from edge.cli.parser import BYTES, build
from edge.cli.places import default_state_dir
from edge.contract.errors import EdgeError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; its exit code. What the verb printed has left when this returns."""
    _open_streams()
    try:
        try:
            return _done(build().parse_args(argv))
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:  # the reader has what it wanted
        _close_output()
        return Exit.OK
    except OSError as error:
        _close_output()
        return _complain(f"standard output takes nothing: {error.strerror}", "write to another place", Exit.FAILED)


def _done(options: Namespace) -> int:
    """Run the verb; what it fails of is told."""
    if "does" not in options:
        options.help_of.print_help(sys.stderr)
        return Exit.USAGE
    if options.state_dir is None:
        options.state_dir = default_state_dir(os.environ, os.geteuid())
    module, _, function = options.does.partition(":")
    try:
        _all_text(options)
        return int(getattr(importlib.import_module(f"edge.cli.{module}"), function)(options) or Exit.OK)
    except Failure as failure:
        step = failure.next_step or following(failure.what, failure.code, options)
        return _complain(failure.what, step, failure.code)
    except EdgeError as error:
        code = exit_code(error)
        step = str(error.data.get("next", "")) or following(error.message, code, options, error)
        return _complain(error.message, step, code)
    except BrokenPipeError:
        raise
    except PermissionError as error:
        return _complain(f"{error.filename or 'this'} may not be used by you", NOT_YOU, Exit.NOT_PERMITTED)
    except OSError as error:
        if error.filename:
            return _complain(f"{error.filename}: {error.strerror}", "name another place, or mend this one", Exit.FAILED)
        return _complain(str(error.strerror or error), "aun-edge doctor", Exit.FAILED)
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        what = f"a fault of aun-edge itself: {type(error).__name__}: {error}"
        step = "the same command after PYTHONDEVMODE=1 shows where; please report it (SECURITY.md says to whom)"
        return _complain(what, step, Exit.FAILED)


def _all_text(options: Namespace) -> None:
    """Words are UTF-8; paths and payloads may be any bytes. Raises `Failure`."""
    for name, value in vars(options).items():
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str) and name not in BYTES and not word.isascii():
                try:
                    word.encode()
                except UnicodeEncodeError:
                    raise Failure(f"{name}: {word} is not UTF-8 text", code=Exit.USAGE) from None


def _open_streams() -> None:
    """What a terminal cannot show is shown escaped; a stream that was closed takes everything and shows nothing."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _close_output() -> None:
    """Nothing more can be printed, neither at the end of the process."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _complain(what: str, next_step: str, code: int) -> int:
    from edge.cli.show import printable

    lines = [printable(line) for line in f"aun-edge: {what}".splitlines()]
    sys.stderr.write("\n".join([*lines, *([f"  next: {printable(next_step)}"] if next_step else []), ""]))
    return code


if __name__ == "__main__":
    sys.exit(main())
