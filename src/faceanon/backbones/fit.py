"""FIT: one image-to-image network that takes a face and a password, and the face back with the inverse password.

Gu, Luo, Ryoo and Lee, "Password-conditioned Anonymization and Deanonymization with Face Identity Transformers",
ECCV 2020 (arXiv:1911.11759).

- The password p is a string of bits. Each bit is a constant channel beside the picture's three, +1/2 or -1/2.
- The network is a ResNet between two convolutions of stride 2 and two resize convolutions (that of CycleGAN).
- T(T(I, p), p^-1) = I, where p^-1 inverts every bit; any other password has to give yet another face. Whoever tries
  them all needs 2^16 attempts at the paper's 16 bits, which protects nothing; `password_bits` can be any number.
- A second network reads the password off the pictures before and after (`reader`, the paper's L_aux), without which the
  first learns to ignore it. It trains along and is used for nothing else.

The code of a picture is the picture itself, and `transform` is the network: so stage 2 trains FIT like any other
method, and `decode(encode(x))` is x.

What differs: one discriminator, where the paper has three of several scales, and the logistic loss instead of least
squares; the bundle's frozen recogniser, where the paper fine-tunes SphereFace with labels against the generator; a bit
at a time is read, where the paper reads groups of four; recovery starts from the saved picture. Weights are in
configs/fit_s2.yaml. With `turned` the picture is first drawn anew from the bundle's code, which the password turns and
the inverse password turns back, and the network learns from nothing what to add; with `code_reader` that code is read
off saved pictures better. Both are off by default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.backbones.base import Backbone
from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.networks.bit_turns import JOINED, BitTurns
from faceanon.networks.code_reader import STRANGERS, CodeReader, read_codes
from faceanon.networks.keyed import check_stretch, stretched
from faceanon.types import Branches, Codes, FaceBatch
from faceanon.weights.bundle import Bundle

# Bits are -1/2 and 1/2, so that the inverse password is the negative one.
HALF = 0.5


class Residual(nn.Module):
    """Two 3 x 3 convolutions beside a skip.

    Args:
        width: Channels.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*_conv(width, width, 3), nn.ReLU(), *_conv(width, width, 3))

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` -> the same shape."""
        out: Tensor = x + self.body(x)
        return out


class Translator(nn.Sequential):
    """Picture and password to a picture in [-1, 1].

    Args:
        bits: Length of the password, each bit of which is a channel beside the picture's three.
        width: Channels at full resolution; twice and four times as many at a half and a quarter.
        blocks: Residual blocks at a quarter.
    """

    def __init__(self, bits: int, width: int, blocks: int) -> None:
        # It has no weights, so one module serves in both places.
        up = nn.Upsample(scale_factor=2, mode="nearest")
        super().__init__(
            *_conv(3 + bits, width, 7),
            nn.ReLU(),
            *_conv(width, 2 * width, 3, stride=2),
            nn.ReLU(),
            *_conv(2 * width, 4 * width, 3, stride=2),
            nn.ReLU(),
            *(Residual(4 * width) for _ in range(blocks)),
            up,
            *_conv(4 * width, 2 * width, 3),
            nn.ReLU(),
            up,
            *_conv(2 * width, width, 3),
            nn.ReLU(),
            nn.Conv2d(width, 3, 7, padding=3, padding_mode="reflect"),
            nn.Tanh(),
        )

    def forward(self, picture: Tensor, password: Tensor) -> Tensor:  # type: ignore[override]
        """`(B, 3, S, S)` and `(B, N)` -> `(B, 3, S, S)`."""
        if self._known_to_add_nothing():
            return torch.zeros_like(picture)
        first, *others = self
        assert isinstance(first, nn.Conv2d)
        # A bit is the same number in all places, beyond the border too. So is what the convolution makes of it: the
        # number times the sum of the kernel. With 128 bits this saves a third of all the network's products.
        weight = first.weight
        told = password @ weight[:, 3:].sum((2, 3)).T
        x = F.conv2d(F.pad(picture, [3] * 4, mode="reflect"), weight[:, :3]) + told[:, :, None, None]
        for layer in others:
            x = layer(x)
        return x

    def _known_to_add_nothing(self) -> bool:
        """Whether the last convolution is 0 and this may be used.

        With `FIT(turned=...)` it starts so, and thousands of strangers are drawn before its training. Gradients have to
        reach its weights, and compiled code must not depend on what these hold.
        """
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return False
        return not any(bool(weight.any()) for weight in self[-2].parameters())


class PasswordReader(nn.Sequential):
    """The picture before and after, `(B, 6, S, S)`, to one logit a bit, `(B, N)`.

    Args:
        bits: Number N of bits.
        width: Channels after the first of four convolutions of stride 2.
    """

    def __init__(self, bits: int, width: int) -> None:
        widths = [6, width, 2 * width, 4 * width, 4 * width]
        convolutions: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            convolutions += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.LeakyReLU(0.2)]
        super().__init__(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], bits))


class FIT(Backbone):
    """FIT on any bundle, of which it uses recogniser and discriminator in training alone.

    Args:
        bundle: Bundle by name or folder; S is a multiple of 4.
        password_bits: Length N of a password; the paper's is 16.
        width: Channels of the network at full resolution; the paper's is 64.
        blocks: Its residual blocks; the paper's are 9.
        turned: With a number, pictures are first drawn anew from the bundle's w+ code of them, of which so many first
            numbers stay: they hold light and skin in a code of principal components. Pairs of the others are turned
            by an angle, each to the side that three bits say (`networks.bit_turns`). The network sees this drawing in
            place of the picture, and what it adds starts at nothing. With None (paper) the network is all there is.
        turn_angle: The angle, in degrees, between 0 and 180.
        turn_stretch: By how much a stranger's code lies farther from the mean code than the turn puts it; 1 not at
            all. The way back divides again. The first numbers stay.
        code_reader: With `turned`, the code of an anonymized picture is corrected by a map that is measured before the
            training, on strangers whose codes are known. Originals are read as before.

    Raises:
        UserError: There are no bits, or too few for a turn, or nothing is left to be turned by pairs; `turn_stretch`
            is not above 0; it or `code_reader` is given without `turned`.

    Examples:
        >>> from faceanon.backbones.fit import FIT
        >>> from faceanon.testing import smooth_faces
        >>> method = FIT(password_bits=16, width=8, blocks=1).eval()  # untrained
        >>> key = method.sample_key(4)
        >>> key.unique()  # bits
        tensor([-0.5000,  0.5000])
        >>> method.anonymize(smooth_faces(128), key).shape
        torch.Size([4, 3, 128, 128])
    """

    key_bits = 16
    trained_by = ("AnonymizeStage",)
    paper = "Gu et al., Password-conditioned Anonymization with Face Identity Transformers, ECCV 2020"
    licence = "the authors' code is Apache-2.0; nothing of it is used"

    stage_arguments = frozenset({"turn_stretch"})
    latent_avg: Tensor

    def __init__(
        self,
        bundle: str = "photo128_prior",
        password_bits: int = 16,
        width: int = 64,
        blocks: int = 9,
        turned: int | None = None,
        turn_angle: float = 110.0,
        turn_stretch: float = 1.0,
        code_reader: bool = False,
    ) -> None:
        super().__init__()
        check_stretch("turn_stretch", turn_stretch, "turned", turned is not None)
        if password_bits < 1:
            raise UserError(
                f"password_bits is {password_bits}; give at least 1, and 128 where it should protect something"
            )
        if code_reader and turned is None:
            raise UserError("code_reader corrects the codes of a turn; give turned too, or leave it out")
        self.bundle = Bundle(bundle)
        self.key_shape = (password_bits,)
        # A secret has 256 bits, and longer passwords are expanded from it.
        self.key_bits = min(password_bits, 256)
        self.translator = Translator(password_bits, width, blocks)
        self.reader = PasswordReader(password_bits, max(8, width // 2))
        self.turned = turned
        self.turn_stretch = turn_stretch
        self.turns: BitTurns | None = None
        self.code_reader: CodeReader | None = None
        if turned is not None:
            self._start_turning(turned, turn_angle)
        if code_reader:
            self.code_reader = CodeReader.of(self.encoder, self.generator.style_dim)
            self.reader_rows = STRANGERS

    def _start_turning(self, kept: int, angle: float) -> None:
        """Add what draws pictures anew, and let the network start at nothing."""
        if self.key_shape[0] < JOINED or not 0 < angle < 180:
            raise UserError(f"a turn takes {JOINED} password_bits or more, and a turn_angle between 0 and 180")
        self.generator = self.bundle.generator()
        self.encoder = self.bundle.encoder().eval()
        self.register_buffer("latent_avg", self.bundle.latent_avg.clone())
        left = self.generator.style_dim - kept
        if kept < 0 or left < 2 or left % 2:
            raise UserError(f"turned is {kept}; of {self.generator.style_dim} numbers an even number has to be left")
        self.turns = BitTurns(left, self.key_shape[0], angle)
        last = self.translator[-2]
        assert isinstance(last, nn.Conv2d)
        nn.init.zeros_(last.weight)
        assert last.bias is not None
        nn.init.zeros_(last.bias)

    def train(self, mode: bool = True) -> FIT:
        """Train mode, save for the encoder, whose batch statistics stay as they came."""
        super().train(mode)
        if self.turns is not None:
            self.encoder.eval()
        return self

    def sample_key(self, batch: int, generator: torch.Generator | None = None) -> Tensor:
        """Random passwords `(batch, N)` of -1/2 and +1/2."""
        return torch.randint(2, (batch, *self.key_shape), generator=generator).float() - HALF

    def key_of(self, secret: Secret) -> Tensor:
        """The bits of a password, `(N,)`."""
        return torch.tensor([byte & 1 for byte in secret.stream(self.key_label, *self.key_shape)]).float() - HALF

    def encode(self, image: Tensor) -> Codes:
        """The picture `(B, 3, S, S)` itself as identity."""
        return Codes(image)

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """The network on pictures `(B, 3, S, S)` under passwords `(B, N)`, inverted bit by bit with `inverse`."""
        return self._change(identity, key, inverse)[0]

    def edit(self, codes: Codes, key: Tensor, inverse: bool = False) -> Codes:
        """As `transform`; with `turned` the w+ code that the picture was drawn from is the codes' `latent`."""
        picture, code = self._change(codes.identity, key, inverse)
        return replace(codes, identity=picture, latent=code)

    def _change(self, picture: Tensor, key: Tensor, inverse: bool) -> tuple[Tensor, Tensor | None]:
        """The picture of somebody else, and the w+ code `(B, L, D)` that it was drawn from, where there is a turn."""
        password = (-key if inverse else key).to(picture.dtype)
        if self.turns is None:
            changed: Tensor = self.translator(picture, password)
            return changed, None
        code = self._turned(picture, password, inverse)
        start = self.generator.synthesis(code)
        added: Tensor = self.translator(start, password)
        return start + added, code

    def _turned(self, picture: Tensor, password: Tensor, inverse: bool) -> Tensor:
        """W+ codes `(B, L, D)` of pictures `(B, 3, S, S)`, turned under passwords `(B, N)` and stretched."""
        assert self.turns is not None
        assert self.turned is not None
        codes, _ = read_codes(self.encoder, picture, self.code_reader if inverse else None)
        shared = codes[:, 0]
        # All rows have what the first one has, and what they have beyond it stays behind: it is the person's detail.
        turned = torch.cat([shared[:, : self.turned], self.turns(shared[:, self.turned :], password)], 1)
        turned = stretched(turned, 1 / self.turn_stretch if inverse else self.turn_stretch, self.turned)
        return self.latent_avg + turned[:, None]

    @torch.no_grad()
    def calibrate_reader(self, pairs: Iterable[tuple[Codes, Tensor]]) -> None:
        """Measure the correction of codes that are read off saved pictures."""
        if self.code_reader is not None:
            self.code_reader.measure(self.encoder, self._drawn_of(pairs))

    def _drawn_of(self, pairs: Iterable[tuple[Codes, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        for codes, saved in pairs:
            assert codes.latent is not None
            yield (codes.latent - self.latent_avg)[:, 0], saved

    def decode(self, codes: Codes) -> Tensor:
        """The picture that the code is."""
        return codes.identity

    def anonymize_terms(self, batch: FaceBatch, branches: Branches, wanted: Collection[str]) -> dict[str, Tensor]:
        """`password`: cross-entropy of reading it off anonymized, recovered and wrongly opened pictures (L_aux)."""
        if "password" not in wanted:
            return {}
        size = branches.size
        # Stage 2 asks for a method's own terms only in steps that draw all five pictures of a face.
        first, second, recovered, *wrong = torch.split(branches.pictures, size)
        keys = torch.split(branches.keys, size)
        with_wrong = []
        for item in wrong:
            with_wrong.append((first, item))
        pairs = [(batch.image, first), (batch.image, second), (first, recovered), *with_wrong]
        # Opening inverts each bit, so these pictures were drawn under inverted passwords.
        bits = torch.cat([keys[0], keys[1], -keys[0], -keys[2], -keys[3]]) + HALF
        both = []
        for pair in pairs:
            both.append(torch.cat(pair, 1))
        logits = self.reader(torch.cat(both))
        return {"password": F.binary_cross_entropy_with_logits(logits, bits.to(logits.dtype))}


def _conv(inputs: int, outputs: int, side: int, stride: int = 1) -> list[nn.Module]:
    """A convolution with reflected borders, and batch norm."""
    conv = nn.Conv2d(inputs, outputs, side, stride, padding=side // 2, padding_mode="reflect", bias=False)
    return [conv, nn.BatchNorm2d(outputs)]
