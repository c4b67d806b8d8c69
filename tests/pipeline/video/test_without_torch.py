"""Films where torch cannot be imported."""

import numpy as np
from video_clips import write_clip

from faceanon.photo.party import photo_party
from faceanon.pipeline.video.frames import read_frames
from torchless import without_torch


def test_a_film_goes_there_and_back_where_torch_cannot_be_imported(tmp_path):
    person = np.array(photo_party().crop((0, 0, 284, 284)))
    shots = [np.roll(person, 2 * step, 1) for step in range(8)]
    clip = write_clip(tmp_path / "in.mp4", np.stack(shots), times=[25 * step for step in range(8)])
    for words in (("anonymize", clip, tmp_path / "out.mp4"), ("recover", tmp_path / "out.mp4", tmp_path / "back.mp4")):
        done = without_torch(*words, "--lossless")
        assert done.returncode == 0, done.stderr
    frames = [
        [frame.pixels for frame in read_frames(path)] for path in (clip, tmp_path / "out.mp4", tmp_path / "back.mp4")
    ]
    film, hidden, back = (np.stack(shown).astype(int) for shown in frames)
    changed = np.abs(hidden - film).max(-1) > 8
    assert changed.mean() > 0.05
    far = np.square(hidden - film)[changed].mean()
    assert np.square(back - film)[changed].mean() < far / 4
