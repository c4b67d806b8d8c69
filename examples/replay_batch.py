"""Run the batch that a training stopped at once more: python examples/replay_batch.py FILE [--config CONFIG].

FILE is what a training saved under failures/ when a loss was not finite; the configuration is found beside it. Prints
every term of the loss and what is not finite. Ends with 0 if the failure came again, 1 if it did not.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from faceanon.errors import RunError, UserError
from faceanon.training.cli import run
from faceanon.training.replay import OutcomeError, arguments


def main() -> int:
    """Replay one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--config", type=Path, help="the training's config.yaml, where it no longer lies beside FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            run(arguments(args.file.resolve(), Path(scratch), args.config))
        except OutcomeError as outcome:
            print(outcome)
            return 0 if outcome.again else 1
        except (UserError, RunError) as error:
            print(f"replay_batch: {error}", file=sys.stderr)
            return 2
    raise AssertionError("a replay ends with its outcome")


if __name__ == "__main__":
    sys.exit(main())
