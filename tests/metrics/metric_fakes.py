"""A small world in which every figure is known beforehand: a person is a fine pattern over a smooth scene."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.backbones.base import Backbone
from faceanon.types import Codes, FaceBatch

SIZE, PEOPLE, PHOTOS = 24, 12, 3
SMOOTH = 3


def blur(image: Tensor) -> Tensor:
    return F.avg_pool2d(F.pad(image, (1, 1, 1, 1), mode="reflect"), SMOOTH, stride=1)


def embedder(seed: int):
    """A recogniser that sees fine detail only."""
    weight = torch.randn(3 * SIZE * SIZE, 32, generator=torch.Generator().manual_seed(seed))
    return lambda image: F.normalize((image - blur(image)).flatten(1) @ weight)


class Perceptual:
    def __call__(self, image: Tensor, reference: Tensor) -> Tensor:
        return (image - reference).abs().mean((1, 2, 3))

    def features(self, image: Tensor) -> Tensor:
        return F.avg_pool2d(image, 8).flatten(1)


class FakeBundle:
    name, image_size = "fake", SIZE
    judge_name, recogniser_name = "judge", "trainer"
    face_classes, head_classes, occluder_class = (1,), (1, 2), 3

    def __init__(self) -> None:
        self.judge, self.recogniser, self.perceptual = embedder(1), embedder(2), Perceptual()
        self.parser = lambda image: F.one_hot(_labels(len(image)), 4).permute(0, 3, 1, 2).float()
        self.landmarks = lambda image: image.mean((1, 2, 3))[:, None, None].expand(-1, 5, 2)


def _labels(count: int) -> Tensor:
    labels = torch.zeros(count, SIZE, SIZE, dtype=torch.long)
    labels[:, 4:20, 4:20] = 2
    labels[:, 6:18, 6:18] = 1
    labels[:, 8:10, 8:14] = 3
    return labels


def person(seed: int) -> Tensor:
    return torch.randn(3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed)).clamp(-2, 2) * 0.15


def faces(people: int = PEOPLE, photos: int = PHOTOS, truth: bool = True) -> FaceBatch:
    generator = torch.Generator().manual_seed(7)
    identity = torch.arange(people).repeat_interleave(photos)
    scene = F.interpolate(torch.rand(len(identity), 3, 2, 2, generator=generator) - 0.5, SIZE, mode="bilinear")
    noise = 0.02 * torch.randn(len(identity), 3, SIZE, SIZE, generator=generator)
    image = (scene + torch.stack([person(int(i)) for i in identity]) + noise).clamp(-1, 1)
    return FaceBatch(image, identity, identity, _labels(len(identity)) if truth else None)


class Shift(Backbone):
    """An ideal method: the code is the picture, and a key adds a strong pattern that is exactly removed again."""

    key_shape = (3, SIZE, SIZE)
    strength = 0.3

    def __init__(self) -> None:
        super().__init__()
        self.bundle = FakeBundle()

    def encode(self, image: Tensor) -> Codes:
        return Codes(image)

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        # a permutation-free involution on [-1, 1]: reflect the pixels that the key chooses
        return torch.where(key > 0, -identity, identity)

    def decode(self, codes: Codes) -> Tensor:
        return codes.identity


class PassThrough(Shift):
    """Returns what it gets."""

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        return identity


class Blur(Shift):
    """Destroys, and calls it anonymity."""

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        return identity

    def decode(self, codes: Codes) -> Tensor:
        image = codes.identity
        for _ in range(6):
            image = blur(image)
        return image


class KeyIgnored(Shift):
    """One stranger for everybody's every key."""

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        fixed = torch.randn(3, SIZE, SIZE, generator=torch.Generator().manual_seed(5))
        return super().transform(identity, fixed.expand_as(key))


class CopyRecovery(Shift):
    """Recovery gives back the anonymized picture."""

    def recover(self, image: Tensor, key: Tensor) -> Tensor:
        return image


class FloatSmuggler(Shift):
    """Hides the original where only floats reach: it is lost in the file."""

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        stranger = super().anonymize(image, key)
        levels = ((stranger.clamp(-1, 1) + 1) * 127.5).round()
        return (levels + image * 0.4) / 127.5 - 1

    def recover(self, image: Tensor, key: Tensor) -> Tensor:
        levels = (image + 1) * 127.5
        return (levels - levels.round()) / 0.4 + 0.01 * image


class Irreversible(Shift):
    """Noise, with neither codes nor a way back."""

    reversible = False

    def encode(self, image: Tensor) -> Codes:
        raise NotImplementedError

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        return key.clamp(-1, 1)


class Broken(Shift):
    def decode(self, codes: Codes) -> Tensor:
        return codes.identity * float("nan")
