"""Who hides people from somebody who trains? Several models before the same trained attackers.

  python examples/attackers_compared.py --pictures PERSONS --mobilefacenet 068.ckpt --out runs/at --models dbaf=MODEL

PERSONS holds FFHQ-aligned pictures, a folder a person; the first six of each are taken. The attackers are those of
`faceanon report photographs --attackers small`, who also meet faces that are painted over and blurred ones. A seed
decides who is attacked, the keys and the training. Figures are kept in the folder of `--out`, so an interrupted run
resumes where it was. A model and a seed take some eight minutes of a core.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean

from faceanon.report.board import pipe
from faceanon.studies.photographs.attackers import attack_figures
from faceanon.studies.photographs.figures import Figures
from faceanon.studies.photographs.people import find_people
from faceanon.studies.photographs.tools import ToolsChoice, make_tools

SIDE = 128
PICTURES = 6  # a person
COLUMNS = {
    "fine-tuned recogniser, rank 1": "attack/recogniser",
    "the same, not fine-tuned": "attack/recogniser/untrained",
    "undone without a key, recognised": "attack/inversion",
}
CONTROLS = {"a painted-over face": "/painted", "a blur": "/blur"}


def cell(found: list[Figures], name: str) -> str:
    """A figure with its interval over persons, or the mean of several seeds with the lowest and the highest."""
    values = [one.values[name] for one in found]
    if len(found) > 1:
        return f"{mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
    low, high = found[0].intervals[name]
    return f"{values[0]:.3f} ({low:.3f} to {high:.3f})"


def line_of(title: str, found: list[Figures], suffix: str = "") -> str:
    """A row of the table."""
    cells = [title]
    for name in COLUMNS.values():
        cells.append(cell(found, name + suffix))
    return pipe(cells)


def main() -> None:
    """Print a line for each model and seed, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, metavar="NAME=MODEL", help="what is attacked")
    parser.add_argument("--pictures", type=Path, required=True, metavar="DIR", help="a folder of pictures a person")
    parser.add_argument(
        "--mobilefacenet", type=Path, required=True, metavar="FILE", help="public checkpoint of the judge"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="N")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where figures are kept")
    arguments = parser.parse_args()
    models = dict(word.split("=", 1) for word in arguments.models)
    people = find_people(arguments.pictures, None, PICTURES)
    arguments.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Figures]] = {name: [] for name in models}
    # Seed by seed: what is interrupted has compared all models on one split.
    for seed in arguments.seeds:
        for name, model in models.items():
            choice = ToolsChoice(model, "cpu", arguments.mobilefacenet, False, "yunet", False, SIDE)
            tools = make_tools(choice)
            judge = tools.judges[0]
            one = attack_figures(tools.pipeline, judge, tools.mesh, people, "small", arguments.out, seed)
            found[name].append(one)
            print(f"seed {seed}: {line_of(name, [one])}", flush=True)
    first = next(iter(found.values()))
    print(pipe(["method", *COLUMNS]))
    print(pipe(["---"] * (len(COLUMNS) + 1)))
    for name, figures in found.items():
        print(line_of(name, figures))
    # Whatever the model: paint and blur were met once a seed.
    for title, suffix in CONTROLS.items():
        print(line_of(title, first, suffix))


if __name__ == "__main__":
    main()
