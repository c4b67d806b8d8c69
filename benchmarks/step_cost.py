"""What one training step computes and holds, ours and the reference's, without computing anything.

  python benchmarks/step_cost.py                              # both stages, 256 px, batches 1, 2 and 8
  python benchmarks/step_cost.py --stages s2 --batches 4

DBAF's paper preset on networks of the public size at 256 px. Tensors are shapes alone (PyTorch's FakeTensorMode), so
the figures hang on no machine: GFLOP counts convolutions and matrix products, forward and backward; peak is the most
that tensors hold at one time: networks, gradients, optimizer states and everything a graph keeps. What a convolution
library needs inside of an operation is in neither. Ours is the mean over 16 batches, of which one has R1; its peak is
that one's. `step_speed.py` takes the time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import weakref
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench.public import network_table, write_bundle
from bench.reference_pair import PARTS, Pair
from faceanon.backbones.dbaf import DBAF
from faceanon.losses.early import total
from faceanon.optim import Ranger
from faceanon.stages import AnonymizeStage, DisentangleStage
from faceanon.types import FaceBatch

STAGES: dict[str, Any] = {"s1": DisentangleStage, "s2": AnonymizeStage}
SIZE, SEED, INTERVAL = 256, 0, 16
aten = torch.ops.aten


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts FLOPs, and the bytes of all storages that live."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops: Counter[str] = Counter()
        self.live, self.peak = 0, 0
        self._known: set[int] = set()

    def hold(self, tensor: Tensor) -> None:
        """Count a tensor's storage until it is freed."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        self._known.add(key)
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._freed, key, size)

    def _freed(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self.hold(leaf)
        name = func.overloadpacket.__name__
        self.flops[name] += flops(func, args, out)
        return out


def flops(func: Any, args: Any, out: Any) -> int:  # noqa: ANN401
    """Of one operation; grouped convolutions by what they do."""
    if func is aten.convolution.default:
        return convolution(args[0], args[1], out, transposed=args[6])
    if func is aten.convolution_backward.default:
        gradient, x, weight = args[:3]
        return convolution(x, weight, gradient, transposed=args[7]) * int(sum(args[10][:2]))
    if func in (aten.mm.default, aten.bmm.default):
        return int(2 * args[0].numel() * args[1].shape[-1])
    if func is aten.addmm.default:
        return int(2 * args[1].numel() * args[2].shape[-1])
    return 0


def convolution(x: Tensor, weight: Tensor, out: Tensor, transposed: bool) -> int:
    """Twice the multiplications; `weight` is `(O, I / groups, k, k)`, or `(I, O / groups, k, k)` where transposed."""
    return 2 * (x if transposed else out).numel() * weight[0].numel()


def build(name: str, bundle: Path) -> Pair:
    """A stage as the preset has it, of shapes alone."""
    backbone = DBAF(str(bundle), cid_form="levels", maar_form="cbam")  # as the released trainer has it
    stage = STAGES[name](backbone, r1_interval=INTERVAL).train()
    _ = stage.bundle.recogniser, stage.bundle.parser, stage.bundle.perceptual
    return Pair(stage, PARTS[name], lambda p: Ranger(p, lr=1e-4), lambda p: Ranger(p, lr=1e-4))


def no_tensors(*_: object) -> dict[str, Tensor]:
    """What stands for a file."""
    return {"latent_avg": torch.zeros(14, 512)}


def cost(name: str, side: str, batch: int, bundle: Path) -> tuple[int, int, int]:
    """FLOPs of a step with R1, those of its R1 alone (ours), and peak bytes."""
    alone: list[int] = []
    with (
        FakeTensorMode(),
        mock.patch("faceanon.weights.bundle.load_strictly"),
        mock.patch("faceanon.weights.bundle.load_tensors", no_tensors),
        # Shapes cannot be copied ...
        mock.patch("faceanon.stages.backbone_stage.average_copy", lambda module: module),
        mock.patch("faceanon.backbones.dbaf.deepcopy", lambda module: module),
        mock.patch.object(torch.nn.Module, "to", lambda module, *_: module),  # ... or moved
        Ledger() as ledger,
    ):
        pair = build(name, bundle)

        def noting(*args: Any) -> Tensor:  # noqa: ANN401
            before = ledger.flops.total()
            found = total(*args)
            alone.append(ledger.flops.total() - before)
            return found

        labels = torch.arange(batch)
        faces = FaceBatch(torch.zeros(batch, 3, SIZE, SIZE), labels, labels)
        ledger.flops.clear()
        ledger.peak = ledger.live
        with mock.patch("faceanon.stages.base.total", noting):
            getattr(pair, side)(faces, SEED)
    return ledger.flops.total(), sum(alone[1:]), ledger.peak


def row(name: str, batch: int, bundle: Path) -> str:
    """One line of the table."""
    reference, _, reference_peak = cost(name, "reference", batch, bundle)
    whole, r1, peak = cost(name, "ours", batch, bundle)
    theirs, ours = reference / 1e9, (whole - r1 * (INTERVAL - 1) / INTERVAL) / 1e9
    figures = f"{theirs:.0f} | {ours:.0f} | {theirs / ours:.2f} | {reference_peak / 2**30:.2f} | {peak / 2**30:.2f}"
    return f"| {name} | {batch} | {figures} | {peak / reference_peak:.0%} |"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", nargs="+", choices=sorted(STAGES), default=sorted(STAGES))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 2, 8])
    given = parser.parse_args()
    print("| stage | batch | reference, GFLOP | ours, GFLOP | ratio | reference, peak GiB | ours, peak GiB | share |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        bundle = write_bundle(Path(folder), network_table(SIZE), files=False)
        for name in given.stages:
            for batch in given.batches:
                print(row(name, batch, bundle), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
