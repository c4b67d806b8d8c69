import pytest
from lightning.fabric.utilities.distributed import DistributedSamplerWrapper

from faceanon.data.batches import ShuffledBatches, hold_out, person_major


def test_hold_out_is_stable_when_a_person_joins():
    names = [f"p{i}" for i in range(50)]
    _, test = hold_out(names, 5, 10, seed=0)
    _, grown = hold_out([*names, "new"], 5, 10, seed=0)
    assert len(test & grown) >= 9


def test_order_follows_from_seed_and_epoch_alone():
    def order(seed, epoch):
        return list(ShuffledBatches([-1] * 20, 4, seed, lambda: epoch, mirror=True))

    assert order(0, 3) == order(0, 3)
    assert order(0, 3) != order(0, 4)
    assert order(0, 3) != order(1, 3)
    assert sorted(row for batch in order(0, 0) for row, _ in batch) == list(range(20))
    assert {flip for batch in order(0, 0) for _, flip in batch} == {True, False}


def test_two_processes_get_different_batches_of_one_epoch():
    epoch = [0]
    order = ShuffledBatches([-1] * 16, 4, 0, lambda: epoch[0])
    ranks = [DistributedSamplerWrapper(order, num_replicas=2, rank=rank, shuffle=False) for rank in range(2)]
    dealt = [list(rank) for rank in ranks]
    assert sorted(row for batches in dealt for batch in batches for row, _ in batch) == list(range(16))
    epoch[0] = 1
    assert [list(rank) for rank in ranks] != dealt


def test_pairs_of_one_person_in_training():
    labels = [number // 3 for number in range(30)]
    for batch in ShuffledBatches(labels, 8, 0, lambda: 0, pairs=0.5):
        rows = [row for row, _ in batch]
        assert len(rows) == 8
        for left, right in ((0, 1), (2, 3)):
            assert rows[left] != rows[right]
            assert labels[rows[left]] == labels[rows[right]]


def test_an_epoch_of_a_given_length_goes_through_all_pictures_before_any_comes_again():
    order = ShuffledBatches([-1] * 10, 4, 0, lambda: 0, batches=6)
    batches = list(order)
    assert len(batches) == len(order) == 6
    rows = [row for batch in batches for row, _ in batch]
    assert len(rows) == 24
    assert sorted(rows[:10]) == sorted(rows[10:20]) == list(range(10))
    assert rows[:10] != rows[10:20]
    halves = [list(ShuffledBatches([-1] * 10, 4, 0, lambda: 0, ranks=2, rank=rank, batches=3)) for rank in (0, 1)]
    assert [batch for pair in zip(*halves, strict=True) for batch in pair] == batches


@pytest.mark.parametrize("size", [3, 4, 5, 7, 16])
def test_test_batches_keep_a_person_together(size):
    counts = [1, 2, 3, 4, 5, 9, 1, 17, 2, 2, 3]
    labels = [-1] * 5 + [person for person, count in enumerate(counts) for _ in range(count)]
    batches = person_major(labels, size)
    assert sorted(row for batch in batches for row in batch) == list(range(len(labels)))
    for batch in batches:
        assert len(batch) <= size
        for person in {labels[row] for row in batch} - {-1}:
            together = sum(labels[row] == person for row in batch)
            assert together >= min(2, counts[person])
