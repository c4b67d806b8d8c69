"""Stage 2 as one GPU trains it: the released pattern in float32, then ours step by step to all of gpu_fast.yaml.

`benchmarks/gpu_report.py` measures these cases; they are no part of `measure.py`. Every case sets its own
precision, so that all stand beside each other in one run. One call of ours is a whole period of the lazy R1; the
reference has R1 in every step.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from bench.cases import Case, Work, register
from bench.reference_step import reference_of, run_reference
from bench.settings import Precision, Settings
from bench.steps import Recipe, SteppedTraining, build_stage, faces
from faceanon.paths import configs
from faceanon.stages.backbone_stage import BackboneStage
from faceanon.training.acceleration import Acceleration

SIZES: dict[int, tuple[int, ...]] = {256: (2, 8, 32), 64: (4,)}
"""Batches by side of the faces in px; 64 px is for trials of the script on a CPU."""
ON_CPU: dict[str, Any] = {"backend": "eager", "cuda_graphs": False}
"""What a CPU, perhaps without a C++ compiler, has in place of inductor's kernels."""
# The form of the terms that the reference step knows; the calls are those of every form.
FORM = {"objective": "means", "latent_norm": "spread"}


@dataclass(frozen=True)
class Way:
    """A way to run our step.

    Args:
        name: Last part of the case's name.
        about: For the listing.
        precision: Of the training.
        settings: Of `Acceleration`.
    """

    name: str
    about: str
    precision: Precision
    settings: Mapping[str, Any]


def fast() -> dict[str, Any]:
    """The settings under `acceleration` in configs/trainer/gpu_fast.yaml."""
    settings: dict[str, Any] = yaml.safe_load((configs() / "trainer" / "gpu_fast.yaml").read_text())["acceleration"]
    return settings


def ways() -> tuple[Way, ...]:
    """From our step in float32 to all of gpu_fast.yaml, each with one thing more than the one before."""
    whole = fast()
    # What gpu_fast.yaml sets beside compilation; the next way adds that.
    plain = {}
    for name in ("channels_last", "fused", "float32_matmul"):
        plain[name] = whole[name]
    return (
        Way("fp32", "our step, float32", "32", {}),
        Way("bf16", "the same under bf16-mixed", "bf16", {}),
        Way("layout", "channels last, fused optimizer and TF32 besides", "bf16", plain),
        Way("fast", "networks compiled besides: gpu_fast.yaml", "bf16", whole),
        Way("graphs", "CUDA graphs besides", "bf16", {**whole, "cuda_graphs": True}),
    )


class Accelerated:
    """A training with `Acceleration`, a step at a time.

    Args:
        settings: The device.
        recipe: The stage.
        way: How it runs.
        r1_interval: Of the stage, and steps of one call.
    """

    def __init__(self, settings: Settings, recipe: Recipe, way: Way, r1_interval: int = 16) -> None:
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        stage = build_stage(recipe, r1_interval=r1_interval, **FORM)
        changed = {}
        if way.settings and not settings.cuda:
            changed = ON_CPU
        self.acceleration = Acceleration(**{**way.settings, **changed})
        # Lightning appends the stage's callbacks to the trainer's, so this one stands behind the gate: it looks at
        # `paused` after the gate has let the batch through, and `under` can set it just before.
        stage.configure_callbacks = lambda: [self.acceleration]  # type: ignore[method-assign]
        own = replace(settings, precision=way.precision)
        batch = faces(recipe.batch, recipe.size)
        self.training = SteppedTraining(stage, batch, own, folder, r1_interval, benchmark=settings.cuda)
        # The stack closes in reverse: the training ends before its folder is removed.
        self.stack.callback(self.training.close)

    def under(self, context: AbstractContextManager[object]) -> None:
        """One call of the plain networks within `context`, which could not look into compiled code."""
        self.acceleration.paused = True
        self.training.under(context)
        self.acceleration.paused = False

    def work(self, batch: int) -> Work:
        """The training as work to measure: a call runs `per_call` steps of `batch` images."""
        return Work(self.training.call, batch * self.training.per_call, self.under, self.stack.close)


def reference(settings: Settings, recipe: Recipe) -> Work:
    """The released pattern, float32, uncompiled."""
    stage = build_stage(recipe, **FORM)
    _place(stage, settings)
    # This also freezes what the stage does not train.
    first, second = stage.configure_optimizers()
    batch = faces(recipe.batch, recipe.size).to(settings.device)
    # Two keys to anonymize with and two wrong ones a face, as the stage draws them.
    keys = stage.backbone.sample_key(4 * recipe.batch).to(settings.device)
    step = reference_of(stage)
    return Work(lambda: run_reference(step, batch, keys, (first, second)), recipe.batch)


def _place(stage: BackboneStage[Any], settings: Settings) -> None:
    stage.to(settings.device)
    # Frozen networks lie outside of the module tree, so the stage does not take them along.
    stage.bundle.to(settings.device)
    stage.train()


def period(settings: Settings) -> int:
    """Steps of a call: a period of the papers' lazy R1; one where a CPU tries the script."""
    if settings.cuda:
        return 16
    return 1


def recipe(size: int, batch: int) -> Recipe:
    """DBAF's stage 2 with its discriminator."""
    return Recipe("dbaf", "s2", size, batch)


def case_name(size: int, batch: int, way: str) -> str:
    """As the report lists it."""
    return f"gpu-stage2-{size}-b{batch}-{way}"


def _build(size: int, batch: int, way: Way | None) -> Callable[[Settings], Work]:
    def build(settings: Settings) -> Work:
        if way is None:
            return reference(settings, recipe(size, batch))
        return Accelerated(settings, recipe(size, batch), way, period(settings)).work(batch)

    return build


def _cases() -> Iterator[Case]:
    uses = frozenset({"device"})
    for size, batches in SIZES.items():
        for batch in batches:
            of = f"DBAF's stage 2, {size} px, batch {batch}"
            about = f"{of}: the released pattern, float32"
            yield Case(case_name(size, batch, "reference"), about, _build(size, batch, None), uses=uses, usual=False)
            for way in ways():
                name = case_name(size, batch, way.name)
                yield Case(name, f"{of}: {way.about}", _build(size, batch, way), uses=uses, usual=False)


CASES = tuple(_cases())
register(*CASES)


@dataclass(frozen=True)
class Cost:
    """One kind of work in a profile.

    Args:
        name: Of the kernel, or of the operation on a CPU.
        share: Of all that was counted, in [0, 1].
        milliseconds: In one step.
        calls: In one step.
    """

    name: str
    share: float
    milliseconds: float
    calls: int


def profile(settings: Settings, size: int, batch: int, way: Way, warmup: int = 4) -> list[Cost]:
    """Where one step's time goes, the largest first; on a GPU the time of its kernels, else the CPU's.

    Args:
        settings: The device.
        size: Side of the faces in px.
        batch: Faces.
        way: How it runs.
        warmup: Steps before it, in which everything is compiled.
    """
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if settings.cuda:
        kinds += [torch.profiler.ProfilerActivity.CUDA]
    settings.start()
    one = Accelerated(settings, recipe(size, batch), way, period(settings))
    try:
        for _ in range(warmup):
            one.training.step()
        settings.synchronise()
        looking = torch.profiler.profile(activities=kinds)
        one.training.step(looking)
    finally:
        one.stack.close()
    field = "self_cpu_time_total"
    if settings.cuda:
        field = "self_device_time_total"
    events = []
    for event in looking.key_averages():
        events.append((event.key, float(getattr(event, field)), int(event.count)))
    # Where nothing was counted, a sum of 0 would divide the shares below.
    whole = sum(time for _, time, _ in events) or 1.0
    ordered = sorted(events, key=lambda event: -event[1])
    costs = []
    for name, time, count in ordered:
        if time:
            costs.append(Cost(name, time / whole, time / 1000, count))
    return costs
