"""Persona's networks in onnxruntime: graphs that ship without weights, and the weights of a model and its bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from faceanon.files import load_arrays
from faceanon.light.networks import LightNetworks, UnfitError, check_layout, open_graph
from faceanon.light.providers import CPU, provider_named
from faceanon.persona.cells import SIZE, Array, Box
from faceanon.sealed.coder import CELL
from faceanon.weights.shipped import read_shipped

CLASSES = {
    "codec": "faceanon.networks.codec.LatentCodec",
    "recogniser": "faceanon.networks.mobileface_v2.MobileFaceV2",
    "identity_space": "faceanon.networks.identity_space.IdentitySpace",
}
SHIPPED = ("mesh", "looks", "covers")
REACH = 5  # pixels that the decoder's last layers look to each side, see `networks.taef2`
MOST_LOOKS = 2.0  # see `landmarks.looks`
MESH_BOX = (28 / 256, 44 / 256, 228 / 256, 244 / 256)  # see `landmarks.mesh`
MESH_SIDE = 192
RECOGNISER_SIDE = 112
# Of pictures that are encoded at once.
MOST_PIXELS = 2 * SIZE * SIZE


class GraphNetworks:
    """`persona.networks.PersonaNetworks` in onnxruntime.

    Args:
        spec: Of the bundle, as `bundle.yaml` says.
        bundle: Its folder.
        flow: Reads the flow's weights.
        provider: What computes, as `light.providers.provider_named` takes it.

    Raises:
        UnfitError: If the graphs that ship do not describe the bundle's networks.
        UserError: If a file is missing or damaged, or the provider is missing or does not start.
    """

    def __init__(
        self, spec: Mapping[str, Any], bundle: Path, flow: Callable[[], dict[str, Array]], provider: str
    ) -> None:
        self.provider = provider_named(provider)
        self.spec = spec
        self.bundle = bundle
        self._check()
        # Weights are read with the graphs that need them; the codec's serve three of them.
        self._codec = cache(partial(self.read, "codec"))
        openers: dict[str, Callable[[], Callable[..., list[Array]]]] = {
            "encoder": partial(self._open_codec, "encoder"),
            "draw": partial(self._open_codec, "draw"),
            "finish": partial(self._open_codec, "finish"),
            "flow": lambda: open_graph("flow", flow(), self.provider, rounded=True),
            "recogniser": self._open_recogniser,
        }
        for name in SHIPPED:
            openers[name] = partial(_open_shipped, name, self.provider)
        self.run = LightNetworks(openers)
        # A model of another layout, and a provider that does not start, are to be found out before a photo is touched.
        check_layout("encoder", below(self._codec(), "encoder."), str(bundle / "bundle.yaml"))
        check_layout("draw", below(self._codec(), "decoder."), str(bundle / "bundle.yaml"))
        if self.provider != CPU:
            self.run("draw", latents=np.zeros((1, 32, SIZE // CELL, SIZE // CELL), np.float32))

    def _check(self) -> None:
        networks = self.spec["networks"]
        for role, kind in CLASSES.items():
            entry = networks.get(role, {})
            # Any setting would make another network of the class: the graphs are of its defaults.
            if entry.get("class") != kind or entry.get("init"):
                raise UnfitError(f"{self.bundle / 'bundle.yaml'} has another {role} than the graphs that ship")
        if networks["recogniser"].get("input_size") != RECOGNISER_SIDE or "crop" not in networks["recogniser"]:
            raise UnfitError(f"{self.bundle / 'bundle.yaml'} crops faces for its recogniser in another way")

    def read(self, role: str) -> dict[str, Array]:
        """The tensors of one of the bundle's networks."""
        entry = self.spec["networks"][role]
        return load_arrays(self.bundle / entry.get("file", ""), expected=entry.get("sha256"))

    def _open_codec(self, graph: str) -> Callable[..., list[Array]]:
        prefix = "encoder." if graph == "encoder" else "decoder."
        weights = below(self._codec(), prefix)
        check_layout(graph, weights, str(self.bundle))
        return open_graph(graph, weights, self.provider, rounded=True)

    def _open_recogniser(self) -> Callable[..., list[Array]]:
        weights = self.read("recogniser")
        check_layout("recogniser", weights, str(self.bundle))
        return open_graph("recogniser", weights, self.provider)

    def open(self, names: Iterable[str]) -> None:
        """Begin to open networks, in the background."""
        self.run.open(names)

    def encode(self, image: Array) -> Array:
        """Latents `(B, 32, S / 8, S / 8)` of pictures."""
        unit = (image + 1) / 2
        # Two small faces at once, or one large one: all that onnxruntime takes for a call it keeps for the next ones,
        # and 256 px take 50 MB a face.
        at_once = max(1, MOST_PIXELS // (image.shape[-2] * image.shape[-1]))
        parts = []
        for start in range(0, len(unit), at_once):
            parts.append(self.run("encoder", unit=unit[start : start + at_once])[0])
        latents = np.concatenate(parts)
        codec = self._codec()
        return (latents - codec["mean"][:, None, None]) / codec["std"][:, None, None]

    def decode(self, latents: Array, window: Box) -> Array:
        """The pixels of a window of cells, as `LatentCodec.decode_part`."""
        codec = self._codec()
        public = latents * codec["std"][:, None, None] + codec["mean"][:, None, None]
        maps = self.run("draw", latents=public.astype(np.float32))[0]
        height, width = maps.shape[-2:]
        top, bottom, left, right = (CELL * edge for edge in window)
        # The last layers look beyond the window, so a wider part is drawn and the margin cut off.
        above = max(top - REACH, 0)
        before = max(left - REACH, 0)
        part = maps[:, :, above : min(bottom + REACH, height), before : min(right + REACH, width)]
        drawn = self.run("finish", maps=np.ascontiguousarray(part))[0]
        wanted: Array = drawn[:, :, top - above : bottom - above, left - before : right - before] * 2 - 1
        return wanted

    def preview(self, latents: Array) -> Array:
        """Colours `(B, 3, h, h)` of latents, as `LatentCodec.preview`."""
        codec = self._codec()
        colours = np.einsum("bchw,dc->bdhw", latents, codec["preview_weight"])
        preview: Array = colours + codec["preview_bias"][:, None, None]
        return preview

    def points(self, image: Array) -> tuple[Array, Array]:
        """Points `(B, 468, 3)`, x and y in [-1, 1] and depth in the same unit, and confidences `(B,)`."""
        # Through bytes, as torch's mesh gets its pictures: both have to find the same points.
        bytes_ = np.rint((image.clip(-1, 1) + 1) * np.float32(127.5)) / np.float32(255)
        left, top, right, bottom = MESH_BOX
        rows = _roi_weights(SIZE, top, bottom)
        columns = _roi_weights(SIZE, left, right)
        crops = rows @ bytes_ @ columns.T
        points, confidence = self.run("mesh", crops=crops)
        found = points.reshape(len(image), -1, 3)
        scale = np.float32((right - left) * SIZE / MESH_SIDE)
        places = found * scale + np.array([left, top, 0], np.float32) * SIZE
        places = places / np.float32(SIZE) * 2
        places[..., :2] -= 1
        return places, confidence.reshape(-1)

    def cover_chances(self, latents: Array, maps: Array) -> Array:
        """How likely something covers each cell, `(B, 1, h, h)` in [0, 1]."""
        chances: Array = 1 / (1 + np.exp(-self.run("covers", latents=latents, maps=maps)[0]))
        return chances

    def embed(self, image: Array) -> Array:
        """The recogniser's embeddings `(B, E)` of unit length."""
        top, bottom, left, right = self.spec["networks"]["recogniser"]["crop"]
        rows = _bilinear_weights(SIZE, top * SIZE, bottom * SIZE, RECOGNISER_SIDE)
        columns = _bilinear_weights(SIZE, left * SIZE, right * SIZE, RECOGNISER_SIDE)
        embedding = self.run("recogniser", faces=rows @ image @ columns.T)[0]
        unit: Array = embedding / np.maximum(np.linalg.norm(embedding, axis=1, keepdims=True), 1e-12)
        return unit

    def looks(self, latents: Array) -> Array:
        """Sex, youth and skin, `(B, 3)`."""
        looks: Array = self.run("looks", latents=latents)[0].clip(-MOST_LOOKS, MOST_LOOKS)
        return looks

    def directions(self, noisy: Array, time: Array, latents: Array, mask: Array, maps: Array, told: Array) -> Array:
        """Where the flow leads."""
        return self.run("flow", noisy=noisy, time=time, latents=latents, mask=mask, maps=maps, condition=told)[0]


def below(weights: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The tensors whose names begin with `prefix`, without it."""
    found = {}
    for name, value in weights.items():
        if name.startswith(prefix):
            found[name.removeprefix(prefix)] = value
    return found


def _open_shipped(name: str, provider: str) -> Callable[..., list[Array]]:
    file = f"{name}.safetensors"
    weights = load_arrays(Path(file), read_shipped(file))
    check_layout(name, weights, file)
    return open_graph(name, weights, provider)


@cache
def _bilinear_weights(side: int, start: float, stop: float, count: int) -> Array:
    """As `networks.adapters.bilinear_weights`: `(count, side)`."""
    steps = np.arange(count, dtype=np.float32)
    centres = (np.float32(start) + (steps + 0.5) * np.float32(stop - start) / count - 0.5).clip(0, side - 1)
    distance = centres[:, None] - np.arange(side, dtype=np.float32)
    weights: Array = (1 - np.abs(distance)).clip(0, None).astype(np.float32)
    return weights


@cache
def _roi_weights(side: int, start: float, stop: float) -> Array:
    """What torchvision's `roi_align` (aligned, adaptive sampling) takes of each pixel along a side: `(192, side)`."""
    first = start * side
    step = (stop - start) * side / MESH_SIDE
    # Adaptive sampling: as many samples as a bin has pixels, rounded up.
    count = int(np.ceil(step))
    weights = np.zeros((MESH_SIDE, side), np.float64)
    for number in range(MESH_SIDE):
        for sample in range(count):
            # `aligned` counts places from the middle of the first pixel, half a pixel after its edge.
            place = first - 0.5 + number * step + (sample + 0.5) * step / count
            place = min(max(place, 0.0), side - 1.0)
            low = min(int(place), side - 1)
            high = min(low + 1, side - 1)
            share = place - low
            weights[number, low] += (1 - share) / count
            weights[number, high] += share / count
    return weights.astype(np.float32)
