"""Runner, page and command: what is finished is not repeated, and the page says what the figures mean."""

import argparse
import html
import json
from dataclasses import replace

import pytest
import torch
from attack_fakes import BUDGET, Irreversible, PassThrough, Shift, pictures, shrink, target

from faceanon.commands.report import security as command
from faceanon.errors import UserError
from faceanon.studies.security import run as study
from faceanon.studies.security.base import BUDGETS, FEWEST_PEOPLE, SecurityRow, Verdict, cautious
from faceanon.studies.security.catalog import ATTACKS, chosen
from faceanon.studies.security.page import as_text, by_outcome, format_row, write_security
from faceanon.studies.security.run import SecurityOptions
from faceanon.studies.security.runner import fingerprint, run_attacks
from faceanon.studies.security.target import Target

QUICK = ("linkability", "kdf_cost", "password_bit")


def run(method, folder, names=QUICK, options=None, **changes):
    said = []
    aim = target(method, replace(BUDGET, **changes))
    done = run_attacks(aim, chosen(names), folder, fingerprint(aim, "fakes"), options, said.append)
    return done, said


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("security")
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        done, _ = run(PassThrough(), folder, None)
    aim = target(PassThrough())
    return folder, done, write_security(folder, done, {"model": "pass <b>", "judge": "j", **fingerprint(aim, "fakes")})


def test_every_attack_runs_and_is_kept(finished):
    folder, done, _ = finished
    assert [one.attack.name for one in done] == list(ATTACKS)
    assert {path.stem for path in (folder / "attacks").iterdir()} == set(ATTACKS)
    again, said = run(PassThrough(), folder, None)
    assert [one.finding for one in again] == [one.finding for one in done]
    assert all(line.endswith("done before") for line in said)


def test_pass_through_fails_in_the_expected_places(finished):
    _, done, _ = finished
    failed = {one.attack.name for one, _ in by_outcome(done)["fails"]}
    assert {"reidentify", "parrot", "linkability", "wrong_keys", "password_bit", "collisions"} <= failed
    assert next(iter(by_outcome(done))) == "fails"


def test_page_says_everything_and_stands_alone(finished):
    _, done, page = finished
    text = page.read_text()
    assert "pass &lt;b&gt;" in text
    text = html.unescape(text)
    for one in done:
        assert one.attack.question in text
        assert f'id="{one.attack.name}"' in text
    assert "Does not protect" in text
    assert text.count("<svg") == len(done) - 3  # the bit, the collisions and members have no plot
    assert "http://" not in text.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )
    assert "\n" not in done[0].finding.verdicts()[0].text


def test_json_is_strict(finished):
    folder, _, _ = finished
    content = json.loads((folder / "security.json").read_text(), parse_constant=pytest.fail)
    assert set(content["attacks"]) == set(ATTACKS)
    assert content["attacks"]["linkability"]["verdicts"][0]["outcome"] == "fails"
    assert content["meta"]["budget"]["name"] == "test"
    assert "command" in content["meta"]


def test_table_is_printed_with_verdicts_first(finished):
    text = as_text(finished[1])
    assert text.index("[does not protect]") < text.index("one key, one person")
    assert "not applicable" not in text


def test_results_belong_to_method_budget_seed_and_options(tmp_path):
    _, said = run(Shift(), tmp_path, ["kdf_cost"])
    assert len(said) == 2
    assert run(Shift(), tmp_path, ["kdf_cost"])[1] == ["1/1 Guessing passwords: done before"]
    assert len(run(Shift(), tmp_path, ["kdf_cost"], {"kdf_cost": {"price": 1.0}})[1]) == 2
    assert len(run(PassThrough(), tmp_path, ["kdf_cost"])[1]) == 2
    assert len(run(PassThrough(), tmp_path, ["kdf_cost"], steps=81)[1]) == 2


def test_damaged_results_are_made_anew(tmp_path):
    run(Shift(), tmp_path, ["password_bit"])
    path = tmp_path / "attacks" / "password_bit.json"
    for broken in ("{", json.dumps(json.loads(path.read_text()) | {"finding": {"hamming": "?"}})):
        path.write_text(broken)
        done, said = run(Shift(), tmp_path, ["password_bit"])
        assert len(said) == 2
        assert done[0].finding.pairs == BUDGET.trials


def test_what_does_not_apply_is_said_and_kept(tmp_path):
    for _ in range(2):
        done, said = run(Irreversible(), tmp_path, ["leak", "disturbance"])
        assert [one.reason for one in done] == [
            "the method has no codes",
            "the method is not reversible: there is nothing to open",
        ]
    assert all("done before" in line for line in said)
    page = write_security(tmp_path, done, {"model": "x", "judge": "j", **fingerprint(target(Irreversible()), "fakes")})
    assert "Not applicable: the method has no codes." in page.read_text()
    assert "not applicable: the method has no codes" in as_text(done)


def test_few_people_prove_nothing(tmp_path):
    """What rests on people is open, what rests on keys is not."""
    for _ in range(2):  # also where the results were there before
        done, _ = run(Shift(), tmp_path, ["password_bit"], people=FEWEST_PEOPLE - 1)
        assert [verdict.outcome for verdict in done[0].finding.verdicts()] == ["holds", "holds"]
        assert [verdict.outcome for verdict in done[0].verdicts] == ["holds", "open"]
        assert "15 people are too few" in as_text(done)
    fails = Verdict("fails", "all is lost")
    assert cautious(fails, 1) == fails


def test_a_judge_that_cannot_be_trusted_is_said():
    assert not any("few people" in text for text in target(Shift()).warnings())  # 1080 pairs of strangers
    small = Target(Shift().eval(), pictures(0, 4), lambda: pictures(50, 4), BUDGET)
    assert "few people" in small.warnings()[0]
    small.threshold = 0.99999
    assert any("judge is weak" in text for text in small.warnings())


def test_attacks_depend_on_their_own_seed_alone(tmp_path):
    together, _ = run(Shift(), tmp_path / "a", ["password_bit", "collisions"])
    torch.manual_seed(9)
    alone, _ = run(Shift(), tmp_path / "b", ["collisions"])
    assert together[1].finding == alone[0].finding


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (SecurityRow("a", 0.123, "%"), "12.3 %"),
        (SecurityRow("a", None, "%"), "-"),
        (SecurityRow("a", 3.0, "bits"), "3 bits"),
        (SecurityRow("a", 2.5e9), "2.5e+09"),
        (SecurityRow("a", 0.12345, "s"), "0.123 s"),
        (SecurityRow("a", 31.266, "dB"), "31.27 dB"),
    ],
)
def test_figures_are_printed_with_their_unit(row, text):
    assert format_row(row) == text


def test_attacks_by_name():
    assert [attack.name for attack in chosen(["kdf_cost", " parrot"])] == ["parrot", "kdf_cost"]
    for names, message in ((["parot"], "no attack 'parot': there are reidentify"), ([""], "no attack was named")):
        with pytest.raises(UserError, match=message):
            chosen(names)


def arguments(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


def test_command_attacks_a_preset(tmp_path, monkeypatch, capsys):
    def few(backbone, budget, args):
        assert budget == BUDGETS["small"]
        return pictures(0, 6), lambda: pictures(50, 6), {"protocol": "none", "attacker": "fakes"}

    monkeypatch.setattr(study, "method", lambda name: Shift().eval())
    monkeypatch.setattr(study, "photographs", few)
    words = ("--model", "shift", "--out", tmp_path / "page", "--attacks", "kdf_cost", "--core-hour-price", 2)
    assert command.run(arguments(*words)) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == str(tmp_path / "page" / "security.html")
    assert "at 2 a core-hour" in printed.out
    assert "1/1 Guessing passwords" in printed.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--attacks", "rumour"), "no attack 'rumour'"),
        (("--core-hour-price", "-1"), "give a price above 0"),
        (("--core-hour-price", "2", "--attacks", "leak"), "is for kdf_cost, which --attacks leaves out"),
    ],
)
def test_wrong_arguments_are_one_line_before_anything_long(words, message, tmp_path):
    with pytest.raises(UserError, match=message):
        command.run(arguments("--model", "blur", "--out", tmp_path / "x", *words))
    assert not (tmp_path / "x").exists()


def test_methods_by_name():
    assert study.method("blur").key_bits is None
    with pytest.raises(UserError, match="riddle has to be trained first"):
        study.method("riddle")
    with pytest.raises(UserError, match="no model at nobody"):
        study.method("nobody")


def test_photographs_are_split_by_person(tmp_path):
    from PIL import Image

    for person in range(6):
        folder = tmp_path / "faces" / f"p{person}"
        folder.mkdir(parents=True)
        for photo in range(2):
            Image.new("RGB", (64, 64), (40 * person, 100 * photo, 9)).save(folder / f"{photo}.png")
    options = SecurityOptions("mask", photos=tmp_path / "faces")
    test, attacker, about = study.photographs(study.method("mask"), replace(BUDGET, batch=4), options)
    known = attacker()
    reds = [set((image[:, 0, 0, 0] * 127.5 + 127.5).round().int().tolist()) for image in (test.image, known.image)]
    assert len(test) == len(known) == 6
    assert not reds[0] & reds[1]
    assert about["attacker"] == "other photographs in faces"
    assert about["attacker_people"] == 3
    assert len(about["attacker_sha256"]) == 64
