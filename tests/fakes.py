"""A backbone that needs no training: exact to undo, deterministic, and visibly wrong under a wrong key."""

import torch

from faceanon.backbones.base import Backbone
from faceanon.types import Codes
from faceanon.weights.bundle import Bundle


class Sized(Backbone):
    """A method without a bundle, for faces of `size` px framed as FFHQ has them."""

    def __init__(self, size=64):
        super().__init__()
        self.size = size

    @property
    def image_size(self):
        return self.size

    @property
    def framing(self):
        return {"scale": 1.0, "right": 0.0, "down": 0.0}


class KeyedTint(Sized):
    """Halve the contrast of the middle and add a smooth pattern drawn from the key; keep the background."""

    key_shape = (3, 4, 4)

    def __init__(self, size=64):
        super().__init__(size)
        self.strength = torch.nn.Parameter(torch.tensor(0.45))
        steps = (torch.arange(size) * 2 + 1) / size - 1
        edge = torch.maximum(steps.abs()[:, None], steps.abs()[None, :])
        self.register_buffer("middle", ((0.8 - edge) / 0.2).clamp(0, 1))

    def encode(self, image):
        raise NotImplementedError

    def transform(self, identity, key, inverse=False):
        raise NotImplementedError

    def decode(self, codes):
        raise NotImplementedError

    def _pattern(self, key):
        pattern = torch.nn.functional.interpolate(key, self.size, mode="bilinear", align_corners=False)
        return self.middle * self.strength * pattern.tanh()

    def anonymize(self, image, key):
        return image * (1 - self.middle / 2) + self._pattern(key)

    def recover(self, image, key):
        return (image - self._pattern(key)) / (1 - self.middle / 2)


class SealedPatch(Backbone):
    """Paint a keyed pattern over the middle of a face; its way back is the code of the bundle's codec.

    Args:
        bundle: One with a codec.
        edge: Cells around the coded ones that are painted too: 0, or the method breaks its contract.
    """

    sealed = True
    key_shape = (3, 4, 4)
    trained_by = ("AnonymizeStage",)
    paper = "none"
    licence = "none"

    def __init__(self, bundle: str, edge: int = 0) -> None:
        super().__init__()
        self.bundle = Bundle(bundle)
        self.edge = edge
        self.strength = torch.nn.Parameter(torch.tensor(0.8))

    def cells(self, grown=0):
        side = self.image_size // 8
        places = (torch.arange(side) + 0.5) / side - 0.5
        radius = 0.33 + grown / side
        return (places[:, None].square() + places[None].square() < radius**2)[None, None]

    def face_mask(self, image):
        return self.cells().expand(len(image), -1, -1, -1).to(image.device)

    def encode(self, image):
        return Codes(image)

    def transform(self, identity, key, inverse=False):
        size = identity.shape[-1]
        pattern = torch.nn.functional.interpolate(key, size, mode="bilinear", align_corners=False).tanh()
        painted = self.cells(self.edge).repeat_interleave(8, -1).repeat_interleave(8, -2).to(identity.device)
        return torch.where(painted, self.strength * pattern, identity)

    def decode(self, codes):
        return codes.identity


class FixedDetector:
    """Finds the faces it was told of."""

    def __init__(self, detections):
        self.detections = list(detections)

    def detect(self, image):
        return self.detections
