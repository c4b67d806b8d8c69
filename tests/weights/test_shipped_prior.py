"""The prior of photographs that ships draws the people of the shipped test pictures."""

import pytest
import torch

from faceanon.cli import main
from faceanon.metrics.quality import psnr
from faceanon.metrics.reconstruction import reconstruction, sample_faces
from faceanon.weights.bundle import Bundle


@pytest.fixture(scope="module")
def prior():
    return Bundle("photo128_prior")


@pytest.fixture(scope="module")
def faces():
    return sample_faces(Bundle("photo128").folder / "pictures", 128)[:8]


def test_its_other_networks_are_those_that_ship_beside_it(prior):
    base = Bundle("photo128")
    for role in ("recogniser", "codec", "identity_space"):
        assert prior.entry(role)["sha256"] == base.entry(role)["sha256"]
        assert (prior.folder / prior.entry(role)["file"]).resolve() == base.folder / base.entry(role)["file"]
    # Codes belong to the prior's own generator.
    assert prior.fingerprint != base.fingerprint


def test_w_plus_alone_draws_the_person(prior, faces):
    found = reconstruction(prior, faces)
    assert found.doubt is None
    assert found.identity > 0.7
    assert found.identity > found.identity_others + 0.5


def test_with_encoder_features_the_picture_comes_back(prior, faces):
    encoder = prior.encoder().eval()
    generator = prior.generator().eval()
    maar = prior.build("maar").eval()
    with torch.no_grad():
        codes, maps = encoder.with_features(faces)
        drawn = generator.synthesis(codes, features=maar(maps)).clamp(-1, 1)
        alike = (prior.recogniser(drawn) * prior.recogniser(faces)).sum(1)
    assert psnr(((drawn - faces) / 2).square().mean((1, 2, 3))).mean() > 27
    assert alike.mean() > 0.9


def test_it_can_be_verified(capsys):
    assert main(["weights", "verify", "photo128_prior"]) == 0
    told = capsys.readouterr().out
    assert "synthetic photographs: PSNR" in told
    assert "looks wrong" not in told
