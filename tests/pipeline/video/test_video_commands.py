import pytest
from video_clips import call, face_at, film, use_tiny_model, write_clip

SHOTS, WHERE = film(16)
GAP = [[face_at(x, y, 16)] if not 2 <= i < 14 else [] for i, (x, y) in enumerate(WHERE)]


@pytest.fixture(autouse=True)
def tiny_model(monkeypatch):
    use_tiny_model(monkeypatch, GAP)


def test_there_and_back_with_a_report(tmp_path, capsys):
    source = write_clip(tmp_path / "in.mp4", SHOTS)
    assert call("anonymize", source, tmp_path / "out.mp4", "--crf", 14, "--every", 1) == 0
    out = capsys.readouterr().out
    assert "face 0: 16 frame(s), 0 to 15, seen in 4, flicker " in out
    assert "dB less than without compression" in out
    assert "anonymized 1 face(s) in 16 frame(s)" in out
    assert call("recover", tmp_path / "out.mp4", tmp_path / "back.mkv", "--lossless") == 0
    assert "16 times in 16 frames" in (out := capsys.readouterr().out)
    assert "written as H.264 crf 14" in out


def test_strict_exits_with_one_and_writes_nothing(tmp_path, capsys):
    source = write_clip(tmp_path / "in.mp4", SHOTS)
    words = "anonymize", source, tmp_path / "out.mp4", "--max-gap", 0.1, "--every", 1
    assert call(*words, "--strict") == 1
    assert "not covered in 2 frame(s): 7-8" in (error := capsys.readouterr().err)
    assert len(error.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in.mp4"]
    assert call(*words) == 0
    assert "warning: 1 face(s) not covered" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.mp4", "out.mp4"], "no such file"),
        (["in.mp4", "out.avi"], "written as .mp4, .mov or .mkv"),
        (["in.mp4", "in.mp4"], "is the input itself"),
        (["in.mp4", "taken.mp4"], "--overwrite"),
        (["in.mp4", "out.mp4", "--aligned"], "--aligned: for photos only"),
        (["in.mp4", "out.mp4", "--small-faces", "mask"], "--small-faces: for photos only; leave it away for in.mp4"),
        (
            ["in.mp4", "out.mp4", "--format", "png", "--workers", "2"],
            "--format, --workers: for photos only; leave them",
        ),
        (["in.mp4", "out.mp4", "--crf", "99"], "between 0"),
        (["in.mp4", "out.mp4", "--every", "0"], "every"),
        (["taken.mp4", "out.mp4"], "taken.mp4 is not a video"),
    ],
)
def test_bad_input_is_one_line_and_code_two(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    write_clip(tmp_path / "in.mp4", SHOTS, sound=False)
    (tmp_path / "taken.mp4").write_text("no video")
    assert call("anonymize", *words) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert len(error.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.mp4", "taken.mp4"]


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        ("anonymize", ["--strict"], "--strict"),
        ("anonymize", ["--max-gap", "0"], "--max-gap"),
        ("anonymize", ["--every", "1"], "--every"),  # as by default: typed, so meant
        ("recover", ["--crf", "10", "--lossless"], "--crf, --lossless"),
        ("recover", ["--full-colour"], "--full-colour"),
    ],
)
@pytest.mark.parametrize("source", ["in.png", "."])
def test_what_only_videos_have_is_refused_for_photos(tmp_path, monkeypatch, capsys, command, words, said, source):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.png").write_bytes(b"not looked at")
    assert call(command, source, "out.png", *words) == 2
    error = capsys.readouterr().err.strip()
    assert f"{said}: for videos only; leave {'them' if ',' in said else 'it'} away for {source}" in error
    assert len(error.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in.png"]
