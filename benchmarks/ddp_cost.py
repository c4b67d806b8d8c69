"""What data-parallel training costs from 1 to 64 GPUs, on paper: python benchmarks/ddp_cost.py [--tflops 100].

Parameters and forward FLOPs are counted on our networks at 256 px with the public widths, on tensors
without content. The rest is a model with stated assumptions; docs/explanation/data-parallel.md explains it.

  trained     parameters that are all-reduced, in millions (generator's step + discriminator's)
  sent        megabytes that each GPU sends in a step: 2 (W - 1) / W times 4 bytes a parameter, twice, since DDP
              exchanges all buckets in the backward pass of either optimizer's step
  compute     seconds of a step without communication: FLOPs over --tflops, backward twice the forward
  efficiency  images per second over W times one GPU's, within a node of 8 (NVLink) and across (InfiniBand; Ethernet)
"""

import argparse
from dataclasses import dataclass

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from faceanon.backbones.dbaf import KRIA
from faceanon.networks.attention import MAAR, LayerTransformer
from faceanon.networks.discriminator import Discriminator
from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.irse import IRSE
from faceanon.networks.stylegan2 import Generator

SIZE, NODE, WORLDS = 256, 8, (1, 2, 4, 8, 16, 32, 64)
NVLINK, LINK_LATENCY, BUCKET = 300e9, 15e-6, 25e6  # bytes/s of a ring, s of a collective's hop, bytes of DDP's buckets
BETWEEN = {"8 x 400 Gb/s": 8 * 40e9, "100 Gb/s": 11e9, "10 Gb/s": 1.1e9}  # bytes/s that a node of 8 sends


@dataclass(frozen=True)
class Step:
    """A training step: what it reduces, and what it computes.

    Args:
        name: The stage.
        generator: Parameters that its first optimizer trains.
        discriminator: Parameters of the second.
        flops: Of one picture's step.
    """

    name: str
    generator: int
    discriminator: int
    flops: float

    @property
    def trained(self) -> int:
        """Parameters whose gradients are exchanged."""
        return self.generator + self.discriminator


def parameters(*modules: nn.Module) -> int:
    """Number of parameters."""
    return sum(item.numel() for module in modules for item in module.parameters())


def forward_flops(call: nn.Module, *shape: int) -> float:
    """FLOPs of one forward pass on one item."""
    call.eval().requires_grad_(False)
    with FlopCounterMode(display=False) as counter:
        call(torch.empty(1, *shape))
    return float(counter.get_total_flops())


def steps() -> list[Step]:
    """The adversarial stages of DBAF's paper, and the prior's."""
    generator, encoder = Generator(SIZE), Encoder4Editing()
    discriminator, recogniser = Discriminator(SIZE), IRSE()
    cid = LayerTransformer(generator.n_latent, 512, 6, 14, 64, 2048, 0.1, "layers")
    maar, kria = MAAR(encoder.feature_channels, generator.channels), nn.ModuleList(KRIA(512) for _ in range(3))
    g, e = forward_flops(generator, 512), forward_flops(encoder, 3, SIZE, SIZE)
    d, r = forward_flops(discriminator, 3, SIZE, SIZE), forward_flops(recogniser, 3, 112, 112)
    critic = parameters(discriminator)
    # Forward passes; a backward pass is two more. The recogniser stands for all frozen networks of the losses. R1's
    # forward, gradient and double backward, some six passes, come every 16th batch.
    return [
        Step("prior", parameters(generator, encoder), critic, 3 * (1.5 * g + e) + r * 4 + d * (3 * 3 + 6 / 16)),
        Step("DBAF stage 1", parameters(cid, maar), critic, 3 * g + e + r * 4 + d * (3 * 3 + 6 / 16)),
        Step("DBAF stage 2", parameters(cid, maar, kria), critic, 3 * 5 * g + 4 * e + r * 16 + d * (3 * 11 + 6 / 16)),
        Step(
            "DBAF stage 2, all but the encoder",
            parameters(cid, maar, kria, generator),
            critic,
            3 * 5 * g + 4 * e + r * 16 + d * (3 * 11 + 6 / 16),
        ),
    ]


def reduce_seconds(size: float, world: int, between: float) -> float:
    """An all-reduce of `size` bytes: rings of NVLink within the nodes, and one of all their links between them."""
    inside, nodes = min(world, NODE), max(1, world // NODE)
    seconds = 2 * (inside - 1) / inside * size / NVLINK + 2 * (nodes - 1) / nodes * size / between
    return seconds + LINK_LATENCY * 2 * (inside - 1 + nodes - 1)


def efficiency(step: Step, world: int, batch: int, tflops: float, between: float, overlap: float) -> float:
    """Share of the GPUs' time that computes.

    All but the last bucket can travel while the backward pass goes on, which is two thirds of a step; `overlap` is the
    share of that time in which it does.
    """
    compute = step.flops * batch / (tflops * 1e12)
    exposed = 0.0
    for _ in range(2):  # the two optimizers' steps, taken to be alike
        size, hidden = 4.0 * step.trained, overlap * compute / 2 * 2 / 3
        last = min(size, BUCKET)
        exposed += reduce_seconds(last, world, between) + max(0.0, reduce_seconds(size - last, world, between) - hidden)
    return compute / (compute + exposed * (world > 1))


def memory(step: Step) -> tuple[float, float]:
    """Gigabytes of weights, gradients and Adam's two moments in fp32, and of the averaged copy."""
    return 16 * step.trained / 1e9, 4 * step.generator / 1e9


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tflops", type=float, default=100, help="that a GPU reaches in these steps (default: 100)")
    parser.add_argument("--batch", type=int, default=8, help="pictures a GPU (default: 8)")
    parser.add_argument("--overlap", type=float, default=0.7, help="of communication with the backward pass (0.7)")
    options = parser.parse_args()
    with FakeTensorMode():
        found = steps()
    print(f"| stage at {SIZE} px | trained, M | TFLOP a picture | compute, s | state, GB | average, GB |")
    print("|---|---|---|---|---|---|")
    for step in found:
        compute, (state, average) = step.flops * options.batch / options.tflops / 1e12, memory(step)
        counts = f"{step.generator / 1e6:.1f} + {step.discriminator / 1e6:.1f}"
        print(f"| {step.name} | {counts} | {step.flops / 1e12:.2f} | {compute:.3f} | {state:.1f} | {average:.1f} |")
    for name, between in BETWEEN.items():
        print(f"\nBetween nodes: {name}\n")
        print("| GPUs | sent, MB: " + " | ".join(step.name for step in found) + " |" + " efficiency |" * len(found))
        print("|---" * (1 + 2 * len(found)) + "|")
        for world in WORLDS:
            sent = [f"{2 * 2 * (world - 1) / world * 4 * step.trained / 1e6:.0f}" for step in found]
            share = [efficiency(s, world, options.batch, options.tflops, between, options.overlap) for s in found]
            print("| " + " | ".join([str(world), *sent, *(f"{item:.1%}" for item in share)]) + " |")


if __name__ == "__main__":
    main()
