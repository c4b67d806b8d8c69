"""Short clips with sound, made on the spot, and what plays the detector and the method for them."""

from fractions import Fraction

import av
import numpy as np
import torch

from faceanon.cli import main
from faceanon.commands import anonymize, recover
from faceanon.data.files import read_photos
from faceanon.data.prepared import shipped_photos
from faceanon.key import Secret
from faceanon.photo.detect import Detection
from faceanon.pipeline import Pipeline
from faceanon.types import Codes
from fakes import KeyedTint, Sized

SIZE = 128
UNIT = Fraction(1, 600)
TIMES = [25 * i for i in range(16)]  # 24 frames a second


def face_at(x, y, eyes):
    """A detection with eyes this far apart: a square of side 4 * eyes around (x, y + eyes / 10)."""
    points = np.array([[-0.5, 0], [0.5, 0], [0, 0.5], [-0.4, 1], [0.4, 1]]) * eyes + [x, y]
    return Detection((x - eyes, y - eyes, x + eyes, y + 2 * eyes), 0.99, points)


def film(frames=16, seed=0, size=SIZE):
    """A pale photograph that darkens a little and moves right: `(n, size, size, 3)` uint8, and where it is."""
    # No pixel is near black or white, where a tint would be cut off.
    face = 64 + 0.5 * read_photos([shipped_photos("test")[seed].path], 64)[0].astype(np.float32)
    pixels = [(face * (1 - 0.003 * step)).round().astype(np.uint8) for step in range(frames)]
    ramp = np.linspace(60, 180, size).astype(np.uint8)
    shots = np.broadcast_to(ramp[None, :, None, None], (frames, size, size, 3)).copy()
    where = [(20 + i, 30) for i in range(frames)]
    for shot, face, (left, top) in zip(shots, pixels, where, strict=True):
        shot[top : top + 64, left : left + 64] = face
    return shots, [(left + 32, top + 32 - 1.6) for left, top in where]


def write_clip(path, shots, times=TIMES, codec="libx264", options=None, sound=True, metadata=None, rotation=None):
    """Write frames at `times` (in `UNIT`), with half a second of a tone."""
    with av.open(str(path), "w") as out:
        out.metadata.update(metadata or {})
        stream = out.add_stream(codec, rate=24, options=options or ({"crf": "4"} if codec == "libx264" else {}))
        stream.height, stream.width = shots[0].shape[:2]
        stream.pix_fmt = {"libx264": "yuv420p", "libx264rgb": "rgb24", "mpeg4": "yuv420p"}[codec]
        if stream.pix_fmt == "yuv420p" and stream.width % 2:
            stream.pix_fmt = "yuv444p"
        stream.codec_context.time_base = UNIT
        if rotation is not None:
            stream.set_display_rotation(rotation)
        tone = out.add_stream("aac", rate=16000, layout="mono") if sound else None
        for shot, time in zip(shots, times, strict=False):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(shot), "rgb24")
            frame.pts, frame.time_base = time, UNIT
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
        if tone is not None:
            wave = (0.3 * np.sin(np.arange(8000) * 0.17)).astype(np.float32)[None]
            heard = av.AudioFrame.from_ndarray(wave, "fltp", "mono")
            heard.sample_rate, heard.pts, heard.time_base = 16000, 0, Fraction(1, 16000)
            out.mux(tone.encode(heard))
            out.mux(tone.encode(None))
    return path


def sound_of(path):
    """When the first sample is heard, and all samples."""
    with av.open(str(path)) as container:
        frames = list(container.decode(audio=0))
    return frames[0].time, np.concatenate([frame.to_ndarray() for frame in frames], axis=1)


class FilmDetector:
    """Finds what it was told of, call by call."""

    def __init__(self, detections):
        self.detections, self.calls = list(detections), 0

    def detect(self, image):
        self.calls += 1
        return self.detections[self.calls - 1]


class Tinted(Sized):
    """The identity is the mean colour of the picture, which the key shifts; all else is attributes."""

    key_shape = (3,)

    def __init__(self, size=64):
        super().__init__(size)
        self.weight = torch.nn.Parameter(torch.ones(1))

    def encode(self, image):
        mean = image[:, :, 8:-8, 8:-8].mean((2, 3))  # without the soft edge of the paste
        return Codes(mean, attributes=mean[:, None], image=image - mean[:, :, None, None])

    def transform(self, identity, key, inverse=False):
        shift = 0.3 * key.tanh()
        return identity - shift if inverse else identity + shift

    def decode(self, codes):
        return codes.image + codes.identity[:, :, None, None] * self.weight


def use_tiny_model(monkeypatch, detections):
    """Commands with a model that needs no file, these detections, and a derivation that costs nothing."""
    monkeypatch.setattr(anonymize, "_pipeline", lambda *asked: Pipeline(KeyedTint(), FilmDetector(detections)))
    monkeypatch.setattr(recover, "load_pipeline", lambda *asked, **more: Pipeline(KeyedTint()))
    monkeypatch.setattr(
        Secret, "from_password", lambda text, salt, kdf: Secret.random(int.from_bytes(salt + text.encode(), "big"))
    )
    monkeypatch.setenv("PW", "hush")


def call(command, *words):
    """Run a command in this process; gives its exit code."""
    return main([command, *map(str, words), "--password-env", "PW"])
