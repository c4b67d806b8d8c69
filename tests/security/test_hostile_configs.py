"""Mutated configurations at the command line's parser: what was meant, or one line; nothing runs but what is named."""

import io
from contextlib import redirect_stderr, redirect_stdout

import pytest
import yaml
from hostile import altered, asked, fuzz, mutated
from hypothesis import example, given
from test_hostile_checkpoints import CONFIG

from faceanon.errors import UserError
from faceanon.files import CARD_ENTRIES, is_bounded, read_yaml
from faceanon.metrics.protocol import folder, load_protocol
from faceanon.training.cli import run

NAMES = ("class_path", "init_args", "backbone", "train_batches", "accelerator", "model", "data", "trainer")
TEXT = yaml.safe_dump(CONFIG).encode()


def bomb(levels, width):
    """A few lines of YAML that unfold to `width ** levels` entries."""
    lines = ["a0: &a0 [" + ",".join("x" * width) + "]"]
    lines += [f"a{n}: &a{n} [" + ",".join([f"*a{n - 1}"] * width) + "]" for n in range(1, levels)]
    return "\n".join(lines).encode()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("configs")


def parse(place, data):
    """Ask for the finished configuration; nothing is built, trained or written."""
    path = place / "c.yaml"
    path.write_bytes(data)
    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()):
        try:
            asked(run, ["fit", "--config", str(path), "--print_config"])
        except SystemExit:  # printed
            return yaml.safe_load(printed.getvalue())
    assert [item.name for item in place.iterdir()] == ["c.yaml"]
    return None


def test_the_unaltered_config_is_read(place):
    assert parse(place, TEXT)["data"]["init_args"]["train_batches"] == 2


@fuzz(12)
@given(config=altered(CONFIG, NAMES))
def test_altered_configs(place, config):
    parse(place, yaml.safe_dump(config).encode("utf-8", "surrogatepass"))


@fuzz(12)
@given(data=mutated([TEXT]))
@example(data=b"model: &a\n  b: *a\n")
@example(data=bomb(9, 9))
@example(data=b"\xff\xfe")
@example(data=b"\0")
@example(data=b"[" * 3000)
@example(data=TEXT.replace(b"train_batches: 2", b"train_batches: " + b"9" * 5000))
@example(data=b"model: !!python/object/apply:os.system ['touch canary']\n")
def test_mutated_configs(place, data):
    """An alias to itself once kept the parser busy without end; wrong UTF-8 and long numbers left tracebacks."""
    parse(place, data)


def test_a_class_that_is_no_part_of_a_training(place):
    for name in ("os.system", "pathlib.Path", "subprocess.Popen"):
        config = {**CONFIG, "data": {"class_path": name, "init_args": {"train_batches": 2}}}
        assert parse(place, yaml.safe_dump(config).encode()) is None


PROTOCOL = yaml.safe_load((folder() / "photo128-v1.yaml").read_text())


@fuzz(30)
@given(values=altered(PROTOCOL, tuple(PROTOCOL)))
def test_altered_protocols(place, values):
    path = place / "protocol.yaml"
    path.write_bytes(yaml.safe_dump(values).encode("utf-8", "surrogatepass"))
    asked(load_protocol, path)
    path.unlink()


@fuzz(30)
@given(data=mutated([TEXT]))
@example(data=bomb(9, 9))
@example(data=b"a: &a [*a]")
@example(data=b"{" * 3000)
@example(data=b"- a")
@example(data=b"1: a")
@example(data=b"a: 2001-99-99")
def test_any_yaml(place, data):
    path = place / "any.yaml"
    path.write_bytes(data)
    found = asked(read_yaml, path)
    assert found is None or is_bounded(found)
    path.unlink()


def test_bounds(tmp_path):
    assert is_bounded(list(range(CARD_ENTRIES - 1)))
    assert not is_bounded(list(range(CARD_ENTRIES)))  # and the list itself
    (tmp_path / "a.yaml").write_bytes(b"a: " + b"x" * 4_000_001)
    with pytest.raises(UserError, match="too large"):
        read_yaml(tmp_path / "a.yaml")
