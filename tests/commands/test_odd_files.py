"""Whatever is in a file: a right result or one clear line, no traceback, and nothing half done."""

import pytest
from PIL import Image

from faceanon import cli
from faceanon.commands import anonymize
from faceanon.key import Secret
from faceanon.photo.file import load_photo
from faceanon.pipeline import Pipeline
from fakes import FixedDetector, KeyedTint
from odd_files import corpus


@pytest.fixture(autouse=True)
def tiny_model(monkeypatch):
    pipe = Pipeline(KeyedTint(), FixedDetector([]))
    monkeypatch.setattr(anonymize, "load_pipeline", lambda *asked, **more: pipe)
    monkeypatch.setattr(Secret, "from_password", lambda text, salt, kdf: Secret.random(1))
    monkeypatch.setenv("PW", "hush")


def check(name, data, folder, capsys):
    source, target = folder / name, folder / "out" / "b.png"
    source.write_bytes(data)
    code = cli.main(["anonymize", str(source), str(target), "--aligned", "--model", "tiny", "--password-env", "PW"])
    out, err = capsys.readouterr()
    if code == 0:
        assert err == ""
        result = load_photo(target)
        assert result.manifest is not None
        with Image.open(source) as image:
            assert result.pixels.shape[:2] == image.size[::-1]  # all are square, so a turn keeps the size
        target.unlink()
    else:
        assert code == 2
        assert err.startswith("faceanon: ")
        assert err.count("\n") == 1
        assert name in err
        assert len(err) < 400 + len(str(folder))
        assert out == ""
    assert code == 0 or not name.startswith("right_")
    assert not (folder / "out").exists() or not list((folder / "out").iterdir())
    source.unlink()
    return code


def check_all(many, tmp_path, capsys):
    files = corpus(many)
    wrong = {}
    for name, data in files.items():
        try:
            check(name, data, tmp_path, capsys)
        except Exception as error:
            wrong[name] = f"{type(error).__name__}: {error}"[:300]
    assert wrong == {}
    return len(files)


def test_odd_files(tmp_path, capsys):
    assert check_all(False, tmp_path, capsys) >= 60


@pytest.mark.slow
def test_hundreds_of_odd_files(tmp_path, capsys):
    assert check_all(True, tmp_path, capsys) >= 300


def test_a_folder_of_odd_files(tmp_path, capsys):
    """Each odd file costs one line of the summary, and none stops the others."""
    (tmp_path / "in").mkdir()
    files = {f"{index:03}_{name}": data for index, (name, data) in enumerate(corpus(False).items())}
    for name, data in files.items():
        (tmp_path / "in" / name).write_bytes(data)
    words = ["anonymize", str(tmp_path / "in"), str(tmp_path / "out"), "--aligned", "--model", "tiny"]
    words += ["--password-env", "PW"]
    assert cli.main(words) == 3
    out, err = capsys.readouterr()
    done = list((tmp_path / "out").glob("*.png"))
    skipped = [line for line in out.splitlines() if line.startswith("skipped: ")]
    assert len(done) + len(skipped) == len(files)
    assert len(done) >= sum("right_" in name for name in files)
    assert "Traceback" not in out + err
