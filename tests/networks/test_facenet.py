import pytest
import torch

from faceanon.networks.facenet import EMBEDDING, PUBLISHED_SCALE, InceptionResnetV1


def with_classifier(classes):
    """The network as it was published."""
    net = InceptionResnetV1()
    net.logits = torch.nn.Linear(EMBEDDING, classes)
    return net


@pytest.fixture(scope="module")
def public(golden):
    case = golden.case("inception_resnet_v1")
    net = golden.load(with_classifier(8631), "generic2", case)
    return net, golden.image("fn:x", (3, 3, 160, 160)), case


@pytest.mark.parametrize(
    ("name", "classes"),
    [("inception_resnet_v1", None), ("inception_resnet_v1_vggface2", 8631), ("inception_resnet_v1_casia", 10575)],
)
def test_layout_is_the_public_one(golden, name, classes):
    with torch.device("meta"):
        net = InceptionResnetV1() if classes is None else with_classifier(classes)
    assert [(key, tuple(t.shape)) for key, t in net.state_dict().items()] == golden.manifest(name)


@torch.no_grad()
def test_embedding_equals_the_public_network(public, rms_error):
    net, image, case = public
    embedding = net(image)
    assert rms_error(embedding, case["embedding"]) < 1e-4
    torch.testing.assert_close(embedding.norm(dim=1), torch.ones(3))


def wrong_eps(net, monkeypatch):
    for module in net.modules():
        if isinstance(module, (torch.nn.BatchNorm2d, torch.nn.BatchNorm1d)):
            monkeypatch.setattr(module, "eps", 1e-5)


def wrong_scale(net, monkeypatch):
    monkeypatch.setattr(net.repeat_2[4], "scale", 0.17)


def activated_last_block(net, monkeypatch):
    monkeypatch.setattr(net.block8, "activated", True)


@torch.no_grad()
@pytest.mark.parametrize("mistake", [wrong_eps, wrong_scale, activated_last_block])
def test_one_line_mistakes_are_exposed(public, rms_error, monkeypatch, mistake):
    net, image, case = public
    mistake(net, monkeypatch)
    assert rms_error(net(image), case["embedding"]) > 5e-3


@torch.no_grad()
def test_the_published_scale_is_what_the_public_preprocessing_gives(public):
    net, _, _ = public
    pixels = torch.arange(3 * 160 * 160).remainder(256).reshape(1, 3, 160, 160).float()
    scaled = InceptionResnetV1(input_scale=PUBLISHED_SCALE).eval()
    scaled.load_state_dict(net.state_dict(), strict=False)
    torch.testing.assert_close(scaled(pixels / 127.5 - 1), net((pixels - 127.5) / 128), rtol=0, atol=1e-5)


def test_mistakes_are_named():
    with torch.device("meta"):
        net = InceptionResnetV1()
        with pytest.raises(ValueError, match=r"takes \(B, 3, 160, 160\)"):
            net(torch.zeros(1, 3, 112, 112))
