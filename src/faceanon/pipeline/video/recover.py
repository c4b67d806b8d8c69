"""The faces of a written video back, where the password is right."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from faceanon.errors import UserError
from faceanon.key import Password
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.video.codes import StoredCodes, stored_codes
from faceanon.pipeline.video.faces import Change
from faceanon.pipeline.video.frames import read_info
from faceanon.pipeline.video.passes import Progress, ignore_face, ignore_frame, mean_identities, silent, write_changed
from faceanon.pipeline.video.record import read_record
from faceanon.pipeline.video.tags import KINDS
from faceanon.pipeline.video.writer import Quality, VideoWriter
from faceanon.sealed.envelope import WrongPasswordError
from faceanon.sealed.openers import Openers, check_deniable, openers


@dataclass(frozen=True)
class RecoveredVideo:
    """What was recovered.

    Args:
        frames: Number of frames.
        tracks: Number of tracks.
        faces: Number of faces in all frames together.
        written: How the anonymized video had been written.
    """

    frames: int
    tracks: int
    faces: int
    written: str


def recover_video(
    pipeline: Pipeline,
    source: Path,
    target: Path,
    password: Password | Openers,
    quality: Quality | None = None,
    progress: Progress = silent,
    deniable: bool = False,
) -> RecoveredVideo:
    """Recover a video of `anonymize_video`.

    Args:
        pipeline: The same model.
        source: The video as it was written.
        target: The video to write: .mp4, .mov or .mkv.
        password: The password it was made with, whose own salt is not used; or the identity of a recipient.
        quality: How to write.
        progress: Told what is being done, frames done and frames in all.
        deniable: Where sealed codes do not open, draw other strangers instead of saying so.

    Raises:
        WrongPasswordError: If a sealed code does not open, unless `deniable`.
        UserError: If the source carries no usable record, was scaled or cut, or fits another model; or the target
            cannot be written.
    """
    info = read_info(source)
    record = read_record(source, info.comment)
    shared = record.shared
    pipeline.check(shared, str(source))
    # The squares are in pixels of the frames as they were written.
    if (shared.width, shared.height) != (info.width, info.height):
        was = f"{shared.width}x{shared.height}"
        raise UserError(f"{source} is {info.width}x{info.height} px but was anonymized at {was}; give the unscaled one")
    if deniable:
        check_deniable(shared.lock, str(source))
    change = Change(pipeline, openers(password).open(shared.lock, str(source)), inverse=True)
    with ExitStack() as stack:
        if pipeline.method.sealed:
            codes = stack.enter_context(stored_codes(source, record, change.secret))
            change = _with_codes(change, codes, deniable)
        means = mean_identities(source, change, record, progress)
        # What `anonymize` kept of the original's tags stays.
        writer = stack.enter_context(VideoWriter(target, source, info, quality or Quality(), None, keep=KINDS))
        write_changed(source, writer, change, record, means, ignore_face, ignore_frame, progress)
        writer.publish()
    return RecoveredVideo(record.frames, record.tracks, record.faces, shared.encoding)


def _with_codes(change: Change, codes: StoredCodes, deniable: bool) -> Change:
    """The change with the codes; one that draws other strangers where they do not open and nobody is to know."""
    try:
        # All of them, before anything is written.
        codes.check()
    except WrongPasswordError:
        if not deniable:
            raise
        # Under a wrong key the method draws as at anonymizing: another stranger.
        return replace(change, inverse=False)
    return replace(change, codes=codes)
