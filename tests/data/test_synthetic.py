"""The procedural faces: factors, renderer, data module."""

from itertools import pairwise

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer

from faceanon.data.synthetic.crossed import (
    FACTORS,
    GROUP,
    crossed_roll,
    held_out_roll,
    iter_groups,
    render_in_chunks,
    stream,
)
from faceanon.data.synthetic.datamodule import BlockSampler, SyntheticFaces
from faceanon.data.synthetic.factors import (
    ATTRIBUTES,
    IDENTITY,
    OCCLUDERS,
    SPREADS,
    column,
    sample_attributes,
    sample_identity,
)
from faceanon.data.synthetic.ground_truth import EYE, OCCLUDER
from faceanon.data.synthetic.render import CLASSES, LANDMARKS, render
from faceanon.errors import UserError
from faceanon.types import FaceBatch


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small planes on two threads spend their time waiting for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


EYES = [LANDMARKS.index("eye_left"), LANDMARKS.index("eye_right")]


def faces(n, seed=0, occlusion=0.0):
    generator = torch.Generator().manual_seed(seed)
    return sample_identity(n, generator), sample_attributes(n, generator, occlusion)


def with_columns(names, values, **changes):
    changed = values.clone()
    for name, value in changes.items():
        changed[:, names.index(name)] = value
    return changed


def frontal(n, seed=0, **changes):
    """People seen from the front, upright, eyes open, short hair, nothing in the way."""
    identity, attributes = faces(n, seed)
    still = {"yaw": 0.0, "pitch": 0.0, "roll": 0.0, "blink": 0.0, "hair_length": -1.0, "hair_line": 1.0}
    return identity, with_columns(ATTRIBUTES, attributes, **still, **changes)


def small(**changes):
    sizes = {"image_size": 32, "train_groups": 12, "val_identities": 5, "test_identities": 6, "batch_size": 8}
    return SyntheticFaces(**{**sizes, **changes})


@pytest.fixture(scope="module")
def data():
    module = small()
    module.setup("fit")
    module.setup("test")
    return module


class TestFactors:
    def test_shapes_and_ranges(self):
        identity, attributes = faces(500, occlusion=0.4)
        assert identity.shape == (500, len(IDENTITY)) == (500, 28)
        assert attributes.shape == (500, len(ATTRIBUTES))
        assert identity.min() >= -1
        assert identity.max() <= 1
        assert identity.std(dim=0).min() > 0.5
        for name, spread in SPREADS.items():
            values = column(ATTRIBUTES, attributes, name)
            assert values.min() >= max(spread.low, spread.floor), name
            assert values.max() <= spread.high, name

    def test_names_are_unique(self):
        assert len(set(FACTORS)) == len(IDENTITY) + len(ATTRIBUTES)

    def test_same_generator_same_draw(self):
        for first, second in zip(faces(5, seed=3), faces(5, seed=3), strict=True):
            assert torch.equal(first, second)
        assert not torch.equal(faces(5, seed=3)[0], faces(5, seed=4)[0])

    @pytest.mark.parametrize("occlusion", [0.0, 0.4, 1.0])
    def test_occlusion_is_the_share_and_at_most_one_kind(self, occlusion):
        worn = faces(4000, occlusion=occlusion)[1][:, -len(OCCLUDERS) :]
        assert worn.sum(dim=1).max() <= 1
        assert worn.sum(dim=1).mean() == pytest.approx(occlusion, abs=0.03)
        assert worn.mean(dim=0).tolist() == pytest.approx([occlusion / 4] * 4, abs=0.03)


class TestRender:
    @pytest.mark.parametrize("size", [24, 64, 100])
    def test_shapes_types_ranges(self, size):
        result = render(*faces(4, occlusion=1.0), size=size)
        assert result.image.shape == (4, 3, size, size)
        assert result.image.dtype == torch.float32
        assert result.image.min() >= -1
        assert result.image.max() <= 1
        assert result.image.std() > 0.2
        assert result.parsing.shape == (4, size, size)
        assert result.parsing.dtype == torch.int64
        assert result.landmarks.shape == (4, len(LANDMARKS), 2) == (4, 16, 2)
        assert result.landmarks.dtype == torch.float32

    def test_extreme_factors_stay_finite(self):
        corners = torch.cat([torch.full((2, len(IDENTITY)), -1.0), torch.full((2, len(IDENTITY)), 1.0)])
        result = render(corners, faces(4, occlusion=1.0)[1], 32)
        assert result.image.isfinite().all()
        assert result.landmarks.isfinite().all()
        assert result.landmarks.abs().max() < 1.3

    def test_deterministic(self):
        assert torch.equal(render(*faces(3)).image, render(*faces(3)).image)

    def test_a_row_does_not_depend_on_its_batch(self):
        identity, attributes = faces(8, occlusion=1.0)
        together = render(identity, attributes)
        for i in (0, 5):
            alone = render(identity[i : i + 1], attributes[i : i + 1])
            torch.testing.assert_close(alone.image[0], together.image[i], atol=1e-5, rtol=0)
            assert (alone.parsing[0] != together.parsing[i]).sum() <= 1
            torch.testing.assert_close(alone.landmarks[0], together.landmarks[i])

    def test_every_class_is_drawn(self):
        seen = render(*faces(24, occlusion=0.5)).parsing.unique().tolist()
        assert seen == list(range(len(CLASSES)))

    def test_no_gradient(self):
        identity, attributes = faces(1)
        assert not render(identity.requires_grad_(), attributes, 16).image.requires_grad

    @pytest.mark.parametrize("name", IDENTITY)
    def test_every_identity_factor_shows(self, name):
        identity, attributes = faces(8, seed=1)
        base = {"freckles": 1.0} if name == "freckle_phase" else {}
        low = render(with_columns(IDENTITY, identity, **base, **{name: -1.0}), attributes).image
        high = render(with_columns(IDENTITY, identity, **base, **{name: 1.0}), attributes).image
        visible = ((low - high).abs().amax(dim=1) > 10 / 127.5).flatten(1).sum(dim=1).float()
        assert visible.median() >= 8, f"{name} changes {visible.tolist()} pixels"

    def test_identity_stays_inside_the_head(self):
        identity, attributes = faces(12)
        one, other = render(identity, attributes), render(identity.flip(0), attributes)
        away = (one.parsing == 0) & (other.parsing == 0)
        away[:, 12:] = False  # the far background: the upper rows, beside the head
        difference = (one.image - other.image).abs().amax(dim=1)
        corners = torch.cat([difference[:, :8, :4], difference[:, :8, -4:]], dim=2)
        assert corners.max() == 0
        assert difference[:, 20:44, 24:40].mean() > 0.1
        assert away.any()

    def test_skin_shows_the_person_under_every_light(self):
        identity, attributes = faces(16, seed=5)
        skins = []
        for value in (-1.0, 1.0):
            result = render(with_columns(IDENTITY, identity, skin_luminance=value, beard=-1.0), attributes)
            mask = (result.parsing == 1)[:, None]
            skins.append((result.image * mask).sum(dim=(1, 2, 3)) / (3 * mask.sum(dim=(1, 2, 3))))
        assert skins[0].max() < skins[1].min()

    def test_light_changes_the_picture_and_no_ground_truth(self):
        identity, attributes = faces(4)
        lit = with_columns(ATTRIBUTES, attributes, light_x=1.0, light_temperature=0.1, light_gain=0.9)
        dim = with_columns(ATTRIBUTES, attributes, light_x=-1.0, light_temperature=-0.1, light_gain=1.1)
        one, other = render(identity, lit), render(identity, dim)
        assert (one.image - other.image).abs().mean() > 0.05
        assert torch.equal(one.parsing, other.parsing)
        assert torch.equal(one.landmarks, other.landmarks)

    def test_hair_is_smooth_in_its_factors(self):
        identity, attributes = faces(2)
        for name in ("hair_hue", "hair_luminance", "hair_length", "hair_line", "hair_parting"):
            steps = torch.linspace(-1, 1, 21)
            hair = [with_columns(ATTRIBUTES, attributes, **{name: step.item()}) for step in steps]
            images = [render(identity, each, 32).image for each in hair]
            jumps = [(a - b).abs().mean().item() for a, b in pairwise(images)]
            assert sum(jumps) > 0.01, name
            assert max(jumps) < 0.05, name

    @pytest.mark.parametrize("kind", OCCLUDERS)
    def test_occluders_are_labelled_and_leave_the_person_visible(self, kind):
        identity, attributes = faces(12)
        bare = render(identity, attributes)
        worn = render(identity, with_columns(ATTRIBUTES, attributes, **{kind: 1.0}))
        assert not (bare.parsing == OCCLUDER).any()
        assert ((worn.parsing == OCCLUDER).flatten(1).sum(dim=1) > 20).all()
        face_parts = (worn.parsing == 1) | (worn.parsing >= 4) & (worn.parsing <= 7)
        assert (face_parts.flatten(1).sum(dim=1) > 200).all()
        untouched = worn.parsing != OCCLUDER
        assert (worn.parsing == bare.parsing)[untouched].float().mean() > 0.999

    def test_landmarks_lie_on_what_they_name(self):
        result = render(*frontal(8), size=128)
        pixels = ((result.landmarks + 1) * 64).long().clamp(0, 127)
        for i in range(8):
            for eye in EYES:
                x, y = pixels[i, eye].tolist()
                assert result.parsing[i, y, x] == EYE
            for name, label in (("nose_tip", "nose"), ("mouth_top", "mouth"), ("brow_left", "brow")):
                x, y = pixels[i, LANDMARKS.index(name)].tolist()
                near = result.parsing[i, y - 3 : y + 4, x - 3 : x + 4]
                assert (near == CLASSES.index(label)).any(), name

    def test_chin_and_jaw_lie_on_the_outline(self):
        result = render(*frontal(8), size=128)
        pixels = (result.landmarks + 1) * 64
        for i in range(8):
            for name, dx, dy in (("chin", 0, 1), ("jaw_left", -1, 0), ("jaw_right", 1, 0)):
                x, y = pixels[i, LANDMARKS.index(name)].tolist()
                inside = result.parsing[i, round(y - 4 * dy), round(x - 4 * dx)]
                assert CLASSES[inside] == "skin", name
                if round(y + 4 * dy) < 128:
                    assert CLASSES[result.parsing[i, round(y + 4 * dy), round(x + 4 * dx)]] != "skin", name

    def test_wrong_columns_are_refused(self):
        identity, attributes = faces(2)
        with pytest.raises(ValueError, match=r"attributes must be \(2, 41\), got \(2, 40\)"):
            render(identity, attributes[:, 1:])
        with pytest.raises(ValueError, match="identity must be"):
            render(identity[:, 1:], attributes)


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
        identity, attributes = faces(7, occlusion=0.5)
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
