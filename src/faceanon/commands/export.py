"""Write a trained model for other tools: as ONNX graphs that anonymize and recover, or its networks in public layouts.

  faceanon export --onnx exported/ --model runs/dbaf_s2/model      # then: faceanon anonymize --model exported/ ...
  faceanon export --onnx small/ --model runs/dbaf_s2/model --quantize
  faceanon export --layout public exported/ --model runs/real/stage2/model

--onnx writes anonymize.onnx and recover.onnx, each from a picture and a key to a picture, with a batch of any size, and
onnx.json beside them. They are compared with torch in onnxruntime first, and not written where they differ. The folder
opens what the model anonymized, and the other way round. --quantize keeps weights of matrix products in 8 bits and
prints what that costs.

--layout public writes two files of plain tensors, which load with torch.load(..., weights_only=True):
  generator.pt  StyleGAN2 as in rosinality's stylegan2-pytorch: g_ema, latent_avg
  encoder.pt    e4e or pSp as their training writes it: state_dict (encoder.*, decoder.*), latent_avg, opts
What anonymizes, the part between encoder and generator, has no public layout and stays out.

--model names a trained model: the folder that training exported, a .ckpt, or a name in checkpoints/. --layout takes a
bundle too.
Exit code: 0 done, 1 failed, 2 wrong usage or input (nothing is written).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faceanon.commands._typed import typed
from faceanon.errors import UserError


@dataclass(frozen=True)
class ExportOptions:
    """What is exported, and where to.

    Args:
        output: Words of the command line that name the folder for `layout`.
        layout: Layout of the networks' files; None: ONNX graphs are written.
        onnx: Folder of the ONNX graphs; None: `layout` is written.
        model: Folder, shipped name, .ckpt or bundle; None: the model that ships.
        quantize: Whether weights of matrix products are kept in 8 bits.
        overwrite: Whether files may exist.
    """

    output: list[Path]
    layout: str | None
    onnx: Path | None
    model: str | None
    quantize: bool
    overwrite: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument("output", metavar="OUT", nargs="*", type=Path, help="with --layout: folder; made if missing")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--layout", choices=sorted(LAYOUTS), help="write the networks in this layout")
    what.add_argument("--onnx", metavar="OUT", type=Path, help="write ONNX graphs into this folder; made if missing")
    parser.add_argument("--model", metavar="MODEL", help="what to export (--onnx alone: the model that ships)")
    parser.add_argument("--quantize", action="store_true", help="with --onnx: weights of matrix products in int8")
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")


def run(args: argparse.Namespace) -> int:
    """Write the model and print what was written.

    Raises:
        UserError: The model is missing or cannot be exported so, or the folder cannot be written.
    """
    options = typed(ExportOptions, args)
    for line in _written(options):
        print(line)
    return 0


def _written(options: ExportOptions) -> list[str]:
    """Write, and say what was written."""
    if options.onnx is not None:
        if options.output:
            raise UserError("--onnx OUT names the folder and --model MODEL the model; leave other words out")
        return _onnx(options.model, options.onnx, options.overwrite, options.quantize)
    assert options.layout is not None  # the parser asks for one of the two
    # Former versions took MODEL and OUT as two words; whoever still writes so is told the form of today.
    if len(options.output) > 1 and options.model is None:
        raise UserError(f"use: faceanon export --layout {options.layout} OUT --model MODEL")
    if len(options.output) != 1 or options.model is None:
        raise UserError(f"--layout {options.layout} needs OUT and --model MODEL")
    if options.quantize:
        raise UserError("--quantize belongs to --onnx")
    return LAYOUTS[options.layout](options.model, options.output[0], options.overwrite)


def _onnx(model: str | None, output: Path, overwrite: bool, quantize: bool) -> list[str]:
    from faceanon.interop.onnx.export import check_free, export_onnx, quantized, write_onnx
    from faceanon.models import default_model, load_backbone

    check_free(output, overwrite)  # before minutes are spent
    path = default_model() if model is None else Path(model)
    backbone, weights = load_backbone(path)
    exported = export_onnx(backbone, weights, path.name)
    if quantize:
        exported = quantized(exported)
    lines = []
    for written in write_onnx(exported, output, overwrite):
        lines.append(f"{written} ({written.stat().st_size / 1e6:.1f} MB)")
    card = exported.card
    lines.append(f"opset {card.opset}, {card.precision}, weights {card.weights[:12]}")
    for name, figure in card.figures.items():
        # Figures are named by kind and way, such as `max_abs_error/recover`.
        what, _, way = name.partition("/")
        if what == "max_abs_error":
            lines.append(f"{way}: largest difference from torch {figure:.2g}, in [-1, 1], at batch 1 and 3 in float32")
        else:
            lines.append(f"{way}: int8 against float32 {figure:.1f} dB PSNR, of 8-bit pictures")
    return lines


def _public(model: str, output: Path, overwrite: bool) -> list[str]:
    from faceanon.interop.public.export import has_public_widths, write_public
    from faceanon.models import read_exportable

    parts = read_exportable(model)
    lines = []
    for written in write_public(parts, output, overwrite):
        lines.append(f"{written} ({written.stat().st_size / 1e6:.1f} MB)")
    if not has_public_widths(parts):
        lines.append("note: narrower or wider than the public networks; tools that fix their widths must be told these")
    return lines


LAYOUTS: dict[str, Callable[[str, Path, bool], list[str]]] = {"public": _public}
"""What `--layout` offers: model, folder and whether to overwrite, to the lines that say what was written."""
