"""The correction of codes that are read off saved pictures."""

import torch

from faceanon.networks.code_reader import CodeReader


def pictures(count, seed):
    """Codes `(count, 6)`, what a blurred picture shows of them `(count, 4, 10)`, and what an encoder reads off it."""
    random = torch.Generator().manual_seed(seed)
    blur = torch.randn(6, 40, generator=torch.Generator().manual_seed(9))
    drawn = torch.randn(count, 6, generator=random)
    seen = drawn @ blur + 0.5 * torch.randn(count, 40, generator=random)
    # It reads every other number half, and the others with an error that the picture explains.
    read = torch.where(torch.arange(6) % 2 == 0, 0.5 * drawn, drawn + 0.2 * seen[:, :6])
    return drawn, seen.view(count, 4, 10), read


def test_before_it_is_measured_it_leaves_codes_alone():
    codes = torch.randn(2, 3, 6)
    assert torch.equal(CodeReader(40, 6)(codes, torch.randn(2, 4, 10)), codes)


def test_it_corrects_what_the_encoder_misses_of_other_pictures():
    reader = CodeReader(40, 6)
    drawn, seen, read = pictures(300, seed=0)
    reader.fit(read, seen, drawn)
    drawn, seen, read = pictures(200, seed=1)
    codes = torch.stack([read, read + 1], 1)
    corrected = reader(codes, seen)
    assert (corrected[:, 0] - drawn).square().mean() < 0.4 * (read - drawn).square().mean()
    # All rows are corrected by the same.
    torch.testing.assert_close(corrected[:, 1] - corrected[:, 0], torch.ones(200, 6))


def test_numbers_that_no_picture_shows_come_back_smaller_and_not_wild():
    random = torch.Generator().manual_seed(2)
    drawn = torch.randn(50, 3, generator=random)
    reader = CodeReader(400, 3)
    reader.fit(torch.randn(50, 3, generator=random), torch.randn(50, 400, generator=random), drawn)
    read = torch.randn(500, 1, 3, generator=random)
    assert reader(read, torch.randn(500, 400, generator=random)).std() < 1
