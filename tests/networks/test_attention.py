"""CID, IDM, MAAR and ARM against the equations of their papers."""

import pytest
import torch

from faceanon.backbones.dbaf import DBAF
from faceanon.networks.attention import CBAM, MAAR, PlainDisentangler, PrintedRetention, SharedAttention
from faceanon.testing import smooth_faces

LEVELS = (4, 4, 6)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_cid_is_the_attention_of_dbaf_s_equations_1_to_3_at_each_level():
    cid = SharedAttention(8, 3, LEVELS)
    codes = random(2, 14, 8)
    query, key, value = cid.attention.qkv.weight.chunk(3)
    out = cid.attention.out[0]
    for start, stop in ((0, 4), (4, 8), (8, 14)):
        for row in range(2):
            c = codes[row, start:stop]
            heads = []
            for h in range(3):
                own = slice(8 * h, 8 * h + 8)  # W^Q, W^K and W^V of a head are d x d
                q, k, v = c @ query[own].T, c @ key[own].T, c @ value[own].T
                heads.append(torch.softmax(q @ k.T / 8**0.5, -1) @ v)
            expected = torch.cat(heads, -1) @ out.weight.T  # W^O is hd x d
            torch.testing.assert_close(cid(codes)[row, start:stop], expected)


@pytest.mark.parametrize("form", ["shared", "levels", "mlp"])
@torch.no_grad()
def test_a_level_s_attributes_depend_on_its_own_layers_alone(tiny_bundle, form):
    torch.manual_seed(0)
    cid = DBAF(str(tiny_bundle), cid_depth=1, cid_heads=2, cid_head_dim=8, cid_form=form).eval().cid
    codes = random(2, 10, 16)
    moved = codes.clone()
    moved[:, -1] += 1
    change = (cid(moved) - cid(codes)).abs().amax((0, 2))
    assert change[:8].max() == 0
    assert change[9] > 0
    assert (change[8] > 0) == (form != "mlp")


@torch.no_grad()
def test_levels_have_one_network_in_dbaf_and_one_each_in_hford(tiny_bundle):
    small = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8}
    torch.manual_seed(0)
    codes = random(1, 4, 16).repeat(1, 2, 1)  # the middle layers are the coarse ones again
    codes = torch.cat([codes, random(1, 2, 16)], 1)
    shared = DBAF(str(tiny_bundle), **small, cid_form="shared").eval().cid(codes)
    torch.testing.assert_close(shared[:, :4], shared[:, 4:8])
    levels = DBAF(str(tiny_bundle), **small, cid_form="levels").eval().cid(codes)
    assert (levels[:, :4] - levels[:, 4:8]).abs().max() > 0.01


def test_what_takes_cid_s_place_in_ablations_has_four_layers():
    layers = [part for part in PlainDisentangler(8).modules() if isinstance(part, torch.nn.Linear)]
    assert len(layers) == 4


@torch.no_grad()
def test_maar_is_equations_6_to_8_of_dbaf():
    block = PrintedRetention(5)
    x = random(2, 5, 3, 3)
    # Any weights with these sums: here all of a unit's are alike.
    w, b = block.channel_weight[:, None].expand(5, 5) / 5, random(5)
    block.channel_bias.copy_(b)
    u, c = block.spatial.weight[:, :, 0, 0], block.spatial.bias
    for row in range(2):
        prime = torch.empty(5, 3, 3)
        for i in range(3):
            for j in range(3):
                place = x[row, :, i, j]
                pooled = torch.full((5,), float(place.max())) + torch.full((5,), float(place.mean()))
                prime[:, i, j] = torch.sigmoid(w @ pooled + b)  # (6)
        largest = prime.flatten(1).max(1).values
        mean = prime.flatten(1).mean(1)
        bar = torch.sigmoid(u @ torch.cat([largest, mean]) + c)  # (7)
        torch.testing.assert_close(block(x)[row], bar[:, None, None] * prime * x[row])  # (8)


@torch.no_grad()
def test_arm_is_equations_3_to_5_of_hford():
    block = CBAM(16, reduction=4, kernel=3).eval()
    x = random(2, 16, 6, 6)
    ca = torch.sigmoid(block.mlp(x.mean((2, 3))) + block.mlp(x.amax((2, 3))))[:, :, None, None]  # (4)
    m = x * ca
    pooled = torch.cat([m.amax(1, keepdim=True), m.mean(1, keepdim=True)], 1)
    sa = torch.sigmoid(block.spatial(pooled))  # (3)
    torch.testing.assert_close(block(x), sa * (x * ca))  # (5)


@torch.no_grad()
def test_the_forms_of_maar_are_those_of_the_configs(tiny_bundle):
    blocks = {"printed": PrintedRetention, "cbam": CBAM}
    for form, block in blocks.items():
        made = DBAF(str(tiny_bundle), cid_depth=1, cid_heads=2, cid_head_dim=8, maar_form=form).eval()
        assert all(isinstance(level[1], block) for level in made.maar.levels.values())
        again = MAAR(**made.maar.init_args)
        again.load_state_dict(made.maar.state_dict())
        faces = smooth_faces(64)[:1]
        assert made.anonymize(faces, made.sample_key(1)).isfinite().all()
