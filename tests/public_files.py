"""Write files in the layouts of the public checkpoints, full size, with made-up weights.

  python tests/public_files.py OUT_FOLDER [--only NAME...]
  python tests/public_files.py OUT_FOLDER --faces 8          (drawn faces of 256 px instead, a folder a person)

Keys and shapes come from the golden manifests (or from our own networks and torchvision's where there is none), numbers
from the golden recipe, both in the folder `shared` beside the checkout: the nets draw and see something, but nothing
was trained and nobody's face is in them. All files together take 3.1 GB; encoder and generator files belong together as
the public ones do. Tests take `small_files` instead.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.irse import IRSE
from faceanon.networks.landmarks68 import Landmarks68
from faceanon.networks.psp import GradualStyleEncoder
from faceanon.networks.stylegan2 import Discriminator, Generator
from faceanon.networks.unet import CelebAMaskParser

GOLDEN = Path(__file__).resolve().parents[2] / "shared" / "golden"
State = dict[str, Tensor]
E4E_OPTIONS = {"encoder_type": "Encoder4Editing", "start_from_latent_avg": True, "lr": 1e-4, "train_decoder": False}
PSP_OPTIONS = {
    "encoder_type": "GradualStyleEncoder",
    "start_from_latent_avg": True,
    "learn_in_w": False,
    "input_nc": 3,
    "label_nc": 0,
}


class Recipe:
    """Weights from the golden manifests and recipe.

    Args:
        golden: The folder with `manifests/` and `recipe.py`.
    """

    def __init__(self, golden: Path = GOLDEN) -> None:
        self.folder = golden
        spec = importlib.util.spec_from_file_location("golden_recipe", golden / "recipe.py")
        if spec is None or spec.loader is None or not (golden / "recipe.py").is_file():
            raise SystemExit(f"no golden recipe in {golden}; it lies in `shared` beside the checkout, or give --golden")
        self.recipe = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.recipe)

    def state(self, manifest: str, family: str, prefix: str = "") -> State:
        """State dict of a manifest, the keys under `prefix` without it, in the manifest's order."""
        entries = json.loads((self.folder / f"manifests/{manifest}.json").read_text())["entries"]
        shapes = {key.removeprefix(prefix): tuple(shape) for key, shape, _ in entries if key.startswith(prefix)}
        weights = self.recipe.state_dict(shapes, family)
        gain = 1.0 if "_d_" in manifest else 4.0  # a generator's blur kernels contain the up-sampling's gain
        return {key: torch.from_numpy(weights[key]) if key in weights else gain * blur_kernel() for key in shapes}

    @cached_property
    def generator(self) -> tuple[State, Tensor]:
        """The generator of 256 px, which several files hold, and its mean w."""
        state = self.state("stylegan2_g_256", "stylegan2")
        net = Generator(256)
        net.load_state_dict(state)
        return state, mean_latent(net)


def blur_kernel() -> Tensor:
    """The kernel of sum 1 that the recipe leaves as constructed."""
    taps = torch.tensor([1.0, 3.0, 3.0, 1.0])
    return torch.outer(taps, taps) / 64


def mean_latent(generator: Generator) -> Tensor:
    """Mean w `(D,)` of a generator, always the same."""
    return generator.mean_latent(4096, torch.Generator().manual_seed(0))[0]


def stylegan2_content(generator: State, average: Tensor, discriminator: State) -> dict[str, Any]:
    """As rosinality's `convert_weight.py` writes it; `average` is the mean w `(D,)`."""
    return {"g_ema": generator, "latent_avg": average, "d": discriminator}


def encoder_content(encoder: State, decoder: State, average: Tensor, opts: Mapping[str, Any]) -> dict[str, Any]:
    """As e4e's and pSp's training writes it; `average` `(D,)` is repeated for every row."""
    state = {f"encoder.{name}": value for name, value in encoder.items()}
    state |= {f"decoder.{name}": value for name, value in decoder.items()}
    rows = sum(name.endswith(".linear.weight") for name in encoder)
    return {"state_dict": state, "latent_avg": average.repeat(rows, 1), "opts": dict(opts)}


def _stylegan2(recipe: Recipe) -> dict[str, Any]:
    return stylegan2_content(*recipe.generator, recipe.state("stylegan2_d_256", "stylegan2"))


def _rosinality_550000(recipe: Recipe) -> dict[str, Any]:
    """The public 256 px training checkpoint: no noise maps, no average, its arguments in a Namespace."""
    state = {name: value for name, value in recipe.generator[0].items() if not name.startswith("noises.")}
    return {"g_ema": state, "args": argparse.Namespace(size=256, n_mlp=8, channel_multiplier=2)}


def _e4e(recipe: Recipe) -> dict[str, Any]:
    generator, average = recipe.generator
    encoder = recipe.state("e4e_256", "generic", "encoder.")
    return encoder_content(encoder, generator, average, {**E4E_OPTIONS, "stylegan_size": 256})


def _psp(recipe: Recipe) -> dict[str, Any]:
    generator, average = recipe.generator
    encoder = recipe.state("psp_256", "generic", "encoder.")
    return encoder_content(encoder, generator, average, {**PSP_OPTIONS, "output_size": 256, "n_styles": 14})


def _mapper(recipe: Recipe) -> dict[str, Any]:
    state = recipe.state("riddle_mapper_linear_pos", "generic")
    return {"mapper_state_dict": state, "opts": {"add_linear": True, "add_pos_embedding": True}, "global_step": 90000}


def _unrecorded(net: nn.Module) -> Callable[[Recipe], State]:
    """State of a network that has no golden manifest: its own keys and shapes, the recipe's numbers."""

    def state(recipe: Recipe) -> State:
        shapes = {name: tuple(value.shape) for name, value in net.state_dict().items()}
        return {name: torch.from_numpy(value) for name, value in recipe.recipe.state_dict(shapes, "generic2").items()}

    return state


def _landmarks(recipe: Recipe) -> dict[str, Any]:
    return {"state_dict": _unrecorded(Landmarks68())(recipe), "epoch": 60}


def _alexnet(recipe: Recipe) -> State:
    from torchvision.models import alexnet

    with torch.device("meta"):
        return _unrecorded(alexnet(weights=None))(recipe)


FILES: dict[str, Callable[[Recipe], dict[str, Any]]] = {
    "stylegan2-ffhq-256.pt": _stylegan2,
    "550000.pt": _rosinality_550000,
    "e4e_ffhq_encode_256.pt": _e4e,
    "psp_ffhq_encode_256.pt": _psp,
    "model_ir_se50.pth": lambda recipe: recipe.state("ir_se50", "generic"),
    "79999_iter.pth": lambda recipe: recipe.state("bisenet", "generic2"),
    "20180402-114759-vggface2.pt": lambda recipe: recipe.state("inception_resnet_v1_vggface2", "generic2"),
    "20180408-102900-casia-webface.pt": lambda recipe: recipe.state("inception_resnet_v1_casia", "generic2"),
    "iteration_90000.pt": _mapper,
    "parsenet.pth": lambda recipe: _unrecorded(CelebAMaskParser())(recipe),
    "mobilefacenet_model_best.pth.tar": _landmarks,
    "alexnet-owt-7be5be79.pth": _alexnet,
}
"""What each full-size file holds, by the name under which the public one is known."""


def write_full_files(folder: Path, only: list[str] | None = None, golden: Path = GOLDEN) -> list[Path]:
    """Write full-size files; returns their paths."""
    recipe, paths = Recipe(golden), []
    folder.mkdir(parents=True, exist_ok=True)
    for name in only or FILES:
        torch.save(FILES[name](recipe), folder / name)
        paths.append(folder / name)
    return paths


def lively(net: nn.Module, seed: int) -> nn.Module:
    """A net in which no tensor is idle: biases, noise strengths and batch statistics are not what they start as."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in net.state_dict().items():
            if value.is_floating_point() and not name.endswith(("kernel", "running_var")):
                value += 0.1 * value.square().mean().sqrt().clamp(min=1) * torch.randn(value.shape, generator=source)
    return net.eval()


def small_networks(seed: int = 0) -> dict[str, nn.Module]:
    """Narrow 64 px networks of the public architectures."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        trunk: dict[str, Any] = {"widths": (4, 4, 6, 8, 16), "units": (1, 1, 2, 1)}
        encoder: dict[str, Any] = {"stylegan_size": 64, "style_dim": 16, "input_size": 64, "middle_ind": 10, **trunk}
        channels = {4: 16, 8: 16, 16: 16, 32: 8, 64: 8}
        nets = {
            "generator": Generator(64, 16, 2, channels=channels),
            "discriminator": Discriminator(64, channels=channels),
            "e4e": Encoder4Editing(**encoder),
            "psp": GradualStyleEncoder(**encoder),
            "recogniser": IRSE(64, embedding=8, **trunk),
        }
    return {name: lively(net, seed) for name, net in nets.items()}


def small_files(folder: Path, seed: int = 0) -> dict[str, Path]:
    """Write small files in the public layouts: generator, e4e, psp (both of that generator) and recogniser."""
    nets = small_networks(seed)
    generator = nets["generator"]
    assert isinstance(generator, Generator)
    average, states = mean_latent(generator), {name: dict(net.state_dict()) for name, net in nets.items()}
    contents = {
        "generator.pt": stylegan2_content(states["generator"], average, states["discriminator"]),
        "e4e.pt": encoder_content(states["e4e"], states["generator"], average, {**E4E_OPTIONS, "stylegan_size": 64}),
        "psp.pt": encoder_content(states["psp"], states["generator"], average, {**PSP_OPTIONS, "output_size": 64}),
        "recogniser.pth": states["recogniser"],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        torch.save(content, folder / name)
    return {Path(name).stem: folder / name for name in contents}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="OUT_FOLDER")
    parser.add_argument("--only", nargs="+", choices=sorted(FILES), metavar="NAME", help=", ".join(FILES))
    parser.add_argument("--golden", type=Path, default=GOLDEN)
    given = parser.parse_args()
    for path in write_full_files(given.folder, given.only, given.golden):
        print(f"{path} ({path.stat().st_size / 1e6:.0f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
