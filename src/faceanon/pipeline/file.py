"""A picture file in, a picture file out: `anonymize_file` and `recover_file` for one file, from Python."""

from __future__ import annotations

from pathlib import Path

from faceanon.key import Password
from faceanon.manifest import Manifest
from faceanon.pipeline.exact import ExactTask
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.steps import Outcome
from faceanon.pipeline.tasks import AnonymizeTask, Output, RecoverTask, run_task
from faceanon.sealed.openers import Openers


def anonymize_file(
    pipeline: Pipeline,
    source: Path,
    target: Path,
    password: Password | Openers,
    aligned: bool = False,
    output: Output | None = None,
    again: bool = False,
) -> Outcome:
    """Anonymize a picture file into one from which the password brings it back.

    Args:
        pipeline: The model.
        source: Any picture.
        target: The file to write; PNG and WebP keep pixels exact, JPEG does not.
        password: Files of one object share its salt: the same person becomes the same stranger in all. Or `Openers`:
            recipients, for whom each file has a key of its own.
        aligned: The picture is itself one aligned square face.
        output: Quality, where the manifest goes, whether a vault keeps the original faces, and what metadata stay.
        again: Anonymize also what carries recovery data already, and keep them inside the new ones.

    Raises:
        UserError: If the source cannot be read, shows no face or carries recovery data already, or the target cannot
            be written.
    """
    output = output or Output()
    return run_task(AnonymizeTask(pipeline, source, target, password, aligned=aligned, output=output, again=again))


def recover_file(
    pipeline: Pipeline,
    source: Path,
    target: Path,
    password: Password | Openers,
    output: Output | None = None,
    like: Manifest | None = None,
    exact: bool = False,
    deniable: bool = False,
    force: bool = False,
) -> Outcome:
    """Recover a file of `anonymize_file`.

    Args:
        pipeline: The model.
        source: The anonymized picture, with its manifest inside or beside it.
        target: The file to write.
        password: What it was anonymized with; or `Openers` with the identity of a recipient.
        output: Quality of the target.
        like: Manifest of another file of the same run: where `source` has lost its own, the faces are detected again
            and the salt is taken from here.
        exact: The original pixels from the file's vault (`Output.vault`), without the model.
        deniable: Under a wrong password draw another stranger, also with a method whose sealed codes could tell.
        force: Also recover a picture that looks otherwise than it did.

    Raises:
        UserError: If the source carries no usable manifest, was changed or fits another model, or the target cannot be
            written;
            with `exact` also if there is no vault, or the password is wrong.
    """
    output = output or Output()
    if exact:
        return run_task(ExactTask(pipeline, source, target, password, output, force))
    return run_task(RecoverTask(pipeline, source, target, password, output, like, deniable, force))
