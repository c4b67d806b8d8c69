"""Networks that are compiled in place; the backends `eager` and `aot_eager` need no C++ compiler."""

import copy

import pytest
import torch
from torch import nn

from bundles import NETWORKS
from faceanon.errors import UserError
from faceanon.losses.adversarial import r1_penalty
from faceanon.networks.compiled import CompiledCall, Region, compile_region, is_compiled, regions, restore
from faceanon.networks.frozen import Frozen
from faceanon.weights.bundle import network_class

QUIET = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor")
OPTIONS = {"dynamic": False, "fullgraph": True}


def build(role):
    leaf, init = NETWORKS[role]
    torch.manual_seed(0)
    return network_class(f"faceanon.networks.{leaf}")(**init)


class Method(nn.Module):
    """What a method looks like: networks called by name, others as they are, and frozen ones of somebody else."""

    def __init__(self):
        super().__init__()
        self.generator, self.encoder = build("generator"), build("encoder")
        self.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.lists = nn.ModuleList([nn.Linear(4, 4), nn.Flatten()])
        self.mixed = nn.ModuleDict({"frozen": Frozen(nn.Linear(4, 4)), "own": nn.Linear(4, 4)})


def test_regions_are_what_is_called_as_one():
    found = {region.name: region.method for region in regions(Method(), "backbone")}
    assert found == {
        "backbone.generator.synthesis": "synthesis",
        "backbone.encoder.with_features": "with_features",
        "backbone.head": "__call__",
        "backbone.lists.0": "__call__",
        "backbone.mixed.frozen": "__call__",
        "backbone.mixed.own": "__call__",
    }


def gradients(net, values):
    net.zero_grad()
    torch.autograd.backward(values.square().mean())
    return {name: item.grad.clone() for name, item in net.named_parameters() if item.grad is not None}


@QUIET
@pytest.mark.parametrize(("backend", "tolerance"), [("eager", 0.0), ("aot_eager", 1e-5)])
def test_values_gradients_and_names_stay(backend, tolerance):
    net, codes = build("generator"), torch.randn(2, 10, 16, generator=torch.Generator().manual_seed(1))
    names, plain = list(net.state_dict()), net.synthesis(codes)
    wanted = gradients(net, plain)
    (call,) = (compile_region(region, backend=backend, **OPTIONS) for region in regions(net, "generator"))
    drawn = net.synthesis(codes)
    assert call.calls == 1
    torch.testing.assert_close(drawn, plain, rtol=tolerance, atol=tolerance)
    for name, item in gradients(net, drawn).items():
        torch.testing.assert_close(item, wanted[name], rtol=10 * tolerance, atol=tolerance)
    assert list(net.state_dict()) == names
    build("generator").load_state_dict(net.state_dict())
    net.load_state_dict(build("generator").state_dict())


@QUIET
def test_a_copy_is_a_plain_network_of_its_own():
    net, codes = build("generator"), torch.randn(1, 10, 16)
    (region,) = regions(net, "generator")
    call = compile_region(region, backend="eager", **OPTIONS)
    twin = copy.deepcopy(net)
    (its,) = regions(twin, "copy")
    assert is_compiled(region)
    assert not is_compiled(its)
    with torch.no_grad():
        twin.to_rgb1.bias.add_(1.0)
        assert not torch.equal(twin.synthesis(codes), net.synthesis(codes))  # the copy's own weights
    assert call.calls == 1
    restore(region)
    assert not is_compiled(region)
    net.synthesis(codes)
    assert call.calls == 1


def test_r1_goes_past_compiled_code_and_stays_in_float32():
    """`aot_eager`, as `inductor`, refuses second derivatives; under autocast they would be in bfloat16."""
    net, real = build("discriminator"), torch.rand(2, 3, 64, 64) - 0.5
    wanted = r1_penalty(net, real)
    (region,) = regions(net, "discriminator")
    call = compile_region(region, backend="aot_eager", **OPTIONS)
    with torch.autocast("cpu", torch.bfloat16):
        found = r1_penalty(net, real)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted)
    assert torch.autograd.grad(found, net.final_conv[0].weight)[0].abs().sum() > 0
    assert call.calls == 0


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.weight if x.sum() > 0 else x


def test_what_cannot_be_compiled_is_named_and_not_run():
    net = Branching()
    compile_region(Region("backbone.branching", net), backend="eager", **OPTIONS)
    with pytest.raises(UserError, match=r"cannot compile backbone\.branching: .*acceleration\.skip"):
        net(torch.ones(2))


def test_a_networks_own_error_stays_its_own():
    net = build("discriminator")
    call = CompiledCall(Region("discriminator", net), backend="eager", dynamic=False)
    call.call = net.forward
    with pytest.raises(ValueError, match="this discriminator takes"):
        call(torch.zeros(1, 3, 8, 8))
