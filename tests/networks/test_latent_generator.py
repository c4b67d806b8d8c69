"""Generator, encoders and discriminator on the latents of a codec, which nobody who calls them has to know of."""

import copy

import pytest
import torch

from faceanon.landmarks.mesh import BOX, FaceMesh
from faceanon.networks import mesh_landmarks
from faceanon.networks.adapters import PerceptualDistance
from faceanon.networks.cell_discriminator import CellDiscriminator
from faceanon.networks.codec import LatentCodec
from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.frozen import Frozen
from faceanon.networks.latents import LatentMaps
from faceanon.networks.psp import GradualStyleEncoder
from faceanon.networks.stylegan2 import Generator

CHANNELS = {4: 16, 8: 16, 16: 8}
ENCODER = {
    "stylegan_size": 16, "depth": 6, "style_dim": 24, "input_size": 16, "input_nc": 32, "strides": [1, 1, 2, 2],
    "widths": [8, 8, 16, 16, 16], "units": [1, 1, 1, 1],
}  # fmt: skip


@pytest.fixture(scope="module")
def codec():
    torch.manual_seed(3)
    return LatentCodec().eval().requires_grad_(False)


@pytest.fixture
def generator(codec):
    torch.manual_seed(0)
    net = Generator(16, style_dim=24, n_mlp=2, channels=CHANNELS, latents=32, depth=6)
    for name, parameter in net.named_parameters():
        if name.endswith("noise.weight"):
            torch.nn.init.constant_(parameter, 0.3)
    net.lend(lambda: codec)
    return net


def codes(count=2, seed=1):
    return torch.randn(count, 14, 24, generator=torch.Generator().manual_seed(seed))


def test_latents_come_out_small_at_first_and_the_codec_makes_pictures_of_them(generator, codec):
    assert generator.n_latent == 14
    assert generator.noise_sides == [4, *[8] * 6, *[16] * 6]
    drawn = generator.draw(codes())
    assert drawn.shape == (2, 32, 16, 16)
    assert 0.001 < drawn.std() < 0.5
    pictures = generator.synthesis(codes())
    assert torch.equal(pictures, codec.decode(drawn))
    assert pictures.shape == (2, 3, 128, 128)
    assert generator(torch.randn(2, 24)).shape == (2, 3, 128, 128)


def test_without_a_codec_pictures_are_refused_and_latents_are_not():
    net = Generator(16, style_dim=24, n_mlp=2, channels=CHANNELS, latents=32)
    assert net.draw(torch.zeros(1, 6, 24)).shape == (1, 32, 16, 16)
    with pytest.raises(ValueError, match="lend it a codec"):
        net.synthesis(torch.zeros(1, 6, 24))


def test_large_latents_are_drawn_alike_in_a_batch_and_alone():
    torch.manual_seed(4)
    net = Generator(64, style_dim=24, n_mlp=2, channels={4: 8, 8: 8, 16: 8, 32: 8, 64: 8}, latents=32, depth=3)
    some = torch.randn(2, net.n_latent, 24)
    with torch.no_grad():
        torch.testing.assert_close(net.draw(some), torch.cat([net.draw(some[:1]), net.draw(some[1:])]))
    torch.testing.assert_close(net.draw(some).detach(), net.draw(some.detach()), rtol=1e-4, atol=1e-6)


def test_the_codec_is_no_part_of_the_generator(generator, codec):
    assert not any("codec" in name or "decoder" in name for name in generator.state_dict())
    twin = copy.deepcopy(generator)
    assert twin.codec is codec
    assert torch.equal(twin.synthesis(codes()), generator.synthesis(codes()))


def test_every_row_of_the_code_and_every_noise_map_counts(generator):
    one = codes(1)
    noise = [torch.zeros(1, 1, side, side) for side in generator.noise_sides]
    before = generator.draw(one, noise)
    for row in range(14):
        mixed = torch.cat([one[:, :row], codes(1, seed=9)[:, row : row + 1], one[:, row + 1 :]], 1)
        assert not torch.allclose(generator.draw(mixed, noise), before), row
    for number, side in enumerate(generator.noise_sides):
        others = [*noise[:number], torch.ones(1, 1, side, side), *noise[number + 1 :]]
        assert not torch.allclose(generator.draw(one, others), before), number
    assert not torch.equal(generator.draw(one, "random"), generator.draw(one, "random"))


def test_rows_are_read_from_coarse_to_fine(generator):
    """The last row alone only projects: it changes no cell by what lies in another."""
    projected = []
    generator.to_latents.register_forward_pre_hook(lambda layer, given: projected.append(given[0]))
    one = codes(1)
    other = torch.cat([one[:, :-1], codes(1, seed=9)[:, -1:]], 1)
    assert not torch.equal(generator.draw(one), generator.draw(other))
    assert torch.equal(*projected)


@pytest.mark.parametrize("side", [4, 8, 16])
def test_features_take_the_place_of_noise_and_carry_gradients(generator, side):
    feature = torch.randn(2, CHANNELS[side], side, side, requires_grad=True)
    drawn = generator.draw(codes(), features={side: feature})
    assert not torch.allclose(drawn, generator.draw(codes()))
    (gradient,) = torch.autograd.grad(drawn.square().sum(), feature)
    assert gradient.abs().sum() > 0
    with pytest.raises(ValueError, match="resolutions and channels"):
        generator.draw(codes(), features={32: torch.zeros(2, 8, 32, 32)})


@pytest.mark.parametrize("kind", [Encoder4Editing, GradualStyleEncoder])
def test_an_encoder_takes_latents_and_pictures_of_them(codec, kind):
    torch.manual_seed(1)
    net = kind(**ENCODER).eval()
    picture = torch.rand(2, 3, 128, 128, generator=torch.Generator().manual_seed(2)) * 2 - 1
    latents = codec.encode(picture)
    with torch.no_grad():
        found, maps = net.with_features(latents)
        net.lend(lambda: codec)
        same, _ = net.with_features(picture)
    assert found.shape == (2, 14, 24)
    torch.testing.assert_close(found, same)
    assert {side: tuple(item.shape) for side, item in maps.items()} == {
        16: (2, 16, 16, 16), 8: (2, 16, 8, 8), 4: (2, 16, 4, 4)
    }  # fmt: skip
    assert net.feature_channels == {16: 16, 8: 16, 4: 16}


def test_gradients_go_through_codec_and_both_networks(generator, codec):
    encoder = Encoder4Editing(**ENCODER)
    encoder.lend(lambda: codec)
    picture = (torch.rand(2, 3, 128, 128) * 2 - 1).requires_grad_()
    found, _ = encoder.with_features(picture)
    generator.synthesis(found).square().mean().backward()
    assert picture.grad.abs().sum() > 0
    for name, parameter in [*encoder.named_parameters(), *generator.named_parameters()]:
        # The mapping network makes no codes here.
        if not name.startswith("style."):
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name
    assert all(parameter.grad is None for parameter in codec.parameters())


def test_strides_and_units_have_to_fit():
    with pytest.raises(ValueError, match="strides"):
        Encoder4Editing(**{**ENCODER, "strides": [1, 2, 2]})
    with pytest.raises(ValueError, match="two maps of 16"):
        Encoder4Editing(**ENCODER, feature_taps=[-1, 0, 1])
    with pytest.raises(ValueError, match="at least one layer"):
        Generator(16, style_dim=8, channels=CHANNELS, depth=0)


def test_the_discriminator_sees_latents_and_pictures_alike(codec):
    torch.manual_seed(2)
    net = CellDiscriminator(16, 32, width=16).eval()
    picture = (torch.rand(2, 3, 128, 128) * 2 - 1).requires_grad_()
    with pytest.raises(ValueError, match="lend it a codec"):
        net(picture)
    net.lend(lambda: codec)
    logits = net(picture)
    torch.testing.assert_close(net(codec.encode(picture)), logits)
    (gradient,) = torch.autograd.grad(logits.mean(), picture)
    assert gradient.abs().sum() > 0


def test_latents_are_maps_for_a_perceptual_distance(codec):
    net = LatentMaps()
    net.lend(lambda: codec)
    distance = PerceptualDistance(Frozen(net))
    picture = torch.rand(2, 3, 128, 128) * 2 - 1
    moved = (picture * 0.8).requires_grad_()
    assert [tuple(item.shape) for item in distance.maps(picture)] == [(2, 32, 8, 8), (2, 32, 16, 16)]
    assert distance(picture, picture).abs().max() < 1e-6
    away = distance(moved, picture)
    assert away.shape == (2,)
    assert (away > 0).all()
    (gradient,) = torch.autograd.grad(away.sum(), moved)
    assert gradient.abs().sum() > 0
    assert distance.features(picture).shape == (2, 32)


def test_landmarks_are_the_mesh_that_ships():
    mesh = FaceMesh()
    net = mesh_landmarks.MeshLandmarks()
    net.load_state_dict(mesh.net.state_dict())
    assert mesh_landmarks.BOX == BOX
    picture = (torch.rand(2, 3, 128, 128) * 2 - 1).requires_grad_()
    points = net.eval()(picture)
    torch.testing.assert_close(points, mesh.seen(picture))
    (gradient,) = torch.autograd.grad(points.square().sum(), picture)
    assert gradient.abs().sum() > 0


def test_a_draft_yields_to_features_at_the_last_resolution_alone():
    torch.manual_seed(0)
    shape = {"style_dim": 8, "n_mlp": 1, "channels": {4: 8, 8: 8, 16: 8}, "latents": 4, "draft": [0]}
    generator = Generator(size=16, **shape, yielding=0.25)
    whole = Generator(size=16, **shape)
    kept = {name: tensor for name, tensor in generator.state_dict().items() if name != "kept"}
    whole.load_state_dict(kept)
    w = torch.randn(2, generator.n_latent, 8)
    near = {8: torch.randn(2, 8, 8, 8)}
    last = near | {16: torch.randn(2, 8, 16, 16)}
    with torch.no_grad():
        assert torch.equal(generator.draw(w), whole.draw(w))
        assert torch.equal(generator.draw(w, features=near), whole.draw(w, features=near))
        gone = whole.draw(w, features=last) - generator.draw(w, features=last)
        torch.testing.assert_close(gone, 0.75 * whole._drafted(w.unbind(1)), rtol=1e-3, atol=1e-5)
    generator.draw(w, features=last).square().mean().backward()
    assert generator.kept.grad.abs().min() > 0


def test_only_a_draft_can_yield():
    with pytest.raises(ValueError, match="with a draft"):
        Generator(size=16, style_dim=8, n_mlp=1, channels={4: 8, 8: 8, 16: 8}, latents=4, yielding=0.5)
