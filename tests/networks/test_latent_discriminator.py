import pytest
import torch

from faceanon.losses.adversarial import discriminator_loss, generator_loss, r1_penalty
from faceanon.losses.latent import latent_regulariser
from faceanon.losses.reconstruction import pixel_loss
from latent_discriminator import LatentCodesDiscriminator


@pytest.fixture(scope="module")
def public(golden):
    case = golden.case("e4e_losses")
    return golden.load(LatentCodesDiscriminator(), "generic", case), case


@pytest.fixture(scope="module")
def codes(golden):
    return golden.normal("el:latent", (3, 14, 512))


def test_logits_and_losses_equal_the_public_network(golden, public, rms_error):
    net, case = public
    real, fake = (golden.normal(f"el:{name}", (5, 512)) for name in ("real", "fake"))
    assert rms_error(net(real), case["d_real"]) < 1e-4
    assert rms_error(net(fake), case["d_fake"]) < 1e-4
    assert rms_error(discriminator_loss(net(real), net(fake)), case["d_loss"]) < 1e-4
    penalty = r1_penalty(lambda w: net(w.flatten(1)), real[:, :, None, None])
    assert rms_error(penalty, case["d_r1"]) < 1e-4


@pytest.mark.parametrize("stage", [0, 1, 5, 13, 18])
def test_encoder_losses_of_every_stage_equal_the_public_code(golden, public, codes, rms_error, stage):
    net, case = public
    trained = codes[:, : stage + 1]
    drawn, target = (golden.image(f"el:{name}", (3, 3, 32, 32)) for name in ("yhat", "y"))
    adversarial, distance = generator_loss(net(trained)), pixel_loss(drawn, target, "l2")
    total = distance + 0.1 * adversarial
    assert rms_error(adversarial, case[f"stage{stage}_encoder_discriminator_loss"]) < 1e-4
    assert rms_error(distance, case[f"stage{stage}_loss_l2"]) < 1e-4
    if stage < 18:  # the last stage has no delta regularisation
        delta = latent_regulariser(trained, "delta")
        if stage:
            assert rms_error(delta, case[f"stage{stage}_total_delta_loss"]) < 1e-4
        assert abs(delta - float(case[f"stage{stage}_total_delta_loss"])) < 1e-3
        total = total + 2e-4 * delta
    assert rms_error(total, case[f"stage{stage}_loss"]) < 1e-4


@pytest.mark.parametrize("slope", [0.01, 1.0])
def test_another_slope_is_exposed(golden, public, rms_error, monkeypatch, slope):
    net, case = public
    monkeypatch.setattr(net.mlp[1], "negative_slope", slope)
    assert rms_error(net(golden.normal("el:real", (5, 512))), case["d_real"]) > 1e-2


def test_rows_are_judged_one_by_one(codes):
    net = LatentCodesDiscriminator(512, 2)
    logits = net(codes)
    assert logits.shape == (3, 14, 1)
    torch.testing.assert_close(logits[1, 5], net(codes[1, 5][None])[0])
