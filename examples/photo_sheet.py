"""Show what a model does to the shipped test photographs: python examples/photo_sheet.py MODEL OUT [COUNT].

OUT ends in .png or .webp.
"""

import sys
import tempfile
from pathlib import Path

from faceanon.data.prepared import PreparedFaces
from faceanon.pipeline import Pipeline
from faceanon.pipeline.sheet import there_and_back

if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    count = int(sys.argv[3]) if len(sys.argv) == 4 else 8
    files = PreparedFaces().files("test")
    step = max(1, len(files) // count)
    with tempfile.TemporaryDirectory() as folder:
        there_and_back(Pipeline.load(sys.argv[1]), files[::step][:count], Path(folder), Path(sys.argv[2]))
