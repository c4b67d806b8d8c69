"""All versions of a batch of faces that the evaluation compares: anonymized, recovered at each level, wrong key."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from faceanon.backbones.classical import Blur
from faceanon.metrics.saved import saved
from faceanon.sealed.envelope import sealed_size
from faceanon.types import Codes

if TYPE_CHECKING:
    from faceanon.backbones.base import Backbone


@dataclass
class Versions:
    """Pictures `(B, 3, S, S)` in [-1, 1] made from one batch.

    Args:
        anonymized: One entry a key, as read back from an 8-bit file.
        recovered: From the first anonymized picture, by honesty level.
        reconstruction: `decode(encode(x))` as read back from a file; None without codes.
        wrong: Recovered with a wrong key, as read back from a file; None for an irreversible method.
        carried: `(B,)` bytes that recovery needs beside each picture, encrypted; None for an irreversible method.
        undrawn: `(B,)` bool, faces that a sealed method gave no picture of; None for any other method.
    """

    anonymized: list[Tensor]
    recovered: dict[str, Tensor] = field(default_factory=dict)
    reconstruction: Tensor | None = None
    wrong: Tensor | None = None
    carried: Tensor | None = None
    undrawn: Tensor | None = None


def draw_or_hide(backbone: Backbone, image: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Anonymized `(B, 3, S, S)` as the product shows it, and `(B, 1, 1, 1)` whether the method drew them.

    A sealed method gives no finite picture where it finds no face that it could draw over. Such a face is then blurred
    for good. Of any other method a picture that is not finite is a fault, which stays to be seen.
    """
    drawn = backbone.anonymize(image, key)
    finite = _finite(drawn)
    if not backbone.sealed:
        return drawn, torch.ones_like(finite)
    return torch.where(finite, drawn, _blur().obscured(image)), finite


def saved_drawing(backbone: Backbone, image: Tensor, key: Tensor) -> Tensor:
    """Anonymized `(B, 3, S, S)` as `draw_or_hide` gives it, read back from a PNG."""
    return saved(draw_or_hide(backbone, image, key)[0])


def _finite(image: Tensor) -> Tensor:
    """`(B, 1, 1, 1)` bool: the rows without NaN and infinite values."""
    return image.flatten(1).isfinite().all(1)[:, None, None, None]


@functools.cache
def _blur() -> Blur:
    # As strong as `photo.crop_paste.BLUR`, with which faces of photographs are blurred.
    return Blur(region="picture", sigma=0.12)


def codes_or_none(backbone: Backbone, image: Tensor) -> list[bytes] | None:
    """What a sealed method carries beside pictures of originals `(B, 3, S, S)`; None of any other method."""
    if backbone.sealed:
        return backbone.code_of(image)
    return None


def bring_back(backbone: Backbone, anonymized: Tensor, key: Tensor, codes: list[bytes] | None) -> Tensor:
    """Recover `(B, 3, S, S)` as its rightful owner would: with the key, or with the codes that the key opens."""
    if codes is None:
        return backbone.recover(anonymized, key)
    return backbone.recover_from(anonymized, codes)


def open_wrongly(backbone: Backbone, anonymized: Tensor, wrong: Tensor) -> Tensor:
    """What a wrong key makes of anonymized `(B, 3, S, S)`.

    It opens no sealed code. A method that has one then draws another stranger in the place of the first, which is what
    `faceanon recover --deniable` shows.
    """
    if not backbone.sealed:
        return backbone.recover(anonymized, wrong)
    other = backbone.deny(anonymized, wrong)
    # Where it finds no face to draw over, the first stranger stays.
    return torch.where(_finite(other), other, anonymized)


def carried_bytes(codes: list[bytes] | None, faces: int) -> Tensor:
    """Bytes beside each of so many pictures, `(faces,)`: of the sealed codes with everything around them, or 0.

    Examples:
        >>> from faceanon.metrics.versions import carried_bytes
        >>> carried_bytes([bytes(700), bytes(900)], faces=2), carried_bytes(None, faces=2)
        (tensor([ 768., 1024.]), tensor([0., 0.]))
    """
    if codes is None:
        return torch.zeros(faces)
    sizes = []
    for code in codes:
        sizes.append(float(sealed_size(len(code))))
    return torch.tensor(sizes)


def draw_keys(backbone: Backbone, seed: int, role: str, indices: range | list[int]) -> Tensor:
    """Fresh keys `(B, *key_shape)`, each from nothing but the seed, the role and the picture's index.

    So the figures do not change with the batch size or with the number of processes.
    """
    keys = []
    for index in indices:
        digest = hashlib.sha256(f"faceanon/evaluation/{seed}/{role}/{index}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        # One by one, so that a picture's key does not depend on its batch.
        keys.append(backbone.sample_key(1, generator=generator))
    return torch.cat(keys)


def encode_or_none(backbone: Backbone, image: Tensor) -> Codes | None:
    """The codes of `(B, 3, S, S)`, or None where the method says (`NotImplementedError`) that it has none."""
    try:
        return backbone.encode(image)
    except NotImplementedError:
        return None


class VersionMaker:
    """Run a backbone over pictures in every way the evaluation asks for.

    Args:
        keys: Anonymizing keys per picture, at least 2.
        seed: Of all keys.
        jpeg_qualities: One extra level of recovery each, from a JPEG.
    """

    def __init__(self, keys: int, seed: int, jpeg_qualities: tuple[int, ...]) -> None:
        self.keys = keys
        self.seed = seed
        self.jpeg_qualities = jpeg_qualities

    def make(self, backbone: Backbone, image: Tensor, indices: list[int]) -> Versions:
        """All versions of `(B, 3, S, S)` in [-1, 1]; `indices` number the pictures over the whole test."""
        keys = []
        for i in range(self.keys):
            keys.append(self._key(backbone, f"key{i + 1}", image, indices))
        raw, drawn = draw_or_hide(backbone, image, keys[0])
        # Only the first key's picture is also needed unrounded: recovery is tested on that one.
        others = []
        for key in keys[1:]:
            others.append(saved_drawing(backbone, image, key))
        made = Versions([saved(raw), *others])
        codes = encode_or_none(backbone, image)
        if codes is not None:
            made.reconstruction = saved(backbone.decode(codes))
        if backbone.reversible:
            sealed = codes_or_none(backbone, image)
            made.carried = carried_bytes(sealed, len(image)).to(image.device)
            made.recovered = self._recover(backbone, codes, raw, keys[0], sealed)
            if sealed is not None:
                _leave_undrawn(made, drawn)
            wrong = self._key(backbone, "wrong", image, indices)
            made.wrong = saved(open_wrongly(backbone, made.anonymized[0], wrong))
        return made

    def _key(self, backbone: Backbone, role: str, image: Tensor, indices: list[int]) -> Tensor:
        return draw_keys(backbone, self.seed, role, indices).to(image.device)

    def _recover(
        self, backbone: Backbone, codes: Codes | None, raw: Tensor, key: Tensor, sealed: list[bytes] | None
    ) -> dict[str, Tensor]:
        """Recovery at each level; `raw` is the anonymized picture before any rounding."""
        levels: dict[str, Tensor] = {}
        # A sealed method has no level in between: its edited codes bring nobody back, with or without a picture.
        if codes is not None and sealed is None:
            # There and back with no picture in between: the best recovery that the codes allow.
            identity = backbone.transform(backbone.transform(codes.identity, key), key, inverse=True)
            levels["latent"] = backbone.decode(codes.with_identity(identity)).clamp(-1, 1)
        # Clamped but not rounded, so that rounding to 8 bits is what the level `file` adds.
        levels["image"] = bring_back(backbone, raw.clamp(-1, 1), key, sealed).clamp(-1, 1)
        levels["file"] = saved(bring_back(backbone, saved(raw), key, sealed))
        for quality in self.jpeg_qualities:
            levels[f"jpeg{quality}"] = saved(bring_back(backbone, saved(raw, quality), key, sealed))
        return levels


def _leave_undrawn(made: Versions, drawn: Tensor) -> None:
    """Faces that were blurred for good have no code in the file, so nothing brings them back.

    Args:
        made: Changed in place.
        drawn: As `draw_or_hide` gives it.
    """
    made.undrawn = ~drawn.flatten()
    if made.carried is not None:
        made.carried = made.carried * drawn.flatten()
    hidden = made.anonymized[0]
    made.recovered = {level: torch.where(drawn, image, hidden) for level, image in made.recovered.items()}
