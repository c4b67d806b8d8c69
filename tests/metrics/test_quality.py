import math

import numpy as np
import pytest
import torch
from skimage.metrics import mean_squared_error, peak_signal_noise_ratio, structural_similarity
from torchmetrics.image.kid import poly_mmd

from faceanon.metrics.features import KernelDistance, polynomial_mmd
from faceanon.metrics.quality import ImageQuality, MaskedPSNR, Mean
from faceanon.metrics.saved import saved, to_bytes


@pytest.fixture
def pair():
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(5, 3, 32, 32, generator=generator) * 2 - 1
    return image, (image + 0.3 * torch.randn(image.shape, generator=generator)).clamp(-1, 1)


def as_numpy(image):
    return ((image.double() + 1) / 2).permute(1, 2, 0).numpy()


def test_quality_equals_scikit_image(pair):
    metric = ImageQuality()
    for start in (0, 2):
        part = slice(start, start + 2 if start == 0 else 5)
        metric.update(pair[0][part], pair[1][part], torch.full((len(pair[0][part]),), 0.5))
    found = {name: float(value) for name, value in metric.compute().items()}
    a, b = ([as_numpy(image) for image in side] for side in pair)
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "channel_axis": 2}
    expected = {
        "mse": np.mean([mean_squared_error(x, y) for x, y in zip(a, b, strict=True)]),
        "psnr": np.mean([peak_signal_noise_ratio(x, y, data_range=1) for x, y in zip(a, b, strict=True)]),
        "ssim": np.mean([structural_similarity(x, y, data_range=1, **options) for x, y in zip(a, b, strict=True)]),
        "lpips": 0.5,
    }
    assert found == pytest.approx(expected, abs=1e-5)


def test_equal_pictures_reach_the_ceiling_and_lpips_is_left_out(pair):
    metric = ImageQuality()
    metric.update(pair[0], pair[0])
    found = metric.compute()
    assert set(found) == {"mse", "psnr", "ssim"}
    assert found["psnr"] == 100
    assert found["mse"] == 0


def test_masked_psnr_equals_numpy_and_skips_empty_masks(pair):
    mask = torch.rand(5, 32, 32, generator=torch.Generator().manual_seed(3)) > 0.7
    mask[2] = False
    metric = MaskedPSNR()
    metric.update(pair[0][:3], pair[1][:3], mask[:3])
    metric.update(pair[0][3:], pair[1][3:], mask[3:])
    expected = []
    for image, other, own in zip(*pair, mask, strict=True):
        if own.any():
            error = (as_numpy(image) - as_numpy(other))[own.numpy()]
            expected.append(-10 * np.log10((error**2).mean()))
    assert len(expected) == 4
    assert float(metric.compute()) == pytest.approx(np.mean(expected), abs=1e-5)


def test_mmd_equals_torchmetrics():
    generator = torch.Generator().manual_seed(0)
    real = torch.randn(30, 8, generator=generator, dtype=torch.double)
    fake = torch.randn(30, 8, generator=generator, dtype=torch.double) + 0.5
    assert float(polynomial_mmd(real, fake)) == pytest.approx(float(poly_mmd(real, fake)), abs=1e-5)


def test_kid_separates_and_repeats():
    generator = torch.Generator().manual_seed(0)
    real, same = torch.randn(2, 120, 8, generator=generator)

    def kid(fake):
        metric = KernelDistance(subsets=30, subset_size=60)
        metric.update(real[:50], fake[:50])
        metric.update(real[50:], fake[50:])
        return {name: float(value) for name, value in metric.compute().items()}

    near, far = kid(same), kid(same + 1)
    assert abs(near["mean"]) < 0.1 < far["mean"]
    assert near["std"] > 0
    assert kid(same) == near


def test_kid_of_one_picture_is_nan():
    metric = KernelDistance()
    metric.update(torch.ones(1, 4), torch.ones(1, 4))
    assert math.isnan(metric.compute()["mean"])


def test_png_is_clamp_and_round(pair):
    wild = pair[1] * 1.4
    expected = ((wild.clamp(-1, 1) + 1) / 2 * 255).round() / 255 * 2 - 1
    torch.testing.assert_close(saved(wild), expected, atol=1e-6, rtol=0)
    assert torch.equal(saved(saved(wild)), saved(wild))
    assert to_bytes(wild).dtype == torch.uint8


def test_jpeg_loses_more_at_lower_quality(pair):
    smooth = torch.nn.functional.interpolate(pair[0][:, :, ::8, ::8], 32, mode="bilinear")
    errors = [float((saved(smooth, quality) - smooth).square().mean()) for quality in (95, 50, 10)]
    assert errors == sorted(errors)
    assert errors[0] > float((saved(smooth) - smooth).square().mean())


def test_bad_input_is_named(pair):
    image = pair[0]
    broken = image.clone()
    broken[0, 0, 0, 0] = math.nan
    for bad, message in [
        (image * 2, r"\[-1, 1\]"),
        (broken, "NaN"),
        (image[:, :1], "shape"),
        (image[:2], "same shape"),
    ]:
        with pytest.raises(ValueError, match=message):
            ImageQuality().update(bad, image if bad.shape != image[:, :1].shape else bad)
    with pytest.raises(ValueError, match="window"):
        ImageQuality().update(image[..., :10], image[..., :10])
    with pytest.raises(ValueError, match="NaN"):
        saved(broken)
    with pytest.raises(ValueError, match="bool"):
        MaskedPSNR().update(image, image, torch.ones(5, 32, 32))
    with pytest.raises(ValueError, match="features"):
        KernelDistance().update(torch.ones(3, 4), torch.ones(3, 5))
    with pytest.raises(ValueError, match="NaN"):
        Mean().update(torch.tensor([math.inf]))
