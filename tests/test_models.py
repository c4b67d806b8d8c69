import os
import shutil

import pytest
import torch
import yaml
from safetensors.torch import save_file

from bundles import make_tiny_bundle
from faceanon.backbones.dbaf import DBAF
from faceanon.errors import UserError
from faceanon.files import load_tensors, save_tensors
from faceanon.models import check_fit, load_backbone, load_into, save_backbone
from faceanon.weights.bundle import Bundle

SMALL = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8}


@pytest.fixture
def saved(tiny_bundle, tmp_path):
    torch.manual_seed(3)
    backbone = DBAF(str(tiny_bundle), **SMALL)
    save_backbone(backbone, tmp_path / "model")
    return backbone, tmp_path / "model"


def refuse(match, function, *args):
    with pytest.raises(UserError, match=match) as caught:
        function(*args)
    assert "\n" not in str(caught.value)


def test_a_saved_backbone_comes_back_the_same(saved):
    backbone, folder = saved
    loaded, digest = load_backbone(folder)
    assert len(digest) == 64
    assert not loaded.training
    for name, value in backbone.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name]), name


def test_hand_over_needs_the_same_arguments_and_names_both_sides(saved, tiny_bundle):
    _, folder = saved
    refuse(r"cid_depth': 1.*cid_depth': 2", load_into, DBAF(str(tiny_bundle), **{**SMALL, "cid_depth": 2}), folder)


def test_an_argument_that_came_later_has_its_default(saved, tiny_bundle, tmp_path):
    """A model of an earlier release goes on in this one, as long as the run does not ask for what is new."""
    backbone, folder = saved
    card = yaml.safe_load((folder / "model.yaml").read_text())
    del card["init_args"]["maar"]
    shutil.copytree(folder, tmp_path / "earlier")
    (tmp_path / "earlier/model.yaml").write_text(yaml.safe_dump(card))
    again = DBAF(str(tiny_bundle), **SMALL)
    load_into(again, tmp_path / "earlier")
    assert all(torch.equal(value, backbone.state_dict()[name]) for name, value in again.state_dict().items())
    check_fit(card, again, "the checkpoint")
    newer = DBAF(str(tiny_bundle), **{**SMALL, "maar": False})
    refuse("'maar': True.*'maar': False", load_into, newer, tmp_path / "earlier")
    refuse("'maar': True.*'maar': False", check_fit, card, newer, "the checkpoint")


def test_hand_over_refuses_another_bundle(saved, tmp_path):
    other = make_tiny_bundle(tmp_path / "other", seed=9)
    refuse("bundle", load_into, DBAF(str(other), **SMALL), saved[1])


def test_missing_and_corrupt_models(saved, tmp_path):
    _, folder = saved
    refuse("no model at", load_backbone, tmp_path / "nothing")
    refuse("model.yaml", load_backbone, tmp_path)
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    refuse("sha256", load_backbone, folder)
    (tmp_path / "x.ckpt").write_bytes(b"not a checkpoint")
    refuse("damaged", load_backbone, tmp_path / "x.ckpt")


def test_a_card_cannot_name_code_outside_the_announced_backbones(saved, tmp_path):
    _, folder = saved
    card = yaml.safe_load((folder / "model.yaml").read_text())
    card["class_path"] = "os.system"
    (folder / "model.yaml").write_text(yaml.safe_dump(card))
    refuse("no backbone 'os.system'", load_backbone, folder)


class Payload:
    """Unpickling it creates a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_a_hostile_checkpoint_is_refused_and_does_not_run(tmp_path):
    target = tmp_path / "ran"
    torch.save({"faceanon": Payload(target), "state_dict": {}}, tmp_path / "evil.ckpt")
    refuse("damaged", load_backbone, tmp_path / "evil.ckpt")
    assert not target.exists()
    torch.load(tmp_path / "evil.ckpt", weights_only=False)
    assert target.exists(), "the payload would have run: the test would notice"


def test_bundles(tiny_bundle, tmp_path):
    refuse("no bundle 'nothing'", Bundle, "nothing")
    broken = make_tiny_bundle(tmp_path / "broken")
    (broken / "generator.safetensors").write_bytes(b"")
    refuse("sha256", Bundle(broken).generator)
    (broken / "encoder.safetensors").unlink()
    refuse("weights not found", Bundle(broken).encoder)
    text = (broken / "bundle.yaml").read_text()
    (broken / "bundle.yaml").write_text(text.replace("faceanon.networks.critics.UNetParser", "subprocess.Popen"))
    refuse("may only name networks", lambda: Bundle(broken).parser)


def test_writes_are_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.safetensors"
    save_tensors(path, {"x": torch.ones(2)})
    path.chmod(0o644)
    (tmp_path / "file").write_text("")
    refuse("cannot write", save_tensors, tmp_path / "file" / "b.safetensors", {"x": torch.ones(2)})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.safetensors", "file"]
    save_file({"x": torch.ones(3)}, path)
    refuse("sha256", load_tensors, path, "0" * 64)
