import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from table_cases import ALL

from faceanon.errors import UserError
from faceanon.report.figures import EXPLANATIONS
from faceanon.results import Results, load_results
from faceanon.studies.tables import measure as tables_run
from faceanon.studies.tables import spec
from faceanon.studies.tables.filled import as_json, fill
from faceanon.studies.tables.names import Names, expand, resolve
from faceanon.studies.tables.spec import AblationTraining, check_table, known_tables, load_table
from faceanon.studies.tables.text import markdown
from faceanon.studies.tables.text import text as terminal

REPO = Path(__file__).resolve().parents[3]
NAMES = Names("synth64", "conv_judge", "irse_synth", ())


def shipped_results():
    """What `faceanon test` measured of a method with all figures."""
    return load_results(Path(__file__).parent)


PRINTED = {"dbaf-1": 30, "dbaf-2": 40, "dbaf-3": 42, "dbaf-4": 40, "hford-1": 24, "hford-2": 12, "hford-3": 35}
PRINTED |= {"hford-4": 15, "ifadit-1": 40, "ifadit-2": 35, "ifadit-3": 18, "ifadit-4": 10, "ifadit-5": 30}


def test_every_number_that_the_papers_print_is_there():
    assert known_tables() == ALL
    assert {name: load_table(name).published for name in ALL} == PRINTED
    assert sum(PRINTED.values()) == 371


@pytest.mark.parametrize("name", ALL)
def test_a_row_has_one_number_a_column(name):
    for row in load_table(name).rows:
        columns = [cell.column for cell in row.cells]
        assert len(set(columns)) == len(columns)


@pytest.mark.parametrize("name", ALL)
def test_every_figure_of_a_table_is_one_that_we_measure(name):
    measured = set(shipped_results().figures)
    table = load_table(name)
    for block in table.blocks:
        for column in table.columns:
            for version in expand(block.versions, measured):
                for figure in column.figures:
                    found = resolve(figure.name, replace(column, stands_in="judge"), version, NAMES)
                    family, *rest = found.split("/")
                    assert family in EXPLANATIONS, found
                    elsewhere = family in ("recognition_rate", "kffa", "key_diversity") or rest[:1] in (
                        ["mtcnn"],
                        ["dlib"],
                    )
                    set_figure = family in ("fid", "kid")  # of the anonymized pictures only
                    assert elsewhere or set_figure or found in measured, found
    shown = {f.name for c in table.columns for f in c.figures if f.name.startswith("recognition_rate")}
    readings = {reading.name for reading in tables_run.readings("any")}
    assert {name.rsplit("/", 1)[1] for name in shown} <= readings


@pytest.mark.parametrize("name", ALL)
def test_the_names_that_fill_rows_are_presets_or_say_how_they_are_trained(name):
    presets = {path.stem for path in (REPO / "configs" / "backbone").glob("*.yaml")}
    for row in load_table(name).rows:
        assert row.train or row.note or set(row.ours) <= presets
        for training in row.train:
            assert (REPO / "configs" / f"{training.config}.yaml").is_file(), row.trained_by


def test_corrections_follow_from_the_reasons_that_they_name():
    cells = {
        (name, row.id if name == "ifadit-3" else f"{block.title} {row.id}", cell.column): cell
        for name in ALL
        for block in load_table(name).blocks
        for row in block.rows
        for cell in row.cells
        if cell.corrected is not None
    }
    # DBAF's and HFORD's MSE is on [-1, 1] throughout.
    signed = [key for key in cells if key[0] in ("dbaf-2", "dbaf-4", "hford-2")]
    assert len(signed) == 10 + 8 + 3
    assert set(cells) - set(signed) == {
        *(("ifadit-3", row, "mse") for row in ("fit", "riddle", "ifadit")),
        ("ifadit-3", "ifadit", "psnr"),
    }
    for table in ("dbaf-2", "dbaf-4", "hford-2"):
        for row in load_table(table).rows:
            of = {cell.column: cell for cell in row.cells}
            if of:
                assert of["mse"].corrected == pytest.approx(of["mse"].published / 4)  # [-1, 1] -> [0, 1]
                # A mean of PSNRs is no PSNR of the mean.
                assert of["psnr"].published == pytest.approx(10 * math.log10(4 / of["mse"].published), abs=1.3)
    psnr = {row.id: next(cell for cell in row.cells if cell.column == "psnr") for row in load_table("ifadit-3").rows}
    for row in ("fit", "riddle", "ifadit"):
        mse = cells["ifadit-3", row, "mse"]
        assert mse.corrected == pytest.approx(4 * mse.published)  # pictures at half their range
        right = psnr[row].published if psnr[row].corrected is None else psnr[row].corrected
        assert right == pytest.approx(
            -10 * math.log10(mse.corrected), abs=0.3
        )  # a mean of PSNRs is no PSNR of the mean
    assert psnr["ifadit"].published - psnr["ifadit"].corrected == pytest.approx(20 * math.log10(2), abs=0.05)


def test_what_papers_print_alike_and_otherwise_is_as_the_notes_say():
    cells = {
        (name, row.id, cell.column): cell.published
        for name in ALL
        for block in reversed(load_table(name).blocks)  # of two blocks the first one's stay
        for row in block.rows
        for cell in row.cells
    }
    fid = {key[:2]: value for key, value in cells.items() if key[2] == "fid"}
    for method in ("ciagan", "riddle"):
        assert fid["dbaf-2", method] == fid["ifadit-2", method] != fid["hford-3", method]
    assert fid["dbaf-2", "fit"] == fid["hford-3", "fit"] != fid["ifadit-2", "fit"]
    assert len({fid[name, "dp"] for name in ("dbaf-2", "hford-3", "ifadit-2")}) == 3
    assert fid["dbaf-2", "dbaf"] == fid["hford-3", "hford"]
    for ours, theirs in {
        "single_stage": "no_pretrain",
        "no_cid": "no_idm",
        "no_maar": "no_arm",
        "full": "full",
    }.items():
        assert fid["dbaf-4", ours] == fid["hford-4", theirs]
    recovered = {row.id: row for row in load_table("dbaf-2").blocks[1].rows}
    for mine, theirs in {"fit": "fit", "riddle": "riddle", "dbaf": "hford"}.items():
        printed = {cell.column: cell.published for cell in recovered[mine].cells}
        assert all(printed[column] == cells["hford-2", theirs, column] for column in ("mse", "psnr", "lpips"))
    assert cells["ifadit-5", "full", "kffa"] != cells["ifadit-4", "ifadit", "kffa"]


@pytest.mark.parametrize("net", ["arc", "ada", "lfw_arc", "lfw_ada"])
def test_l1_of_ifadit_is_on_two_scales(net):
    """Unit vectors of 512 numbers: L1 as a mean over them follows from the cosine."""
    for row in load_table("ifadit-1").rows:
        printed = {cell.column: cell.published for cell in row.cells}
        expected = math.sqrt(2 / math.pi / 512) * math.sqrt(2 * (1 - printed[f"{net}_cos"]))
        fits = printed[f"{net}_l1"] == pytest.approx(expected, rel=0.05)
        assert fits == (row.id == "ifadit" and net.endswith("arc"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema must be 1"),
        ({"name": "dbaf-9"}, "calls itself 'dbaf-9'"),
        ({"columns": ()}, "no published column"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(change, message):
    with pytest.raises(UserError, match=message):
        check_table(replace(load_table("dbaf-2"), **change), Path("dbaf-2.yaml"))


def test_a_correction_needs_a_reason():
    table = load_table("ifadit-3")
    (block,) = table.blocks
    row = replace(block.rows[0], cells=(replace(block.rows[0].cells[0], why=""),))
    with pytest.raises(UserError, match="a correction without a reason"):
        check_table(replace(table, blocks=(replace(block, rows=(row,)),)), Path("ifadit-3.yaml"))


@pytest.fixture
def own_ablations(tmp_path, monkeypatch):
    """A file of dbaf-4 whose `no_cid` is trained as the given entry says; loading it gives the row."""

    shipped = spec.folder() / "dbaf-4.yaml"

    def loaded(train):
        data = yaml.safe_load(shipped.read_text())
        (row,) = [row for row in data["blocks"][0]["rows"] if row["id"] == "no_cid"]
        row["train"] = train
        (tmp_path / "dbaf-4.yaml").write_text(yaml.safe_dump(data))
        monkeypatch.setattr(spec, "folder", lambda: tmp_path)
        (found,) = [row for row in load_table("dbaf-4").blocks[0].rows if row.id == "no_cid"]
        return found

    return loaded


def test_a_recipe_is_a_list_of_trainings_and_reads_as_a_sentence(own_ablations):
    depth = {"model.init_args.backbone.init_args.cid_depth": 0}
    row = own_ablations([{"config": "dbaf_s1", "set": depth}, {"config": "dbaf_s2"}])
    assert row.train == (AblationTraining("dbaf_s1", depth), AblationTraining("dbaf_s2"))
    assert replace(row, full=()).trained_by == "trained by dbaf_s1 cid_depth=0, then dbaf_s2"
    assert "; at full scale by paper/dbaf_s1 cid_form=" in row.trained_by
    alone = own_ablations([{"config": "dbaf_s2", "set": depth, "from_scratch": True}])
    assert replace(alone, full=()).trained_by == "trained by dbaf_s2 cid_depth=0, with no init_from"
    assert replace(alone, train=()).trained_by == ""


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("dbaf_s1, then dbaf_s2", "train must be a list"),
        ([{"config": "dbaf_s1", "overlays": ["x"]}], "unknown entry 'overlays'"),
        ([{"config": "dbaf_s1", "set": ["x"]}], "set must be entries"),
        ([{"set": {}}], "entry 'config' is missing"),
        (["dbaf_s1", "dbaf_s2"], "expected entries"),
        ([{"config": "dbaf_s1"}, {"config": "dbaf_s2", "from_scratch": True}], "only the first training"),
    ],
)
def test_a_recipe_of_another_form_is_one_line_that_names_the_row(own_ablations, train, message):
    with pytest.raises(UserError, match=message) as raised:
        own_ablations(train)
    assert "dbaf-4.yaml" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_names_are_resolved_for_the_recognisers_of_the_bundle():
    arcface = next(c for c in load_table("dbaf-1").columns if c.id == "arcface")
    vgg = next(c for c in load_table("dbaf-1").columns if c.id == "facenet_vggface2")
    name = "recognition_rate/{r}/{version}/l2_0.8"
    assert resolve(name, arcface, "recovered/file", NAMES) == "recognition_rate/irse_synth/recovered/file/l2_0.8"
    own = replace(NAMES, further=("ir_se50",))
    assert resolve(name, arcface, "anonymized", own) == "recognition_rate/ir_se50/anonymized/l2_0.8"
    assert resolve(name, vgg, "anonymized", NAMES) == ""
    assert resolve("match/{judge}/{version}", vgg, "anonymized", NAMES) == "deid_rate/conv_judge"
    assert resolve("match/{judge}/{version}", vgg, "recovered/jpeg75", NAMES) == "recovery_rate/conv_judge/jpeg75"
    assert resolve("mse/{picture}", vgg, "anonymized", NAMES) == "mse/anonymized/file"
    assert resolve("detection_rate/mtcnn{of}", vgg, "recovered/file", NAMES) == "detection_rate/mtcnn/recovered"
    assert "stands in" in NAMES.remark(arcface)
    assert own.remark(arcface) == ""
    assert "ours is empty" in NAMES.remark(vgg)


def test_jpeg_lines_follow_the_figures_that_are_there():
    figures = ["psnr/recovered/jpeg50", "psnr/recovered/jpeg95", "psnr/recovered/file"]
    assert expand(("recovered/file", "recovered/jpeg*"), figures) == [
        "recovered/file",
        "recovered/jpeg95",
        "recovered/jpeg50",
    ]
    assert expand(("anonymized", "recovered/jpeg*"), ["kid"]) == ["anonymized"]


@pytest.fixture
def quality():
    """ifadit-3 with two methods, one that the paper has and one that it has not."""
    found = {"mse/recovered/image": 0.001, "mse/recovered/file": 0.002, "psnr/recovered/file": 27.123}
    found["mse/recovered/jpeg75"] = 0.003
    found["recovery_rate/conv_judge/file"] = 0.975
    ours = Results(found, {"recovery_rate/conv_judge/file": (0.95, 0.99)})
    results = {"ifadit": [ours], "blur": [Results({"kid": 1.0})]}
    return fill(load_table("ifadit-3"), results, NAMES)


def rows_of(filled):
    return {row.title: row for block in filled.blocks for row in block.rows}


def test_published_corrected_and_ours_stand_under_each_other(quality):
    lines = rows_of(quality)["iFADIT"].lines
    assert [line.kind for line in lines] == ["published", "corrected", "ours", "ours", "ours"]
    assert lines[0].cells == ("0.00032", "35.20", "0.945", "0.041", "0.852", "0.786", "")
    assert lines[1].cells == ("0.00128", "29.2", "0.945", "0.041", "0.852", "0.786", "")
    assert lines[3].label == "ours: ifadit, saved file"
    assert lines[3].cells == ("0.00200", "27.12", "-", "-", "-", "-", "0.975")
    assert lines[3].intervals[-1] == "0.950 to 0.990"
    assert lines[4].label == "ours: ifadit, JPEG 75"
    assert "6.02 dB" in " ".join(rows_of(quality)["iFADIT"].remarks)


def test_what_was_not_run_is_never_filled_in(quality):
    lines = rows_of(quality)["RiDDLE"].lines
    assert [line.kind for line in lines] == ["published", "corrected", "not run"]
    assert set(lines[-1].cells) == {""}
    assert not lines[-1].figures
    assert quality.not_run == ("FIT", "RiDDLE")


def test_a_method_that_the_paper_lacks_follows_below(quality):
    row = list(rows_of(quality).values())[-1]
    assert row.title == "blur (not in the paper)"
    assert [line.label for line in row.lines] == ["ours: blur, nothing measured here"]


def test_a_place_where_the_paper_prints_nothing_stays_empty():
    anonymized, recovered = fill(load_table("dbaf-4"), {}, NAMES).blocks
    assert anonymized.rows[0].lines[0].cells[4:6] == ("0.031", "-")
    assert recovered.rows[0].lines[0].cells[4:6] == ("-", "1")


def test_a_row_of_the_paper_without_numbers_is_refused():
    table = load_table("ifadit-3")
    (block,) = table.blocks
    row = replace(block.rows[0], cells=())
    with pytest.raises(UserError, match="row fit has none of the numbers that the paper prints"):
        check_table(replace(table, blocks=(replace(block, rows=(row,)),)), Path("ifadit-3.yaml"))


def test_a_column_of_anonymized_pictures_is_empty_in_lines_of_recovered_ones():
    figures = {"deid_rate/conv_judge": 0.1, "recovery_rate/conv_judge/file": 0.9}
    anonymized, recovered = fill(load_table("dbaf-4"), {"dbaf": [Results(figures)]}, NAMES).blocks
    assert anonymized.rows[3].lines[-1].cells[4:6] == ("0.100", "-")
    assert recovered.rows[3].lines[-1].cells[4:6] == ("-", "0.900")


def test_a_published_figure_keeps_the_digits_of_its_source():
    falco = rows_of(fill(load_table("dbaf-2"), {}, NAMES))["FALCO"].lines
    assert falco[0].cells[0] == "0.104"
    assert falco[1].cells[0] == "0.026"
    assert rows_of(fill(load_table("dbaf-2"), {}, NAMES))["CIAGAN"].lines[0].cells[3] == "32.611"


def test_the_wish_turns_round_where_persons_are_brought_back():
    hidden, back = fill(load_table("dbaf-1"), {}, NAMES).blocks
    assert set(hidden.arrows) == {"↓"}
    assert set(back.arrows) == {"↑"}


def test_terminal_markdown_and_json_show_the_same(quality):
    text = markdown(quality, ["Ours: so many pictures."])
    for shown in (terminal(quality, ["Ours: so many pictures."]), text):
        assert "Ours: so many pictures." in shown
        assert "35.20" in shown
        assert "29.2" in shown
        assert "not run (give riddle)" in shown
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1
    assert "**0.975** (0.950 to 0.990)" in text
    content = json.loads(json.dumps(as_json(quality)))
    lines = content["blocks"][0]["rows"][2]["lines"]
    assert lines[0]["figures"]["mse"] == 0.00032
    assert lines[3]["figures"]["psnr/recovered/file"] == 27.123
    assert content["not_run"] == ["FIT", "RiDDLE"]


def ablation(*rates, names=NAMES):
    """dbaf-4 with trainings of the whole method; a rate is that of anonymized faces by one judge, then by another."""
    trainings = []
    for one in rates:
        figures = {f"deid_rate/{judge}": rate for judge, rate in zip(names.judges, one, strict=False)}
        trainings.append(Results(figures, {name: (0.0, 0.5) for name in figures}))
    filled = fill(load_table("dbaf-4"), {"dbaf": trainings}, names)
    return filled, filled.blocks[0].rows[3].lines[-1]


def test_several_trainings_of_a_row_are_their_mean_from_the_lowest_to_the_highest():
    filled, line = ablation((0.01,), (0.05,), (0.03,))
    assert line.label == "ours: dbaf, 3 trainings"
    assert line.cells[4] == "0.030"
    assert line.intervals[4] == "0.010 to 0.050"
    assert line.figures == {"deid_rate/conv_judge": pytest.approx(0.03)}
    ours = next(row for row in as_json(filled)["blocks"][0]["rows"] if row["title"] == "Full")["lines"][-1]
    assert [one["deid_rate/conv_judge"] for one in ours["trainings"]] == [0.01, 0.05, 0.03]
    _, alone = ablation((0.01,))
    assert alone.label == "ours: dbaf"
    assert alone.intervals[4] == "0.000 to 0.500"
    assert not alone.trainings


def test_every_judge_has_its_figure_where_judges_count():
    both = replace(NAMES, further=("second",))
    filled, line = ablation((0.01, 0.2), names=both)
    assert filled.heads[4] == "De-identity (conv_judge / second)"
    assert line.cells[4] == "0.010 / 0.200"
    assert line.intervals[4] == "0.000 to 0.500 / 0.000 to 0.500"
    assert fill(load_table("dbaf-4"), {}, NAMES).heads[4] == "De-identity"
    # Means and nearest keys are two figures of each judge.
    assert fill(load_table("ifadit-4"), {}, both).heads[3].count("/") == 3


def test_thresholds_of_papers_are_not_read_off_a_judge_of_another_scale():
    own = replace(NAMES, further=("second",), own_scale=frozenset({"second"}))
    vgg = next(c for c in load_table("dbaf-1").columns if c.id == "facenet_vggface2")
    name = "recognition_rate/{r}/{version}/l2_1.1"
    assert (
        resolve(name, vgg, "anonymized", replace(own, own_scale=frozenset()))
        == "recognition_rate/second/anonymized/l2_1.1"
    )
    assert resolve(name, vgg, "anonymized", own) == ""
    assert "ours is empty" in own.remark(vgg)
