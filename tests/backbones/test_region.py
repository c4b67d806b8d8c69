"""Where a face is, of a bundle of photographs without a parser."""

import csv

import cv2
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bundles import make_latent_bundle
from faceanon.backbones.ciagan import CIAGAN, LINES
from faceanon.backbones.deepprivacy import DeepPrivacy
from faceanon.backbones.ifadit import IFADIT
from faceanon.backbones.region import face_hole, face_region
from faceanon.errors import UserError
from faceanon.networks.hull import convex_hull
from faceanon.paths import checkpoints
from faceanon.testing import check_backbone
from faceanon.weights.bundle import Bundle

SHIPPED = checkpoints() / "photo128"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return make_latent_bundle(tmp_path_factory.mktemp("bundle"), without=("parser",))


@pytest.fixture(scope="module")
def photographs():
    """Two shipped photographs, `(2, 3, 128, 128)`."""
    with (SHIPPED / "pictures.csv").open(encoding="utf-8", newline="") as file:
        names = [row["file"] for row in csv.DictReader(file) if row["split"] == "test"][:2]
    pictures = [cv2.cvtColor(cv2.imread(str(SHIPPED / "pictures" / name)), cv2.COLOR_BGR2RGB) for name in names]
    small = np.stack([cv2.resize(picture, (128, 128), interpolation=cv2.INTER_AREA) for picture in pictures])
    return torch.from_numpy(small).permute(0, 3, 1, 2).float().div(127.5).sub(1)


def test_the_hull_is_that_of_the_points():
    torch.manual_seed(0)
    points = torch.randn(3, 40, 2) * 0.2
    found = convex_hull(points, 64)[:, 0].bool()
    for mask, own in zip(found, points, strict=True):
        exact = np.zeros((64, 64), np.uint8)
        pixels = ((own.numpy() + 1) * 32 - 0.5).round().astype(np.int32)
        cv2.fillConvexPoly(exact, cv2.convexHull(pixels), 1)
        inside = torch.from_numpy(exact).bool()
        assert (mask & inside).sum() / (mask | inside).sum() > 0.9


def test_without_a_parser_the_mesh_says_where_the_face_is(bundle, photographs):
    face = face_region(Bundle(bundle), photographs)
    assert face.shape == (2, 1, 128, 128)
    # A face takes about a third of FFHQ's frame, and lies in its middle.
    assert (face.mean((1, 2, 3)) > 0.15).all()
    assert (face.mean((1, 2, 3)) < 0.5).all()
    assert face[..., 64:80, 56:72].all()
    assert not face[..., :8, :].any()
    hole = face_hole(Bundle(bundle), photographs)
    assert (hole >= face).all()
    assert hole.sum() > face.sum()


def test_a_bundle_that_cannot_tell_is_refused(tmp_path):
    folder = make_latent_bundle(tmp_path, without=("parser", "landmarks"))
    with pytest.raises(UserError, match="no parser"):
        DeepPrivacy(str(folder))
    with pytest.raises(UserError, match="no parser"):
        face_region(Bundle(folder), torch.zeros(1, 3, 128, 128))


@pytest.mark.parametrize("kind", [CIAGAN, DeepPrivacy])
def test_methods_that_cut_the_face_out_need_no_parser(kind, bundle, photographs, monkeypatch):
    # In bfloat16 the last bit of a latent, which depends on the size of the batch, moves a pixel by some steps.
    monkeypatch.setattr("faceanon.weights.bundle.has_bfloat16", lambda: False)
    method = kind(str(bundle), key_dim=8).eval()
    # As built it adds nothing to what it sees, whatever the key.
    nn.init.normal_(method.unet.painter.leave["16"][-1].weight, std=0.05)
    check_backbone(method, photographs.repeat(2, 1, 1, 1))
    with torch.no_grad():
        changed = (method.anonymize(photographs, method.sample_key(2)) != photographs).any(1)
        assert changed[:, 64:80, 56:72].all()
        assert not changed[:, :8].any()


def test_of_the_mesh_lines_are_drawn_alone(bundle, photographs):
    method = CIAGAN(str(bundle), key_dim=8).eval()
    with torch.no_grad():
        context = method.context(photographs, torch.ones(2, 1, 128, 128))
    # Behind the latents and the hole lie 4 x 4 pixels of the drawing for each cell.
    shown = F.pixel_shuffle(context[:, method.channels + 1 :], 4)
    assert shown.shape == (2, 1, 64, 64)
    assert len(LINES) < 150
    # Between the lines nothing is drawn: a face full of dots would hide where its parts are.
    assert 0.02 < (shown > 0.5).float().mean() < 0.2


def test_a_method_that_keeps_the_background_draws_inside_the_face_alone(bundle, photographs):
    method = IFADIT(str(bundle)).eval()
    with torch.no_grad():
        drawn = method.anonymize(photographs, method.sample_key(2))
    assert torch.equal(drawn[:, :, :8], photographs[:, :, :8])
    assert not torch.equal(drawn[:, :, 64:80], photographs[:, :, 64:80])
