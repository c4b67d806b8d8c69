"""InsightFace's recognisers (w600k_r50.onnx, w600k_mbf.onnx, glintr100.onnx, ...) as judges."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.errors import UserError
from faceanon.networks.onnx_file import open_session


class OnnxRecogniser(nn.Module):
    """A recogniser of an InsightFace pack. It has no gradients, so it can judge and never train.

    Its weights are the file itself: in a bundle `file: w600k_r50.onnx`, with `input_size: 112` and the crop from the
    bundle's alignment to ArcFace's. Which pixel range the graph wants is insightface's own rule.

    Args:
        path: The ONNX file.

    Attributes:
        input_size: Side S of the faces that it takes, in px.

    Raises:
        UserError: If the file or the package insightface is missing, or the file is no recogniser.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        path, session = open_session(path, "judge", "w600k_r50.onnx of buffalo_l or w600k_mbf.onnx of buffalo_s")
        shape = session.get_inputs()[0].shape  # (B, 3, S, S)
        outputs = session.get_outputs()
        fits = len(shape) == 4 and shape[1] == 3 and isinstance(shape[2], int) and shape[2] == shape[3]
        if not fits or len(outputs) != 1 or len(outputs[0].shape) != 2:
            raise UserError(
                f"{path} is no recogniser: it takes {shape} and gives {len(outputs)} outputs; choose another"
            )
        # After `open_session`, which names the package to install where it is missing.
        from insightface.model_zoo.arcface_onnx import ArcFaceONNX

        self.input_size: int = shape[2]
        self.net = ArcFaceONNX(str(path), session)
        # The graph takes one face at a time.
        self._single = shape[0] == 1

    def forward(self, image: Tensor) -> Tensor:
        """`(B, 3, S, S)` RGB in [-1, 1] -> `(B, E)` of unit length.

        Raises:
            UserError: If a gradient is asked for.
            ValueError: If the faces have another size.
        """
        if image.requires_grad and torch.is_grad_enabled():
            raise UserError("an ONNX recogniser gives no gradients, so no loss can use it; keep it as the judge")
        if image.shape[1:] != (3, self.input_size, self.input_size):
            raise ValueError(f"this recogniser takes faces of {self.input_size} px, not {tuple(image.shape[1:])}")
        # Insightface scales from [0, 255] as the graph wants.
        pixels = ((image.detach().float() + 1) * 127.5).cpu()
        parts = torch.split(pixels, 1) if self._single else (pixels,)
        rows = torch.cat([torch.from_numpy(self.net.forward(part.numpy())) for part in parts])
        return F.normalize(rows).to(image.device)
