"""Write a trained model's networks in a layout that other tools read.

  faceanon export --layout public runs/real/stage2/model exported/
  faceanon export --layout public synth64 exported/

MODEL is a trained model (the folder that training exported, a .ckpt, or a name in checkpoints/) or a bundle.

--layout public writes two files of plain tensors, which load with torch.load(..., weights_only=True):
  generator.pt  StyleGAN2 as in rosinality's stylegan2-pytorch: g_ema, latent_avg
  encoder.pt    e4e or pSp as their training writes it: state_dict (encoder.*, decoder.*), latent_avg, opts
What anonymizes, the part between encoder and generator, has no public layout and stays out.
Exit code: 0 done, 1 failed, 2 wrong usage or input (nothing is written).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument("model", metavar="MODEL", help="trained model or bundle: a folder, a .ckpt, or a name")
    parser.add_argument("output", metavar="OUT", type=Path, help="folder to write to; made if missing")
    parser.add_argument("--layout", choices=sorted(LAYOUTS), required=True, help="what to write")
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")


def run(args: argparse.Namespace) -> int:
    """Write MODEL into OUT and print what was written.

    Raises:
        UserError: MODEL is missing or has no such layout, or OUT cannot be written.
    """
    for line in LAYOUTS[args.layout](args.model, args.output, args.overwrite):
        print(line)
    return 0


def _public(model: str, output: Path, overwrite: bool) -> list[str]:
    from faceanon.weights.public_export import has_public_widths, read_exportable, write_public

    parts = read_exportable(model)
    lines = [f"{path} ({path.stat().st_size / 1e6:.1f} MB)" for path in write_public(parts, output, overwrite)]
    if not has_public_widths(parts):
        lines.append("note: narrower or wider than the public networks; tools that fix their widths must be told these")
    return lines


LAYOUTS: dict[str, Callable[[str, Path, bool], list[str]]] = {"public": _public}
"""What `--layout` offers: model, folder and whether to overwrite, to the lines that say what was written."""
