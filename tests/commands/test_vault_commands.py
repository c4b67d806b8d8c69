"""`--vault` and `--exact` on folders: resumable, and nothing that is written gives the originals away."""

import argparse
import io
import json
import os
import signal
import zlib

import numpy as np
import pytest
from PIL import Image

from faceanon import cli, files
from faceanon.commands import anonymize, recover
from faceanon.key import KdfParameters, Password
from faceanon.photo.file import load_photo, read_manifest, read_vault
from faceanon.photo.metadata import vault_of
from faceanon.pipeline import Pipeline, anonymize_file
from faceanon.pipeline.many.folder import FolderRun, plan_folder
from faceanon.pipeline.many.journal import JOURNAL_NAME
from faceanon.pipeline.tasks import AnonymizeTask, Output
from fakes import FixedDetector, KeyedTint
from vault_photos import CHEAP, FACES, WORD, hide, make_photo, show


@pytest.fixture
def pipe():
    return Pipeline(KeyedTint(), FixedDetector(FACES), batch=4)


def traces(original, boxes):
    """Bytes that would give a face away: rows of its pixels, and its PNG."""
    for left, top, right, bottom in boxes:
        part = original[top:bottom, left:right]
        yield from (part[row].tobytes()[:24] for row in range(2, part.shape[0] - 2))
        png = io.BytesIO()
        Image.fromarray(part).save(png, "PNG")
        yield png.getvalue()[40:72]


def test_outputs_hold_neither_password_nor_original_bytes(tmp_path, monkeypatch, capsys, pipe):
    for command in (anonymize, recover):
        monkeypatch.setattr(command, "load_pipeline", lambda *asked, **more: pipe)
    monkeypatch.setattr(anonymize, "_pipeline", lambda *asked: pipe)
    monkeypatch.setattr(KdfParameters.__init__, "__defaults__", ("argon2id", 64, 1, 1, 19))
    monkeypatch.setenv("PW", WORD)
    make_photo(tmp_path / "in/a.png", 0)
    make_photo(tmp_path / "in/x/b.png", 1)
    words = ["--vault", "--password-env", "PW"]
    assert cli.main(["anonymize", str(tmp_path / "in"), str(tmp_path / "png"), *words]) == 0
    assert "2 photo(s) with their original faces in a vault" in capsys.readouterr().out
    assert cli.main(["anonymize", str(tmp_path / "in"), str(tmp_path / "jpg"), "--format", "jpg", *words]) == 0
    written = [path for name in ("png", "jpg") for path in (tmp_path / name).rglob("*") if path.is_file()]
    assert len([path for path in written if path.name.endswith(".faceanon.vault")]) == 2
    original = load_photo(tmp_path / "in/a.png").pixels
    secrets = [WORD.encode(), WORD.encode().hex().encode(), b"Secretcam", *traces(original, [(62, 45, 160, 130)])]
    for path in written:
        data = path.read_bytes()
        unpacked = data + zlib_parts(data)
        assert not [secret for secret in secrets if secret in unpacked], path
    secret = Password(WORD).secret(*(lambda m: (m.salt, m.kdf))(read_manifest(load_photo(tmp_path / "png/a.png"))))
    assert not any(secret.stream(label, 32) in path.read_bytes() for path in written for label in ("", "faceanon/hash"))
    assert any(trace in original.tobytes() for trace in traces(original, [(62, 45, 160, 130)]))  # the search can find


def zlib_parts(data):
    """What a look into deflated chunks of the vault would show."""
    found = b""
    for at in range(0, min(len(data), 400_000), 64):
        try:
            found += zlib.decompressobj().decompress(data[at:], 10_000)
        except zlib.error:
            continue
    return found


def test_folders_go_on_and_come_back(tmp_path, monkeypatch, capsys, pipe):
    for command in (anonymize, recover):
        monkeypatch.setattr(command, "load_pipeline", lambda *asked, **more: pipe)
    monkeypatch.setattr(anonymize, "_pipeline", lambda *asked: pipe)
    monkeypatch.setattr(KdfParameters.__init__, "__defaults__", ("argon2id", 64, 1, 1, 19))
    monkeypatch.setenv("PW", WORD)
    monkeypatch.setenv("WRONG", "hush")
    source, hidden, back = tmp_path / "in", tmp_path / "hidden", tmp_path / "back"
    for seed in range(3):
        make_photo(source / f"{seed}.png", seed)
    do = ["anonymize", str(source), str(hidden), "--format", "webp", "--password-env", "PW"]
    assert cli.main([*do, "--vault"]) == 0
    (hidden / "1.webp").unlink()
    half = files.unfinished(vault_of(hidden / "1.webp"))
    (hidden / f"{half}abcdefgh").write_bytes(b"half")
    assert cli.main(do) == 2
    assert "holds a run with vault True, not False" in capsys.readouterr().err
    assert cli.main([*do, "--vault"]) == 0
    assert "2 file(s) were done before" in capsys.readouterr().out
    assert not list(hidden.glob(f"{half}*"))
    undo = ["recover", str(hidden), str(back), "--exact", "--password-env"]
    assert cli.main([*undo, "WRONG"]) == 2
    assert capsys.readouterr().out.count("wrong password") == 3
    assert not back.exists()
    assert cli.main([*undo, "PW"]) == 0
    (back / "2.png").unlink()
    assert cli.main([*undo, "WRONG"]) == 2
    assert "wrong password" in capsys.readouterr().err
    assert cli.main([*undo, "PW"]) == 0
    for seed in range(3):
        np.testing.assert_array_equal(
            load_photo(back / f"{seed}.png").pixels, load_photo(source / f"{seed}.png").pixels
        )
    assert (back / JOURNAL_NAME).exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_kill_between_vault_and_picture_costs_nothing_but_time(tmp_path, monkeypatch, pipe):
    source, target = tmp_path / "in", tmp_path / "out"
    jobs = [(make_photo(source / f"{seed}.png", seed), target / f"{seed}.webp") for seed in range(3)]
    password = Password(WORD, bytes(16), CHEAP)

    def make(photo, file, salt, kdf):
        return AnonymizeTask(pipe, photo, file, password, salt, kdf, output=Output(vault=True))

    def run():
        list(FolderRun(plan_folder(source, target, jobs, {}, False), pipe, password, make, 1).results())

    real = files.Path.replace

    def killing(self, other):
        real(self, other)
        if other.name == "1.webp.faceanon.vault":
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(files.Path, "replace", killing)
            run()
        finally:
            os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert (target / "1.webp.faceanon.vault").exists()
    assert not (target / "1.webp").exists()
    run()
    for photo, file in jobs:
        show(pipe, file, tmp_path / "c.png")
        np.testing.assert_array_equal(load_photo(tmp_path / "c.png").pixels, load_photo(photo).pixels)


def test_inspect_tells_the_size_of_the_vault_and_no_more(tmp_path, pipe, capsys):
    source = make_photo(tmp_path / "a.png")
    for name, options in (("b.png", {}), ("b.jpg", {"sidecar": True})):
        hide(pipe, source, tmp_path / name, **options)
        size = len(read_vault(tmp_path / name))
        files = [tmp_path / name, *([tmp_path / f"{name}.faceanon.json"] if options else [])]
        assert cli.main(["inspect", *map(str, files)]) == 0
        assert capsys.readouterr().out.count(f"{size} bytes, encrypted") == len(files)
        assert cli.main(["inspect", "--json", str(tmp_path / name)]) == 0
        assert json.loads(capsys.readouterr().out)["vault_bytes"] == size
    anonymize_file(pipe, source, tmp_path / "d.png", Password(WORD, kdf=CHEAP))
    assert cli.main(["inspect", str(tmp_path / "d.png")]) == 0
    assert "vault" not in capsys.readouterr().out


def test_options_that_do_not_fit(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PW", WORD)
    make_photo(tmp_path / "a.png")
    one = ["recover", str(tmp_path / "a.png")]
    for words, message in (
        ([*one, str(tmp_path / "b.jpg"), "--exact"], "keeps every pixel"),
        ([*one, str(tmp_path / "b.png"), "--exact", "--like", "x"], "--like cannot help"),
        (["anonymize", str(tmp_path / "a.mp4"), str(tmp_path / "b.mp4"), "--vault"], "--vault: for photos only"),
        (["recover", str(tmp_path / "a.mp4"), str(tmp_path / "b.mp4"), "--exact"], "--exact: for photos only"),
        (["anonymize", str(tmp_path / "a.mp4"), str(tmp_path / "b.mp4"), "--devices", "2"], "share a folder"),
        (["recover", str(tmp_path / "a.mp4"), str(tmp_path / "b.mp4"), "--nodes", "2"], "share a folder"),
        (["anonymize", str(tmp_path), "--list-faces", "--devices", "2"], "--list-faces writes nothing"),
        (["anonymize", str(tmp_path / "a.png"), "--list-faces", "--csv", "x"], "--list-faces writes nothing"),
        (["anonymize", str(tmp_path / "a.png"), str(tmp_path / "b.png"), "--csv", "x"], "--csv is for folders"),
        (["anonymize", str(tmp_path / "a.png"), "x.png", "--aligned", "--detector", "d"], "leave --detector away"),
    ):
        assert cli.main(words) == 2
        assert message in capsys.readouterr().err


def test_the_help_explains_the_trade():
    for command, words in ((anonymize, "a wrong password then shows itself"), (recover, "a wrong password is refused")):
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        assert words in " ".join(parser.format_help().split())


def test_exact_recovery_reads_no_model(tmp_path, monkeypatch, pipe):
    def never(model, device):
        raise AssertionError("a model was read")

    monkeypatch.setattr(recover, "load_pipeline", never)
    monkeypatch.setenv("PW", WORD)
    source = make_photo(tmp_path / "a.png")
    hide(pipe, source, tmp_path / "hidden/b.png")
    hide(pipe, source, tmp_path / "hidden/c.png")
    words = ["--exact", "--password-env", "PW"]
    assert cli.main(["recover", str(tmp_path / "hidden/b.png"), str(tmp_path / "d.png"), *words]) == 0
    folders = ["recover", str(tmp_path / "hidden"), str(tmp_path / "back"), *words]
    assert cli.main(folders) == 0
    (tmp_path / "back/c.png").unlink()
    assert cli.main(folders) == 0
    for path in (tmp_path / "d.png", tmp_path / "back/b.png", tmp_path / "back/c.png"):
        np.testing.assert_array_equal(load_photo(path).pixels, load_photo(source).pixels)


@pytest.mark.parametrize("beside", ["b.png.faceanon.vault", "b.png.faceanon.json"])
def test_recovery_data_of_another_picture_are_not_lost(tmp_path, monkeypatch, capsys, pipe, beside):
    monkeypatch.setattr(anonymize, "_pipeline", lambda *asked: pipe)
    monkeypatch.setattr(KdfParameters.__init__, "__defaults__", ("argon2id", 64, 1, 1, 19))
    monkeypatch.setenv("PW", WORD)
    source = make_photo(tmp_path / "in/b.png")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / beside).write_text("of a picture that was moved away")
    for words in ([str(source), str(tmp_path / "out/b.png")], [str(tmp_path / "in"), str(tmp_path / "out")]):
        assert cli.main(["anonymize", *words, "--password-env", "PW"]) == 2
        assert f"{beside} exists and may be needed" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == [beside]
    assert cli.main(["anonymize", str(source), str(tmp_path / "out/b.png"), "--overwrite", "--password-env", "PW"]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["b.png"]
