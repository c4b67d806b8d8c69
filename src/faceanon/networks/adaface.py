"""AdaFace's recogniser in the layout of its public checkpoints (Kim et al., CVPR 2022): IR-50 without excitation."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from faceanon.networks.irse import IRSE, UNITS, WIDTHS, make_shortcut


class PlainUnit(nn.Module):
    """Residual unit; `stride` 2 halves the map in its second convolution."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.shortcut_layer = make_shortcut(in_channels, out_channels, stride)
        self.res_layer = nn.Sequential(
            nn.BatchNorm2d(in_channels),
            nn.Conv2d(in_channels, out_channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.PReLU(out_channels),
            nn.Conv2d(out_channels, out_channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out_channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, I, H, W)` to `(B, O, H / stride, W / stride)`."""
        out: Tensor = self.res_layer(x) + self.shortcut_layer(x)
        return out


class AdaFace(IRSE):
    """Face recogniser. It was trained on pictures whose channels are blue, green, red, and turns ours around.

    Args:
        input_size: Side of the picture in px.
        widths: Channels of the input layer, then of the four stages.
        units: Units per stage.
        embedding: Width E of the embedding.
    """

    unit = PlainUnit

    def __init__(
        self,
        input_size: int = 112,
        widths: Sequence[int] = WIDTHS,
        units: Sequence[int] = UNITS,
        embedding: int = 512,
    ) -> None:
        super().__init__(input_size, widths, units, embedding)
        self.output_layer[4] = nn.BatchNorm1d(embedding, affine=False)

    def forward(self, image: Tensor) -> Tensor:
        """L2-normalised embedding `(B, E)` of aligned faces `(B, 3, input_size, input_size)` in [-1, 1]."""
        return super().forward(image.flip(1))
