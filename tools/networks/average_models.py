"""Average the weights of a training's checkpoints and of the model that it started from.

    python tools/networks/average_models.py OUT checkpoints/persona_photo128 .4 runs/persona_s2/checkpoints/last.ckpt .6

A generator that trains against a discriminator swings around what it should be. The mean of weights along its way is
calmer than any of them; the moving average in a checkpoint spans only the last some hundred batches.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from faceanon.models import load_backbone, load_into, save_backbone


def averaged(states: list[dict[str, torch.Tensor]], shares: list[float]) -> dict[str, torch.Tensor]:
    """The mean of state dicts of one layout, weighted by shares that sum to 1; whole numbers are the first's."""
    mean = {}
    for name, first in states[0].items():
        mean[name] = first.clone()
        if first.is_floating_point():
            parts = [share * state[name].float() for state, share in zip(states, shares, strict=True)]
            mean[name] = torch.stack(parts).sum(0).to(first.dtype)
    return mean


def main() -> None:
    """Read models and shares, write the mean as a model's folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("base", help="name or folder of a model; says what the result is")
    parser.add_argument("share", type=float, help="its share")
    parser.add_argument("others", nargs="+", help="checkpoint or folder and its share, in turn")
    options = parser.parse_args()
    if len(options.others) % 2:
        parser.error("every checkpoint needs a share")
    shares = [options.share, *(float(text) for text in options.others[1::2])]
    if abs(sum(shares) - 1) > 1e-6:
        parser.error(f"the shares sum to {sum(shares):g}, not to 1")
    backbone = load_backbone(options.base)[0]
    states = [{name: value.clone() for name, value in backbone.state_dict().items()}]
    for path in options.others[::2]:
        load_into(backbone, Path(path))
        states.append({name: value.clone() for name, value in backbone.state_dict().items()})
    backbone.load_state_dict(averaged(states, shares))
    save_backbone(backbone, options.out)
    print(f"mean of {len(states)} models -> {options.out}")


if __name__ == "__main__":
    main()
