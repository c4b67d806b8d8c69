"""Who looks at given pictures: a bundle's recognisers, those of the user, and detectors."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor

from faceanon.errors import UserError
from faceanon.metrics.detection import make_detector
from faceanon.metrics.evaluation import Evaluation
from faceanon.models import shipped_figures
from faceanon.networks.adapters import Normalised
from faceanon.networks.frozen import Frozen
from faceanon.networks.onnx_recogniser import OnnxRecogniser
from faceanon.photo.detect import Detector
from faceanon.studies.photographs.judges import Judge, mobilefacenet
from faceanon.weights.bundle import Bundle

REFERENCE = "photo128"  # its model's test says which thresholds hold where the pictures show one person alone


def leave_out_missing_judge(bundle: Bundle) -> list[str]:
    """Go on without the bundle's judge where its package is not installed; a line that says so, or none."""
    if not bundle.has("judge"):
        return []
    name = bundle.judge_name
    try:
        bundle.judge  # noqa: B018 - it is built at first use
    except UserError as error:
        del bundle.spec["networks"]["judge"]
        return [f"figures of {name}: {error}"]
    return []


def judging(bundle: Bundle, files: Sequence[Path]) -> Evaluation:
    """An empty evaluation with every recogniser and detector at hand.

    Args:
        bundle: Its recognisers judge.
        files: Of further recognisers.

    Raises:
        UserError: A file is missing or no recogniser.
    """
    judges = {}
    for path in files:
        judges[path.stem] = _judge(path, bundle)
    detectors: dict[str, Detector] = {"yunet": make_detector("yunet", bundle.image_size)}
    # MTCNN's weights come with a package of their own.
    if importlib.util.find_spec("mtcnn") is not None:
        detectors["mtcnn"] = make_detector("mtcnn", bundle.image_size)
    fallback = {}
    for name, value in (shipped_figures(REFERENCE) or {}).items():
        if name.startswith("threshold/"):
            fallback[name.removeprefix("threshold/")] = value
    return Evaluation(bundle, detectors=detectors, judges=judges, fallback=fallback)


def _judge(path: Path, bundle: Bundle) -> Callable[[Tensor], Tensor]:
    """A recogniser of the user's; it looks at the square that ArcFace's networks look at."""
    if path.suffix == ".ckpt":
        return mobilefacenet(path, bundle.device).embed
    net = OnnxRecogniser(path)
    return Frozen(Normalised(net, net.input_size, bundle.entry("recogniser").get("crop")))


def attackers_judge(evaluation: Evaluation) -> Judge:
    """The first recogniser that attackers do not train with.

    Raises:
        UserError: There is none.
    """
    for name, embed in evaluation.recognisers.items():
        if name != evaluation.bundle.recogniser_name:
            return Judge(name, embed)
    raise UserError(
        "--attack needs a recogniser that attackers do not train with: pip install 'faceanon[judge]', or give --judge"
    )
