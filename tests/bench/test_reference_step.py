from types import SimpleNamespace

import pytest
import torch

from bench.reference_layers import reference_synthesis
from bench.reference_step import reference_of, run_reference, update
from faceanon.backbones.dbaf import DBAF
from faceanon.stages import AnonymizeStage, DisentangleStage
from faceanon.stages.base import trainable_parameters, weighted_sum
from faceanon.types import FaceBatch

STAGES = {"s1": DisentangleStage, "s2": AnonymizeStage}
PARTS = {"s1": ["cid", "maar"], "s2": ["cid", "maar", "kria"]}  # what the paper's preset `dbaf` trains
KEYS = 7


class Pair:
    """A stage with its optimizers, for its first step of either kind, without Lightning."""

    def __init__(self, stage, trainable, optimizer):
        self.stage = stage
        self.discriminator = stage.discriminator
        self.optimizers = (
            optimizer(trainable_parameters(stage.backbone, trainable)),
            optimizer(list(stage.discriminator.parameters())),
        )
        # A stage asks its trainer for the batch's number, which decides on pairings and branches.
        stage._trainer = SimpleNamespace(fit_loop=SimpleNamespace(total_batch_idx=0), world_size=1)

    def ours(self, batch, seed):
        """The step with what `seed` draws; the calls of `training_step`."""
        stage = self.stage
        optimizer_g, optimizer_d = self.optimizers
        # The reference starts from the same seed, so both draw the same keys.
        torch.manual_seed(seed)
        drawn = stage.draw_shard(batch)
        # Both phases share these pictures; the reference draws them in each.
        adversarial = stage.discriminator_terms(self.discriminator, batch.image, drawn.pictures)
        update(optimizer_d, torch.stack(list(adversarial.values())).sum())
        # The generator's loss goes through the discriminator and must leave no gradients in it.
        self.discriminator.requires_grad_(False)
        terms = stage.shard_terms(batch, drawn)
        update(optimizer_g, weighted_sum(terms, stage.weights))
        self.discriminator.requires_grad_(True)
        return {
            "d": {name: value.detach() for name, value in adversarial.items()},
            "g": {name: value.detach() for name, value in terms.items()},
        }

    def reference(self, batch, seed):
        """As the released trainer calls the same networks, with the same keys."""
        torch.manual_seed(seed)
        # As the stage draws them: two right and two wrong keys a face.
        keys = self.stage.backbone.sample_key(4 * len(batch)).to(batch.image)
        return run_reference(reference_of(self.stage), batch, keys, self.optimizers)


class Noted(torch.optim.SGD):
    """Keeps the gradients it was given."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.01)
        self.gradients = None

    def step(self, closure=None):
        self.gradients = [p.grad.clone() for group in self.param_groups for p in group["params"]]
        return super().step(closure)


@pytest.fixture
def faces():
    torch.manual_seed(3)
    image = torch.nn.functional.interpolate(torch.rand(3, 3, 6, 6) * 2 - 1, 64, mode="bicubic").clamp(-1, 1)
    return FaceBatch(image, torch.tensor([0, 1, 1]), torch.tensor([0, 1, 2]))


def make_pair(bundle, name, **settings):
    torch.manual_seed(0)
    backbone = DBAF(str(bundle), cid_depth=1, cid_heads=2, cid_head_dim=8, cid_dropout=0.0, cid_form="levels")
    with torch.no_grad():  # noise strengths and biases start at 0, where they would hide an error
        for parameter in backbone.generator.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return Pair(STAGES[name](backbone, r1_interval=1, **settings).train(), PARTS[name], Noted)


def assert_close(ours, theirs, what, relative=1e-4):
    size = max(float(theirs.norm()), 1e-12)
    assert float((ours - theirs).norm()) <= relative * size, f"{what}: {ours} and {theirs}"


def double(pair):
    """In double precision, in which rounding cannot pass for a difference of the steps, or hide one."""
    bundle = pair.stage.bundle
    for net in (pair.stage, bundle.recogniser, bundle.parser, bundle.perceptual, pair.stage.backbone.key_mapping):
        net.double()
    return pair


def test_grouped_per_sample_weights_draw_the_same_pictures(tiny_bundle):
    generator = make_pair(tiny_bundle, "s2").stage.backbone.generator
    codes = torch.randn(2, generator.n_latent, generator.style_dim)
    features = {16: torch.randn(2, generator.channels[16], 16, 16)}
    for given in (None, features):
        ours, theirs = generator.synthesis(codes, features=given), reference_synthesis(generator, codes, given)
        assert_close(ours, theirs, "pictures")
    assert (reference_synthesis(generator, codes, features) - reference_synthesis(generator, codes)).abs().max() > 1e-3


def both_sides(bundle, name, faces, settings, precise):
    found = []
    for side in ("ours", "reference"):
        pair = make_pair(bundle, name, **settings)
        if precise:
            pair, faces = double(pair), faces.map(lambda item: item.double() if item.is_floating_point() else item)
        terms = getattr(pair, side)(faces, KEYS)
        found.append((terms, [optimizer.gradients for optimizer in pair.optimizers]))
    return found


@pytest.mark.parametrize(
    ("name", "settings"),
    [("s1", {}), ("s1", {"pairing": "self"}), ("s2", {}), ("s2", {"loop": "latent", "clamp_recovery": True})],
)
def test_losses_and_gradients_are_the_reference_s(tiny_bundle, faces, name, settings):
    (ours, our_gradients), (theirs, their_gradients) = both_sides(tiny_bundle, name, faces, settings, precise=True)
    for phase, named in theirs.items():
        assert set(ours[phase]) == set(named)
        for term, value in named.items():
            assert_close(ours[phase][term], value, f"{phase} {term}", 1e-6)
    for phase, mine, other in zip("gd", our_gradients, their_gradients, strict=True):
        largest = max(float(item.norm()) for item in other)
        assert largest > 0
        for one, two in zip(mine, other, strict=True):
            assert float((one - two).norm()) <= 1e-6 * max(float(two.norm()), 1e-3 * largest), phase


def test_the_reference_of_stage_1_computes_where_its_batch_lies(tiny_bundle, faces):
    stage = make_pair(tiny_bundle, "s1").stage.to("meta")  # a device that every machine has, beside the CPU
    stage.bundle.to("meta")
    terms = reference_of(stage).generator_terms(faces.to("meta"), torch.zeros(0))
    assert {term.device.type for term in terms.values()} == {"meta"}


# Without the 8-bit step: rounding turns a difference in the last digit into a whole step of a pixel.
@pytest.mark.parametrize(("name", "settings"), [("s1", {}), ("s2", {"loop": "image"})])
def test_in_single_precision_they_agree_to_a_ten_thousandth(tiny_bundle, faces, name, settings):
    faces = faces.map(lambda item: item[:2])  # two pictures: the discriminator's groups are pairs, and fours
    (ours, our_gradients), (theirs, their_gradients) = both_sides(tiny_bundle, name, faces, settings, precise=False)
    for phase, named in theirs.items():
        for term, value in named.items():
            assert_close(ours[phase][term], value, f"{phase} {term}")
    for phase, mine, other in zip("gd", our_gradients, their_gradients, strict=True):
        whole = [torch.cat([item.flatten() for item in side]) for side in (mine, other)]
        assert_close(*whole, f"gradient of {phase}")
