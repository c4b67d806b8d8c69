"""Safetensors files in Huffman code: the same numbers, fewer bytes, and nothing that a stranger's file could fill."""

import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from faceanon.errors import UserError
from faceanon.files import load_arrays, load_tensors, save_tensors
from faceanon.packed import MOST_GROWTH, PACKED, pack, unpack


@given(st.binary(max_size=3000))
def test_bytes_come_back(data):
    assert unpack(pack(data)) == data


def test_numbers_come_back_from_fewer_bytes_by_both_ways_of_reading(tmp_path):
    draw = torch.Generator().manual_seed(0)
    tensors = {
        "few": torch.randn(256, 512, generator=draw),
        "fewer": torch.randn(256, 512, generator=draw),
        "half": torch.randn(8, 8, generator=draw),
        "count": torch.tensor(7),
    }
    plain, coded = tmp_path / "plain.safetensors", tmp_path / "coded.safetensors"
    how = {"half": True, "int8": True, "int4": ["fewer"]}
    save_tensors(plain, tensors, {"class": "Net"}, **how)
    digest = save_tensors(coded, tensors, {"class": "Net"}, huffman=True, **how)
    assert coded.stat().st_size < 0.93 * plain.stat().st_size
    assert set(load_file(coded)) == {PACKED}
    with safe_open(coded, "np") as file:
        assert file.metadata() == {"class": "Net"}
    expected = load_tensors(plain)
    found = load_tensors(coded, digest)
    arrays = load_arrays(coded, expected=digest)
    assert found.keys() == arrays.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
        assert np.array_equal(arrays[name], tensor.numpy().astype(np.float32))


def test_fewer_steps_are_less_exact_and_shorter_and_the_same_the_second_time(tmp_path):
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(1))
    sizes, errors = [], []
    for steps in (127, 31, 6):
        path = tmp_path / f"{steps}.safetensors"
        digest = save_tensors(path, {"w": weight}, steps={"w": steps}, huffman=True)
        found = load_tensors(path)
        largest = weight.abs().amax(1, keepdim=True)
        assert ((found["w"] - weight).abs() <= largest / (2 * steps) * (1 + 1e-4)).all()
        assert save_tensors(path, found, steps={"w": steps}, huffman=True) == digest
        sizes.append(path.stat().st_size)
        errors.append(float((found["w"] - weight).norm()))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[2] < 0.6 * sizes[0]
    assert errors == sorted(errors)


def cut_off(coded):
    return coded[: len(coded) // 2]


def with_more(coded):
    return coded + b"more"


def with_a_wrong_sum(coded):
    return coded[:-1] + bytes([coded[-1] ^ 1])


def bomb(coded):
    return zlib.compress(bytes(1_000_000), 9)


@pytest.mark.parametrize("damage", [cut_off, with_more, with_a_wrong_sum, bomb])
@pytest.mark.parametrize("read", [load_tensors, load_arrays])
def test_damage_is_one_clear_line(tmp_path, damage, read):
    path = tmp_path / "a.safetensors"
    save_tensors(path, {"w": torch.randn(64, 64)}, huffman=True)
    coded = load_file(path)[PACKED].numpy().tobytes()
    broken = np.frombuffer(damage(coded), np.uint8).copy()
    save_file({PACKED: torch.from_numpy(broken)}, path)
    with pytest.raises(UserError, match=r"a\.safetensors is not a readable safetensors file \(damaged Huffman code"):
        read(path)


def test_a_bomb_is_stopped_before_it_is_unfolded():
    coded = zlib.compress(bytes(100_000_000), 9)
    assert len(coded) * MOST_GROWTH < 1_000_000
    with pytest.raises(ValueError, match="does not end"):
        unpack(coded)


def test_the_name_is_reserved(tmp_path):
    with pytest.raises(UserError, match="reserved"):
        save_tensors(tmp_path / "a.safetensors", {PACKED: torch.zeros(3)})


def test_bytes_at_hand_are_checked_like_a_file(tmp_path):
    path = tmp_path / "a.safetensors"
    digest = save_tensors(path, {"w": torch.ones(2)})
    data = path.read_bytes()
    assert load_arrays(path, data, digest)["w"].tolist() == [1.0, 1.0]
    with pytest.raises(UserError, match=r"is not the file its card describes"):
        load_arrays(path, data, "0" * 64)
