"""Train a bundle's generator and encoder together: the prior that every method stands on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor, nn
from torch.optim import Optimizer

from faceanon.files import load_strictly, load_tensors, save_tensors
from faceanon.losses.adversarial import generator_loss
from faceanon.losses.identity import attract
from faceanon.losses.latent import latent_regulariser, sliced_wasserstein
from faceanon.losses.reconstruction import gradient_loss, part_weight, pixel_loss
from faceanon.metrics.prior import PriorExam
from faceanon.metrics.quality import psnr
from faceanon.networks.e4e import PyramidEncoder
from faceanon.networks.layout import channels_last
from faceanon.networks.stylegan2 import Generator
from faceanon.report.page import write_report
from faceanon.stages.base import Schedule, Stage, average_copy, plain_sum, weighted_sum
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle


@dataclass(frozen=True)
class PriorWeights:
    """Weights of the prior's terms.

    Args:
        pixel: L1 of the reconstruction.
        edges: L1 of its gradients.
        perceptual: Distance of the bundle's perceptual net.
        identity: 1 - cos of the bundle's training recogniser.
        delta: e4e's delta regularisation.
        mapping: Sliced Wasserstein distance between mapped z and encoded w (trains the mapping network alone).
        adversarial: Non-saturating loss on samples and reconstructions.
    """

    pixel: float = 2.0
    edges: float = 2.0
    perceptual: float = 0.5
    identity: float = 1.0
    delta: float = 2e-4
    mapping: float = 1.0
    adversarial: float = 0.1


class Prior(nn.Module):
    """Generator and encoder, paired.

    Args:
        generator: StyleGAN2 with its mapping network.
        encoder: Pictures to W+.
    """

    def __init__(self, generator: Generator, encoder: PyramidEncoder) -> None:
        super().__init__()
        self.generator = generator
        self.encoder = encoder

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """`(B, 3, S, S)` -> its reconstruction and its codes `(B, L, D)`."""
        codes, _ = self.encoder.with_features(image)
        return self.generator.synthesis(codes), codes


def _open_noise_inputs(generator: nn.Module, strength: float = 0.1) -> None:
    """Start the noise strengths above 0: at 0 a later stage with a frozen generator could send no features through."""
    for name, parameter in generator.named_parameters():
        if name.endswith("noise.weight"):
            nn.init.constant_(parameter, strength)


class PriorStage(Stage):
    """An autoencoder through W+, then an adversarial phase over samples of the mapping network too.

    Args:
        generator: A `faceanon.networks.stylegan2.Generator`.
        encoder: A W+ encoder (`e4e.Encoder4Editing`, `psp.GradualStyleEncoder`) of the same size.
        discriminator: Needed when the adversarial weight is not 0.
        bundle: Bundle whose recogniser and perceptual net the losses use.
        weights: Weights of the terms.
        adversarial_from: Part of the training after which the adversarial terms join, in [0, 1].
        part_emphasis: Eyes, brows, nose and mouth count 1 + this in the pixel terms, where parsing is known.
        optimizer_g: Builds the optimizer of generator and encoder.
        optimizer_d: Builds the discriminator's.
        init_from: Folder with `generator.safetensors` and `encoder.safetensors` to start from.
        export: Folder written when the training ends.
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

    def __init__(
        self,
        generator: Generator,
        encoder: PyramidEncoder,
        discriminator: nn.Module | None = None,
        bundle: str = "synth64",
        weights: PriorWeights = PriorWeights(),
        adversarial_from: float = 0.7,
        part_emphasis: float = 3.0,
        optimizer_g: OptimizerCallable = torch.optim.Adam,
        optimizer_d: OptimizerCallable = torch.optim.Adam,
        init_from: Path | None = None,
        export: Path | None = None,
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
        self.prior = Prior(generator, encoder)
        if init_from is not None:
            self._load(init_from)
        else:
            _open_noise_inputs(generator)
        channels_last(self.prior)
        self.ema: Prior = average_copy(self.prior)
        self.discriminator = discriminator
        self.bundle = Bundle(bundle)
        self.weights = weights
        self.adversarial_from = adversarial_from
        self.part_emphasis = part_emphasis
        self.optimizer_g = optimizer_g
        self.optimizer_d = optimizer_d
        self.export = export
        self.report = report

    def _load(self, folder: Path) -> None:
        for role in ("generator", "encoder"):
            path = folder / f"{role}.safetensors"
            load_strictly(getattr(self.prior, role), load_tensors(path), str(path))

    def configure_optimizers(self) -> list[Optimizer]:
        """Generator with encoder first, discriminator second."""
        optimizers = [self.optimizer_g(self.prior.parameters())]
        if self.discriminator is not None:
            optimizers.append(self.optimizer_d(self.discriminator.parameters()))
        return optimizers

    @property
    def adversarial(self) -> bool:
        """Whether the adversarial phase has begun."""
        return self.discriminator is not None and self.progress >= self.adversarial_from

    def training_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """Generator and encoder reconstruct the batch; late in the training they also fool the discriminator."""
        optimizers = self.optimizer_list()
        step = self.parallel.step(batch)
        fakes: list[Tensor] = []

        self.begin_step(optimizers[0])
        for shard in step:
            image = shard.batch.image.contiguous(memory_format=torch.channels_last)
            with self.toggled_optimizer(optimizers[0]):
                terms, fake = self.generator_terms(image, shard.batch)
                self.add_gradients(shard, terms, weighted_sum(terms, self.weights))
            # The discriminator trains on the pictures of the same step, without a way back into the generator.
            fakes.append(fake.detach())
        means = self.take_step(optimizers[0])

        if self.adversarial:
            assert self.discriminator is not None
            self.begin_step(optimizers[1])
            for shard in step:
                image = shard.batch.image.contiguous(memory_format=torch.channels_last)
                with self.toggled_optimizer(optimizers[1]):
                    terms = self.discriminator_terms(self.discriminator, image, fakes[shard.index])
                    self.add_gradients(shard, terms, plain_sum(terms))
            self.log_terms("train/d", self.take_step(optimizers[1]), len(batch))

        step.average_norms()
        self.update_ema(self.ema, self.prior, step.images)
        self.log_terms("train/g", means, len(batch))

    def generator_terms(self, image: Tensor, batch: FaceBatch) -> tuple[dict[str, Tensor], Tensor]:
        """Named terms, and the drawn pictures the discriminator is to see."""
        output, codes = self.prior(image)
        weight = None
        if batch.parsing is not None and self.part_emphasis:
            weight = part_weight(batch.parsing, self.bundle.part_classes, self.part_emphasis)
        streams = self.parallel.streams
        assert streams is not None
        z = streams.draw(partial(torch.randn, self.prior.generator.style_dim)).to(image)
        w = self.prior.generator.mapping(z)
        # The mapping network gives one w for all layers, so a random layer of each code stands for it.
        layer = streams.draw(partial(torch.randint, codes.shape[1], ())).to(self.device)
        encoded = codes.detach()[torch.arange(len(codes), device=self.device), layer]
        terms = {
            "pixel": pixel_loss(output, image, weight=weight),
            "edges": gradient_loss(output, image, weight),
            "perceptual": self.bundle.perceptual(output, image).mean(),
            "identity": attract(self.bundle.recogniser(output), self.bundle.recogniser(image).detach()),
            "delta": latent_regulariser(codes, "delta"),
            "mapping": sliced_wasserstein(w, encoded),
        }
        if self.adversarial and self.discriminator is not None:
            half = len(image) // 2
            samples = self.prior.generator.synthesis(w[:half, None].expand(-1, codes.shape[1], -1))
            output = torch.cat([samples, output[half:]])
            terms["adversarial"] = generator_loss(self.discriminator(output))
        return terms, output

    def on_fit_start(self) -> None:
        """Frozen networks follow the stage to its device."""
        _ = self.bundle.recogniser, self.bundle.perceptual, self.bundle.judge
        self.bundle.to(self.device)

    def on_validation_start(self) -> None:
        """As `on_fit_start`, for `faceanon validate`."""
        self.on_fit_start()

    def validation_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """PSNR, perceptual distance and the judge's self-similarity of reconstructions, by the averaged weights."""
        output, _ = self.ema(batch.image)
        output = output.clamp(-1, 1)
        error = ((output - batch.image) / 2).square().mean((1, 2, 3))
        figures = {
            "val_psnr": psnr(error).mean(),
            "val_lpips": self.bundle.perceptual(output, batch.image).mean(),
            "val_judge_cos": (self.bundle.judge(output) * self.bundle.judge(batch.image)).sum(1).mean(),
        }
        self.log_dict(figures, batch_size=len(batch), prog_bar=True, sync_dist=True)

    def on_test_start(self) -> None:
        """Build the examination that the batches of the test are added to."""
        self.on_fit_start()
        self.exam = PriorExam(self.bundle, self.ema)

    def test_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """Add held-out faces and as many samples."""
        # A judge measures in full precision.
        with torch.autocast(self.device.type, enabled=False):
            self.exam.update(batch)

    def on_test_epoch_end(self) -> None:
        """Log, print and write the figures; a sheet of reconstructions and samples beside them."""
        figures = self.exam.compute()
        self.log_dict(figures, logger=bool(self.trainer.loggers))
        page = write_report(self.report, figures, self.exam.samples, {"bundle": self.bundle.name})
        print(f"report: {page.resolve()}")

    def on_fit_end(self) -> None:
        """Write the averaged weights where `export` says."""
        if self.export is None or not self.trainer.is_global_zero:
            return
        parts = {"generator": self.ema.generator, "encoder": self.ema.encoder, "discriminator": self.discriminator}
        for role, part in parts.items():
            if isinstance(part, nn.Module):
                save_tensors(self.export / f"{role}.safetensors", part.state_dict(), half=True)
        generator = self.prior.generator
        average = torch.zeros(generator.n_latent, generator.style_dim)
        save_tensors(self.export / "latent_avg.safetensors", {"latent_avg": average})
