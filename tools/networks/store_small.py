"""Store a trained model in int8, a quarter of its size: python tools/networks/store_small.py MODEL OUT.

MODEL is a model's folder or a checkpoint of stage 1 or 2; OUT is the new folder. Weights that ship were stored so.
"""

import sys
from pathlib import Path

from faceanon.models import load_backbone, save_backbone

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    backbone, _ = load_backbone(sys.argv[1])
    print(save_backbone(backbone, Path(sys.argv[2]), int8=True))
