import av
import numpy as np
import pytest
from video_clips import TIMES, film, sound_of, write_clip

from faceanon.errors import UserError
from faceanon.pipeline.video.frames import read_frames, read_info
from faceanon.pipeline.video.writer import Quality, VideoWriter

SHOTS, _ = film(8)
UNEVEN = [0, 25, 50, 125, 150, 400, 425, 450]


def copy(source, target, quality, comment=None):
    info = read_info(source)
    with VideoWriter(target, source, info, quality, comment) as writer:
        for frame in read_frames(source):
            writer.write(frame)
        writer.finish()
        writer.publish()
    return target


def stack(path):
    return np.array([frame.pixels for frame in read_frames(path)])


def seconds(path):
    return [float(frame.pts * frame.time_base) for frame in read_frames(path)]


@pytest.mark.parametrize("name", ["b.mp4", "b.mkv", "b.mov"])
def test_times_and_sound_come_along_and_nothing_else(tmp_path, name):
    place = {"location": "+48.1+011.5/", "comment": "our holiday", "title": "Anna"}
    source = write_clip(tmp_path / "a.mp4", SHOTS, UNEVEN, metadata=place)
    target = copy(source, tmp_path / name, Quality(), "the record")
    # Matroska has no times before zero, so all streams start later by what an AAC encoder needs to get going.
    later = seconds(target)[0]
    assert later == (0.064 if name == "b.mkv" else 0)
    np.testing.assert_allclose(np.array(seconds(target)) - later, np.array(UNEVEN) / 600, atol=1e-3)
    (start, heard), (start2, heard2) = sound_of(source), sound_of(target)
    assert start == start2 == 0
    np.testing.assert_array_equal(heard, heard2[:, round(later * 16000) :])
    assert read_info(target).comment == "the record"
    for secret in (b"loci", b"holiday", b"Anna"):
        assert secret in source.read_bytes()
        assert secret not in target.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a.mp4", name])


@pytest.mark.parametrize("name", ["b.mp4", "b.mkv"])
def test_lossless_keeps_every_pixel(tmp_path, name):
    source = write_clip(tmp_path / "a.mp4", SHOTS)
    np.testing.assert_array_equal(stack(copy(source, tmp_path / name, Quality(lossless=True))), stack(source))


def test_colour_survives_and_crf_orders_quality(tmp_path):
    source = write_clip(tmp_path / "a.mp4", SHOTS, codec="libx264rgb", options={"crf": "0"})
    np.testing.assert_array_equal(stack(source), SHOTS)
    choices = {
        name: stack(copy(source, tmp_path / f"{name}.mp4", quality)).astype(float)
        for name, quality in [("fine", Quality(4)), ("coarse", Quality(30)), ("full", Quality(4, full_colour=True))]
    }
    error = {name: np.abs(pixels - SHOTS).mean() for name, pixels in choices.items()}
    assert error["full"] < error["fine"] < error["coarse"]
    assert error["full"] < 1.5
    assert np.abs((choices["full"] - SHOTS).mean((0, 1, 2))).max() < 0.5  # no colour cast


def test_rotated_telephone_film_becomes_upright(tmp_path):
    source = write_clip(tmp_path / "a.mp4", [shot[:96] for shot in SHOTS], rotation=0)
    plain = stack(source)
    data = bytearray(source.read_bytes())
    at = data.index(b"tkhd") + 4 + 40  # behind times, ids, layer and volume lies the matrix, 16.16 fixed point
    turned = [0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30]  # x to the right goes down: a quarter turn clockwise
    data[at : at + 36] = b"".join(number.to_bytes(4, "big", signed=True) for number in turned)
    source.write_bytes(data)
    np.testing.assert_array_equal(stack(source), np.rot90(plain, -1, (1, 2)))
    info = read_info(source)
    assert (info.width, info.height) == (96, 128)
    target = copy(source, tmp_path / "b.mp4", Quality(lossless=True))
    np.testing.assert_array_equal(stack(target), stack(source))
    with av.open(str(target)) as container:
        assert next(container.decode(video=0)).rotation == 0


def test_odd_sides(tmp_path):
    source = write_clip(tmp_path / "a.mp4", [shot[:97, :127] for shot in SHOTS])
    assert stack(copy(source, tmp_path / "b.mp4", Quality())).shape == (8, 97, 127, 3)


def interrupted(source, target):
    with VideoWriter(target, source, read_info(source), Quality(), None) as writer:
        writer.write(next(read_frames(source)))
        raise KeyboardInterrupt


def test_failure_leaves_nothing(tmp_path):
    source = write_clip(tmp_path / "a.mp4", SHOTS)
    (tmp_path / "b.mp4").write_text("older")
    with pytest.raises(KeyboardInterrupt):
        interrupted(source, tmp_path / "b.mp4")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mp4", "b.mp4"]
    assert (tmp_path / "b.mp4").read_text() == "older"


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    source = write_clip(tmp_path / "a.mp4", SHOTS)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*b\.mp4"):
        copy(source, tmp_path / "file" / "b.mp4", Quality())


def test_sound_that_does_not_fit_is_told(tmp_path):
    with av.open(str(tmp_path / "a.mkv"), "w") as out:
        stream, tone = out.add_stream("mpeg4", rate=24), out.add_stream("tta", rate=16000, layout="mono")
        stream.width, stream.height, stream.pix_fmt = 128, 128, "yuv420p"
        for shot in SHOTS:
            out.mux(stream.encode(av.VideoFrame.from_ndarray(shot, "rgb24")))
        out.mux(stream.encode(None))
        heard = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.int16), "s16", "mono")
        heard.sample_rate = 16000
        out.mux(tone.encode(heard))
        out.mux(tone.encode(None))
    with pytest.raises(UserError, match=r"try \.mkv"):
        copy(tmp_path / "a.mkv", tmp_path / "b.mp4", Quality())
    assert [path.name for path in tmp_path.iterdir()] == ["a.mkv"]
    assert len(stack(copy(tmp_path / "a.mkv", tmp_path / "b.mkv", Quality()))) == 8


@pytest.mark.parametrize("space", [1, 6, 9])
def test_colour_spaces_are_read_and_written_as_tagged(tmp_path, space):
    colours = np.zeros((64, 64, 3), np.uint8)
    colours[:, :32], colours[:, 32:] = [200, 30, 60], [20, 180, 90]
    with av.open(str(tmp_path / "a.mp4"), "w") as out:
        stream = out.add_stream("libx264", rate=24, options={"crf": "2"})
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv444p"
        stream.codec_context.colorspace, stream.codec_context.color_range = space, 1
        frame = av.VideoFrame.from_ndarray(colours, "rgb24")
        out.mux(stream.encode(frame.reformat(format="yuv444p", dst_colorspace=space, dst_color_range=1)))
        out.mux(stream.encode(None))
    target = copy(tmp_path / "a.mp4", tmp_path / "b.mp4", Quality(2, full_colour=True))
    for path in (tmp_path / "a.mp4", target):
        assert np.abs(stack(path)[0].astype(int) - colours).max() < 4
    with av.open(str(target)) as container:
        assert next(container.decode(video=0)).colorspace == space


GREYS = (1, 10, 26, 50, 100, 203, 400, 1000)  # cd/m2 on the screen


def perceptual_quantiser(light):
    """SMPTE ST 2084: cd/m2 to signal."""
    power = (np.array(light) / 10_000) ** 0.1593017578125
    return ((0.8359375 + 18.8515625 * power) / (1 + 18.6875 * power)) ** 78.84375


def hybrid_log_gamma(light):
    """BT.2100, for a screen of 1000 cd/m2: cd/m2 of grey to signal."""
    scene = (np.array(light) / 1000) ** (1 / 1.2)
    bright = 0.17883277 * np.log(np.maximum(12 * scene - 0.28466892, 1e-9)) + 0.55991073
    return np.where(scene <= 1 / 12, np.sqrt(3 * scene), bright)


def write_hdr(path, transfer):
    """Patches of grey, 32 px wide, in 10 bits."""
    signal = perceptual_quantiser(GREYS) if transfer == 16 else hybrid_log_gamma(GREYS)
    luma = np.round(64 + 876 * signal).astype("<u2").repeat(32)[None].repeat(64, 0)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx265", rate=25, options={"crf": "4", "x265-params": "log-level=error"})
        stream.width, stream.height, stream.pix_fmt = luma.shape[1], 64, "yuv420p10le"
        context = stream.codec_context
        context.colorspace, context.color_primaries, context.color_trc, context.color_range = 9, 9, transfer, 1
        for index in range(3):
            chroma = np.full((32, luma.shape[1]), 512, "<u2")
            frame = av.VideoFrame.from_ndarray(np.vstack([luma, chroma]), "yuv420p10le")
            frame.pts, frame.colorspace, frame.color_range = index, 9, 1
            frame.color_primaries, frame.color_trc = 9, transfer
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("transfer", [16, 18], ids=["PQ", "HLG"])
def test_an_hdr_film_becomes_an_honest_sdr_film(tmp_path, transfer):
    source = write_hdr(tmp_path / "a.mp4", transfer)
    target = copy(source, tmp_path / "b.mp4", Quality(2))
    # The light of paper, 203, is white; screens of SDR have the curve of BT.1886.
    right = 255 * (np.array(GREYS) / 203).clip(0, 1) ** (1 / 2.4)
    for path in (source, target):
        frames = stack(path)
        assert len(frames) == 3
        patches = frames[:, 32, 16::32].astype(int)
        assert np.abs(patches - right[:, None]).max() <= 6
    with av.open(str(target)) as container:
        frame = next(container.decode(video=0))
    assert (frame.colorspace, frame.color_primaries, frame.color_trc) == (1, 1, 1)
    assert "the range of HDR" in read_info(source).dropped[0]
    assert read_info(target).dropped == ()


def test_bad_files_are_one_line(tmp_path):
    good = write_clip(tmp_path / "a.mp4", SHOTS).read_bytes()
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "half.mp4").write_bytes(good[: len(good) // 2])
    with av.open(str(tmp_path / "sound.mp4"), "w") as out:
        tone = out.add_stream("aac", rate=16000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.sample_rate = 16000
        out.mux(tone.encode(frame))
        out.mux(tone.encode(None))
    for name in ("text.mp4", "empty.mp4", "half.mp4", "sound.mp4", "missing.mp4"):
        with pytest.raises(UserError, match=name) as caught:
            copy(tmp_path / name, tmp_path / "b.mp4", Quality())
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "b.mp4").exists()


def test_damage_in_the_middle_is_told_or_survived_never_a_traceback(tmp_path):
    good = bytearray(write_clip(tmp_path / "a.mp4", SHOTS, TIMES).read_bytes())
    random = np.random.default_rng(0)
    outcomes = set()
    for _ in range(25):
        bad = bytearray(good)
        for at in random.integers(32, len(bad), 20):
            bad[at] = random.integers(256)
        (tmp_path / "bad.mp4").write_bytes(bad)
        try:
            read_info(tmp_path / "bad.mp4")
            outcomes.add(len(list(read_frames(tmp_path / "bad.mp4"))) > 0)
        except UserError:
            outcomes.add("told")
    assert "told" in outcomes


def test_crf_has_bounds():
    with pytest.raises(UserError, match="between 0"):
        Quality(crf=60)
