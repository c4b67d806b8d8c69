"""Draw a group photo of procedural faces to try the product on: python examples/group_photo.py OUT.png."""

import sys

from faceanon.data.synthetic.posed import group_photo

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    group_photo().save(sys.argv[1])
