"""Do encoder and generator bring faces back? The check that sees a wrong pairing whatever the files are called."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.data.files import list_photos, read_photos
from faceanon.data.prepared import shipped_faces, shipped_pictures
from faceanon.metrics.quality import psnr
from faceanon.metrics.saved import from_bytes
from faceanon.networks.e4e import PyramidEncoder
from faceanon.weights.bundle import Bundle

MOST_FACES = 16
SHIPPED_FACES = 8


@dataclass(frozen=True)
class Reconstruction:
    """How well encoder and generator bring faces back; means over faces.

    Args:
        faces: Number of faces.
        psnr: Decibels between a face and its reconstruction.
        psnr_average: Decibels between a face and the face of the average code, the same for all.
        identity: Cosine of the training recogniser between a face and its reconstruction, None without a recogniser.
        identity_others: The same between a reconstruction and the other faces.
        perceptual: Perceptual distance, None where the bundle has no perceptual network.
    """

    faces: int
    psnr: float
    psnr_average: float
    identity: float | None = None
    identity_others: float | None = None
    perceptual: float | None = None

    @property
    def doubt(self) -> str | None:
        """Why the pairing looks wrong, or None. A right one beats drawing the same average face for everybody."""
        if self.psnr <= self.psnr_average:
            return (
                f"reconstructions are no nearer ({self.psnr:.1f} dB) than one average face ({self.psnr_average:.1f} dB)"
            )
        if self.identity is not None and self.identity_others is not None and self.identity <= self.identity_others:
            return f"reconstructions look no more like their originals ({self.identity:.3f}) than like other faces"
        return None


def sample_faces(folder: Path | None, size: int) -> Tensor:
    """Faces `(N, 3, size, size)` in [-1, 1]: the first pictures of a folder, or of those that ship.

    Raises:
        UserError: No such folder, or a picture in it that cannot be read.
    """
    if folder is not None:
        photos = list_photos(folder, "flat")[:MOST_FACES]
        return from_bytes(torch.from_numpy(read_photos([photo.path for photo in photos], size)))
    bundle = Bundle("photo128")
    return shipped_faces(bundle, shipped_pictures(bundle, "test")[:SHIPPED_FACES], size)


@torch.no_grad()
def reconstruction(bundle: Bundle, faces: Tensor) -> Reconstruction:
    """Encode faces, draw the codes, and compare.

    Args:
        bundle: With generator and encoder.
        faces: `(N, 3, S, S)` in [-1, 1], S the bundle's image size.
    """
    generator = bundle.generator().eval()
    encoder = bundle.build("encoder").eval()
    assert isinstance(encoder, PyramidEncoder)
    average = bundle.latent_avg
    # Such a bundle's generator draws faces in the mesh's frame, so everything is compared there.
    if bundle.frame is not None:
        faces = bundle.frame.cut(faces, bundle.landmarks(faces))
    drawn = torch.empty_like(faces)
    # The same face for everybody: an encoder that is worth anything is nearer than that.
    same = generator.synthesis(average[None]).clamp(-1, 1)
    for row in range(len(faces)):
        face = faces[row : row + 1]
        # An encoder of latents counts its input in cells, and takes pictures as they are.
        if not encoder.has_codec:
            face = _resized(face, encoder.input_size)
        code = encoder.with_features(face)[0] + average
        drawn[row] = generator.synthesis(code)[0].clamp(-1, 1)
    own, others = _identities(bundle, faces, drawn)
    perceptual = None
    if bundle.has("perceptual"):
        perceptual = float(bundle.perceptual(drawn, faces).mean())
    return Reconstruction(len(faces), _psnr(drawn, faces), _psnr(same, faces), own, others, perceptual)


def _resized(image: Tensor, side: int) -> Tensor:
    if image.shape[-1] >= side:
        return F.adaptive_avg_pool2d(image, side)
    return F.interpolate(image, size=(side, side), mode="bilinear", align_corners=False)


def _psnr(image: Tensor, reference: Tensor) -> float:
    return float(psnr((image - reference).square().mean((1, 2, 3)) / 4).mean())  # [-1, 1] to [0, 1]


def _identities(bundle: Bundle, faces: Tensor, drawn: Tensor) -> tuple[float | None, float | None]:
    """Mean cosine of reconstructions with their own originals, and with the other originals."""
    if not bundle.has("recogniser"):
        return None, None
    cosines = bundle.recogniser(drawn) @ bundle.recogniser(faces).T
    own = cosines.diagonal()
    others = None
    if len(faces) > 1:
        others = (cosines.sum() - own.sum()) / (cosines.numel() - len(own))
    if others is None:
        return float(own.mean()), None
    return float(own.mean()), float(others)
