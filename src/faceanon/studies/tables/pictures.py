"""Pictures beside the papers' tables: many keys on few faces in the plane (t-SNE), and the same faces by method."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from faceanon.backbones.base import Backbone
from faceanon.errors import UserError
from faceanon.files import load_tensors, save_tensors
from faceanon.metrics.saved import saved
from faceanon.metrics.versions import bring_back, codes_or_none, draw_keys, saved_drawing

COLOURS = ("#2471a3", "#c0392b", "#2a7f3f", "#d68910", "#7d3c98")
PERPLEXITY = 30.0
CHUNK = 25
Recogniser = Callable[[Tensor], Tensor]


@torch.no_grad()
def key_embeddings(
    backbone: Backbone, judge: Recogniser, image: Tensor, keys: int, seed: int = 0, path: Path | None = None
) -> Tensor:
    """What a recogniser makes of faces under many keys.

    Args:
        backbone: In eval mode.
        judge: Images to unit embeddings.
        image: `(F, 3, S, S)` in [-1, 1].
        keys: Keys a face, at least 2.
        seed: Of the keys; the same for every method of one key shape.
        path: File in which they are kept, and found again; its name has to say what they are of.

    Returns:
        `(F, keys + 1, E)`, the original first.

    Raises:
        UserError: The file is damaged or cannot be written.
    """
    if path is not None and path.is_file():
        return load_tensors(path)["embedding"]
    rows = []
    for number, face in enumerate(image):
        # The original goes first, as row 0 of its face.
        codes = [judge(face[None])]
        for start in range(0, keys, CHUNK):
            count = min(CHUNK, keys - start)
            # Numbered over all faces, so that keys do not depend on the size of the pieces.
            indices = []
            for position in range(count):
                indices.append(number * keys + start + position)
            key = draw_keys(backbone, seed, "tsne", indices).to(image.device)
            hidden = saved_drawing(backbone, face.expand(count, -1, -1, -1), key)
            codes.append(judge(hidden))
        rows.append(torch.cat(codes).cpu())
    embedding = torch.stack(rows)
    if path is not None:
        save_tensors(path, {"embedding": embedding})
    return embedding


def project(embedding: Tensor, seed: int = 0) -> NDArray[np.float32]:
    """t-SNE of `(F, K, E)` embeddings on the cosine distance: `(F, K, 2)`.

    Raises:
        UserError: scikit-learn is missing.
        ValueError: Fewer than five points.
    """
    try:
        from sklearn.manifold import TSNE  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise UserError("the t-SNE figure needs scikit-learn; run: pip install scikit-learn") from error
    faces, keys, width = embedding.shape
    if faces * keys < 5:
        raise ValueError(f"t-SNE needs at least 5 points, got {faces * keys}")
    # scikit-learn refuses as many neighbours as there are points.
    perplexity = min(PERPLEXITY, (faces * keys - 1) / 3)
    points = embedding.reshape(-1, width).double().numpy()
    projected = TSNE(perplexity=perplexity, metric="cosine", init="random", random_state=seed).fit_transform(points)
    return np.asarray(projected, dtype=np.float32).reshape(faces, keys, 2)


def tsne_png(embeddings: Mapping[str, Tensor], judge: str, seed: int = 0) -> bytes:
    """One panel a method: a colour a face, a dot a key, a star the original.

    Args:
        embeddings: `key_embeddings` by method.
        judge: Name of the recogniser.
        seed: Of the projection.

    Returns:
        A PNG.

    Raises:
        UserError: scikit-learn is missing.
        ValueError: There is no method.
    """
    if not embeddings:
        raise ValueError("the t-SNE figure needs at least one method that takes a key")
    columns = min(3, len(embeddings))
    rows = -(-len(embeddings) // columns)
    figure = Figure(figsize=(4 * columns, 4 * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis, (name, embedding) in zip(panels, embeddings.items(), strict=False):
        _panel(axis, name, project(embedding, seed))
    for axis in panels[len(embeddings) :]:
        axis.set_axis_off()
    faces, keys = next(iter(embeddings.values())).shape[:2]
    title = f"{faces} faces x {keys - 1} keys; stars: the originals\nt-SNE of {judge}'s embeddings, seed {seed}"
    figure.suptitle(title, fontsize=9)
    file = io.BytesIO()
    # Else the version of matplotlib would make equal pictures different files.
    figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
    return file.getvalue()


def _panel(axis: Axes, name: str, points: NDArray[np.float32]) -> None:
    for number, face in enumerate(points):
        colour = COLOURS[number % len(COLOURS)]
        axis.scatter(face[1:, 0], face[1:, 1], s=6, color=colour, alpha=0.6)
        axis.scatter(face[0, 0], face[0, 1], s=120, marker="*", color=colour, edgecolors="black")
    axis.set_title(name, fontsize=10)
    axis.set_xticks([])
    axis.set_yticks([])


@torch.no_grad()
def sheet_rows(name: str, backbone: Backbone, image: Tensor, seed: int = 0) -> dict[str, Tensor]:
    """Rows of the sheet that one method fills: anonymized and, where there is a way back, recovered; in 8 bits.

    Args:
        name: Of the method.
        backbone: In eval mode.
        image: `(N, 3, S, S)` in [-1, 1].
        seed: Of the keys.
    """
    key = draw_keys(backbone, seed, "sheet", list(range(len(image)))).to(image.device)
    hidden = saved_drawing(backbone, image, key)
    rows = {f"{name}, anonymized": hidden.cpu()}
    if backbone.reversible:
        rows[f"{name}, recovered"] = saved(bring_back(backbone, hidden, key, codes_or_none(backbone, image))).cpu()
    return rows
