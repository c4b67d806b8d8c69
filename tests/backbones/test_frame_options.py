"""What is asked of faces in the frame of a mesh, of every method that can be asked: light that stays, corrections."""

import pytest
import torch

from faceanon.backbones.dbaf import DBAF
from faceanon.backbones.fit import FIT
from faceanon.backbones.ifadit import IFADIT
from faceanon.backbones.in_frame import in_use
from faceanon.backbones.keyed import Keyed
from faceanon.backbones.mirage import Mirage
from faceanon.backbones.riddle import Riddle
from faceanon.backbones.rotation import Rotation
from faceanon.errors import UserError
from faceanon.models import load_into, save_backbone

DRAFT = {"attributes_kept": 8, "identity_draft": 1.0}
# Small where a class allows it.
OPTIONS = {
    DBAF: {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 16, "maar": False, "flips": 8},
    Keyed: {"maar": False, "code_dim": 16, "principal": True, **DRAFT},
    Mirage: {"skip": False, "grades": [16], "principal": True, **DRAFT},
    Rotation: {"components": 16, **DRAFT},
    IFADIT: {"components": 16, "flow_hidden": 16, **DRAFT},
    Riddle: {"flips": 8},
    FIT: {"width": 4, "blocks": 1, "turned": 8, "password_bits": 128},
}
methods = pytest.mark.parametrize("method", OPTIONS, ids=lambda method: method.__name__)
# FIT's identity is a picture, which is not corrected.
corrected = pytest.mark.parametrize(
    "method", [method for method in OPTIONS if method is not FIT], ids=lambda method: method.__name__
)


def built(method, **more):
    """A method on photographs, with the same weights each time."""
    torch.manual_seed(0)
    return method("photo128_prior", **OPTIONS[method], **more).eval()


@methods
@torch.no_grad()
def test_strangers_are_drawn_in_the_light_of_their_pictures(method):
    torch.manual_seed(0)
    face = torch.rand(2, 3, 128, 128) * 2 - 1
    # A lamp to the left.
    lamp = torch.linspace(0.8, -0.8, 128).expand(2, 3, 128, 128)
    plain = built(method)
    lit = built(method, keep_light=0.16)
    key = plain.sample_key(2, torch.Generator().manual_seed(0))
    drawn = plain.anonymize(face, key).clamp(-1, 1)
    torch.testing.assert_close(plain.lit(drawn, lamp), drawn)
    shown = lit.lit(drawn, lamp)
    hull = lit.bundle.frame.hull > 0.99
    left = torch.arange(128).expand(128, 128) < 64

    def lean(pictures):
        return pictures[:, :, hull & left].mean() - pictures[:, :, hull & ~left].mean()

    assert lean(shown) > lean(drawn) + 0.3
    # In use the wrapper asks for it.
    assert in_use(lit).inner.keep_light == 0.16


@methods
@pytest.mark.parametrize("light", [-0.1, 0.3])
def test_a_light_that_is_none_is_told(method, light):
    with pytest.raises(UserError, match=f"keep_light is {light}; give a number between 0 and 0.25"):
        method("photo128_prior", keep_light=light)


@corrected
def test_a_number_of_corrections_that_is_none_is_told(method):
    with pytest.raises(UserError, match="corrections is -1; give 0 or more"):
        method("photo128_prior", corrections=-1)


@methods
def test_a_later_stage_and_a_saved_model_know_it(method, tmp_path):
    save_backbone(built(method), tmp_path)
    later = built(method, keep_light=0.2)
    load_into(later, tmp_path)
    assert later.keep_light == 0.2
    assert later.init_args["keep_light"] == 0.2


@corrected
def test_a_later_stage_may_draw_strangers_anew(method, tmp_path):
    save_backbone(built(method), tmp_path)
    later = built(method, corrections=2)
    load_into(later, tmp_path)
    assert in_use(later).inner.corrections == 2
    assert later.init_args["corrections"] == 2
