"""Measuring itself, on cases that cost nothing: what is counted, what is told apart, what is kept when one fails."""

import os
from pathlib import Path

import fake_case
import pytest
import torch
from fake_case import FAKES, HELD, QUICK, SIDE

from bench.cases import CASES, Case, Work, choose, register, shipped
from bench.measure import _blank, groups, measure
from bench.probe import Memory, Sample, count_flops, sample
from bench.record import BenchFigure
from bench.runners import Apart, CaseFailedError
from bench.settings import Settings
from faceanon.errors import UserError
from faceanon.losses.adversarial import r1_penalty


@pytest.fixture
def small_peaks(monkeypatch):
    """Peaks that take no time: what they are is tested once, by the command."""
    monkeypatch.setattr("bench.peak.SIDE", 16)
    monkeypatch.setattr("bench.peak.CHANNELS", 4)
    monkeypatch.setattr("bench.peak.MAP", 8)
    monkeypatch.setattr("bench.worker.LEAST", 1e-4)


def test_flops_of_products_convolutions_and_second_derivatives():
    assert count_flops(FAKES["product"].build(QUICK)) == pytest.approx(2 * SIDE**3 / 1e9)
    image, net = torch.rand(1, 3, 8, 8), torch.nn.Conv2d(3, 5, 3, padding=1, bias=False)
    forward = 2 * 9 * 3 * 5 * 64
    assert count_flops(Work(lambda: net(image))) == pytest.approx(forward / 1e9)
    # R1: forward, gradient to the picture, gradient of that to the weights: three convolutions' worth at least.
    assert count_flops(Work(lambda: r1_penalty(net, image).backward())) >= 3 * forward / 1e9

    def inferring():
        with torch.inference_mode():
            net(image)

    assert count_flops(Work(inferring)) == pytest.approx(forward / 1e9)


def test_flops_are_counted_where_the_work_is_done():
    work = FAKES["threaded"].build(QUICK)
    assert count_flops(work) == pytest.approx(2 * SIDE**3 / 1e9)
    assert count_flops(Work(lambda: None)) is None


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the largest memory can be reset on Linux only")
def test_memory_is_what_the_call_adds_to_what_is_held():
    memory = Memory(QUICK)
    work = FAKES["large"].build(QUICK)
    found = sample(work, QUICK, memory)
    held = HELD * 4 / 2**20
    assert found.working == pytest.approx(2 * held, rel=0.25)
    assert found.memory == pytest.approx(3 * held, rel=0.25)
    small = sample(FAKES["product"].build(QUICK), QUICK, Memory(QUICK))
    assert small.working < held / 2, "the largest memory was not reset"


@pytest.mark.usefixtures("small_peaks")
def test_cases_go_in_turns_and_the_peak_is_measured_before_each_sample(monkeypatch):
    order = []
    real = sample

    def watched(work, settings, memory, repeats=1):
        order.append(work.images)
        return real(work, settings, memory, repeats)

    def build(images):
        one = torch.ones(SIDE, SIDE)
        return lambda settings: Work(lambda: one @ one, images=images)

    monkeypatch.setattr("bench.worker.sample", watched)
    cases = [Case(f"turn-{images}", "of this test", build(images)) for images in (10, 11, 12)]
    run = measure(cases, QUICK, rounds=2, together=2, apart=False)
    assert [images for images in order if images != 1] == [10, 11, 10, 11, 12, 12]
    assert order[:3] == [1, 1, 10], "both peaks stand before the sample"
    for figure in run.figures:
        assert len(figure.samples) == 2
        assert {len(rates["cpu"]) for rates in figure.peaks.values()} == {2}
        assert set(figure.peaks) == {"peak-matmul", "peak-conv3x3"}


@pytest.mark.usefixtures("small_peaks")
def test_a_case_that_fails_says_why_and_the_others_go_on():
    kept = []
    chosen = [FAKES["broken"], FAKES["product"]]
    run = measure(chosen, QUICK, rounds=1, together=1, apart=False, keep=lambda run: kept.append(len(run.figures)))
    broken, product = run.figures
    assert broken.failed == "RuntimeError: no such thing"
    assert product.failed is None
    assert product.gflop == pytest.approx(2 * SIDE**3 / 1e9)
    assert product.images == 2
    assert kept == [1, 2], "what is measured is handed out after each group"


def test_a_dead_process_is_told_and_its_case_alone_is_lost():
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(fake_case.__file__).parent), path])
    try:
        runner = Apart(FAKES["dying"], QUICK, 0)
    finally:
        os.environ["PYTHONPATH"] = path
    with pytest.raises(CaseFailedError, match="its process ended with 7"):
        runner.prepare()
    runner.close()


def test_heavy_cases_stay_alone():
    def case(name, heavy=False):
        return Case(name, "", fake_case.product, heavy=heavy)

    chosen = [case("a"), case("b"), case("c", heavy=True), case("d"), case("e"), case("f")]
    assert [[one.name for one in group] for group in groups(chosen, 2)] == [["a", "b"], ["c"], ["d", "e"], ["f"]]


def test_what_a_case_does_not_heed_is_said():
    case = Case("x", "", fake_case.product, uses=frozenset({"device"}))
    assert _blank(case, Settings(precision="bf16", threads=2)).ignored == ["precision"]
    assert _blank(case, Settings()).ignored == []
    assert _blank(Case("y", "", fake_case.product, uses=frozenset()), Settings(device="cuda")).ignored == ["device"]


def test_every_shipped_case_can_be_found_by_its_process():
    cases = shipped()
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        if case.name.startswith("fake-"):
            continue
        assert case.module.startswith("bench."), case.name
        assert case.about
    with pytest.raises(ValueError, match="a case 'stage2' already"):
        register(CASES["stage2"])


def test_choosing_by_name_and_pattern():
    cases = shipped()
    assert [case.name for case in choose(["stage?"], cases)] == ["stage1", "stage2"]
    assert all(case.usual for case in choose([], cases))
    assert [case.name for case in choose(["start-help", "edit-b1"], cases)] == ["edit-b1", "start-help"]
    with pytest.raises(UserError, match="no case 'stage9'"):
        choose(["stage2", "stage9"], cases)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"precision": "64"}, "give one of 32, bf16, 16"),
        ({"precision": "16"}, "for --device cuda"),
        ({"tf32": True}, "for --device cuda"),
        ({"threads": 0}, "at least 1"),
    ],
)
def test_settings_that_make_no_sense(wrong, told):
    with pytest.raises(UserError, match=told):
        Settings(**wrong)


def test_figures_are_medians_against_the_peak_of_their_own_rounds():
    samples = [Sample(2.0, 1.0, 10.0, 5.0), Sample(4.0, 3.0, 30.0, 5.0), Sample(3.0, 2.0, 20.0, None)]
    peaks = {
        "peak-matmul": {"wall": [10.0, 10.0, 10.0], "cpu": [40.0, 60.0, 50.0]},
        "peak-conv3x3": {"wall": [], "cpu": []},
    }
    figure = BenchFigure("x", images=4, gflop=50.0, samples=samples, peaks=peaks)
    assert figure.median("cpu") == 2.0
    assert figure.rate("cpu") == 25.0
    assert figure.fraction("cpu") == 0.5
    assert figure.cost("cpu") == 2.0 * 50 / 4
    assert figure.largest("memory") == 30.0
    assert figure.spread("cpu") == pytest.approx(0.5)
    assert figure.summary()["per_second"] == pytest.approx(4 / 3)
    assert BenchFigure("y").summary()["fraction_cpu"] is None
