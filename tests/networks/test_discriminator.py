import numpy as np
import pytest
import torch
from torch.nn import functional as F

from faceanon.networks.discriminator import minibatch_stddev
from faceanon.networks.stylegan2 import Discriminator

CHANNELS = {4: 16, 8: 16, 16: 16, 32: 16}


@pytest.fixture
def case(golden):
    return golden.case("stylegan2_d_tiny")


@pytest.fixture
def net(golden, case):
    return golden.load(Discriminator(32, channels=CHANNELS), "stylegan2", case)


def _norms(net, case):
    parameters = dict(net.named_parameters())
    grads = [parameters[key].grad for key in case["param_names"]]
    return [0.0 if grad is None else grad.norm().item() for grad in grads]


@pytest.mark.parametrize("size", [256, 512, 1024])
def test_layout_is_the_public_one(golden, size):
    with torch.device("meta"):
        net = Discriminator(size)
    assert [(key, tuple(t.shape)) for key, t in net.state_dict().items()] == golden.manifest(f"stylegan2_d_{size}")


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 8])
def test_logits_equal_the_public_network(golden, case, net, rms_error, batch):
    logits = net(golden.image(f"d_tiny:x{batch}", (batch, 3, 32, 32)))
    assert rms_error(logits, case[f"logits_b{batch}"]) < 1e-4


def test_logistic_loss_and_its_gradients_equal_the_public_network(golden, case, net, rms_error):
    real, fake = (net(golden.image(f"d_tiny:{key}", (4, 3, 32, 32))) for key in ("x4", "fake"))
    loss = F.softplus(-real).mean() + F.softplus(fake).mean()
    assert rms_error(loss, case["d_logistic"]) < 1e-4
    loss.backward()
    np.testing.assert_allclose(_norms(net, case), case["d_logistic_grad_norms"], rtol=1e-3, atol=1e-7)


def test_r1_and_its_gradients_equal_the_public_network(golden, case, net, rms_error):
    image = golden.image("d_tiny:x4", (4, 3, 32, 32)).requires_grad_()
    (grad,) = torch.autograd.grad(net(image).sum(), image, create_graph=True)
    penalty = grad.square().sum((1, 2, 3)).mean()
    assert rms_error(penalty, case["r1_penalty"]) < 1e-4
    (10 / 2 * penalty * 16).backward()
    np.testing.assert_allclose(_norms(net, case), case["r1_grad_norms"], rtol=1e-3, atol=1e-7)


def test_a_wrong_blur_pad_is_exposed(golden, case, net, rms_error):
    net.convs[1].skip[0].pad = (2, 0)
    assert rms_error(net(golden.image("d_tiny:x4", (4, 3, 32, 32))), case["logits_b4"]) > 1e-2


def test_second_derivative_is_the_numerical_one():
    torch.manual_seed(0)
    net = Discriminator(8, channels={4: 4, 8: 4}).double()
    assert torch.autograd.gradgradcheck(net, torch.randn(2, 3, 8, 8).double().requires_grad_())


@pytest.mark.parametrize(("batch", "group"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 1), (6, 3), (8, 4)])
def test_any_batch_has_a_group(batch, group):
    x = torch.randn(batch, 2, 3, 3)
    out = minibatch_stddev(x)
    members = [i for i in range(batch) if i % (batch // group) == 0]  # the first sample's group
    expected = (x[members].var(0, unbiased=False) + 1e-8).sqrt().mean()
    assert out.shape == (batch, 3, 3, 3)
    torch.testing.assert_close(out[0, 2], expected.expand(3, 3))


def test_an_image_of_another_size_is_named():
    with pytest.raises(ValueError, match=r"takes \(B, 3, 8, 8\)"):
        Discriminator(8, channels={4: 4, 8: 4})(torch.zeros(1, 3, 16, 16))
