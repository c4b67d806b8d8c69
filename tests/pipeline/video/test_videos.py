import itertools
import json
import weakref
from dataclasses import replace

import numpy as np
import pytest
from video_clips import FilmDetector, Tinted, face_at, film, write_clip

from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password
from faceanon.pipeline import NoFaceError, Pipeline
from faceanon.pipeline.video import passes
from faceanon.pipeline.video import record as records
from faceanon.pipeline.video.anonymize import UncoveredError, VideoOptions, anonymize_video, describe_missing
from faceanon.pipeline.video.faces import Change, IdentityMeans
from faceanon.pipeline.video.flicker import FlickerMeter
from faceanon.pipeline.video.frames import read_frames, read_info
from faceanon.pipeline.video.record import sidecar_of
from faceanon.pipeline.video.recover import recover_video
from faceanon.pipeline.video.tracks import TrackOptions
from faceanon.pipeline.video.writer import Quality
from fakes import KeyedTint

CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
SALT = b"0123456789abcdef"
EXACT = VideoOptions(quality=Quality(lossless=True))
SHOTS, WHERE = film()


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("clip") / "in.mp4", SHOTS, metadata={"location": "+48.1+011.5/"})


def pipeline(backbone=None, faces=None, **options):
    detector = FilmDetector([[face_at(x, y, 16)] for x, y in WHERE] if faces is None else faces)
    return Pipeline(KeyedTint() if backbone is None else backbone, detector, **options)


def password(text="hush"):
    return Password(text, SALT, CHEAP)


def stack(path):
    return np.array([frame.pixels for frame in read_frames(path)]).astype(float)


def faces_of(video):
    """The middle of every face: `(n, 32, 32, 3)`."""
    return np.array(
        [shot[int(y) - 14 : int(y) + 18, int(x) - 16 : int(x) + 16] for shot, (x, y) in zip(video, WHERE, strict=True)]
    )


def psnr(one, other):
    return 10 * np.log10(255**2 / max(np.square(one - other).mean(), 1e-9))


@pytest.mark.parametrize(
    ("quality", "right"), [(Quality(lossless=True), 45), (Quality(full_colour=True), 33), (Quality(), 29)]
)
def test_right_password_brings_the_faces_back_from_the_file(clip, tmp_path, quality, right):
    hidden, back = tmp_path / "hidden.mp4", tmp_path / "back.mp4"
    outcome = anonymize_video(pipeline(), clip, hidden, password(), VideoOptions(quality=quality))
    assert (outcome.frames, len(outcome.tracks), outcome.tracks[0].track.covered) == (16, 1, 16)
    done = recover_video(pipeline(faces=[]), hidden, back, Password("hush"), Quality(lossless=True))
    assert (done.frames, done.tracks, done.faces, done.written) == (16, 1, 16, str(quality))
    recover_video(pipeline(faces=[]), hidden, tmp_path / "wrong.mp4", Password("wrong"), Quality(lossless=True))
    original, drawn, found, wrong = (faces_of(stack(path)) for path in (clip, hidden, back, tmp_path / "wrong.mp4"))
    assert psnr(original, drawn) < 22
    assert psnr(original, found) > right
    assert psnr(original, wrong) < 22
    before, after = outcome.recovery
    assert before > 45
    assert after == pytest.approx(psnr(original, found), abs=6)  # a few faces stand for all, and their edges count
    assert (before == after) == quality.lossless
    data = hidden.read_bytes()
    assert b"hush" not in data
    assert b"loci" in clip.read_bytes()
    assert b"loci" not in data


def test_one_stranger_a_track_where_the_method_has_codes(tmp_path):
    """The light flickers, and with it what each frame alone says of the person."""
    light = np.where(np.arange(16) % 2, 1.0, 0.8)[:, None, None, None]
    clip = write_clip(tmp_path / "in.mp4", (SHOTS * light).astype(np.uint8), codec="libx264rgb", options={"crf": "0"})

    class FrameByFrame(Tinted):
        def anonymize(self, image, key):
            return self.decode(self.edit(self.encode(image), key))

    spread, flicker = {}, {}
    for kind in (Tinted, FrameByFrame):
        target = tmp_path / f"{kind.__name__}.mp4"
        flicker[kind] = anonymize_video(pipeline(kind()), clip, target, password(), EXACT).flicker
        spread[kind] = faces_of(stack(target)).mean((1, 2)).std(0).max()
    assert spread[Tinted] < 0.5 * spread[FrameByFrame]
    assert flicker[Tinted] < 0.7 * flicker[FrameByFrame]


def test_tracked_codes_come_back(clip, tmp_path):
    """The mean code goes there and back; what each frame's own code said beyond it is lost, and no more."""
    anonymize_video(pipeline(Tinted()), clip, tmp_path / "a.mp4", password(), EXACT)
    for name, text in (("b.mp4", "hush"), ("c.mp4", "wrong")):
        recover_video(pipeline(Tinted(), []), tmp_path / "a.mp4", tmp_path / name, Password(text), Quality(0, True))
    paths = clip, tmp_path / "b.mp4", tmp_path / "c.mp4"
    original, right, wrong = (faces_of(stack(path)).mean((1, 2)) for path in paths)
    assert np.abs(original - right).mean() < 0.2 * np.abs(original - wrong).mean()


def test_batches_and_chunks_do_not_change_a_pixel(clip, tmp_path, monkeypatch):
    crowd = [[face_at(x, y, 14), face_at(x + 12, y + 10, 12), face_at(100, 100, 6)] for x, y in WHERE]
    videos = []
    for batch, memory in ((16, 10**9), (3, 10**9), (16, 1)):
        monkeypatch.setattr(passes, "CHUNK_BYTES", memory)
        target = tmp_path / f"{len(videos)}.mp4"
        outcome = anonymize_video(pipeline(faces=crowd, batch=batch), clip, target, password(), EXACT)
        videos.append((stack(target), outcome.flicker))
    assert len(outcome.tracks) == 3
    for video, flicker in videos[1:]:
        np.testing.assert_array_equal(video, videos[0][0])
        assert flicker == pytest.approx(videos[0][1])
    recover_video(pipeline(faces=[]), target, tmp_path / "back.mp4", Password("hush"), Quality(lossless=True))
    assert psnr(stack(clip), stack(tmp_path / "back.mp4")) > 35  # the overlapping faces too
    assert psnr(stack(clip), videos[0][0]) < 30


def test_uncovered_frames_are_named_and_strict_refuses(clip, tmp_path):
    faces = [[face_at(x, y, 16)] if not 3 <= i < 13 else [] for i, (x, y) in enumerate(WHERE)]
    follow = TrackOptions(every=1, max_gap=0.2, hold=0.05)
    options = VideoOptions(follow=follow, quality=Quality(lossless=True))
    with pytest.raises(UncoveredError, match=r"1 face\(s\) not covered in 8 frame\(s\): 4-11 \(face 0\)"):
        anonymize_video(pipeline(faces=faces), clip, tmp_path / "a.mp4", password(), replace(options, strict=True))
    assert list(tmp_path.iterdir()) == []
    outcome = anonymize_video(pipeline(faces=faces), clip, tmp_path / "a.mp4", password(), options)
    assert "4-11" in describe_missing(tuple(report.track for report in outcome.tracks))
    changed = np.abs(stack(clip) - stack(tmp_path / "a.mp4")).mean((1, 2, 3)) > 0.5
    np.testing.assert_array_equal(changed, [i < 4 or i > 11 for i in range(16)])
    filled = replace(options, follow=TrackOptions(every=1), strict=True)
    anonymize_video(pipeline(faces=faces), clip, tmp_path / "b.mp4", password(), filled)
    assert (np.abs(stack(clip) - stack(tmp_path / "b.mp4")).mean((1, 2, 3)) > 0.5).all()


def test_no_face_writes_nothing(clip, tmp_path):
    with pytest.raises(NoFaceError, match="no face found"):
        anonymize_video(pipeline(faces=[[]] * 16), clip, tmp_path / "a.mp4", password())
    assert list(tmp_path.iterdir()) == []


def test_record_goes_beside_where_it_does_not_fit(clip, tmp_path, monkeypatch):
    hidden = tmp_path / "a.mov"
    monkeypatch.setitem(records.INLINE, ".mov", 100)
    outcome = anonymize_video(pipeline(), clip, hidden, password(), VideoOptions(probe=False))
    assert outcome.sidecar == sidecar_of(hidden)
    assert outcome.recovery is None
    assert read_info(hidden).comment is None
    values = json.loads(outcome.sidecar.read_text())
    assert values["shared"]["salt"] == SALT.hex()
    recover_video(pipeline(faces=[]), hidden, tmp_path / "b.mov", Password("hush"))
    outcome.sidecar.unlink()
    with pytest.raises(UserError, match="carries no faceanon data"):
        recover_video(pipeline(faces=[]), hidden, tmp_path / "c.mov", Password("hush"))
    assert not (tmp_path / "c.mov").exists()


def test_what_cannot_be_recovered_is_refused(clip, tmp_path):
    hidden = tmp_path / "a.mp4"
    anonymize_video(pipeline(), clip, hidden, password(), VideoOptions(probe=False))
    comment = read_info(hidden).comment
    short = write_clip(tmp_path / "short.mp4", SHOTS[:9], metadata={"comment": comment})
    small = write_clip(tmp_path / "small.mp4", SHOTS[:, :64], metadata={"comment": comment})
    for source, model, message in (
        (clip, pipeline(), "carries no faceanon data"),
        (hidden, pipeline(weights="0" * 64), "was anonymized with unnamed"),
        (short, pipeline(), "has 9 frames but its faceanon data speak of 16"),
        (small, pipeline(), "is 128x64 px but was anonymized at 128x128"),
    ):
        with pytest.raises(UserError, match=message):
            recover_video(model, source, tmp_path / "back.mp4", Password("hush"))
    assert not (tmp_path / "back.mp4").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_only_a_few_frames_are_in_memory(clip, tmp_path, monkeypatch):
    alive, most = set(), 0

    def counted(path):
        nonlocal most
        for frame in read_frames(path):
            alive.add(frame.index)
            most = max(most, len(alive))
            weakref.finalize(frame.pixels, alive.discard, frame.index)
            yield frame

    monkeypatch.setattr(passes, "read_frames", counted)
    anonymize_video(pipeline(batch=2), clip, tmp_path / "a.mp4", password(), VideoOptions(probe=False))
    assert 2 <= most <= 5


class Blind(Tinted):
    """A method that gives no picture of the second face that it sees."""

    def anonymize_as(self, image, identity, key):
        drawn = super().anonymize_as(image, identity, key)
        drawn[1::2] = float("nan")
        return drawn

    anonymize = anonymize_as


def test_a_frame_of_which_the_method_gives_no_picture_is_blurred():
    backbone = Blind()
    change = Change(Pipeline(backbone, FilmDetector([])), password().secret())
    faces = np.random.default_rng(0).uniform(-1, 1, (4, 3, 64, 64)).astype(np.float32)
    means = {0: change.pipeline.method.identities(faces)[0]}
    drawn, _ = change(faces, [0, 0, 0, 0], [0, 1, 2, 3], means)
    assert np.isfinite(drawn).all()
    for row in (1, 3):
        assert drawn[row].std() < faces[row].std() / 4


class Picky(Tinted):
    """A method that finds a person's first stranger too much like the person."""

    def unlike(self, image, identity, key):
        self.shown = len(image)
        return identity + 0.25


def test_a_persons_code_is_checked_before_the_clip_is_drawn():
    backbone = Picky()
    change = Change(Pipeline(backbone, FilmDetector([])), password().secret())
    faces = np.random.default_rng(0).uniform(-1, 1, (24, 3, 64, 64)).astype(np.float32)
    means = IdentityMeans(change)
    means.add(faces, [0] * 24)
    np.testing.assert_allclose(means.result()[0], change.pipeline.method.identities(faces).mean(0) + 0.25, rtol=1e-4)
    assert backbone.shown == 4


def test_the_flicker_meter_keeps_pictures_of_two_frames_alone():
    """Each track is there for three frames, as in a film of many cuts; one of them is missing in its last but one."""
    alive = []
    meter = FlickerMeter()
    generator = np.random.default_rng(0)
    first = {}
    for frame in range(60):
        track = frame // 3
        if frame == 31:
            continue
        original, drawn = generator.random((3, 8, 8)), generator.random((3, 8, 8))
        first[frame] = original.copy(), drawn.copy()
        alive += [weakref.ref(original), weakref.ref(drawn)]
        meter.add(track, frame, original, drawn)
        del original, drawn
        assert sum(picture() is not None for picture in alive) <= 4
    for track in range(20):
        shown = [first.get(frame) for frame in range(3 * track, 3 * track + 3)]
        moved, flickered = 0.0, 0.0
        for one, other in itertools.pairwise(shown):
            if one is not None and other is not None:
                moved += float(np.abs(other[0] - one[0]).mean())
                flickered += float(np.abs(other[1] - one[1]).mean())
        assert meter.of(track) == (pytest.approx(flickered / moved) if moved else None)
    assert meter.of(10) is None
    assert 0.5 < meter.overall() < 2


def test_a_tracks_faces_are_kept_until_its_last_one_was_seen(tmp_path, monkeypatch):
    """Of each track four faces are looked at; a film of many cuts has hundreds of tracks."""
    shots = np.concatenate([SHOTS, 255 - SHOTS, SHOTS])
    clip = write_clip(tmp_path / "in.mp4", shots, times=[25 * i for i in range(len(shots))])
    faces = [[face_at(x, y, 16)] for x, y in WHERE * 3]
    open_ = []
    add = IdentityMeans.add

    def counted(self, *words):
        add(self, *words)
        open_.append(sum(map(len, self._faces.values())))

    monkeypatch.setattr(IdentityMeans, "add", counted)
    options = VideoOptions(follow=TrackOptions(every=1), probe=False)
    outcome = anonymize_video(pipeline(Tinted(), faces), clip, tmp_path / "a.mp4", password(), options)
    assert len(outcome.tracks) == 3
    # A sixth of 16.
    assert max(open_) == 3
    means = IdentityMeans(Change(pipeline(Tinted(), []), password().secret()))
    means.finish(7)
    assert means.result() == {}
