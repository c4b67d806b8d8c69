"""An exported method in the place of the one it was exported from."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from faceanon.backbones.pictures import WithoutCodes
from faceanon.interop.onnx.method import OnnxMethod
from faceanon.key import Secret


class OnnxBackbone(WithoutCodes):
    """Run `faceanon export --onnx`'s graphs; torch holds the pictures and computes nothing.

    Args:
        folder: Where the graphs are.
        device: Where onnxruntime computes, whatever the device of the pictures: a session stays where it was opened.

    Raises:
        UserError: If something is missing or damaged, or onnxruntime does not compute there.
    """

    trained_by = ()
    paper = "an exported method"
    licence = "that of the method and of its weights"

    def __init__(self, folder: str | Path, device: torch.device | str = "cpu") -> None:
        super().__init__()
        # onnxruntime would otherwise take all cores. Torch's number of threads is the one that the caller has set.
        self.net = OnnxMethod.load(folder, torch.get_num_threads(), str(device))
        self.card = self.net.card
        self.key_shape = self.card.key.shape
        self.reversible = self.net.reversible

    @property
    def method(self) -> str:
        """Import path of the class that was exported: what manifests name."""
        return self.card.method

    @property
    def precision(self) -> str:
        """`float32` or `int8`: the weights' hash does not tell."""
        return self.card.precision

    @property
    def image_size(self) -> int:
        """Side S of the images, in pixels."""
        return self.card.image_size

    @property
    def framing(self) -> dict[str, float]:
        """Where the faces it knows lie, against FFHQ's square."""
        return self.card.framing

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """Replace the person in `(B, 3, S, S)`; not clamped, without gradients."""
        return torch.from_numpy(self.net.anonymize(image.cpu().numpy(), key.cpu().numpy())).to(image.device)

    def recover(self, image: Tensor, key: Tensor) -> Tensor:
        """Bring the person back from an anonymized `(B, 3, S, S)`.

        Raises:
            UserError: If the method cannot.
        """
        return torch.from_numpy(self.net.recover(image.cpu().numpy(), key.cpu().numpy())).to(image.device)

    def key_from_secret(self, secret: Secret, batch: int) -> Tensor:
        """The key of a password, `(batch, *key_shape)`, as the exported class draws it."""
        return torch.from_numpy(self.net.key(secret, batch))
