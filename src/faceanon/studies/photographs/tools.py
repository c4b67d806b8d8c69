"""What the study of photographs works with: the model, and everything that looks at its pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faceanon.pipeline.photo import Pipeline
    from faceanon.studies.photographs.judges import Judge
    from faceanon.studies.photographs.run import Tools


@dataclass(frozen=True)
class ToolsChoice:
    """What the tools are built from; plain values, so that another process can build the same.

    Args:
        model: As typed.
        device: As typed.
        mobilefacenet: Checkpoint of the judge, or None.
        dlib: Whether dlib judges.
        detector: Name of the detector.
        round_trip: Whether pictures go through the codec once, too.
        side: Side of the pictures in pixels.
    """

    model: str
    device: str
    mobilefacenet: Path | None
    dlib: bool
    detector: str
    round_trip: bool
    side: int


def make_tools(choice: ToolsChoice) -> Tools:
    """Build the model and everything that looks at its pictures.

    Raises:
        UserError: Something is missing, damaged or not installed.
    """
    from faceanon.landmarks.mesh import FaceMesh
    from faceanon.metrics.detection import make_detector
    from faceanon.studies.photographs.run import Tools

    pipeline = _pipeline(choice)
    detector = make_detector(choice.detector, choice.side)
    round_trip = None
    if choice.round_trip:
        round_trip = _round_trip(pipeline)
    return Tools(pipeline, _judges(choice, pipeline), FaceMesh(), detector, round_trip)


def _pipeline(choice: ToolsChoice) -> Pipeline:
    """The model with its pipeline; a preset that needs no training too."""
    from faceanon.methods import device, presets, untrained
    from faceanon.paths import checkpoints
    from faceanon.pipeline.photo import Pipeline

    chosen_device = device(choice.device)
    # A folder, here or among the shipped ones, goes before a preset of its name.
    for path in (Path(choice.model), checkpoints() / choice.model):
        if path.exists():
            return Pipeline.load(path, device=chosen_device)
    if choice.model in presets():
        return Pipeline(untrained(choice.model), name=choice.model, device=chosen_device)
    # It is neither, and the loader says what there is.
    return Pipeline.load(choice.model, device=chosen_device)


def _judges(choice: ToolsChoice, pipeline: Pipeline) -> tuple[Judge, ...]:
    """All judges; the recogniser that ships, against which models of photographs are trained, comes last."""
    from faceanon.studies.photographs.judges import dlib_resnet, mobilefacenet, shipped_recogniser
    from faceanon.weights.bundle import Bundle

    judges = []
    if choice.mobilefacenet is not None:
        judges.append(mobilefacenet(choice.mobilefacenet, pipeline.device))
    if choice.dlib:
        judges.append(dlib_resnet())
    trained_with = getattr(pipeline.backbone, "bundle", None)
    judges.append(shipped_recogniser(Bundle("photo128").to(pipeline.device), trained_with))
    return tuple(judges)


def _round_trip(pipeline: Pipeline) -> Pipeline:
    """The codec alone, in the model's size: the model's own codec where its bundle has one."""
    from faceanon.pipeline.photo import Pipeline
    from faceanon.studies.photographs.pictures import RoundTrip
    from faceanon.weights.bundle import Bundle

    own = getattr(pipeline.backbone, "bundle", None)
    if own is not None and own.has("codec"):
        bundle = own
    else:
        bundle = Bundle("photo128")
    # Only a sealed method says which cells it repaints.
    model = pipeline.backbone if pipeline.backbone.sealed else None
    trip = RoundTrip(bundle, pipeline.backbone.image_size, model).eval()
    return Pipeline(trip, name="codec", device=pipeline.device)
