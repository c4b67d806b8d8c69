"""Store a flow painter as the network that ships: `python tools/networks/store_flow_painter.py OUT WEIGHTS`.

    python tools/networks/store_flow_painter.py checkpoints/photo_seers runs/flow/best.safetensors

All large weights are stored in int8 and Huffman code, 14.8 MB. What `train_hiding.py` teaches is 3 % of the weights: in
int4 2 % of this is left, in 31 steps on each side (10.3 MB) 88 % and as much of an error, and in int8 all, with a
quarter of an error. Writes `redrawer.safetensors` and prints its sha256.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from faceanon.files import load_tensors, save_tensors
from faceanon.landmarks.redrawer import FILE


def main() -> None:
    """Read the arguments, and store."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("weights", type=Path, help="what tools/networks/train_hiding.py trained")
    options = parser.parse_args()
    path = options.out / FILE
    digest = save_tensors(path, load_tensors(options.weights), half=True, int8=True, huffman=True)
    print(path, path.stat().st_size, "bytes, sha256", digest)


if __name__ == "__main__":
    main()
