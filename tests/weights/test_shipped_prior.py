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
    for role in ("recogniser", "codec"):
        assert prior.entry(role)["sha256"] == base.entry(role)["sha256"]
        assert (prior.folder / prior.entry(role)["file"]).resolve() == base.folder / base.entry(role)["file"]
    # Codes belong to the prior's own generator.
    assert prior.fingerprint != base.fingerprint


def test_w_plus_alone_draws_the_person(prior, faces):
    found = reconstruction(prior, faces)
    assert found.doubt is None
    assert found.identity > 0.7
    assert found.identity > found.identity_others + 0.5


def test_pictures_with_drawn_faces_are_the_person_s(prior, faces):
    encoder = prior.encoder().eval()
    generator = prior.generator().eval()
    mesh = prior.landmarks(faces)
    with torch.no_grad():
        codes, _ = encoder.with_features(prior.frame.cut(faces, mesh))
        picture = prior.frame.put(
            generator.synthesis(codes).clamp(-1, 1), faces, prior.frame.way(mesh, faces.shape[-1])
        )
    recogniser = Bundle("photo128").recogniser
    alike = (recogniser(picture) * recogniser(faces)).sum(1)
    assert psnr(((picture - faces) / 2).square().mean((1, 2, 3))).mean() > 27
    assert alike.mean() > 0.8


def test_it_can_be_verified(capsys):
    assert main(["weights", "verify", "photo128_prior"]) == 0
    told = capsys.readouterr().out
    assert "synthetic photographs: PSNR" in told
    assert "looks wrong" not in told
