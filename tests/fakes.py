"""A backbone that needs no training: exact to undo, deterministic, and visibly wrong under a wrong key."""

import torch

from faceanon.backbones.base import Backbone


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


class FixedDetector:
    """Finds the faces it was told of."""

    def __init__(self, detections):
        self.detections = list(detections)

    def detect(self, image):
        return self.detections
