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
MAPPING_DIRECTIONS = 256  # in which the clouds of w and of codes are compared
MAPPING_RATE = 0.3  # of weights that are stored a hundred times as large as they act
LEAST_LENGTH = 1e-4  # of a component, as a part of the longest, that latents do show
LEAST_SPREAD = 1e-4  # of a number over latents, of which the usual is 1
LEAST_DIRECTION = 0.05  # of colours in the first components, as a part of the largest, that still counts
QUIET = 0.1  # of the encoder's other rows at the start, so that they do not drown the components


@torch.no_grad()
def fit_draft(
    generator: Generator,
    encoder: PyramidEncoder,
    latents: Tensor,
    seed: int = 0,
    weight: Tensor | None = None,
    rounded: bool = False,
    colours: Tensor | None = None,
    steady: int = 0,
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
        colours: `(N, M)` what the latents' pictures have in colour and light (`colour_moments`).
        steady: So many first components hold all of `colours`: whatever happens to the other numbers of a code, these
            stay. 0 leaves the components as they are.

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
    # N rows less their mean span N - 1 directions at most.
    count = min(generator.draft.in_features, len(rows) - 1)
    # The rows' products are fewer numbers than the covariance of all channels of all cells.
    energy, turns = torch.linalg.eigh(rows @ rows.T)
    # `eigh` gives the smallest first, and components begin with the largest.
    energy = energy.flip(0)[:count].clamp(min=1e-6)
    turns = turns.flip(1)[:, :count]
    # With u a unit eigenvector of X X' and e its eigenvalue, X' u / sqrt(e) is one of X' X, of length 1.
    axes = rows.T @ turns / energy.sqrt()
    deviation = (energy / (len(rows) - 1)).sqrt().clamp(min=1e-3)
    components = torch.zeros_like(generator.draft.weight)
    # One deviation long, for codes of deviation 1. The draft gives plain latents, so the cells' weights are undone.
    components[:, :count] = axes * deviation / scale[:, None]
    codes = torch.zeros(len(rows), generator.draft.in_features)
    codes[:, :count] = rows @ axes / deviation
    if colours is not None and 0 < steady < count:
        hold_colours(components, codes, colours[order], steady)
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
    return codes[:, : generator.style_dim].contiguous()


def hold_colours(components: Tensor, codes: Tensor, colours: Tensor, steady: int) -> None:
    """Change components, and codes with them, so that colours depend on the first numbers of a code alone.

    Colours y are nearly linear in a code's numbers, y = A a + B b, of which a are the first. With K the least solution
    of A K = B the new first numbers are a + K b, and a component of b draws no colours: what it drew before, less what
    K makes of it with the first components. Latents stay the same.

    Args:
        components: `(C h h, K)`, changed in place.
        codes: `(N, K)` of some latents, of mean 0, changed in place.
        colours: `(N, M)` of the pictures of these latents.
        steady: How many numbers are the first.
    """
    lengths = components.norm(dim=0)
    # Where latents have fewer directions than codes have numbers, the last numbers are rounding errors.
    found = lengths > LEAST_LENGTH * lengths.max()
    centred = (colours - colours.mean(0)).double()
    solution = torch.linalg.lstsq(codes[:, found].double(), centred).solution
    shares = torch.zeros(centred.shape[1], codes.shape[1])
    shares[:, found] = solution.T.to(shares)
    left = (codes @ shares.T - centred).square().sum() / centred.square().sum()
    # Small directions of A would ask for large steps of a.
    solved = torch.linalg.pinv(shares[:, :steady], rtol=LEAST_DIRECTION) @ shares[:, steady:]
    components[:, steady:] -= components[:, :steady] @ solved
    codes[:, :steady] += codes[:, steady:] @ solved.T
    # The new first numbers have another deviation. They go back to 1 and their components grow by as much, which leaves
    # the latents the same.
    length = codes[:, :steady].std(0).clamp(min=LEAST_SPREAD)
    codes[:, :steady] /= length
    components[:, :steady] *= length
    rank_zero_info(f"{left:.3f} of the variance of colours is not linear in the codes")


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
            distance = sliced_wasserstein(generator.mapping(z), few, MAPPING_DIRECTIONS)
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
        # The length of a component says how much its number changes a picture, so clusters are sought by that.
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
