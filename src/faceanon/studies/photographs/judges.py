"""Who says whether two pictures show one person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.errors import UserError
from faceanon.files import load_strictly, sha256
from faceanon.metrics.recognition import Similarity, impostor_pairs, pair_scores, threshold_at_far
from faceanon.networks.adapters import Normalised
from faceanon.networks.dlib_resnet import RECOGNISER, DlibResNet, model_folder
from faceanon.networks.frozen import Frozen
from faceanon.networks.local_weights import refuse_bomb
from faceanon.networks.mobileface import INPUT_SIZE, MobileFaceNet
from faceanon.weights.bundle import Bundle

# Rows and columns of a 256 px FFHQ frame that MobileFaceNet looks at: ArcFace's square from x 35.4, y 27.9 with a side
# of 189.3 px, less 8 of its 112 columns on the left and on the right.
MOBILEFACENET_CROP = (0.108984, 0.848438, 0.191099, 0.824916)
FAR = 1e-2


@dataclass(frozen=True)
class Judge:
    """A recogniser that compares pictures.

    Args:
        name: In tables and results.
        embed: `(B, 3, S, S)` in [-1, 1] -> `(B, E)`.
        similarity: `cosine` of two embeddings, or their negative `euclidean` distance; the higher, the more alike.
        white_box: Whether models may have been trained against this very recogniser.
        digest: Changes with the weights; the cache of embeddings goes by it.
    """

    name: str
    embed: Callable[[Tensor], Tensor]
    similarity: Similarity = "cosine"
    white_box: bool = False
    digest: str = ""

    def prepared(self, embedding: Tensor) -> Tensor:
        """Embeddings `(..., E)` as `metrics.recognition` compares them: of unit length where cosines compare."""
        if self.similarity == "cosine":
            return F.normalize(embedding, dim=-1)
        return embedding

    def impostors(self, embedding: Tensor, person: Tensor) -> Tensor:
        """Scores of pairs of different persons, `(P,)`, of embeddings `(N, E)` and labels `(N,)`."""
        return pair_scores(self.prepared(embedding), impostor_pairs(person), self.similarity)

    def threshold(self, embedding: Tensor, person: Tensor) -> float:
        """The score from which on two pictures count as one person: `FAR` of different persons' pairs reach it.

        Args:
            embedding: `(N, E)` of originals.
            person: `(N,)`, whose they are.
        """
        return threshold_at_far(self.impostors(embedding, person), FAR)


def _on(device: torch.device | str, network: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A network that computes on `device`, for pictures and embeddings on the CPU."""
    return lambda image: network(image.to(device)).cpu()


def mobilefacenet(weights: Path, device: torch.device | str = "cpu") -> Judge:
    """MobileFaceNet from its public checkpoint, which is the user's to bring.

    Args:
        weights: A `.ckpt` whose entry `net_state_dict` holds the network.
        device: Where it computes.

    Raises:
        UserError: The file is missing, or is no such checkpoint.
    """
    advice = "give the public checkpoint of MobileFaceNet (068.ckpt)"
    # Before torch reads the file, which may unpack to far more than it holds.
    refuse_bomb(weights)
    try:
        state = torch.load(weights, map_location="cpu", weights_only=True)
        tensors = state["net_state_dict"]
    except OSError as error:
        raise UserError(f"cannot read {weights} ({error.strerror}): {advice}") from error
    except Exception as error:  # a damaged file makes torch raise whatever it stumbles over
        raise UserError(f"{weights} is no checkpoint of MobileFaceNet ({type(error).__name__}): {advice}") from error
    net = MobileFaceNet()
    load_strictly(net, tensors, str(weights))
    network = Frozen(Normalised(net, INPUT_SIZE, MOBILEFACENET_CROP)).to(device)
    return Judge("MobileFaceNet", _on(device, network), digest=sha256(weights)[:16])


def dlib_resnet() -> Judge:
    """Dlib's recogniser, by euclidean distance; its weights come with a package of their own.

    Raises:
        UserError: The package is not installed.
    """
    network = DlibResNet()
    return Judge("dlib", Frozen(network), "euclidean", digest=sha256(model_folder() / RECOGNISER)[:16])


def shipped_recogniser(bundle: Bundle, trained_with: Bundle | None) -> Judge:
    """The training recogniser of a bundle, as a judge.

    Args:
        bundle: Whose recogniser; it computes where the bundle's networks are.
        trained_with: The bundle of the model under study. Where its recogniser is the same, the model may have learnt
            it by heart, and the judge is a white box.
    """
    digest = _recogniser_digest(bundle)
    white_box = (
        trained_with is not None and trained_with.has("recogniser") and _recogniser_digest(trained_with) == digest
    )
    return Judge(bundle.recogniser_name, _on(bundle.device, bundle.recogniser), white_box=white_box, digest=digest[:16])


def _recogniser_digest(bundle: Bundle) -> str:
    return str(bundle.entry("recogniser").get("sha256"))
