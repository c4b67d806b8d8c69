"""The linear start of a prior of latents: principal components that its generator draws and its encoder reads."""

from __future__ import annotations

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from faceanon.losses.latent import sliced_wasserstein
from faceanon.networks.e4e import PyramidEncoder, StyleBlock
from faceanon.networks.mixture_mapping import MixtureMapping
from faceanon.networks.stylegan2 import Generator
from faceanon.quantised import to_int8
from faceanon.weights.components import reading

MOST = 4096  # latents that are looked at
MIXTURE_MOST = 2048
MIXTURE_BATCH = 64
MAPPING_STEPS = 400
MAPPING_BATCH = 256
MAPPING_RATE = 0.3  # of weights that are stored a hundred times as large as they act
QUIET = 0.1  # of the encoder's other rows at the start, so that they do not drown the components


@torch.no_grad()
def fit_draft(
    generator: Generator,
    encoder: PyramidEncoder,
    latents: Tensor,
    seed: int = 0,
    weight: Tensor | None = None,
    rounded: bool = False,
) -> Tensor:
    """Make the generator's draft and the encoder's `flat` the principal components of latents.

    A code then holds one number for each component, of mean 0 and deviation 1 over the latents. Where there are fewer
    latents than numbers, the last of these stay 0.

    Args:
        generator: Built with `draft`.
        encoder: Built with `flat` of the same rows.
        latents: `(N, C, h, h)` of training pictures, any floating type.
        seed: Start of the random numbers.
        weight: `(h, h)` or `(C, h, h)`, above 0: how much each cell counts. Components then describe most finely what
            counts most.
        rounded: Whether components are rounded to int8, as a small file will hold them.

    Returns:
        First rows `(M, D)` of the codes of some of the latents, which the mapping network is to give.
    """
    order = torch.randperm(len(latents), generator=torch.Generator().manual_seed(seed))[:MOST]
    rows = latents[order].float().flatten(1)
    mean = rows.mean(0)
    rows -= mean
    scale = torch.ones(latents.shape[1:]) if weight is None else weight.cpu().expand(latents.shape[1:])
    scale = scale.flatten()
    rows *= scale
    count = min(generator.draft.in_features, len(rows) - 1)
    # The rows' products are fewer numbers than the covariance of all channels of all cells.
    energy, turns = torch.linalg.eigh(rows @ rows.T)
    energy = energy.flip(0)[:count].clamp(min=1e-6)
    turns = turns.flip(1)[:, :count]
    axes = rows.T @ turns / energy.sqrt()
    deviation = (energy / (len(rows) - 1)).sqrt().clamp(min=1e-3)
    components = torch.zeros_like(generator.draft.weight)
    components[:, :count] = axes * deviation / scale[:, None]
    if rounded:
        # From the start, so that the encoder reads those that the file gives back.
        steps, step = to_int8(components)
        components = steps * step
    generator.draft.weight.copy_(components)
    generator.draft.bias.copy_(mean)
    weight, bias = reading(components, mean, scale.view(latents.shape[1:]))
    encoder.flat.weight.copy_(weight)
    encoder.flat.bias.copy_(bias)
    for style in encoder.styles:
        assert isinstance(style, StyleBlock)
        style.linear.weight.mul_(QUIET)
    left = 1 - energy.sum() / rows.square().sum()
    rank_zero_info(f"{count} principal components of {len(rows)} latents leave {left:.3f} of their variance")
    codes = torch.zeros(len(rows), generator.draft.in_features)
    codes[:, :count] = rows @ axes / deviation
    return codes[:, : generator.style_dim].contiguous()


def fit_mapping(generator: Generator, wanted: Tensor, seed: int = 0) -> None:
    """Train the mapping network alone until its w lie as some codes do: a batch of a training is too few to tell.

    Args:
        generator: Whose mapping network it is.
        wanted: Codes `(M, D)`.
        seed: Start of the random numbers.
    """
    optimizer = torch.optim.Adam(generator.style.parameters(), lr=MAPPING_RATE, betas=(0.9, 0.99))
    batch = min(MAPPING_BATCH, len(wanted))
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        # Not the training's own numbers, which the network's weights were drawn from.
        torch.manual_seed(seed + 1)
        for step in range(MAPPING_STEPS):
            for group in optimizer.param_groups:
                group["lr"] = MAPPING_RATE * (1 - step / MAPPING_STEPS)
            z = torch.randn(batch, generator.style_dim)
            few = wanted[torch.randperm(len(wanted))[:batch]]
            distance = sliced_wasserstein(generator.mapping(z), few, MAPPING_BATCH)
            optimizer.zero_grad()
            distance.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    rank_zero_info(f"the mapping network's w are at a sliced distance of {distance.item():.4f} from the codes")


@torch.no_grad()
def fit_mixture(generator: Generator, encoder: PyramidEncoder, latents: Tensor, seed: int = 0) -> None:
    """Make a generator's `MixtureMapping` follow the first rows of photographs' codes.

    Args:
        generator: Built with `mixture`.
        encoder: Of the same codes.
        latents: `(N, C, h, h)` of training pictures, any floating type, on the CPU.
        seed: Start of the random numbers.
    """
    assert isinstance(generator.style, MixtureMapping)
    device = generator.input.input.device
    order = torch.randperm(len(latents), generator=torch.Generator().manual_seed(seed))[:MIXTURE_MOST]
    first = []
    for few in order.split(MIXTURE_BATCH):  # type: ignore[no-untyped-call]
        codes, _ = encoder.with_features(latents[few].float().to(device))
        first.append(codes[:, 0].float())
    strength = None
    if generator.drafts:
        strength = generator.draft.weight[:, : generator.style_dim].norm(dim=0)
    generator.style.fit(torch.cat(first), strength, seed)


def components(module: nn.Module) -> list[nn.Parameter]:
    """The linear layers of the drafts inside a module, which no training changes.

    A step that suits the other weights would undo them.
    """
    found: list[nn.Parameter] = []
    for part in module.modules():
        if isinstance(part, Generator) and part.drafts:
            found += part.draft.parameters()
        if isinstance(part, PyramidEncoder) and "flat" in part.init_args:
            found += part.flat.parameters()
    return found


def freeze_draft(generator: Generator, encoder: PyramidEncoder) -> None:
    """Keep both linear layers as they are."""
    for parameter in (*components(generator), *components(encoder)):
        parameter.requires_grad_(False)
