"""Operations on boxes: those of torchvision, without its import."""

import subprocess
import sys

import torch
import torchvision

from faceanon.networks import boxes


def some_boxes(count):
    generator = torch.Generator().manual_seed(0)
    corner = 40 * torch.rand(count, 2, generator=generator)
    return torch.cat([corner, corner + 4 + 20 * torch.rand(count, 2, generator=generator)], 1)


def test_they_give_what_torchvision_gives():
    found = some_boxes(60)
    scores = torch.rand(60, generator=torch.Generator().manual_seed(1))
    assert torch.equal(boxes.nms(found, scores, 0.4), torchvision.ops.nms(found, scores, 0.4))
    pictures = torch.rand(2, 3, 64, 64)
    numbered = torch.cat([torch.arange(60.0)[:, None] % 2, found], 1)
    wanted = torchvision.ops.roi_align(pictures, numbered, (7, 5), sampling_ratio=-1, aligned=True)
    assert torch.equal(boxes.roi_align(pictures, numbered, (7, 5)), wanted)


def test_what_is_cut_out_has_a_gradient():
    picture = torch.rand(1, 1, 8, 8, requires_grad=True)
    boxes.roi_align(picture, torch.tensor([[0.0, 2, 2, 6, 6]]), (4, 4)).sum().backward()
    assert picture.grad is not None
    torch.testing.assert_close(picture.grad.sum(), torch.tensor(16.0))


def test_they_do_not_import_torchvision():
    code = (
        "import sys, torch; from faceanon.networks.boxes import nms; "
        "nms(torch.tensor([[0.0, 0, 1, 1]]), torch.ones(1), 0.5); assert 'torchvision' not in sys.modules; "
        "import torchvision; print(len(torchvision.ops.nms(torch.tensor([[0.0, 0, 1, 1]]), torch.ones(1), 0.5)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "1"


def test_the_same_box_of_every_picture():
    pictures = torch.rand(3, 2, 16, 16)
    wanted = torchvision.ops.roi_align(
        pictures, [torch.tensor([[2.0, 4, 10, 12]])] * 3, (5, 5), sampling_ratio=-1, aligned=True
    )
    assert torch.equal(boxes.cut_out(pictures, (0.125, 0.25, 0.625, 0.75), 5), wanted)


def test_nothing_that_anonymizes_photographs_imports_torchvision():
    code = (
        "import sys, torch; from faceanon.models import load_backbone; "
        "method = load_backbone('persona_photo128')[0]; "
        "torch.set_grad_enabled(False); method.anonymize(torch.zeros(1, 3, 128, 128), method.sample_key(1)); "
        "print([name for name in ('torchvision', 'lightning', 'torch._dynamo', 'sympy') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_an_installation_of_another_build_is_imported(monkeypatch):
    monkeypatch.setattr(boxes, "LIBRARIES", ("no such library",))
    boxes._load.cache_clear()
    assert boxes.nms(torch.tensor([[0.0, 0, 1, 1]]), torch.ones(1), 0.5).tolist() == [0]
    boxes._load.cache_clear()
