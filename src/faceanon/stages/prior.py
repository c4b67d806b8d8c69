"""Train a bundle's generator and encoder together: the prior that every method stands on.

A generator of latents learns on latents: those that prepared photographs bring, or the codec's. Only the terms that
need a picture decode some.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor, nn
from torch.optim import Optimizer

from faceanon.errors import UserError
from faceanon.files import load_strictly, load_tensors, save_tensors
from faceanon.losses.adversarial import generator_loss
from faceanon.losses.identity import attract
from faceanon.losses.latent import latent_regulariser, sliced_wasserstein
from faceanon.losses.reconstruction import gradient_loss, part_weight, pixel_loss
from faceanon.metrics.prior import PriorExam
from faceanon.metrics.quality import psnr
from faceanon.networks.e4e import PyramidEncoder
from faceanon.networks.layout import channels_last
from faceanon.networks.level_edits import flipped
from faceanon.networks.mixture_mapping import MixtureMapping
from faceanon.networks.prior import Prior, open_noise_inputs
from faceanon.networks.stylegan2 import Generator
from faceanon.report.page import write_report
from faceanon.stages.base import Schedule, Stage, average_copy, plain_sum, weighted_sum
from faceanon.stages.colour_moments import colour_moments
from faceanon.stages.draft import fit_draft, fit_mapping, freeze_draft
from faceanon.stages.prior_start import readable_counts, start_mixture, training_faces
from faceanon.stages.read_back import read_back
from faceanon.stages.samples import sample_faces, save_samples
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle
from faceanon.weights.components import CELLS, with_reading, without_reading
from faceanon.weights.composed import compose_bundle

SHEET_SEED = 7919  # added to the training's seed for the people of the sample sheets


@dataclass(frozen=True)
class PriorWeights:
    """Weights of the prior's terms; 0 leaves `edges`, `perceptual` or `identity` out.

    Args:
        pixel: L1 of the reconstruction, in pixels or in latents.
        edges: L1 of its gradients, likewise.
        perceptual: Distance of the bundle's perceptual net.
        identity: 1 - cos of the bundle's training recogniser.
        delta: e4e's delta regularisation.
        mapping: Sliced Wasserstein distance between mapped z and encoded w (trains the mapping network alone).
        adversarial: Non-saturating loss on samples and reconstructions.
        reading: L1 between the draft of a stranger's code and that of what the encoder reads off the stranger's saved
            picture. Only for a generator with a draft. Strangers are the batch's persons with signs of their codes
            changed, as DBAF's `flips` changes them: what a key makes of a code has to be readable.
    """

    pixel: float = 2.0
    edges: float = 2.0
    perceptual: float = 0.5
    identity: float = 1.0
    delta: float = 2e-4
    mapping: float = 1.0
    adversarial: float = 0.1
    reading: float = 0.0


class PriorStage(Stage):
    """An autoencoder through W+, then an adversarial phase over samples of the mapping network too.

    Args:
        generator: A `faceanon.networks.stylegan2.Generator`.
        encoder: A W+ encoder (`e4e.Encoder4Editing`, `psp.GradualStyleEncoder`) of the same size.
        discriminator: Needed when the adversarial weight is not 0.
        bundle: Bundle whose recogniser and perceptual net the losses use.
        weights: Weights of the terms.
        adversarial_from: Part of the training after which the adversarial terms join, in [0, 1].
        adversarial_after: The same as a number of batches, which counts in place of the part.
        single: Share of a batch that is drawn from the first row of its codes alone, in all layers, as the mapping's
            people are. The mapping network then learns to meet first rows; with 0 any row.
        mixing: Share of the samples for the discriminator whose w+ changes from one w to another at a random row, so
            that rows learn to go together.
        pictures_after: Batches after which `perceptual` and `identity` join. While drawn faces are grey these tell
            nothing, and their gradients, steep through a codec's decoder, drown those of `pixel`.
        watched: Most pictures of a batch, or of an equal part of it, that a generator on latents decodes for the terms
            on pictures.
        samples_every: Batches between two sample sheets in the log folder; 0 draws none.
        part_emphasis: Eyes, brows, nose and mouth count 1 + this in the pixel terms, where parsing is known.
        readable: How much more those numbers of the latents count in the draft's components that come back from a
            saved picture: one over a number's error, to this power. What components show can then be read again.
        kept_signs: So many first numbers of strangers' codes keep their sign in the term `reading`, as in DBAF's
            `flips`.
        steady_colours: Whether the first `kept_signs` components hold all light and colour, so that strangers have the
            person's.
        optimizer_g: Builds the optimizer of generator and encoder.
        optimizer_d: Builds the discriminator's.
        init_from: Folder with `generator.safetensors` and `encoder.safetensors` to start from.
        export: Folder written when the training ends. Of a generator of latents it is a whole bundle then: the new
            networks with those of `bundle`.
        int8: Whether what is exported is stored in int8, to ship; else in float16.
        report: Folder of `faceanon test`'s report.
        r1_gamma: See `Stage`.
        r1_interval: See `Stage`.
        ema_half_life: See `Stage`.
        gradient_clip: See `Stage`.
        schedule: See `Stage`.
        warmup: See `Stage`.
        accumulate: See `Stage`.
        seed: See `Stage`.
    """

    counts: Tensor

    def __init__(
        self,
        generator: Generator,
        encoder: PyramidEncoder,
        discriminator: nn.Module | None = None,
        bundle: str = "photo128_mesh",
        weights: PriorWeights = PriorWeights(),
        adversarial_from: float = 0.7,
        adversarial_after: int | None = None,
        single: float = 0.0,
        mixing: float = 0.0,
        pictures_after: int = 0,
        watched: int = 8,
        samples_every: int = 0,
        part_emphasis: float = 3.0,
        readable: float = 0.0,
        kept_signs: int = 0,
        steady_colours: bool = False,
        optimizer_g: OptimizerCallable = torch.optim.Adam,
        optimizer_d: OptimizerCallable = torch.optim.Adam,
        init_from: Path | None = None,
        export: Path | None = None,
        int8: bool = False,
        report: Path = Path("runs/prior_report"),
        r1_gamma: float = 1.0,
        r1_interval: int = 16,
        ema_half_life: int = 3_000,
        gradient_clip: float = 5.0,
        schedule: Schedule = "cosine",
        warmup: int = 100,
        accumulate: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(r1_gamma, r1_interval, ema_half_life, gradient_clip, schedule, warmup, accumulate, seed)
        self.save_hyperparameters(ignore=["generator", "encoder", "discriminator"])
        if not 0 <= single <= 1:
            raise UserError(f"single {single} is a share of a batch: give 0 to 1")
        if steady_colours and kept_signs < 1:
            raise UserError("steady_colours needs numbers that hold the colours: give kept_signs of 1 or more")
        self.prior = Prior(generator, encoder)
        if generator.drafts:
            assert generator.latents is not None
            # A buffer: a resumed training does not measure anew what can be read.
            self.register_buffer("counts", torch.ones(generator.latents, generator.size, generator.size))
        if init_from is not None:
            self._load(init_from)
        else:
            open_noise_inputs(generator)
        if generator.drafts:
            freeze_draft(generator, encoder)
        self.init_from = init_from
        channels_last(self.prior)
        self.bundle = Bundle(bundle)
        if generator.latents is not None:
            self.bundle.require("codec")
        # Before the averaged copy is taken, which then has it too.
        self.bundle.lend_codec(self.prior)
        self.ema: Prior = average_copy(self.prior)
        self.discriminator = discriminator
        if discriminator is not None:
            self.bundle.lend_codec(discriminator)
        self.weights = weights
        wanted = {"perceptual": weights.perceptual, "recogniser": weights.identity}
        self.bundle.require(*(role for role, weight in wanted.items() if weight))
        self.adversarial_from = adversarial_from
        self.adversarial_after = adversarial_after
        self.single = single
        self.mixing = mixing
        self.pictures_after = pictures_after
        self.watched = watched
        self.samples_every = samples_every
        self.part_emphasis = part_emphasis
        self.readable = readable
        self.kept_signs = kept_signs
        self.steady_colours = steady_colours
        self.optimizer_g = optimizer_g
        self.optimizer_d = optimizer_d
        self.export = export
        self.int8 = int8
        self.report = report

    def _load(self, folder: Path) -> None:
        for role in ("generator", "encoder"):
            path = folder / f"{role}.safetensors"
            tensors = load_tensors(path)
            if role == "encoder" and CELLS in tensors:
                # The file has no linear layer `flat`: it follows from the generator's draft, and is computed here.
                self.counts.copy_(tensors[CELLS].expand_as(self.counts))
                tensors = with_reading(tensors, load_tensors(folder / "generator.safetensors"))
            if role == "generator" and self.mixed_mapping and "style.means" not in tensors:
                # Of a prior with a mapping network; its own mixture is fitted before the first batch.
                kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("style.")}
                own = self.prior.generator.style.state_dict(prefix="style.")
                tensors = kept | own
            if role == "generator" and "yielding" in self.prior.generator.init_args:
                # Of a prior whose draft did not yield.
                tensors = {"kept": self.prior.generator.kept.detach()} | tensors
            load_strictly(getattr(self.prior, role), tensors, str(path))

    def configure_optimizers(self) -> list[Optimizer]:
        """Generator with encoder first, discriminator second."""
        optimizers = [self.optimizer_g(self.prior.parameters())]
        if self.discriminator is not None:
            optimizers.append(self.optimizer_d(self.discriminator.parameters()))
        return optimizers

    @property
    def on_latents(self) -> bool:
        """Whether the generator draws latents."""
        return self.prior.generator.latents is not None

    @property
    def mixed_mapping(self) -> bool:
        """Whether the generator's mapping is a mixture, which is fitted."""
        return isinstance(self.prior.generator.style, MixtureMapping)

    @property
    def adversarial(self) -> bool:
        """Whether the adversarial phase has begun."""
        if self.adversarial_after is not None:
            return self.discriminator is not None and self.batches_seen > self.adversarial_after
        return self.discriminator is not None and self.progress >= self.adversarial_from

    def training_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """Generator and encoder reconstruct the batch; late in the training they also fool the discriminator."""
        optimizers = self.optimizer_list()
        step = self.parallel.step(batch)
        fakes: list[Tensor] = []

        self.begin_step(optimizers[0])
        for shard in step:
            original = self.original(shard.batch)
            with self.toggled_optimizer(optimizers[0]):
                terms, fake = self.generator_terms(original, shard.batch)
                self.add_gradients(shard, terms, weighted_sum(terms, self.weights))
            # The discriminator trains on what was drawn in the same step, without a way back into the generator.
            fakes.append(fake.detach())
        means = self.take_step(optimizers[0])

        if self.adversarial:
            assert self.discriminator is not None
            self.begin_step(optimizers[1])
            for shard in step:
                original = self.original(shard.batch)
                with self.toggled_optimizer(optimizers[1]):
                    terms = self.discriminator_terms(self.discriminator, original, fakes[shard.index])
                    self.add_gradients(shard, terms, plain_sum(terms))
            self.log_terms("train/d", self.take_step(optimizers[1]), len(batch))

        step.average_norms()
        self.update_ema(self.ema, self.prior, step.images)
        self.log_terms("train/g", means, len(batch))

    @torch.no_grad()
    def original(self, batch: FaceBatch) -> Tensor:
        """What the generator is to draw again: the pictures, or their latents `(B, C, h, h)`."""
        original = batch.image
        if self.on_latents:
            if batch.latents is None:
                original = self.bundle.codec.encode(batch.image)
            else:
                original = batch.latents.float()
        return original.contiguous(memory_format=torch.channels_last)

    def generator_terms(self, original: Tensor, batch: FaceBatch) -> tuple[dict[str, Tensor], Tensor]:
        """Named terms, and what was drawn for the discriminator to see; `original` as `self.original` gives it."""
        codes, _ = self.prior.encoder.with_features(original)
        output = self.prior.draw(first_row_alone(codes, round(self.single * len(codes))))
        weight = None
        if batch.parsing is not None and self.part_emphasis and not self.on_latents:
            weight = part_weight(batch.parsing, self.bundle.part_classes, self.part_emphasis)
        streams = self.parallel.streams
        assert streams is not None
        z = streams.draw(partial(torch.randn, self.prior.generator.style_dim)).to(original)
        # The mapping network gives one w for all layers, so a random layer of each code stands for it.
        layer = streams.draw(partial(torch.randint, 1 if self.single else codes.shape[1], ())).to(self.device)
        encoded = codes.detach()[torch.arange(len(codes), device=self.device), layer]
        # In full precision, since these numbers are sorted and compared one by one.
        with torch.autocast(self.device.type, enabled=False):
            w = self.prior.generator.mapping(z)
            # Of a mixture this is a figure to watch: it has nothing that learns.
            mapping = sliced_wasserstein(w, encoded.to(w.dtype))
        terms = {"pixel": pixel_loss(output, original, weight=weight)}
        if self.weights.edges:
            terms["edges"] = gradient_loss(output, original, weight)
        terms |= self.picture_terms(output, batch)
        if self.weights.reading and self.batches_seen > self.pictures_after:
            terms["reading"] = self.reading_term(codes[: self.watched], batch)
        terms["delta"] = latent_regulariser(codes, "delta")
        terms["mapping"] = mapping
        if self.adversarial and self.discriminator is not None:
            # The discriminator sees as many drawn faces as photographs: samples, and reconstructions in the other half.
            half = len(original) // 2
            samples = self.prior.draw(self.mixed(w, half))
            output = torch.cat([samples, output[half:]])
            terms["adversarial"] = generator_loss(self.discriminator(output))
        return terms, output

    def picture_terms(self, output: Tensor, batch: FaceBatch) -> dict[str, Tensor]:
        """Terms that frozen networks measure on pictures; of drawn latents a few are decoded.

        Args:
            output: What was drawn of `batch`.
            batch: Faces.
        """
        terms: dict[str, Tensor] = {}
        weights = self.weights
        if not (weights.perceptual or weights.identity) or self.batches_seen <= self.pictures_after:
            return terms
        image = batch.image.contiguous(memory_format=torch.channels_last)
        if self.on_latents:
            image = image[: self.watched]
            output = self.prior.generator.decode(output[: self.watched])
        if weights.perceptual:
            terms["perceptual"] = self.bundle.perceptual(output, image).mean()
        if weights.identity:
            wanted = self.bundle.recogniser(image).detach()
            terms["identity"] = attract(self.bundle.recogniser(output), wanted)
        return terms

    def reading_term(self, codes: Tensor, batch: FaceBatch) -> Tensor:
        """How far strangers' codes are from what is read off their saved pictures, in drafted latents.

        Args:
            codes: `(W, L, D)` of the batch's first faces.
            batch: Faces.
        """
        generator = self.prior.generator
        streams = self.parallel.streams
        assert streams is not None
        # `(W, 3, D)`, the shape of a key that `flipped` takes. All rows draw, since each has a stream of its own.
        key = streams.draw(partial(torch.randn, 3, generator.style_dim))[: len(codes)].to(codes)
        # The encoder learns to read strangers, not to make codes whose strangers are easily read.
        strangers = flipped(codes.detach(), key, self.kept_signs)
        drawn = generator.decode(generator.draw(strangers))
        mesh = None if batch.mesh is None else batch.mesh[: len(codes)]
        saved = read_back(self.bundle, drawn, batch.image[: len(codes)], mesh)
        found, _ = self.prior.encoder.with_features(self.bundle.codec.encode(saved))
        weight = (self.counts / self.counts.mean())[None]
        return pixel_loss(generator.drafted(found), generator.drafted(strangers), weight=weight)

    def mixed(self, w: Tensor, count: int) -> Tensor:
        """W+ codes `(count, L, D)` of the first rows of w `(B, D)`, some of which go on as another row's."""
        rows = self.prior.generator.n_latent
        codes = w[:count, None].expand(-1, rows, -1)
        streams = self.parallel.streams
        if not self.mixing or streams is None:
            return codes
        crossed = streams.draw(partial(torch.rand, ()))[:count] < self.mixing
        start = streams.draw(partial(torch.randint, 1, rows, ()))[:count]
        other = (torch.arange(rows) >= start[:, None]) & crossed[:, None]
        # A partner stands `count` rows further on: in a batch of twice as many rows it is no sample itself.
        partners = w.roll(-count, 0)[:count, None].expand(-1, rows, -1)
        return torch.where(other[..., None].to(w.device), partners, codes)

    def on_fit_start(self) -> None:
        """Frozen networks follow the stage to its device; a new prior with a draft gets its components."""
        self._move_bundle()
        if self.prior.generator.drafts and self.init_from is None and self.trainer.ckpt_path is None:
            self._start_draft()
        if self.mixed_mapping and self.trainer.ckpt_path is None:
            start_mixture(self.prior, training_faces(self.trainer), self.seed)
            self.ema.load_state_dict(self.prior.state_dict())
        self.sample_folder = Path(self.trainer.log_dir or self.trainer.default_root_dir) / "samples"

    def _start_draft(self) -> None:
        """The principal components of the training pictures' latents.

        Raises:
            UserError: The data bring no prepared latents.
        """
        faces = training_faces(self.trainer)
        if self.readable:
            self.counts.copy_(readable_counts(self.bundle, faces, self.readable))
        colours = None
        if self.steady_colours:
            # Only what lies in the hull of the mesh is face.
            hull = None if self.bundle.frame is None else self.bundle.frame.hull
            colours = colour_moments(faces["image"], hull)
        first = fit_draft(
            self.prior.generator,
            self.prior.encoder,
            faces["latents"],
            self.seed,
            weight=self.counts,
            rounded=self.int8,
            colours=colours,
            steady=self.kept_signs,
        )
        if not self.mixed_mapping:
            fit_mapping(self.prior.generator, first, self.seed)
        # The averaged copy was taken before the prior had its components.
        self.ema.load_state_dict(self.prior.state_dict())

    def _move_bundle(self) -> None:
        # Built before the first step, so that a damaged or missing file is told at once.
        roles = ["recogniser", "perceptual"]
        if not self.on_latents:
            roles.append("judge")
        for role in roles:
            if self.bundle.has(role):
                getattr(self.bundle, role)
        self.bundle.to(self.device)

    def on_train_batch_end(self, outputs: object, batch: FaceBatch, batch_idx: int) -> None:
        """Draw the fixed sample sheet when it is due."""
        if self.samples_every and self.batches_seen % self.samples_every == 0 and self.trainer.is_global_zero:
            save_samples(self, self.sample_rows(sample_faces(self)), self.sample_folder)

    @torch.no_grad()
    def sample_rows(self, batch: FaceBatch) -> dict[str, Tensor]:
        """Photographs, their reconstructions, and people of the mapping: as they come, truncated, and two mixed."""
        generator = self.ema.generator
        # Not `seed` itself: a training with that seed drew the mapping network's weights from the same numbers, and z
        # that are equal to weights give w of twice the usual length.
        same = torch.Generator().manual_seed(self.seed + SHEET_SEED)
        z = torch.randn(len(batch), generator.style_dim, generator=same).to(batch.image)
        mean = generator.mean_latent(4096, same)
        w = generator.mapping(z)[:, None].expand(-1, generator.n_latent, -1)
        half = generator.n_latent // 2
        drawn, codes = self.ema.drawn(self.original(batch))
        return {
            "original": batch.image,
            "reconstruction": generator.decode(drawn),
            "from the first row alone": generator.synthesis(codes[:, 0]),
            "sample": generator.synthesis(w),
            "truncated to .5": generator.synthesis(mean + 0.5 * (w - mean)),
            "fine rows of the next": generator.synthesis(torch.cat([w[:, :half], w.roll(-1, 0)[:, half:]], 1)),
        }

    def on_validation_start(self) -> None:
        """Frozen networks follow the stage to its device, as before a training."""
        self._move_bundle()

    def validation_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """PSNR, perceptual distance and self-similarity of reconstructions, by the averaged weights.

        Similarity is the judge's; on photographs, whose judge is slow and may not be installed, the recogniser's.
        """
        original = self.original(batch)
        drawn, _ = self.ema.drawn(original)
        output = self.ema.generator.decode(drawn).clamp(-1, 1)
        error = ((output - batch.image) / 2).square().mean((1, 2, 3))
        figures = {"val_psnr": psnr(error).mean()}
        if self.bundle.has("perceptual"):
            figures["val_lpips"] = self.bundle.perceptual(output, batch.image).mean()
        if self.on_latents:
            figures["val_cos"] = _similarity(self.bundle.recogniser, output, batch.image)
        else:
            figures["val_judge_cos"] = _similarity(self.bundle.judge, output, batch.image)
        self.log_dict(figures, batch_size=len(batch), prog_bar=True, sync_dist=True)

    def on_test_start(self) -> None:
        """Begin a fresh examination.

        Raises:
            UserError: The bundle has no judge or no perceptual network.
        """
        self.bundle.require("judge", "perceptual")
        self._move_bundle()
        self.exam = PriorExam(self.bundle, self.ema)

    def test_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """Add held-out faces and as many samples."""
        # A judge measures in full precision.
        with torch.autocast(self.device.type, enabled=False):
            if self.bundle.frame is not None:
                # A test's faces are pictures, whatever a method learns on.
                mesh = self.bundle.landmarks(batch.image)
                batch = replace(batch, image=self.bundle.frame.cut(batch.image, mesh), latents=None, mesh=mesh)
            self.exam.update(batch)

    def on_test_epoch_end(self) -> None:
        """Log, print and write the figures; a sheet of reconstructions and samples beside them."""
        figures = self.exam.compute()
        self.log_dict(figures, logger=bool(self.trainer.loggers))
        page = write_report(self.report, figures, self.exam.samples, {"bundle": self.bundle.name})
        print(f"report: {page.resolve()}")

    def on_fit_end(self) -> None:
        """Write the averaged weights where `export` says, and of a prior of latents a bundle around them.

        A mixture is fitted to what the encoder has become.
        """
        if self.export is None or not self.trainer.is_global_zero:
            return
        if self.mixed_mapping:
            start_mixture(self.ema, training_faces(self.trainer), self.seed)
        parts = {"generator": self.ema.generator, "encoder": self.ema.encoder, "discriminator": self.discriminator}
        generator = self.prior.generator
        for role, part in parts.items():
            if isinstance(part, nn.Module):
                self._save(role, part)
        # Methods add a bundle's mean code to what the encoder gives. This encoder gives whole codes, so the mean is 0.
        average = torch.zeros(generator.n_latent, generator.style_dim)
        save_tensors(self.export / "latent_avg.safetensors", {"latent_avg": average})
        if self.on_latents:
            trained = {role: part for role, part in parts.items() if isinstance(part, nn.Module)}
            steady = self.kept_signs if self.steady_colours else 0
            compose_bundle(self.export, self.bundle, trained, steady)

    def _save(self, role: str, part: nn.Module) -> None:
        """Write a network into the folder `export`; components are stored once."""
        assert self.export is not None
        tensors = part.state_dict()
        generator = self.ema.generator
        if generator.drafts and role == "encoder":
            tensors = without_reading(tensors, generator.state_dict(), self.counts.cpu())
        save_tensors(self.export / f"{role}.safetensors", tensors, half=True, int8=self.int8)


def first_row_alone(codes: Tensor, count: int) -> Tensor:
    """W+ codes `(B, L, D)`, of which the last `count` have their first row in all layers."""
    if not count:
        return codes
    same = codes[-count:, :1].expand(-1, codes.shape[1], -1)
    return torch.cat([codes[:-count], same])


def _similarity(recogniser: Callable[[Tensor], Tensor], first: Tensor, second: Tensor) -> Tensor:
    return (recogniser(first) * recogniser(second)).sum(1).mean()
