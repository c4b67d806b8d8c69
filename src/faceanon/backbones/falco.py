"""FALCO: search for the code of somebody else, picture by picture; nothing is trained.

Barattin, Tzelepis, Patras and Sebe, "Attribute-preserving Face Dataset Anonymization via Latent Code Optimization",
CVPR 2023 (arXiv:2303.11296).

- A picture is inverted to W+. Rows 3 to 7 of 18, which carry identity, are replaced and optimised; the others stay.
- They start from the generated face that is nearest by its attributes, out of a bank of generated faces.
- Adam minimises lambda_id |cos(recogniser(x'), recogniser(x)) - m| + lambda_att ||attributes(x') - attributes(x)||_1,
  with margin m (0 hides best), lambda_id = 10, lambda_att = 0.1, 50 steps at 0.01.

What differs, and why:

- A whole batch is optimised at once, its terms summed, so that no picture's result depends on another's; the published
  script takes one picture at a time.
- The key. FALCO has none: what it finds depends on the picture alone. Here the rows start between the nearest face and
  the key's own, so that a key chooses the stranger, the same one each time.
- Attributes are what the bundle's perceptual network or its parser sees; the paper takes features of FaRL, which no
  bundle has. Their scale is another, and so may lambda_att have to be.
- The bank is drawn from a fixed seed when it is first needed: 256 faces, where the paper draws as many as it has
  photographs. On generators of less than 14 rows the range of rows shrinks with their number. A generator that starts
  from a linear draft of some rows (photo128_prior) holds the whole face in these: they are the ones that are optimised,
  but for the numbers that hold light and skin, where the bundle tells which these are.

The loss is the very recogniser that some tests judge by: only a held-out judge's figures say something (white box).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.backbones.pictures import WithoutCodes
from faceanon.errors import UserError
from faceanon.networks.e4e import PyramidEncoder
from faceanon.networks.frozen import Frozen
from faceanon.networks.stylegan2 import Generator
from faceanon.weights.bundle import Bundle

# The paper's rows, from 0 on, and the length of a code below which the range shrinks in proportion.
FIRST = 3
LAST = 7
FULL = 14
GRID = 16
# The paper's lambda_id and lambda_att.
IDENTITY_WEIGHT = 10.0
ATTRIBUTE_WEIGHT = 0.1
# How far from the nearest generated face to the key's own the search starts.
KEY_SHARE = 0.5
Attributes = Literal["perceptual", "parser"]


class FALCO(WithoutCodes):
    """FALCO on any bundle. Its defaults are the paper's where the paper has any.

    Args:
        bundle: Bundle by name or folder.
        first: First row of the W+ code that is optimised; None scales the paper's 3 to the generator, or takes the
            first row of its draft where it has one.
        last: Last such row, itself included; None scales the paper's 7, or takes the draft's last.
        steps: Steps of Adam.
        rate: Its learning rate.
        margin: The cosine m to the original that is aimed at, in [-1, 1).
        attributes: Whose features stand for the attributes: the `perceptual` network's last map, or the class
            probabilities of the `parser` on a grid of 16 x 16.
        bank: Generated faces among which the nearest is sought.

    Raises:
        UserError: An argument is out of range.

    Examples:
        >>> from faceanon.backbones.falco import FALCO
        >>> from faceanon.testing import smooth_faces
        >>> method = FALCO(steps=1, bank=4).eval()  # nothing has to be trained
        >>> method.anonymize(smooth_faces(128), method.sample_key(4)).shape
        torch.Size([4, 3, 128, 128])
    """

    reversible = False
    trained_by = ()
    paper = "Barattin et al., Attribute-preserving Face Dataset Anonymization via Latent Code Optimization, CVPR 2023"
    licence = "the authors' code is Apache-2.0; nothing of it is used"

    latent_avg: Tensor
    bank_codes: Tensor | None
    bank_features: Tensor | None

    def __init__(
        self,
        bundle: str = "photo128_prior",
        first: int | None = None,
        last: int | None = None,
        steps: int = 50,
        rate: float = 0.01,
        margin: float = 0.0,
        attributes: Attributes = "perceptual",
        bank: int = 256,
    ) -> None:
        super().__init__()
        if steps < 1 or bank < 1 or not -1 <= margin < 1:
            raise UserError(
                f"steps {steps}, bank {bank}, margin {margin}: give steps and bank of at least 1, a margin from -1 to 1"
            )
        self.bundle = Bundle(bundle)
        self.bundle.require("recogniser", attributes)
        generator = self.bundle.generator()
        self.generator = Frozen(generator)
        self.encoder = Frozen(self.bundle.encoder())
        self.register_buffer("latent_avg", self.bundle.latent_avg.clone())
        self.key_shape = (generator.style_dim,)
        if generator.drafts and first is None and last is None:
            # Such a generator draws all of a face from these rows, and reads others as what they add to them.
            self.rows = (generator.drafts[0], generator.drafts[-1])
        else:
            self.rows = scaled_rows(generator.n_latent, first, last)
        self.steps = steps
        self.rate = rate
        self.margin = margin
        self.attributes = attributes
        self.bank_size = bank
        # Not saved: a fixed seed draws the same bank again.
        self.register_buffer("bank_codes", None, persistent=False)
        self.register_buffer("bank_features", None, persistent=False)

    @property
    def _drawer(self) -> Generator:
        net = self.generator.net
        assert isinstance(net, Generator)
        return net

    @property
    def _reader(self) -> PyramidEncoder:
        net = self.encoder.net
        assert isinstance(net, PyramidEncoder)
        return net

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """Search for the stranger of `(B, 3, S, S)` under `key` `(B, D)`; carries no gradient, runs in float32.

        It needs gradients inside, and takes them also where the caller has switched them off.
        """
        device = image.device.type
        # Pipelines and tests call in inference mode, in which nothing can be searched for by gradients.
        with torch.inference_mode(False), torch.autocast(device, enabled=False), torch.no_grad():
            # Copies, since a tensor that was made in inference mode can take no part in a backward pass.
            picture = image.detach().clone().float()
            code = key.detach().clone().to(image.device).float()
            latent = self._reader.with_features(picture)[0] + self.latent_avg
            start = self._start(picture, code)
            rows = self._search(picture, latent, start)
            drawn: Tensor = self._drawer.synthesis(self._with_rows(latent, rows))
        return drawn.to(image.dtype)

    def attribute_features(self, image: Tensor) -> Tensor:
        """What is kept of `(B, 3, S, S)`: `(B, C, h, w)`."""
        if self.attributes == "perceptual":
            return self.bundle.perceptual.maps(image)[-1]
        return F.adaptive_avg_pool2d(self.bundle.parser(image).softmax(1), GRID)

    def objective(self, drawn: Tensor, identity: Tensor, attributes: Tensor) -> Tensor:
        """The loss of every picture, `(B,)`.

        Args:
            drawn: `(B, 3, S, S)`.
            identity: `(B, E)`, the originals' unit embeddings.
            attributes: `(B, C, h, w)`, their attribute features.
        """
        cosine = (self.bundle.recogniser(drawn) * identity).sum(1)
        kept = (self.attribute_features(drawn) - attributes).abs().mean((1, 2, 3))
        return IDENTITY_WEIGHT * (cosine - self.margin).abs() + ATTRIBUTE_WEIGHT * kept

    def _start(self, picture: Tensor, key: Tensor) -> Tensor:
        """Where the search starts: `(B, D)` in W."""
        if self.bank_codes is None or self.bank_features is None:
            self.bank_codes, self.bank_features = self._draw_bank(picture.device)
        wanted = F.normalize(self.attribute_features(picture).flatten(1))
        # All features have unit length, so the largest product belongs to the nearest face.
        nearest = self.bank_codes[(wanted @ self.bank_features.T).argmax(1)]
        return nearest.lerp(self._drawer.mapping(key), KEY_SHARE)

    def _draw_bank(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """W codes `(N, D)` of generated faces and their attribute features `(N, F)`, of unit length."""
        # On the CPU: a GPU would draw other numbers from the same seed, and another bank.
        z = torch.randn(self.bank_size, *self.key_shape, generator=torch.Generator().manual_seed(0))
        codes: Tensor = self._drawer.mapping(z.to(device))
        features = []
        for part in torch.split(codes, 32):
            features.append(F.normalize(self.attribute_features(self._drawer.synthesis(part)).flatten(1)))
        return codes, torch.cat(features)

    @torch.enable_grad()
    def _search(self, picture: Tensor, latent: Tensor, start: Tensor) -> Tensor:
        """The rows `(B, R, D)` that Adam ends at."""
        first, last = self.rows
        identity = self.bundle.recogniser(picture).detach()
        attributes = self.attribute_features(picture).detach()
        # Not `expand`: every row is optimised on its own, so each needs its own memory.
        rows = start[:, None].repeat(1, last - first + 1, 1)
        # The bundle may tell that these hold light and skin, which the paper's rows 8 and on hold: they stay.
        steady = self.bundle.steady_numbers
        rows[..., :steady] = latent[:, first : last + 1, :steady]
        rows.requires_grad_()
        optimizer = torch.optim.Adam([rows], lr=self.rate)
        for _ in range(self.steps):
            drawn = self._drawer.synthesis(self._with_rows(latent, rows))
            optimizer.zero_grad()
            # A sum: each face's gradient is its own, however many stand beside it.
            torch.autograd.backward(self.objective(drawn, identity, attributes).sum())
            assert rows.grad is not None
            # Adam moves no number whose gradient was 0 in every step.
            rows.grad[..., :steady] = 0
            optimizer.step()
        return rows.detach()

    def _with_rows(self, latent: Tensor, found: Tensor) -> Tensor:
        first, last = self.rows
        return torch.cat([latent[:, :first], found, latent[:, last + 1 :]], 1)


def scaled_rows(layers: int, first: int | None, last: int | None) -> tuple[int, int]:
    """First and last row to optimise, of a W+ code with so many.

    Raises:
        UserError: They are no range of its rows.
    """
    scale = min(1.0, layers / FULL)
    first = round(FIRST * scale) if first is None else first
    last = round(LAST * scale) if last is None else last
    if not 0 <= first <= last < layers:
        raise UserError(f"rows {first} to {last}: give first and last from 0 to {layers - 1}, in this order")
    return first, last
