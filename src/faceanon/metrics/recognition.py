"""Who is recognised as whom: thresholds, match rates, identification. All scores are cosines."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from faceanon.metrics.checks import check_embedding, check_labels, check_same_shape

MAX_PAIRS = 4_000_000
CHUNK = 1024


def threshold_at_far(impostor: Tensor, far: float) -> float:
    """Lowest threshold t with a share of impostor scores `> t` of at most `far`.

    Args:
        impostor: `(P,)` scores of pairs of different people.
        far: False accept rate in (0, 1).

    Raises:
        ValueError: There are no scores, or `far` is not in (0, 1).

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import threshold_at_far
        >>> strangers = torch.linspace(0.0, 0.99, 100)  # cosines of pairs of different people
        >>> threshold = threshold_at_far(strangers, far=0.01)
        >>> (strangers > threshold).float().mean()
        tensor(0.0100)
    """
    if not 0 < far < 1:
        raise ValueError(f"far must lie between 0 and 1, got {far}")
    if impostor.numel() == 0:
        raise ValueError("no impostor pairs: the threshold needs pictures of at least two known people")
    # The tolerance keeps 0.29 * 100, which is 28.999999999999996, from becoming 28.
    allowed = math.floor(far * impostor.numel() + 1e-9)
    # Pairs are accepted above the threshold, so at most `allowed` scores pass, also where several are equal.
    return float(impostor.topk(allowed + 1).values[-1])


def genuine_pairs(identity: Tensor) -> Tensor:
    """Rows `(2, P)` of all pairs of pictures of one known person.

    Args:
        identity: `(N,)`; -1 where unknown.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import genuine_pairs
        >>> genuine_pairs(torch.tensor([7, 7, 8, 7, -1]))
        tensor([[0, 0, 1],
                [1, 3, 3]])
    """
    # An empty start, so that `cat` also works where nobody has two pictures.
    pairs = [identity.new_zeros(2, 0)]
    for label in torch.unique(identity[identity >= 0]):
        own = torch.nonzero(identity == label).squeeze(1)
        pairs.append(own[torch.triu_indices(len(own), len(own), offset=1, device=own.device)])
    return torch.cat(pairs, 1)


def impostor_pairs(identity: Tensor, max_pairs: int = MAX_PAIRS, seed: int = 0) -> Tensor:
    """Rows `(2, P)` of pairs of pictures of different known people: all pairs, or a random part of very many.

    Args:
        identity: `(N,)`; -1 where unknown.
        max_pairs: Above this number of pairs, as many are drawn at random instead.
        seed: Of that draw.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import impostor_pairs
        >>> impostor_pairs(torch.tensor([7, 8, -1, 7]))
        tensor([[0, 1],
                [1, 3]])
    """
    known = torch.nonzero(identity >= 0).squeeze(1)
    count = len(known)
    if count * (count - 1) // 2 <= max_pairs:
        pairs = torch.triu_indices(count, count, offset=1, device=identity.device)
    else:
        # Sorted, so that the draw depends on the people and not on the order in which batches came.
        known = known[identity[known].argsort(stable=True)]
        generator = torch.Generator().manual_seed(seed)
        pairs = torch.randint(count, (2, max_pairs), generator=generator).to(identity.device)
    # A random pair may be of one person, or of a picture with itself. These fall out, so fewer may be left.
    first, second = known[pairs]
    return torch.stack([first, second])[:, identity[first] != identity[second]]


def pair_scores(embedding: Tensor, pairs: Tensor) -> Tensor:
    """Cosines `(P,)` of rows `(2, P)` of unit embeddings `(N, E)`."""
    # In parts: the embeddings of all pairs at once may not fit into memory.
    parts = zip(*(rows.split(CHUNK * CHUNK) for rows in pairs), strict=True)
    cosines = []
    for i, j in parts:
        cosines.append((embedding[i] * embedding[j]).sum(-1))
    return torch.cat([embedding.new_zeros(0), *cosines])


def genuine_scores(embedding: Tensor, identity: Tensor) -> Tensor:
    """Cosines `(P,)` of `genuine_pairs` of `(N, E)` embeddings of unit length."""
    return pair_scores(embedding, genuine_pairs(identity))


def impostor_scores(embedding: Tensor, identity: Tensor, max_pairs: int = MAX_PAIRS, seed: int = 0) -> Tensor:
    """Cosines `(P,)` of `impostor_pairs` of `(N, E)` embeddings of unit length."""
    return pair_scores(embedding, impostor_pairs(identity, max_pairs, seed))


class Verification(Metric):
    """Threshold at a false accept rate, and the true accept rate there, from pictures of known people.

    Args:
        far: Share of impostor pairs that may be accepted.
        max_pairs: See `impostor_scores`.
        seed: See `impostor_scores`.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import Verification
        >>> metric = Verification(far=0.5)
        >>> metric.update(torch.eye(4)[[0, 0, 1, 1]], identity=torch.tensor([0, 0, 1, 1]))
        >>> found = metric.compute()
        >>> len(found["genuine"]), len(found["impostor"]), found["tar"].item()
        (2, 4, 1.0)
    """

    full_state_update = False
    embedding: list[Tensor]
    identity: list[Tensor]

    def __init__(self, far: float = 1e-2, max_pairs: int = MAX_PAIRS, seed: int = 0) -> None:
        super().__init__()
        if not 0 < far < 1:
            raise ValueError(f"far must lie between 0 and 1, got {far}")
        self.far = far
        self.max_pairs = max_pairs
        self.seed = seed
        self.add_state("embedding", default=[], dist_reduce_fx="cat")
        self.add_state("identity", default=[], dist_reduce_fx="cat")

    def update(self, embedding: Tensor, identity: Tensor) -> None:
        """Add `(B, E)` embeddings of original pictures and their `(B,)` labels, -1 where unknown.

        Raises:
            ValueError: Wrong shapes, NaN, or a vector of length zero.
        """
        self.embedding.append(check_embedding("embedding", embedding))
        self.identity.append(check_labels("identity", identity, len(embedding)))

    def compute(self) -> dict[str, Tensor]:
        """Give `impostor` and `genuine` scores, their `*_people`, `identity` `(N,)`, `threshold` and `tar`.

        `threshold` is NaN without impostor pairs, `tar` without genuine or impostor pairs.
        """
        embedding = dim_zero_cat(self.embedding)
        identity = dim_zero_cat(self.identity)
        others = impostor_pairs(identity, self.max_pairs, self.seed)
        same = genuine_pairs(identity)
        impostor = pair_scores(embedding, others)
        genuine = pair_scores(embedding, same)
        if impostor.numel():
            threshold = threshold_at_far(impostor, self.far)
            tar = (genuine > threshold).float().mean()
        else:
            threshold = math.nan
            tar = embedding.new_tensor(math.nan)
        scores = {"impostor": impostor, "genuine": genuine, "identity": identity, "tar": tar}
        people = {"impostor_people": identity[others].T, "genuine_people": identity[same[0]]}
        return {**scores, **people, "threshold": embedding.new_tensor(threshold)}


class PairSimilarity(Metric):
    """Cosine of every pair of rows; `match_rate` makes a rate of it once the threshold is known.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import PairSimilarity, match_rate
        >>> metric = PairSimilarity()
        >>> metric.update(torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))  # anonymized against original
        >>> match_rate(metric.compute(), threshold=0.5)
        tensor([1., 0.])
    """

    full_state_update = False
    cosine: list[Tensor]
    distance: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        for name in ("cosine", "distance"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, embedding: Tensor, reference: Tensor) -> None:
        """Add pairs: `(B, E)` against `(B, E)`, or `(B, P, E)` for P pairs a row.

        Raises:
            ValueError: Different shapes, NaN, or a vector of length zero.
        """
        check_same_shape("embedding", embedding, "reference", reference)
        embedding = check_embedding("embedding", embedding, embedding.ndim)
        reference = check_embedding("reference", reference, reference.ndim)
        self.cosine.append((embedding * reference).sum(-1))
        self.distance.append((embedding - reference).abs().sum(-1))

    def compute(self) -> Tensor:
        """Cosines `(N,)` or `(N, P)` in the order of the updates."""
        return dim_zero_cat(self.cosine)

    def l1(self) -> Tensor:
        """Mean city-block distance of the unit embeddings; inside `sync_context` over all processes."""
        return dim_zero_cat(self.distance).double().mean()


def match_rate(cosine: Tensor, threshold: float) -> Tensor:
    """Share of accepted pairs per row: `(N,)` or `(N, P)` cosines -> `(N,)` in [0, 1].

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import match_rate
        >>> match_rate(torch.tensor([[0.9, 0.1], [0.8, 0.7]]), threshold=0.5)  # two pairs a row
        tensor([0.5000, 1.0000])
    """
    return (cosine > threshold).float().reshape(len(cosine), -1).mean(1)


class Identification(Metric):
    """Find the person of a changed picture among the *other* original pictures.

    Row i of the probes was made from row i of the gallery; that one picture is left out when probe i is looked up, so a
    hit means that the person was found, not the file. Probes whose person has no other picture do not count.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.recognition import Identification
        >>> originals = torch.eye(4)[[0, 0, 1, 1]]
        >>> metric = Identification()
        >>> metric.update(originals, originals, identity=torch.tensor([0, 0, 1, 1]))  # nothing was anonymized
        >>> metric.compute()  # everybody is found at rank 1
        tensor(1.)
    """

    full_state_update = False
    probe: list[Tensor]
    gallery: list[Tensor]
    identity: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        for name in ("probe", "gallery", "identity"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, probe: Tensor, gallery: Tensor, identity: Tensor) -> None:
        """Add `(B, E)` probes, the `(B, E)` originals they were made from, and the `(B,)` labels.

        Raises:
            ValueError: Wrong shapes, NaN, or a vector of length zero.
        """
        check_same_shape("probe", probe, "gallery", gallery)
        self.probe.append(check_embedding("probe", probe))
        self.gallery.append(check_embedding("gallery", gallery))
        self.identity.append(check_labels("identity", identity, len(probe)))

    def compute(self) -> Tensor:
        """Rank-1 rate; NaN where no probe counts."""
        return self.hits().nanmean()

    def _rows(self) -> list[tuple[Tensor, Tensor]]:
        """Per chunk of probes: similarities `(b, N)` with their own picture left out, and who is the same person."""
        probe, gallery, identity = map(dim_zero_cat, (self.probe, self.gallery, self.identity))
        rows = []
        for start in range(0, len(probe), CHUNK):
            similarity = probe[start : start + CHUNK] @ gallery.T
            # A changed picture that is found by its own original proves nothing of other pictures.
            own = torch.arange(len(similarity), device=probe.device)
            similarity[own, own + start] = -math.inf
            label = identity[start : start + CHUNK, None]
            same = (label == identity) & (label >= 0)
            same[own, own + start] = False
            rows.append((similarity, same))
        return rows

    def ranks(self) -> Tensor:
        """Per probe the place of the first picture of its person, 1 the best, NaN where there is none: `(N,)`."""
        ranks = []
        for similarity, same in self._rows():
            # A tie counts as found, so that no attacker looks weaker than he is.
            best = similarity.masked_fill(~same, -math.inf).amax(1, keepdim=True)
            rank = 1 + ((similarity > best) & ~same).sum(1)
            ranks.append(rank.float().masked_fill(~same.any(1), math.nan))
        return torch.cat(ranks)

    def hits(self, rank: int = 1) -> Tensor:
        """Per probe 1 or 0, and NaN where the person has no other picture: `(N,)`.

        Raises:
            ValueError: `rank` is below 1.
        """
        if rank < 1:
            raise ValueError(f"rank must be at least 1, got {rank}")
        ranks = self.ranks()
        return (ranks <= rank).float().masked_fill(ranks.isnan(), math.nan)

    def pairs(self) -> dict[str, Tensor]:
        """Cosines of probes with *other* originals: `genuine`, `impostor`, and their `*_people`, known people only.

        Above `MAX_PAIRS` impostor pairs, every so-many-th is kept.
        """
        identity = dim_zero_cat(self.identity)
        collected: dict[str, list[Tensor]] = {
            "genuine": [],
            "genuine_people": [],
            "impostor": [],
            "impostor_people": [],
        }
        # Every so many pairs, since all of them would not fit into memory.
        step = max(1, len(identity) ** 2 // MAX_PAIRS)
        start = 0
        for similarity, same in self._rows():
            label = identity[start : start + len(similarity)]
            impostors = (label[:, None] != identity) & (label[:, None] >= 0) & (identity >= 0)
            row, column = (indices[::step] for indices in torch.nonzero(impostors, as_tuple=True))
            own, other = torch.nonzero(same, as_tuple=True)
            collected["genuine"].append(similarity[own, other])
            collected["genuine_people"].append(label[own])
            collected["impostor"].append(similarity[row, column])
            collected["impostor_people"].append(torch.stack([label[row], identity[column]], 1))
            start += len(similarity)
        return {name: torch.cat(parts) for name, parts in collected.items()}

    def gallery_rate(self, threshold: float) -> Tensor:
        """Per probe the share of accepted other pictures of its person, NaN where there is none: `(N,)`."""
        hits = []
        for similarity, same in self._rows():
            accepted = ((similarity > threshold) & same).sum(1)
            hits.append(accepted / same.sum(1))  # 0 / 0 is the NaN
        return torch.cat(hits)
