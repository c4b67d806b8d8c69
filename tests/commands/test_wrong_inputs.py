"""What is wrong is named as what it is."""

import errno
import os
from pathlib import Path

import pytest
from PIL import Image

from faceanon import cli
from faceanon.commands._secret import read_password
from faceanon.errors import NoRoomError, UserError
from faceanon.files import unwritable, write_atomic
from faceanon.interop.public.packs import read_pack
from faceanon.photo.decode import opened
from faceanon.pipeline.video.frames import read_info

PICTURE = Path(__file__).resolve().parents[2] / "checkpoints/photo128/pictures/faker_00000.jpg"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty; copy it again"),
        (b" \n", "is empty; copy it again"),
        (b"\n<!DOCTYPE html><html>not found", "is not a picture but a web page"),
        (b"<html><body>not found", "is not a picture but a web page"),
        (b"a letter", "is not a picture that can be read; convert it"),
        (PICTURE.read_bytes()[:3_000], "the file is damaged or cut short"),
    ],
)
def test_files_that_are_no_pictures(tmp_path, data, reason):
    (tmp_path / "a.jpg").write_bytes(data)
    with pytest.raises(UserError) as caught, opened(tmp_path / "a.jpg") as image:
        image.load()
    assert reason in str(caught.value)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ENAMETOOLONG])
def test_a_file_that_the_system_refuses_is_not_called_damaged(tmp_path, monkeypatch, number):
    def refuse(path, formats):
        raise OSError(number, os.strerror(number), str(path))

    (tmp_path / "a.jpg").write_bytes(PICTURE.read_bytes())
    monkeypatch.setattr(Image, "open", refuse)
    with pytest.raises(UserError) as caught, opened(tmp_path / "a.jpg"):
        pass
    assert str(caught.value) == f"{tmp_path / 'a.jpg'} cannot be read: {os.strerror(number)}"


def test_a_file_in_the_place_of_a_folder_is_no_lack_of_space(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for target in ("file/a.png", "file/folder/a.png"):
        with pytest.raises(UserError, match="a file stands where its folder should be") as caught:
            write_atomic(tmp_path / target, b"data")
        assert "space" not in str(caught.value)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EISDIR, errno.ENAMETOOLONG, errno.EIO])
def test_space_is_asked_for_only_where_it_lacks(number):
    error = unwritable(Path("a.png"), OSError(number, os.strerror(number)))
    assert ("free some space" in str(error)) == (number == errno.ENOSPC)
    assert isinstance(error, NoRoomError) == (number == errno.ENOSPC)


def test_an_empty_argument_is_not_the_folder_one_is_in(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jpg").write_bytes(PICTURE.read_bytes())
    for words in (["anonymize", "", "out"], ["recover", "a.jpg", ""], ["inspect", ""], ["demo", "--out", ""]):
        assert cli.main(words) == 2
        assert capsys.readouterr().err.startswith("faceanon: one of the arguments is empty")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jpg"]


def test_a_table_in_the_place_of_a_folder_is_refused_before_the_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PW", "hush")
    for name in ("in", "tables"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "a.jpg").write_bytes(PICTURE.read_bytes())
    words = [str(tmp_path / "in"), str(tmp_path / "out"), "--csv", str(tmp_path / "tables"), "--password-env", "PW"]
    assert cli.main(["anonymize", *words]) == 2
    assert "is a folder; name a file in it" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"one\ntwo\n", "several lines"),
        ("word".encode("utf-16-le"), "zero bytes"),
        (b"\n", "the password is empty"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_password_that_nobody_can_type_is_refused(tmp_path, data, reason):
    (tmp_path / "pw").write_bytes(data)
    with pytest.raises(UserError, match=reason) as caught:
        read_password(None, str(tmp_path / "pw"), confirm=False)
    assert "word" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--device", "gpu"], "cannot compute on 'gpu': no such device here; give cpu, or cuda"),
        (["--detector", "retina"], "no detector 'retina': give yunet, mtcnn, or the file"),
    ],
)
def test_a_name_that_does_not_exist_is_answered_by_those_that_do(tmp_path, monkeypatch, capsys, words, reason):
    monkeypatch.setenv("PW", "hush")
    target = tmp_path / "out.png"
    assert cli.main(["anonymize", str(PICTURE), str(target), *words, "--password-env", "PW"]) == 2
    assert reason in capsys.readouterr().err
    assert not target.exists()


def test_an_empty_film_is_called_empty(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"")
    with pytest.raises(UserError, match=r"a\.mp4 is empty; copy it again"):
        read_info(tmp_path / "a.mp4")


def test_a_folder_of_no_networks_says_what_it_could_have_been(tmp_path):
    with pytest.raises(UserError, match=r"neither a bundle \(it has no bundle.yaml\) nor a pack .*; it holds nothing"):
        read_pack(tmp_path)


def test_a_file_in_the_place_of_the_demos_folder_is_refused_before_the_work(tmp_path, capsys):
    (tmp_path / "file").write_bytes(b"")
    assert cli.main(["demo", "--out", str(tmp_path / "file")]) == 2
    assert "is a file; name a folder to write to" in capsys.readouterr().err
