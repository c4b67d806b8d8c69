import pytest
import torch
import yaml
from five_pictures import branches_of
from torch.nn import functional as F
from torchmetrics.image import StructuralSimilarityIndexMeasure

from faceanon.backbones.ifadit import IFADIT, gaussian_blur
from faceanon.key import Secret
from faceanon.losses.diversity import inter_identity, inter_key
from faceanon.losses.structure import structure_loss
from faceanon.stages import AnonymizeStage
from faceanon.stages.anonymize_terms import AnonymizeWeights
from faceanon.types import Codes, FaceBatch

RELEASED = {
    "flow": "all_in_one",
    "flow_bound": 2.0,
    "compensation_residual": False,
    "key_range": "upper",
    "encoder_range": "unit",
    "background": "original",
    "mask_growth": 0.0195,
}
PRESETS = {"paper": {}, "released": RELEASED}


@pytest.fixture(scope="module")
def images():
    return torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(1)) * 2 - 1


@pytest.fixture(params=PRESETS)
def backbone(request, tiny_bundle):
    torch.manual_seed(0)
    return IFADIT(str(tiny_bundle), **PRESETS[request.param]).eval()


def make(tiny_bundle, **options):
    torch.manual_seed(0)
    return IFADIT(str(tiny_bundle), **options).eval()


@torch.no_grad()
def test_shapes_of_the_contract_and_one_picture_at_a_time(backbone, images):
    key = backbone.sample_key(4, torch.Generator().manual_seed(2))
    assert key.shape == (4, 16)
    codes = backbone.encode(images)
    assert codes.identity.shape == (4, 32)
    torch.testing.assert_close(codes.identity.norm(dim=1), torch.full((4,), 32**0.5))
    assert codes.attributes.shape == backbone.w_plus(codes).shape == (4, 10, 16)
    together = backbone.anonymize(images, key)
    for picture in (together, backbone.recover(images, key)):
        assert picture.shape == images.shape
        assert picture.isfinite().all()
    alone = torch.cat([backbone.anonymize(images[i : i + 1], key[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(together, alone, atol=2e-5, rtol=1e-4)
    assert torch.equal(together, backbone.anonymize(images, key))


@torch.no_grad()
def test_the_right_key_is_the_inverse_and_another_is_not(backbone, images):
    key, wrong = backbone.sample_key(4), backbone.sample_key(4)
    identity = backbone.encode(images).identity
    moved = backbone.transform(identity, key)
    assert (backbone.transform(moved, key, inverse=True) - identity).abs().max() < 1e-5
    assert (moved - backbone.transform(identity, wrong)).abs().max() > 1e-3
    assert (backbone.transform(moved, wrong, inverse=True) - identity).abs().max() > 1e-3


@torch.no_grad()
def test_keys_are_bytes_over_the_range_of_the_preset(backbone):
    low, high = (0.5, 1.0) if backbone.key_range == "upper" else (-1.0, 1.0)
    secret = Secret.random(7)
    drawn = backbone.sample_key(500)
    for keys in (drawn, backbone.key_from_secret(secret, 3)):
        assert low <= keys.min()
        assert keys.max() <= high
    assert abs(float(drawn.mean()) - (low + high) / 2) < 0.02
    assert drawn.max() - drawn.min() > 0.99 * (high - low)
    keys = backbone.key_from_secret(secret, 3)
    assert (keys == keys[:1]).all()
    assert not torch.equal(keys[:1], backbone.key_from_secret(Secret.random(8), 1))
    if backbone.key_range == "signed":
        stream = secret.stream("faceanon/IFADIT/key", 16)
        torch.testing.assert_close((keys[0] + 1) * 127.5, torch.tensor([float(byte) for byte in stream]))


@torch.no_grad()
def test_the_secret_comes_from_the_frozen_mapping_network(backbone, images):
    key, identity = backbone.sample_key(4), backbone.encode(images).identity
    expected = backbone.flow(identity, backbone.bundle.generator().mapping(key))
    torch.testing.assert_close(backbone.transform(identity, key), expected)
    assert not [name for name in backbone.state_dict() if "key_mapping" in name or "recogniser" in name]


@torch.no_grad()
def test_the_background_is_the_inputs_own(tiny_bundle, images):
    backbone = make(tiny_bundle)
    half = torch.zeros(4, 10, 64, 64)  # a parser that sees a face in the left half
    half[:, 1, :, :32], half[:, 0, :, 32:] = 1, 1
    backbone.bundle.__dict__["parser"] = lambda image: half
    backbone.bundle.spec["parsing"]["edited"] = [1]
    mask = backbone.encode(images).mask
    assert mask.min() == 0
    assert mask.max() == pytest.approx(1)
    assert 0.1 < float(mask[0, 0, 30, 32]) < 0.9  # soft at the border
    key = backbone.sample_key(4)
    anonymized = backbone.anonymize(images, key)
    recovered = backbone.recover(anonymized, key)
    torch.testing.assert_close(anonymized[..., 40:], images[..., 40:])
    torch.testing.assert_close(recovered[..., 40:], anonymized[..., 40:])
    assert (anonymized[..., :20] - images[..., :20]).abs().mean() > 0.1
    assert backbone.train().encode(images).mask is None
    none = make(tiny_bundle, background="none")
    assert none.encode(images).mask is None


@torch.no_grad()
def test_only_the_released_preset_may_look_at_the_original(tiny_bundle, images):
    released, paper = make(tiny_bundle, **RELEASED), make(tiny_bundle)
    for backbone in (released, paper):
        half = torch.zeros(4, 10, 64, 64)
        half[:, 1, :, :32], half[:, 0, :, 32:] = 1, 1
        backbone.bundle.__dict__["parser"] = lambda image, half=half: half
        backbone.bundle.spec["parsing"]["edited"] = [1]
    key, saved = released.sample_key(4), images.flip(0)
    torch.testing.assert_close(released.recover(saved, key)[..., 44:], saved[..., 44:])
    torch.testing.assert_close(released.recover(saved, key, original=images)[..., 44:], images[..., 44:])
    with pytest.raises(ValueError, match="leave it out"):
        paper.recover(saved, key, original=images)


def test_a_grown_mask_is_wider(tiny_bundle, images):
    narrow, wide = make(tiny_bundle), make(tiny_bundle, mask_growth=0.1)
    point = torch.zeros(1, 10, 64, 64)
    point[:, 0], point[:, 1, 32, 32] = 0.5, 1
    masks = []
    for backbone in (narrow, wide):
        backbone.bundle.__dict__["parser"] = lambda image: point
        backbone.bundle.spec["parsing"]["edited"] = [1]
        masks.append(backbone.encode(images[:1]).mask)
    assert masks[0].sum() == pytest.approx(1, rel=1e-4)  # a blur loses nothing
    assert masks[1].sum() == pytest.approx(49, rel=1e-4)  # 7 x 7


def test_blur_is_a_gaussian_and_keeps_constants():
    torch.testing.assert_close(gaussian_blur(torch.ones(1, 1, 20, 20), 15), torch.ones(1, 1, 20, 20))
    spot = torch.zeros(1, 1, 41, 41)
    spot[..., 20, 20] = 1
    row = gaussian_blur(spot, 15).sum(2)[0, 0]
    variance = (row * (torch.arange(41.0) - 20) ** 2).sum()
    assert variance.sqrt() == pytest.approx(0.3 * (7 - 1) + 0.8, rel=0.05)


def test_state_dict_goes_round(backbone):
    other = IFADIT(**backbone.init_args)
    other.load_state_dict(backbone.state_dict())
    assert other.init_args == backbone.init_args


def test_a_single_phase_has_phase_ones_terms_too(tiny_bundle, images):
    backbone = make(tiny_bundle).train()
    batch = FaceBatch(images, torch.tensor([0, 0, 1, -1]), torch.full((4,), -1))
    branches = branches_of(backbone, images)
    terms = backbone.anonymize_terms(batch, branches, {"plain_image", "plain_identity_l1", "plain_landmarks", "other"})
    drawn = backbone.decode(branches.original)
    torch.testing.assert_close(terms["plain_image"], structure_loss(drawn, images))
    shown = backbone.bundle.recogniser(drawn)
    torch.testing.assert_close(terms["plain_identity_l1"], (shown - backbone.bundle.recogniser(images)).abs().mean())
    assert set(terms) == {"plain_image", "plain_identity_l1", "plain_landmarks"}


@torch.no_grad()
def test_phase_two_is_equations_15_to_22(tiny_bundle, images):
    """Written out face by face; theta is the cosine of two embeddings."""
    backbone = make(tiny_bundle).train()
    batch = FaceBatch(images, torch.tensor([0, 0, 1, -1]), torch.full((4,), -1))
    branches = branches_of(backbone, images)
    nets = backbone.bundle
    ano1, ano2, rec, wrong1, wrong2 = branches.pictures.chunk(5)

    def theta(x, y, i, j):
        return float(F.cosine_similarity(nets.recogniser(x)[i], nets.recogniser(y)[j], dim=0))

    def plus(*given):
        return max(0.0, theta(*given))

    people = range(4)
    # (15)
    anonymity = sum(plus(x, images, i, i) for x in (ano1, ano2) for i in people) / 8
    # (17): rows 0 and 1 are one person, and row 3 is unknown, so nobody else
    pairs = [(i, j) for i in people for j in people if i != j and {i, j} != {0, 1}]
    diversity = sum(plus(ano2, ano2, i, j) for i, j in pairs) / len(pairs)
    diversity += sum(plus(ano1, ano2, i, i) for i in people) / 4
    # (18), (19)
    recovery = sum(1 - theta(rec, images, i, i) for i in people) / 4
    recovery += sum(plus(x, images, i, i) for x in (wrong1, wrong2) for i in people) / 8

    def image_loss(x, l1, l2, l3, l4):  # (20)
        return (
            l1 * (images - x).abs().mean()
            + l2 * nets.perceptual(images, x).mean()
            + l3 * (nets.landmarks(images) - nets.landmarks(x)).abs().mean()
            + l4 * (nets.parser(images) - nets.parser(x)).square().mean()
        )

    # (21)
    hidden = (0.01, 0.1, 0.1, 0.01)
    image = image_loss(rec, 10, 1, 0.1, 0.01)
    image += (image_loss(ano1, *hidden) + image_loss(ano2, *hidden)) / 2
    image += (image_loss(wrong1, *hidden) + image_loss(wrong2, *hidden)) / 2

    expected = {"anonymity": anonymity, "diversity": diversity, "recovery": recovery, "image": float(image)}
    terms = backbone.anonymize_terms(batch, branches, set(expected))
    assert {name: float(term) for name, term in terms.items()} == pytest.approx(expected, rel=1e-4)


def test_diversity_compares_people_under_one_key(tiny_bundle, images):
    weights = AnonymizeWeights(**dict.fromkeys(("adversarial", "identity", "reconstruction"), 0.0), perceptual=0.0,
                               parsing=0.0, latent=0.0)  # fmt: skip
    for term, same in (("diversity", True), ("inter_key", False)):
        stage = AnonymizeStage(make(tiny_bundle), weights, extra_weights={term: 1.0})
        second = stage.draw(images).keys[4:8]
        assert bool((second == second[:1]).all()) == same


def test_phase_one_terms_leave_pixels_of_other_persons_out(tiny_bundle, images):
    backbone = make(tiny_bundle).train()
    batch = FaceBatch(images, torch.arange(4), torch.full((4,), -1))
    drawn = images.roll(1, 2)
    codes = backbone.encode(images)
    source = torch.tensor([0, 2, 2, 1])
    wanted = {"image", "identity_l1", "landmarks"}
    terms = backbone.disentangle_terms(batch, codes, drawn, source, wanted)
    assert set(terms) == wanted
    own = [0, 2]
    torch.testing.assert_close(terms["image"], structure_loss(drawn[own], images[own]))
    recogniser = backbone.bundle.recogniser
    torch.testing.assert_close(terms["identity_l1"], (recogniser(drawn) - recogniser(images)[source]).abs().mean())
    mixed = backbone.disentangle_terms(batch, codes, drawn.requires_grad_(), torch.tensor([1, 0, 3, 2]), {"image"})
    assert mixed["image"] == 0
    assert mixed["image"].requires_grad


def test_structure_loss_against_torchmetrics_and_at_its_minimum(images):
    other = (images + 0.2 * torch.randn(images.shape, generator=torch.Generator().manual_seed(3))).requires_grad_()
    metric = StructuralSimilarityIndexMeasure(data_range=1.0)
    ssim = metric((other.detach() + 1) / 2, (images + 1) / 2)
    found = structure_loss(other, images)
    torch.testing.assert_close(found, 0.84 * (1 - ssim) + 0.16 * (other - images).abs().mean() / 2)
    found.backward()
    assert other.grad.isfinite().all()
    same = images.clone().requires_grad_()
    loss = structure_loss(same, images)
    loss.backward()
    assert loss.abs() < 1e-5
    assert same.grad.isfinite().all()


def test_diversity_by_hand():
    codes = torch.tensor([[1.0, 0.0], [2.0, 2.0], [-1.0, 0.0], [0.0, 3.0]])
    half = 0.5**0.5
    pairs = {(0, 1): half, (0, 2): 0.0, (0, 3): 0.0, (1, 2): 0.0, (1, 3): half, (2, 3): 0.0}
    assert inter_identity(codes, torch.arange(4)) == pytest.approx(sum(pairs.values()) / 6)
    assert inter_identity(codes, torch.full((4,), -1)) == pytest.approx(sum(pairs.values()) / 6)  # unknown: all differ
    assert inter_identity(codes, torch.tensor([0, 0, 1, 2])) == pytest.approx(half / 5)
    assert inter_identity(codes, torch.zeros(4, dtype=torch.int64)) == 0
    assert inter_key(codes, -codes) == 0
    assert inter_key(codes, 2 * codes) == pytest.approx(1)


def test_presets_are_what_the_yaml_says(repo):
    written = yaml.safe_load((repo / "configs/backbone/ifadit_released.yaml").read_text())["init_args"]
    assert written == {"bundle": "photo128_prior", **RELEASED}


def test_codes_go_through_map_with_their_mask(tiny_bundle, images):
    codes = make(tiny_bundle).encode(images).map(lambda item: item[:2])
    assert isinstance(codes, Codes)
    assert len(codes.mask) == len(codes.image) == len(codes.identity) == 2


@torch.no_grad()
def test_prepared_latents_are_not_computed_again(tiny_bundle, images):
    method = make(tiny_bundle).train()
    unknown = torch.full((4,), -1)
    codes = method.encode_batch(FaceBatch(images, unknown, unknown))
    # Its encoder takes pictures, so latents that a batch may hold are none of its business.
    same = method.encode_batch(FaceBatch(images, unknown, unknown, latents=torch.zeros(4, 8, 8, 8)))
    assert torch.equal(codes.attributes, same.attributes)
    assert codes.mask is None
