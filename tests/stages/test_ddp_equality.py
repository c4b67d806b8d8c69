"""Several processes learn what one does: by construction, down to rounding."""

from functools import partial
from itertools import chain

import pytest
import torch
from ddp_worker import OWN_BATCH_ONLY, Case, build, train, train_on
from stage_probes import BlockSampler, crossed_faces
from torch import nn

from faceanon.data.batches import ShuffledBatches
from faceanon.data.jitter import CropJitter
from faceanon.data.streams import stream
from faceanon.errors import UserError
from faceanon.stages.parallel import NormStatistics, Parallel, RowStreams, cut

STAGES = ["prior", "disentangle", "anonymize"]
NO_NEIGHBOURS = {
    # An 8-bit step makes a level of what rounding differs by, and an anchor's L1 a sign: at the start it is 0.
    "anonymize": {"weights": {**OWN_BATCH_ONLY, "anchor": 0.0, "wrong_anchor": 0.0}, "loop": "image"},
    "disentangle": {"weights": {"adversarial": 0.0}, "pairing": "self"},
}
QUICK = ("anonymize",)
MARKED = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in STAGES]


def assert_same_training(found, wanted):
    """All weights, averages and running statistics to 1e-9; validation figures, which see 8-bit steps, to 1e-2.

    Ranks are left out: a rank moves by whole persons where two cosines agree to the last digits.
    """
    assert found["state"].keys() == wanted["state"].keys()
    for name, value in wanted["state"].items():
        torch.testing.assert_close(found["state"][name], value, rtol=1e-9, atol=1e-9, msg=lambda text, n=name: n + text)
    found, wanted = ({k: v for k, v in one["figures"].items() if "rank" not in k} for one in (found, wanted))
    assert found == pytest.approx(wanted, rel=1e-2, abs=1e-2)


def assert_trained(case, result):
    """The comparison says something: weights are far from where they started."""
    start = build(case).state_dict()
    moved = [
        (value - start[name]).abs().max()
        for name, value in result["state"].items()
        if name.endswith("weight") and value.is_floating_point()
    ]
    assert max(moved) > 1e-4


class TestProcesses:
    """Two batches of 4 + 4 pictures and an uneven last one of 4 + 3; R1 at every other step, clipping, EMA."""

    @pytest.mark.parametrize("stage", MARKED)
    def test_two_processes_learn_what_one_does_in_two_parts(self, tiny_bundle, tmp_path, stage):
        case, split = Case(stage, str(tiny_bundle)), Case(stage, str(tiny_bundle), accumulate=2)
        first, second = train_on(2, case, tmp_path)
        alone = train(split)
        assert_trained(case, first)
        assert all(torch.equal(value, second["state"][name]) for name, value in first["state"].items())
        assert_same_training(first, alone)
        assert first["figures"] == second["figures"]
        if stage == "anonymize":
            self.check_draws(alone, first, second)

    @staticmethod
    def check_draws(alone, first, second):
        """Keys differ from process to process, and are those of one process's parts, drawn twice alike."""
        for step, keys in enumerate(zip(first["keys"], second["keys"], strict=True)):
            assert not torch.equal(keys[0][:3], keys[1][:3])
            assert len(torch.cat(keys).flatten(1).unique(dim=0)) == len(torch.cat(keys))
            rehearsed, drawn = alone["keys"][4 * step : 4 * step + 2], alone["keys"][4 * step + 2 : 4 * step + 4]
            for part in (0, 1):
                assert torch.equal(keys[part], rehearsed[part])
                assert torch.equal(keys[part], drawn[part])
                images = (first, second)[part]["images"][step]
                assert torch.equal(images, alone["images"][4 * step + part])

    @pytest.mark.slow
    @pytest.mark.parametrize("stage", ["anonymize", "disentangle"])
    def test_two_processes_learn_what_one_does_at_once_where_pictures_do_not_meet(self, tiny_bundle, tmp_path, stage):
        case = Case(stage, str(tiny_bundle), alone=True, settings=NO_NEIGHBOURS[stage])
        first, second = train_on(2, case, tmp_path)
        whole = train(case)
        assert_trained(case, first)
        assert_same_training(first, whole)
        if stage == "anonymize":
            both = [result["keys"][0] for result in (first, second)]
            versions = torch.cat([keys.unflatten(0, (4, -1)) for keys in both], 1)
            assert torch.equal(versions.flatten(0, 1), whole["keys"][0])

    @pytest.mark.slow
    @pytest.mark.timeout(600)
    @pytest.mark.parametrize("stage", STAGES)
    def test_four_processes_and_two_with_two_parts_each(self, tiny_bundle, tmp_path, stage):
        sizes = (16, 16, 15)
        four = train_on(4, Case(stage, str(tiny_bundle), sizes), tmp_path / "4")
        assert all(torch.equal(value, four[3]["state"][name]) for name, value in four[0]["state"].items())
        assert_same_training(train_on(2, Case(stage, str(tiny_bundle), sizes, 2), tmp_path / "2")[0], four[0])
        assert_same_training(train(Case(stage, str(tiny_bundle), sizes, 4)), four[0])


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["anonymize", "disentangle"])
def test_parts_in_turn_learn_what_the_batch_at_once_does(tiny_bundle, stage):
    cases = [Case(stage, str(tiny_bundle), accumulate=n, alone=True, settings=NO_NEIGHBOURS[stage]) for n in (1, 4)]
    assert_same_training(*map(train, cases))


def test_parts_cover_the_global_batch_and_weigh_by_their_rows():
    batch = crossed_faces(4, 0)
    rows = [6, 5]
    ranks = [cut(batch.map(lambda item, n=n: item[:n]), 2, rows, rank, step=7) for rank, n in enumerate(rows)]
    shards = [shard for rank in ranks for shard in rank]
    assert [len(shard.batch) for shard in shards] == [3, 3, 3, 2]
    assert [shard.first for shard in shards] == [0, 3, 6, 9]
    assert [shard.number for shard in shards] == [28, 29, 30, 31]
    assert [shard.last for shard in shards] == [False, True, False, True]
    gradient = sum(sum(shard.weight for shard in rank) for rank in ranks) / 2  # DDP takes the mean
    assert gradient == pytest.approx(1)
    assert shards[0].weight / shards[3].weight == pytest.approx(3 / 2)
    (lone,) = cut(batch, 1, [len(batch)], 0, 0)
    assert lone.batch is batch
    assert lone.weight == 1
    few = cut(batch.map(lambda item: item[:2]), 4, [2], 0, 0)
    assert [len(shard.batch) for shard in few] == [1, 1]
    assert few[-1].last


def test_a_rows_numbers_do_not_depend_on_who_draws_them():
    def draw(*place):
        streams = RowStreams(*place)
        return streams.draw(partial(torch.randn, 3)), streams.normal_like(torch.zeros(place[-1], 2, 2))

    whole, part = draw(1, 5, 0, 8), draw(1, 5, 4, 4)
    for mine, theirs in zip(whole, part, strict=True):
        assert torch.equal(mine[4:], theirs)
        assert len(mine.unique()) == mine.numel()
    for other in (draw(2, 5, 0, 8), draw(1, 6, 0, 8)):
        assert not torch.equal(other[0], whole[0])


def test_running_statistics_end_at_the_mean_of_all_parts():
    norm, (first, second) = nn.BatchNorm1d(2), torch.randn(2, 6, 2) * torch.tensor([1.0, 5.0])[:, None, None]
    wanted = []
    for rows in (first, second):
        fresh = nn.BatchNorm1d(2)
        fresh(rows)
        wanted.append(fresh.running_var)
    statistics = NormStatistics(norm)
    for index, rows in enumerate((first, second)):
        statistics.load(index)
        norm(rows)
        statistics.keep(index)
    statistics.join({0: 0.25, 1: 0.75})
    torch.testing.assert_close(norm.running_var, wanted[0] / 4 + wanted[1] * 3 / 4)
    assert norm.num_batches_tracked == 1


def test_processes_jitter_their_part_of_the_global_batch():
    batch, jitter = crossed_faces(4, 0), CropJitter(shift=0.1)
    whole = jitter(batch, stream("x"))
    for rank in (0, 1):
        rows = slice(8 * rank, 8 * rank + 8)
        part = jitter(batch.map(lambda item, rows=rows: item[rows]), stream("x"), rank, 2)
        torch.testing.assert_close(part.image, whole.image[rows])


@pytest.mark.parametrize("ranks", [2, 4])
def test_batches_of_all_processes_laid_end_to_end_are_one_processs(ranks):
    def blocks(size, count, rank):
        return list(BlockSampler(96, 4, size, True, 3, count, rank))

    def photos(size, count, rank):
        return list(ShuffledBatches([-1] * 50, size, 3, lambda: 2, 0.0, True, count, rank))

    for deal in (blocks, photos):
        whole = deal(8 * ranks, 1, 0)
        parts = [deal(8, ranks, rank) for rank in range(ranks)]
        assert whole
        assert [list(chain(*batches)) for batches in zip(*parts, strict=True)] == whole


def test_no_parts_is_a_mistake():
    with pytest.raises(UserError, match="accumulate is 0"):
        Parallel(nn.Identity(), accumulate=0)
