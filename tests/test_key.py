import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password, Secret, new_salt

SALT = bytes(range(16))
CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
PASSWORD = "correct horse"


def test_default_derivation_never_changes():
    secret = Secret.from_password(PASSWORD, SALT)
    assert secret.stream("a", 32).hex() == "2046c6d008fdb18bd6e5e1ecdeeecf95dfcf7e8484e6d9f9fa3bb285b441769a"
    assert secret.stream("b", 8).hex() == "3ec39e830d60caea"


def test_numbers_never_change():
    secret = Secret.from_password(PASSWORD, SALT, CHEAP)
    assert secret.stream("a", 32).hex() == "c08085918425e9d127c3a935385317984a93f0648f4cca562b384d309940e0f8"
    normal = [0.9837695, -1.983899, 0.90211505, 0.47734016, -2.3686965]
    np.testing.assert_allclose(secret.normal("n", (5,)), normal, rtol=1e-6)
    np.testing.assert_allclose(secret.uniform("u", (3,)), [0.42965454, 0.83090395, 0.81060284], rtol=1e-6)
    assert Secret.random(7).stream("a", 16).hex() == "ca115892f30f2b1eb83fcfd4d43de40f"


def test_another_process_derives_the_same():
    code = (
        "from faceanon.key import *; import sys;"
        "s = Secret.from_password('correct horse', bytes(range(16)), KdfParameters('argon2id', 64, 1, 1));"
        "assert 'torch' not in sys.modules; print(s.stream('a', 8).hex())"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "c08085918425e9d1"


@pytest.mark.parametrize("n", [0, 1, 31, 200])
def test_a_stream_is_a_prefix_of_a_longer_one(n):
    secret = Secret.random(1)
    assert secret.stream("x", 10_000)[:n] == secret.stream("x", n)
    np.testing.assert_array_equal(secret.normal("x", (1001,))[:n], secret.normal("x", (n,)))


def test_labels_salts_passwords_and_costs_separate():
    secrets = [
        Secret.from_password(PASSWORD, SALT, CHEAP),
        Secret.from_password(PASSWORD, SALT[::-1], CHEAP),
        Secret.from_password(PASSWORD + " ", SALT, CHEAP),
        Secret.from_password(PASSWORD, SALT, KdfParameters(memory_kib=64, iterations=2, lanes=1)),
    ]
    streams = {secret.stream(label, 16) for secret in secrets for label in ("a", "b", "ab", "")}
    assert len(streams) == 16
    assert secrets[0] == Secret.from_password(PASSWORD, SALT, CHEAP) != secrets[1]


def test_normals_and_uniforms_have_their_distribution():
    secret = Secret.random(3)
    normal, other, uniform = (
        f(label, (200, 500)) for f, label in ((secret.normal, "n"), (secret.normal, "m"), (secret.uniform, "n"))
    )
    assert normal.dtype == uniform.dtype == np.float32
    assert abs(normal.mean()) < 0.01
    assert abs(normal.std() - 1) < 0.01
    assert abs((np.abs(normal) > 1.96).mean() - 0.05) < 0.003
    assert abs((normal * other).mean()) < 0.01
    assert 0 <= uniform.min() < 0.001 < 0.999 < uniform.max() < 1
    assert abs(uniform.var() - 1 / 12) < 0.001


def test_every_way_to_type_a_password_counts_as_one():
    composed, decomposed = "caf\u00e9 \ufb01", "cafe\u0301 fi"
    assert Secret.from_password(composed, SALT, CHEAP) == Secret.from_password(decomposed, SALT, CHEAP)


@pytest.mark.parametrize("password", ["", "hush\udcff"])
def test_unusable_password_is_refused_without_showing_it(password):
    with pytest.raises(UserError) as caught:
        Secret.from_password(password, SALT, CHEAP)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_empty_salt_is_refused():
    with pytest.raises(ValueError, match="salt is empty"):
        Secret.from_password(PASSWORD, b"", CHEAP)


def test_secrets_do_not_leak():
    secret, password = Secret.random(5), Password("hush hush", SALT, CHEAP)
    master = secret._master
    assert master.hex() not in f"{secret!r} {secret} {vars(type(secret))}"
    assert "hush" not in f"{password!r} {password}"
    for holder in (secret, password):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(holder)
    assert copy.deepcopy({"secret": secret})["secret"] == secret


def test_password_derives_each_salt_once(monkeypatch):
    calls = []
    real = Secret.from_password
    monkeypatch.setattr(Secret, "from_password", lambda *args: calls.append(args) or real(*args))
    password = Password("hush", kdf=CHEAP)
    assert password.secret() is password.secret() is password.secret(password.salt, CHEAP)
    assert password.secret(SALT, CHEAP) != password.secret()
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        ({"memory_kib": 128}, r"0\.125 MiB in 1 passes"),
        ({"iterations": 5}, "in 5 passes"),
        ({"memory_kib": 33, "iterations": 8}, "in 8 passes"),
        ({"memory_kib": 64, "iterations": 4}, None),
        ({"memory_kib": 32, "iterations": 8}, None),
    ],
)
def test_a_password_derives_nothing_dearer_than_it_may(cost, said):
    dearest = KdfParameters(memory_kib=64, iterations=4, lanes=1)
    password, asked = Password(PASSWORD, SALT, CHEAP, most=dearest), KdfParameters(**CHEAP.to_dict() | cost)
    if said is None:
        assert password.secret(SALT, asked) == Password(PASSWORD).secret(SALT, asked)
    else:
        with pytest.raises(UserError, match=f"key derivation: the file asks for .*{said}"):
            password.secret(SALT, asked)


def test_salts_are_fresh():
    assert len({new_salt() for _ in range(50)}) == 50
    assert len(new_salt()) == 16


def test_parameters_survive_a_dictionary():
    assert KdfParameters.from_dict(CHEAP.to_dict()) == CHEAP


@pytest.mark.parametrize(
    "change",
    [
        {"memory_kib": 1 << 30},
        {"memory_kib": 4},
        {"memory_kib": "64"},
        {"memory_kib": True},
        {"iterations": 10**9},
        {"iterations": 1.5},
        {"lanes": 0},
        {"name": "md5"},
        {"version": 16},
        {"extra": 1},
    ],
)
def test_hostile_parameters_are_refused(change):
    with pytest.raises(UserError, match="key derivation"):
        KdfParameters.from_dict(CHEAP.to_dict() | change)
