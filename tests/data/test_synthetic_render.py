"""The procedural faces: factors and renderer."""

from itertools import pairwise

import pytest
import torch

from drawn.crossed import FACTORS
from drawn.factors import (
    ATTRIBUTES,
    IDENTITY,
    OCCLUDERS,
    SPREADS,
    column,
    sample_attributes,
    sample_identity,
)
from drawn.ground_truth import EYE, OCCLUDER
from drawn.render import CLASSES, LANDMARKS, render

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
