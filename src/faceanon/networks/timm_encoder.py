"""A W+ encoder on any timm model with maps at a quarter, an eighth and a sixteenth of the side."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.errors import UserError
from faceanon.networks.e4e import Encoder4Editing, StyleBlock
from faceanon.networks.local_weights import load_exactly, read_state
from faceanon.networks.stylegan2_tables import layer_count

REDUCTIONS = (4, 8, 16)  # of e4e's own maps c1, c2, c3


class TimmEncoder(Encoder4Editing):
    """Encode a face as w+ by e4e's pyramid and style blocks, with a timm model in place of its IR-SE trunk.

    Nothing is ever downloaded: the trunk starts untrained or from `trunk_file`.

    Args:
        name: A timm model, e.g. `resnet50` or `convnext_tiny.in12k_ft_in1k`. It must give maps at 1/4, 1/8 and 1/16.
        stylegan_size: Side of the generator's images; sets the number of rows L.
        style_dim: Width D of a row.
        input_size: Side in px at which the trunk works, 16 times a power of two; pictures of another side are resized
            to it first. At 256 the feature maps have 64, 32 and 16 px.
        width: Channels of the pyramid and the style blocks.
        coarse_ind: First row that is read from the middle level of the pyramid.
        middle_ind: First row that is read from the finest level.
        trunk_file: The model's classification weights in timm's layout, safetensors or `.pth`. To load a whole trained
            encoder use its own state dict instead.
        model_args: Further arguments of the timm model, e.g. `{img_size: 256}` for those of fixed size.

    Attributes:
        n_latent: Rows L of a code.
        feature_channels: Channels of the returned maps by side in px.

    Raises:
        UserError: If timm has no such model, it gives other maps, or the file does not fit.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        name: str,
        stylegan_size: int = 256,
        style_dim: int = 512,
        input_size: int = 256,
        width: int = 512,
        coarse_ind: int = 3,
        middle_ind: int = 7,
        trunk_file: str | None = None,
        model_args: Mapping[str, Any] | None = None,
    ) -> None:
        # Not the parent's, which would build the trunk that this one replaces.
        nn.Module.__init__(self)
        side = input_size // REDUCTIONS[-1]
        if side < 1 or input_size % REDUCTIONS[-1] or side & (side - 1):
            raise UserError(f"input_size of an encoder must be 16 times a power of two, not {input_size}")
        self.stylegan_size = stylegan_size
        self.style_dim = style_dim
        self.input_nc = 3
        self.input_size = input_size
        self.coarse_ind = coarse_ind
        self.middle_ind = middle_ind
        self.n_latent = layer_count(stylegan_size)
        levels, channels, self._channels_last = _describe(name, input_size, dict(model_args or {}))
        channels_of_side = {}
        for r, c in zip(REDUCTIONS, channels, strict=True):
            channels_of_side[input_size // r] = c
        self.feature_channels = channels_of_side
        self.trunk = _build(name, levels, trunk_file, dict(model_args or {}))
        # A model without published weights has no such entry; timm's default is ImageNet's mean and deviation.
        config = timm.get_pretrained_cfg(name) or timm.models.PretrainedCfg()
        # Not saved: the model's name gives them.
        self.register_buffer("mean", _pixel(config.mean), persistent=False)
        self.register_buffer("std", _pixel(config.std), persistent=False)
        self.latlayer0, self.latlayer1, self.latlayer2 = (nn.Conv2d(c, width, 1) for c in reversed(channels))
        self.styles = nn.ModuleList()
        for row in range(self.n_latent):
            reduction = REDUCTIONS[2 - self._level(row)]
            self.styles.append(StyleBlock(width, style_dim, input_size // reduction))

    def seen(self, image: Tensor) -> Tensor:
        """Pictures `(B, 3, S, S)` in [-1, 1] as the trunk takes them, `(B, 3, input_size, input_size)`."""
        if image.shape[-1] == self.input_size:
            return image
        size = (self.input_size, self.input_size)
        return F.interpolate(image, size, mode="bilinear", align_corners=False, antialias=True)

    def with_features(self, image: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        """Encode aligned faces.

        Args:
            image: `(B, 3, S, S)` in [-1, 1].

        Returns:
            Codes `(B, L, D)`, before the average code is added, and the trunk's maps `(B, C, r, r)` keyed by side r.
        """
        image = self.seen(image)
        maps = self.trunk(((image + 1) / 2 - self.mean) / self.std)
        c1, c2, c3 = (item.permute(0, 3, 1, 2) if self._channels_last else item for item in maps)
        by_side = {}
        for item in (c1, c2, c3):
            by_side[item.shape[-1]] = item
        # e4e's trunk gives c3 as wide as the style blocks. Here its width is the model's, so a layer brings it there.
        return self._codes(c1, c2, self.latlayer0(c3)), by_side


def _pixel(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values)[:, None, None]


def _checked_name(name: str) -> None:
    """Raise unless timm has the model: other forms of name (`hf-hub:...`) would reach for the network."""
    plain, _, tag = name.partition(".")
    if not timm.is_model(plain):
        known = timm.list_models()
        near = difflib.get_close_matches(plain, known, 3, 0.5) or ["resnet50", "convnext_tiny", "efficientnet_b0"]
        raise UserError(f"timm {timm.__version__} has no model {name!r}; did you mean {', '.join(near)}?")
    tags = []
    for pretrained in timm.list_pretrained(f"{plain}.*"):
        tags.append(pretrained.partition(".")[2])
    if tag and tag not in tags:
        raise UserError(f"timm's {plain} has no weights {tag!r}; it knows {', '.join(tags) or 'none'}, or leave it out")


def _describe(name: str, size: int, model_args: dict[str, Any]) -> tuple[list[int], list[int], bool]:
    """Indices and channels of the maps at `REDUCTIONS`, and whether channels come last; builds nothing real.

    Raises:
        UserError: If timm has no such model or it gives other maps.
    """
    _checked_name(name)
    try:
        with torch.device("meta"):
            probe: Any = timm.create_model(name, pretrained=False, features_only=True, **model_args).eval()
            shapes = []
            for item in probe(torch.zeros(1, 3, size, size)):
                shapes.append(tuple(item.shape[1:]))
    except (RuntimeError, AssertionError, TypeError, ValueError, AttributeError, NotImplementedError) as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UserError(
            f"timm's {name} gives no feature maps of a {size} px image ({reason}); set model_args or pick another model"
        ) from error
    reductions = probe.feature_info.reduction()
    channels = probe.feature_info.channels()
    if len(set(reductions)) < len(reductions) or not set(REDUCTIONS) <= set(reductions):
        raise UserError(
            f"timm's {name} has maps at 1/{', 1/'.join(map(str, reductions))} of the side; an encoder needs one each "
            "at 1/4, 1/8 and 1/16, as resnet50, convnext_tiny or efficientnet_b0 have"
        )
    levels = list(map(reductions.index, REDUCTIONS))
    wanted = []
    for level, r in zip(levels, REDUCTIONS, strict=True):
        wanted.append((channels[level], size // r, size // r))
    shapes_of_levels = [shapes[level] for level in levels]
    # Some models, e.g. Swin, give maps with the channels last.
    last = shapes_of_levels == [(*shape[1:], shape[0]) for shape in wanted]
    if shapes_of_levels != wanted and not last:
        raise UserError(
            f"timm's {name} gives maps {shapes_of_levels} of a {size} px image instead of {wanted}; pick another model"
        )
    widths = []
    for level in levels:
        widths.append(channels[level])
    return levels, widths, last


def _build(name: str, levels: list[int], file: str | None, model_args: dict[str, Any]) -> nn.Module:
    """The trunk, untrained or with the weights of a file."""
    source: dict[str, Any] = {"pretrained": False}
    if file is not None:
        weights = {"state_dict": _classifier_weights(name, file, model_args)}
        source = {"pretrained": True, "pretrained_cfg_overlay": weights}
    trunk: nn.Module = timm.create_model(name, features_only=True, out_indices=levels, **source, **model_args)
    return trunk


def _classifier_weights(name: str, file: str | Path, model_args: dict[str, Any]) -> dict[str, Tensor]:
    """The file's tensors, after a strict load into the whole model; the classifier's own shape does not matter.

    timm itself loads trunks leniently, so that a file of another model would leave parts untrained without a word.
    """
    state = read_state(file, f"the weights of timm's {name} (published at https://huggingface.co/timm)")
    with torch.device("meta"):
        whole: Any = timm.create_model(name, pretrained=False, **model_args)
    heads = whole.pretrained_cfg.get("classifier") or ()
    prefixes = tuple(f"{head}." for head in ((heads,) if isinstance(heads, str) else heads))
    own = {}
    for key, value in whole.state_dict().items():
        if key.startswith(prefixes):
            own[key] = value
    body = {}
    for key, value in state.items():
        if not key.startswith(prefixes):
            body[key] = value
    # The model's own classifier takes the place of the file's, so that only the rest has to match.
    load_exactly(whole, {**body, **own}, file, assign=True)
    return body
