"""Keys of files, sealed for recipients and passwords: who opens them, who does not, and what is said of damage."""

import base64
import copy
import pickle
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pyrage
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faceanon.commands._openers import recipients_of
from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password
from faceanon.lock import AGE_BEGINNING, Lock, WrappedKey
from faceanon.manifest import CropGeometry, Manifest
from faceanon.sealed.envelope import WrongPasswordError
from faceanon.sealed.identity_file import ARMOR, is_protected, read_identity, write_identity
from faceanon.sealed.openers import Openers, check_deniable, openers
from faceanon.sealed.recipients import Identity, WrongIdentityError, checked_recipient, wrap

CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
ANNA, BEN, EVE = Identity.new(), Identity.new(), Identity.new()
BOTH = Openers(Password("right", kdf=CHEAP), [ANNA.recipient, BEN.recipient])
SECRET, LOCK = BOTH.new_key()
FACE = CropGeometry(100.0, 80.0, 32.0, 0.0)
MANIFEST = Manifest("package.Method", "model", "ab" * 32, 64, 640, 480, layers=((FACE,),)).locked(LOCK)


def by(identity):
    return Openers(identity=identity)


def one_line(error):
    text = str(error)
    assert text.startswith("photo.png")
    assert "\n" not in text
    assert len(text) < 300


def test_each_recipient_and_the_password_open_and_nobody_else_does():
    assert by(ANNA).open(LOCK, "photo.png") == by(BEN).open(LOCK, "photo.png") == SECRET
    assert Openers(Password("right")).open(LOCK, "photo.png") == SECRET
    with pytest.raises(WrongIdentityError, match="does not open") as caught:
        by(EVE).open(LOCK, "photo.png")
    one_line(caught.value)
    with pytest.raises(WrongPasswordError, match="wrong password") as caught:
        Openers(Password("wrong")).open(LOCK, "photo.png")
    one_line(caught.value)


def test_each_file_has_a_key_of_its_own_and_the_password_is_not_it():
    other, lock = BOTH.new_key()
    assert other != SECRET
    assert lock.wrapped != LOCK.wrapped
    assert Password("right", kdf=CHEAP).secret(LOCK.salt, CHEAP) not in (SECRET, other)


def test_a_password_alone_is_the_key_itself_as_ever():
    password = Password("right", salt=bytes(16), kdf=CHEAP)
    secret, lock = openers(password).new_key()
    assert (secret, lock) == (password.secret(), Lock(bytes(16), CHEAP))
    assert openers(openers(password)).new_key() == (secret, lock)
    check_deniable(lock, "photo.png")
    with pytest.raises(UserError, match="no identity opens it"):
        by(ANNA).open(lock, "photo.png")


def test_recipients_alone_leave_no_salt_and_no_password_opens():
    secret, lock = Openers(recipients=[ANNA.recipient, ANNA.recipient]).new_key()
    assert (lock.salt, lock.kdf, lock.wrapped.count) == (None, None, 1)
    assert by(ANNA).open(lock, "photo.png") == secret
    with pytest.raises(UserError, match=r"for 1 recipient\(s\), so no password opens it"):
        Openers(Password("right")).open(lock, "photo.png")
    with pytest.raises(UserError, match="no password"):
        Openers(recipients=[ANNA.recipient]).secret()
    with pytest.raises(UserError, match="sealed key"):
        check_deniable(lock, "photo.png")


def test_the_file_tells_how_many_and_not_for_whom():
    assert LOCK.wrapped.count == 2
    text = MANIFEST.to_json()
    for identity in (ANNA, BEN):
        assert identity.recipient not in text
        # The public key itself, without what bech32 adds.
        assert identity.recipient[4:-6].encode() not in LOCK.wrapped.recipients
    # The same people twice: nothing of the two files is alike but the words of the format.
    lines = set(LOCK.wrapped.recipients.split(b"\n"))
    again = set(BOTH.new_key()[1].wrapped.recipients.split(b"\n"))
    assert lines & again == {AGE_BEGINNING.strip()}


def test_a_manifest_carries_the_lock_there_and_back():
    again = Manifest.from_json(MANIFEST.to_json())
    assert again == MANIFEST
    assert again.lock == LOCK
    assert by(BEN).open(again.lock, "photo.png") == SECRET


@pytest.mark.parametrize(
    "lock",
    [
        replace(LOCK, salt=None, kdf=None),
        replace(LOCK, wrapped=WrappedKey(LOCK.wrapped.recipients)),
        replace(LOCK, wrapped=WrappedKey(b"", LOCK.wrapped.password)),
        replace(LOCK, wrapped=WrappedKey(LOCK.wrapped.recipients, LOCK.wrapped.password[:-1])),
        replace(LOCK, wrapped=WrappedKey(b"x" + LOCK.wrapped.recipients, LOCK.wrapped.password)),
        replace(LOCK, wrapped=WrappedKey(LOCK.wrapped.recipients + bytes(17_000), LOCK.wrapped.password)),
        replace(LOCK, wrapped=WrappedKey(pyrage.passphrase.encrypt(b"k", "w"), LOCK.wrapped.password)),
    ],
)
def test_a_manifest_with_half_a_lock_is_refused(lock):
    with pytest.raises(UserError, match=r"^manifest: .*(sealed|recipients)"):
        Manifest.from_json(MANIFEST.locked(lock).to_json())


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_tampered_key_is_refused_in_one_line(data):
    """A changed, cut or added byte of either wrapping; age's grease may change, since it is for nobody."""
    whose = data.draw(st.sampled_from(["recipients", "password"]))
    sealed = bytearray(getattr(LOCK.wrapped, whose))
    place = data.draw(st.integers(0, len(sealed) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "add"]))
    if kind == "flip":
        sealed[place] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del sealed[place:]
    else:
        sealed[place:place] = data.draw(st.binary(min_size=1, max_size=20))
    lock = replace(LOCK, wrapped=replace(LOCK.wrapped, **{whose: bytes(sealed)}))
    opener = by(ANNA) if whose == "recipients" else Openers(Password("right", kdf=CHEAP))
    with pytest.raises(UserError, match=r"^(photo\.png|manifest): [^\n]{10,250}$"):
        opener.open(Manifest.from_json(MANIFEST.locked(lock).to_json()).lock, "photo.png")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_rubbish_behind_the_beginning_of_age_is_refused_in_one_line(rubbish):
    lock = replace(LOCK, wrapped=WrappedKey(AGE_BEGINNING + b"-> X25519 " + rubbish, LOCK.wrapped.password))
    with pytest.raises(WrongIdentityError) as caught:
        by(ANNA).open(lock, "photo.png")
    one_line(caught.value)


def test_what_opens_but_is_no_key_is_refused():
    lock = replace(LOCK, wrapped=WrappedKey(wrap(b"short", [ANNA.recipient])))
    with pytest.raises(UserError, match="was it forged"):
        by(ANNA).open(lock, "photo.png")


@pytest.mark.parametrize("text", ["", "age1", "age1" + "q" * 58, "ssh-ed25519 AAAA", "one too long", "\x1b[31m"])
def test_a_recipient_that_is_no_key_is_one_line(text):
    if text == "one too long":
        text = ANNA.recipient + "q"
    with pytest.raises(UserError, match="no key of a recipient") as caught:
        checked_recipient(text, "--to")
    assert caught.value.args[0].isprintable()


def test_a_secret_key_given_as_a_recipient_is_not_shown():
    for text in (ANNA.secret_text(), ANNA.secret_text().lower()):
        with pytest.raises(UserError, match="secret key") as caught:
            checked_recipient(text, "--to")
        assert text[20:30] not in str(caught.value)


def test_more_recipients_than_a_file_holds_are_refused():
    many = [Identity.new().recipient for _ in range(101)]
    manifest = MANIFEST.locked(Openers(recipients=many[:100]).new_key()[1])
    assert Manifest.from_json(manifest.to_json()).wrapped.count == 100
    with pytest.raises(UserError, match="at most 100"):
        Openers(recipients=many)


def test_secrets_show_nowhere():
    for thing in (ANNA, BOTH, by(ANNA)):
        assert "hidden" in repr(thing)
        for way in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled"):
                way(thing)


def test_an_identity_lies_on_the_disk_under_its_passphrase_for_its_owner_alone(tmp_path):
    file = tmp_path / "anna.key"
    write_identity(file, ANNA, "a passphrase")
    if sys.platform != "win32":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"SECRET" not in file.read_bytes()
    assert is_protected(file)
    assert read_identity(file, lambda: "a passphrase").recipient == ANNA.recipient
    with pytest.raises(UserError, match="wrong passphrase") as caught:
        read_identity(file, lambda: "another")
    assert "another" not in str(caught.value)


def test_an_identity_of_age_keygen_needs_no_passphrase(tmp_path):
    file = tmp_path / "court.txt"
    file.write_text(f"# created: today\n# public key: {EVE.recipient}\n{EVE.secret_text()}\n{BEN.secret_text()}\n")
    assert not is_protected(file)
    both = read_identity(file, lambda: pytest.fail("asked"))
    assert Openers(identity=both).open(LOCK, "photo.png") == SECRET


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"\xff\xfe\x00", b"AGE-SECRET-KEY-1QQQQ\n", b"x" * 70_000])
def test_a_file_that_is_no_identity_is_one_line(tmp_path, content):
    file = tmp_path / "me.key"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"me\.key") as caught:
        read_identity(file, lambda: "word")
    assert "\n" not in str(caught.value)
    assert "QQQQ" not in str(caught.value)


@pytest.mark.parametrize("text", [" {}", "key={}", "recipient: {}"])
def test_a_secret_key_anywhere_in_a_recipient_is_not_shown(tmp_path, text):
    secret = ANNA.secret_text()
    file = tmp_path / "anna.pub"
    for encoding in ("utf-8", "utf-16-le"):
        file.write_bytes(text.format(secret).encode(encoding))
        for text_given in (text.format(secret), str(file)):
            with pytest.raises(UserError, match="secret key") as caught:
                recipients_of([text_given])
            assert secret[20:30] not in str(caught.value)


def test_a_secret_key_in_the_place_of_its_file_is_not_shown():
    with pytest.raises(UserError, match="secret key") as caught:
        read_identity(Path(ANNA.secret_text()), lambda: "words")
    assert ANNA.secret_text()[20:30] not in str(caught.value)


def test_an_identity_that_comes_in_the_meantime_is_not_replaced(tmp_path):
    file = tmp_path / "anna.key"
    write_identity(file, ANNA, "words")
    with pytest.raises(UserError, match="exists; choose another name"):
        write_identity(file, Identity.new(), "words")
    assert read_identity(file, lambda: "words").recipient == ANNA.recipient
    assert [found.name for found in tmp_path.iterdir()] == ["anna.key"]


@pytest.mark.parametrize("armored", [True, False])
def test_an_identity_that_would_take_all_memory_is_refused_before_it_does(tmp_path, armored):
    data = AGE_BEGINNING + b"-> scrypt bBjlhJVYZeE4aqUdmtRHfw 23\nZV/AhotwSGqaPCU43cepl4WYUouAa17a3xpu4G2yi5k\n--- "
    if armored:
        data = ARMOR + b"\n" + base64.encodebytes(data)
    (tmp_path / "big.key").write_bytes(data)
    with pytest.raises(UserError, match=r"2\^23 rounds of scrypt"):
        read_identity(tmp_path / "big.key", lambda: "words")
