"""The layouts of public checkpoints: which keys give a network away, and which sizes its tensors tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torch import Tensor

from faceanon.errors import UserError
from faceanon.networks.facenet import PUBLISHED_SCALE
from faceanon.networks.irse import UNITS, WIDTHS
from faceanon.networks.riddle_mapper import mapper_layout
from faceanon.networks.stylegan2_tables import channel_table, layer_count

State = Mapping[str, Tensor]
Init = dict[str, Any]
FACENET_SETS = {8631: "vggface2", 10575: "casia"}
"""Training set of a public FaceNet file by the number of its classes."""


@dataclass(frozen=True)
class Layout:
    """One kind of network as public files hold it.

    Args:
        kind: Short name; the catalog and bundle.yaml use it.
        title: For people.
        role: Role in a bundle.
        network: Import path of our class, None where a bundle only keeps the tensors.
        marks: Keys that together no other layout has.
        sizes: Constructor arguments from the tensors.
    """

    kind: str
    title: str
    role: str
    network: str | None
    marks: tuple[str, ...]
    sizes: Callable[[State], Init]


def count(state: State, pattern: str) -> int:
    """How many numbers `#` of a key pattern occur, e.g. of `style.#.weight`."""
    expression = re.compile(re.escape(pattern).replace(r"\#", r"(\d+)"))
    numbers = set()
    for name in state:
        if match := expression.fullmatch(name):
            numbers.add(match[1])
    return len(numbers)


def _generator(state: State) -> Init:
    # StyleGAN2 begins at 4 px, and each further to_rgb is of twice the side.
    size = 4 << count(state, "to_rgbs.#.bias")
    # Weights are `(1, out, in, 3, 3)`. A block has two convolutions, the first of which doubles the side.
    channels = {4: state["conv1.conv.weight"].shape[1]}
    for block in range(count(state, "to_rgbs.#.bias")):
        channels[8 << block] = state[f"convs.{2 * block}.conv.weight"].shape[1]
    init = {"size": size, "style_dim": state["style.1.weight"].shape[1], "n_mlp": count(state, "style.#.weight")}
    return {**init, **_table(size, channels)}


def _discriminator(state: State) -> Init:
    blocks = count(state, "convs.#.skip.1.weight")
    size = 4 << blocks
    channels = {size: state["convs.0.0.weight"].shape[0]}
    # convs.0 takes the colours to channels; each block after it halves the side.
    for block in range(1, blocks + 1):
        channels[size >> block] = state[f"convs.{block}.conv2.1.weight"].shape[0]
    return {"size": size, **_table(size, channels)}


def _table(size: int, channels: dict[int, int]) -> Init:
    """The public table's multiplier where the channels follow it, else the channels themselves."""
    for multiplier in (2, 1):
        if channels == channel_table(size, multiplier):
            return {"channel_multiplier": multiplier}
    return {"channels": dict(sorted(channels.items()))}


def _trunk(state: State) -> Init:
    """Widths and units of an IR-SE trunk: a stage is a run of units of one width."""
    outputs = []
    for unit in range(count(state, "body.#.res_layer.3.weight")):
        outputs.append(state[f"body.{unit}.res_layer.3.weight"].shape[0])
    first = state["input_layer.0.weight"].shape[0]
    stages = []
    for width, run in groupby(outputs):
        stages.append((width, len(list(run))))
    widths = [first, *(width for width, _ in stages)]
    units = [length for _, length in stages]
    if len(units) != len(UNITS):
        raise UserError(
            f"an IR-SE trunk of stages {list(zip(widths[1:], units, strict=True))}; only trunks of "
            f"{len(UNITS)} stages of different widths are read, such as IR-SE50 with {WIDTHS[1:]}"
        )
    return {"widths": widths, "units": units}


def _recogniser(state: State) -> Init:
    trunk = _trunk(state)
    embedding, flat = state["output_layer.3.weight"].shape
    # The last layer is dense over a square map, so its length is width x side x side.
    side = round((flat / trunk["widths"][-1]) ** 0.5)
    return {"input_size": side << len(trunk["units"]), **trunk, "embedding": embedding}


def _encoder(state: State) -> Init:
    rows = count(state, "styles.#.linear.weight")
    depths = []
    for row in range(rows):
        depths.append(count(state, f"styles.{row}.convs.#.weight"))
    # Rows of the coarse, middle and fine group differ by one convolution each.
    starts = []
    for level in (0, 1):
        starts.append(next((row for row in range(rows) if depths[row] > depths[0] + level), rows))
    # A code for pictures of this size has 2 log2(size) - 2 rows.
    size = 1 << ((rows + 2) // 2)
    if layer_count(size) != rows:
        raise UserError(f"an encoder of {rows} rows, which fit no StyleGAN2; codes have 2 log2(size) - 2 rows")
    return {
        "stylegan_size": size,
        "style_dim": state["styles.0.linear.weight"].shape[0],
        # The coarse map has a 16th of the side, and each convolution halves it.
        "input_size": 16 << depths[0],
        **_trunk(state),
        "coarse_ind": starts[0],
        "middle_ind": starts[1],
        "input_nc": state["input_layer.0.weight"].shape[1],
    }


def _bisenet(state: State) -> Init:
    return {
        "n_classes": state["conv_out.conv_out.weight"].shape[0],
        "width": state["cp.resnet.conv1.weight"].shape[0],
        # The side at which it was trained; no tensor tells it.
        "working_size": 512,
    }


def _mapper(state: State) -> Init:
    try:
        return mapper_layout(state)
    except ValueError as error:
        raise UserError(f"a mapper like RiDDLE's, but {error}") from error


E4E = "faceanon.networks.e4e.Encoder4Editing"
PSP = "faceanon.networks.psp.GradualStyleEncoder"
ENCODERS = {
    "Encoder4Editing": Layout("e4e_encoder", "e4e encoder", "encoder", E4E, (), _encoder),
    "GradualStyleEncoder": Layout("psp_encoder", "pSp encoder", "encoder", PSP, (), _encoder),
}
"""By `opts["encoder_type"]`: the keys of the two are the same."""

ENCODER_MARKS = ("input_layer.0.weight", "styles.0.linear.weight", "latlayer1.weight")

LAYOUTS = (
    Layout(
        "stylegan2_generator", "StyleGAN2 generator", "generator", "faceanon.networks.stylegan2.Generator",
        ("input.input", "style.1.weight", "conv1.conv.weight", "to_rgb1.bias"), _generator,
    ),
    Layout(
        "stylegan2_discriminator", "StyleGAN2 discriminator", "discriminator",
        "faceanon.networks.stylegan2.Discriminator",
        ("convs.0.0.weight", "final_conv.0.weight", "final_linear.0.weight"), _discriminator,
    ),
    Layout(
        "ir_se_recogniser", "IR-SE recogniser (ArcFace)", "recogniser", "faceanon.networks.irse.IRSE",
        ("input_layer.0.weight", "output_layer.3.weight", "body.0.res_layer.5.fc1.weight"),
        lambda state: {**_recogniser(state), "dropout": 0.6},
    ),
    Layout(
        "adaface", "IR recogniser (AdaFace)", "judge", "faceanon.networks.adaface.AdaFace",
        ("input_layer.0.weight", "output_layer.3.weight", "body.0.res_layer.2.running_mean"), _recogniser,
    ),
    Layout(
        "facenet", "FaceNet (Inception-ResNet-v1)", "judge", "faceanon.networks.facenet.InceptionResnetV1",
        ("conv2d_1a.conv.weight", "mixed_6a.branch0.conv.weight", "last_linear.weight"),
        lambda state: {"input_scale": PUBLISHED_SCALE},
    ),
    Layout(
        "bisenet", "BiSeNet face parser", "parser", "faceanon.networks.bisenet.FaceParser",
        ("cp.resnet.conv1.weight", "ffm.convblk.conv.weight", "conv_out.conv_out.weight"), _bisenet,
    ),
    Layout(
        "unet_parser", "CelebAMask-HQ U-Net face parser", "parser", "faceanon.networks.unet.CelebAMaskParser",
        ("conv1.conv1.0.weight", "center.conv1.0.weight", "up_concat4.up.weight", "final.weight"),
        lambda state: {"n_classes": state["final.weight"].shape[0], "working_size": 512},
    ),
    Layout(
        "landmarks68", "68-point landmark network", "landmarks", "faceanon.networks.landmarks68.Landmarks68",
        ("conv1.conv.weight", "conv_6_sep.conv.weight", "output_layer.linear.weight"), lambda state: {},
    ),
    Layout(
        "lpips_alex",
        "AlexNet (torchvision), backbone of LPIPS",
        "perceptual",
        "faceanon.networks.lpips_net.Lpips",
        ("features.3.weight", "features.6.weight", "features.8.weight", "features.10.weight"),
        lambda state: {"net": "alex"},
    ),
    Layout(
        "lpips_vgg",
        "VGG-16 (torchvision), backbone of LPIPS",
        "perceptual",
        "faceanon.networks.lpips_net.Lpips",
        ("features.2.weight", "features.17.weight", "features.28.weight"),
        lambda state: {"net": "vgg"},
    ),
    Layout(
        "inception_v3", "Inception-v3 of FID", "features", "faceanon.networks.inception.InceptionV3",
        ("Conv2d_1a_3x3.conv.weight", "Mixed_7c.branch_pool.conv.weight", "fc.weight"), lambda state: {},
    ),
    Layout(
        "riddle_mapper", "RiDDLE mapper", "mapper", "faceanon.networks.riddle_mapper.TransformerMapperSplit",
        ("layers.0.self_attn.in_proj_weight", "layers.0.multihead_attn.in_proj_weight"), _mapper,
    ),
    Layout(
        "dbaf_disentanglement", "DBAF identity disentanglement", "dbaf_disentanglement", None,
        ("linear_w.weight", "pos_embedding", "layers.0.transformer.layers.0.0.norm.weight"), lambda state: {},
    ),
    Layout(
        "dbaf_attributes", "DBAF attribute block", "dbaf_attributes", None,
        ("conv_c1.weight", "conv_c2.weight", "conv_c3.weight"), lambda state: {},
    ),
    Layout(
        "dbaf_mapper", "DBAF key mapper", "dbaf_mapper", None,
        ("mapper.0.model.0.weight", "mapper.2.model.0.weight"), lambda state: {},
    ),
)  # fmt: skip
