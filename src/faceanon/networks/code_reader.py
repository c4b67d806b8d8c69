"""What a code was that a picture was drawn from, by what is read off the saved picture: a linear map, fitted."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from faceanon.networks.e4e import PyramidEncoder

STRANGERS = 2400  # on whom it is measured how codes are read off saved pictures, by default
DAMPING = 2.0  # of the fit, in mean squares of what is seen: it has far more numbers than there are pictures
GIVEN_BACK = 0.5  # of what the fit shrinks, as a power: faces near the mean are like everybody, and not recognised
MOST_GIVEN_BACK = 3.0  # of one number, as a factor


def read_codes(
    encoder: PyramidEncoder, image: Tensor, reader: CodeReader | None = None
) -> tuple[Tensor, dict[int, Tensor]]:
    """What `encoder.with_features` reads off pictures, with the codes corrected.

    Args:
        encoder: Reads codes and feature maps.
        image: `(B, 3, S, S)`, or what the encoder sees of such pictures.
        reader: Corrects the codes; None leaves them.

    Returns:
        Codes `(B, L, D)`, before the average code is added, and the maps by side in px.
    """
    seen = encoder.seen(image)
    codes, maps = encoder.with_features(seen)
    if reader is not None:
        codes = reader(codes, seen)
    return codes, maps


class CodeReader(nn.Module):
    """Corrects an encoder's code of a saved picture by all that the encoder saw.

    An encoder learns to read photographs. What a method drew looks otherwise, and on its way through a file it was
    blurred and laid elsewhere by a pixel. Which code drew it is known exactly, so a linear map from what is seen to
    what the encoder misses is measured on some pictures.

    Until it is measured the code stays as it is read.

    Args:
        seen: Length N of what the encoder sees of a picture, its latents or pixels in one row.
        dim: Length D of a row of a code.

    Examples:
        >>> import torch
        >>> from faceanon.networks.code_reader import CodeReader
        >>> true = torch.randn(400, 4, generator=torch.Generator().manual_seed(0))
        >>> seen = torch.cat([true, true], 1)
        >>> half = 0.5 * true  # an encoder that reads faces too near to the mean
        >>> reader = CodeReader(8, 4)
        >>> reader.fit(half, seen, true)
        >>> read = reader(half[:, None], seen)[:, 0]
        >>> (read - true).norm() < 0.1 * true.norm()
        tensor(True)
    """

    gain: Tensor
    mean: Tensor
    weight: Tensor
    start: Tensor

    def __init__(self, seen: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("gain", torch.ones(dim))
        self.register_buffer("mean", torch.zeros(seen))
        self.register_buffer("weight", torch.zeros(seen, dim))
        self.register_buffer("start", torch.zeros(dim))

    @classmethod
    def of(cls, encoder: PyramidEncoder, dim: int) -> CodeReader:
        """One for what an encoder sees: the codec's latents where there is a codec, else pictures."""
        return cls(encoder.input_nc * encoder.input_size**2, dim)

    @torch.no_grad()
    def measure(self, encoder: PyramidEncoder, drawn: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Fit the map on pictures whose codes are known.

        Args:
            encoder: Reads the codes that are corrected.
            drawn: First rows `(B, D)` of codes, the average code taken off, and the saved pictures `(B, 3, S, S)` that
                were drawn of them.
        """
        read = []
        seen = []
        wanted = []
        for first, saved in drawn:
            items = encoder.seen(saved)
            read.append(encoder.with_features(items)[0][:, 0])
            seen.append(items)
            wanted.append(first)
        self.fit(torch.cat(read), torch.cat(seen), torch.cat(wanted))

    def forward(self, codes: Tensor, seen: Tensor) -> Tensor:
        """Corrected codes `(B, L, D)` of read ones; the first row is corrected, and all rows by the same.

        Args:
            codes: `(B, L, D)`, as the encoder reads them.
            seen: `(B, ...)` of N numbers, what it read them off.
        """
        first = codes[:, 0]
        wanted = self.gain * first + (seen.flatten(1) - self.mean) @ self.weight + self.start
        return codes + (wanted - first)[:, None]

    @torch.no_grad()
    def fit(self, read: Tensor, seen: Tensor, drawn: Tensor) -> None:
        """Take the map that gives what was drawn with the least squared error, a little less shrunk.

        Args:
            read: `(P, D)`, first rows of the encoder's codes of P saved pictures.
            seen: `(P, ...)` of N numbers, what it read them off.
            drawn: `(P, D)`, first rows of the codes that the pictures were drawn from.
        """
        # Float64, since a system of equations is solved.
        code = read.double()
        wanted = drawn.double()
        inputs = seen.flatten(1).double()
        gain = (code * wanted).sum(0) / code.square().sum(0).clamp(min=1e-12)
        missing = wanted - gain * code
        start = missing.mean(0)
        mean = inputs.mean(0)
        centred = inputs - mean
        # A system of P equations: there are fewer pictures than numbers that are seen.
        products = centred @ centred.T
        damping = DAMPING * products.trace() / len(products)
        inverse = torch.linalg.inv(products + damping * torch.eye(len(products), dtype=products.dtype))
        shares = inverse @ (missing - start)
        # What the same fit without a picture would miss of this picture, which needs no second fit.
        unseen = shares / inverse.diagonal()[:, None]
        foretold = wanted - unseen
        size = (wanted.square().mean(0) / foretold.square().mean(0).clamp(min=1e-12)).sqrt()
        back = size.clamp(1, MOST_GIVEN_BACK) ** GIVEN_BACK
        self.gain.copy_(back * gain)
        self.mean.copy_(mean)
        self.weight.copy_(centred.T @ shares * back)
        self.start.copy_(back * start)
