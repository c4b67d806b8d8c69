"""The study of photographs: its figures on methods whose answers are known, its cache, its table, its command."""

import base64
import json
import math
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from study_fakes import SIDE, Blind, CountingMesh, Replacing, Unchanged, colour_judge, make_tools, write_people

from faceanon import cli
from faceanon.data.files import read_photo
from faceanon.errors import UserError
from faceanon.metrics.recognition import compare_rows
from faceanon.metrics.saved import from_bytes
from faceanon.models import load_backbone
from faceanon.photo.file import load_photo
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.tasks import RecoverTask
from faceanon.results import Results, load_results
from faceanon.studies.photographs import pictures
from faceanon.studies.photographs.judges import dlib_resnet, mobilefacenet, shipped_recogniser
from faceanon.studies.photographs.page import markdown, rows, terminal
from faceanon.studies.photographs.people import find_people
from faceanon.studies.photographs.pictures import PhotographsSetting, RoundTrip, cache_name
from faceanon.studies.photographs.run import RESULTS, SHEET, TABLE, run_study
from faceanon.studies.photographs.telling import TellingPairs, _train
from faceanon.weights.bundle import Bundle
from fakes import SealedPatch


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    return find_people(write_people(tmp_path_factory.mktemp("people")))


def study(people, folder, backbone=None, **options):
    tools = make_tools(backbone, **{key: options.pop(key) for key in ("judges", "mesh") if key in options})
    return run_study(people, lambda: tools, SIDE, 2, folder, **{"tell_steps": 0, **options})


# --- figures of methods whose answers are known


def test_a_method_that_changes_nothing_is_found_out(people, tmp_path):
    figures = study(people, tmp_path, Unchanged()).figures
    for name in ("same/colour", "rank1/colour", "two_keys_alike/colour", "recovered/colour", "wrong/colour"):
        assert figures[name] == 1, name
    assert figures["other/colour"] == figures["originals_alike/colour"]
    assert figures["pseudonym_ratio/colour"] == 1
    assert figures["psnr"] == math.inf
    assert figures["mesh_distance"] == 0
    assert figures["correlation/mouth"] == pytest.approx(1)
    assert figures["face_found"] == 1
    assert figures["carried_bytes"] == 0


def test_a_method_that_replaces_everybody_hides_them_and_has_no_way_back(people, tmp_path):
    results = study(people, tmp_path, Replacing())
    figures = results.figures
    assert figures["same/colour"] < 0.2
    assert figures["rank1/colour"] <= 0.5
    # All of a password's pictures are one colour: one pseudonym, but everybody's.
    assert figures["one_pseudonym/colour"] == 1
    assert figures["pseudonyms_shared/colour"] == 1
    assert not {"psnr", "recovered/colour", "wrong/colour"} & set(figures)


def test_a_method_with_keys_comes_back_under_the_right_password_alone(people, tmp_path):
    figures = study(people, tmp_path).figures
    assert figures["recovered/colour"] == 1
    assert figures["psnr"] > 35
    assert figures["wrong/colour"] < 0.5


def test_a_refused_password_opens_nothing(people, tmp_path, sealed_bundle):
    results = study(people, tmp_path, SealedPatch(str(sealed_bundle)))
    figures = results.figures
    assert figures["wrong/colour"] == 0
    refused = list(tmp_path.rglob("wrong-1.refused"))
    assert len(refused) == results.meta["pictures"]
    assert "wrong password" in refused[0].read_text()
    # Denied, the same password shows one more stranger, as far from the original as the anonymized picture.
    assert len(list(tmp_path.rglob("deniable-2.png"))) == results.meta["pictures"]
    assert figures["deniable/colour"] < 0.5
    assert figures["recovered/colour"] == 1
    assert figures["carried_bytes"] >= 256
    assert figures["carried_bytes/most"] == max(code_bytes(path) for path in tmp_path.rglob("anonymized-*.png"))


def code_bytes(path):
    return len(base64.b64decode(json.loads(load_photo(path).manifest)["codes"][0]))


def test_what_fails_for_another_reason_is_counted_and_named_and_tried_again(people, tmp_path, monkeypatch):
    class Broken(RecoverTask):
        def start(self):
            if "right password 1" in self.password._text:
                raise UserError(f"{self.source}: too tired")
            return super().start()

    with monkeypatch.context() as patched:
        patched.setattr(pictures, "RecoverTask", Broken)
        results = study(people, tmp_path)
    assert results.figures["recovered/colour"] == 0.5
    assert results.figures["psnr"] > 35
    (warning,) = results.warnings
    assert warning == "12 pictures of the kind 'recovered' could not be made; the first: anonymized-2.png: too tired"
    again = study(people, tmp_path)
    assert again.warnings == []
    assert again.figures["recovered/colour"] == 1


def test_a_face_that_the_model_cannot_be_applied_to_counts_as_hidden_and_lost(people, tmp_path):
    figures = study(people, tmp_path, Blind()).figures
    assert figures["hidden_otherwise"] == 1
    assert figures["recovered/colour"] == 0
    assert "psnr" not in figures


# --- telling drawn from real


def test_the_network_tells_what_differs_and_nothing_else():
    torch.manual_seed(0)
    real = torch.rand(48, 3, 32, 32) * 2 - 1
    person = torch.arange(48)
    marked = real.clone()
    marked[:, :, 8:24, 8:24] *= 0.5
    _, curve = _train(TellingPairs(marked, real, person), TellingPairs(marked, real, person), 60, torch.device("cpu"))
    assert max(curve.values()) > 0.95
    _, blind = _train(TellingPairs(real, real, person), TellingPairs(real, real, person), 10, torch.device("cpu"))
    assert set(blind.values()) == {0.5}


def test_the_study_trains_the_network_and_tests_it_on_others(tmp_path):
    many = find_people(write_people(tmp_path / "people", people=8, pictures=2))
    results = study(many, tmp_path / "out", tell_steps=4)
    assert 0 <= results.figures["told_apart"] <= 1
    assert "told_apart" in results.ci


def test_round_trips_leave_alone_what_the_model_leaves_alone(sealed_bundle):
    model = SealedPatch(str(sealed_bundle))
    image = torch.rand(2, 3, 64, 64) * 2 - 1
    key = torch.zeros(2, 1)
    whole = RoundTrip(model.bundle, 64).anonymize(image, key)
    part = RoundTrip(model.bundle, 64, model).anonymize(image, key)
    assert torch.equal(whole, model.bundle.codec(image))
    cells = model.face_mask(image).repeat_interleave(8, -1).repeat_interleave(8, -2).expand(-1, 3, -1, -1)
    assert torch.equal(part[~cells], image[~cells])
    middle = (slice(None), slice(None), slice(28, 36), slice(28, 36))
    assert torch.allclose(part[middle], whole[middle])


def test_too_few_persons_for_the_network_are_refused(people, tmp_path):
    with pytest.raises(UserError, match="too few to train a network"):
        study(people, tmp_path, tell_steps=4)


# --- going on


def test_a_second_run_makes_and_reads_nothing_again(people, tmp_path):
    mesh = CountingMesh()
    first = study(people, tmp_path, mesh=mesh)
    seen = mesh.seen
    assert seen == first.meta["pictures"] * 4  # the original, two passwords and the round trip
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.png") if path.name != SHEET}
    second = study(people, tmp_path, mesh=mesh)
    assert mesh.seen == seen
    assert stamps == {path: path.stat().st_mtime_ns for path in stamps}
    assert second.figures == first.figures
    assert second.meta["seconds"] == first.meta["seconds"]


def test_an_interrupted_run_ends_where_an_uninterrupted_one_does(people, tmp_path):
    whole = study(people, tmp_path / "whole")
    study(people[:2], tmp_path / "cut")
    for path in sorted(tmp_path.glob("cut/cache/*/*/recovered-2.png"))[:2]:
        path.unlink()
        path.with_name("colour-v1.npz").unlink()
    again = study(people, tmp_path / "cut")
    assert again.figures == whole.figures
    assert again.ci == whole.ci


def test_another_model_has_a_cache_of_its_own(people, tmp_path):
    study(people, tmp_path)
    study(people, tmp_path, Unchanged())
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_picture_that_was_replaced_is_measured_anew(tmp_path):
    folder = write_people(tmp_path / "people")
    before = find_people(folder)
    Image.new("RGB", (SIDE, SIDE), "red").save(next(folder.rglob("0000.png")))
    after = find_people(folder)
    changed = [a.pictures[0].key != b.pictures[0].key for a, b in zip(before, after, strict=True)]
    assert sum(changed) == 1


@pytest.mark.slow
def test_two_processes_find_what_one_finds(people, tmp_path):
    alone = run_study(people, make_tools, SIDE, 2, tmp_path / "alone", tell_steps=0)
    shared = run_study(people, partial(make_tools), SIDE, 2, tmp_path / "shared", jobs=2, tell_steps=0)
    assert shared.figures == alone.figures


# --- what is written


def test_results_table_and_sheet_are_written(people, tmp_path):
    results = study(people, tmp_path, judges=(colour_judge(), colour_judge("trained", "cosine", white_box=True)))
    loaded = load_results(tmp_path / RESULTS)
    assert loaded.figures == pytest.approx(results.figures)
    meta = loaded.meta
    assert (meta["people"], meta["pictures"], meta["passwords"], meta["side"]) == (4, 12, 2, SIDE)
    assert [judge["white_box"] for judge in meta["judges"]] == [False, True]
    assert set(meta["seconds"]) == {"anonymize", "round trip", "recover", "wrong password"}
    table = (tmp_path / TABLE).read_text()
    assert table == markdown(loaded)
    assert "person 0" not in table + (tmp_path / RESULTS).read_text()  # names of persons stay out
    with Image.open(tmp_path / SHEET) as sheet:
        assert sheet.width >= 4 * SIDE
        assert sheet.height >= 5 * SIDE


def made_up(**figures):
    judges = [{"name": "one", "white_box": False}, {"name": "two", "white_box": True}]
    return Results(figures, {}, {"judges": judges, "side": 256})


def test_the_table_says_what_is_reached_and_asks_nothing_of_a_white_box():
    results = made_up(**{"same/one": 0.01, "same/two": 0.5, "psnr": 31.5, "rank1/one": 0.07, "rank1_chance": 0.05})
    found = {row.label: row for row in rows(results)}
    assert found["recognised in the same picture, one"].reached is True
    assert found["recognised in the same picture, two (white box)"].reached is None
    assert found["PSNR of the whole recovered picture"].reached is False
    assert found["rank 1 among the person's other pictures, one"].target == "<= 0.050 + 0.030"
    assert found["rank 1 among the person's other pictures, one"].reached is True
    assert "NOT REACHED" in terminal(results)


def test_small_pictures_have_targets_of_their_own():
    results = made_up(psnr=31.5, carried_bytes=2500.0)
    results.meta["side"] = 128
    found = {row.label: row for row in rows(results)}
    assert found["PSNR of the whole recovered picture"].reached is True
    assert found["bytes a face, beside the picture"].reached is False


# --- wrong input


def test_a_folder_without_persons_is_refused(tmp_path):
    write_people(tmp_path, people=1)
    with pytest.raises(UserError, match="shows 1 persons with two pictures"):
        find_people(tmp_path)


def test_persons_with_one_picture_do_not_count(tmp_path):
    write_people(tmp_path, people=3)
    write_people(tmp_path / "x", people=1, pictures=1)
    (tmp_path / "x" / "person 0").rename(tmp_path / "lonely")
    assert len(find_people(tmp_path)) == 3
    assert [len(person.pictures) for person in find_people(tmp_path, 2, 2)] == [2, 2]


def test_a_picture_that_is_not_square_is_refused(tmp_path):
    folder = write_people(tmp_path / "people")
    Image.new("RGB", (90, 60)).save(folder / "person 1" / "0001.png")
    with pytest.raises(UserError, match=r"0001\.png: an aligned face must be square"):
        study(find_people(folder), tmp_path / "out")


@pytest.mark.parametrize(("side", "passwords", "line"), [(8, 3, "a side of 32"), (64, 1, "give 2 to 100")])
def test_numbers_out_of_range_are_refused(side, passwords, line):
    with pytest.raises(UserError, match=line):
        PhotographsSetting(side, passwords)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        mobilefacenet(tmp_path / "missing.ckpt")
    (tmp_path / "text.ckpt").write_text("hello")
    with pytest.raises(UserError, match="is no checkpoint of MobileFaceNet"):
        mobilefacenet(tmp_path / "text.ckpt")


def test_the_judge_gives_the_numbers_of_the_public_one(shared):
    weights = shared / "testbed/weights/recognition/mobilefacenet_casia_068.ckpt"
    golden = np.load(shared / "testbed/golden/recognition.npz")
    folder = shared / "testbed/identity_rgb256"
    here = [row for row, name in enumerate(golden["files"]) if (folder / str(name)).is_file()]
    assert len(here) >= 8
    faces = np.stack([read_photo(folder / str(golden["files"][row]), 256)[0] for row in here])
    found = mobilefacenet(weights).embed(from_bytes(torch.from_numpy(faces)))
    wanted = torch.nn.functional.normalize(torch.from_numpy(golden["emb_mobilefacenet_casia"][here]))
    # The golden crops follow five points, the judge's is one box for all: alike, but not the same pixels.
    assert (found * wanted).sum(1).min() > 0.8


def test_a_judge_that_the_model_was_trained_against_is_a_white_box(tiny_bundle):
    tiny = Bundle(tiny_bundle)
    assert shipped_recogniser(tiny, tiny).white_box
    assert not shipped_recogniser(tiny, Bundle("photo128")).white_box
    assert not shipped_recogniser(tiny, None).white_box


def test_dlib_judges_by_distance():
    pytest.importorskip("dlib", reason="dlib is an extra")
    judge = dlib_resnet()
    assert judge.similarity == "euclidean"
    assert len(judge.digest) == 16
    image = torch.rand(2, 3, 64, 64) * 2 - 1
    embedding = judge.embed(image)
    assert embedding.shape == (2, 128)
    assert torch.allclose(compare_rows(embedding, embedding, judge.similarity), torch.zeros(2))


# --- the command


def test_the_command_measures_a_model(tmp_path, capsys):
    folder = write_people(tmp_path / "people", people=3, pictures=2)
    words = ["report", "photographs", "--model", "blur", "--pictures", str(folder), "--out", str(tmp_path / "out")]
    more = ["--passwords", "2", "--size", "64", "--tell-steps", "0", "--no-dlib"]
    assert cli.main([*words, *more]) == 0
    assert "recognised in the same picture, mobileface_v2 (white box)" in capsys.readouterr().out
    results = load_results(tmp_path / "out")
    assert results.meta["study"] == "photographs"
    assert "same/mobileface_v2" in results.figures


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--limit", "1"], "--limit 1: give 2 or more"),
        (["--people", "0"], "--people 0: give 2 or more"),
        (["--pictures", "nowhere"], "no folder nowhere"),
        (["--model", "no-such-model"], "no-such-model"),
        (["--jobs", "0"], "0 jobs: give 1 or more"),
        # Before the attackers train, which takes long.
        (["--passwords", "1", "--attackers", "small"], "1 passwords: give 2 to 100"),
        (["--size", "8", "--attackers", "small"], "pictures of 8 px"),
    ],
)
def test_the_command_refuses_in_one_line(words, line, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = write_people(tmp_path / "people", people=2, pictures=2)
    command = ["report", "photographs", "--model", "blur", "--pictures", str(folder), "--out", "out"]
    assert cli.main([*command, *words]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert line in said[0]
    assert not (tmp_path / "out").exists()


def test_the_help_of_the_command_loads_no_torch():
    call = "cli.main(['report', 'photographs', '--help'])"
    code = f"import sys\nfrom faceanon import cli\ntry: {call}\nexcept SystemExit: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: faceanon report photographs")
    assert done.stdout.splitlines()[-1] == "False"


def test_pictures_of_another_cast_are_made_anew(monkeypatch):
    """The weights of a model that puts faces on do not tell whose faces these are."""
    pipeline = Pipeline(load_backbone("persona_photo128")[0], weights="ab" * 32)
    setting = PhotographsSetting(64, 2)
    without = Pipeline(SealedPatch("photo128"), weights="ab" * 32)
    names = [cache_name(pipeline, setting), cache_name(pipeline, PhotographsSetting(64, 2, same_stranger=True))]
    plain = cache_name(without, setting)
    monkeypatch.setattr(pictures, "shipped_sha256", lambda name: "another")
    names.append(cache_name(pipeline, setting))
    names.append(cache_name(pipeline, PhotographsSetting(64, 2, same_stranger=True)))
    assert len(set(names)) == 4
    # Whoever puts nobody on keeps the pictures.
    assert cache_name(without, setting) == plain
