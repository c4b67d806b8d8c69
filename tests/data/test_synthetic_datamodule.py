"""The procedural faces: rolls of people, data module, order of the batches."""

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer

from faceanon.data.streams import stream
from drawn.crossed import FACTORS, GROUP, crossed_roll, held_out_roll, iter_groups, render_in_chunks
from drawn.datamodule import BlockSampler, SyntheticFaces
from drawn.factors import IDENTITY, sample_attributes, sample_identity
from drawn.render import render
from faceanon.errors import UserError
from faceanon.types import FaceBatch


def small(**changes):
    sizes = {"image_size": 32, "train_groups": 12, "val_identities": 5, "test_identities": 6, "batch_size": 8}
    return SyntheticFaces(**{**sizes, **changes})


@pytest.fixture(scope="module")
def data():
    module = small()
    module.setup("fit")
    module.setup("test")
    return module


class TestRolls:
    def test_crossed_groups(self):
        roll = crossed_roll(3, seed=0, occlusion=0.3)
        assert roll.identity_label.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
        assert roll.attribute_label.tolist() == [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5]
        assert torch.equal(roll.identity[0], roll.identity[1])
        assert torch.equal(roll.attributes[0], roll.attributes[2])
        assert not torch.equal(roll.attributes[0], roll.attributes[1])

    def test_splits_share_nobody(self):
        people = [crossed_roll(400, seed, 0.3).identity for seed in (0, 1)]
        people += [held_out_roll(split, 400, 1, 0.3, 0).identity for split in ("val", "test")]
        for i, some in enumerate(people):
            for others in people[i + 1 :]:
                assert torch.cdist(some, others).min() > 0.5

    def test_more_held_out_people_keep_the_first(self):
        few, many = held_out_roll("test", 10, 1, 0.3, 0), held_out_roll("test", 20, 1, 0.3, 0)
        assert torch.equal(few.identity, many.identity[:10])

    def test_streams_differ_by_name(self):
        draws = {torch.rand(1, generator=stream(*names)).item() for names in (("a",), ("b",), ("a", 0), ("a", 1))}
        assert len(draws) == 4

    def test_chunks_do_not_matter(self):
        generator = stream("faces")
        identity, attributes = sample_identity(7, generator), sample_attributes(7, generator, 0.5)
        one, other = (render_in_chunks(identity, attributes, 32, chunk=chunk) for chunk in (3, 16))
        assert one.image.dtype == one.parsing.dtype == torch.uint8
        assert (one.image.int() - other.image.int()).abs().max() <= 1
        expected = ((render(identity, attributes, 32).image + 1) * 127.5).round()
        assert (one.image - expected).abs().max() <= 1


class Recorder(LightningModule):
    """Sees what Lightning makes of the batches."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen = []

    def training_step(self, batch, batch_idx):
        assert isinstance(batch, FaceBatch)
        self.seen.append((self.current_epoch, tuple(batch.identity.tolist())))
        return self.weight.sum()

    def validation_step(self, batch, batch_idx):
        assert isinstance(batch, FaceBatch)
        assert (batch.identity >= 1_000_000_000).all()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class TestDataModule:
    def test_training_batches(self, data):
        batches = list(data.train_dataloader())
        assert [len(batch) for batch in batches] == [8] * 6
        assert len(data.train_dataloader()) == 6
        batch = batches[0]
        assert batch.image.shape == (8, 3, 32, 32)
        assert batch.image.dtype == torch.float32
        assert batch.image.min() >= -1
        assert batch.image.max() <= 1
        assert batch.identity.dtype == batch.attribute.dtype == batch.parsing.dtype == torch.int64
        assert batch.landmarks.shape == (8, 16, 2)
        assert batch.factors.shape == (8, len(FACTORS))

    def test_groups_are_crossed(self, data):
        for batch in data.train_dataloader():
            groups = list(iter_groups(batch))
            assert len(groups) == 2
            for group in groups:
                a, b, c, d = group.identity.tolist()
                assert a == b != c == d
                a, b, c, d = group.attribute.tolist()
                assert a == c != b == d
                assert torch.equal(group.factors[0, : len(IDENTITY)], group.factors[1, : len(IDENTITY)])
                assert torch.equal(group.factors[0, len(IDENTITY) :], group.factors[2, len(IDENTITY) :])

    def test_pictures_are_those_of_their_factors(self, data):
        batch = next(iter(data.train_dataloader()))
        again = render(batch.factors[:, : len(IDENTITY)], batch.factors[:, len(IDENTITY) :], 32)
        assert (again.image - batch.image).abs().max() <= 1.01 / 127.5
        assert torch.equal(again.landmarks, batch.landmarks)

    def test_held_out_people_in_order(self, data):
        val = torch.cat([batch.identity for batch in data.val_dataloader()])
        test = torch.cat([batch.identity for batch in data.test_dataloader()])
        train = torch.cat([batch.identity for batch in data.train_dataloader()])
        assert val.tolist() == [1_000_000_000 + i // 2 for i in range(10)]
        assert test.tolist() == [2_000_000_000 + i // 2 for i in range(12)]
        assert sorted(train.tolist()) == sorted(list(range(24)) * 2)
        attribute = torch.cat([batch.attribute for batch in data.val_dataloader()])
        assert len(attribute.unique()) == 10

    def test_seed_changes_training_and_not_the_held_out(self, data):
        other = small(seed=1)
        other.setup("fit")
        mine, theirs = (next(iter(module.val_dataloader())) for module in (data, other))
        assert torch.equal(mine.image, theirs.image)
        mine, theirs = (next(iter(module.train_dataloader())) for module in (data, other))
        assert not torch.equal(mine.factors, theirs.factors)

    def test_setup_renders_once(self, data):
        before = data._sets["train"]
        data.setup("fit")
        assert data._sets["train"] is before

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"batch_size": 6}, "batch_size is 6; give a multiple of 4"),
            ({"batch_size": 0}, "batch_size is 0; give a multiple of 4"),
            ({"photos": 0}, "photos is 0; give a number of at least 1"),
            ({"train_groups": -1}, "train_groups is -1"),
            ({"occlusion": 1.5}, "occlusion is 1.5; give a share between 0 and 1"),
        ],
    )
    def test_bad_arguments(self, changes, message):
        with pytest.raises(UserError, match=message):
            small(**changes)

    def test_too_few_groups(self):
        module = small(train_groups=1, val_identities=1)
        module.setup("fit")
        with pytest.raises(UserError, match="give train_groups of at least 2"):
            module.train_dataloader()

    def test_under_lightning_each_epoch_has_its_own_order(self):
        model = Recorder()
        trainer = Trainer(
            max_epochs=2,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, datamodule=small())
        first, second = ([rows for epoch, rows in model.seen if epoch == wanted] for wanted in (0, 1))
        assert len(first) == len(second) == 6
        assert first != second
        assert sorted(i for rows in first for i in rows) == sorted(i for rows in second for i in rows)


class TestBlockSampler:
    @staticmethod
    def rows(shuffle, ranks, block=GROUP, epoch=0, rows=4 * 23):
        found = []
        for rank in range(ranks):
            sampler = BlockSampler(rows, block, 8, shuffle, seed=7, ranks=ranks, rank=rank)
            sampler.set_epoch(epoch)
            batches = list(sampler)
            assert len(batches) == len(sampler)
            found.append(batches)
        return found

    @pytest.mark.parametrize("ranks", [1, 2, 3])
    def test_ranks_get_equally_many_whole_groups_and_none_twice(self, ranks):
        per_rank = self.rows(True, ranks)
        assert len({len(batches) for batches in per_rank}) == 1
        flat = [row for batches in per_rank for batch in batches for row in batch]
        assert len(flat) == len(set(flat)) == 23 // (2 * ranks) * 2 * ranks * GROUP
        for batches in per_rank:
            for batch in batches:
                for start in (0, 4):
                    assert batch[start] % 4 == 0
                    assert batch[start : start + 4] == list(range(batch[start], batch[start] + 4))

    def test_order_follows_epoch_and_seed_only(self):
        assert self.rows(True, 1) == self.rows(True, 1)
        assert self.rows(True, 1) != self.rows(True, 1, epoch=1)

    @pytest.mark.parametrize("ranks", [1, 3])
    def test_held_out_rows_all_once_in_order(self, ranks):
        flat = [row for batches in self.rows(False, ranks, block=1, rows=29) for batch in batches for row in batch]
        assert flat == list(range(29))
