import pytest
import torch

from faceanon.networks.irse import IRSE

SMALL = {"input_size": 64, "widths": (8, 8, 16, 16, 24), "units": (1, 2, 2, 1), "embedding": 12}


@pytest.fixture(scope="module")
def public(golden):
    case = golden.case("ir_se50")
    return golden.load(IRSE(), "generic", case), case


def test_layout_is_the_public_one(golden):
    with torch.device("meta"):
        net = IRSE()
    assert [(key, tuple(t.shape)) for key, t in net.state_dict().items()] == golden.manifest("ir_se50")


def test_embedding_equals_the_public_network(golden, public, rms_error):
    net, case = public
    with torch.no_grad():
        assert rms_error(net(golden.image("ir:x", (3, 3, 112, 112))), case["embedding"]) < 1e-4


def test_cropped_embedding_and_stages_equal_the_public_network(golden, public, rms_error):
    net, case = public
    face = golden.image("ir:f0", (3, 3, 256, 256))
    other = 0.7 * face + 0.3 * golden.image("ir:f1", (3, 3, 256, 256))
    with torch.no_grad():
        first, second = net.embed(face), net.embed(other)
    assert rms_error(first, case["crop_embedding"]) < 1e-4
    assert rms_error((first * second).sum(1), case["riddle_cos"]) < 1e-4
    assert rms_error(1 - (first * second).sum(1).mean(), case["id_loss"]) < 1e-4
    assert (net.embed(face, crop=(0, 256, 0, 256)) - first).abs().max() > 1e-3


def test_a_small_recogniser_embeds_on_the_sphere():
    net = IRSE(**SMALL).eval()
    image = torch.randn(2, 3, 64, 64)
    embedding = net(image)
    torch.testing.assert_close(embedding.norm(dim=1), torch.ones(2))
    assert embedding.shape == (2, 12)
    assert [(m.shape[1], m.shape[2]) for m in net.stages(image)] == [(8, 64), (8, 32), (16, 16), (16, 8), (24, 4)]
    torch.testing.assert_close(net.embed(image.repeat_interleave(2, 2).repeat_interleave(2, 3), crop=None), embedding)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"takes \(B, 3, 64, 64\)"):
        IRSE(**SMALL)(torch.zeros(1, 3, 112, 112))
    with pytest.raises(ValueError, match="one entry more"):
        IRSE(widths=(8, 8), units=(1, 2))
