"""Hide the faces of a photo and bring them back: python examples/python_use.py PHOTO HIDDEN.png BACK.png."""

import getpass
import sys
from pathlib import Path

from faceanon import Pipeline
from faceanon.key import Password
from faceanon.pipeline import anonymize_file, recover_file

if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    photo, hidden, back = map(Path, sys.argv[1:])
    pipeline = Pipeline.load("persona_photo128")
    password = Password(getpass.getpass())
    anonymize_file(pipeline, photo, hidden, password)
    recover_file(pipeline, hidden, back, password)
