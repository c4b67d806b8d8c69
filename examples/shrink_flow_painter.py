"""Make Persona's redrawer: python examples/shrink_flow_painter.py PAINTER OUT --root FOLDER ... --minutes 10.

PAINTER is what examples/train_flow_painter.py wrote. At the end of its flow, where a picture is nearly a face, a
network of a sixth of its size learns to give the same directions (networks/face_redrawer.py). It begins with the
weights that both share. OUT gets the redrawer's weights in four bits; `landmarks.redrawer` reads such a file. Prints
the error on pictures kept for the test, of the painter and of the redrawer. One processor core will do.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from train_flow_painter import Faces, all_versions, direction_of, split_paths

from faceanon.backbones.persona import MAPS, POSE, Persona
from faceanon.data.prepared import shipped_test
from faceanon.files import load_tensors, save_tensors
from faceanon.landmarks.redrawing import MIXTURES
from faceanon.losses.light import TERMS
from faceanon.networks.face_redrawer import FaceRedrawer, begin_from
from faceanon.networks.flow_painter import FlowPainter, flow_error
from faceanon.weights.compact import fits_int4

ROWS = 16
RATE = 6e-4
WARM = 100  # batches until the full learning rate
HALF_LIFE = 150  # batches, of the averaged weights
EARLIEST = min(start for start, _ in MIXTURES) - 0.05  # times that the redrawer learns, from here to 1
TESTED = 60  # pictures kept for the test that are looked at


def error_on(network: nn.Module, faces: Faces) -> float:
    """Mean error of directions at the end of the flow on pictures kept for the test, the same noise always."""
    random = torch.Generator().manual_seed(1)
    errors = []
    with torch.no_grad():
        for rows in torch.arange(len(faces)).split(64):
            codes = faces.codes(rows, train=False)
            assert codes.latents is not None
            assert codes.mask is not None
            noise = torch.randn(codes.latents.shape, generator=random)
            at = MIXTURES[0][0] + (1 - MIXTURES[0][0]) * torch.rand(len(rows), generator=random)
            errors.append(flow_error(direction_of(network, codes), codes.latents, codes.mask, noise, at))
    return float(torch.cat(errors).mean())


def difference(redrawer: nn.Module, painter: nn.Module, faces: Faces) -> Tensor:
    """Mean squared difference of the two networks' directions on a batch of training faces."""
    rows = torch.randint(len(faces), (ROWS,))
    codes = faces.codes(rows, train=True)
    assert codes.mask is not None
    latents = faces.latents[rows].float()
    at = EARLIEST + (1 - EARLIEST) * torch.rand(ROWS)
    share = at[:, None, None, None]
    mixed = (1 - share) * torch.randn_like(latents) + share * latents
    with torch.no_grad():
        wanted = direction_of(painter, codes)(mixed, at)
    off = (direction_of(redrawer, codes)(mixed, at) - wanted).square() * codes.mask
    return (off.sum((1, 2, 3)) / codes.mask.sum((1, 2, 3)) / latents.shape[1]).mean()


def main() -> None:
    """Prepare, train, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("painter", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", nargs="+", required=True, help="folders of aligned photographs")
    parser.add_argument("--minutes", type=float, default=10.0, help="of training (10)")
    options = parser.parse_args()
    torch.manual_seed(0)
    learnt, tested = split_paths(options.root)
    method = Persona()
    held_out = shipped_test(method.bundle)
    method.train()
    # The photograph itself, and one version in other light.
    faces = Faces(all_versions(learnt, (0, 2)), method, held_out)
    kept = Faces(all_versions(tested[:TESTED], (0, 2)), method, None)
    condition = method.identities.size + 3 * TERMS + POSE
    painter = FlowPainter(maps=MAPS, condition=condition).eval().requires_grad_(False)
    painter.load_state_dict({name: tensor.float() for name, tensor in load_tensors(options.painter).items()})
    redrawer = FaceRedrawer(maps=MAPS, condition=condition)
    begin_from(redrawer, painter)
    average = copy.deepcopy(redrawer).requires_grad_(False).eval()
    optimizer = torch.optim.AdamW(redrawer.parameters(), RATE, (0.9, 0.99), weight_decay=0.01)
    begun, batch, past = time.monotonic(), 0, 0.0
    while past < 1:
        optimizer.param_groups[0]["lr"] = RATE * min(1, (batch + 1) / WARM) * (1 + math.cos(math.pi * past)) / 2
        loss = difference(redrawer, painter, faces)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(redrawer.parameters(), 1.0)
        optimizer.step()
        batch += 1
        share = 1 - 0.5 ** (1 / HALF_LIFE) if batch > WARM else 1.0
        torch._foreach_lerp_(list(average.parameters()), list(redrawer.parameters()), share)
        past = (time.monotonic() - begun) / 60 / options.minutes
    weights = {name: tensor.contiguous() for name, tensor in average.state_dict().items()}
    int4 = [name for name, tensor in weights.items() if fits_int4(tensor)]
    digest = save_tensors(options.out, weights, half=True, int8=True, int4=int4)
    print(f"{batch} batches; error {error_on(average, kept):.4f}, of the painter {error_on(painter, kept):.4f}")
    print(f"{options.out}: {options.out.stat().st_size} bytes, sha256 {digest}")


if __name__ == "__main__":
    main()
