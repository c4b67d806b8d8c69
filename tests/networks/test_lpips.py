import socket

import lpips
import pytest
import torch
import torchvision
import yaml

from bundles import make_tiny_bundle
from faceanon.errors import UserError
from faceanon.files import save_tensors
from faceanon.networks.frozen import Frozen
from faceanon.networks.lpips_net import Lpips, LpipsDistance
from faceanon.weights.bundle import Bundle

MODELS = {"alex": torchvision.models.alexnet, "vgg": torchvision.models.vgg16}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torchvision")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Backbones in torchvision's layout: random features of full size, a classifier that nobody reads."""
    folder, generator, found = tmp_path_factory.mktemp("backbones"), torch.Generator().manual_seed(0), {}
    for name, model in MODELS.items():
        with torch.device("meta"):
            shapes = {key: tensor.shape for key, tensor in model(weights=None).state_dict().items()}
        state = {
            key: torch.randn(shape, generator=generator) * (2 / shape[1:].numel()) ** 0.5
            for key, shape in shapes.items()
            if key.startswith("features.")
        }
        found[name] = folder / f"{name}.pth"
        torch.save(state | {"classifier.6.weight": torch.zeros(2, 2)}, found[name])
    return found


@pytest.fixture(scope="module")
def pair():
    generator = torch.Generator().manual_seed(1)
    first = torch.rand(2, 3, 64, 64, generator=generator) * 2 - 1
    return first, (first + 0.3 * torch.randn(first.shape, generator=generator)).clamp(-1, 1)


def packages_own(name, path):
    """The package's own LPIPS on the same backbone."""
    net = lpips.LPIPS(net=name, pnet_rand=True, verbose=False)
    state = torch.load(path, weights_only=True)
    own = {key: state["features." + key.split(".", 1)[1]] for key in net.net.state_dict()}
    net.net.load_state_dict(own)
    return net


@pytest.mark.parametrize("name", MODELS)
def test_equals_the_package(files, pair, name):
    distance = LpipsDistance(Frozen(Lpips.from_file(files[name], name)))
    reference = packages_own(name, files[name])
    with torch.no_grad():
        expected = reference(*pair).flatten()
        actual = distance(*pair)
        by_maps = distance(pair[0], distance.maps(pair[1]))
    assert actual.shape == (2,)
    assert (expected > 0.01).all()
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(by_maps, actual)
    assert (distance(pair[0], pair[0]) == 0).all()
    reference.lins[2].model[-1].weight.data.mul_(1.1)  # the linear layers are seen
    with torch.no_grad():
        assert ((reference(*pair).flatten() - actual).abs() > 1e-4 * expected).all()


def test_features_are_the_backbones_last_map(files, pair):
    net = Lpips.from_file(files["alex"])
    with torch.no_grad():
        expected = packages_own("alex", files["alex"]).net((pair[0] - net.shift) / net.scale)[-1].mean((2, 3))
        for wrapped in (net, Frozen(net)):
            torch.testing.assert_close(LpipsDistance(wrapped).features(pair[0]), expected)


def test_gradients_are_finite_even_where_no_channel_answers(files, pair):
    net = Lpips.from_file(files["alex"])
    with torch.no_grad():
        net.features["0"].bias.fill_(-100)  # the first map is zero everywhere; the package's own gradient is then NaN
    image = pair[0].clone().requires_grad_()
    LpipsDistance(Frozen(net))(image, pair[1]).sum().backward()
    assert image.grad.isfinite().all()
    image.grad = None
    LpipsDistance(Frozen(Lpips.from_file(files["alex"])))(image, pair[1]).sum().backward()
    assert image.grad.abs().max() > 0


@pytest.fixture
def no_socket(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("somebody opened a connection")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)


def test_nothing_is_downloaded(files, no_socket):
    with pytest.raises(Exception, match="somebody opened a connection"):
        lpips.LPIPS(net="alex", verbose=False)  # what the package does unless told otherwise
    assert set(Lpips.from_file(files["alex"]).state_dict()) == {
        f"features.{index}.{part}" for index in (0, 3, 6, 8, 10) for part in ("weight", "bias")
    }


def test_a_bundle_stands_on_it(files, tmp_path, pair):
    folder = make_tiny_bundle(tmp_path)
    net = Lpips.from_file(files["alex"])
    digest = save_tensors(folder / "lpips.safetensors", net.state_dict())
    spec = yaml.safe_load((folder / "bundle.yaml").read_text())
    spec["networks"]["perceptual"] = {
        "name": "lpips_alex",
        "class": "faceanon.networks.lpips_net.Lpips",
        "init": {"net": "alex"},
        "file": "lpips.safetensors",
        "sha256": digest,
    }
    (folder / "bundle.yaml").write_text(yaml.safe_dump(spec))
    perceptual = Bundle(folder).perceptual
    torch.testing.assert_close(perceptual(*pair), LpipsDistance(net)(*pair).detach())
    assert perceptual.features(pair[0]).shape == (2, 256)
    assert not list(perceptual.parameters())
    assert not perceptual.state_dict()


def test_mistakes_are_named(files, tmp_path):
    with pytest.raises(UserError, match=r"alexnet-owt-7be5be79.pth.*nothing is downloaded"):
        Lpips.from_file(tmp_path / "missing.pth")
    torch.save({"x": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(UserError, match=r"does not fit Lpips \(Missing key.*features.0"):
        Lpips.from_file(tmp_path / "other.pth")
    with pytest.raises(UserError, match=r"does not fit Lpips"):
        Lpips.from_file(files["alex"], "vgg")
    (tmp_path / "broken.pth").write_bytes(files["alex"].read_bytes()[:1000])
    with pytest.raises(UserError, match="not a readable weights file"):
        Lpips.from_file(tmp_path / "broken.pth")
    with pytest.raises(UserError, match="no backbone 'squeeze'"):
        Lpips("squeeze")


class Payload:
    def __reduce__(self):
        return print, ("payload ran",)


def test_a_hostile_pickle_is_refused(tmp_path, capsys):
    torch.save({"features.0.weight": Payload()}, tmp_path / "hostile.pth")
    with pytest.raises(UserError, match="not a readable weights file"):
        Lpips.from_file(tmp_path / "hostile.pth")
    assert "payload" not in capsys.readouterr().out
    torch.load(tmp_path / "hostile.pth", weights_only=False)  # the test would see it
    assert "payload ran" in capsys.readouterr().out
