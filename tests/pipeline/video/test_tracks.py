import numpy as np
import pytest
from video_clips import face_at

from faceanon.errors import UserError
from faceanon.photo.align import geometry_from_points
from faceanon.pipeline.video.tracks import (
    LEAST_OVERLAP,
    UNIT,
    Tracker,
    TrackOptions,
    _distance_iou,
    _match,
    savitzky_golay,
)

scipy_signal = pytest.importorskip("scipy.signal")
scipy_optimize = pytest.importorskip("scipy.optimize")

GREY = np.full((128, 128, 3), 100, np.uint8)
RATE = 25.0


def follow(paths, frames=30, shots=None, rate=RATE, **options):
    """Tracks of faces given as functions of the frame number to (x, y, eyes), or None where unseen."""
    tracker, asked = Tracker(rate, TrackOptions(**{"every": 1, **options})), []
    for frame in range(frames):
        if tracker.wants(frame, GREY if shots is None else shots[frame]):
            asked.append(frame)
            found = [face_at(*place) for path in paths if (place := path(frame)) is not None]
            tracker.add(frame, found, [geometry_from_points(face.points) for face in found])
    return tracker.finish(frames, 128, 128), asked


def centers(track):
    return np.concatenate([segment.places[:, :2] for segment in track.segments]) / UNIT


def test_each_face_keeps_its_track_while_others_pass():
    right, left = (lambda f: (20 + 3 * f, 40, 10)), (lambda f: (110 - 3 * f, 75, 10))
    tracks, _ = follow([right, left])
    assert len(tracks) == 2
    for track, path in zip(tracks, (right, left), strict=True):
        assert track.seen == tuple(range(30))
        assert track.missing == ()
        wanted = np.add([path(frame)[:2] for frame in range(30)], [0, 1])
        np.testing.assert_allclose(centers(track), wanted, atol=1 / UNIT)


def test_fast_face_is_met_where_its_speed_brings_it():
    """From frame to frame it moves by more than its box, after a slow start."""
    tracks, _ = follow([lambda f: (10 + 0.6 * f**2, 60, 6)], frames=14)
    assert len(tracks) == 1


def test_order_of_detections_is_idle():
    one, other = (lambda f: (30, 60, 10)), (lambda f: (90, 60, 10))
    tracker = Tracker(RATE, TrackOptions(every=1))
    for frame in range(10):
        found = [face_at(*path(frame)) for path in ((one, other) if frame % 2 else (other, one))]
        tracker.add(frame, found, [geometry_from_points(face.points) for face in found])
    tracks = tracker.finish(10, 128, 128)
    assert [len(track.seen) for track in tracks] == [10, 10]
    assert all(np.ptp(centers(track)[:, 0]) < 0.1 for track in tracks)


def test_every_third_frame_is_filled_by_straight_lines():
    tracks, asked = follow([lambda f: (20 + 2 * f, 50, 10)], frames=29, every=3, smooth=0)
    assert asked == list(range(0, 29, 3))
    assert tracks[0].covered == 29
    np.testing.assert_allclose(centers(tracks[0])[:28, 0], 20 + 2 * np.arange(28), atol=1 / UNIT)


def test_gap_is_filled_and_ends_are_held():
    tracks, _ = follow([lambda f: (40 + f, 50, 10) if 5 <= f < 10 or 20 <= f < 24 else None], hold=0.08)
    (track,) = tracks
    assert (track.segments[0].start, track.segments[-1].stop, track.missing) == (3, 26, ())
    np.testing.assert_allclose(centers(track)[2:21, 0], 45 + np.arange(19), atol=0.1)
    assert centers(track)[0, 0] == pytest.approx(45, abs=0.1)


def test_long_gap_stays_open_and_is_named():
    tracks, _ = follow([lambda f: (60, 50, 10) if f < 5 or f >= 20 else None], max_gap=0.4, hold=0.08)
    (track,) = tracks
    assert track.missing == ((7, 18),)
    assert [(part.start, part.stop) for part in track.segments] == [(0, 7), (18, 30)]
    tracks, _ = follow([lambda f: (60, 50, 10) if f < 5 or f >= 20 else None], max_gap=0.4, memory=0.4)
    assert len(tracks) == 2


def test_cut_ends_the_tracks_and_asks_at_once():
    shots = [GREY] * 10 + [255 - GREY] * 10
    tracks, asked = follow([lambda f: (60, 50, 10)], 20, shots, every=4)
    assert asked == [0, 4, 8, 10, 14, 18]
    assert [(track.segments[0].start, track.segments[-1].stop) for track in tracks] == [(0, 10), (10, 20)]


def test_smoothing_stills_jitter_without_lag():
    noise = np.random.default_rng(0).normal(0, 1.5, (60, 2))
    path = np.stack([20 + 0.02 * np.arange(60) ** 2, np.full(60, 50.0)], 1)  # steadily accelerating
    raw, calm = (follow([lambda f: (*(path[f] + noise[f]), 12)], 60, smooth=smooth)[0][0] for smooth in (0, 0.36))
    jitter = [np.abs(np.diff(centers(track), n=2, axis=0)).mean() for track in (raw, calm)]
    assert jitter[1] < 0.3 * jitter[0]
    still = follow([lambda f: (*path[f], 12)], 60, smooth=0.36)[0][0]
    np.testing.assert_allclose(centers(still), np.add(path, [0, 1.2]), atol=1 / UNIT)


def test_face_that_leaves_the_picture_is_dropped_there():
    tracks, _ = follow([lambda f: (60 + 5 * f, 50, 8)], frames=24, hold=0)
    (track,) = tracks
    assert 0 < track.covered < 24
    assert track.missing == ()
    assert track.segments[0].at(0).side == pytest.approx(32, abs=0.2)


@pytest.mark.parametrize("options", [{"every": 0}, {"max_gap": -1.0}, {"smooth": float("nan")}])
def test_senseless_options_are_refused(options):
    with pytest.raises(UserError):
        TrackOptions(**options)


@pytest.mark.parametrize(("count", "window"), [(5, 5), (12, 7), (40, 11)])
def test_smoothing_is_scipys(count, window):
    values = np.random.default_rng(count).normal(size=(count, 4))
    wanted = scipy_signal.savgol_filter(values, window, 2, axis=0, mode="interp")
    np.testing.assert_allclose(savitzky_golay(values, window), wanted, atol=1e-12)


def test_the_assignment_is_optimal():
    """As good as scipy's, whichever of two equals it takes."""
    draw = np.random.default_rng(0)
    for _ in range(100):
        tracks, boxes = (list(_boxes(draw, int(count))) for count in draw.integers(1, 7, 2))
        likeness = _distance_iou(np.array(tracks), np.array(boxes))
        gains = np.where(likeness > LEAST_OVERLAP, likeness, -2.0)
        rows, columns = scipy_optimize.linear_sum_assignment(gains, maximize=True)
        wanted = sum(gains[r, c] for r, c in zip(rows, columns, strict=True) if gains[r, c] > LEAST_OVERLAP)
        matches = _match(tracks, boxes)
        assert len(matches) == len({box for box, _ in matches}) == len({track for _, track in matches})
        assert sum(likeness[track, box] for box, track in matches) == pytest.approx(wanted)


def _boxes(draw, count):
    for _ in range(count):
        x, y, side = draw.uniform(0, 60), draw.uniform(0, 60), draw.uniform(10, 50)
        yield np.array([x, y, x + side, y + side])
