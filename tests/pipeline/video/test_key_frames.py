"""Faces are looked for a few times a second, and in every frame where straight lines in between would not do."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from test_tracks import centers
from video_clips import Tinted, face_at

from faceanon.key import Secret
from faceanon.pipeline import Pipeline
from faceanon.pipeline.video import anonymize
from faceanon.pipeline.video.faces import Change
from faceanon.pipeline.video.frames import Frame, VideoInfo
from faceanon.pipeline.video.tracks import TrackOptions
from fakes import SealedPatch

FRAMES = 30
INFO = VideoInfo(256, 256, 25.0, FRAMES, None, ())


class ByFrame:
    """Finds the faces of the frame whose number the first pixel says."""

    def __init__(self, paths):
        self.paths = paths
        self.asked = []

    def detect(self, image):
        frame = int(image[0, 0, 0])
        self.asked.append(frame)
        found = []
        for path in self.paths:
            place = path(frame)
            if place is not None:
                found.append(face_at(*place))
        return found


def look(monkeypatch, paths, every=None, cut=None):
    """Tracks of faces given as functions of the frame to (x, y, eyes) or None, and the frames that were looked at."""

    def frames(source, wanted=None):
        for index in range(FRAMES):
            brightness = 100 if cut is None or index < cut else 200
            pixels = np.full((256, 256, 3), brightness, np.uint8)
            pixels[0, 0, 0] = index
            yield Frame(index, pixels, index, Fraction(1, 25))

    monkeypatch.setattr(anonymize, "read_frames", frames)
    detector = ByFrame(paths)
    options = TrackOptions(every=every)
    tracks, times = anonymize.find_tracks(Pipeline(Tinted(), detector), Path("a.mp4"), INFO, options)
    assert times == [index / 25 for index in range(FRAMES)]
    return tracks, detector.asked


def test_a_steady_face_is_looked_for_on_key_frames_and_covered_on_all(monkeypatch):
    def path(frame):
        return 60 + 15 * np.sin(frame / 8), 90 + frame, 20

    (track,), asked = look(monkeypatch, [path])
    assert asked == list(range(0, FRAMES, 3))
    assert track.covered == FRAMES
    (exact,), asked = look(monkeypatch, [path], every=1)
    assert asked == list(range(FRAMES))
    # A fiftieth of the face's side.
    assert np.abs(centers(track)[:28] - centers(exact)[:28]).max() < 0.8


@pytest.mark.parametrize(
    ("path", "moving"),
    [
        (lambda frame: (10 + 0.2 * frame**2, 60, 6), range(15, 27)),
        (lambda frame: (128 + 60 * np.sin(0.9 * frame), 60, 12), range(1, 27)),
        (lambda frame: (128, 100, 12 + 3 * frame), range(1, 6)),
    ],
    ids=["faster and faster", "to and fro", "nearer"],
)
def test_a_face_that_moves_far_is_looked_for_as_if_every_frame_were_one(monkeypatch, path, moving):
    tracks, asked = look(monkeypatch, [path])
    wanted, _ = look(monkeypatch, [path], every=1)
    assert set(moving) <= set(asked)
    assert len(tracks) == len(wanted)
    for track, other in zip(tracks, wanted, strict=True):
        assert set(moving) & set(track.seen) == set(moving) & set(other.seen)


def test_a_face_that_comes_or_goes_is_met_in_its_first_and_last_frame(monkeypatch):
    def visitor(frame):
        return (180, 128, 12) if 10 <= frame < 20 else None

    tracks, asked = look(monkeypatch, [lambda frame: (60, 128, 12), visitor])
    # In between, and before and after, all stand still.
    assert asked == [0, 3, 6, 9, 12, 10, 11, 15, 18, 21, 19, 20, 24, 27]
    assert min(tracks[1].seen) == 10
    assert max(tracks[1].seen) == 19


def test_a_cut_looks_at_nothing_of_the_scene_before(monkeypatch):
    tracks, asked = look(monkeypatch, [lambda frame: (60, 128, 12) if frame < 11 else (180, 128, 12)], cut=11)
    assert asked == [0, 3, 6, 9, 11, 14, 17, 20, 23, 26, 29]
    assert [track.segments[-1].stop for track in tracks] == [11, FRAMES]


def test_codes_come_with_the_drawn_faces(sealed_bundle):
    backbone = SealedPatch(str(sealed_bundle))
    change = Change(Pipeline(backbone, ByFrame([])), Secret.random(3))
    side = backbone.face_sizes[0]
    faces = np.random.default_rng(0).uniform(-1, 1, (2, 3, side, side)).astype(np.float32)
    drawn, codes = change(faces, [0, 0], [0, 1], {})
    assert codes == backbone.code_of(torch.from_numpy(faces))
    back = Change(change.pipeline, change.secret, True, {(0, 0): codes[0], (1, 0): codes[1]})
    assert back(drawn, [0, 0], [0, 1], {})[1] == []
