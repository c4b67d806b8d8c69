"""The zoo from its methods to the written table: each trained, tested and measured, then all side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from faceanon.studies.zoo.recipes import Method
    from faceanon.studies.zoo.train import ZooSettings


def run_zoo(methods: Sequence[Method], seeds: Sequence[int], settings: ZooSettings, out: Path, jobs: int = 1) -> None:
    """Train, test, write; what is finished is not repeated.

    Args:
        methods: Of `recipes.find_methods` or `recipes.find_ablations`.
        seeds: Of the trainings.
        settings: What is the same for all methods.
        out: Folder for everything.
        jobs: Processes that train and test at once.

    Raises:
        UserError: Runs with other settings are in the folder, the bundle has no judge, or photographs cannot be used.
        RunError: A training failed, or its process was killed.
    """
    from faceanon.studies.zoo.jobs import run_at_once
    from faceanon.studies.zoo.photographs import prepare_photographs
    from faceanon.studies.zoo.train import bundle_of, faces
    from faceanon.weights.bundle import Bundle

    # Before anything is trained: a folder of other settings, and a judge that is missing, are refused at once.
    bundle = Bundle(settings.bundle)
    bundle.judge  # noqa: B018 - built for its errors
    settings.keep(out)
    bundles = {bundle_of(method, settings) for method in methods}
    prepare_photographs(bundles, settings.photos, settings.overlays, bundle.image_size)
    wanted = {}
    for method in methods:
        # Without a training all seeds give the same.
        wanted[method.name] = list(seeds) if method.stages else [0]
    if jobs > 1:
        tasks = []
        for method in methods:
            for seed in wanted[method.name]:
                tasks.append((method, seed))
        run_at_once(tasks, jobs, out, settings)
    image = faces(settings)
    rows: dict[str, dict[str, Tensor]] = {}
    figures: dict[str, dict[int, dict[str, float]]] = {}
    # What the processes have trained and tested is read here; costs are measured now, with the machine to themselves.
    for method in methods:
        name = method.name
        figures[name], rows[name] = _one(method, wanted[name], out, settings, image)
    _write(out, settings, figures, {"original": image}, rows)
    print(f"[zoo] done; the table is {out / 'zoo.md'}")


def _one(
    method: Method, seeds: list[int], out: Path, settings: ZooSettings, image: Tensor
) -> tuple[dict[int, dict[str, float]], dict[str, Tensor]]:
    """Figures of a method by seed, and its rows of the sheets with the first seed."""
    from faceanon.studies.zoo.train import measure, prepare, test

    figures: dict[int, dict[str, float]] = {}
    rows: dict[str, Tensor] = {}
    for seed in seeds:
        model = prepare(method, seed, out, settings)
        figures[seed] = test(method, seed, model, out, settings)
        cost, drawn = measure(model, image)
        figures[seed] |= cost
        rows = rows or drawn
    return figures, rows


def _write(
    out: Path,
    settings: ZooSettings,
    found: dict[str, dict[int, dict[str, float]]],
    original: dict[str, Tensor],
    rows: dict[str, dict[str, Tensor]],
) -> None:
    """Write table, figures and sheets of pictures of all methods into `out`."""
    from dataclasses import asdict

    from faceanon.files import write_atomic
    from faceanon.report.methods import markdown, named, summary
    from faceanon.report.sheets import png_bytes, sheet
    from faceanon.results import plain, run_meta
    from faceanon.weights.bundle import Bundle

    bundle = Bundle(settings.bundle)
    columns = named(bundle.judge_name, bundle.recogniser_name)
    table = {}
    for name, runs in found.items():
        table[name] = summary(list(runs.values()), columns)
    content: dict[str, Any] = {"schema": 1, "settings": asdict(settings), "meta": run_meta()}
    content["columns"] = [{"group": one.group, "title": one.title, "name": one.name} for one in columns]
    methods = {}
    for name, runs in found.items():
        seeds = {}
        for seed, figures in runs.items():
            seeds[str(seed)] = figures
        methods[name] = {"summary": table[name], "seeds": seeds}
    content["methods"] = methods
    write_atomic(out / "zoo.json", (json.dumps(plain(content), indent=2, allow_nan=False) + "\n").encode())
    write_atomic(out / "zoo.md", (_head(settings) + markdown(table, columns)).encode())
    for name, drawn in rows.items():
        write_atomic(out / "sheets" / f"{name}.png", png_bytes(sheet(original | drawn)))
    hidden = {}
    for name, drawn in rows.items():
        hidden[name] = drawn["anonymized, key 1"]
    write_atomic(out / "sheets" / "all.png", png_bytes(sheet(original | hidden)))


def _head(settings: ZooSettings) -> str:
    from faceanon.studies.zoo.photographs import test_persons

    length = "each method as its configs train it"
    if settings.steps is not None:
        length = f"{settings.steps} batches for every trained method"
    return (
        f"Bundle {settings.bundle}; {length}; "
        f"{test_persons()} persons in the test. Mean ± standard deviation over the training seeds.\n\n"
    )
