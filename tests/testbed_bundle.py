"""Make a bundle of the testbed's public weights: `python tests/testbed_bundle.py runs/testbed64`.

The folder must lie outside what git tracks: these weights were trained on photographs of real people. Generator and
encoder are missing until `faceanon fit --config configs/paper/prior.yaml` has written them there.

`python tests/testbed_bundle.py runs/testbed128 --judges-of photo128_pictures` makes one that judges only: the bundle of
that name, with MobileFaceNet as the judge and its own judge as the second one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import yaml
from torch import Tensor

from faceanon.errors import UserError
from faceanon.files import load_strictly, save_tensors
from faceanon.weights.bundle import Bundle, network_class
from faceanon.weights.checksums import write_checksums

TESTBED = Path(__file__).resolve().parents[2] / "shared" / "testbed"
CLASSES = ["background", "skin", "nose", "eye_g", "l_eye", "r_eye", "l_brow", "r_brow", "l_ear", "r_ear"]
CLASSES += ["mouth", "u_lip", "l_lip", "hair", "hat", "ear_r", "neck_l", "neck", "cloth"]
# Output channel of the public SmallUNet for each of these.
CHANNEL_OF_CLASS = (0, 3, 6, 9, 17, 5, 2, 11, 8, 4, 14, 1, 10, 13, 12, 18, 7, 15, 16)
PARSING = {
    "classes": CLASSES,
    "face": [1, 2, 4, 5, 6, 7, 10, 11, 12],
    "head": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17],
    "parts": [2, 4, 5, 6, 7, 10, 11, 12],
}
# The crop that needs no landmarks, in a 256 px FFHQ frame; casia's leaves out 8 of its 112 columns on each side.
LEFT, TOP, SIDE = 35.4, 27.9, 189.3
MARGIN = SIDE * 8 / 112
# What PriorStage trains, by side in px; 64 as in configs/paper/prior.yaml, 128 for a GPU (benchmarks/gpu_report.py).
PRIORS: dict[int, tuple[dict[str, object], dict[str, object], dict[int, int]]] = {
    64: (
        {"style_dim": 192, "n_mlp": 4, "channels": {4: 192, 8: 160, 16: 96, 32: 48, 64: 24}},
        {"widths": [16, 24, 48, 96, 128], "units": [1, 1, 2, 1], "coarse_ind": 3, "middle_ind": 10},
        {4: 96, 8: 96, 16: 64, 32: 32, 64: 16},
    ),
    128: (
        {"style_dim": 256, "n_mlp": 4, "channels": {4: 256, 8: 256, 16: 192, 32: 128, 64: 64, 128: 32}},
        {"widths": [32, 48, 96, 192, 256], "units": [2, 2, 4, 2], "coarse_ind": 3, "middle_ind": 7},
        {4: 192, 8: 192, 16: 128, 32: 64, 64: 32, 128: 16},
    ),
}


def convert_mobileface_v2(public: Mapping[str, Tensor], blocks: int = 12) -> dict[str, Tensor]:
    """State dict of `MobileFaceV2` from the published one.

    Args:
        public: Tensors by MXNet's names behind `arg__` or `aux__`, e.g. `arg__convolution0_weight`.
        blocks: Number of blocks, of three convolutions each.

    Raises:
        KeyError: A tensor is missing.
    """
    layers = [("stem", "conv1", "bn1")]
    for block in range(blocks):
        for number, part in enumerate(("expand", "depthwise", "project"), 3 * block):
            layers.append((f"blocks.{block}.{part}", f"convolution{number}", f"batchnorm{number}"))
    state = {"stem.0.bias": public["arg__conv1_bias"], "head.1.weight": public["arg__fc5_weight"]}
    for ours, conv, norm in layers:
        state[f"{ours}.0.weight"] = public[f"arg__{conv}_weight"]
        state |= _norm(f"{ours}.1", norm, public)
    return state | _norm("head.2", "fc5_bn", public)


def _norm(ours: str, theirs: str, public: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        f"{ours}.weight": public[f"arg__{theirs}_gamma"],
        f"{ours}.bias": public[f"arg__{theirs}_beta"],
        f"{ours}.running_mean": public[f"aux__{theirs}_moving_mean"],
        f"{ours}.running_var": public[f"aux__{theirs}_moving_var"],
        f"{ours}.num_batches_tracked": torch.tensor(0),
    }


def convert_squeezenet(public: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """State dict of `SqueezeNetFeatures` from tensors named as `fire2_squeeze1x1.weight`."""
    converted = {}
    for name, tensor in public.items():
        converted[name.replace("_", ".", 1)] = tensor
    return converted


def convert_small_unet(public: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """State dict of `SmallUNet` with the classes in CelebAMask-HQ's order, from the published one."""
    state = dict(public)
    for name in ("out.weight", "out.bias"):
        state[name] = public[name][list(CHANNEL_OF_CLASS)]
    return state


def crop(margin: float = 0.0) -> list[float]:
    """Rows and columns of the recognisers' crop, as fractions of the side."""
    edges = (TOP, TOP + SIDE, LEFT + margin, LEFT + SIDE - margin)
    return [round(edge / 256, 6) for edge in edges]


def recognisers(judge: str) -> dict[str, dict[str, object]]:
    """bundle.yaml's entries of the recogniser that trains and of the one that judges."""
    entries: dict[str, dict[str, object]] = {
        "mobilefacenet_casia": {
            "name": "mobilefacenet_casia",
            "class": "faceanon.networks.mobileface.MobileFaceNet",
            "init": {"embedding": 128},
            "input_size": [112, 96],
            "crop": crop(MARGIN),
        },
        "mobileface_v2": {
            "name": "mobileface_v2",
            "class": "faceanon.networks.mobileface_v2.MobileFaceV2",
            "init": {"embedding": 256},
            "input_size": 112,
            "crop": crop(),
        },
    }
    second = entries.pop(judge)
    return {"recogniser": entries.popitem()[1], "judge": second}


def networks(image_size: int, parser_size: int, judge: str) -> dict[str, dict[str, object]]:
    """bundle.yaml's entries of the networks whose weights are at hand."""
    return recognisers(judge) | {
        "parser": {
            "class": "faceanon.networks.unet_small.SmallUNet",
            "init": {"n_classes": 19, "working_size": max(parser_size, image_size)},
        },
        "perceptual": {"class": "faceanon.networks.squeezenet.SqueezeNetFeatures", "init": {}},
    }


def prior(image_size: int) -> dict[str, dict[str, object]]:
    """bundle.yaml's entries of what PriorStage trains."""
    if image_size not in PRIORS:
        raise UserError(f"image size {image_size}: the prior's shapes are written down for {list(PRIORS)}; add others")
    drawing, reading, judging = PRIORS[image_size]
    generator = {"size": image_size, **drawing}
    encoder = {"stylegan_size": image_size, "style_dim": drawing["style_dim"], "input_size": image_size, **reading}
    encoder["feature_taps"] = [-1, 0, sum(reading["units"][:2]) - 1]  # type: ignore[index]
    return {
        "generator": {
            "class": "faceanon.networks.stylegan2.Generator",
            "init": generator,
            "file": "generator.safetensors",
        },
        "encoder": {
            "class": "faceanon.networks.e4e.Encoder4Editing",
            "init": encoder,
            "file": "encoder.safetensors",
            "latent_avg": "latent_avg.safetensors",
        },
        "discriminator": {
            "class": "faceanon.networks.stylegan2.Discriminator",
            "init": {"size": image_size, "channels": judging},
        },
    }


def public_weights(testbed: Path) -> dict[str, Mapping[str, Tensor]]:
    """State dicts by name or role, in our layouts."""
    folder = testbed / "weights"
    if not folder.is_dir():
        raise UserError(f"no folder {folder}: the testbed lies beside the checkout, or give --testbed")

    def load(name: str) -> dict[str, Tensor]:
        if name.endswith(".npz"):
            with np.load(folder / name) as file:
                return {key: torch.from_numpy(file[key]) for key in file.files}
        found: dict[str, Tensor] = torch.load(folder / name, map_location="cpu", weights_only=True)
        return found

    return {
        "mobilefacenet_casia": load("recognition/mobilefacenet_casia_068.ckpt")["net_state_dict"],  # type: ignore[dict-item]
        "mobileface_v2": convert_mobileface_v2(load("recognition/mobileface_v2.npz")),
        "parser": convert_small_unet(load("parsing/unet_small_19.pth")),
        "perceptual": convert_squeezenet(load("perceptual/squeezenet11_features.npz")),
    }


def write_network(
    folder: Path, role: str, entry: dict[str, object], public: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Write the weights of one role, and their file into its entry of bundle.yaml.

    Args:
        folder: Of the bundle.
        role: The role.
        entry: With class and arguments, and with the network's name where it is not the role's.
        public: State dicts by name or role.
    """
    net = network_class(str(entry["class"]))(**entry["init"])  # type: ignore[arg-type]
    load_strictly(net, public[str(entry.get("name", role))], role)
    entry["file"] = f"{role}.safetensors"
    save_tensors(folder / f"{role}.safetensors", net.state_dict())


def make_testbed_bundle(
    folder: Path,
    image_size: int = 64,
    testbed: Path = TESTBED,
    parser_size: int = 128,
    judge: str = "mobilefacenet_casia",
) -> list[str]:
    """Write weights and bundle.yaml; returns the names of the files that PriorStage has yet to write.

    Args:
        folder: Where; outside what git tracks.
        image_size: Side S of the bundle's pictures: 64 or 128.
        testbed: The folder with `weights/`.
        parser_size: Side at which the parser looks; 256 is what it was trained at, 128 costs a quarter.
        judge: The recogniser that judges, `mobileface_v2` or `mobilefacenet_casia`; the other one trains.
    """
    entries, untrained = networks(image_size, parser_size, judge), prior(image_size)
    public = public_weights(testbed)
    for role, entry in entries.items():
        write_network(folder, role, entry, public)
    spec = {
        "name": f"testbed{image_size}",
        "image_size": image_size,
        "licence": "internal tests only: weights trained on photographs of real people; see the testbed's MANIFEST",
        "parsing": PARSING,
        "networks": entries | untrained,
    }
    (folder / "bundle.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    return write_checksums(folder)


def make_judging_bundle(folder: Path, shipped: str, testbed: Path = TESTBED) -> None:
    """Write a shipped bundle of photographs once more, judged by MobileFaceNet first and by its own judge second.

    The distance between pictures is that of SqueezeNet, which trained no method.

    Args:
        folder: Where; outside what git tracks.
        shipped: Name of the bundle; its pictures are whole ones, aligned as FFHQ's.
        testbed: The folder with `weights/`.
    """
    bundle = Bundle(shipped)
    entries: dict[str, dict[str, object]] = {}
    for role, entry in bundle.spec["networks"].items():
        entries[role] = dict(entry)
        if "file" in entry:
            source = bundle.folder / entry["file"]
            shutil.copyfile(source, folder / source.name)
            entries[role]["file"] = source.name
    # Further judges are those whose role begins with `judge_`.
    entries["judge_second"] = entries["judge"]
    entries["judge"] = recognisers("mobilefacenet_casia")["judge"]
    entries["perceptual"] = {"class": "faceanon.networks.squeezenet.SqueezeNetFeatures", "init": {}}
    public = public_weights(testbed)
    for role in ("judge", "perceptual"):
        write_network(folder, role, entries[role], public)
    spec = {
        "name": folder.name,
        "image_size": bundle.image_size,
        "framing": bundle.spec["framing"],
        "licence": "internal tests only: judge and distance were trained on photographs of real people",
        "networks": entries,
    }
    (folder / "bundle.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    write_checksums(folder)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--parser-size", type=int, default=128)
    parser.add_argument("--judge", default="mobilefacenet_casia", choices=("mobileface_v2", "mobilefacenet_casia"))
    parser.add_argument("--judges-of", metavar="BUNDLE", help="judge alone, with the networks of this shipped bundle")
    parser.add_argument("--testbed", type=Path, default=TESTBED)
    given = parser.parse_args()
    try:
        if given.judges_of is not None:
            given.folder.mkdir(parents=True, exist_ok=True)
            make_judging_bundle(given.folder, given.judges_of, given.testbed)
            print(f"{given.folder}: done")
            return 0
        missing = make_testbed_bundle(given.folder, given.image_size, given.testbed, given.parser_size, given.judge)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{given.folder}: done; the prior has yet to write {', '.join(missing) or 'nothing'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
