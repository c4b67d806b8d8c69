"""A protocol: every choice behind a figure, as data with a name and a version (protocols/*.yaml beside this file)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from faceanon.errors import UserError
from faceanon.metrics.pictures import TOLERANCE, SeenPictures, read_list
from faceanon.metrics.readings import ThresholdReading
from faceanon.metrics.strict import typed

SCHEMA = 1


@dataclass(frozen=True)
class ProtocolPictures:
    """Which pictures are tested.

    Args:
        source: `shipped` (the synthetic photographs that ship) or `folder` (photographs of your own).
        split: Name of the split.
        images: Number of pictures; N of every figure, FID and KID included.
        people: Number of people.
        image_size: Side in pixels.
        low: Lowest value of a pixel as networks see it.
        high: Highest value.
        alignment: How faces lie in the picture.
        photos: Pictures a person, where it is the same for all.
        seed: Of the split (folder).
        signature: See `pictures.SeenPictures`; empty where the source does not say which pictures it used.
        files: Name of the list beside the protocol, lines `sha256 person` (folder).
    """

    source: Literal["shipped", "folder"]
    split: str
    images: int
    people: int
    image_size: int
    low: float
    high: float
    alignment: str
    photos: int | None = None
    seed: int | None = None
    signature: tuple[float, ...] = ()
    files: str | None = None


@dataclass(frozen=True)
class Network:
    """One network of the test.

    Args:
        name: As in figures.
        sha256: Of its weights; None where any will do, and results say which it was.
        crop: Rows and columns (top, bottom, left, right) it sees, as fractions; None for the whole picture.
        input_size: Height and width in pixels of what it sees; None for pictures as they come.
    """

    name: str
    sha256: str | None = None
    crop: tuple[float, float, float, float] | None = None
    input_size: tuple[int, int] | None = None


@dataclass(frozen=True)
class ProtocolNetworks:
    """The networks of the test, by role; None where a role is not used.

    Args:
        judge: Recogniser that trained nothing; its figures are the ones that count.
        recogniser: The training recogniser, for the white-box figures beside them.
        parser: Parsing network.
        landmarks: Landmark network.
        perceptual: Of the perceptual distance.
        features: Of FID and KID.
    """

    judge: Network | None
    recogniser: Network | None
    parser: Network | None
    landmarks: Network | None
    perceptual: Network | None
    features: Network | None


@dataclass(frozen=True)
class Matching:
    """When two faces count as one person.

    Args:
        far: False accept rate on pairs of originals that sets each recogniser's threshold.
        fars: False accept rates at which true accept rates are reported.
        ranks: Ranks of identification.
        readings: Further fixed thresholds, with what they bound.
    """

    far: float
    fars: tuple[float, ...]
    ranks: tuple[int, ...]
    readings: tuple[ThresholdReading, ...] = ()


@dataclass(frozen=True)
class Protocol:
    """All choices of an evaluation.

    Args:
        schema: Of the file.
        name: Of the protocol.
        version: Raised whenever a choice changes, so that figures of two versions are never mixed up.
        about: What it is for, in a sentence or two.
        pictures: Which pictures.
        networks: Which networks.
        matching: Which thresholds.
        keys: Anonymizing keys a picture.
        kffa_keys: Keys a picture for KFFA and key diversity; 0 leaves them out.
        jpeg_qualities: Recovery is also tested from a JPEG of each.
        kid_subsets: Random subsets of KID.
        kid_subset_size: Pictures in each.
        detectors: Names of face detectors.
        seed: Of keys, subsets and bootstrap.
        draws: Bootstrap samples behind an interval; 200 at most behind those of `eer`, `auc` and `tar_at_far`.
        unstated: Choices that the source leaves open and that are ours.
    """

    schema: int
    name: str
    version: int
    about: str
    pictures: ProtocolPictures
    networks: ProtocolNetworks
    matching: Matching
    keys: int
    kffa_keys: int
    jpeg_qualities: tuple[int, ...]
    kid_subsets: int
    kid_subset_size: int
    detectors: tuple[str, ...]
    seed: int
    draws: int
    unstated: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Name and version as one word, such as `photo128-v1`."""
        return f"{self.name}-v{self.version}"

    @property
    def digest(self) -> str:
        """Hash over every choice; an edited file with an old version number gives itself away."""
        content = {}
        for k, v in dataclasses.asdict(self).items():
            # What explains a choice is not the choice.
            if k not in ("about", "unstated"):
                content[k] = v
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def deviations(self, seen: SeenPictures, weights: Mapping[str, str]) -> list[str]:
        """In which ways a test did not follow the protocol; empty if it did.

        Args:
            seen: The pictures that it saw.
            weights: sha256 of the networks' weights by role, as far as known.
        """
        asked = self.pictures
        counts = [("images", seen.images, asked.images)]
        # With one picture of each nobody has to be named.
        if seen.people or asked.people < asked.images:
            counts.append(("people", seen.people, asked.people))
        differences = []
        for what, count, expected in counts:
            if count != expected:
                differences.append(f"{count} {what} instead of {expected}")
        # An empty signature asks for nothing.
        pairs = zip(seen.signature, asked.signature, strict=False)
        if asked.signature and max(abs(a - b) for a, b in pairs) > TOLERANCE:
            differences.append("other pictures (their signature differs)")
        for role, network in vars(self.networks).items():
            wanted = None if network is None else network.sha256
            # A role whose hash the bundle does not state shows no other network, and counts as followed.
            if wanted is not None and weights.get(role, wanted) != wanted:
                differences.append(f"another {role} (its weights are not {network.name}'s)")
        return differences

    def file_list(self) -> dict[str, str]:
        """Person by sha256 of the picture file, for photographs.

        Raises:
            UserError: The protocol has no list, or it is missing or damaged.
        """
        if self.pictures.files is None:
            raise UserError(f"protocol {self.label} lists no picture files; its source does not say which it used")
        return read_list(folder() / self.pictures.files)


def folder() -> Path:
    """Where the shipped protocols lie."""
    return Path(__file__).with_name("protocols")


def known() -> list[str]:
    """Labels of the shipped protocols, such as `photo128-v1`."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


def load_protocol(name: str | Path) -> Protocol:
    """Read a protocol by label (`photo128-v1`) or path.

    Raises:
        UserError: There is none, or it is damaged or contradicts itself; the message names file and entry.

    Examples:
        >>> from faceanon.metrics.protocol import known, load_protocol
        >>> "photo128-v1" in known()
        True
        >>> load_protocol("photo128-v1").matching.far
        0.01
    """
    path = next((p for p in (Path(name), folder() / f"{name}.yaml") if p.is_file()), None)
    if path is None:
        raise UserError(f"no protocol {str(name)!r}: give a YAML file, or one of {', '.join(known())}")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is no YAML: {' '.join(str(error).split())[:300]}") from error
    return check_protocol(typed(Protocol, data, path.name), path.name)


def check_protocol(protocol: Protocol, where: str) -> Protocol:
    """Return a protocol whose choices are possible.

    Raises:
        UserError: One is not; the message names it.
    """
    pictures = protocol.pictures
    matching = protocol.matching
    folder_needs_list = pictures.source == "folder" and pictures.files is None and "pictures" not in protocol.unstated
    checks = [
        (protocol.schema == SCHEMA, f"schema must be {SCHEMA}, got {protocol.schema}"),
        (protocol.version >= 1, "version must be at least 1"),
        (pictures.low < pictures.high, "pictures: low must be below high"),
        (2 <= pictures.people <= pictures.images, "pictures: people must be from 2 to the number of images"),
        (len(pictures.signature) in (0, 48), "pictures: signature must have 48 numbers, or be empty"),
        (not folder_needs_list, "pictures: a folder needs files, or `pictures` among unstated"),
        (all(0 < far < 1 for far in (matching.far, *matching.fars)), "matching: false accept rates lie in (0, 1)"),
        (all(rank >= 1 for rank in matching.ranks), "matching: ranks start at 1"),
        (protocol.keys >= 2, "keys must be at least 2"),
        (protocol.kffa_keys == 0 or protocol.kffa_keys >= 2, "kffa_keys must be 0 or at least 2"),
        (all(1 <= quality <= 100 for quality in protocol.jpeg_qualities), "jpeg_qualities lie from 1 to 100"),
        (min(protocol.kid_subsets, protocol.draws) >= 1, "kid_subsets and draws must be at least 1"),
        (2 <= protocol.kid_subset_size <= pictures.images, "kid_subset_size must be from 2 to the number of images"),
    ]
    for fine, message in checks:
        if not fine:
            raise UserError(f"{where}: {message}")
    for reading in matching.readings:
        try:
            # The property raises for an impossible threshold. Asked here, it cannot fail in the middle of a test.
            _ = reading.cosine
        except ValueError as error:
            raise UserError(f"{where}: reading {reading.name!r}: {error}") from error
    return protocol


def protocol_facts(protocol: Protocol, seen: SeenPictures, weights: Mapping[str, str]) -> dict[str, Any]:
    """Which protocol results follow, with hashes of protocol and pictures; goes into `meta["protocol"]`."""
    return {
        "name": protocol.name,
        "version": protocol.version,
        "sha256": protocol.digest,
        "deviations": protocol.deviations(seen, weights),
        "pictures_sha256": seen.sha256,
        "signature": list(seen.signature),
    }
