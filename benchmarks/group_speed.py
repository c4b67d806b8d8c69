"""What does `faceanon anonymize FOLDER` cost a face, in seconds of the processor, part by part?

  python benchmarks/group_speed.py                    # twelve group photos of twelve people, the default model
  python benchmarks/group_speed.py --photos 2 --save folder

The photos are JPEGs of 1614 x 1214 px with twelve invented people each (`faceanon.photo.party`). The run is that of the
command, with the command's own threads. Seconds of the processor are what the part's own thread used, so that other
work on the machine does not count; with OMP_NUM_THREADS=1 no part uses any other thread. A part that calls another one
does not count its time. `--save` keeps the results, to compare pictures of two versions.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from faceanon.backbones.persona import Persona
from faceanon.errors import UserError
from faceanon.key import Password
from faceanon.models import default_model
from faceanon.persona import use as use_module
from faceanon.photo import file as photo_module
from faceanon.photo.party import photo_crowd
from faceanon.pipeline import Pipeline
from faceanon.pipeline import photo as pipeline_module
from faceanon.pipeline import steps as steps_module
from faceanon.pipeline.many.engine import run_tasks, usual_workers
from faceanon.pipeline.process import keep_memory
from faceanon.pipeline.tasks import AnonymizeTask, Output

P = ParamSpec("P")
R = TypeVar("R")


class Clock:
    """Seconds of the processor by part, of any number of threads."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._inner = threading.local()

    def timed(self, part: str, function: Callable[P, R]) -> Callable[P, R]:
        """The function, with its time counted as that of a part, less that of other parts within it."""

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            outer: float = getattr(self._inner, "seconds", 0.0)
            self._inner.seconds = 0.0
            begun = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                whole = time.thread_time() - begun
                with self._lock:
                    self.seconds[part] += whole - self._inner.seconds
                self._inner.seconds = outer + whole

        return call

    def watch(self, owner: object, name: str, part: str) -> None:
        """Count the calls of a function or method."""
        setattr(owner, name, self.timed(part, getattr(owner, name)))


def watch_parts(clock: Clock, pipeline: Pipeline) -> None:
    """Count every part of a run with a model of photographs."""
    backbone = pipeline.backbone
    if not isinstance(backbone, Persona):
        raise UserError("the parts of this table are those of Persona; give a model of photographs")
    clock.watch(pipeline.detector, "detect", "detect")
    clock.watch(photo_module, "decode", "decode")
    clock.watch(photo_module, "encode", "write PNG")
    clock.watch(steps_module, "crops", "crop")
    clock.watch(steps_module, "paste", "paste")
    clock.watch(steps_module, "changed_region", "paste")
    clock.watch(pipeline_module, "with_codes", "seal")
    clock.watch(backbone.bundle.codec, "encode", "codec, encode")
    clock.watch(backbone.bundle.codec, "decode_part", "codec, decode")
    # The bundle holds its recogniser as a callable; only the attribute of the instance can be replaced.
    clock.watch(backbone.bundle, "recogniser", "recogniser")
    clock.watch(backbone.mesh, "solid", "mesh")
    clock.watch(backbone.use.networks, "directions", "flow")
    clock.watch(backbone.use.cast, "put_on", "put donors on")
    clock.watch(use_module, "targets_of", "what is known of a face before")
    clock.watch(backbone.use, "_place", "drawings and covers")
    clock.watch(pipeline, "draw", "drawings, joining and the rest of the model")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder of a trained model of photographs (default: the shipped)")
    parser.add_argument("--photos", type=int, default=12)
    parser.add_argument("--save", type=Path, help="folder for the results")
    args = parser.parse_args()
    keep_memory()
    pipeline = Pipeline.load(args.model or default_model())
    clock = Clock()
    watch_parts(clock, pipeline)
    with tempfile.TemporaryDirectory() as scratch:
        target = args.save or Path(scratch)
        target.mkdir(parents=True, exist_ok=True)
        sources = []
        for number in range(args.photos):
            sources.append(Path(scratch, f"{number:02}.jpg"))
            photo_crowd(number).save(sources[-1], quality=95)
        password = Password("a word", salt=bytes(16))
        password.secret()  # its slow derivation is paid once a folder
        tasks = (
            AnonymizeTask(pipeline, path, target / f"{path.stem}.png", password, output=Output()) for path in sources
        )
        wall = time.perf_counter()
        begun = time.process_time()
        faces = 0
        for task, result in run_tasks(pipeline, tasks, usual_workers(), pipeline.batch):
            if isinstance(result, UserError):
                raise UserError(f"{task.source.name}: {result}")
            faces += result.faces
        whole = time.process_time() - begun
        wall = time.perf_counter() - wall
    print(f"{faces} faces in {args.photos} photos: {whole:.1f} s of the processor, {wall:.1f} s by the clock")
    print(f"{'part':<48}{'ms a face':>10}")
    for part, seconds in clock.seconds.most_common():
        print(f"{part:<48}{1000 * seconds / faces:>10.1f}")
    print(f"{'everything else':<48}{1000 * (whole - clock.seconds.total()) / faces:>10.1f}")
    print(f"{'all':<48}{1000 * whole / faces:>10.1f}")


if __name__ == "__main__":
    main()
