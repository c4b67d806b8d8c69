"""Every metric with input for 64 rows, so that one test can deal the rows out in any way."""

from __future__ import annotations

import json
import os
import sys

import torch
from metric_fakes import FakeBundle, Shift, faces
from torch import Tensor
from torch.nn import functional as F

from faceanon.metrics.detection import DetectorAgreement
from faceanon.metrics.diversity import KeyAngle, KeySpread
from faceanon.metrics.evaluation import Evaluation
from faceanon.metrics.features import FrechetDistance, KernelDistance
from faceanon.metrics.pictures import PictureCheck
from faceanon.metrics.quality import ImageQuality, MaskedPSNR, Mean
from faceanon.metrics.recognition import Identification, PairSimilarity, Verification
from faceanon.metrics.utility import LandmarkDistance, ParsingIoU
from faceanon.photo.detect import Detection
from faceanon.types import FaceBatch

ROWS = 64
generator = torch.Generator().manual_seed(0)


def rand(*shape: int) -> Tensor:
    return torch.rand(ROWS, *shape, generator=generator)


IDENTITY = torch.arange(ROWS) // 4
CENTRE = torch.randn(16, 8, generator=generator)[IDENTITY]
FIRST = F.normalize(CENTRE + 0.7 * torch.randn(ROWS, 8, generator=generator))
SECOND = F.normalize(CENTRE + 0.7 * torch.randn(ROWS, 8, generator=generator))
IMAGE, OTHER = rand(3, 16, 16) * 2 - 1, rand(3, 16, 16) * 2 - 1
LABELS = (rand(2, 6, 6) * 4).long()
POINTS = rand(5, 2) - 0.5
FACES = [None if i % 5 == 0 else Detection((i, 0, 30 + i, 40), 0.9, POINTS[i].double().numpy()) for i in range(ROWS)]
BATCH = FaceBatch(IMAGE, IDENTITY, IDENTITY)

# name: how it is made, and its input for some rows
CASES = {
    "quality": (ImageQuality, lambda r: (IMAGE[r], OTHER[r], POINTS[r, 0, 0])),
    "masked": (MaskedPSNR, lambda r: (IMAGE[r], OTHER[r], IMAGE[r, 0] > 0)),
    "mean": (Mean, lambda r: (POINTS[r, 0, 0],)),
    "verification": (lambda: Verification(0.1), lambda r: (FIRST[r], IDENTITY[r])),
    "pairs": (PairSimilarity, lambda r: (FIRST[r], SECOND[r])),
    "identification": (Identification, lambda r: (SECOND[r], FIRST[r], IDENTITY[r])),
    "kffa": (KeyAngle, lambda r: (torch.stack([FIRST[r], SECOND[r]], 1),)),
    "spread": (KeySpread, lambda r: (torch.stack([FIRST[r], SECOND[r], -FIRST[r]], 1),)),
    "fid": (lambda: FrechetDistance(8), lambda r: (FIRST[r], SECOND[r])),
    "kid": (lambda: KernelDistance(10, 20), lambda r: (FIRST[r], SECOND[r])),
    "iou": (lambda: ParsingIoU(4, (1,)), lambda r: (LABELS[r, 0], LABELS[r, 1])),
    "landmarks": (lambda: LandmarkDistance(64), lambda r: (POINTS[r], POINTS[[(i + 1) % ROWS for i in r]])),
    "detector": (DetectorAgreement, lambda r: ([FACES[i] for i in r], [FACES[(7 * i) % ROWS] for i in r])),
    "pictures": (PictureCheck, lambda r: (BATCH.map(lambda t: t[r]),)),
}


def flat(value: object) -> list[float]:
    """Any result as a list of numbers; long tensors sorted, since the order of rows is nobody's promise."""
    if isinstance(value, dict):
        return [item for name in sorted(value) for item in flat(value[name])]
    if isinstance(value, Tensor):
        return sorted(value.double().flatten().tolist())
    if isinstance(value, (list, tuple)):
        return [item for one in value for item in flat(one)]
    return [float(int(value[:8], 16)) if isinstance(value, str) else float(value)]


def result(name: str, parts: list[list[int]]) -> list[float]:
    """A metric over these rows, part by part."""
    make, rows = CASES[name]
    metric = make()
    for part in parts:
        metric.update(*rows(part))
    return flat(metric.compute())


def evaluation(rows: list[int], size: int = 7) -> Evaluation:
    """The whole evaluation of a small ideal method over these of the 36 fake faces."""
    found, batch = Evaluation(FakeBundle(), kffa_keys=2), faces()
    for start in range(0, len(rows), size):
        found.update(batch.map(lambda t, s=start: t[rows[s : s + size]]), Shift())
    found.compute()
    return found


def main(folder: str, rank: int) -> None:
    """One of two processes; the first writes what both found."""
    store = f"file://{folder}/store"
    torch.distributed.init_process_group("gloo", init_method=store, world_size=2, rank=rank)
    torch.set_num_threads(1)
    deals = {"stretches": [list(range(40)), list(range(40, ROWS))], "turns": [list(range(i, ROWS, 2)) for i in (0, 1)]}
    found = {
        f"{name}/{deal}": result(name, [shares[rank][:9], shares[rank][9:]])
        for name in CASES
        for deal, shares in deals.items()
    }
    whole = evaluation([list(range(20)), list(range(20, 36))][rank])
    found["figures"], found["ci"], found["meta"] = whole.figures, whole.ci, whole.meta
    if rank == 0:
        with open(os.path.join(folder, "found.json"), "w") as file:  # noqa: PTH118, PTH123
            json.dump(found, file)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
