import math

import pytest
import torch
from torch.nn import functional as F

from faceanon.losses.adversarial import discriminator_loss, generator_loss, r1_penalty
from faceanon.losses.identity import attract, contrastive, found_beyond_guess, in_batch_identity, one_stranger, repel
from faceanon.losses.latent import latent_regulariser, sliced_wasserstein
from faceanon.losses.reconstruction import gradient_loss, part_weight, pixel_loss, round_to_8_bit


def unit(*shape):
    return F.normalize(torch.randn(*shape), dim=-1)


def test_adversarial_losses_against_their_formulas():
    real, fake = torch.randn(5, 1), torch.randn(5, 1)
    torch.testing.assert_close(generator_loss(fake), -F.logsigmoid(fake).mean())
    expected = F.binary_cross_entropy_with_logits(real, torch.ones(5, 1)) + F.binary_cross_entropy_with_logits(
        fake, torch.zeros(5, 1)
    )
    torch.testing.assert_close(discriminator_loss(real, fake), expected)


def test_r1_of_a_linear_critic_is_its_squared_weight():
    weight = torch.randn(3 * 4 * 4)
    critic = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 1))
    critic[1].weight.data.copy_(weight[None])
    torch.testing.assert_close(r1_penalty(critic, torch.randn(6, 3, 4, 4)), weight.square().sum())


def test_r1_stays_in_float32_under_autocast():
    critic = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert r1_penalty(critic, torch.randn(2, 3, 4, 4)).dtype == torch.float32


def test_repel_has_no_gradient_below_its_margin_and_attract_vanishes_on_equals():
    a, b = unit(4, 8), unit(4, 8).requires_grad_()
    repel(a, b, margin=1.1).backward()
    assert b.grad.abs().max() == 0
    assert attract(a, a).abs() < 1e-6


def test_contrastive_pulls_the_same_and_pushes_strangers_until_tau():
    a = unit(2, 8)
    same = torch.tensor([True, False])
    assert contrastive(a, a, same, 0.0, 0.5) == pytest.approx(0.25)  # far side: tau- - 0, halved over the batch
    assert contrastive(a, -a, same, 0.0, 0.5) == pytest.approx(1.0)  # near side: distance 2, halved


def test_in_batch_identity_is_small_for_the_right_neighbours_and_ignores_singles():
    centres = torch.eye(4)
    labels = torch.tensor([0, 0, 1, 1])
    good, bad = centres[[0, 0, 1, 1]], centres[[0, 1, 0, 1]]
    assert in_batch_identity(good, labels) < 0.01 < in_batch_identity(bad, labels)
    assert in_batch_identity(good, torch.arange(4)) == 0


def test_one_stranger_pulls_a_persons_photos_together_and_pushes_two_people_apart():
    axes, who = torch.eye(4), torch.tensor([5, 5, 7, -1])
    assert one_stranger(axes[[0, 0, 1, 0]], who) == 0, "whoever is unknown counts in no pair"
    assert one_stranger(axes[[0, 2, 1, 3]], who) == 1  # a person's two photos under two faces
    assert one_stranger(axes[[0, 0, 0, 3]], who) == 1  # two people under one face
    assert one_stranger(axes[[0, 0, 1, 3]], who, margin=0.3) == pytest.approx(0.3)
    assert one_stranger(axes, torch.full((4,), -1)) == 0


def test_eight_bit_rounding_equals_uint8_and_lets_the_gradient_through():
    image = (torch.randn(2, 3, 4, 4)).requires_grad_()
    saved = round_to_8_bit(image)
    stored = ((image.detach().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    torch.testing.assert_close(saved, stored.float() / 127.5 - 1, atol=1e-6, rtol=0)
    saved.sum().backward()
    assert torch.equal(image.grad, (image.abs() <= 1).float())


def test_pixel_terms():
    a, b = torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(pixel_loss(a, b), (a - b).abs().mean())
    torch.testing.assert_close(pixel_loss(a, b, "l1", torch.ones(2, 1, 8, 8)), (a - b).abs().mean())
    assert gradient_loss(a, a + 0.3) < 1e-6
    parsing = torch.zeros(2, 8, 8, dtype=torch.int64)
    parsing[:, 2:4, 2:4] = 5
    weight = part_weight(parsing, (5,), 3.0)
    torch.testing.assert_close(weight.mean((1, 2, 3)), torch.ones(2))
    assert weight[0, 0, 2, 2] == pytest.approx(4 * float(weight[0, 0, 7, 7]))


def test_latent_regularisers_by_hand():
    w = torch.randn(2, 5, 3)
    spread = sum((w[:, i] - w.mean(1)).norm(dim=1) for i in range(5)).mean()
    delta = sum((w[:, i] - w[:, 0]).norm(dim=1) for i in range(5)).mean()
    torch.testing.assert_close(latent_regulariser(w, "spread"), spread)
    torch.testing.assert_close(latent_regulariser(w, "delta"), delta, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(latent_regulariser(w, "square"), (w**2).mean())


def test_sliced_wasserstein_tells_clouds_apart():
    torch.manual_seed(0)
    a = torch.randn(256, 4)
    assert sliced_wasserstein(a, a[torch.randperm(256)]) < 1e-10
    assert sliced_wasserstein(a, a + 1) > 0.3


class TestFoundBeyondGuess:
    """Two people in two pictures each, and a fifth who has one."""

    WHO = torch.tensor([0, 0, 1, 1, 2])
    GALLERY = torch.eye(5)

    def test_a_face_that_says_nothing_is_a_guess(self):
        silent = torch.full((5, 5), 5**-0.5)
        assert found_beyond_guess(silent, self.GALLERY, self.WHO).abs().max() < 1e-6

    def test_a_face_is_looked_up_among_other_pictures_of_its_person(self):
        own = found_beyond_guess(self.GALLERY, self.GALLERY, self.WHO)
        other = found_beyond_guess(self.GALLERY[[1, 0, 3, 2, 4]], self.GALLERY, self.WHO)
        assert (own[:4] < 1e-6).all(), "one's own picture is no find"
        assert other[:4].tolist() == pytest.approx([math.log(4)] * 4, abs=1e-3)  # one right among the four others
        assert own[4] == pytest.approx(math.log(5), abs=1e-3)  # who has no other picture is looked up in the one

    def test_a_face_that_misleads_is_below_a_guess(self):
        assert (found_beyond_guess(self.GALLERY[[2, 3, 0, 1, 0]], self.GALLERY, self.WHO) < -1).all()

    def test_batches_behind_each_other_and_people_nobody_knows(self):
        torch.manual_seed(0)
        faces = torch.nn.functional.normalize(torch.randn(10, 5))
        both = found_beyond_guess(faces, self.GALLERY, self.WHO)
        halves = [found_beyond_guess(half, self.GALLERY, self.WHO) for half in faces.chunk(2)]
        torch.testing.assert_close(both, torch.cat(halves))
        assert found_beyond_guess(faces, self.GALLERY, torch.full((5,), -1)).abs().max() < 1e-6


def test_r1_does_not_grow_with_the_number_of_places_that_a_discriminator_judges():
    weight = torch.nn.Parameter(torch.randn(12))

    def one(pictures):
        return (pictures.flatten(1) * weight).sum(1, keepdim=True)

    def many(pictures):
        return one(pictures).expand(-1, 64)

    real = torch.randn(5, 3, 2, 2)
    torch.testing.assert_close(r1_penalty(many, real), r1_penalty(one, real))
    torch.testing.assert_close(r1_penalty(one, real), weight.square().sum())
