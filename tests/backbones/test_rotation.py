import pytest
import torch
from backbone_training import trained_parts

from faceanon.backbones.rotation import Rotation
from faceanon.errors import UserError
from faceanon.types import FaceBatch

SMALL = {"components": 16}


@pytest.fixture
def backbone(tiny_bundle):
    torch.manual_seed(0)
    return Rotation(str(tiny_bundle), **SMALL).eval()


@torch.no_grad()
@pytest.mark.parametrize("angle", [30.0, 90.0, 110.0, 170.0])
def test_every_vector_turns_by_the_angle_stays_a_unit_and_comes_back(tiny_bundle, angle):
    backbone = Rotation(str(tiny_bundle), angle=angle, **SMALL).eval()
    vectors = torch.nn.functional.normalize(torch.randn(50, 16))
    key, wrong = backbone.sample_key(50), backbone.sample_key(50)
    turned = backbone.transform(vectors, key)
    torch.testing.assert_close(turned.norm(dim=1), torch.ones(50))
    found = torch.rad2deg((turned * vectors).sum(1).clamp(-1, 1).acos())
    torch.testing.assert_close(found, torch.full((50,), angle), atol=0.1, rtol=0)
    torch.testing.assert_close(backbone.transform(turned, key, inverse=True), vectors, atol=1e-5, rtol=0)
    opened = backbone.transform(turned, wrong, inverse=True)
    assert (opened - vectors).norm(dim=1).min() > 0.05


@torch.no_grad()
def test_two_keys_turn_to_unrelated_strangers(tiny_bundle):
    backbone = Rotation(str(tiny_bundle), angle=90.0, **SMALL).eval()
    vector = torch.nn.functional.normalize(torch.randn(1, 16)).expand(200, -1)
    first, second = (backbone.transform(vector, backbone.sample_key(200)) for _ in range(2))
    assert (first * second).sum(1).mean().abs() < 0.05


@torch.no_grad()
def test_the_identity_is_the_recognisers_vector_in_its_leading_components(backbone):
    some = torch.rand(200, 3, 64, 64, generator=torch.Generator().manual_seed(5)) * 2 - 1
    nobody = torch.full((200,), -1)
    backbone.calibrate([FaceBatch(some, nobody, nobody)])
    codes = backbone.encode(some)
    assert codes.attributes.shape == (200, 10, 16)
    assert backbone.w_plus(codes).shape == (200, 10, 16)
    torch.testing.assert_close(codes.identity.T @ codes.identity / 200, torch.eye(16), atol=1e-2, rtol=0)
    embedding = backbone.bundle.recogniser(some)
    embedding = embedding - embedding.mean(0)

    def left_by(code):
        """How much of the embeddings no linear map of a code explains."""
        return (embedding - code @ torch.linalg.lstsq(code, embedding).solution).square().sum()

    assert left_by(codes.identity) < 0.9 * left_by(embedding[:, :16])


def test_an_angle_out_of_range(tiny_bundle):
    with pytest.raises(UserError, match="give degrees between"):
        Rotation(str(tiny_bundle), angle=180.0, **SMALL)


def test_both_stages_train_the_drawing(tiny_bundle, tmp_path):
    changed, terms = trained_parts("rotation_s1", tiny_bundle, tmp_path / "1")
    assert changed == {"generator", "encoder", "expand"}
    assert "identity" in terms
    changed, terms = trained_parts(
        "rotation_s2", tiny_bundle, tmp_path / "2", f"--model.init_args.init_from={tmp_path}/1/model"
    )
    assert changed == {"generator", "encoder", "expand"}
    assert {"code", "target", "recovery"} <= terms
