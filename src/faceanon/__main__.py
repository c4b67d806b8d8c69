"""`python -m faceanon` and the command `faceanon`."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        args: Words after `faceanon`; None takes them from `sys.argv`.

    Returns:
        Exit code: 0 done, 1 failed, 2 wrong usage or input.
    """
    from faceanon import cli  # here, so that importing this module stays free of torch

    return cli.main(None if args is None else list(args))


if __name__ == "__main__":
    sys.exit(main())
