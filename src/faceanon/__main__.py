"""`python -m faceanon` and the command `faceanon`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from faceanon.commands._streams import code_of, forgive, open_closed_ones


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        args: Words after `faceanon`; None takes them from `sys.argv`.

    Returns:
        Exit code: 0 done, 1 failed, 2 wrong usage or input, 141 done but nobody read the output.
    """
    open_closed_ones()
    output = forgive()
    from faceanon import cli  # here, so that importing this module stays free of torch

    try:
        code = cli.main(None if args is None else list(args))
    except SystemExit as ending:
        # From argparse, and from Lightning.
        if not isinstance(ending.code, int):
            raise
        code = ending.code
    return code_of(code, output)


if __name__ == "__main__":
    sys.exit(main())
