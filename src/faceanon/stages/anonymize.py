"""Stage 2: learn the key."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.backbones.base import Backbone
from faceanon.backbones.in_frame import in_use
from faceanon.data.files import read_photos
from faceanon.data.pairs import identity_sources
from faceanon.errors import UserError
from faceanon.losses.latent import LatentNorm
from faceanon.losses.reconstruction import PixelNorm, pixel_loss, round_to_8_bit
from faceanon.metrics.cache import shared_cache
from faceanon.metrics.codes import CodeAgreement
from faceanon.metrics.evaluation import Evaluation
from faceanon.metrics.protocol import load_protocol
from faceanon.metrics.quality import psnr
from faceanon.metrics.saved import from_bytes
from faceanon.models import load_into
from faceanon.networks.latents import CodecUser
from faceanon.report.evaluated import publish
from faceanon.stages.adversary import Adversary
from faceanon.stages.anonymize_terms import (
    ON_THE_WAY_BACK,
    PAPER_WEIGHTS,
    AnonymizeTerms,
    AnonymizeWeights,
    Objective,
    repeat,
)
from faceanon.stages.backbone_stage import BackboneStage, weighed
from faceanon.stages.base import average_copy, weighted_sum
from faceanon.stages.chunks import fooling_rows
from faceanon.stages.disentangle import DisentangleTerms, DisentangleWeights
from faceanon.stages.read_back import read_back
from faceanon.stages.samples import SHOWN, log_report
from faceanon.types import Branches, Codes, FaceBatch, Mixed

READ_AT_ONCE = 16  # photographs
Loop = Literal["file", "image", "latent"]


@runtime_checkable
class PhotographSource(Protocol):
    """Training data that knows the photographs behind it."""

    def files_with_faces(self, split: str) -> list[Path]:
        """Files of a split in which a face was found."""
        ...


@runtime_checkable
class PictureDrawer(Protocol):
    """A method in use on whole pictures, in which it draws faces in a frame."""

    def cut(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The faces of pictures in the frame, and where they lie."""
        ...

    def under_keys(self, image: Tensor, keys: Iterable[Tensor]) -> Iterator[tuple[Codes, Tensor]]:
        """Edited codes and drawn pictures, for one key after the other."""
        ...


class AnonymizeStage(BackboneStage[Branches]):
    """Anonymize under two keys, recover one of them, try two wrong keys; two batched generator calls.

    A method that is not reversible only anonymizes under two keys.

    Args:
        backbone: The method, as in stage 1.
        weights: Weights of the terms.
        loop: What recovery starts from in training: the anonymized picture after an 8-bit step (`file`), the float
            picture (`image`, DBAF's eqs. 19-28), or its codes (`latent`, the released code).
        saved_noise: Standard deviation, in steps of 8 bits, of noise on the anonymized picture before it is read back,
            so that recovery does not depend on the last bit. 0 adds none.
        branches_every: Batches between two that draw all five pictures and train a backbone's own terms (1: papers).
            The others draw one anonymized and the recovered picture, at less than half the cost: enough where the key
            works by construction.
        objective: How terms are put together: `dbaf` or `hford`, as printed; `released`; or `means`, which is ours
            (`stages.anonymize_terms`).
        margin: Cosine below which two faces count as different enough; 0 in the papers.
        clamp_recovery: Stop pulling the recovered identity when 1 - cos falls below the margin (released code).
        reconstruction_norm: `l1` (paper) or `smooth_l1` (released code).
        latent_norm: Form of the regulariser (`losses.latent`): `mean_code` (DBAF), `delta` (HFORD), `square` (released
            code), or `spread`, which is ours.
        part_emphasis: Brows, eyes, nose and mouth count 1 + this in the recovery term, where parsing is known.
        mixtures: Stage 1's weights, to have its objective at the same time, on mixtures as stage 1 draws them: the
            single stage that DBAF ablates. The paper says that both are trained in one stage, and no more; that the
            two objectives are added up is our reading.
        anchor_from: Model whose drawings the anchors ask for, to continue an earlier stage 2; by default `init_from`.
        reader_rows: Strangers on whom it is measured how codes are read off saved pictures, for a method that asks for
            that; by default as many as the method wants.
        report: Folder of `faceanon test`'s report.
        protocol: Of `faceanon test`, by label or path (docs/reference/protocol.md); None follows none.
        features: Folder where `faceanon test` keeps what its networks make of the originals, for the test of the next
            method (notebook/speed-loop.md); None keeps nothing.
        kwargs: Settings of `BackboneStage` and `Stage`.

    Raises:
        UserError: `saved_noise` is negative, or given for a `latent` loop, which reads no picture; `branches_every` is
            or `reader_rows` below 1; a weight on the way back of a method that has none.
    """

    weights: AnonymizeWeights

    def __init__(
        self,
        backbone: Backbone,
        weights: AnonymizeWeights = PAPER_WEIGHTS,
        loop: Loop = "file",
        saved_noise: float = 0.0,
        branches_every: int = 1,
        objective: Objective = "means",
        margin: float = 0.1,
        clamp_recovery: bool = False,
        reconstruction_norm: PixelNorm = "l1",
        latent_norm: LatentNorm = "spread",
        part_emphasis: float = 0.0,
        mixtures: DisentangleWeights | None = None,
        anchor_from: Path | None = None,
        reader_rows: int | None = None,
        report: Path = Path("runs/report"),
        protocol: str | None = None,
        features: Path | None = None,
        **kwargs: Any,  # noqa: ANN401 - jsonargparse reads names and types off the base class
    ) -> None:
        if saved_noise < 0 or (saved_noise and loop == "latent"):
            raise UserError(f"saved_noise is {saved_noise} in loop {loop}; give 0, or more with loop file or image")
        if branches_every < 1:
            raise UserError(f"branches_every is {branches_every}; give 1 (every batch) or more")
        if reader_rows is not None and reader_rows < 1:
            raise UserError(f"reader_rows is {reader_rows}; give 1 or more")
        back = []
        for name in ON_THE_WAY_BACK:
            if getattr(weights, name):
                back.append(name)
        if back and not backbone.reversible:
            raise UserError(f"{type(backbone).__name__} is not reversible: set the weights of {', '.join(back)} to 0")
        super().__init__(backbone, adversarial=bool(weights.adversarial), **kwargs)
        self.save_hyperparameters(ignore=["backbone"])
        self.check_weights(weights)
        wanted = {
            "perceptual": weights.perceptual or weights.recovery_perceptual,
            "parser": weights.parsing,
            "landmarks": weights.landmarks,
        }
        needed = []
        for role, weight in wanted.items():
            if weight:
                needed.append(role)
        self.bundle.require("recogniser", "judge", *needed)
        if reader_rows is not None and backbone.reader_rows:
            backbone.reader_rows = reader_rows
        self.weights = weights
        self.loop = loop
        self.saved_noise = saved_noise
        self.latent_norm = latent_norm
        self.objective = objective
        self.terms = AnonymizeTerms(
            self.bundle, weights, objective, margin, clamp_recovery, reconstruction_norm, part_emphasis
        )
        self.mixtures = mixtures
        if mixtures is not None:
            self.check_weights(mixtures)
            self.mixture_terms = DisentangleTerms(self.bundle, mixtures, reconstruction_norm, part_emphasis)
        self.report = report
        self.protocol = protocol
        self.features = features
        self.branches_every = branches_every
        # A list, so that it is no submodule; taken now, since a resumed run loads its checkpoint before the fit starts.
        from_file = self.initialised or anchor_from is not None
        if self.anchored and from_file:
            self.teacher = [self._teacher(anchor_from)]
        else:
            self.teacher = []
        # The teacher's state, where no file has it.
        self.start: dict[str, Tensor] | None = None
        self.adversary = Adversary(self.bundle) if weights.adversary else None
        self.code_agreement = CodeAgreement()
        self.evaluation: Evaluation | None = None

    @property
    def anchored(self) -> bool:
        """Whether a term asks for the drawings of before this stage."""
        return bool(self.weights.anchor or self.weights.wrong_anchor)

    def _teacher(self, path: Path | None) -> Backbone:
        """The backbone as it is, or a saved one of its kind."""
        teacher = average_copy(self.backbone)
        if path is not None:
            load_into(teacher, path)
        return teacher

    def on_fit_start(self) -> None:
        """Keep the backbone as it is before this stage where an anchor term asks for it.

        Raises:
            UserError: A resumed run has no file to take it from, and its checkpoint does not hold it.
        """
        super().on_fit_start()
        if self.anchored and not self.teacher:
            teacher = average_copy(self.backbone)
            if self.start is not None:
                teacher.load_state_dict(self.start)
            elif self.trainer.ckpt_path is not None:
                raise UserError("anchors ask for the model from before this stage: give init_from or anchor_from too")
            self.teacher = [teacher]
            self.start = teacher.state_dict()
        if self.backbone.reader_rows and self.trainer.ckpt_path is None:
            files = self._photographs("train")
            # One process reads photographs by itself, and asks for no batches.
            batches = iter(()) if files else self._batches_of(self.backbone.reader_rows)
            self.measure(partial(self._measure_reader, files), batches)
        # Outside of the module tree Lightning does not move it.
        self.teacher = [teacher.to(self.device) for teacher in self.teacher]

    def _batches_of(self, rows: int) -> Iterator[FaceBatch]:
        """Training batches, epoch after epoch, until all processes together have so many rows."""
        found = 0
        while found < rows:
            for batch in self.training_batches():
                yield batch
                found += len(batch) * self.trainer.world_size
                if found >= rows:
                    return

    def _photographs(self, split: str) -> list[Path]:
        """Files of a split's photographs, for a method that draws in a frame and is used on whole pictures."""
        data = getattr(self.trainer, "datamodule", None)
        if isinstance(data, PhotographSource) and isinstance(in_use(self.backbone), PictureDrawer):
            return data.files_with_faces(split)
        return []

    def _read(self, files: Sequence[Path]) -> Tensor:
        """Photographs `(N, 3, S, S)` in [-1, 1]."""
        return from_bytes(torch.from_numpy(read_photos(files, self.bundle.image_size)), self.device)

    @torch.no_grad()
    def _measure_reader(self, files: Sequence[Path], batches: Iterator[FaceBatch]) -> None:
        """Let the backbone see edited codes, and what is read back of the pictures that are drawn of them.

        Args:
            files: Training photographs; where there are none, batches are read.
            batches: Training batches.
        """
        pairs = self._pairs_in_photographs(files) if files else self._pairs_in_batches(batches)
        training = self.backbone.training
        # As it is used: dropout would make other strangers of a code.
        self.backbone.eval()
        self.backbone.calibrate_reader(self._counted(pairs))
        self.backbone.train(training)

    def _counted(self, pairs: Iterator[tuple[Codes, Tensor]]) -> Iterator[tuple[Codes, Tensor]]:
        """The same pairs, under a progress bar."""
        with tqdm(total=self.backbone.reader_rows, desc="how strangers are read", unit="face") as progress:
            for edited, seen in pairs:
                yield edited, seen
                progress.update(len(seen))

    def _pairs_in_photographs(self, files: Sequence[Path]) -> Iterator[tuple[Codes, Tensor]]:
        """Edited codes, and the saved faces in the frame, as a receiver of whole photographs gets them.

        What training batches hold is grey around a face, and on grey the mesh is found otherwise. A reader that was
        measured on them brought fewer people back.
        """
        framed = in_use(self.backbone)
        assert isinstance(framed, PictureDrawer)
        order = torch.randperm(len(files), generator=torch.Generator().manual_seed(0)).tolist()
        # Every photograph is drawn as often as the others, and the first ones once more where the number asks for it.
        rounds, more = divmod(self.backbone.reader_rows, len(order))
        bounds = sorted({*range(0, len(order), READ_AT_ONCE), more, len(order)})
        for start, end in itertools.pairwise(bounds):
            times = rounds + 1 if end <= more else rounds
            if times == 0:
                return
            image = self._read([files[number] for number in order[start:end]])
            # Under another key each time.
            keys = (self.backbone.sample_key(len(image)).to(image) for _ in range(times))
            for edited, drawn in framed.under_keys(image, keys):
                yield edited, framed.cut(round_to_8_bit(drawn))[0]

    def _pairs_in_batches(self, batches: Iterator[FaceBatch]) -> Iterator[tuple[Codes, Tensor]]:
        """Edited codes, and what is read back of training faces."""
        for batch in batches:
            key = self.backbone.sample_key(len(batch)).to(batch.image)
            edited = self.backbone.edit(self.backbone.encode_batch(batch), key)
            yield edited, self._saved(self.backbone.decode(edited), batch.image, batch.mesh, None)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the model that anchors ask for, where no file has it."""
        super().on_save_checkpoint(checkpoint)
        if self.start is not None:
            checkpoint["faceanon_start"] = self.start

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take back from the checkpoint what the run started from."""
        super().on_load_checkpoint(checkpoint)
        self.start = checkpoint.get("faceanon_start")

    def draw_shard(self, batch: FaceBatch) -> Branches:
        """All five pictures of a face, or two of them in between; of a method with a sealed way back the anonymized."""
        if self.backbone.sealed:
            return self._draw_one_way(self.backbone.encode_batch(batch), 2 if self._complete else 1)
        branches = self.draw(batch.image, self._complete, batch.mesh)
        if self.mixtures is None:
            return branches
        return replace(branches, mixed=self._mixed(batch, branches.original))

    @property
    def further_weights(self) -> dict[str, float]:
        """Those of the backbone's own terms, and of stage 1's objective where it is trained along."""
        if self.mixtures is None:
            return self.extra_weights
        return {**self.extra_weights, "mixture": 1.0}

    def _mixed(self, batch: FaceBatch, codes: Codes) -> Mixed:
        """Every row with the identity of another, or its own, as in stage 1."""
        source = identity_sources(batch, self.batches_seen - 1, "roll")
        mixed = codes.with_identity(self.backbone.mixed_identity(codes, source))
        pictures, latents = self.decoded(mixed)
        return Mixed(source, mixed, pictures, latents)

    @property
    def adversaries(self) -> list[nn.Module]:
        """The discriminator, and the adversary where the weights ask for one."""
        adversaries = super().adversaries
        if self.adversary is not None:
            adversaries.append(self.adversary)
        return adversaries

    def originals(self, drawn: Branches) -> Codes:
        """The codes that all branches start from."""
        return drawn.original

    def adversary_terms(self, batch: FaceBatch, drawn: Branches) -> dict[str, Tensor]:
        """The discriminator's terms, and `adversary`: how badly the adversary finds people."""
        terms = super().adversary_terms(batch, drawn)
        if "adversarial" in terms:
            terms["adversarial"] = self._adversarial_pictures(drawn) * terms["adversarial"]
        if drawn.mixed is not None and self.discriminator is not None:
            real = self.real(batch, drawn.original, drawn.mixed)
            mixed = self.discriminator_terms(self.discriminator, real, self.judged(batch, drawn.mixed))
            terms["mixture"] = mixed["adversarial"]
        if self.adversary is not None:
            # Detached: the adversary learns here, and the backbone must not be helped by it.
            terms["adversary"] = -self.adversary(drawn.anonymized.detach(), batch.image, batch.identity).mean()
        return terms

    def _adversarial_pictures(self, drawn: Branches) -> int:
        """By how many pictures the mean over all is multiplied: DBAF's eqs. (37)-(38) are sums over them."""
        return drawn.versions if self.objective == "dbaf" else 1

    def shard_terms(self, batch: FaceBatch, drawn: Branches) -> dict[str, Tensor]:
        """Terms on pictures and codes, and the backbone's own where all five are drawn."""
        terms = self.generator_terms(batch, drawn)
        if drawn.mixed is not None:
            terms["mixture"] = self._mixture_loss(batch, drawn.mixed)
        if self._complete:
            terms |= self.own_terms(self.backbone.anonymize_terms(batch, drawn, self.wanted))
        return terms

    def _mixture_loss(self, batch: FaceBatch, mixed: Mixed) -> Tensor:
        """Stage 1's objective, DBAF eq. (18), of a mixture."""
        assert self.mixtures is not None
        terms = self.mixture_terms(batch, mixed)
        if self.mixtures.adversarial and self.discriminator is not None:
            terms["adversarial"] = fooling_rows(self.discriminator, self.judged(batch, mixed)).mean()
        latent = self.backbone.w_plus(mixed.codes)
        if self.mixtures.latent and latent is not None:
            terms["latent"] = self.regularised(latent)
        return weighted_sum(terms, self.mixtures)

    @property
    def _complete(self) -> bool:
        return (self.batches_seen - 1) % self.branches_every == 0

    def draw(self, image: Tensor, all_five: bool = True, mesh: Tensor | None = None) -> Branches:
        """The branches of originals.

        Args:
            image: `(B, 3, S, S)`.
            all_five: All five, or only one anonymized and the recovered picture.
            mesh: `(B, 468, 2)` where the faces lie in their pictures, of a bundle with a frame.
        """
        backbone = self.backbone
        size = len(image)
        if not backbone.reversible:
            return self._draw_one_way(backbone.encode(image), 2 if all_five else 1)
        # Four keys: two to anonymize with, and two wrong ones to open the first picture with.
        keys = self._keys(4 if all_five else 1, image)
        # With one key alone the slices end where the keys do: one picture forth and the recovered one back.
        forth = keys[: 2 * size]
        back = torch.cat([keys[:size], keys[2 * size :]])
        noise = None
        if self.saved_noise:
            # A step of 8 bits is 1 / 127.5 of pictures in [-1, 1].
            noise = self.saved_noise / 127.5 * self._normal_like(image)
        original = backbone.encode(image)
        # All keys of one direction go through the generator in one call, which costs less than a call for each.
        edited = backbone.edit(original.map(lambda item: repeat(item, len(forth) // size)), forth)
        anonymized, hidden_latents = self.decoded(edited)
        if self.loop == "latent":
            found = None
            # The released code never looks at the picture again: it opens the very codes that were edited.
            start = edited.map(lambda item: item[:size])
        else:
            found = start = backbone.encode_anonymized(self._saved(anonymized[:size], image, mesh, noise))
        opened = backbone.edit(start.map(lambda item: repeat(item, len(back) // size)), back, inverse=True)
        back_again, opened_latents = self.decoded(opened)
        pictures = torch.cat([anonymized, back_again])
        latents = None
        if hidden_latents is not None and opened_latents is not None:
            latents = torch.cat([hidden_latents, opened_latents])
        recovered = opened.map(lambda item: item[:size])
        wrong = opened.map(lambda item: item[size:])
        return Branches(pictures, original, edited, found, recovered, keys, wrong if all_five else None, latents)

    def _draw_one_way(self, original: Codes, count: int) -> Branches:
        """Anonymized pictures alone, under so many keys, of the originals' codes."""
        keys = self._keys(count, original.identity)
        edited = self.backbone.edit(original.map(lambda item: repeat(item, count)), keys)
        if self._compares_latents_alone:
            latents = self.backbone.drawn_latents(edited)
            if latents is not None:
                # No term looks at pixels, and the codec would take most of a step.
                return Branches(latents, original, edited, None, None, keys, latents=latents)
        pictures, latents = self.decoded(edited)
        return Branches(pictures, original, edited, None, None, keys, latents=latents)

    @property
    def _compares_latents_alone(self) -> bool:
        """Whether latents are enough for every term that counts."""
        counted = self.wanted.union(weighed(self.weights))
        takes_latents = self.bundle.compares_latents and isinstance(self.discriminator, CodecUser)
        # These can compare latents. Any other term may look at pixels.
        on_latents = self.backbone.latent_terms | {"adversarial", "perceptual"}
        return takes_latents and self.adversary is None and counted <= on_latents

    def _keys(self, count: int, image: Tensor) -> Tensor:
        """`(count B, ...)`, whole batches behind each other; in a training step each row's from its own stream.

        `image` is anything of B rows, on the device where the keys are wanted.
        """
        if self.parallel.streams is None:
            keys = self.backbone.sample_key(count * len(image)).to(image)
        else:
            drawn = self.parallel.streams.draw(partial(self.backbone.sample_key, count))  # (B, count, ...)
            # Callers cut whole batches out: first every row's first key, then every row's second.
            keys = drawn.transpose(0, 1).flatten(0, 1).to(image)
        # One second key for everybody, so that strangers under one key compare, whether stage or backbone has the term.
        if (self.weights.pseudonym or self.wanted & self.backbone.terms_of_one_key) and count > 1:
            keys[len(image) : 2 * len(image)] = keys[len(image)]
        return keys

    def _normal_like(self, image: Tensor) -> Tensor:
        if self.parallel.streams is None:
            return torch.randn_like(image)
        return self.parallel.streams.normal_like(image)

    def _saved(self, anonymized: Tensor, image: Tensor, mesh: Tensor | None, noise: Tensor | None) -> Tensor:
        """Pictures `(B, 3, S, S)` of `image` as they are read back in training; gradients pass through."""
        noisy = anonymized if noise is None else anonymized + noise
        shown = self.backbone.lit(noisy, image)
        if self.loop == "image":
            return shown
        return read_back(self.bundle, shown, image, mesh)

    def generator_terms(self, batch: FaceBatch, branches: Branches) -> dict[str, Tensor]:
        """Named terms of all that was drawn."""
        terms: dict[str, Tensor] = {}
        if self.weights.adversarial and self.discriminator is not None:
            fooling = fooling_rows(self.discriminator, self.judged(batch, branches)).mean()
            terms["adversarial"] = self._adversarial_pictures(branches) * fooling
        terms |= self.terms(batch, branches)
        if self.adversary is not None:
            nats = self.adversary(branches.anonymized, batch.image, batch.identity)
            # Where the adversary does no better than a guess, there is nothing to escape from.
            terms["adversary"] = nats.clamp(min=0).mean()
        if self.weights.latent:
            terms["latent"] = self._latent_term(branches)
        return terms | self._anchors(batch.image, branches)

    def _latent_term(self, branches: Branches) -> Tensor:
        """The regulariser of the codes behind what was drawn.

        Printed is one code (DBAF eq. 36, HFORD 15); that it is the mean over those of all pictures is our reading. In
        `means` anonymized and recovered pictures count alike, and wrongly opened ones do not.
        """
        drawn = []
        for codes in (branches.edited, branches.recovered, branches.wrong):
            # Without a way back there are no recovered codes, and a method without w+ has nothing to regularise.
            latent = None if codes is None else self.backbone.w_plus(codes)
            if latent is not None:
                drawn.append(latent)
        if self.objective != "means":
            return self.regularised(torch.cat(drawn))
        return torch.stack([self.regularised(latent) for latent in drawn[:2]]).mean()

    def _anchors(self, image: Tensor, branches: Branches) -> dict[str, Tensor]:
        """Strangers as the backbone drew them before this stage, from the original's attributes."""
        strangers = {"anchor": (branches.edited, branches.anonymized)}
        if branches.wrong is not None:
            # The pictures that wrong keys open stand behind the recovered ones, and are the last.
            strangers["wrong_anchor"] = (branches.wrong, branches.pictures[branches.recovered_rows.stop :])
        strangers = {name: item for name, item in strangers.items() if getattr(self.weights, name)}
        if not strangers:
            return {}
        # Wanted: what the teacher draws for all these strangers in one call. So they are joined, and split later.
        edited = [codes for codes, _ in strangers.values()]
        drawn = [pictures for _, pictures in strangers.values()]
        lengths = [len(pictures) for pictures in drawn]
        with torch.no_grad():
            before = self.teacher[0].drawn_before(image, edited)
        parts = before.split(lengths)  # type: ignore[no-untyped-call]
        terms = {}
        for name, pair in zip(strangers, zip(drawn, parts, strict=True), strict=True):
            terms[name] = pixel_loss(*pair)
        return terms

    def _sample_keys(self, image: Tensor) -> Tensor:
        """Four keys a face `(4 B, ...)`, always the same."""
        # Drawn on the CPU: the same seed gives other numbers on a GPU.
        return self.ema.sample_key(4 * len(image), torch.Generator().manual_seed(self.seed)).to(image)

    def sample_rows(self, batch: FaceBatch) -> dict[str, Tensor]:
        """Original, two anonymized, recovered, two wrong keys; always the same faces and keys."""
        return self._there_and_back(self.ema, batch.image)

    def sheet_rows(self) -> dict[str, Tensor]:
        """As `sample_rows`, of validation faces; a method in a frame draws them into whole photographs, as it is used.

        In the frame strangers have no light of a picture, no hair and no background, and look worse than they are.
        """
        files = self._photographs("val")[:SHOWN]
        if not files:
            return super().sheet_rows()
        return self._there_and_back(in_use(self.ema), self._read(files))

    @torch.no_grad()
    def _there_and_back(self, method: Backbone, image: Tensor) -> dict[str, Tensor]:
        first, second, wrong1, wrong2 = self._sample_keys(image).chunk(4)
        # Recovery below starts from what a file would hold.
        saved = round_to_8_bit(method.anonymize(image, first))
        rows = {
            "original": image,
            "anonymized, key 1": saved,
            "anonymized, key 2": method.anonymize(image, second),
        }
        if not method.recovers_from_pictures:
            return rows
        return rows | {
            "recovered": method.recover(saved, first),
            "wrong key 1": method.recover(saved, wrong1),
            "wrong key 2": method.recover(saved, wrong2),
        }

    def validation_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """Cosines by the judge and PSNR, of pictures within [-1, 1].

        The first anonymized picture, from which recovery starts, is rounded to 8 bits; the others are not.
        """
        rows = {}
        for name, row in self.sample_rows(batch).items():
            # A method's pictures may leave [-1, 1], and a file cannot.
            rows[name] = row.clamp(-1, 1)
        judge = self.bundle.judge
        embedded = {}
        for name, row in rows.items():
            embedded[name] = judge(row)
        original = embedded["original"]
        figures = {
            "val_cos_anonymized": (embedded["anonymized, key 1"] * original).sum(1).mean(),
            "val_cos_keys": (embedded["anonymized, key 1"] * embedded["anonymized, key 2"]).sum(1).mean(),
        }
        if self.backbone.recovers_from_pictures:
            # PSNR is of pictures in [0, 1], hence the halved difference.
            error = ((rows["recovered"] - batch.image) / 2).square().mean((1, 2, 3))
            figures |= {
                "val_psnr_recovered": psnr(error).mean(),
                "val_cos_recovered": (embedded["recovered"] * original).sum(1).mean(),
                "val_cos_wrong": (embedded["wrong key 1"] * original).sum(1).mean(),
            }
            self._compare_codes(batch, rows["anonymized, key 1"])
        self.log_dict(figures, batch_size=len(batch), prog_bar=True, sync_dist=True)

    @torch.no_grad()
    def _compare_codes(self, batch: FaceBatch, saved: Tensor) -> None:
        """Add the identity codes that the right key brings back from saved pictures `(B, 3, S, S)`."""
        # The first keys of all four: `sample_rows` has made the saved pictures with them.
        key = self._sample_keys(batch.image)[: len(batch)]
        codes = self.ema.edit(self.ema.encode_anonymized(saved), key, inverse=True)
        self.code_agreement.update(codes.identity, self.ema.encode(batch.image).identity)

    def on_validation_epoch_end(self) -> None:
        """Log how well identity codes come back, over all validation faces."""
        if not self.backbone.recovers_from_pictures:
            return
        figures = {}
        for name, value in self.code_agreement.compute().items():
            figures[f"val_code_{name}"] = value
        self.log_dict(figures)
        self.code_agreement.reset()

    def on_test_start(self) -> None:
        """Build the evaluation that the batches of the test are added to."""
        super().on_test_start()
        if self.protocol is None:
            protocol = None
        else:
            protocol = load_protocol(self.protocol)
        if self.features is None:
            cache = None
        else:
            cache = shared_cache(self.features.resolve())
        self.evaluation = Evaluation(self.bundle, seed=self.seed, protocol=protocol, cache=cache)

    def test_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """Add a batch of held-out faces to the evaluation of the averaged backbone."""
        assert self.evaluation is not None
        # A judge measures in full precision.
        with torch.autocast(self.device.type, enabled=False):
            self.evaluation.update(batch, in_use(self.ema))

    def on_test_epoch_end(self) -> None:
        """Print the table, write JSON and page."""
        evaluation = self.evaluation
        assert evaluation is not None
        figures = evaluation.compute()
        finite = {}
        for name, value in figures.items():
            # NaN, which alone differs from itself, stands for what could not be measured.
            if value == value:
                finite[name] = value
        self.log_dict(finite, logger=bool(self.trainer.loggers))
        if not self.trainer.is_global_zero:
            return
        publish(evaluation, figures, self.report)
        log_report(self, figures, self.report)
