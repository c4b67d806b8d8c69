"""Photographs whose latents, meshes and embeddings are prepared once, so that training computes none of them."""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import cv2
import lightning as L
import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.data.batches import Row, hold_out
from faceanon.data.files import Photo, UnreadableError, list_photos, name_identities, read_photo, read_photos
from faceanon.data.held_out import HeldOutLoaders, Split
from faceanon.data.photo_jitter import PhotoJitter
from faceanon.errors import UserError
from faceanon.files import load_tensors, save_tensors
from faceanon.landmarks.mesh import PUBLISHED, FaceMesh
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle

PORTION = 32  # pictures that are prepared and saved together: what an interruption loses
CLEAR = 0.5  # confidence of the mesh below which a version is left out
SOURCE_SIDE = 256  # pixels of the picture that is jittered, and in which the mesh is looked for
SHIPPED_TABLE = "pictures.csv"
SHIPPED_FOLDER = "pictures"
USUAL = PhotoJitter()
HELD_OUT = (0, 2)  # versions of validation and test pictures
SAME_PICTURE = 0.8  # cosine of the recogniser above which two files show one picture
SAME_PERSON = 0.6  # ... and above which a picture shows a person of whom several test pictures are known
MOST_NAMED = 20  # bad pictures in one message
FORMAT = 1  # of the cache; raise it when its content changes


class PreparedVersions(Dataset[FaceBatch]):
    """Prepared versions of pictures in memory; an item is a whole batch.

    Args:
        tensors: `image (N, 3, S, S)` uint8, `latents (N, C, h, h)` float16, `mesh (N, 468, 2)` float32 in [-1, 1],
            `embedding (N, E)` float32, `picture (N,)` int64 number of the picture.
        labels: Person of every row.
    """

    def __init__(self, tensors: dict[str, Tensor], labels: Sequence[int]) -> None:
        self.tensors = tensors
        self.labels = list(labels)
        self.sibling = _siblings(tensors["picture"])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Sequence[Row]) -> FaceBatch:
        index = torch.tensor([row for row, _ in rows])
        labels = torch.tensor([self.labels[row] for row, _ in rows])
        return FaceBatch(
            image=self.tensors["image"][index].float().div(127.5).sub(1),
            identity=labels,
            # Nobody knows how a photograph was lit or posed.
            attribute=torch.full((len(rows),), -1),
            latents=self.tensors["latents"][index].float(),
            mesh=self.tensors["mesh"][index],
            # Of another version of the same picture: an identity code must not tell how this very picture was taken.
            embedding=self.tensors["embedding"][self.sibling[index]],
        )


class PreparedFaces(HeldOutLoaders, L.LightningDataModule):
    """FFHQ-aligned photographs for a bundle with a codec, each in several versions.

    Before the first training every version is drawn, and its latents, its mesh and its embedding are computed and kept
    in a folder; later trainings on the same pictures read them. An interrupted preparation resumes where it stopped.
    Persons are held out whole. A picture of nobody known counts as a person of its own.

    Args:
        root: Folder, or several to join, of aligned pictures. None takes the pictures that ship with the bundle.
        bundle: Folder or name of a bundle with the roles `codec` and `recogniser`.
        identities: CSV with a picture's path and its person in the first two columns; None takes the folders' names.
        versions: Versions of every training picture.
        batch_size: Pictures a batch, per process.
        same_identity_pairs: Share of a training batch made of pairs of one person, at rows 2i and 2i + 1.
        val_fraction: Share of the persons held out for validation.
        test_fraction: Share of the persons held out for the test.
        jitter: How far versions differ.
        seed: Of the versions, the split and the order of training.
        cache: Folder of what was prepared.
        workers: Processes that make batches ahead where a GPU trains.
        image_size: Side of the faces in pixels, at most 256; None takes the bundle's.
        train_batches: Batches of a training epoch, per process, however many pictures there are; None: as many as they
            fill once.

    Raises:
        UserError: A number is out of range.
    """

    def __init__(
        self,
        root: str | list[str] | None = None,
        bundle: str = "photo128",
        identities: str | None = None,
        versions: int = 4,
        batch_size: int = 16,
        same_identity_pairs: float = 0.0,
        val_fraction: float = 0.02,
        test_fraction: float = 0.04,
        jitter: PhotoJitter = USUAL,
        seed: int = 0,
        cache: str = "runs/prepared",
        workers: int = 0,
        image_size: int | None = None,
        train_batches: int | None = None,
    ) -> None:
        super().__init__()
        if versions < 1 or batch_size < 1 or not 0 <= same_identity_pairs <= 1:
            raise UserError("versions and batch_size are at least 1, same_identity_pairs is a share in [0, 1]")
        if train_batches is not None and train_batches < 1:
            raise UserError(f"train_batches is {train_batches}; give 1 or more")
        self.bundle = Bundle(bundle)
        self.bundle.require("codec", "recogniser")
        self.image_size = self.bundle.image_size if image_size is None else image_size
        shrink = self.bundle.codec.shrink
        # The picture that is jittered has 256 px: nothing larger would gain from it.
        if self.image_size % shrink or not 0 < self.image_size <= SOURCE_SIDE:
            raise UserError(f"image_size is {self.image_size}: give a multiple of {shrink}, at most {SOURCE_SIDE}")
        self.roots = _roots(root, self.bundle)
        self.identities = pictures_folder(self.bundle) / SHIPPED_TABLE if root is None else identities
        self.versions = versions
        self.batch_size = batch_size
        self.pairs = same_identity_pairs
        self.fractions = (val_fraction, test_fraction)
        self.jitter = jitter
        self.seed = seed
        self.cache = Path(cache)
        self.workers = workers
        self.train_batches = train_batches
        self.splits: dict[str, PreparedVersions] = {}
        self._contents: dict[Path, bytes] = {}  # hashes of the files, which preparing and setting up both need

    def prepare_data(self) -> None:
        """Prepare what is not yet in the cache; Lightning calls it in one process.

        Raises:
            UserError: Pictures are damaged or not square; one line names them.
        """
        photos = self._photos()
        missing = []
        for split, part in self._parts(photos):
            if not self._file(split, part).is_file():
                missing.append((split, part))
        if not missing:
            return
        to_read = []
        for _, part in missing:
            to_read.extend(part)
        # All of them, before an hour of work ends at a damaged file.
        check_pictures(to_read)
        workshop = Workshop(self.bundle, self.jitter, self.seed, self.image_size)
        count = 0
        for _, part in missing:
            count += len(part)
        with tqdm(total=count, desc="preparing photographs", unit="picture") as progress:
            for split, part in missing:
                save_tensors(
                    self._file(split, part), workshop.prepare(part, self._versions(split), self._framed(split))
                )
                progress.update(len(part))

    def setup(self, stage: str | None = None) -> None:
        """Read what was prepared, once, whatever the stage.

        Raises:
            UserError: No picture shows a face that the mesh finds.
        """
        if self.splits:
            return
        if self.trainer is None:
            # Lightning's trainer has called it already, in one process for all.
            self.prepare_data()
        photos = self._photos()
        names = sorted({photo.identity or photo.name for photo in photos})
        number = {}
        for position, name in enumerate(names):
            number[name] = position
        by_split: dict[str, list[tuple[dict[str, Tensor], list[Photo]]]] = {"train": [], "val": [], "test": []}
        for split, part in self._parts(photos):
            by_split[split].append((_read(self._file(split, part)), part))
        for split, portions in by_split.items():
            self.splits[split] = _joined(portions, number)
        # Whoever trains on other folders may have the shipped test pictures among them.
        if self.identities != pictures_folder(self.bundle) / SHIPPED_TABLE:
            self.splits["train"] = self._without_shipped_test(self.splits["train"])
        train = self.splits["train"]
        pictures = 0
        for _, part in by_split["train"]:
            pictures += len(part)
        wanted = self.versions * pictures
        rank_zero_info(f"{len(train)} of {wanted} versions of training pictures show a face that the mesh finds")
        if not len(train):
            raise UserError(f"no face was made out in {self._where()}: give FFHQ-aligned photographs of faces")

    def _without_shipped_test(self, train: PreparedVersions) -> PreparedVersions:
        """Training versions without the pictures and persons that the bundle's own pictures hold out for the test."""
        test, threshold = shipped_test(self.bundle)
        if not len(test) or not len(train):
            return train
        # By what they show: the same picture may have another name, size or compression.
        same = (train.tensors["embedding"] @ test.T > threshold).any(1)
        picture = train.tensors["picture"]
        # All versions of such a picture go, also those that were changed too much to be recognised.
        out = torch.unique(picture[same])
        if not len(out):
            return train
        kept = (~torch.isin(picture, out)).nonzero()[:, 0]
        rank_zero_info(f"left out {len(out)} pictures that bundle {self.bundle.name!r} holds out for the test")
        labels = [train.labels[row] for row in kept.tolist()]
        remaining = {}
        for name, tensor in train.tensors.items():
            remaining[name] = tensor[kept]
        return PreparedVersions(remaining, labels)

    def files_with_faces(self, split: str) -> list[Path]:
        """The picture files that the prepared versions of a split show, after `setup`; each of them shows a face."""
        files = self.files(split)
        shown = torch.unique(self.splits[split].tensors["picture"])
        return [files[number] for number in shown.tolist()]

    def files(self, split: str) -> list[Path]:
        """The picture files of `train`, `val` or `test`; nothing is prepared for it."""
        paths: list[Path] = []
        for name, part in self._parts(self._photos()):
            if name == split:
                for photo in part:
                    paths.append(photo.path)
        return paths

    def portions(self) -> Iterator[tuple[list[Photo], dict[str, Tensor]]]:
        """Every portion of pictures as `prepare_data` wrote it: the pictures, and their versions as tensors.

        `tensors["picture"]` says which picture of the portion a row shows; `PreparedVersions` names the others.

        Raises:
            UserError: A prepared file is damaged.
        """
        for split, part in self._parts(self._photos()):
            yield part, _read(self._file(split, part))

    def _photos(self) -> list[Photo]:
        """All pictures, in one order, with persons where they are known."""
        photos: list[Photo] = []
        for number, root in enumerate(self.roots):
            for photo in list_photos(root):
                if photo.identity is None:
                    person = None
                else:
                    person = f"{number}/{photo.identity}"
                photos.append(Photo(photo.path, f"{number}/{photo.name}", person))
        if self.identities is not None:
            photos = name_identities(photos, Path(self.identities))
        return photos

    def _parts(self, photos: Sequence[Photo]) -> list[tuple[str, list[Photo]]]:
        """Portions of pictures with the split that they belong to."""
        shipped = _shipped_split(self.identities, self.bundle)
        names = sorted({photo.identity or photo.name for photo in photos})
        counts = []
        for fraction in self.fractions:
            counts.append(max(1, round(fraction * len(names))) if fraction else 0)
        val, test = hold_out(names, counts[0], counts[1], self.seed)
        splits: dict[str, list[Photo]] = {"train": [], "val": [], "test": []}
        for photo in photos:
            name = photo.identity or photo.name
            if name in val:
                split = "val"
            elif name in test:
                split = "test"
            else:
                split = "train"
            # The shipped pictures have their split in a table, so that figures of all trainings compare.
            if shipped is not None:
                if photo.path.name not in shipped:
                    raise UserError(f"{photo.path} is not in {self.identities}: remove it or install faceanon again")
                split = shipped[photo.path.name]
            splits[split].append(photo)
        if not splits["train"]:
            raise UserError(f"nothing is left to train on in {self._where()}: hold out fewer persons, or add pictures")
        parts: list[tuple[str, list[Photo]]] = []
        for split, some in splits.items():
            for start in range(0, len(some), PORTION):
                parts.append((split, some[start : start + PORTION]))
        return parts

    def _file(self, split: str, part: Sequence[Photo]) -> Path:
        """Where a portion is kept: named by everything that its content depends on."""
        digest = hashlib.sha256(self._settings(self._versions(split), self._framed(split)))
        for photo in part:
            if photo.path not in self._contents:
                self._contents[photo.path] = _content(photo.path)
            digest.update(self._contents[photo.path])
        return self.cache / f"{digest.hexdigest()[:40]}.safetensors"

    def _versions(self, split: str) -> tuple[int, ...]:
        """Numbers of the versions of a split's pictures."""
        # A test wants two pictures of a person: the photograph itself, and one taken a little otherwise.
        if split == "train":
            return tuple(range(self.versions))
        return HELD_OUT

    def _framed(self, split: str) -> bool:
        """Whether faces are laid into the bundle's frame: a method learns there, and is tested on pictures."""
        return self.bundle.has("frame") and split != "test"

    def _settings(self, versions: tuple[int, ...], framed: bool) -> bytes:
        facts = {
            "format": FORMAT,
            "codec": self.bundle.entry("codec")["sha256"],
            "recogniser": self.bundle.entry("recogniser")["sha256"],
            "mesh": PUBLISHED,
            "size": self.image_size,
            # Two training versions are 0 and 1, the held-out ones 0 and 2: their number alone would give both one file.
            "versions": len(versions) if versions != HELD_OUT else versions,
            "jitter": asdict(self.jitter),
            "seed": self.seed,
        }
        if framed:
            facts["frame"] = self.bundle.entry("frame")["sha256"]
        return json.dumps(facts, sort_keys=True).encode()

    def _where(self) -> str:
        return ", ".join(map(str, self.roots))

    def split(self, name: Split) -> PreparedVersions:
        """The prepared versions of a split."""
        return self.splits[name]

    def in_memory(self, name: Split) -> bool:
        """Always: what is prepared is read once."""
        return True


class Workshop:
    """Draws the versions of pictures and computes what training needs of them.

    Args:
        bundle: Gives codec and recogniser.
        jitter: How far versions differ.
        seed: Start of their random numbers.
        image_size: Side of the faces in pixels.
    """

    def __init__(self, bundle: Bundle, jitter: PhotoJitter, seed: int, image_size: int) -> None:
        self.bundle = bundle
        self.jitter = jitter
        self.seed = seed
        self.image_size = image_size
        self.mesh = FaceMesh()

    def prepare(self, photos: Sequence[Photo], versions: Sequence[int], framed: bool = False) -> dict[str, Tensor]:
        """The tensors of `PreparedVersions` of some pictures; versions without a face in them are left out.

        Args:
            photos: The pictures.
            versions: Numbers of their versions.
            framed: Whether faces are laid into the bundle's frame; `mesh` stays where it lies in the picture.

        Raises:
            UnreadableError: A file is no picture.
        """
        pictures: list[NDArray[np.uint8]] = []
        numbers: list[int] = []
        for number, photo in enumerate(photos):
            large = read_photo(photo.path, SOURCE_SIDE)[0]
            # From the file's content: its name or place may change and its versions stay.
            start = int.from_bytes(_content(photo.path)[:8], "big")
            for version in versions:
                pictures.append(self.jitter.version(large, version, [self.seed, start, version]))
                numbers.append(number)
        points, confidence = self.mesh.points(np.stack(pictures))
        clear = torch.from_numpy(confidence) >= CLEAR
        mesh = (torch.from_numpy(points) / SOURCE_SIDE * 2 - 1)[clear].contiguous()
        size = self.image_size
        if framed:
            image = self._framed(np.stack(pictures)[confidence >= CLEAR], mesh)
        else:
            small = []
            for picture in pictures:
                small.append(cv2.resize(picture, (size, size), interpolation=cv2.INTER_AREA))
            image = torch.from_numpy(np.stack(small)).permute(0, 3, 1, 2)[clear].contiguous()
        latents = []
        embeddings = []
        with torch.inference_mode():
            for part in _split(image):
                unit = part.float().div(127.5).sub(1)
                # Half the memory; latents are normalised, so float16 keeps three digits of each.
                latents.append(self.bundle.codec.encode(unit).half())
                embeddings.append(self.bundle.recogniser(unit))
        channels = self.bundle.codec.channels
        cells = size // self.bundle.codec.shrink
        # A portion without any face still has tensors of the right shape.
        width = self.bundle.recogniser(torch.zeros(1, 3, size, size)).shape[1]
        return {
            "image": image,
            "latents": torch.cat([torch.zeros(0, channels, cells, cells, dtype=torch.float16), *latents]),
            "mesh": mesh,
            "embedding": torch.cat([torch.zeros(0, width), *embeddings]),
            "picture": torch.tensor(numbers)[clear],
        }

    def _framed(self, pictures: NDArray[np.uint8], mesh: Tensor) -> Tensor:
        """Faces of pictures `(N, S, S, 3)` in the bundle's frame, `(N, 3, side, side)` uint8."""
        frame = self.bundle.frame
        assert frame is not None
        faces = []
        for few, points in zip(_split(torch.from_numpy(pictures)), _split(mesh), strict=True):
            face = frame.cut(few.permute(0, 3, 1, 2).float().div(127.5).sub(1), points)
            faces.append(face.add(1).mul(127.5).round().to(torch.uint8))
        return torch.cat([torch.zeros(0, 3, frame.side, frame.side, dtype=torch.uint8), *faces])


def pictures_folder(bundle: Bundle) -> Path:
    """The folder with the pictures that ship with a bundle and their table: its own, or another's that it names."""
    other: str = bundle.spec.get("pictures", ".")
    return bundle.folder / other


def _roots(root: str | list[str] | None, bundle: Bundle) -> list[Path]:
    if root is None:
        folder = pictures_folder(bundle) / SHIPPED_FOLDER
        if not folder.is_dir():
            raise UserError(f"bundle {bundle.name!r} ships no pictures: name a folder of aligned photographs as root")
        return [folder]
    return list(map(Path, [root] if isinstance(root, str) else root))


def _shipped_split(identities: str | Path | None, bundle: Bundle) -> dict[str, str] | None:
    """Split of every picture that ships with the bundle, by file name; None for other pictures."""
    if identities != pictures_folder(bundle) / SHIPPED_TABLE:
        return None
    with (pictures_folder(bundle) / SHIPPED_TABLE).open(encoding="utf-8", newline="") as file:
        splits = {}
        for row in csv.DictReader(file):
            splits[row["file"]] = row["split"]
        return splits


def shipped_test(bundle: Bundle) -> tuple[Tensor, Tensor]:
    """Embeddings of the pictures that ship with a bundle for its test, `(N, E)`; N is 0 where it ships none.

    Returns:
        The embeddings, and the cosine `(N,)` above which another picture must not be trained on: one of the same
        person where the bundle has several test pictures of that person, else the same picture in another file.
    """
    rows = shipped_pictures(bundle, "test")
    count = Counter(row["person"] for row in rows)
    threshold = []
    for row in rows:
        threshold.append(SAME_PERSON if count[row["person"]] > 1 else SAME_PICTURE)
    # `torch.cat` refuses an empty list.
    embeddings = [torch.zeros(0, 0)] if not rows else []
    for start in range(0, len(rows), PORTION):
        image = shipped_faces(bundle, rows[start : start + PORTION], bundle.image_size)
        with torch.inference_mode():
            if bundle.frame is not None:
                # As those of training, which these are compared with.
                image = bundle.frame.cut(image, bundle.landmarks(image))
            embeddings.append(bundle.recogniser(image))
    return torch.cat(embeddings), torch.tensor(threshold)


def shipped_pictures(bundle: Bundle, split: Split) -> list[dict[str, str]]:
    """Rows of the table of the pictures that ship with a bundle, of one split; none where it ships no pictures."""
    rows: list[dict[str, str]] = []
    if not (pictures_folder(bundle) / SHIPPED_TABLE).is_file():
        return rows
    with (pictures_folder(bundle) / SHIPPED_TABLE).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["split"] == split:
                rows.append(row)
    return rows


def shipped_photos(split: Split) -> list[Photo]:
    """The photographs of one split that ship with photo128, with their persons."""
    bundle = Bundle("photo128")
    folder = pictures_folder(bundle) / SHIPPED_FOLDER
    photos = []
    for row in shipped_pictures(bundle, split):
        photos.append(Photo(folder / row["file"], row["file"], row["person"]))
    return photos


def shipped_faces(bundle: Bundle, rows: Sequence[dict[str, str]], side: int) -> Tensor:
    """Pictures of some rows of `shipped_pictures`, at least one: `(B, 3, side, side)` in [-1, 1]."""
    folder = pictures_folder(bundle) / SHIPPED_FOLDER
    pixels = read_photos([folder / row["file"] for row in rows], side)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(127.5).sub(1)


def check_pictures(photos: Sequence[Photo]) -> None:
    """Read every picture once, before the long work begins.

    Raises:
        UserError: Some are damaged or not square; one line names them.
    """
    bad: list[str] = []
    for photo in photos:
        try:
            square = read_photo(photo.path, SOURCE_SIDE)[1]
        except UnreadableError as error:
            bad.append(str(error))
            continue
        if not square:
            bad.append(f"{photo.path}: not square")
    if not bad:
        return
    named = bad[:MOST_NAMED]
    if len(bad) > MOST_NAMED:
        named.append(f"and {len(bad) - MOST_NAMED} more")
    raise UserError(f"{len(bad)} pictures cannot be trained on; mend, align or remove them: {'; '.join(named)}")


def _split(rows: Tensor) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = rows.split(PORTION)  # type: ignore[no-untyped-call]
    return parts


def _read(path: Path) -> dict[str, Tensor]:
    """A prepared portion from the cache.

    Raises:
        UserError: The file is damaged.
    """
    try:
        return load_tensors(path)
    except UserError as error:
        raise UserError(f"{path} is damaged: delete it, then its pictures are prepared again") from error


def _content(path: Path) -> bytes:
    """SHA-256 of a file's bytes.

    Raises:
        UnreadableError: It cannot be read.
    """
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror}") from error


def _joined(portions: Iterable[tuple[dict[str, Tensor], list[Photo]]], number: dict[str, int]) -> PreparedVersions:
    """One set of all portions of a split; `number` gives the label of a person, or of a picture of nobody known."""
    parts: list[dict[str, Tensor]] = []
    labels: list[int] = []
    first = 0
    for tensors, photos in portions:
        for picture in tensors["picture"].tolist():
            photo = photos[picture]
            labels.append(number[photo.identity or photo.name])
        # Every portion counts its pictures from 0, and siblings are found by this number.
        parts.append({**tensors, "picture": tensors["picture"] + first})
        first += len(photos)
    if not parts:
        return PreparedVersions({"picture": torch.zeros(0, dtype=torch.int64)}, [])
    whole = {}
    for name in parts[0]:
        whole[name] = torch.cat([part[name] for part in parts])
    return PreparedVersions(whole, labels)


def _siblings(picture: Tensor) -> Tensor:
    """For every row the next one of the same picture, in a circle; the row itself where it is the only one."""
    rows: dict[int, list[int]] = {}
    for row, number in enumerate(picture.tolist()):
        rows.setdefault(number, []).append(row)
    sibling = torch.arange(len(picture))
    for group in rows.values():
        for position, row in enumerate(group):
            sibling[row] = group[(position + 1) % len(group)]
    return sibling
