import pytest
import torch
from backbone_training import trained_parts
from torch import nn

from faceanon.backbones.fit import FIT
from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.testing import smooth_faces
from faceanon.types import Branches, Codes, FaceBatch

SMALL = {"width": 8, "blocks": 1}


@pytest.fixture
def backbone(tiny_bundle):
    torch.manual_seed(0)
    return FIT(str(tiny_bundle), **SMALL).eval()


@pytest.mark.parametrize("bits", [16, 64, 300])
def test_passwords_of_any_length(tiny_bundle, bits):
    backbone = FIT(str(tiny_bundle), password_bits=bits, **SMALL)
    assert backbone.key_bits == min(bits, 256)
    many = backbone.sample_key(200)
    assert set(many.unique().tolist()) == {-0.5, 0.5}
    assert many.mean().abs() < 0.05
    typed = torch.cat([backbone.key_from_secret(Secret.random(i), 1) for i in range(200)])
    assert set(typed.unique().tolist()) == {-0.5, 0.5}
    assert typed.mean().abs() < 0.05
    assert backbone.translator[0].in_channels == 3 + bits


@torch.no_grad()
def test_every_bit_counts_and_the_way_back_takes_the_inverse_password(backbone):
    image, key = smooth_faces(64)[:1], backbone.sample_key(1)
    drawn = backbone.anonymize(image, key)
    for bit in range(16):
        other = key.clone()
        other[0, bit] *= -1
        assert (backbone.anonymize(image, other) - drawn).abs().max() > 1e-5, bit
    assert torch.equal(backbone.recover(drawn, key), backbone.anonymize(drawn, -key))
    assert drawn.abs().max() <= 1


@torch.no_grad()
def test_bits_are_channels_beside_the_picture(backbone):
    image, key = smooth_faces(64), backbone.sample_key(4)
    channels = key[:, :, None, None].expand(-1, -1, 64, 64)
    # Layer by layer, as the paper has it.
    plain = nn.Sequential(*backbone.translator)(torch.cat([image, channels], 1))
    torch.testing.assert_close(backbone.translator(image, key), plain, rtol=0, atol=1e-6)


def test_a_network_that_adds_nothing_is_not_run_but_for_gradients(tiny_bundle):
    torch.manual_seed(0)
    method = FIT(str(tiny_bundle), password_bits=16, width=4, blocks=1, turned=4).eval()
    runs = []
    method.translator[1].register_forward_hook(lambda *_: runs.append(1))
    image, key = smooth_faces(64), method.sample_key(4)
    drawn = method.anonymize(image, key).detach()
    assert len(runs) == 1
    with torch.no_grad():
        torch.testing.assert_close(method.anonymize(image, key), drawn, rtol=0, atol=1e-5)
        assert len(runs) == 1
        method.translator[-2].bias += 0.1
        assert not torch.equal(method.anonymize(image, key), drawn)
    assert len(runs) == 2


def test_the_password_term_compares_each_pair_with_its_own_password(backbone):
    class KnowsAll(torch.nn.Module):
        """Sure of what it is told, in the order of the pairs."""

        def forward(self, pairs):
            assert pairs.shape == (10, 6, 64, 64)
            return told * 100

    batch = FaceBatch(smooth_faces(64)[:2], torch.arange(2), torch.arange(2))
    keys = backbone.sample_key(8)
    told = torch.cat([keys[0:2], keys[2:4], -keys[0:2], -keys[4:6], -keys[6:8]])
    codes = Codes(batch.image)
    branches = Branches(torch.rand(10, 3, 64, 64), codes, codes, None, codes, keys)
    backbone.reader = KnowsAll()
    assert backbone.anonymize_terms(batch, branches, {"password"})["password"] < 1e-6
    told = -told
    assert backbone.anonymize_terms(batch, branches, {"password"})["password"] > 10
    assert backbone.anonymize_terms(batch, branches, set()) == {}


def test_no_bits(tiny_bundle):
    with pytest.raises(UserError, match="give at least 1"):
        FIT(str(tiny_bundle), password_bits=0)


def test_its_stage_trains_network_and_reader(tiny_bundle, tmp_path):
    changed, terms = trained_parts("fit_s2", tiny_bundle, tmp_path)
    assert changed == {"translator", "reader"}
    assert terms == {"adversarial", "identity", "reconstruction", "recovery", "password"}


def test_with_a_turn_the_inverse_password_undoes_the_code_before_any_training(tiny_bundle):
    torch.manual_seed(0)
    method = FIT(str(tiny_bundle), password_bits=16, width=4, blocks=1, turned=4).eval()
    assert not any(name.startswith("encoder") for name in FIT(str(tiny_bundle), width=4, blocks=1).state_dict())
    faces = smooth_faces(64)
    key = method.sample_key(4, torch.Generator().manual_seed(1))
    with torch.no_grad():
        code, _ = method.encoder.with_features(faces)
        wanted = code[:, 0].clone()
        wanted[:, 4:] = method.turns(code[:, 0, 4:], key)
        drawn = method.generator.synthesis(method.latent_avg + wanted[:, None])
        # What the network adds starts at nothing.
        torch.testing.assert_close(method.anonymize(faces, key), drawn)
        torch.testing.assert_close(method.turns(wanted[:, 4:], -key), code[:, 0, 4:])
        other = method.sample_key(4, torch.Generator().manual_seed(2))
        wrong = method.turns(wanted[:, 4:], -other)
    assert torch.cosine_similarity(wrong, code[:, 0, 4:]).max() < 0.9
    assert torch.equal(wanted[:, :4], code[:, 0, :4])


@torch.no_grad()
def test_a_stretch_draws_farther_from_the_mean_and_the_way_back_divides_again(tiny_bundle, monkeypatch):
    method = FIT(str(tiny_bundle), password_bits=16, width=4, blocks=1, turned=4, turn_stretch=1.5).eval()
    faces = smooth_faces(64)
    key = method.sample_key(4, torch.Generator().manual_seed(1))
    drawn_of = []
    draw = method.generator.synthesis
    monkeypatch.setattr(method.generator, "synthesis", lambda latent: drawn_of.append(latent) or draw(latent))
    method.anonymize(faces, key)
    method.recover(faces, key)
    method.turn_stretch = 1.0
    method.anonymize(faces, key)
    method.recover(faces, key)
    forth, back, plain_forth, plain_back = (latent - method.latent_avg for latent in drawn_of)
    torch.testing.assert_close(forth[..., 4:], 1.5 * plain_forth[..., 4:])
    torch.testing.assert_close(1.5 * back[..., 4:], plain_back[..., 4:])
    torch.testing.assert_close(forth[..., :4], plain_forth[..., :4])
    torch.testing.assert_close(back[..., :4], plain_back[..., :4])


@torch.no_grad()
def test_a_reader_finds_the_turned_code_better_on_the_way_back_alone(tiny_bundle):
    torch.manual_seed(0)
    method = FIT(str(tiny_bundle), password_bits=16, width=4, blocks=1, turned=4, code_reader=True).eval()

    def strangers(count, seed):
        random = torch.Generator().manual_seed(seed)
        key = method.sample_key(count, random)
        edited = method.edit(method.encode(torch.rand(count, 3, 64, 64, generator=random) * 2 - 1), key)
        return edited, method.decode(edited).clamp(-1, 1), key

    edited, pictures, key = strangers(8, seed=3)

    def code_read():
        """The code that the way back turns, found by turning its result again."""
        back = method._turned(pictures, -key, inverse=True) - method.latent_avg
        return torch.cat([back[:, 0, :4], method.turns(back[:, 0, 4:], key)], 1)

    wanted = (edited.latent - method.latent_avg)[:, 0]
    drawn = method.anonymize(pictures, key)
    before = (code_read() - wanted).norm()
    assert method.reader_rows > 0
    method.calibrate_reader(strangers(24, seed=2)[:2] for _ in range(1))
    assert (code_read() - wanted).norm() < 0.7 * before
    assert torch.equal(method.anonymize(pictures, key), drawn)


def test_a_turned_training_starts_from_that_drawing_and_reaches_the_network(tiny_bundle):
    torch.manual_seed(0)
    method = FIT(str(tiny_bundle), password_bits=16, width=4, blocks=1, turned=4).train()
    assert not method.encoder.training
    method.anonymize(smooth_faces(64), method.sample_key(4)).square().mean().backward()
    assert method.translator[-2].weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"password_bits": 2, "turned": 4}, "a turn takes 3 password_bits"),
        ({"turned": 4, "turn_angle": 180.0}, "turn_angle between"),
        ({"turned": 5}, "turned is 5"),
        ({"turned": 4, "turn_stretch": 0}, "turn_stretch is 0"),
        ({"turn_stretch": 1.5}, "turn_stretch is 1.5; give 1, or with turned"),
        ({"code_reader": True}, "code_reader corrects the codes of a turn"),
    ],
)
def test_a_turn_that_cannot_be_is_one_line(tiny_bundle, options, words):
    with pytest.raises(UserError, match=words):
        FIT(str(tiny_bundle), width=4, blocks=1, **options)
