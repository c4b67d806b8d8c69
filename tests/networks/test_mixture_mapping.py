"""A mixture over the w of photographs in place of a mapping network."""

import pytest
import torch

from faceanon.networks.mixture_mapping import LOCAL, MixtureMapping
from faceanon.networks.stylegan2 import Generator

CENTRES = torch.tensor([[0.0, 0.0, 0.0, 0.0], [20.0, 0.0, 0.0, 0.0], [0.0, 20.0, 0.0, 0.0]])
SIZES = [100, 200, 300]


@pytest.fixture(scope="module")
def codes():
    """Three clouds of different sizes, each longest along the third number."""
    torch.manual_seed(0)
    parts = []
    for centre, size in zip(CENTRES, SIZES, strict=True):
        parts.append(centre + torch.randn(size, 4) * torch.tensor([0.2, 0.2, 2.0, 0.2]))
    return torch.cat(parts)


@pytest.fixture(scope="module")
def fitted(codes):
    mapping = MixtureMapping(dim=4, clusters=3, factors=2)
    mapping.fit(codes, seed=1)
    return mapping


def test_people_lie_in_the_clusters_as_often_as_photographs_do(fitted):
    w = fitted(torch.randn(3000, 4, generator=torch.Generator().manual_seed(1)))
    distance = torch.cdist(w[:, [0, 1, 3]], CENTRES[:, [0, 1, 3]])
    assert distance.amin(1).max() < 2
    shares = torch.bincount(distance.argmin(1), minlength=3) / len(w)
    torch.testing.assert_close(shares, torch.tensor(SIZES) / sum(SIZES), rtol=0.1, atol=0.02)


def test_inside_a_cluster_they_move_as_its_photographs_do(fitted):
    w = fitted(torch.randn(3000, 4, generator=torch.Generator().manual_seed(1)))
    assert w[:, 2].std() == pytest.approx(LOCAL * 2.0, rel=0.1)
    assert w[:, 3].std() < 0.3


def test_strength_says_by_what_clusters_are_near(codes):
    mapping = MixtureMapping(dim=4, clusters=3, factors=0)
    mapping.fit(codes, torch.tensor([0.0, 0.0, 1.0, 0.0]), seed=1)
    # The clouds differ in numbers that do not count.
    assert mapping.means[:, 2].sort().values.diff().min() > 1


def test_the_largest_and_smallest_z_pick_a_cluster_too(fitted):
    z = torch.zeros(2, 4)
    z[0, 0] = -40
    z[1, 0] = 40
    torch.testing.assert_close(fitted(z), fitted.means[[0, 2]])


def test_a_cluster_without_photographs_is_never_drawn():
    mapping = MixtureMapping(dim=4, clusters=2, factors=1)
    mapping.means.fill_(7.0)
    mapping.fit(torch.ones(10, 4))
    torch.testing.assert_close(mapping(torch.randn(50, 4)), torch.ones(50, 4))


def test_it_is_written_and_read_with_its_generator(fitted):
    shape = {"size": 16, "style_dim": 4, "channels": {4: 8, 8: 8, 16: 8}, "mixture": [3, 2]}
    generator = Generator(**shape)
    generator.style.load_state_dict(fitted.state_dict())
    again = Generator(**generator.init_args)
    again.load_state_dict(generator.state_dict())
    z = torch.randn(3, 4)
    assert torch.equal(again.mapping(z), fitted(z))


@pytest.mark.parametrize(("clusters", "factors"), [(0, 1), (2, 4), (2, -1)])
def test_it_needs_clusters_and_fewer_factors_than_numbers(clusters, factors):
    with pytest.raises(ValueError, match="at least 1"):
        MixtureMapping(dim=4, clusters=clusters, factors=factors)


def test_of_few_codes_no_cluster_is_a_single_photograph():
    codes = torch.randn(40, 4, generator=torch.Generator().manual_seed(3))
    mapping = MixtureMapping(dim=4, clusters=30, factors=0)
    mapping.fit(codes)
    drawn = mapping(torch.randn(500, 4)).unique(dim=0)
    assert len(drawn) == 2
    assert torch.cdist(drawn, codes).min() > 0.1
