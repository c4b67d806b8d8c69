"""What is asked of faces in the frame of a mesh, of every method that draws there: light that stays, corrections."""

import pytest
import torch
import yaml

from faceanon.backbones.dbaf_flips import DBAFWithFlips
from faceanon.backbones.fit import FIT
from faceanon.backbones.frame_options import FrameOptions
from faceanon.backbones.ifadit_linear import LinearIFADIT
from faceanon.backbones.in_frame import in_use
from faceanon.backbones.mirage import Mirage
from faceanon.backbones.riddle import Riddle
from faceanon.backbones.rotation import Rotation
from faceanon.errors import UserError
from faceanon.models import load_backbone, load_into, save_backbone
from faceanon.stages import AnonymizeStage
from faceanon.stages.anonymize_terms import AnonymizeWeights

# Small where a class allows it.
OPTIONS = {
    DBAFWithFlips: {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 16, "flips": 8},
    Mirage: {"grades": [16]},
    Rotation: {"components": 16},
    LinearIFADIT: {"components": 16, "flow_hidden": 32},
    Riddle: {"flips": 8},
    FIT: {"width": 4, "blocks": 1, "turned": 8, "password_bits": 128},
}
methods = pytest.mark.parametrize("method", OPTIONS, ids=lambda method: method.__name__)


def built(method, **options):
    """A method on photographs, with the same weights each time, and options of the frame."""
    torch.manual_seed(0)
    made = method("photo128_prior", **OPTIONS[method]).eval()
    made.frame_options = FrameOptions(**options)
    return made


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
    assert in_use(lit).frame_options.keep_light == 0.16


@pytest.mark.parametrize("light", [-0.1, 0.3])
def test_a_light_that_is_none_is_told(light):
    with pytest.raises(UserError, match=f"keep_light is {light}; give a number between 0 and 0.25"):
        FrameOptions(keep_light=light)


def test_a_number_of_corrections_that_is_none_is_told():
    with pytest.raises(UserError, match="corrections is -1; give 0 or more"):
        FrameOptions(corrections=-1)


@methods
def test_a_later_stage_has_its_own_and_a_saved_model_knows_them(method, tmp_path):
    save_backbone(built(method), tmp_path / "first")
    later = built(method, keep_light=0.2, corrections=2)
    load_into(later, tmp_path / "first")
    assert later.frame_options == FrameOptions(0.2, 2)
    save_backbone(later, tmp_path / "second")
    again, _ = load_backbone(tmp_path / "second")
    assert again.frame_options == again.inner.frame_options == FrameOptions(0.2, 2)
    assert again.inner.settings["frame"] == {"keep_light": 0.2, "corrections": 2}


def test_a_stage_gives_them_to_the_method_and_its_average():
    stage = AnonymizeStage(built(DBAFWithFlips), weights=AnonymizeWeights(parsing=0.0), frame=FrameOptions(0.16, 1))
    assert stage.backbone.frame_options == stage.ema.frame_options == FrameOptions(0.16, 1)


@pytest.mark.parametrize(("frame", "told"), [("much", "frame is missing or damaged"), ({"light": 1}, "light")])
def test_a_card_with_other_options_is_refused(tmp_path, frame, told):
    save_backbone(built(DBAFWithFlips), tmp_path)
    card = yaml.safe_load((tmp_path / "model.yaml").read_text())
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(card | {"frame": frame}))
    with pytest.raises(UserError, match=told):
        load_backbone(tmp_path)
