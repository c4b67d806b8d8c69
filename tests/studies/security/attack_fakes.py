"""The small world of the metrics' tests, with people for the attacker, and methods that are bad in a known place."""

from functools import partial

import torch
from torch.nn import functional as F

from faceanon.studies.security import parrot
from faceanon.studies.security.base import Budget
from faceanon.studies.security.target import Target
from faceanon.types import Codes, FaceBatch
from metrics.metric_fakes import PHOTOS, SIZE, Irreversible, KeyIgnored, PassThrough, Shift, person

__all__ = ["Irreversible", "KeyIgnored", "PassThrough", "Shift"]
PEOPLE = 16
BUDGET = Budget("test", PEOPLE, 24, 40, keys=300, strangers=12, trials=3, disturbed=12, detected=36)


def pictures(first, people, photos=PHOTOS):
    """Pictures of people numbered from `first` on."""
    generator = torch.Generator().manual_seed(first)
    identity = torch.arange(people).repeat_interleave(photos) + first
    scene = F.interpolate(torch.rand(len(identity), 3, 2, 2, generator=generator) - 0.5, SIZE, mode="bilinear")
    noise = 0.02 * torch.randn(len(identity), 3, SIZE, SIZE, generator=generator)
    image = (scene + torch.stack([person(int(i)) for i in identity]) + noise).clamp(-1, 1)
    return FaceBatch(image, identity, identity)


def target(backbone, budget=BUDGET, seed=0):
    """The method before the attackers, with nobody in common between test and attacker."""
    attacker = partial(pictures, 1000, budget.known_people)  # drawn when an attack asks
    return Target(backbone.eval(), pictures(0, PEOPLE), attacker, budget, seed, training=training_faces)


def training_faces(people=PEOPLE):
    """People of a training, and outsiders."""
    return pictures(5000, people, 2), pictures(7000, people, 2)


def outcomes(finding):
    return [verdict.outcome for verdict in finding.verdicts()]


class Negative(Shift):
    """A fixed change without a secret: unrecognisable, and undone by whoever has seen a few pairs."""

    key_bits = None
    reversible = False

    def anonymize(self, image, key):
        return -0.8 * image

    def encode(self, image):
        raise NotImplementedError


class FewKeys(Shift):
    """Makes one of four keys of every password."""

    def key_from_secret(self, secret, batch):
        seed = secret.stream("few", 1)[0] % 4
        return super().sample_key(1, torch.Generator().manual_seed(seed)).expand(batch, *self.key_shape).clone()


class LeakyAttributes(Shift):
    """Calls the whole picture an attribute, and draws from that."""

    def encode(self, image):
        return Codes(image[:, :, :1, :1], image.flatten(2))

    def decode(self, codes):
        return codes.attributes.unflatten(2, (SIZE, SIZE))


class Coded(Shift):
    """Eight numbers for an identity; the key's map of them is `keyed`."""

    key_shape = (8, 8)

    def encode(self, image):
        generator = torch.Generator().manual_seed(3)
        rows = image - F.avg_pool2d(image, 3, 1, 1)
        return Codes(rows.flatten(1) @ torch.randn(rows[0].numel(), 8, generator=generator))

    def keyed(self, code, key):
        raise NotImplementedError

    def transform(self, identity, key, inverse=False):
        return self.keyed(identity, key)

    def decode(self, codes):
        return codes.identity.new_zeros(len(codes.identity), 3, SIZE, SIZE)


class LinearKey(Coded):
    """A keyed turn."""

    def keyed(self, code, key):
        return (code[:, None] @ torch.linalg.qr(key)[0])[:, 0]


class HashedKey(Coded):
    """A keyed scatter that no smooth map undoes."""

    def keyed(self, code, key):
        return torch.sin(300 * (code[:, None] @ key)[:, 0])


def shrink(monkeypatch):
    """Attackers of the size of this world."""
    monkeypatch.setattr(parrot, "WIDTH", 32)
    monkeypatch.setattr(parrot, "DEPTH", 1)
    monkeypatch.setattr(parrot, "LEARNING_RATE", 2e-2)
