"""Verbs that are the node, or work without one."""

from __future__ import annotations

from argparse import Namespace

from edge.cli.failure import Exit, Failure


def run(options: Namespace) -> int:
    """`aun-edge run`."""
    from edge.node import main_run

    return main_run(options)


def init(options: Namespace) -> int:
    """`aun-edge init`."""
    from edge.config import ConfigError
    from edge.node import main_init
    from edge.store.keyring import IdentityError
    from edge.system.files import DirectoryInUse

    try:
        issuer, made = main_init(options)
    except DirectoryInUse as error:
        raise Failure(str(error), next_step=f"aun-edge status --state-dir {options.state_dir}") from None
    except ConfigError as error:
        raise Failure(str(error), next_step="aun-edge config validate", code=Exit.USAGE) from None
    except IdentityError as error:
        raise Failure(str(error), next_step="aun-edge doctor") from None
    print(f"{'made' if made else 'already there'}: {issuer} in {options.state_dir}")
    print(f"  next: aun-edge run --state-dir {options.state_dir}")
    return Exit.OK
