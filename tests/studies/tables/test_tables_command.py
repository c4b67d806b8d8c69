import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from table_cases import ALL, plain_photographs, small_protocol

from faceanon.__main__ import main
from faceanon.errors import UserError
from faceanon.metrics.protocol import folder
from faceanon.studies.tables import measure as tables_run
from faceanon.studies.tables import run as command
from stages.stage_probes import SMALL_CID

REPO = Path(__file__).resolve().parents[3]


@pytest.fixture
def photographs(tmp_path):
    return plain_photographs(tmp_path / "photos")


def test_the_list_names_every_table_and_what_fills_it(capsys):
    assert main(["report", "tables", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ALL)
    assert "50 keys a picture" in out
    assert "dbaf_no_maar" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dbaf-7"], "no table 'dbaf-7'"),
        (["dbaf-1", "--methods", "blur", "blur=x"], "names blur twice"),
        (["dbaf-1", "--methods", "dbaf=x", "dbaf=x"], "names dbaf twice"),
        (["dbaf-1", "--methods", "../x=y"], "give NAME=FOLDER"),
        (["dbaf-1", "--methods", "dbaf="], "missing behind ="),
        (["dbaf-1", "--protocol", "none"], "no protocol 'none'"),
        (["dbaf-1", "--detectors", "eyes"], "no detector 'eyes'"),
        (["dbaf-1", "--dlib", "none.dat"], "no file none.dat"),
        (["dbaf-1", "--tsne-keys", "1"], "--tsne-keys 1"),
        (["dbaf-1", "--kffa-keys", "1"], "--kffa-keys 1"),
        (["dbaf-1", "--device", "abacus"], "cannot compute on 'abacus'"),
        (["dbaf-1", "--train", "nowhere"], "name their folder by --data"),
        (["dbaf-1", "--train", "nowhere", "--data", "."], "--train nowhere: no such folder"),
        (["dbaf-1", "hford-1", "--train", "nowhere"], "these tables have dbaf-v1, hford-v1: fill one paper's"),
    ],
)
def test_a_mistake_gives_one_line(words, message, capsys, tmp_path):
    assert main(["report", "tables", *words, "--limit", "4", "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("method", "message"), [("dbaf", "has to be trained"), ("elsewhere", "no preset 'elsewhere'")])
def test_methods_without_weights_are_not_made_up(method, message, tiny_bundle):
    from faceanon.weights.bundle import Bundle

    with pytest.raises(UserError, match=message):
        command.build(command.Given(method, None), Bundle(tiny_bundle))


def test_a_method_of_another_bundle_is_refused(tiny_bundle, tmp_path):
    from faceanon.weights.bundle import Bundle

    def another(networks):
        networks["recogniser"]["sha256"] = "0" * 64

    blur = command.build(command.Given("blur", None), Bundle(tiny_bundle))
    with pytest.raises(UserError, match="blur stands on bundle 'tiny64', whose recogniser is not that of 'tiny64'"):
        tables_run.check_bundle("blur", blur, changed_bundle(tiny_bundle, another, tmp_path / "another"))
    with pytest.raises(UserError, match="blur stands on bundle 'tiny64' of pictures of 64 px, 'photo128' of 128 px"):
        tables_run.check_bundle("blur", blur, Bundle("photo128"))


def changed_bundle(folder, change, destination):
    """The same files in another folder, with other entries in bundle.yaml."""
    from faceanon.weights.bundle import Bundle

    shutil.copytree(folder, destination)
    spec = yaml.safe_load((destination / "bundle.yaml").read_text())
    change(spec["networks"])
    (destination / "bundle.yaml").write_text(yaml.safe_dump(spec))
    return Bundle(destination)


def test_another_judge_may_judge_but_not_the_recogniser_of_the_training(tiny_bundle, tmp_path):
    from faceanon.weights.bundle import Bundle

    def another(networks):
        networks["judge"]["sha256"] = "0" * 64

    def the_same(networks):
        networks["judge"] = networks["recogniser"] | {"name": "another name"}

    blur = command.build(command.Given("blur", None), Bundle(tiny_bundle))
    tables_run.check_bundle("blur", blur, changed_bundle(tiny_bundle, another, tmp_path / "another"))
    with pytest.raises(UserError, match="whose recogniser judges in 'tiny64'"):
        tables_run.check_bundle("blur", blur, changed_bundle(tiny_bundle, the_same, tmp_path / "same"))


def test_a_name_with_several_models_is_several_trainings():
    given = command.parse_methods(["dbaf=a", "blur", "dbaf=b"])
    assert [(one.name, str(one.model), one.label) for one in given] == [
        ("dbaf", "a", "dbaf"),
        ("blur", "None", "blur"),
        ("dbaf", "b", "dbaf (2)"),
    ]


def test_one_command_writes_a_table(tiny_bundle, tmp_path, capsys):
    words = ["report", "tables", "ifadit-4", "ifadit-3", "--methods", "blur", "scramble", "--limit", "4"]
    words += ["--bundle", str(tiny_bundle), "--kffa-keys", "2", "--tsne-keys", "2", "--out", str(tmp_path)]
    words += ["--protocol", small_protocol(tmp_path)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "scramble (not in the paper)" in out
    assert "35.20" in out
    content = json.loads((tmp_path / "ifadit-3.json").read_text())
    assert set(content["methods"]) == {"blur", "scramble"}
    assert content["not_run"] == ["FIT", "RiDDLE", "iFADIT"]
    lines = content["blocks"][0]["rows"][-1]["lines"]
    assert lines[1]["version"] == "recovered/file"
    assert lines[1]["figures"]["mse/recovered/file"] == 0.0  # AES gives the very picture back
    assert "was not followed" in " ".join(content["facts"])
    assert "Figures over keys (KFFA): 2 keys a picture." in content["facts"]
    together = (tmp_path / "tables.md").read_text()
    assert [line[:15] for line in together.splitlines() if line.startswith("## ")] == [
        "## `ifadit-3`: ",
        "## `ifadit-4`: ",
    ]
    assert together.count("Figures over keys (KFFA)") == 1
    assert together.count("Source: ") == 2
    assert all(one in together for one in (tmp_path / "ifadit-4.md").read_text().splitlines() if one.startswith("|"))
    rows = [line.split("|")[1].strip() for line in (tmp_path / "methods.md").read_text().splitlines()]
    assert rows == ["method", "---", "blur", "scramble"]
    page = (tmp_path / "ifadit-4.html").read_text()
    assert "data:image/png;base64" in page
    assert "http" not in page.replace("arxiv", "")
    assert (tmp_path / "ifadit-4-tsne.png").is_file()
    assert (tmp_path / "ifadit-3-faces.png").is_file()
    assert (tmp_path / "ifadit-4.md").read_text().startswith("# iFADIT")


def test_thresholds_come_from_named_people_where_the_test_names_nobody(tiny_bundle, photographs, tmp_path, capsys):
    unnamed = tmp_path / "unnamed"
    unnamed.mkdir()
    for number, path in enumerate(sorted(photographs.rglob("*.png"))):
        shutil.copy(path, unnamed / f"{number}.png")
    written = yaml.safe_load((folder() / "dbaf-v1.yaml").read_text())
    written["pictures"]["image_size"] = 64
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(written | {"detectors": []}))
    words = [
        "report",
        "tables",
        "dbaf-4",
        "--methods",
        "scramble",
        "--bundle",
        str(tiny_bundle),
        "--data",
        str(unnamed),
    ]
    words += ["--protocol", str(tmp_path / "own.yaml"), "--out", str(tmp_path / "out")]

    def ours():
        content = json.loads((tmp_path / "out/dbaf-4.json").read_text())
        return content["blocks"][0]["rows"][-1]["lines"][0]["figures"], " ".join(content["facts"])

    assert main(words) == 0
    figures, facts = ours()
    assert {"mse/anonymized/file", "lpips/anonymized/file", "fid"} <= set(figures)
    assert "deid_rate/tiny_judge" not in figures
    assert main([*words, "--named", str(photographs)]) == 0
    figures, facts = ours()
    assert 0 <= figures["deid_rate/tiny_judge"] <= 1
    assert "Thresholds of other, named pictures" in facts
    capsys.readouterr()
    assert main([*words, "--named", str(unnamed)]) == 2
    assert "--named: the folder names no two people" in capsys.readouterr().err


def test_two_trainings_of_a_method_fill_one_row(tiny_bundle, tmp_path, capsys):
    from faceanon.backbones.dbaf import DBAF
    from faceanon.models import save_backbone

    words = ["report", "tables", "dbaf-2", "ifadit-4", "--bundle", str(tiny_bundle), "--limit", "4", "--kffa-keys", "2"]
    words += ["--tsne-keys", "2", "--out", str(tmp_path / "out"), "--protocol", small_protocol(tmp_path), "--methods"]
    for seed in (0, 1):
        torch.manual_seed(seed)
        save_backbone(DBAF(str(tiny_bundle), **SMALL_CID), tmp_path / f"seed{seed}")
        words.append(f"dbaf={tmp_path / f'seed{seed}'}")
    assert main(words) == 0
    assert "Of several trainings a figure is the mean" in capsys.readouterr().out
    content = json.loads((tmp_path / "out" / "dbaf-2.json").read_text())
    assert len(content["methods"]["dbaf"]["trainings"]) == 2
    shown = {}
    for block in content["blocks"]:
        for row in block["rows"]:
            for line in row["lines"]:
                if line["method"] == "dbaf":
                    shown[line["version"]] = line
    anonymized = shown["anonymized"]
    values = [one["mse/anonymized/file"] for one in anonymized["trainings"]]
    assert values[0] != values[1]
    assert anonymized["figures"]["mse/anonymized/file"] == pytest.approx(sum(values) / 2)
    reports = sorted(path.name for path in (tmp_path / "out" / "methods").iterdir() if path.is_dir())
    assert reports == ["dbaf", "dbaf (2)"]
    # The sheet and the t-SNE are of the first one.
    assert len(list((tmp_path / "out" / "methods").rglob("keys-*.safetensors"))) == 1


def test_photographs_stay_out_of_the_page_and_of_sheets(photographs, tiny_bundle, tmp_path):
    """A protocol on photographs of a test's own; only what is asked for shows faces, in a file of its own."""
    written = yaml.safe_load((folder() / "hford-v1.yaml").read_text())
    written["pictures"]["image_size"] = 64
    written["detectors"] = []
    protocol = tmp_path / "mine.yaml"
    protocol.write_text(yaml.safe_dump(written))
    words = ["report", "tables", "hford-2", "--methods", "scramble", "--bundle", str(tiny_bundle)]
    words += ["--protocol", str(protocol), "--data", str(photographs), "--limit", "6", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert not list((tmp_path / "out").rglob("*.png"))
    assert main([*words, "--pictures", "sheet"]) == 0
    assert (tmp_path / "out" / "hford-2-faces.png").is_file()
    assert "data:image/png" not in (tmp_path / "out" / "hford-2.html").read_text()


@pytest.mark.parametrize("place", ["zoo/dbaf_s2/model", "zoo/dbaf_s2/report", "zoo/report"])
def test_reports_beside_the_model_serve(tmp_path, monkeypatch, place):
    model = tmp_path / "zoo/dbaf_s2/model"
    for made in (model, tmp_path / place):
        made.mkdir(parents=True, exist_ok=True)
    (tmp_path / place / "results.json").touch()
    # What `cached` holds results to is tested with it; here only where they are looked for.
    monkeypatch.setattr(tables_run, "cached", lambda path, *rest: path if (path / "results.json").is_file() else None)
    monkeypatch.setattr(tables_run, "measure", lambda *args: pytest.fail("measured again"))
    assert command._results(command.Given("dbaf", model), None, None) == tmp_path / place
