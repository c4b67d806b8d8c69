"""A mapping network that is fitted, not trained: a mixture of Gaussians over the w of photographs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LOCAL = 0.8  # of a cluster's deviations; the full ones draw contrasts that no photograph has
MEMBERS = 16  # codes of a cluster at least, on average
LARGEST = 10.0  # of the numbers of a normal distribution
ROUNDS = 20  # of k-means


class MixtureMapping(nn.Module):
    """Draw w near those of some photographs: the first number of z picks a cluster of them, the next move inside it.

    One Gaussian over all photographs draws faces that are double at hair and collar, since its people are the sum of
    photographs that have little in common. Photographs of a cluster have much in common.

    Args:
        dim: Width D of z and w.
        clusters: Clusters K.
        factors: Directions R inside each, less than D.

    Attributes:
        edges: `(K - 1,)`, rising; the first number of z between two of them picks a cluster.
        means: `(K, D)`.
        factors: `(K, R, D)`; each of the length of one deviation.

    Examples:
        >>> import torch
        >>> from faceanon.networks.mixture_mapping import MixtureMapping
        >>> mapping = MixtureMapping(dim=8, clusters=3, factors=2)
        >>> mapping.fit(torch.randn(60, 8))
        >>> mapping(torch.randn(4, 8)).shape
        torch.Size([4, 8])
    """

    edges: Tensor
    means: Tensor
    factors: Tensor

    def __init__(self, dim: int, clusters: int, factors: int) -> None:
        super().__init__()
        if clusters < 1 or not 0 <= factors < dim:
            raise ValueError(f"{clusters} clusters with {factors} factors: at least 1, and fewer than {dim}")
        self.register_buffer("edges", _edges(torch.ones(clusters)))
        self.register_buffer("means", torch.zeros(clusters, dim))
        self.register_buffer("factors", torch.zeros(clusters, factors, dim))

    def forward(self, z: Tensor) -> Tensor:
        """Z `(B, D)` of a normal distribution to w `(B, D)`."""
        picked = (z[:, :1] >= self.edges).sum(1)
        inside = z[:, 1 : 1 + self.factors.shape[1]]
        return self.means[picked] + torch.einsum("br,brd->bd", inside.to(self.factors.dtype), self.factors[picked])

    @torch.no_grad()
    def fit(self, codes: Tensor, strength: Tensor | None = None, seed: int = 0) -> None:
        """Become the mixture of some codes.

        Args:
            codes: `(M, D)` of photographs. Of few codes fewer clusters are made, so that none is a single photograph.
            strength: `(D,)`; how much a number of a code changes the picture. Clusters are near by that.
            seed: Start of the random numbers.
        """
        clusters, count, _ = self.factors.shape
        used = max(1, min(clusters, len(codes) // MEMBERS))
        codes = codes.float()
        near = codes if strength is None else codes * strength
        labels = _k_means(near, used, seed)
        self.factors.zero_()
        sizes = torch.bincount(labels, minlength=clusters)
        for index in range(clusters):
            members = codes[labels == index]
            if not len(members):
                # Its edges are equal, so nothing is drawn from it.
                continue
            mean = members.mean(0)
            self.means[index] = mean
            _, lengths, directions = torch.linalg.svd(members - mean, full_matrices=False)
            kept = min(count, len(lengths))
            # A singular value over the root of the count is the standard deviation along its direction.
            scaled = directions[:kept] * lengths[:kept, None] / len(members) ** 0.5
            self.factors[index, :kept] = LOCAL * scaled
        self.edges.copy_(_edges(sizes))


def _edges(sizes: Tensor) -> Tensor:
    """Where a normal distribution is cut into parts `(K,)` of these sizes."""
    shares = sizes.double().cumsum(0)[:-1] / sizes.sum()
    # No z is beyond; a file holds finite numbers.
    edges: Tensor = torch.special.ndtri(shares)
    return edges.clamp(-LARGEST, LARGEST).float()


def _k_means(points: Tensor, clusters: int, seed: int) -> Tensor:
    """Number `(M,)` of each point's cluster, for points `(M, D)`."""
    start = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))[:clusters]
    centres = points[start.to(points.device)].clone()
    for _ in range(ROUNDS):
        labels = torch.cdist(points, centres).argmin(1)
        for index in range(clusters):
            members = points[labels == index]
            # A cluster that lost all its points stays where it was.
            if len(members):
                centres[index] = members.mean(0)
    return torch.cdist(points, centres).argmin(1)
