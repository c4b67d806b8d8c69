"""The whole test of one method on held-out faces: `update` per batch, `compute` once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

from faceanon.files import state_sha256
from faceanon.metrics.appearance import AppearanceSuite, Parts
from faceanon.metrics.cache import CachedOriginals, FeatureCache, network_digest
from faceanon.metrics.checks import check_image, check_labels
from faceanon.metrics.detection import DetectionSuite, detector_digest, make_detector
from faceanon.metrics.fingerprints import bundle_hashes, row_numbers
from faceanon.metrics.guards import find_faults
from faceanon.metrics.pictures import PictureCheck, SeenPictures
from faceanon.metrics.protocol import Protocol, protocol_facts
from faceanon.metrics.suite import RecognitionSuite
from faceanon.metrics.versions import VersionMaker, Versions, draw_keys, saved_drawing
from faceanon.types import FaceBatch

if TYPE_CHECKING:
    from faceanon.backbones.base import Backbone
    from faceanon.photo.detect import Detector
    from faceanon.weights.bundle import Bundle

ROLES = ("judge", "recogniser", "parser", "landmarks", "perceptual", "features")


def network_or_none(bundle: Bundle, role: str) -> Any:  # noqa: ANN401 - each role has its own interface
    """A frozen network of the bundle, or None where it has none for this role."""
    # A bundle of one's own may be any object with the networks as attributes, without `has`.
    has: Callable[[str], bool] | None = getattr(bundle, "has", None)
    if has is not None and not has(role):
        return None
    return getattr(bundle, role, None)


class Evaluation:
    """Measure anonymization and recovery, with all pictures taken as they come back from a saved file.

    Give it original pictures of held-out people, at least two of each, with identity labels. Keys are fresh for every
    picture. Under DDP give each process its own part without padding, or duplicates count as genuine pairs.

    After `compute`, `ci` has 95% intervals of the rates, `faults` the ways in which the figures deceive, by figure,
    `warnings` the same as sentences, `scores` the judge's cosines by kind of pair, `skipped` the figures that could not
    be computed, `samples` rows for image sheets.

    Args:
        bundle: Judge, recogniser, parser, landmarks, perceptual network; figures whose network is missing are skipped.
        far: False accept rate that sets each recogniser's threshold, on pairs of originals of different people.
        keys: Anonymizing keys per picture.
        seed: Of the keys and of every draw; the protocol's, or 0, where None.
        jpeg_qualities: Extra levels of recovery, from a JPEG of each quality.
        kffa_keys: Keys per picture for KFFA; 0 leaves it out. The papers use 50, which costs as many passes.
        sample_rows: Number of faces kept for the sheets.
        protocol: Sets all of the above but `sample_rows`; `compute` then says where the test did not follow it, a
            `seed` of one's own included.
        detectors: Face detectors by name, beside those that the protocol names.
        judges: Further recognisers by name, beside the bundle's: `(B, 3, S, S)` in [-1, 1] -> `(B, E)`.
        fallback: Threshold by recogniser, for pictures that show no two known people.
        cache: Keeps what the networks make of originals, for the next method; the figures are those without it.

    Raises:
        ValueError: An argument is out of range, or the bundle has no recogniser at all.

    Examples:
        >>> import torch
        >>> from faceanon.backbones.classical import Mask
        >>> from faceanon.data.prepared import shipped_faces, shipped_pictures
        >>> from faceanon.metrics.evaluation import Evaluation
        >>> from faceanon.types import FaceBatch
        >>> from faceanon.weights.bundle import Bundle
        >>> method = Mask().eval()
        >>> pictures = shipped_faces(Bundle("photo128"), shipped_pictures(Bundle("photo128"), "test")[:8], 128)
        >>> evaluation = Evaluation(method.bundle, jpeg_qualities=())
        >>> evaluation.update(FaceBatch(pictures, torch.arange(8) // 2, torch.full((8,), -1)), method)
        >>> figures = evaluation.compute()
        >>> figures["key_similarity/dlib_resnet"]  # a grey patch takes no key
        1.0
        >>> evaluation.faults["key_similarity/dlib_resnet"]
        'the key is ignored: two keys give the same person in 100% of the pairs'
    """

    def __init__(
        self,
        bundle: Bundle,
        far: float = 1e-2,
        keys: int = 2,
        seed: int | None = None,
        jpeg_qualities: tuple[int, ...] = (75,),
        kffa_keys: int = 0,
        sample_rows: int = 8,
        protocol: Protocol | None = None,
        detectors: Mapping[str, Detector] | None = None,
        judges: Mapping[str, Callable[[Tensor], Tensor]] | None = None,
        fallback: Mapping[str, float] | None = None,
        cache: FeatureCache | None = None,
    ) -> None:
        if protocol is not None:
            far = protocol.matching.far
            keys = protocol.keys
            seed = protocol.seed if seed is None else seed
            jpeg_qualities = protocol.jpeg_qualities
            kffa_keys = protocol.kffa_keys
        if not 0 < far < 1:
            raise ValueError(f"far must lie between 0 and 1, got {far}")
        if keys < 2 or kffa_keys < 0 or kffa_keys == 1:
            raise ValueError(f"keys must be at least 2, and kffa_keys 0 or at least 2; got {keys} and {kffa_keys}")
        if not all(1 <= quality <= 100 for quality in jpeg_qualities):
            raise ValueError(f"JPEG qualities lie from 1 to 100, got {jpeg_qualities}")
        self.bundle = bundle
        self.far = far
        self.keys = keys
        self.seed = seed or 0
        self.kffa_keys = kffa_keys
        self.sample_rows = sample_rows
        self.protocol = protocol
        self.detectors = dict(detectors or {})
        self.judges = dict(judges or {})
        self.fallback = dict(fallback or {})
        self.cache = cache
        self.maker = VersionMaker(keys, self.seed, tuple(jpeg_qualities))
        self.reset()

    def reset(self) -> None:
        """Forget all batches and figures, as if the evaluation were new."""
        self.seen = 0
        self.total: SeenPictures | None = None
        self.figures: dict[str, float] = {}
        self.ci: dict[str, tuple[float, float]] = {}
        self.scores: dict[str, Tensor] = {}
        self.faults: dict[str, str] = {}
        self.warnings: list[str] = []
        self.skipped: list[str] = []
        self.samples: dict[str, Tensor] = {}
        self.pictures = PictureCheck()
        self.followed: dict[str, Any] = {}
        self.method_sha256: str | None = None
        self._codes_missing = False
        self._irreversible = False
        self._sealed = False
        for name in ("suites", "appearance", "detection"):
            # Cached properties: they are built anew from the networks at hand.
            self.__dict__.pop(name, None)

    @cached_property
    def networks(self) -> dict[str, Any]:
        """The bundle's networks by role, None where it has none; built at the first batch."""
        return {role: network_or_none(self.bundle, role) for role in ROLES}

    @cached_property
    def recognisers(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Recognisers by name, the judge first, then further judges, then the training recogniser."""
        recognisers: dict[str, Callable[[Tensor], Tensor]] = {}
        for role in ("judge", "recogniser"):
            net = self.networks[role]
            # A bundle has no name for a network that it has not got.
            if net is not None:
                name = getattr(self.bundle, f"{role}_name", role)
                # Figures are told apart by the recogniser's name, so two of one name would be mixed.
                if name in recognisers:
                    raise ValueError(f"judge and recogniser of bundle {self.bundle.name!r} have the same name {name!r}")
                recognisers[name] = net
            # Further judges stand right after the first one: reports take the first name as the judge.
            if role == "judge":
                recognisers |= getattr(self.bundle, "further_judges", {}) | self.judges
        if not recognisers:
            raise ValueError(f"bundle {self.bundle.name!r} has no recogniser, so nobody can say who is who")
        return recognisers

    @cached_property
    def suites(self) -> dict[str, RecognitionSuite]:
        """A `RecognitionSuite` for each recogniser, by its name."""
        options: dict[str, Any] = {}
        if self.protocol is not None:
            matching = self.protocol.matching
            options = {"fars": matching.fars, "ranks": matching.ranks, "readings": matching.readings}
            # Without a protocol the defaults of the suite hold.
            options["draws"] = self.protocol.draws
        suites = {}
        for name in self.recognisers:
            fallback = self.fallback.get(name, math.nan)
            suites[name] = RecognitionSuite(name, self.far, self.seed, fallback=fallback, **options)
        return suites

    @cached_property
    def detection(self) -> DetectionSuite:
        """What is collected about detectors; those of the protocol are built at the first batch."""
        named: tuple[str, ...] = ()
        if self.protocol is not None:
            named = self.protocol.detectors
        made = {}
        for name in named:
            # A detector that the caller gave replaces the protocol's of the same name.
            if name not in self.detectors:
                made[name] = make_detector(name, self.bundle.image_size)
        if self.protocol is None:
            return DetectionSuite(made | self.detectors, seed=self.seed)
        return DetectionSuite(made | self.detectors, self.protocol.draws, self.seed)

    @cached_property
    def appearance(self) -> AppearanceSuite:
        """What is collected about the pictures."""
        bundle = self.bundle
        nets = self.networks
        parts = Parts(bundle.image_size, nets["parser"], nets["landmarks"], nets["perceptual"], nets["features"])
        # Asked only with a parser: a bundle without one raises where its classes are wanted.
        if parts.parser is not None:
            parts.face_classes = tuple(bundle.face_classes)
            parts.head_classes = tuple(bundle.head_classes)
            parts.occluder_class = bundle.occluder_class
        if self.protocol is None:
            return AppearanceSuite(parts, self.seed)
        return AppearanceSuite(parts, self.seed, self.protocol.kid_subsets, self.protocol.kid_subset_size)

    @cached_property
    def digests(self) -> dict[str, str | None]:
        """Hashes of networks and detectors, by the names that the suites ask `CachedOriginals` for."""
        named = {}
        for name, net in self.recognisers.items():
            named[f"recogniser/{name}"] = net
        for role in ("parser", "landmarks", "perceptual", "features"):
            named[role] = self.networks[role]
        detectors = {}
        for name, item in self.detection.detectors.items():
            detectors[f"detector/{name}"] = detector_digest(item)
        hashes = {}
        for name, net in named.items():
            hashes[name] = network_digest(net)
        return hashes | detectors

    @property
    def meta(self) -> dict[str, Any]:
        """What the figures were made with, for the report; complete after `compute`."""
        # The judge stands first and the training recogniser last: see `recognisers`.
        names = list(self.recognisers)
        return {
            "bundle": self.bundle.name,
            "judge": names[0],
            "white_box": names[-1:] if self.networks["recogniser"] is not None else [],
            "images": self.seen if self.total is None else self.total.images,
            "people": 0 if self.total is None else self.total.people,
            "far": self.far,
            "keys": self.keys,
            "seed": self.seed,
            "weights": bundle_hashes(self.bundle),
            "method_sha256": self.method_sha256,
            **({"protocol": self.followed} if self.followed else {}),
        }

    @torch.no_grad()
    def update(self, batch: FaceBatch, backbone: Backbone) -> None:
        """Anonymize, recover and compare one batch of originals.

        Raises:
            ValueError: Wrong shape or range, or NaN, in the batch or in what the backbone makes of it.
        """
        image = check_image("batch.image", batch.image)
        self._move(image.device)
        indices = row_numbers(batch)
        # Weights do not change during a test, so the first batch says whose they are.
        self.method_sha256 = self.method_sha256 or state_sha256(backbone)
        versions = self.maker.make(backbone, image, indices)
        self._codes_missing |= versions.reconstruction is None
        self._irreversible |= not backbone.reversible
        self._sealed |= backbone.sealed
        self.add(batch, versions)
        if self.kffa_keys:
            self._kffa(image, backbone, indices)

    @torch.no_grad()
    def add(self, batch: FaceBatch, versions: Versions) -> None:
        """Compare one batch of originals with what anybody made of them.

        Raises:
            ValueError: Wrong shape or range, or NaN, in the batch or in its versions.
        """
        image = check_image("batch.image", batch.image)
        identity = check_labels("batch.identity", batch.identity, len(batch))
        self._move(image.device)
        self.pictures.to(image.device).update(batch)
        # Without a cache nobody asks for hashes of the networks, and those take seconds.
        originals = CachedOriginals(image, {} if self.cache is None else self.digests, self.cache)
        for name, net in self.recognisers.items():
            embedded = originals.tensor(f"recogniser/{name}", net)
            self.suites[name].update(embed(net, embedded, versions), identity)
        self.appearance.update(batch, versions, originals)
        changed = {"anonymized": versions.anonymized[0]}
        if "file" in versions.recovered:
            changed |= {"recovered": versions.recovered["file"]}
        self.detection.update(image, changed, originals)
        self.seen += len(batch)
        self._keep_samples(image, versions)

    def _move(self, device: torch.device) -> None:
        """Networks are built on the CPU at first use; afterwards they follow the pictures."""
        # `self.networks` is never empty: asking for it builds the networks, so that they are there to be moved.
        if self.networks and self.__dict__.get("_device") != device:
            move = getattr(self.bundle, "to", None)
            if move is not None:
                move(device)
            self._device = device

    def _kffa(self, image: Tensor, backbone: Backbone, indices: list[int]) -> None:
        embeddings: dict[str, list[Tensor]] = {name: [] for name in self.recognisers}
        for number in range(self.kffa_keys):
            key = draw_keys(backbone, self.seed, f"kffa{number}", indices).to(image.device)
            anonymized = saved_drawing(backbone, image, key)
            for name, net in self.recognisers.items():
                embeddings[name].append(net(anonymized))
        for name, codes in embeddings.items():
            self.suites[name].update_angle(torch.stack(codes, 1))

    def _keep_samples(self, image: Tensor, versions: Versions) -> None:
        rows = {"original": image}
        for number, anonymized in enumerate(versions.anonymized[:2], 1):
            rows[f"anonymized, key {number}" if len(versions.anonymized) > 1 else "anonymized"] = anonymized
        if "file" in versions.recovered:
            rows["recovered"] = versions.recovered["file"]
        if versions.wrong is not None:
            rows["wrong key"] = versions.wrong
        for name, row in rows.items():
            kept = self.samples.get(name, row[:0].cpu())
            # The first rows of the test, from as many batches as that takes.
            self.samples[name] = torch.cat([kept, row[: self.sample_rows - len(kept)].cpu()])

    def compute(self) -> dict[str, float]:
        """All figures by metric name, the judge's first; also fills `ci`, `scores`, `warnings` and `skipped`.

        Raises:
            ValueError: Nothing was added.
        """
        if not self.seen:
            raise ValueError("nothing to compute: no batch was added")
        self.figures = {}
        self.ci = {}
        self.scores = {}
        self.skipped = self._missing()
        # Of all processes together, where `seen` above counts the pictures of this one.
        self.total = self.pictures.seen()
        for suite in self.suites.values():
            verdict = suite.compute()
            self.figures |= verdict.figures
            self.ci |= verdict.ci
            self.skipped += verdict.skipped
            # Plots show the judge's scores, and the judge is the first.
            self.scores = self.scores or verdict.scores
        self._appearance_figures()
        self.faults = find_faults(self.figures, next(iter(self.suites)), self.far)
        # After `find_faults`, since it adds the protocol's fault to that dict.
        self._follow(self.total)
        self.warnings = list(self.faults.values())
        return self.figures

    def _appearance_figures(self) -> None:
        """Figures on pictures and detectors, with the intervals of those that have one."""
        self.figures |= self.appearance.compute()
        self.ci |= self.appearance.ci
        if self.detection.metrics:
            # Labels of all processes, in the same order in which the detectors' rows are gathered.
            with self.pictures.sync_context():
                people = dim_zero_cat(self.pictures.identity)
            figures, intervals = self.detection.compute(people)
            self.figures |= figures
            self.ci |= intervals

    def _follow(self, seen: SeenPictures) -> None:
        """Say where the test did not follow its protocol."""
        if self.protocol is None:
            return
        self.followed = protocol_facts(self.protocol, seen, bundle_hashes(self.bundle))
        deviations: list[str] = self.followed["deviations"]
        if self.seed != self.protocol.seed:
            deviations.append(f"seed {self.seed} instead of {self.protocol.seed}")
        if deviations:
            listed = "; ".join(deviations)
            self.faults["protocol"] = f"protocol {self.protocol.label} was not followed: {listed}"

    def _missing(self) -> list[str]:
        """What could not be measured, and why."""
        needs = {
            "judge": "figures of a recogniser that trained nothing",
            "recogniser": "figures of the training recogniser",
            "parser": "parsing_iou, and regions of faces without ground truth",
            "landmarks": "landmark_distance",
            "perceptual": "lpips, fid, kid",
        }
        reasons = []
        for role, what in needs.items():
            if self.networks[role] is None:
                reasons.append(f"{what}: bundle has no {role}")
        if self._codes_missing:
            reasons.append("self_verification, recovery_rate/*/latent: the method has no codes")
        if self._sealed:
            reasons.append("recovery_rate/*/latent: what brings a face back is a sealed code, not an edited one")
        if self._irreversible:
            reasons.append("recovery and wrong keys: the method is not reversible")
        # Of pictures without their method nobody expects it.
        if not self.kffa_keys and self.method_sha256 is not None:
            reasons.append("kffa: kffa_keys is 0")
        return reasons


def embed(net: Callable[[Tensor], Tensor], original: Tensor, versions: Versions) -> dict[str, Tensor]:
    """Embeddings `(B, E)` by version, the originals' given; `anonymized` is `(B, K, E)`, one a key."""
    embeddings = {"original": original, "anonymized": torch.stack(list(map(net, versions.anonymized)), 1)}
    for level, recovered in versions.recovered.items():
        embeddings[f"recovered/{level}"] = net(recovered)
    for what, face in (("reconstruction", versions.reconstruction), ("wrong", versions.wrong)):
        if face is not None:
            embeddings[what] = net(face)
    return embeddings
