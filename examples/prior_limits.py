"""What holds the prior's reconstructions back, encoder or generator: python examples/prior_limits.py [BUNDLE] [STEPS].

Takes 40 held-out pictures through encoder and generator, then improves their W+ codes by gradient descent for STEPS
steps (default 200) with the generator as it is. What descent gains, a better encoder could gain; what is missing then,
only a better generator can bring.
"""

import sys

import torch
from torch import Tensor

from faceanon.data.synthetic.datamodule import SyntheticFaces
from faceanon.metrics.quality import psnr
from faceanon.metrics.recognition import threshold_at_far
from faceanon.weights.bundle import Bundle

PICTURES = 40


def fidelity(drawn: Tensor, image: Tensor) -> float:
    """Mean PSNR in dB of pictures in [-1, 1]."""
    error = ((drawn.clamp(-1, 1) - image) / 2).square().flatten(1).mean(1)
    return float(psnr(error).mean())


def main() -> None:
    """Print both."""
    bundle = Bundle(sys.argv[1] if len(sys.argv) > 1 else "synth64")
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    data = SyntheticFaces(train_groups=8, test_identities=200, photos=2, batch_size=40)
    data.setup("test")
    batches = list(data.test_dataloader())
    image = batches[0].image[:PICTURES]
    generator, encoder = bundle.generator().eval().requires_grad_(False), bundle.encoder().eval()
    with torch.no_grad():
        seen = torch.cat([bundle.judge(batch.image) for batch in batches])
        person = torch.cat([batch.identity for batch in batches])
        threshold = threshold_at_far((seen @ seen.T)[person[:, None] != person], 0.01)
        codes = encoder.with_features(image)[0] + bundle.latent_avg

    def report(name: str, drawn: Tensor) -> None:
        same = (bundle.judge(drawn) * bundle.judge(image)).sum(1) > threshold
        print(f"{name:<28} {fidelity(drawn, image):.1f} dB, self-verification {same.float().mean():.3f}", flush=True)

    with torch.no_grad():
        report("encoder", generator.synthesis(codes))
    codes.requires_grad_(True)
    optimizer = torch.optim.Adam([codes], lr=0.03)
    for _ in range(steps):
        optimizer.zero_grad()
        (generator.synthesis(codes) - image).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        report(f"W+ after {steps} steps", generator.synthesis(codes))


if __name__ == "__main__":
    main()
