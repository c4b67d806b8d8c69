"""Threads leave each other their cores, and their results come in the order of the work."""

import threading
import time

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController

from faceanon.pipeline.process import one_core_for_numpy
from faceanon.pipeline.threads import in_order, threads


def cores_of_numpy():
    np.eye(2) @ np.eye(2)
    return [found["num_threads"] for found in ThreadpoolController().info() if found["internal_api"] == "openblas"]


@pytest.fixture
def three_cores():
    """Torch and numpy take three cores, as many as a machine may have."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    with ThreadpoolController().limit(limits=3, user_api="blas"):
        yield
    torch.set_num_threads(before)


def test_torch_and_numpy_use_what_they_are_told_and_all_again_afterwards(three_cores):
    assert cores_of_numpy()  # OpenBLAS is what numpy's wheels bring
    with threads("some", 2, 1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 1
        assert torch.get_num_threads() == 1
        assert set(cores_of_numpy()) == {1}
    assert torch.get_num_threads() == 3
    assert set(cores_of_numpy()) == {3}


def test_cores_come_back_after_an_error(three_cores):
    with pytest.raises(ZeroDivisionError), threads("some", 2, 1) as pool:
        pool.submit(lambda: 1 // 0).result()
    assert torch.get_num_threads() == 3
    assert set(cores_of_numpy()) == {3}


def test_a_command_leaves_numpy_one_core(three_cores):
    one_core_for_numpy()
    assert set(cores_of_numpy()) == {1}
    assert torch.get_num_threads() == 3


def test_results_come_in_the_order_of_the_work():
    later = threading.Event()

    def work(number):
        # The first piece ends after the second one.
        if number == 0:
            assert later.wait(30)
        elif number == 1:
            later.set()
        return number * 10

    with threads("some", 2, 1) as pool:
        assert list(in_order(pool, work, range(5), 3)) == [0, 10, 20, 30, 40]


def test_no_more_is_taken_than_there_is_room_for():
    taken = []

    def items():
        for number in range(10):
            taken.append(number)
            yield number

    with threads("some", 2, 1) as pool:
        for ended, _ in enumerate(in_order(pool, lambda number: time.sleep(0.001), items(), 3)):
            assert len(taken) - ended <= 3
    assert len(taken) == 10


def test_an_error_of_the_work_is_raised_in_its_place():
    with threads("some", 2, 1) as pool:
        results = in_order(pool, lambda number: 6 // number, [1, 2, 0, 3], 2)
        assert [next(results), next(results)] == [6, 3]
        with pytest.raises(ZeroDivisionError):
            next(results)
