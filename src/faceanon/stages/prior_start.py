"""What a prior takes from the prepared training faces before its first batch."""

from __future__ import annotations

from collections.abc import Mapping

import lightning as L
import torch
from torch import Tensor

from faceanon.errors import UserError
from faceanon.networks.prior import Prior
from faceanon.quantised import to_int8
from faceanon.stages.draft import fit_mixture
from faceanon.stages.read_back import read_back
from faceanon.weights.bundle import Bundle

READ = 128  # training faces by which it is measured what can be read off saved pictures
READ_AT_ONCE = 16
LEAST_ERROR = 0.05  # of a number of the latents; below, nothing is gained
LEAST_SHARE = 0.05  # of the largest count of a channel that each of its numbers has at least


def training_faces(trainer: L.Trainer) -> Mapping[str, Tensor]:
    """What is prepared of the training pictures, by name: `image`, `latents` and more.

    Raises:
        UserError: The data bring no prepared latents.
    """
    faces = getattr(getattr(trainer, "datamodule", None), "splits", {}).get("train")
    if faces is None:
        raise UserError("a generator with a draft or a mixture starts from prepared latents: data/photo128.yaml")
    prepared: Mapping[str, Tensor] = faces.tensors
    return prepared


@torch.no_grad()
def readable_counts(bundle: Bundle, faces: Mapping[str, Tensor], readable: float) -> Tensor:
    """How much each number of the latents counts, `(C, h, h)`, by what comes back of some training faces.

    Args:
        bundle: Has a codec; its networks lie on the device that computes.
        faces: As of `training_faces`.
        readable: Power of the error by which a number counts less; above 0.
    """
    device = next(bundle.codec.parameters()).device
    few = slice(None, None, -(-len(faces["image"]) // READ))
    image = faces["image"][few].float().div(127.5).sub(1).to(device)
    known = faces["latents"][few].float().to(device)
    errors = []
    for rows in torch.arange(len(image)).split(READ_AT_ONCE):  # type: ignore[no-untyped-call]
        seen = read_back(bundle, image[rows], image[rows], faces["mesh"][few][rows].to(device))
        errors.append(bundle.codec.encode(seen).float() - known[rows])
    error = torch.cat(errors).square().mean(0).sqrt()
    counts = error.clamp(min=LEAST_ERROR) ** -readable
    if bundle.frame is not None:
        # Around the face all is grey: it comes back exactly, and says nothing.
        inside = bundle.frame.face_cells(counts.shape[-1])
        counts[:, ~inside] = counts[:, inside].min()
    counts /= counts.mean()
    # As a small file holds it, which has no room for a number that is far below others of its channel.
    counts = counts.maximum(counts.amax((1, 2), keepdim=True) * LEAST_SHARE)
    steps, scale = to_int8(counts.cpu())
    return steps * scale


def start_mixture(prior: Prior, faces: Mapping[str, Tensor], seed: int) -> None:
    """Fit the mixture of the training pictures' codes, by the encoder as it stands.

    Args:
        prior: Its generator maps through a mixture.
        faces: As of `training_faces`.
        seed: Of the fit.
    """
    # In eval mode: the encoder's batch norms must not learn from these pictures, nor depend on their batches.
    learning = prior.training
    prior.eval()
    fit_mixture(prior.generator, prior.encoder, faces["latents"], seed)
    prior.train(learning)
