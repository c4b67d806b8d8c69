"""The 68-point net. Its public checkpoint is not at hand, but a conversion of it to ONNX is, with recorded outputs.

The conversion has folded the batch norms into convolutions and constants, in the order of the layers. The keys and
shapes below are what the published code builds.
"""

import numpy as np
import pytest
import torch

from faceanon.networks import landmarks68
from faceanon.networks.landmarks68 import JAW, Landmarks68
from faceanon.networks.mobileface import MobileFaceConvUnit

BLOCKS = {
    "conv_23": (64, 128, 64),
    **{f"conv_3.model.{n}": (64, 128, 64) for n in range(4)},
    "conv_34": (64, 256, 128),
    **{f"conv_4.model.{n}": (128, 256, 128) for n in range(6)},
    "conv_45": (128, 512, 128),
    **{f"conv_5.model.{n}": (128, 256, 128) for n in range(2)},
}


def norm(name, width):
    for leaf in ("weight", "bias", "running_mean", "running_var"):
        yield f"{name}.{leaf}", (width,)
    yield f"{name}.num_batches_tracked", ()


def unit(name, outputs, inputs, kernel, linear=False):
    yield f"{name}.conv.weight", (outputs, inputs, kernel, kernel)
    yield from norm(f"{name}.bn", outputs)
    if not linear:
        yield f"{name}.prelu.weight", (outputs,)


def public_layout():
    yield from unit("conv1", 64, 3, 3)
    yield from unit("conv2_dw", 64, 1, 3)
    for name, (inputs, wide, outputs) in BLOCKS.items():
        yield from unit(f"{name}.conv", wide, inputs, 1)
        yield from unit(f"{name}.conv_dw", wide, 1, 3)
        yield from unit(f"{name}.project", outputs, wide, 1, linear=True)
    yield from unit("conv_6_sep", 512, 128, 1)
    yield from unit("output_layer.conv_6_dw", 512, 1, 7, linear=True)
    yield "output_layer.linear.weight", (136, 512)
    yield from norm("output_layer.bn", 136)


def test_layout_is_the_public_one():
    with torch.device("meta"):
        net = Landmarks68()
    assert [(key, tuple(t.shape)) for key, t in net.state_dict().items()] == list(public_layout())


def folded_tensors(path):
    onnx = pytest.importorskip("onnx", reason="needs the onnx package to read the converted network")
    found = onnx.load(path).graph.initializer
    return [
        torch.from_numpy(onnx.numpy_helper.to_array(t).copy()) for t in found if t.data_type == onnx.TensorProto.FLOAT
    ]


def set_norm(bn, weight, bias):
    """A batch norm that multiplies by `weight` and adds `bias`."""
    bn.weight.copy_(weight)
    bn.bias.copy_(bias)
    bn.running_var.fill_(1 - bn.eps)


@pytest.fixture(scope="module")
@torch.no_grad()
def public(shared):
    path = shared / "testbed/weights/landmarks/mobilefacenet_68.onnx"
    if not path.is_file():
        pytest.skip("no testbed beside the checkout")
    tensors, net = iter(folded_tensors(path)), Landmarks68().eval()
    for module in net.modules():
        if isinstance(module, MobileFaceConvUnit):
            module.conv.weight.copy_(next(tensors))
            set_norm(module.bn, torch.tensor(1.0), next(tensors).flatten())
            if module.prelu is not None:
                module.prelu.weight.copy_(next(tensors).flatten())
    net.output_layer.linear.weight.copy_(next(tensors).T)
    set_norm(net.output_layer.bn, next(tensors).flatten(), next(tensors).flatten())
    assert next(tensors, None) is None
    with np.load(shared / "testbed/golden/landmarks.npz") as file:
        image = torch.from_numpy(file["crops_rgb"]).permute(0, 3, 1, 2) / 127.5 - 1
        return net, image, file["mobilefacenet_68"].reshape(-1, 68, 2)


@torch.no_grad()
def test_points_equal_the_public_network(public, rms_error):
    net, image, expected = public
    assert rms_error((net(image) + 1) / 2, expected) < 1e-4


@torch.no_grad()
def test_one_line_mistakes_are_exposed(public, rms_error, monkeypatch):
    net, image, expected = public
    assert rms_error((net(image * 2 - 1) + 1) / 2, expected) > 1e-2  # [-1, 1] taken for [0, 1]
    assert rms_error((net(image).flip(-1) + 1) / 2, expected) > 1e-2
    monkeypatch.setattr(net.conv_4.model[3], "residual", False)
    assert rms_error((net(image) + 1) / 2, expected) > 1e-2


@torch.no_grad()
def test_points_lie_where_a_face_has_them(public):
    net, image, _ = public
    points = net(image)
    assert points.shape == (8, 68, 2)
    chin, brows, left_eye, right_eye = points[:, 8], points[:, 17:27], points[:, 36:42], points[:, 42:48]
    assert (left_eye[..., 0].amax(1) < right_eye[..., 0].amin(1)).all()  # x grows to the right
    assert (brows[..., 1].mean(1) < left_eye[..., 1].mean(1)).all()  # y grows downwards
    assert (points[:, JAW:, 1].amax(1) < chin[:, 1]).all()


@torch.no_grad()
def test_the_picture_is_averaged_to_112_px(public):
    net, image, _ = public
    larger = image.repeat_interleave(2, 2).repeat_interleave(2, 3)
    larger[:, :, ::2] += 0.1
    larger[:, :, 1::2] -= 0.1
    torch.testing.assert_close(net(larger), net(image), rtol=0, atol=1e-4)
    assert landmarks68.INPUT_SIZE == 112


def test_the_gradient_reaches_the_picture(public):
    net, image, _ = public
    image = image[:1].clone().requires_grad_()
    net(image)[:, JAW:].square().mean().backward()
    assert torch.isfinite(image.grad).all()
    assert image.grad.abs().sum() > 0
