"""Features of original pictures, computed once however many methods are compared on them."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from faceanon.files import raw_bytes, sha256
from faceanon.metrics.store import FeatureFolder
from faceanon.networks.frozen import Frozen

BULKY = 128 * 1024  # bytes a picture; embeddings and label maps lie far below, perceptual maps far above
BULKY_SHARE = 0.75  # of the memory, so that large maps leave room for what is worth more a byte


class FeatureCache:
    """Outputs of networks for batches of pictures, in memory and, where a folder is given, on disk.

    An entry belongs to a whole batch, in its order: the last bits of a network's output for a picture depend on how
    many stand beside it. So figures are bit for bit those without a cache, and other batches are computed anew.
    When memory is full, what is there stays: every method passes over the pictures in the same order, and a cache
    that threw out the oldest would find nothing.

    Features of a photograph tell who is on it: keep a folder of them as carefully as the photographs.

    Args:
        folder: Where entries are kept for other processes; made with access for its owner alone. None keeps them in
            memory only. Large ones (perceptual maps) never go there: reading them takes as long as computing them.
        memory: Gigabytes held at most.
        disk: Gigabytes in the folder at most.

    Attributes:
        hits: Entries found.
        misses: Entries computed.

    Raises:
        UserError: The folder cannot be made.
    """

    def __init__(self, folder: Path | None = None, memory: float = 1.0, disk: float = 4.0) -> None:
        self.memory = memory * 1e9
        if folder is None:
            self.folder = None
        else:
            self.folder = FeatureFolder(folder, int(disk * 1e9))
        self.hits = self.misses = self.used = 0
        self._entries: dict[str, list[Tensor]] = {}

    def fetch(self, key: str, rows: int, compute: Callable[[], list[Tensor]]) -> list[Tensor]:
        """The entry of this key, computed if there is none.

        Args:
            key: Hex digest of everything that the tensors depend on.
            rows: Pictures in the batch.
            compute: Gives the tensors.

        Returns:
            As `compute` gave them, or on the CPU as they were kept.
        """
        kept_values = self._entries.get(key)
        if kept_values is None and self.folder is not None:
            kept_values = self.folder.read(key)
            if kept_values is not None:
                self._keep(key, rows, kept_values)
        if kept_values is not None:
            self.hits += 1
            return kept_values
        self.misses += 1
        made = compute()
        kept = [item.detach().cpu() for item in made]
        self._keep(key, rows, kept)
        # Reading such maps back from a disk takes as long as making them.
        if self.folder is not None and _size(kept) <= BULKY * rows:
            self.folder.write(key, kept)
        # What was computed, and not its copy: the copy lies on the CPU and would have to go back to the device.
        return made

    def _keep(self, key: str, rows: int, tensors: list[Tensor]) -> None:
        size = _size(tensors)
        # Perceptual maps are the first to go: they take a thousand times the room of an embedding and little more time.
        limit = self.memory * (BULKY_SHARE if size > BULKY * rows else 1.0)
        if self.used + size <= limit:
            self._entries[key] = tensors
            self.used += size

    def clear(self) -> None:
        """Forget what is in memory."""
        self._entries.clear()
        self.used = 0


@cache
def shared_cache(folder: Path) -> FeatureCache:
    """The cache of this folder, the same for all tests of this process; give an absolute path."""
    return FeatureCache(folder)


class CachedOriginals:
    """What networks make of one batch of originals; each is asked once, and not at all where a cache knows.

    Args:
        image: `(B, 3, S, S)` in [-1, 1].
        digests: `network_digest` by name; networks without one are asked once a batch, and not kept beyond.
        cache: Where features are kept; None keeps them for this batch only.
    """

    def __init__(
        self, image: Tensor, digests: Mapping[str, str | None] | None = None, cache: FeatureCache | None = None
    ) -> None:
        self.image = image
        self.digests = digests or {}
        self.cache = cache
        self._asked: dict[tuple[str, str], list[Tensor]] = {}
        self._pictures = ""

    def tensor(self, network: str, compute: Callable[[Tensor], Tensor], what: str = "output") -> Tensor:
        """As `tensors`, for a network that gives one."""
        return self.tensors(network, lambda image: [compute(image)], what)[0]

    def tensors(self, network: str, compute: Callable[[Tensor], list[Tensor]], what: str = "output") -> list[Tensor]:
        """Features of the originals, on their device; not to be changed in place.

        Args:
            network: Name, as in `digests`.
            compute: Makes the features of `(B, 3, S, S)`.
            what: Which of the network's features these are.
        """
        # Within one batch each network is asked once, with or without a cache.
        name = network, what
        if name not in self._asked:
            digest = self.digests.get(network)
            keep = self.cache is not None and digest is not None
            if keep:
                self._asked[name] = self._fetch(f"{digest}/{what}", compute)
            else:
                self._asked[name] = compute(self.image)
        return self._asked[name]

    def _fetch(self, network: str, compute: Callable[[Tensor], list[Tensor]]) -> list[Tensor]:
        assert self.cache is not None
        # Hashed at the first question only: many batches are never looked up.
        self._pictures = self._pictures or picture_digest(self.image)
        key = hashlib.sha256(f"{self._pictures}/{network}/{circumstances(self.image)}".encode()).hexdigest()
        values = self.cache.fetch(key, len(self.image), lambda: compute(self.image))
        return [item.to(self.image.device) for item in values]


def picture_digest(image: Tensor) -> str:
    """Hash over a batch as networks see it, every digit of it."""
    # With type and shape, since the same bytes may be another picture in another shape.
    head = f"{image.dtype} {tuple(image.shape)}".encode()
    return hashlib.sha256(head + raw_bytes(image)).hexdigest()


@cache
def code_digest() -> str:
    """Hash over this package's sources: what changed code makes of a picture is no longer what lies in a folder."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()} ".encode() + path.read_bytes())
    return digest.hexdigest()


def circumstances(image: Tensor) -> str:
    """What else a network's output, or its last bits, depend on."""
    kind = image.device.type
    parts: list[object] = [code_digest(), torch.__version__, kind, image.stride(), torch.is_grad_enabled()]
    parts.append(torch.get_float32_matmul_precision())
    if kind == "cpu":
        # Sums over another number of threads, or by other instructions, differ in their last bits.
        parts += [torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()]
    else:
        parts += [torch.cuda.get_device_name(image.device), torch.backends.cudnn.allow_tf32]
    if torch.is_autocast_enabled(kind):
        parts.append(torch.get_autocast_dtype(kind))
    return " ".join(map(str, parts))


def network_digest(network: object) -> str | None:
    """Hash over a network's weights, classes and settings, frozen parts included; None where it shows no weights."""
    if not isinstance(network, nn.Module):
        return None
    digest = hashlib.sha256()
    known = False
    for part in _parts(network):
        kind = type(part)
        # The same weights give other features in another class or under other settings.
        digest.update(f"{kind.__module__}.{kind.__qualname__} {_settings(part)}".encode())
        for name, tensor in itertools.chain(part.named_parameters(recurse=False), part.named_buffers(recurse=False)):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(raw_bytes(tensor))
            known = True
        for file in _files(part):
            digest.update(sha256(file).encode())
            known = True
    if known:
        return digest.hexdigest()
    return None


def _parts(network: nn.Module) -> Iterator[nn.Module]:
    for part in network.modules():
        yield part
        # A frozen network is hidden from `modules()`, so that no optimizer finds it.
        if isinstance(part, Frozen):
            yield from _parts(part.net)


def _settings(part: nn.Module) -> str:
    plain = (bool, int, float, str, tuple, list, dict, type(None))
    plain_values = []
    for k, v in vars(part).items():
        # Plain values only: the `repr` of another object may hold its address, which differs in every process.
        if k[0] != "_" and isinstance(v, plain):
            plain_values.append((k, v))
    return repr(sorted(plain_values))


def _files(part: nn.Module) -> list[Path]:
    """Files that are a part's weights: ONNX sessions keep theirs there."""
    held = (getattr(value, "model_file", None) for value in vars(part).values())
    paths = []
    for path in held:
        if isinstance(path, str | Path) and Path(path).is_file():
            paths.append(Path(path))
    return paths


def _size(tensors: list[Tensor]) -> int:
    return sum(item.numel() * item.element_size() for item in tensors)
