"""The password reaches nothing that is written: no picture, table, journal, message or traceback."""

import argparse
import os
import subprocess
import sys
import threading
import traceback
import types

import numpy as np
import pytest
from PIL import Image

from faceanon import cli
from faceanon.commands import anonymize, recover
from faceanon.commands._secret import PasswordOptions, add_password_arguments, password_of, read_password
from faceanon.commands._typed import typed
from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.pipeline import Pipeline
from fakes import FixedDetector, KeyedTint

WORD = "correct-horse-battery"


class Broken(KeyedTint):
    def anonymize(self, image, key):
        raise RuntimeError("a bug in the method")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.setattr(
        Secret, "from_password", lambda text, salt, kdf: Secret.random(int.from_bytes(salt + text.encode(), "big"))
    )
    use(monkeypatch, KeyedTint())
    monkeypatch.setenv("PW", WORD)
    folder = tmp_path / "in"
    folder.mkdir()
    for index in range(2):
        noise = np.random.default_rng(index).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{index}.png")
    (folder / "broken.jpg").write_text("no picture")
    return folder


def use(monkeypatch, backbone):
    for command in (anonymize, recover):
        monkeypatch.setattr(command, "load_pipeline", lambda *asked, **more: Pipeline(backbone, FixedDetector([])))


def forms(word=WORD):
    """The password as text, hex, and what base64 makes of its middle."""
    import base64

    return [word.encode(), word.encode().hex().encode(), base64.b64encode(word.encode())[:20]]


def assert_clean(*texts):
    for text in texts:
        data = text.encode() if isinstance(text, str) else text
        assert not any(form in data for form in forms())


@pytest.mark.parametrize("source", ["env", "file", "typed"])
@pytest.mark.parametrize("kind", [["--format", "png"], ["--format", "jpg", "--sidecar"]])
def test_no_output_holds_the_password(photos, tmp_path, capsys, source, kind):
    (tmp_path / "pw").write_text(WORD)
    words = {
        "env": ["--password-env", "PW"],
        "file": ["--password-file", str(tmp_path / "pw")],
        "typed": ["--insecure-password", WORD],
    }[source]
    hidden, back = str(tmp_path / "hidden"), str(tmp_path / "back")
    # One of the photos is broken, and named.
    assert cli.main(["anonymize", str(photos), hidden, "--aligned", *kind, *words]) == 3
    assert cli.main(["recover", hidden, back, *words]) == 0
    assert cli.main(["inspect", next(str(p) for p in (tmp_path / "hidden").glob("0.*"))]) == 0
    assert cli.main(["recover", hidden, str(tmp_path / "none"), "--model", "x", "--quality", "999", *words]) == 2
    out, err = capsys.readouterr()
    assert ("process lists" in err) == (source == "typed")
    assert_clean(out, err)
    written = [path for name in ("hidden", "back") for path in (tmp_path / name).rglob("*") if path.is_file()]
    assert len(written) >= 8  # pictures, tables and journals, hidden files too
    assert_clean(*(path.read_bytes() for path in written), *map(str, written))


def test_no_traceback_shows_it_even_with_local_variables(photos, tmp_path, monkeypatch, capsys):
    use(monkeypatch, Broken())
    parser = argparse.ArgumentParser()
    anonymize.add_arguments(parser)
    args = parser.parse_args([str(photos), str(tmp_path / "out"), "--aligned", "--insecure-password", WORD])
    with pytest.raises(RuntimeError, match="a bug in the method") as caught:
        anonymize.run(args)
    trace = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    frames = [frame for frame in trace.stack if "faceanon" in frame.filename]
    assert any("openers" in (frame.locals or {}) for frame in frames)
    assert_clean(*(str(frame.locals) for frame in frames), repr(args))
    assert_clean(capsys.readouterr().err)


def keyring_module(monkeypatch, answer):
    class KeyringError(Exception):
        pass

    def get_password(service, name):
        if answer is KeyError:
            raise KeyringError(f"locked {WORD}")
        return answer if (service, name) == ("faceanon", "holiday") else None

    errors = types.SimpleNamespace(KeyringError=KeyringError)
    monkeypatch.setitem(sys.modules, "keyring", types.SimpleNamespace(get_password=get_password, errors=errors))
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)


def test_the_keyring_is_one_source(monkeypatch):
    keyring_module(monkeypatch, WORD)
    salt = bytes(16)
    monkeypatch.setattr(Secret, "from_password", lambda text, salt, kdf: Secret.random(int(text.encode().hex(), 16)))
    found = read_password(None, None, confirm=True, keyring="holiday")
    assert found.secret(salt) == Secret.random(int(WORD.encode().hex(), 16))
    with pytest.raises(UserError, match="no such entry"):
        read_password(None, None, confirm=True, keyring="work")
    with pytest.raises(UserError, match="--password-env or --password-keyring, not both"):
        read_password("PW", None, confirm=True, keyring="holiday")
    keyring_module(monkeypatch, KeyError)
    with pytest.raises(UserError, match="does not open") as caught:
        read_password(None, None, confirm=True, keyring="holiday")
    assert_clean("".join(traceback.format_exception(caught.value)))


def test_the_keyring_package_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(UserError, match=r"faceanon\[keyring\]"):
        read_password(None, None, confirm=False, keyring="holiday")


def test_a_typed_password_hides_in_the_namespace(capsys):
    parser = argparse.ArgumentParser()
    add_password_arguments(parser)
    args = parser.parse_args(["--insecure-password", WORD])
    source = typed(PasswordOptions, args)
    assert_clean(repr(args), repr(source), repr(password_of(source, confirm=False)))
    with pytest.raises(UserError, match="empty"):
        password_of(typed(PasswordOptions, parser.parse_args(["--insecure-password", ""])), confirm=False)


def test_the_usual_variable_is_read_where_no_source_is_named(monkeypatch):
    monkeypatch.setenv("FACEANON_PASSWORD", "from the environment")
    assert read_password(None, None, confirm=True)._text == "from the environment"


def test_a_named_source_wins_over_the_usual_variable(monkeypatch):
    monkeypatch.setenv("FACEANON_PASSWORD", "usual")
    monkeypatch.setenv("OTHER", "named")
    assert read_password("OTHER", None, confirm=True)._text == "named"


@pytest.mark.parametrize("command", ["anonymize", "recover"])
def test_a_missing_password_is_noticed_before_torch_is_imported(command, tmp_path):
    (tmp_path / "in.png").write_bytes(b"any file")
    code = (
        "import sys\nfrom faceanon.__main__ import main\n"
        f"sys.argv = ['faceanon', {command!r}, 'in.png', 'out.png']\n"
        "try:\n    code = main()\nexcept SystemExit as error:\n    code = error.code\n"
        "print(code, 'torch' in sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "FACEANON_PASSWORD"}
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    assert result.stdout.split() == ["2", "False"]
    assert "no password and no terminal" in result.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with a name")
@pytest.mark.parametrize("command", ["anonymize", "recover"])
def test_a_password_that_can_be_read_once_is_read_once(photos, tmp_path, command):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    picture = tmp_path / "hidden.png"
    if command == "recover":
        words = [str(photos / "0.png"), str(picture), "--aligned", "--password-env", "PW"]
        assert cli.main(["anonymize", *words]) == 0
    else:
        picture = photos / "0.png"
    writer = threading.Thread(target=pipe.write_text, args=(f"{WORD}\n",))
    writer.start()
    more = ["--aligned"] if command == "anonymize" else []
    assert cli.main([command, str(picture), str(tmp_path / "out.png"), *more, "--password-file", str(pipe)]) == 0
    writer.join()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with a name")
def test_several_processes_do_not_share_a_pipe(photos, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    words = [str(photos), str(tmp_path / "out"), "--devices", "2", "--password-file", str(tmp_path / "pipe")]
    assert cli.main(["anonymize", *words]) == 2
    assert "several processes cannot read the password from one pipe" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
