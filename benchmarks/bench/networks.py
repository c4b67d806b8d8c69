"""Networks of the public checkpoints' size at 256 px, with random weights: forward, and with gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from bench.cases import Case, Work, register
from bench.settings import Settings
from faceanon.losses.adversarial import discriminator_loss, r1_penalty
from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.stylegan2 import Discriminator, Generator

SIZE = 256
ROWS = 14
WIDTH = 512
BATCHES = (1, 4)


def _codes(settings: Settings, batch: int) -> Tensor:
    """Random w+ codes `(B, 14, 512)`."""
    return torch.randn(batch, ROWS, WIDTH, generator=torch.Generator().manual_seed(settings.seed)).to(settings.device)


@contextmanager
def drawing(settings: Settings) -> Iterator[None]:
    """A context without gradients, in the precision of the run."""
    with torch.no_grad(), settings.autocast():
        yield


def _forward(settings: Settings, network: Callable[..., object], given: Tensor) -> Work:
    """The work of one call of a network `given` a batch, without gradients."""

    def call() -> None:
        with drawing(settings):
            network(given)

    return Work(call, len(given))


def generator(settings: Settings, batch: int) -> Work:
    """Draw faces of w+ codes."""
    draw = settings.compiled(settings.place(Generator(SIZE).eval()).synthesis)
    return _forward(settings, draw, _codes(settings, batch))


def generator_training(settings: Settings, batch: int) -> Work:
    """Draw faces and find the gradients of all parameters."""
    net = settings.place(Generator(SIZE))
    draw = settings.compiled(net.synthesis)
    codes = _codes(settings, batch)

    def call() -> None:
        net.zero_grad(set_to_none=True)
        with settings.autocast():
            # Any loss will do, since the cost of the gradients does not depend on it.
            loss = draw(codes).float().square().mean()
        torch.autograd.backward(loss)

    return Work(call, batch)


def encoder(settings: Settings, batch: int) -> Work:
    """The work of encoding a batch of faces by e4e, without gradient."""
    encode = settings.compiled(settings.place(Encoder4Editing(SIZE).eval()))
    return _forward(settings, encode, settings.picture(batch, 3, SIZE, SIZE))


def discriminator(settings: Settings, batch: int) -> Work:
    """Score pictures with StyleGAN2's discriminator."""
    scores = settings.compiled(settings.place(Discriminator(SIZE).eval()))
    return _forward(settings, scores, settings.picture(batch, 3, SIZE, SIZE))


def discriminator_training(settings: Settings, batch: int, r1: bool) -> Work:
    """The logistic loss of real pictures, with or without R1, and the gradients of all parameters."""
    net = settings.place(Discriminator(SIZE))
    image = settings.picture(batch, 3, SIZE, SIZE)
    scores: Callable[..., Tensor] = settings.compiled(net)

    def call() -> None:
        net.zero_grad(set_to_none=True)
        with settings.autocast():
            logits = scores(image)
            # One batch plays both sides, so that the figure is of as many pictures as the name says.
            loss = discriminator_loss(logits, -logits)
        if r1:
            # Compiled code has no second derivatives.
            loss = loss + r1_penalty(net, image)
        torch.autograd.backward(loss)

    return Work(call, batch)


def edit(settings: Settings, batch: int) -> Work:
    """Encode, move the code, draw: what an anonymization costs at least."""
    nets: tuple[nn.Module, Generator] = (
        settings.place(Encoder4Editing(SIZE).eval()),
        settings.place(Generator(SIZE).eval()),
    )
    encode = settings.compiled(nets[0])
    draw = settings.compiled(nets[1].synthesis)
    image = settings.picture(batch, 3, SIZE, SIZE)
    direction = _codes(settings, 1)

    def call() -> None:
        with drawing(settings):
            # The encoder gives feature maps as well; the code alone moves and is drawn.
            draw(encode(image)[0] + direction)

    return Work(call, batch)


_KINDS: tuple[tuple[str, str, Callable[..., Work]], ...] = (
    ("generator", "StyleGAN2 at 256 px draws", generator),
    ("generator-training", "StyleGAN2 at 256 px draws, gradients of its parameters", generator_training),
    ("encoder", "e4e at 256 px encodes", encoder),
    ("discriminator", "StyleGAN2's discriminator at 256 px judges", discriminator),
    (
        "discriminator-training",
        "discriminator at 256 px, gradients of its parameters",
        partial(discriminator_training, r1=False),
    ),
    ("discriminator-r1", "the same with R1 (double backward)", partial(discriminator_training, r1=True)),
    ("edit", "e4e encodes, the code moves, StyleGAN2 draws, at 256 px", edit),
)
for _name, _about, _build in _KINDS:
    for _batch in BATCHES:
        register(Case(f"{_name}-b{_batch}", f"{_about}, batch {_batch}", partial(_build, batch=_batch)))
