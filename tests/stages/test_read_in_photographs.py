"""How strangers are read is measured in whole photographs, as a receiver gets them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from faceanon.backbones.dbaf_flips import DBAFWithFlips
from faceanon.backbones.frame_options import FrameOptions
from faceanon.backbones.in_frame import in_use
from faceanon.data.files import read_photo
from faceanon.data.prepared import PreparedFaces
from faceanon.errors import UserError
from faceanon.metrics.saved import saved
from faceanon.paths import checkpoints
from faceanon.stages import anonymize
from faceanon.stages.anonymize import AnonymizeStage
from faceanon.stages.anonymize_terms import AnonymizeWeights

FILES = sorted((checkpoints() / "photo128" / "pictures").iterdir())[:4]
OPTIONS = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8, "cid_start": 0.0}


def stage_of(backbone, **options):
    # No parser of photographs ships.
    weights = AnonymizeWeights(parsing=0.0)
    frame = FrameOptions(keep_light=0.16)
    return AnonymizeStage(backbone=backbone, trainable=["kria"], weights=weights, frame=frame, **options)


@pytest.fixture
def stage():
    torch.manual_seed(0)
    return stage_of(DBAFWithFlips("photo128_prior", flips=8, code_reader=True, **OPTIONS).eval(), reader_rows=6)


def photographs():
    # In the stage's order.
    order = torch.randperm(len(FILES), generator=torch.Generator().manual_seed(0)).tolist()
    pixels = [torch.tensor(read_photo(FILES[number], 128)[0]) for number in order]
    return torch.stack(pixels).permute(0, 3, 1, 2) / 127.5 - 1


@torch.no_grad()
def test_what_is_seen_is_what_a_receiver_sees(stage):
    framed = in_use(stage.backbone.eval())
    whole = photographs()
    # Six of four pictures: the first two are drawn once more.
    shown = [whole[:2], whole[:2], whole[2:]]
    pairs = list(stage._pairs_in_photographs(FILES))
    for (edited, seen), few in zip(pairs, shown, strict=True):
        mesh = framed.cut(few)[1]
        sent = saved(framed.decode(replace(edited, around=few, mesh=mesh)))
        torch.testing.assert_close(framed.cut(sent)[0], seen, atol=1e-4, rtol=0)
    # One picture under two keys.
    (first, _), (again, _), _ = pairs
    assert (first.identity - again.identity).abs().flatten(1).amax(1).min() > 0.1


@torch.no_grad()
@pytest.mark.parametrize(("rows", "read"), [(3, 3), (4, 4), (11, 4)])
def test_each_photograph_is_read_once_and_drawn_as_often_as_the_others(stage, monkeypatch, rows, read):
    stage.backbone.reader_rows = rows
    backbone = stage.backbone.eval()
    monkeypatch.setattr(anonymize, "READ_AT_ONCE", 2)
    encoded = []
    encode = backbone.encode
    monkeypatch.setattr(backbone, "encode", lambda image: encoded.append(len(image)) or encode(image))
    drawn = torch.zeros(len(FILES), dtype=torch.long)
    for edited, seen in stage._pairs_in_photographs(FILES):
        assert len(seen) == len(edited.around) <= 2
        for picture in edited.around:
            drawn += (photographs() == picture).flatten(1).all(1)
    assert drawn.sum() == rows
    assert drawn.max() - drawn.min() <= 1
    assert sum(encoded) == read
    assert max(encoded) <= 2


@torch.no_grad()
def test_the_reader_is_measured_as_the_method_is_used(stage):
    stage.backbone.train()
    before = stage.backbone.code_reader.weight.clone()
    stage._measure_reader(FILES, iter(()))
    assert stage.backbone.training
    assert not torch.equal(stage.backbone.code_reader.weight, before)


def test_a_reader_of_nobody_is_refused(tiny_bundle):
    with pytest.raises(UserError, match="reader_rows is 0; give 1 or more"):
        stage_of(DBAFWithFlips(str(tiny_bundle), **OPTIONS), reader_rows=0)


def test_only_prepared_photographs_of_a_method_in_a_frame_are_read(tmp_path, monkeypatch, tiny_bundle):
    monkeypatch.setattr(PreparedFaces, "files_with_faces", lambda data, split: FILES if split == "train" else [])
    data = PreparedFaces(cache=str(tmp_path), bundle="photo128_mesh")

    def files(backbone, datamodule):
        stage = stage_of(backbone)
        stage._trainer = SimpleNamespace(datamodule=datamodule)
        return stage._photographs("train")

    framed = DBAFWithFlips("photo128_prior", flips=8, code_reader=True, **OPTIONS)
    assert files(framed, data) == FILES
    assert files(framed, None) == []
    assert files(DBAFWithFlips(str(tiny_bundle), **OPTIONS), data) == []


def test_a_sheet_shows_whole_photographs_as_the_method_is_used(stage, tmp_path, monkeypatch):
    monkeypatch.setattr(PreparedFaces, "files_with_faces", lambda data, split: FILES if split == "val" else [])
    data = PreparedFaces(cache=str(tmp_path), bundle="photo128_mesh")
    stage._trainer = SimpleNamespace(datamodule=data)
    rows = stage.sheet_rows()
    whole = torch.stack([torch.tensor(read_photo(file, 128)[0]) for file in FILES]).permute(0, 3, 1, 2) / 127.5 - 1
    torch.testing.assert_close(rows["original"], whole)
    assert list(rows) == [
        "original",
        "anonymized, key 1",
        "anonymized, key 2",
        "recovered",
        "wrong key 1",
        "wrong key 2",
    ]
    for drawn in list(rows.values())[1:]:
        # The corners of a photograph stay, where the frame is grey.
        torch.testing.assert_close(drawn[..., :8, :8], whole[..., :8, :8], atol=0.01, rtol=0)
        assert (drawn - whole).abs().mean() > 0.02
