"""Sealed codes: what opens them, and what each changed byte leads to."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.sealed.envelope import LENGTH, NONCE, OVERHEAD, SIZES, binding_of, check_sealed, seal, sealed_size, unseal

WEIGHTS = "ab" * 32
PLACE = (100.5, 80.25, 30.0, -4.0, 640, 480)
BINDING = binding_of(WEIGHTS, PLACE)
SECRET = Secret.random(1)
CODE = bytes(range(250)) * 4


@settings(deadline=None, max_examples=50)
@given(code=st.binary(max_size=3000))
def test_what_was_sealed_comes_back(code):
    sealed = seal(code, SECRET, BINDING)
    assert unseal(sealed, SECRET, BINDING, "x.png") == code
    assert len(sealed) == sealed_size(len(code))


def test_lengths_of_a_few_sizes_hide_the_codes():
    assert len({len(seal(bytes(count), SECRET, BINDING)) for count in range(1030, 1240)}) == 1
    assert sealed_size(SIZES[-1] - OVERHEAD) == SIZES[-1]
    with pytest.raises(ValueError, match="too long"):
        seal(bytes(SIZES[-1] - OVERHEAD + 1), SECRET, BINDING)


def test_two_seals_of_one_code_differ_everywhere():
    one = seal(CODE, SECRET, BINDING)
    other = seal(CODE, SECRET, BINDING)
    assert one[1 : 1 + NONCE] != other[1 : 1 + NONCE]
    same = sum(a == b for a, b in zip(one[1:], other[1:], strict=True))
    assert same < len(one) / 20


def test_nothing_of_the_code_stands_in_the_clear():
    sealed = seal(b"the same words again and again " * 20, SECRET, BINDING)
    assert b"same" not in sealed


@pytest.mark.parametrize("secret", [Secret.random(2), Secret.random(3)])
def test_another_password_opens_nothing(secret):
    with pytest.raises(UserError, match=r"x\.png: wrong password"):
        unseal(seal(CODE, SECRET, BINDING), secret, BINDING, "x.png")


@pytest.mark.parametrize(
    "binding",
    [
        binding_of("cd" * 32, PLACE),
        binding_of(WEIGHTS, (100.5, 80.25, 30.0, -4.0, 640, 481)),
        binding_of(WEIGHTS, (100.25, 80.25, 30.0, -4.0, 640, 480)),
    ],
)
def test_another_model_or_place_opens_nothing(binding):
    with pytest.raises(UserError, match="tampered"):
        unseal(seal(CODE, SECRET, BINDING), SECRET, binding, "x.png")


def test_a_place_is_the_same_as_whole_number_and_as_float():
    assert binding_of(WEIGHTS, (1, 2, 3)) == binding_of(WEIGHTS, (1.0, 2.0, 3.0))


# Version; nonce; first and last byte of the ciphertext, of its padding, of the tag.
@pytest.mark.parametrize("place", [0, 1, NONCE, 1 + NONCE, 1 + NONCE + LENGTH, 600, 1200, -17, -16, -1])
@pytest.mark.parametrize("bit", [1, 128])
def test_every_changed_byte_is_noticed(place, bit):
    sealed = bytearray(seal(CODE, SECRET, BINDING))
    sealed[place] ^= bit
    with pytest.raises(UserError, match=r"x\.png: ") as caught:
        unseal(bytes(sealed), SECRET, BINDING, "x.png")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("length", [0, 1, 100, 1279, 1281])
def test_another_length_is_refused_before_any_password(length):
    sealed = (seal(CODE, SECRET, BINDING) + bytes(2))[:length]
    with pytest.raises(UserError, match=r"cut short|version"):
        check_sealed(sealed, "x.png")


def test_a_shorter_size_of_the_list_does_not_open():
    with pytest.raises(UserError, match="tampered"):
        unseal(seal(CODE, SECRET, BINDING)[:1024], SECRET, BINDING, "x.png")


@settings(deadline=None, max_examples=50)
@given(data=st.binary(min_size=256, max_size=256))
def test_bytes_of_any_origin_raise_nothing_but_a_user_error(data):
    for sealed in (data, b"\x01" + data[1:]):
        with pytest.raises(UserError):
            unseal(sealed, SECRET, BINDING, "x.png")
