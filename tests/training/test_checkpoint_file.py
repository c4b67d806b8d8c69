"""Checkpoints on disk: whole or not there."""

import errno
import os

import pytest
import torch

from faceanon.errors import UserError
from faceanon.training import checkpoint_file
from faceanon.training.checkpoint_file import DamagedError, check, newest, newest_or_refuse, read_checkpoint
from faceanon.training.checkpoint_file import write_checkpoint as write

CONTENT = {"state_dict": {"weight": torch.arange(1000.0)}, "random": (3, (1, 2), None)}


def test_round_trip_and_plain_torch_reads_it(tmp_path):
    path = tmp_path / "deep/last.ckpt"
    write(CONTENT, path)
    for found in (read_checkpoint(path), read_checkpoint(path, mapped=True), torch.load(path, weights_only=True)):
        assert torch.equal(found["state_dict"]["weight"], CONTENT["state_dict"]["weight"])
        assert found["random"] == CONTENT["random"]
    assert [item.name for item in path.parent.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize("place", [10, 3000, -200])
def test_a_flipped_bit_is_found(tmp_path, place):
    path = tmp_path / "last.ckpt"
    write(CONTENT, path)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedError, match="damaged"):
        read_checkpoint(path)


@pytest.mark.parametrize("size", [0, 1, 100, 3000])
def test_a_cut_file_is_found(tmp_path, size):
    path = tmp_path / "last.ckpt"
    write(CONTENT, path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DamagedError, match="damaged"):
        read_checkpoint(path)


def test_one_of_another_program_needs_no_hash(tmp_path):
    torch.save(CONTENT, tmp_path / "other.ckpt")
    check(tmp_path / "other.ckpt")
    assert read_checkpoint(tmp_path / "other.ckpt")["random"] == CONTENT["random"]


class Harm:
    def __reduce__(self):
        return os.mkdir, ("harm",)


def test_nothing_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {}, "more": Harm()}, "bad.ckpt")
    with pytest.raises(DamagedError):
        read_checkpoint(tmp_path / "bad.ckpt")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("step", ["_seal", "torch.save"])
def test_a_full_disk_leaves_the_old_one(tmp_path, monkeypatch, step):
    path = tmp_path / "last.ckpt"
    write(CONTENT, path)
    before = path.read_bytes()

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"faceanon.training.checkpoint_file.{step}", full)
    with pytest.raises(OSError, match="No space"):
        write({"state_dict": {}}, path)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["last.ckpt"]


def test_the_newest_whole_one_wins(tmp_path):
    for age, name in enumerate(("previous.ckpt", "last.ckpt", "new.ckpt")):
        write(CONTENT, tmp_path / name)
        os.utime(tmp_path / name, ns=(age, age))
    assert newest([tmp_path]) == (tmp_path / "new.ckpt", [])
    (tmp_path / "new.ckpt").write_bytes(b"")
    os.utime(tmp_path / "new.ckpt", ns=(9, 9))
    path, line = newest_or_refuse([tmp_path])
    assert path == tmp_path / "last.ckpt"
    assert line == f"{tmp_path / 'new.ckpt'} is damaged; resuming from the one before, {path}"
    for name in (checkpoint_file.LAST, checkpoint_file.PREVIOUS):
        (tmp_path / name).write_bytes(b"rubbish")
    with pytest.raises(UserError, match="every checkpoint is damaged"):
        newest_or_refuse([tmp_path])
    assert newest([tmp_path / "none"]) == (None, [])
