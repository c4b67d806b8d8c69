"""Group photos of invented people."""

import numpy as np

from faceanon.photo.party import CROWD, photo_crowd, photo_party
from faceanon.photo.yunet import YunetDetector


def test_a_crowd_has_twelve_faces_and_the_next_one_others():
    crowd = photo_crowd()
    assert crowd.size == (1614, 1214)
    assert len([face for face in YunetDetector().detect(np.array(crowd)) if face.size > 100]) == CROWD
    assert not np.array_equal(np.array(crowd), np.array(photo_crowd(1)))


def test_the_party_has_three():
    party = photo_party()
    assert party.size == (824, 284)
    assert len(YunetDetector().detect(np.array(party))) == 3
