"""Every network case is built and run, its FLOPs counted; the networks are tiny here."""

from functools import partial

import pytest

from bench import networks
from bench.cases import CASES
from bench.settings import Settings
from bench.worker import Bench

CHANNELS = {4: 16, 8: 16, 16: 16, 32: 8}
TINY = {
    "SIZE": 32,
    "ROWS": 8,
    "WIDTH": 16,
    "Generator": partial(networks.Generator, style_dim=16, channels=CHANNELS),
    "Discriminator": partial(networks.Discriminator, channels=CHANNELS),
    "Encoder4Editing": partial(
        networks.Encoder4Editing, style_dim=16, input_size=32, widths=(8, 8, 8, 16, 16), units=(1, 1, 1, 1)
    ),
}
OWN = [case for case in CASES.values() if case.module == networks.__name__]


@pytest.fixture(scope="module")
def figures():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in TINY.items():
            patch.setattr(networks, name, value)
        found = {}
        for case in OWN:
            bench = Bench(case, Settings(), warmup=0)
            found[case.name] = bench.facts()["gflop"], bench.work.images, bench.sample().cpu
        return found


def test_every_case_names_the_module_that_registers_it():
    assert len(OWN) == len(networks.BATCHES) * len(networks._KINDS)


@pytest.mark.slow
def test_every_case_runs(figures):
    assert all(gflop > 0 and cpu > 0 for gflop, _, cpu in figures.values())


def test_four_pictures_are_four_times_the_work(figures):
    for name, *_ in networks._KINDS:
        one, four = (figures[f"{name}-b{batch}"] for batch in (1, 4))
        assert (one[1], four[1]) == (1, 4)
        assert four[0] == pytest.approx(4 * one[0], rel=0.1), name


def test_gradients_and_r1_are_counted(figures):
    gflop = {name: found[0] for name, found in figures.items()}
    assert 2 < gflop["generator-training-b1"] / gflop["generator-b1"] < 3.5
    assert 2 < gflop["discriminator-training-b1"] / gflop["discriminator-b1"] < 3.5
    assert gflop["discriminator-r1-b1"] > 1.5 * gflop["discriminator-training-b1"]
