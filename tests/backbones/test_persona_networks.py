"""The flow as torch runs it in use: a rounded copy, kept for as long as its weights are the same."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from faceanon.backbones import persona_networks as module
from faceanon.backbones.persona import MAPS, Persona
from faceanon.networks.flow_painter import FlowPainter


def small_persona():
    torch.manual_seed(0)
    method = Persona().eval()
    method.flow = FlowPainter(maps=MAPS, condition=85, widths={16: 16, 8: 32}, hidden=16).eval()
    return method


@pytest.fixture
def method():
    return small_persona()


@pytest.fixture(scope="module")
def asked():
    """What the flow is asked with, of two faces."""
    draw = np.random.default_rng(0)
    shapes = ((2, 32, 16, 16), (2,), (2, 32, 16, 16), (2, 1, 16, 16), (2, MAPS, 16, 16), (2, 85))
    given = [draw.uniform(0, 1, shape).astype(np.float32) for shape in shapes]
    given[3] = (given[3] > 0.5).astype(np.float32)
    return given


def directions(method, asked):
    return method.use.networks.directions(*asked)


def exact(method, asked):
    """The same by the flow itself, in float32."""
    with torch.no_grad():
        return method.flow(*map(torch.from_numpy, asked)).numpy()


def near(found, wanted):
    """Apart from what rounding to bfloat16 takes away."""
    return np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


def moved_by_an_optimizer(method):
    optimizer = torch.optim.AdamW(method.flow.parameters(), 0.05)
    for parameter in method.flow.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    method.zero_grad()


def loaded(method):
    other = FlowPainter(maps=MAPS, condition=85, widths={16: 16, 8: 32}, hidden=16)
    method.flow.load_state_dict(other.state_dict())


def averaged(method):
    own = list(method.flow.parameters())
    with torch.no_grad():
        torch._foreach_lerp_(own, [torch.randn_like(value) / 10 for value in own], 0.5)


def shrunk(method):
    with torch.no_grad():
        for parameter in method.flow.parameters():
            parameter.mul_(0.5)


def test_the_copy_is_the_same_object_while_the_weights_are_the_same(method, asked):
    method.requires_grad_(False)
    networks = method.use.networks
    first = directions(method, asked)
    kept = networks._flow()
    assert kept is not method.flow
    np.testing.assert_array_equal(directions(method, asked), first)
    assert networks._flow() is kept
    # What leaves the weights as they are counts for nothing.
    method.train()
    assert networks._flow() is kept
    assert not kept.training
    assert not any(parameter.requires_grad for parameter in kept.parameters())


@pytest.mark.parametrize("changed", [moved_by_an_optimizer, loaded, averaged, shrunk])
def test_the_copy_follows_weights_that_change_in_their_place(method, asked, changed):
    before = directions(method, asked)
    kept = method.use.networks._flow()
    assert near(before, exact(method, asked))
    for _ in range(2):
        changed(method)
        after = directions(method, asked)
        assert method.use.networks._flow() is not kept
        assert near(after, exact(method, asked))
        assert not near(after, before)


@pytest.mark.parametrize("changed", [moved_by_an_optimizer, loaded, averaged, shrunk])
def test_a_copied_method_has_a_copy_of_its_own(method, asked, changed):
    loaded(method)
    before = directions(method, asked)
    other = copy.deepcopy(method)
    changed(other)
    assert near(directions(other, asked), exact(other, asked))
    np.testing.assert_array_equal(directions(method, asked), before)


def test_as_many_changes_of_a_copy_are_not_taken_for_those_of_its_original(method, asked):
    # All weights of a copy have changed equally often.
    first = copy.deepcopy(method)
    shrunk(first)
    directions(first, asked)
    second = copy.deepcopy(first)
    averaged(second)
    assert near(directions(second, asked), exact(second, asked))


def test_another_flow_in_its_place_is_asked_from_then_on(method, asked):
    method.flow = copy.deepcopy(method.flow)
    directions(method, asked)
    other = copy.deepcopy(method)
    shrunk(other)
    # A copy's weights have never changed, as the first flow's had not.
    method.flow = copy.deepcopy(other.flow)
    assert near(directions(method, asked), exact(method, asked))


def test_the_flow_itself_is_left_as_it_is(method, asked):
    weights = {name: value.clone() for name, value in method.state_dict().items()}
    directions(method, asked)
    for name, value in method.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, weights[name]), name


@pytest.mark.parametrize("half", [False, True])
def test_the_copy_is_rounded_where_the_processor_has_instructions_for_it(method, monkeypatch, half):
    monkeypatch.setattr(module, "has_bfloat16", lambda: half)
    kinds = {layer.weight.dtype for layer in method.use.networks._flow().modules() if isinstance(layer, nn.Conv2d)}
    assert kinds == {torch.bfloat16 if half else torch.float32}
