"""Floor and ceiling: blur, pixelation, mask, and a scrambled region. Nothing here is learnt and nothing trains.

The first three are what people used before there were generators, and what the papers compare with; they cannot be
undone, take no key, and leave no face to work with. The last is plain cryptography: nothing is left of the face and
everything comes back, bit for bit, as long as no bit of the file was changed.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from abc import abstractmethod
from typing import Literal

import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from torch import Tensor
from torch.nn import functional as F

from faceanon.backbones.pictures import WithoutCodes
from faceanon.backbones.region import labelled
from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.landmarks.geometry import ELLIPSE
from faceanon.networks.blur import blurred
from faceanon.weights.bundle import Bundle

Region = Literal["picture", "ellipse", "head"]


class Classical(WithoutCodes):
    """What the four share: the region, and that there are no codes.

    Args:
        bundle: Bundle by name or folder; gives the size of the pictures, and the parser of `head`.
        region: What is changed: the whole `picture`, the `ellipse` in which an aligned face lies, or the parser's
            `head`.
    """

    trained_by = ()
    licence = "no code of others; no weights"
    draws_in_frame = False

    def __init__(self, bundle: str = "photo128_pictures", region: Region = "ellipse") -> None:
        super().__init__()
        self.bundle = Bundle(bundle)
        self.region = region

    @torch.no_grad()
    def mask(self, image: Tensor) -> Tensor:
        """`(B or 1, 1, S, S)`: 1 where `(B, 3, S, S)` is changed, else 0."""
        if self.region == "head":
            return labelled(self.bundle, image, self.bundle.head_classes)
        steps = (torch.arange(image.shape[-1], device=image.device) + 0.5) / image.shape[-1]
        x, y, across, down = ELLIPSE
        inside = ((steps[None] - x) / across).square() + ((steps[:, None] - y) / down).square() <= 1
        everything = torch.ones_like(inside)
        return (everything if self.region == "picture" else inside).to(image.dtype)[None, None]


class Irreversible(Classical):
    """A method without key and without a way back."""

    reversible = False
    key_shape = (1,)
    key_bits = None

    @abstractmethod
    def obscured(self, image: Tensor) -> Tensor:
        """All of `(B, 3, S, S)`, made unrecognisable."""

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """Obscure the region; `key` is ignored. Gradients pass."""
        return image + self.mask(image) * (self.obscured(image) - image)


class Blur(Irreversible):
    """Gaussian blur.

    Args:
        bundle: As in `Classical`.
        region: As in `Classical`.
        sigma: Standard deviation in sides of the picture.

    Examples:
        >>> import torch
        >>> from faceanon.backbones.classical import Blur
        >>> face = torch.rand(1, 3, 64, 64) * 2 - 1
        >>> blurred = Blur(sigma=0.06).anonymize(face, key=torch.zeros(1, 1))
        >>> bool(blurred[..., 24:40, 24:40].std() < face[..., 24:40, 24:40].std())
        True
    """

    paper = "Gaussian blur"

    def __init__(self, bundle: str = "photo128_pictures", region: Region = "ellipse", sigma: float = 0.06) -> None:
        super().__init__(bundle, region)
        if sigma <= 0:
            raise UserError(f"sigma is {sigma}; give more than 0")
        self.sigma = sigma

    def obscured(self, image: Tensor) -> Tensor:
        """Blur rows, then columns; what lies beyond the border repeats it."""
        sigma = self.sigma * image.shape[-1]
        return blurred(image, sigma, math.ceil(3 * sigma))


class Pixelate(Irreversible):
    """Pixelation: every cell of a grid gets its mean colour.

    Args:
        bundle: As in `Classical`.
        region: As in `Classical`.
        cells: Number of cells along a side, at most S.

    Examples:
        >>> import torch
        >>> from faceanon.backbones.classical import Pixelate
        >>> face = torch.rand(1, 3, 64, 64) * 2 - 1
        >>> tiles = Pixelate(region="picture", cells=4).anonymize(face, key=torch.zeros(1, 1))
        >>> bool(tiles[0, 0, :16, :16].std() < 1e-6)  # 4 x 4 tiles of 16 px, each of one colour
        True
    """

    paper = "Pixelation"

    def __init__(self, bundle: str = "photo128_pictures", region: Region = "ellipse", cells: int = 8) -> None:
        super().__init__(bundle, region)
        if not 1 <= cells <= self.image_size:
            raise UserError(f"cells is {cells}; give 1 to {self.image_size}, the side of the pictures")
        self.cells = cells

    def obscured(self, image: Tensor) -> Tensor:
        """The picture as `cells` x `cells` tiles of one colour each, the mean of what they cover; the shape stays."""
        coarse = F.adaptive_avg_pool2d(image, self.cells)
        # A pixel takes the cell in which its middle lies; plain `nearest` goes by the pixel's corner.
        return F.interpolate(coarse, size=image.shape[-2:], mode="nearest-exact")


class Mask(Irreversible):
    """A grey patch: the most private that a picture can be, and the least useful.

    Args:
        bundle: As in `Classical`.
        region: As in `Classical`.
        level: Grey level in [-1, 1].

    Examples:
        >>> import torch
        >>> from faceanon.backbones.classical import Mask
        >>> face = torch.rand(1, 3, 64, 64) * 2 - 1
        >>> hidden = Mask(level=0.0).anonymize(face, key=torch.zeros(1, 1))
        >>> hidden[0, :, 32, 32]  # inside
        tensor([0., 0., 0.])
        >>> torch.equal(hidden[0, :, 0, 0], face[0, :, 0, 0])  # outside
        True
    """

    paper = "Black or grey patch"

    def __init__(self, bundle: str = "photo128_pictures", region: Region = "ellipse", level: float = 0.0) -> None:
        super().__init__(bundle, region)
        if not -1 <= level <= 1:
            raise UserError(f"level is {level}; give -1 (black) to 1 (white)")
        self.level = level

    def obscured(self, image: Tensor) -> Tensor:
        """A picture of the same shape, grey `level` everywhere."""
        return torch.full_like(image, self.level)


class Scramble(Classical):
    """The region's 8-bit pixels, encrypted in place with AES-256.

    LIONESS (Anderson and Biham, "Two practical and provably secure block ciphers: BEAR and LION", FSE 1996) makes one
    block cipher of the region's size from a stream cipher, here AES-256 in counter mode, and a keyed hash, here
    HMAC-SHA-256. Plain counter mode would need a fresh nonce for every picture, and a picture has no room for one: two
    pictures under one password would betray their difference. This way all that shows is when two regions are equal.

    Exact when the anonymized picture comes back bit for bit, as from a PNG of an aligned face (`--aligned`) of the
    bundle's size. Any change of a pixel in the region, by JPEG, resizing, or pasting into a photo of another scale,
    turns all of it to noise. Not differentiable: results carry no gradient. The region cannot be `head`: nobody finds a
    head in noise.

    Args:
        bundle: As in `Classical`.
        region: `picture` or `ellipse`.

    Raises:
        UserError: The region is `head`.

    Examples:
        >>> from faceanon.backbones.classical import Scramble
        >>> from faceanon.testing import smooth_faces
        >>> method = Scramble()
        >>> faces = smooth_faces(64)
        >>> right = method.sample_key(4)
        >>> wrong = method.sample_key(4)
        >>> noise = method.anonymize(faces, right)
        >>> method.recover(noise, right).allclose(faces), method.recover(noise, wrong).allclose(faces)
        (True, False)
    """

    exact = True
    key_shape = (32,)
    paper = "AES-256 (FIPS 197) as a wide-block cipher, LIONESS: Anderson and Biham, FSE 1996"
    licence = "no code of others beside the package `cryptography` (Apache-2.0 or BSD-3-Clause); no weights"

    def __init__(self, bundle: str = "photo128_pictures", region: Region = "ellipse") -> None:
        super().__init__(bundle, region)
        if region == "head":
            raise UserError("region: head cannot be scrambled, for nobody finds it again; give picture or ellipse")

    def sample_key(self, batch: int, generator: torch.Generator | None = None) -> Tensor:
        """Random keys `(batch, 32)`: the bytes of an AES-256 key, as numbers from 0 to 255."""
        return torch.randint(256, (batch, 32), generator=generator).float()

    def key_of(self, secret: Secret) -> Tensor:
        """The key of a password, `(32,)`, bytes as in `sample_key`."""
        return torch.tensor(list(secret.stream(self.key_label, 32)), dtype=torch.float32)

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """Encrypt the region of `(B, 3, S, S)`, which is rounded to 8 bits; the rest stays as it is."""
        return self._through(image, key, inverse=False)

    def recover(self, image: Tensor, key: Tensor) -> Tensor:
        """Decrypt the region of `(B, 3, S, S)` that `anonymize` encrypted; under a wrong key it stays noise."""
        return self._through(image, key, inverse=True)

    @torch.no_grad()
    def _through(self, image: Tensor, key: Tensor, inverse: bool) -> Tensor:
        # The regions that are left follow from the size alone, so one mask is every row's.
        inside = self.mask(image)[0, 0].bool().expand(3, -1, -1).cpu()
        result = image.detach().clone()
        for row, secret in zip(result, key, strict=True):
            plain = ((row.float().cpu()[inside].clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
            text = lioness(bytes(plain.tolist()), bytes(secret.round().to(torch.uint8).tolist()), inverse)
            level = torch.tensor(list(text), dtype=torch.float32) / 127.5 - 1
            # `row` is a view, so this writes into `result`.
            row[inside.to(row.device)] = level.to(row)
        return result


def lioness(text: bytes, key: bytes, inverse: bool = False) -> bytes:
    """Encrypt `text`, of more than 32 bytes, to as many bytes under a key of 32, or with `inverse` decrypt it.

    Four rounds on a left part of 32 bytes and the rest: the left part keys the stream that is added to the rest, the
    hash of the rest is added to the left part, and both once more. Each round has a key of its own.
    """
    if len(text) <= 32 or len(key) != 32:
        raise ValueError(f"lioness takes more than 32 bytes and a key of 32, got {len(text)} and {len(key)}")
    left = text[:32]
    right = text[32:]
    keys = []
    for index in range(4):
        keys.append(hmac.digest(key, f"faceanon/lioness/{index}".encode(), hashlib.sha256))
    # A round adds bits that do not depend on the part it changes, so it undoes itself. Decryption runs the same rounds
    # from the last to the first.
    for index in reversed(range(4)) if inverse else range(4):
        if index % 2 == 0:
            right = _stream(_xor(left, keys[index]), right)
        else:
            left = _xor(left, hmac.digest(keys[index], right, hashlib.sha256))
    return left + right


def _stream(key: bytes, text: bytes) -> bytes:
    """Add AES-256's counter-mode stream. The key depends on the text, so the counter can start at 0."""
    encryptor = Cipher(AES256(key), CTR(bytes(16))).encryptor()
    return encryptor.update(text) + encryptor.finalize()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
