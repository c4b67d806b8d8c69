"""Dataclasses that travel between the layers; shape and range per field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from torch import Tensor


def _map(item: object, function: Callable[[Tensor], Tensor]) -> object:
    """Apply `function` to a tensor, or to each tensor of a dict; leave anything else."""
    if isinstance(item, Tensor):
        return function(item)
    if isinstance(item, dict):
        return {name: function(value) for name, value in item.items()}
    return item


@dataclass(frozen=True)
class FaceBatch:
    """Aligned faces with whatever is known about them.

    Args:
        image: `(B, 3, S, S)` float32 in [-1, 1].
        identity: `(B,)` int64 label of the person; -1 where unknown.
        attribute: `(B,)` int64 label of the picture's attribute set (pose, light, ...); -1 where unknown.
        parsing: `(B, S, S)` int64 class of every pixel in the bundle's parsing order, or None.
        latents: `(B, C, h, w)` float32 normalised latents of `image` by the bundle's codec, or None.
        mesh: `(B, 468, 2)` float32 points of the face mesh, (x, y) with the picture's edges at -1 and 1, or None. A
            face that reaches out of the picture has points beyond.
        embedding: `(B, E)` float32 embedding of the person by the training recogniser, of unit length, or None. It may
            come from another picture of the person than `image`.

    Examples:
        >>> import torch
        >>> from faceanon.types import FaceBatch
        >>> unknown = torch.full((4,), -1)
        >>> batch = FaceBatch(torch.zeros(4, 3, 64, 64), identity=torch.tensor([0, 0, 1, 1]), attribute=unknown)
        >>> len(batch)
        4
        >>> batch.map(lambda item: item[:2]).identity.tolist()
        [0, 0]
    """

    image: Tensor
    identity: Tensor
    attribute: Tensor
    parsing: Tensor | None = None
    latents: Tensor | None = None
    mesh: Tensor | None = None
    embedding: Tensor | None = None

    def __len__(self) -> int:
        return self.image.shape[0]

    def map(self, function: Callable[[Tensor], Tensor]) -> FaceBatch:
        """Apply `function` to every tensor, e.g. `lambda t: t[:4]`."""
        mapped = {}
        for f in fields(self):
            mapped[f.name] = _map(getattr(self, f.name), function)
        return replace(self, **mapped)  # type: ignore[arg-type]

    def to(self, device: object) -> FaceBatch:
        """Move every tensor; Lightning calls this. Those in page-locked memory travel while the processor works on."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()))  # type: ignore[call-overload]

    def pin_memory(self) -> FaceBatch:
        """The same in page-locked memory; loaders call this."""
        return self.map(lambda tensor: tensor.pin_memory())


@dataclass(frozen=True)
class Codes:
    """What `Backbone.encode` finds in a face, and all that `Backbone.decode` needs.

    Args:
        identity: `(B, ...)` identity code; its shape is the backbone's own.
        attributes: `(B, L, D)` attribute codes in W+, or None for a backbone without disentanglement.
        features: Feature maps `(B, C, r, r)` keyed by their side r in pixels, or None.
        image: `(B, 3, S, S)` the encoded picture itself, for backbones that blend with it, or None.
        latent: `(B, L, D)` the encoder's own W+ code of the picture, or None.
        mask: `(B, 1, S, S)` in [0, 1], where `decode` draws anew and where it keeps `image`, or None; of a method on
            latents `(B, 1, h, h)`.
        latents: `(B, C, h, h)` normalised latents of the picture, of a method whose bundle has a codec, or None.
        mesh: `(B, 468, 3)` float32 points of the face mesh: x and y with the picture's edges at -1 and 1, and the depth
            away from the viewer in the same unit; of a method in the frame of a mesh `(B, 468, 2)`, without the depth;
            or None.
        around: `(B, 3, S, S)` the picture that the face was cut out of, of a method in the frame of a mesh, or None.
        noisy: `(B, C, h, h)` x(t), where a flow on latents is on its way from noise to a face; None: at its beginning.
        time: `(B,)` in [0, 1], its t; None where `noisy` is.

    Examples:
        >>> import torch
        >>> from faceanon.types import Codes
        >>> anna = Codes(identity=torch.ones(1, 20), attributes=torch.zeros(1, 10, 192))
        >>> stranger = anna.with_identity(-anna.identity)
        >>> stranger.attributes is anna.attributes
        True
    """

    identity: Tensor
    attributes: Tensor | None = None
    features: dict[int, Tensor] | None = None
    image: Tensor | None = None
    latent: Tensor | None = None
    mask: Tensor | None = None
    latents: Tensor | None = None
    mesh: Tensor | None = None
    around: Tensor | None = None
    noisy: Tensor | None = None
    time: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> Codes:
        """Apply `function` to every tensor, e.g. to repeat or slice along the batch."""
        mapped = {}
        for f in fields(self):
            mapped[f.name] = _map(getattr(self, f.name), function)
        return replace(self, **mapped)  # type: ignore[arg-type]

    def with_identity(self, identity: Tensor) -> Codes:
        """The same attributes on another person."""
        return replace(self, identity=identity)


@dataclass(frozen=True)
class Mixed:
    """What stage 1 draws of B pictures.

    Args:
        source: `(B,)` row of every identity source.
        codes: Codes of the mixtures.
        pictures: `(B, 3, S, S)`.
        latents: `(B, C, h, h)` behind the pictures, of a method that draws a codec's latents.
    """

    source: Tensor
    codes: Codes
    pictures: Tensor
    latents: Tensor | None = None


@dataclass(frozen=True)
class Branches:
    """The five pictures of a batch and the codes behind them; or only the two that one key needs.

    A method that is not reversible has the anonymized pictures alone.

    Args:
        pictures: `(5 B, 3, S, S)`: anonymized under two keys, recovered, opened with two wrong keys; or `(2 B, ...)`:
            anonymized under one key, recovered. Without a way back `(2 B, ...)`, or `(B, ...)`: anonymized.
        original: Codes of the originals.
        edited: Codes the anonymized pictures were drawn from, `(2 B, ...)` or `(B, ...)`.
        found: Codes found in the first anonymized picture; None in a `latent` loop.
        recovered: Codes the recovered picture was drawn from, `(B, ...)`; None without a way back.
        keys: `(4 B, ...)`: first key, second key, two wrong keys; or `(B, ...)`: the one key. Without a way back those
            of the anonymized pictures.
        wrong: Codes that the two wrong keys open, `(2 B, ...)`; None where they are not drawn.
        latents: Of all pictures, `(5 B, C, h, h)` or fewer, where the method draws a codec's latents.
        mixed: What stage 1 draws of the batch, in a training that has the objectives of both stages.

    Examples:
        >>> import torch
        >>> from faceanon.types import Branches, Codes
        >>> originals = Codes(torch.zeros(2, 8))
        >>> pictures = torch.zeros(10, 3, 64, 64)  # two originals, five pictures each
        >>> drawn = Branches(pictures, originals, originals, originals, originals, keys=torch.zeros(8, 4))
        >>> drawn.versions, drawn.anonymized.shape[0], drawn.recovered_rows
        (5, 4, slice(4, 6, None))
    """

    pictures: Tensor
    original: Codes
    edited: Codes
    found: Codes | None
    recovered: Codes | None
    keys: Tensor
    wrong: Codes | None = None
    latents: Tensor | None = None
    mixed: Mixed | None = None

    @property
    def size(self) -> int:
        """Number B of originals, of which all pictures are whole batches."""
        return len(self.original.identity)

    @property
    def versions(self) -> int:
        """Pictures drawn of each original: five or two; two or one without a way back."""
        return len(self.pictures) // self.size

    @property
    def anonymized(self) -> Tensor:
        """`(2 B, 3, S, S)`, first key, then second; or `(B, 3, S, S)`."""
        return self.pictures[: self.recovered_rows.start]

    @property
    def recovered_rows(self) -> slice:
        """Where the recovered pictures stand in `pictures`; behind its end where there are none."""
        if self.recovered is None:
            return slice(len(self.pictures), len(self.pictures))
        # Five versions have two keys, so two pictures of each original come first; two versions have one.
        start = (2 if self.versions == 5 else 1) * self.size
        return slice(start, start + self.size)
