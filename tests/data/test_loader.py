"""A loader that starts in the middle of an epoch."""

import pytest
import torch
from torch.utils.data import Dataset, DistributedSampler

from faceanon.data.loader import ResumableLoader


class Numbers(Dataset):
    def __init__(self):
        self.asked = []

    def __len__(self):
        return 6

    def __getitem__(self, index):
        self.asked.append(index)
        return index


def loader(workers):
    data = Numbers()
    sampler = DistributedSampler(data, 1, 0, seed=1)
    return ResumableLoader(
        data, batch_size=None, sampler=sampler, num_workers=workers, persistent_workers=workers > 0
    ), data


def epoch(which, number):
    which.sampler.set_epoch(number)
    return [int(item) for item in which]


@pytest.mark.parametrize("workers", [0, 1])
def test_goes_on_at_the_next_batch_and_later_epochs_are_whole(workers):
    whole, _ = loader(workers)
    expected = [epoch(whole, number) for number in range(3)]
    assert expected[0] != expected[1]
    broken, _ = loader(workers)
    broken.sampler.set_epoch(0)
    batches = iter(broken)
    assert [int(next(batches)) for _ in range(4)] == expected[0][:4]
    state = broken.state_dict()
    resumed, data = loader(workers)
    resumed.load_state_dict(state)
    assert len(resumed) == 6
    batches = iter(resumed)  # Lightning asks for it before it tells the epoch
    resumed.sampler.set_epoch(0)
    assert [int(item) for item in batches] == expected[0][4:]
    if not workers:
        assert data.asked == expected[0][4:]
    assert [epoch(resumed, number) for number in (1, 2)] == expected[1:]


def test_global_random_numbers_stay_untouched():
    before = torch.get_rng_state()
    list(loader(0)[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_an_epoch_that_is_over_starts_again():
    some, _ = loader(0)
    some.load_state_dict({"batches": 6})
    assert len(list(some)) == 6
