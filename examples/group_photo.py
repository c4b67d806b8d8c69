"""A group photo of people who do not exist, to try the product on: python examples/group_photo.py OUT.png."""

import sys

from faceanon.photo.party import photo_party

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    photo_party().save(sys.argv[1])
