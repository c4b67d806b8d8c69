"""What a method does to covered faces: to the occluder, to the face around it, to anonymity and recovery.

Every figure stands beside the one of the same faces without an occluder, made with the same keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric

from faceanon.files import state_sha256
from faceanon.metrics.checks import check_image, check_labels
from faceanon.metrics.detection import largest_faces
from faceanon.metrics.evaluation import network_or_none
from faceanon.metrics.fingerprints import bundle_hashes
from faceanon.metrics.guards import few_pairs
from faceanon.metrics.interval import mean_interval
from faceanon.metrics.recognition import Identification, PairSimilarity, Verification, match_rate
from faceanon.metrics.saved import saved
from faceanon.metrics.versions import bring_back, codes_or_none, draw_keys, open_wrongly, saved_drawing
from faceanon.studies.occlusion.pictures import OccludedBatch, Occlusion
from faceanon.studies.occlusion.rows import (
    Rows,
    label_iou,
    mask_iou,
    masked_psnr,
    occlusion_faults,
    visible,
)

if TYPE_CHECKING:
    from faceanon.backbones.base import Backbone
    from faceanon.photo.detect import Detector
    from faceanon.weights.bundle import Bundle

NONE = "none"
NO_SHARES = ("occluder_psnr", "landmark_distance")  # what is not in [0, 1]


class OcclusionTest:
    """Anonymize and recover faces bare and with occluders, all pictures taken as they come back from a saved file.

    Figures end in the kind of occluder, `none` for the bare faces. After `compute`, `ci` has the 95% intervals,
    `faults` the ways in which an occluder undoes the method, `skipped` what could not be measured, and `samples` rows
    for a sheet.

    Args:
        bundle: Judge (or, lacking one, the training recogniser), parser and landmarks.
        far: False accept rate that sets the judge's threshold, on pairs of bare originals of different people.
        seed: Of keys and bootstrap.
        draws: Bootstrap samples behind an interval.
        detectors: Face detectors by name.
        sample_rows: Faces kept for the sheet.

    Raises:
        ValueError: The bundle has no recogniser.
    """

    def __init__(
        self,
        bundle: Bundle,
        far: float = 1e-2,
        seed: int = 0,
        draws: int = 1000,
        detectors: Mapping[str, Detector] | None = None,
        sample_rows: int = 6,
    ) -> None:
        self.bundle = bundle
        self.far = far
        self.seed = seed
        self.draws = draws
        self.detectors = dict(detectors or {})
        self.sample_rows = sample_rows
        self.role = next((role for role in ("judge", "recogniser") if network_or_none(bundle, role)), None)
        if self.role is None:
            raise ValueError(f"bundle {bundle.name!r} has no recogniser, so nobody can say who is who")
        self.judge = str(getattr(bundle, f"{self.role}_name", self.role))
        self.metrics: dict[str, Metric] = {}
        self.kinds: list[str] = []
        self.seen = 0
        self.method_sha256 = ""
        self.reversible = True
        self.figures: dict[str, float] = {}
        self.ci: dict[str, tuple[float, float]] = {}
        self.faults: dict[str, str] = {}
        self.samples: dict[str, Tensor] = {}
        self.skipped: list[str] = []

    @cached_property
    def networks(self) -> dict[str, Any]:
        """Recogniser, parser and landmark network; None where the bundle has none."""
        networks = {}
        for role in (str(self.role), "parser", "landmarks"):
            networks[role] = network_or_none(self.bundle, role)
        return networks

    @cached_property
    def occluder_class(self) -> int | None:
        """The parser's class of occluders, where it has one."""
        if self.networks["parser"] is not None:
            return self.bundle.occluder_class
        return None

    @property
    def meta(self) -> dict[str, Any]:
        """What the figures were made with; complete after `compute`."""
        people = self._metric(f"bare/{NONE}", Verification).identity
        return {
            "bundle": self.bundle.name,
            "judge": self.judge,
            "white_box": [self.judge] if self.role == "recogniser" else [],
            "images": self.seen,
            "people": len(set(torch.cat(people).tolist())) if people else 0,
            "occluders": self.kinds,
            "far": self.far,
            "seed": self.seed,
            "draws": self.draws,
            "weights": bundle_hashes(self.bundle),
            "method_sha256": self.method_sha256,
        }

    def _metric(self, name: str, make: Callable[[], Metric]) -> Any:  # noqa: ANN401 - any metric
        return self.metrics.setdefault(name, make())

    def _row(self, name: str, values: Tensor) -> None:
        self._metric(f"rows/{name}", Rows).update(values.cpu())

    @torch.no_grad()
    def update(self, batch: OccludedBatch, backbone: Backbone) -> None:
        """Add a batch of faces, bare and with every kind of occluder.

        Raises:
            ValueError: Wrong shape or range, or NaN, in the batch or in what the backbone makes of it.
        """
        plain = check_image("batch.plain.image", batch.plain.image)
        people = check_labels("batch.plain.identity", batch.plain.identity, len(plain)).cpu()
        # Once: the weights do not change between batches.
        self.method_sha256 = self.method_sha256 or state_sha256(backbone)
        self.reversible = backbone.reversible
        self.seen = self.seen + len(plain)
        for kind in batch.worn:
            if kind not in self.kinds:
                self.kinds.append(kind)
        empty = torch.zeros(len(plain), *plain.shape[2:], dtype=torch.bool, device=plain.device)
        # Always of the bare originals: the person is looked for, not the occluder.
        reference = self.networks[str(self.role)](plain).cpu()
        moved: Tensor | None = None
        # The bare face first: the others' landmarks are compared with its.
        for kind, worn in {NONE: Occlusion(plain, empty), **batch.worn}.items():
            made = self._make(backbone, worn.image, batch.numbers)
            self._recognition(kind, made, reference, people)
            self._pictures(kind, made, worn.mask)
            moved = self._landmarks(kind, made, worn.mask, moved)
            self._detection(kind, made)
            self._keep(kind, made)

    def _make(self, backbone: Backbone, image: Tensor, numbers: list[int]) -> dict[str, Tensor]:
        """The versions of `(B, 3, S, S)`, read back from files; an occluded face gets its bare face's keys."""
        keys = []
        for role in ("key1", "wrong"):
            keys.append(draw_keys(backbone, self.seed, role, numbers).to(image.device))
        made = {"original": image, "anonymized": saved_drawing(backbone, image, keys[0])}
        if backbone.reversible:
            # A sealed method opens codes that lie beside the picture; any other method has none.
            codes = codes_or_none(backbone, image)
            made["recovered"] = saved(bring_back(backbone, made["anonymized"], keys[0], codes))
            made["wrong key"] = saved(open_wrongly(backbone, made["anonymized"], keys[1]))
        return made

    def _recognition(self, kind: str, made: Mapping[str, Tensor], reference: Tensor, people: Tensor) -> None:
        net = self.networks[str(self.role)]
        embeddings = {}
        for what, image in made.items():
            embeddings[what] = net(image).cpu()
        self._metric(f"bare/{kind}", lambda: Verification(self.far, seed=self.seed)).update(
            embeddings["original"], people
        )
        self._metric(f"lookup/{kind}", Identification).update(embeddings["anonymized"], reference, people)
        pairs = {"deid_rate": embeddings["anonymized"]}
        if self.reversible:
            pairs |= {"recovery_rate": embeddings["recovered"], "wrong_key_rate": embeddings["wrong key"]}
        for name, embedding in pairs.items():
            self._metric(f"cosine/{name}/{kind}", PairSimilarity).update(embedding, embeddings["original"])
        # Of a bare face this would compare the original with itself.
        if kind != NONE:
            self._metric(f"cosine/through_rate/{kind}", PairSimilarity).update(embeddings["original"], reference)

    def _pictures(self, kind: str, made: Mapping[str, Tensor], mask: Tensor) -> None:
        """What is left of the occluder."""
        if kind == NONE:
            return
        changed = {}
        for what in ("anonymized", "recovered"):
            if what in made:
                changed[what] = made[what]
        for what, image in changed.items():
            self._row(f"occluder_psnr/{kind}/{what}", masked_psnr(image, made["original"], mask))
        parser = self.networks["parser"]
        if parser is None:
            return
        labels = {}
        for what, image in {"original": made["original"], **changed}.items():
            labels[what] = parser(image).argmax(1)
        for what, classes in labels.items():
            if what != "original":
                self._row(f"occluder_parsing_iou/{kind}/{what}", label_iou(classes, labels["original"], mask))
            if self.occluder_class is not None:
                self._row(f"occluder_mask_iou/{kind}/{what}", mask_iou(classes == self.occluder_class, mask))

    def _landmarks(self, kind: str, made: Mapping[str, Tensor], mask: Tensor, moved: Tensor | None) -> Tensor | None:
        """Distances of uncovered landmarks; `moved` `(B, K)` are those of the bare faces, which are returned."""
        net = self.networks["landmarks"]
        if net is None:
            return None
        points = net(made["original"])
        # Landmarks lie in [-1, 1], so half a side is one unit: in pixels.
        distance = (net(made["anonymized"]) - points).norm(dim=-1) * mask.shape[-1] / 2
        moved = distance if moved is None else moved
        seen = visible(points, mask)
        for name, values in {kind: distance, f"{kind}/bare": moved}.items():
            if name != f"{NONE}/bare":
                # NaN leaves covered landmarks out of the mean; a face without any other has none.
                self._row(f"landmark_distance/{name}", values.masked_fill(~seen, math.nan).nanmean(1))
        return moved

    def _detection(self, kind: str, made: Mapping[str, Tensor]) -> None:
        for name, detector in self.detectors.items():
            for what in ("original", "anonymized"):
                seen = []
                for face in largest_faces(detector, made[what]):
                    seen.append(float(face is not None))
                self._row(f"detection_rate/{name}/{kind}/{what}", torch.tensor(seen))

    def _keep(self, kind: str, made: Mapping[str, Tensor]) -> None:
        for what, image in made.items():
            label = f"{'no occluder' if kind == NONE else kind}: {what}"
            kept = self.samples.get(label, image[:0].cpu())
            self.samples[label] = torch.cat([kept, image[: self.sample_rows - len(kept)].cpu()])

    def compute(self) -> dict[str, float]:
        """All figures by name; also fills `ci`, `faults` and `skipped`.

        Raises:
            ValueError: Nothing was added, or there are no two known people, so that no threshold can be set.
        """
        if not self.seen:
            raise ValueError("nothing to compute: no batch was added")
        known = self._metric(f"bare/{NONE}", Verification).compute()
        threshold = float(known["threshold"])
        people = known["identity"].numpy()
        if math.isnan(threshold):
            raise ValueError("no two known people, so no threshold: name the person of each picture")
        self.figures = {f"threshold/{self.judge}": threshold}
        self.ci = {}
        for name, metric in self.metrics.items():
            family, _, rest = name.partition("/")
            if family == "rows":
                self._figure(rest, metric.compute().numpy(), people)
            elif family == "cosine":
                rate, _, kind = rest.partition("/")
                accepted = match_rate(metric.compute(), threshold)
                self._figure(f"{rate}/{self.judge}/{kind}", accepted.double().numpy(), people)
            elif isinstance(metric, Identification):
                self._figure(
                    f"deid_rate_gallery/{self.judge}/{rest}", metric.lookup().accepted(threshold).numpy(), people
                )
            elif isinstance(metric, Verification):
                # At the threshold of the bare faces: at its own every kind would have the same rate.
                impostors = metric.compute()["impostor"]
                self.figures[f"impostor_rate/{self.judge}/{rest}"] = float((impostors > threshold).double().mean())
        self.faults = occlusion_faults(self.figures, self.ci, self.judge, self.kinds)
        if told := few_pairs(known["impostor"].numel(), self.far):
            self.faults = {"threshold": told} | self.faults
        self.skipped = self._missing()
        return self.figures

    def _figure(self, name: str, values: NDArray[np.floating], people: NDArray[np.integer]) -> None:
        if np.isfinite(values).any():
            share = not name.startswith(NO_SHARES)
            self.figures[name] = float(np.nanmean(values))
            self.ci[name] = mean_interval(values, people, share, self.draws, self.seed)

    def _missing(self) -> list[str]:
        """What could not be measured, and why."""
        needs = {"parser": "occluder_parsing_iou, occluder_mask_iou", "landmarks": "landmark_distance"}
        lines = []
        for role, what in needs.items():
            if self.networks[role] is None:
                lines.append(f"{what}: bundle has no {role}")
        if self.networks["parser"] is not None and self.occluder_class is None:
            lines.append("occluder_mask_iou: the bundle's parser has no class for occluders")
        if not any(name.startswith("deid_rate_gallery/") for name in self.figures):
            lines.append("deid_rate_gallery: nobody has a second picture")
        if not self.reversible:
            lines.append("recovery and wrong keys: the method is not reversible")
        return lines
