"""With `same_stranger` a person gets one donor in all photos of a folder, also where the run is killed and resumed."""

import csv
import os
import signal

import numpy as np
import pytest
from PIL import Image

from faceanon import cli
from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password
from faceanon.landmarks.album import Album
from faceanon.landmarks.cast import Cast
from faceanon.models import load_backbone
from faceanon.paths import checkpoints
from faceanon.persona.light import LightPersona
from faceanon.photo.file import load_photo
from faceanon.pipeline.many.folder import FolderRun, plan_folder
from faceanon.pipeline.many.journal import JOURNAL_NAME, read_journal
from faceanon.pipeline.many.meeting import casting, meet
from faceanon.pipeline.many.sealed_album import opened_album, sealed_album
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.tasks import AnonymizeTask
from faceanon.sealed.envelope import WrongPasswordError
from fakes import KeyedTint

CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
SETTINGS = {"command": "anonymize", "aligned": True, "same_stranger": True}
PEOPLE = ("openpeople_P001", "openpeople_P006", "openpeople_P005")
EACH = 3
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Three persons in three photos each, two who are there once, and a file that is no picture."""
    folder = tmp_path_factory.mktemp("photos")
    shipped = checkpoints() / "photo128"
    with (shipped / "pictures.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    for person in PEOPLE:
        files = [row["file"] for row in rows if row["person"] == person][:EACH]
        for number, name in enumerate(files):
            Image.open(shipped / "pictures" / name).save(folder / f"{person}_{number}.png")
    for name in [row["file"] for row in rows if row["source"] == "faker"][:2]:
        Image.open(shipped / "pictures" / name).save(folder / f"{name.removesuffix('.jpg')}.png")
    (folder / "broken.png").write_bytes(b"no picture")
    return folder


@pytest.fixture(scope="module")
def quick():
    return Pipeline(LightPersona(checkpoints() / "persona_photo128"))


def start(pipeline, photos, target, password="hush", salt=bytes(16), names=None):
    sources = sorted(photos.glob("*.png")) if names is None else [photos / name for name in names]
    jobs = [(path, target / path.name) for path in sources]
    plan = plan_folder(photos, target, jobs, SETTINGS, overwrite=False)
    secret = Password(password, salt, CHEAP)

    def make(source, output, salt, kdf):
        return AnonymizeTask(pipeline, source, output, secret, salt, kdf, aligned=True)

    return FolderRun(plan, pipeline, secret, make, workers=2)


def done(run):
    """Pixels of every result, by name."""
    for _ in run.results():
        pass
    shown = {}
    for source, target in run.plan.jobs:
        if target.is_file():
            shown[source.stem] = load_photo(target).pixels
    return shown


def donors_of(pipeline, photos, target, monkeypatch, **options):
    """Whom each file got, by name, read off the calls that put donors on."""
    got = []
    put_on_unlike = Cast.put_on_unlike

    def spy(self, targets, orders, alike, known=None, read=None):
        drawn, choices = put_on_unlike(self, targets, orders, alike, known, read)
        for face, choice in zip(targets, choices, strict=True):
            # A mirror image is the same donor.
            got.append((face.picture.astype(float), choice.donor % len(self.codes)))
        return drawn, choices

    with monkeypatch.context() as patch:
        patch.setattr(Cast, "put_on_unlike", spy)
        done(start(pipeline, photos, target, **options))
    donors = {}
    for path in photos.glob("*.png"):
        if path.stem != "broken":
            with Image.open(path) as picture:
                own = np.asarray(picture.resize((128, 128)), float)
            # A crop is resampled, so it is nearly the file's picture.
            distances = [np.abs(seen - own).mean() for seen, _ in got]
            donors[path.stem] = got[int(np.argmin(distances))][1]
    return donors


def of_person(found, person):
    return [donor for name, donor in sorted(found.items()) if name.startswith(person)]


def test_a_person_gets_one_donor_and_different_persons_different_ones(quick, photos, tmp_path, monkeypatch):
    donors = donors_of(quick, photos, tmp_path / "out", monkeypatch)
    per_person = [set(of_person(donors, person)) for person in PEOPLE]
    assert [len(found) for found in per_person] == [1, 1, 1]
    assert len(set.union(*per_person)) == 3
    # The model is as it was for whatever comes next.
    assert casting(quick).album is None
    others = donors_of(quick, photos, tmp_path / "other", monkeypatch, password="another")
    assert [others[name] for name in sorted(others)] != [donors[name] for name in sorted(donors)]


def test_both_engines_agree_on_who_is_who_and_who_becomes_whom(quick, photos):
    heavy = Pipeline(load_backbone("persona_photo128")[0], weights=quick.weights)
    secret = Password("hush", bytes(16), CHEAP).secret()
    sources = sorted(photos.glob("*.png"))
    ours = meet(quick, sources, secret, aligned=True, workers=2)
    theirs = meet(heavy, sources, secret, aligned=True, workers=1)
    assert ours.donors == theirs.donors
    assert len(ours) == 3
    assert (ours.embeddings * theirs.embeddings).sum(1).min() > 0.999


def test_known_persons_keep_their_donors_and_new_ones_are_added(quick, photos):
    secret = Password("hush", bytes(16), CHEAP).secret()
    sources = sorted(photos.glob("*.png"))
    some = [path for path in sources if not path.name.startswith(PEOPLE[0])]
    before = meet(quick, some, secret, aligned=True)
    told = []
    after = meet(quick, sources, secret, aligned=True, known=before, advance=lambda: told.append(1))
    assert len(before) == 2
    assert after.donors[:2] == before.donors
    assert len(after) == 3
    assert len(told) == len(sources)


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("place", ["before the album", "after some photos"])
def test_a_killed_run_ends_as_an_uninterrupted_one(quick, photos, tmp_path, place, monkeypatch):
    whole = done(start(quick, photos, tmp_path / "whole"))
    target = tmp_path / "out"
    # Forked children do not inherit the networks' threads.
    child = os.fork()
    if child == 0:
        try:
            fresh = Pipeline(LightPersona(checkpoints() / "persona_photo128"))
            run = start(fresh, photos, target)
            if place == "before the album":
                run.watch = lambda photos: lambda: os.kill(os.getpid(), signal.SIGKILL)
            for count, _ in enumerate(run.results()):
                if count == 4:
                    os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    history, _ = read_journal(target / JOURNAL_NAME)
    assert (history.album is None) == (place == "before the album")
    looked = []
    run = start(quick, photos, target)
    run.watch = lambda photos: lambda: looked.append(1)
    resumed = done(run)
    # Who is who is not looked at twice.
    assert bool(looked) == (place == "before the album")
    assert resumed.keys() == whole.keys()
    for name, pixels in whole.items():
        assert (resumed[name] == pixels).all(), name


def test_photos_that_come_later_show_the_same_stranger(quick, photos, tmp_path, monkeypatch):
    names = [path.name for path in sorted(photos.glob("*.png")) if path.stem != "broken"]
    late = [name for name in names if name.startswith(PEOPLE[2])][-1]
    target = tmp_path / "out"
    done(start(quick, photos, target, names=[name for name in names if name != late]))
    album = opened_album(
        read_journal(target / JOURNAL_NAME)[0].album["sealed"],
        Password("hush", bytes(16), CHEAP).secret(),
        quick.weights,
        "",
    )
    run = start(quick, photos, target, names=names)
    assert [job[0].name for job in run.todo] == [late]
    seen = []
    run.watch = lambda photos: lambda: seen.append(casting(quick).album)
    done(run)
    assert seen
    assert all(known.donors == album.donors for known in seen)


def test_another_password_is_refused_and_the_journal_shows_no_face(quick, photos, tmp_path):
    target = tmp_path / "out"
    done(start(quick, photos, target))
    (target / f"{PEOPLE[0]}_0.png").unlink()
    with pytest.raises(UserError, match="another password"):
        list(start(quick, photos, target, password="other").results())
    history, _ = read_journal(target / JOURNAL_NAME)
    with pytest.raises(WrongPasswordError):
        opened_album(history.album["sealed"], Password("other", bytes(16), CHEAP).secret(), quick.weights, "")
    with pytest.raises(WrongPasswordError):
        opened_album(history.album["sealed"], Password("hush", bytes(16), CHEAP).secret(), "00" * 32, "")


def test_a_large_album_is_sealed_in_pieces():
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(600, 256)).astype(np.float32)
    album = Album(rows / np.linalg.norm(rows, axis=1, keepdims=True), tuple(range(600)))
    secret = Password("hush", bytes(16), CHEAP).secret()
    pieces = sealed_album(album, secret, "ab" * 32)
    assert len(pieces) > 2
    assert opened_album(pieces, secret, "ab" * 32, "").donors == album.donors
    with pytest.raises(WrongPasswordError):
        opened_album([pieces[1], pieces[0], *pieces[2:]], secret, "ab" * 32, "")
    with pytest.raises(UserError, match="damaged"):
        opened_album(["no base64!", *pieces[1:]], secret, "ab" * 32, "the journal")


def test_a_model_without_a_cast_is_refused():
    with pytest.raises(UserError, match="of a cast"):
        casting(Pipeline(KeyedTint()))


@pytest.mark.parametrize("words", [["photo.png", "out.png"], ["photo.png", "--list-faces"]])
def test_one_photo_needs_no_album(words, photos, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (64, 64)).save("photo.png")
    monkeypatch.setenv("FACEANON_PASSWORD", "hush")
    assert cli.main(["anonymize", *words, "--same-stranger"]) == 2
    assert "--same-stranger is for a folder" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [tmp_path / "photo.png"]


def test_the_command_says_how_many_persons_became_one_stranger(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FACEANON_PASSWORD", "hush")
    words = ["anonymize", str(photos), str(tmp_path / "out"), "--aligned", "--same-stranger"]
    # One of the photos is no picture.
    assert cli.main(words) == 3
    assert "3 person(s) met in several photos, each of them one stranger" in capsys.readouterr().out
    # Another setting is another run.
    assert cli.main([word for word in words if word != "--same-stranger"]) == 2
    assert "same_stranger True, not False" in capsys.readouterr().err


def test_another_size_of_faces_is_another_run(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FACEANON_PASSWORD", "hush")
    words = ["anonymize", str(photos), str(tmp_path / "out"), "--aligned"]
    assert cli.main([*words, "--face-size", "128"]) == 3
    assert cli.main(words) == 2
    assert "face_size 128, not None" in capsys.readouterr().err


def test_one_photo_too_takes_threads_from_one_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FACEANON_PASSWORD", "hush")
    Image.new("RGB", (64, 64)).save(tmp_path / "photo.png")
    assert cli.main(["anonymize", str(tmp_path / "photo.png"), str(tmp_path / "out.png"), "--workers", "0"]) == 2
    assert "--workers must be 1 to 256, not 0" in capsys.readouterr().err
