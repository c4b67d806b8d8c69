"""Readers of w+ codes: those of what a method drew are corrected, those of originals are not."""

from functools import partial

import pytest
import torch

from bundles import make_latent_bundle, make_tiny_bundle
from faceanon.backbones.dbaf_flips import DBAFWithFlips
from faceanon.backbones.riddle import Riddle
from faceanon.models import load_backbone, save_backbone
from faceanon.testing import check_backbone

SMALL_DBAF = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8}
METHODS = {
    "dbaf": partial(DBAFWithFlips, **SMALL_DBAF, flips=2, code_reader=True),
    "riddle": partial(Riddle, flips=2, code_reader=True),
}
BUNDLES = {"pictures": make_tiny_bundle, "latents": make_latent_bundle}


@pytest.fixture(scope="module", params=[(name, kind) for name in METHODS for kind in BUNDLES], ids="-".join)
def method(request, tmp_path_factory):
    name, kind = request.param
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("bundle")
    BUNDLES[kind](folder)
    return METHODS[name](str(folder)).eval()


def drawn(method, count, seed):
    """Edited codes, and pictures as they were drawn."""
    random = torch.Generator().manual_seed(seed)
    size = method.image_size
    with torch.no_grad():
        codes = method.encode(torch.rand(count, 3, size, size, generator=random) * 2 - 1)
        edited = method.edit(codes, method.sample_key(count, random))
        return edited, method.decode(edited).clamp(-1, 1)


@pytest.mark.parametrize("name", METHODS)
@torch.no_grad()
def test_before_it_is_measured_it_reads_as_the_encoder_does(name, tmp_path):
    torch.manual_seed(0)
    method = METHODS[name](str(make_tiny_bundle(tmp_path))).eval()
    _, pictures = drawn(method, 2, seed=1)
    torch.testing.assert_close(method.encode_anonymized(pictures).identity, method.encode(pictures).identity)


@torch.no_grad()
def test_codes_of_other_strangers_are_read_better_and_originals_as_before(method, tmp_path):
    edited, pictures = drawn(method, 8, seed=3)
    wanted = method.w_plus(edited)[:, 0]
    before = method.encode(pictures)
    assert method.reader_rows > 0
    method.calibrate_reader(drawn(method, 24, seed=2) for _ in range(1))
    found = method.encode_anonymized(pictures)
    as_before = method.encode(pictures)
    assert torch.equal(as_before.identity, before.identity)
    assert (method.w_plus(found)[:, 0] - wanted).norm() < 0.7 * (method.w_plus(before)[:, 0] - wanted).norm()
    # What was measured is saved with the method.
    save_backbone(method, tmp_path)
    loaded, _ = load_backbone(tmp_path)
    torch.testing.assert_close(loaded.encode_anonymized(pictures).identity, found.identity)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", BUNDLES)
def test_it_keeps_the_contract_of_a_method(name, kind, tmp_path, monkeypatch):
    # bfloat16 rounds otherwise in batches of other sizes, and a reader of 24 pictures of noise magnifies that.
    monkeypatch.setattr("faceanon.weights.bundle.has_bfloat16", lambda: False)
    torch.manual_seed(0)
    method = METHODS[name](str(BUNDLES[kind](tmp_path))).eval()
    method.calibrate_reader(drawn(method, 24, seed=2) for _ in range(1))
    check_backbone(method)
