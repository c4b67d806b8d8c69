"""The cast that ships: photographs of people who do not exist, whose faces Persona puts on.

Donors with closed lips are put on everybody, those with open lips on people who laugh too. The mirror image of a donor
is put on who is turned to the other side.

Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.files import load_arrays
from faceanon.landmarks.album import Album, units
from faceanon.landmarks.geometry import eye_distance, openness, turn
from faceanon.landmarks.swap import Appearance, Donor, SwapTarget, put_on
from faceanon.weights.shipped import read_shipped

Array = NDArray[np.float32]

FILE = "cast.safetensors"
PARTS = frozenset(
    {"pictures", "starts", "points", "pupils", "codes", "embeddings", "tones", "brows", "triangles", "mirrored"}
)
SIDE = 256  # side of the pictures that the donors' photographs were cut from; their sizes hold at this scale
LAUGHING = 0.06  # height of the gap between lips, in distances between the eyes, from which teeth show
AS_OPEN = 0.6  # share of this gap by which that of a laughing donor may differ from the person's
FITTING = 40  # donors who fit a person at most, of whom a key chooses
FEWEST = 12  # ... and at least
# Not fewer: those who are least like a person are like each other, and two keys' strangers would be too.
UNLIKE_SHARE = 0.6  # of those who fit, who are least like the person and may be taken
MISFIT = 7.0  # cost above the best one's from which a donor does not fit, if there are enough others
TRIES = 8  # donors who are put on a face at most, until one is unlike the original
UNLIKE = 0.1  # cosine of embeddings from which a donor's face on the original is too much like it
SEEN = 4  # steps above it from which a donor whom a person has in other photos is not put on either: a cosine of .25
STEP = 0.05  # differences of that cosine below which the key decides between two donors, not the likeness
# Shares of what the points of a drawn face are read wrong by, by which they are moved back; the first one that does not
# make the face more like the person is taken.
MOVED_BACK = (0.8, 0.4)
MOST_WRONG = 0.1  # mean of what is read wrong, in distances between the eyes, from which no reading is believed
READ = 3  # first kept directions of a code: sex, age and skin, as `landmarks.looks` reads them off a picture
# How much differences of these between a person and a donor count, and of brightness and colour of the pictures, in
# natural logarithms. Skin and brightness are two things: a light face in the dark is no dark face.
SEX = 6.0  # of what lies between -1 and 1; beyond, a face is no more of one sex
AGE = 8.0
SKIN = 10.0  # a face of another skin would keep its white lips
# Age here rises from old to young.
CHILD = 1.0  # age above which a face is a child's, and its sex counts a third
BRIGHTNESS = 7.0
COLOUR = 8.0
BROWS = 5.0  # black brows beside fair hair look painted on
MOUTH = 40.0  # of a distance between the eyes: cheeks and eyes of who keeps the lips closed do not laugh
TURN = 35.0  # of a turn into profile: cheek and brow of who is seen from the front would be stretched
SAME_TURN = 0.12  # difference of turns that does not count, and turn up to which nobody is mirrored
SAME = 0.99  # cosine of the free parts of two codes, from which they are one donor's


@dataclass(frozen=True)
class Choice:
    """How a face is put on another.

    Args:
        donor: Whose face: the number of a donor, or of a donor's mirror image.
        move: `(468, 2)` in sides of the picture, by how much its points move, so that they are read where the old
            face's were; None for not at all.
    """

    donor: int
    move: Array | None = None


# Points `(R, 468, 2)` that a network finds in pictures `(R, 3, S, S)`, in sides of the picture.
Read = Callable[[Array], Array]
# The cosines `(R,)` between what a recogniser sees in pictures `(R, 3, S, S)` and the persons of R rows.
Alike = Callable[[Array, list[int]], Array]


class Cast:
    """Invented people whose faces are put on others.

    Args:
        folder: Where `cast.safetensors` lies; the shipped one when None.

    Attributes:
        codes: `(N, 64)` identity codes of the donors.
        embeddings: `(N, E)` the recogniser's embeddings of them, of unit length.
        triangles: `(T, 3)` of the 468 points.

    The number of a donor's mirror image is the donor's own, plus N.

    Raises:
        UserError: If the file is missing or damaged.

    Examples:
        >>> from faceanon.landmarks.cast import Cast
        >>> cast = Cast()
        >>> donor = cast.donor(0, 128)
        >>> donor.points.shape
        (468, 3)
    """

    def __init__(self, folder: Path | None = None) -> None:
        tensors = load_arrays(Path(FILE), read_shipped(FILE, folder))
        missing = PARTS - set(tensors)
        if missing:
            raise UserError(f"{FILE} has no {sorted(missing)[0]}: restore the file")
        self.pictures = tensors["pictures"].astype(np.uint8).tobytes()
        self.starts = tensors["starts"].astype(int)
        self.points = tensors["points"].astype(np.float32)
        self.pupils = tensors["pupils"].astype(np.float32)
        self.codes = tensors["codes"].astype(np.float32)
        self.embeddings = tensors["embeddings"].astype(np.float32)
        self.tones = tensors["tones"].astype(np.float32)
        self.brows = tensors["brows"].astype(np.float32)
        self.triangles = tensors["triangles"].astype(np.int32)
        # Which point lies where another one does in a mirror.
        self.mirrored = tensors["mirrored"].astype(np.intp)
        self.turns = np.array([turn(points) for points in self.points])
        gaps = np.array([openness(points) for points in self.points])
        # A mouth that is open cannot be closed, so only these fit everybody.
        self.closed = np.flatnonzero(gaps <= LAUGHING)
        self.open = np.flatnonzero(gaps > LAUGHING)
        self.gaps = gaps
        # One donor is put on many faces, as in all frames of a video: its picture is decoded once for each size.
        self.donor = cache(self._donor)

    def _donor(self, number: int, side: int) -> Donor:
        """A donor, or a donor's mirror image, at the scale of pictures `side` pixels wide."""
        if number >= len(self.codes):
            return _mirrored(self.donor(number - len(self.codes), side), self.mirrored)
        whole = np.frombuffer(self.pictures[self.starts[number] : self.starts[number + 1]], np.uint8)
        decoded = cv2.imdecode(whole, cv2.IMREAD_COLOR)
        # The file's checksum was right.
        assert decoded is not None
        picture = cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB).astype(np.uint8)
        return Donor(picture, self.points[number], self.pupils[number], self.tones[number]).resized(side / SIDE)

    def fitting(self, looks: Array, appearance: Appearance, kept: Array) -> NDArray[np.intp]:
        """Numbers of the donors who fit a person best, the best one first.

        Args:
            looks: `(3,)` sex, age and skin of the person.
            appearance: The person's in the picture.
            kept: `(64, K)` the directions of a code that tell sex, age and skin, in this order first.
        """
        donors, mouth = self._of_mouth(appearance.gap)
        theirs = self.codes[donors] @ kept[:, :READ]
        sex = np.abs(theirs[:, 0].clip(-1, 1) - np.clip(looks[0], -1, 1))
        age = np.abs(theirs[:, 1] - looks[1])
        skin = np.abs(theirs[:, 2] - looks[2])
        hue = self.tones[donors] - appearance.tone
        # Tones are logarithms, so brightness is what the channels share; colour is what is left of each.
        brightness = hue.mean(1)
        colour = np.abs(hue - brightness[:, None]).sum(1)
        brow = np.abs(self.brows[donors] - np.float32(appearance.brows))
        if looks[1] > CHILD:
            sex = sex / 3
        person = SEX * sex + AGE * age + SKIN * skin + BROWS * brow
        # Donors may be mirrored, so the side does not count.
        turned = np.abs(np.abs(self.turns[donors]) - abs(appearance.turn))
        held = MOUTH * mouth + TURN * np.maximum(turned - SAME_TURN, 0)
        costs = person + held + BRIGHTNESS * np.abs(brightness) + COLOUR * colour
        # Stable: of two donors of equal cost every machine takes the same one, or strangers would differ.
        order = np.argsort(costs, kind="stable")
        fit = int((costs <= costs[order[0]] + MISFIT).sum())
        return donors[order[: min(max(fit, FEWEST), FITTING)]]

    def _of_mouth(self, gap: float) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """N donors for a face whose mouth is open by `gap`, see `openness`, and by how much each one's mouth is off."""
        if gap <= LAUGHING:
            # Lips that are nearly closed close.
            return self.closed, np.zeros(len(self.closed))
        off = np.abs(self.gaps - np.float32(gap))
        donors = np.union1d(self.closed, self.open[off[self.open] <= AS_OPEN * gap])
        return donors, off[donors]

    def chosen(
        self, code: Array, embedding: Array, appearance: Appearance, kept: Array, free: Array
    ) -> NDArray[np.intp]:
        """Numbers of donors for a keyed identity code, the first one first; turned as the person is.

        Of those who fit the person and are least like them, the nearest one to where the key has turned the code. A
        code that is a donor's own gets this donor, whoever fits and however they are turned.

        Args:
            code: `(64,)`, turned by a key.
            embedding: `(E,)` of the person.
            appearance: The person's in the picture.
            kept: `(64, K)` directions of a code that tell sex, age and skin.
            free: `(64, F)` the others.
        """
        fitting = self.fitting(code @ kept[:, :READ], appearance, kept)
        # Recognisers see the more of the original the more the donor is like it (a correlation of .56).
        unlike = fitting[np.argsort(self.embeddings[fitting] @ embedding, kind="stable")]
        donors = unlike[: max(round(UNLIKE_SHARE * len(unlike)), FEWEST)]
        likeness = units(self.codes @ free) @ units(code @ free)
        order = donors[np.argsort(-likeness[donors], kind="stable")]
        # Among all donors, not those who fit: the light of a video's frame changes who fits, and its donor must stay.
        best = int(likeness.argmax())
        if likeness[best] > SAME:
            return np.concatenate([[best], self.facing(order[order != best], appearance.turn)])
        return self.facing(order, appearance.turn)

    def facing(self, donors: NDArray[np.intp], turned: float) -> NDArray[np.intp]:
        """Numbers of donors, of their mirror images where they look to another side than a face turned by `turned`."""
        away = (self.turns[donors] * turned < 0) & (abs(turned) > SAME_TURN)
        return np.where(away, donors + len(self.codes), donors)

    def orders(
        self,
        targets: Sequence[SwapTarget],
        codes: Array,
        embeddings: Array,
        kept: Array,
        free: Array,
        album: Album | None = None,
        steady: bool = False,
    ) -> list[list[int]]:
        """As `chosen`, the first `TRIES` donors for each of B faces.

        Args:
            targets: The faces.
            codes: `(B, 64)` of the persons, turned by keys.
            embeddings: `(B, E)` of the persons.
            kept: `(64, K)` directions of a code that tell sex, age and skin.
            free: `(64, F)` the others.
            album: Persons who have a donor already; theirs comes first.
            steady: Whether the donor is for other pictures of the person too, in which the mouth may be closed and the
                head turned otherwise.
        """
        orders = []
        for target, code, own in zip(targets, codes, embeddings, strict=True):
            appearance = target.appearance
            if steady:
                appearance = replace(appearance, gap=0.0, turn=0.0)
            order = self.chosen(code, own, appearance, kept, free)[:TRIES].tolist()
            known = None if album is None else album.donor_of(own)
            # An album of before a change of the cast may name somebody who laughs now, or nobody.
            if known is not None and known in self.closed:
                # Never mirrored, to be the same in all photos. And the mirror image is no second person.
                order = [known, *(donor for donor in order if donor % len(self.codes) != known)]
            orders.append(order)
        return orders

    def for_person(
        self,
        targets: Sequence[SwapTarget],
        codes: Array,
        embeddings: Array,
        kept: Array,
        free: Array,
        alike: Alike,
        used: Mapping[int, int],
    ) -> int:
        """Number of the donor for a person in several photos, unlike the person in all of them.

        Args:
            targets: The person's faces.
            codes: `(B, 64)` of them, turned by one key.
            embeddings: `(B, E)` of them.
            kept: `(64, K)` directions of a code that tell sex, age and skin.
            free: `(64, F)` the others.
            alike: As in `put_on_unlike`.
            used: How many other persons have a donor already; the least used ones go first.
        """
        tone = np.mean([target.appearance.tone for target in targets], axis=0)
        brows = float(np.mean([target.appearance.brows for target in targets]))
        # In one of the photos the mouth may be closed, and the head turned to another side.
        appearance = Appearance(tone, brows, gap=0.0, turn=0.0)
        order = self.chosen(codes.mean(0), units(embeddings.mean(0)), appearance, kept, free)[:TRIES].tolist()
        # Sorting is stable: among donors who are used equally often the key's order stays.
        return self.unlike_in_all(targets, sorted(order, key=lambda donor: used.get(donor, 0)), alike)

    def unlike_in_all(self, targets: Sequence[SwapTarget], order: Sequence[int], alike: Alike) -> int:
        """The first of some donors who is unlike a person in all of the person's faces, else the least alike.

        Args:
            targets: The person's faces.
            order: Numbers of donors, one at least.
            alike: As in `put_on_unlike`.
        """
        best = order[0]
        least = None
        rows = list(range(len(targets)))
        for number in order:
            off = steps(alike(self.put_on(targets, [Choice(number)] * len(targets)), rows))
            # NaN where nothing was put on: such a face is hidden in another way, whoever the donor is.
            off = off[np.isfinite(off)]
            # The worst face decides, since the donor has to be unlike in every photo; the sum only parts equal ones.
            cost = (float(off.max(initial=0)), float(off.sum()))
            if least is None or cost < least:
                best = number
                least = cost
            if cost[0] == 0:
                break
        return best

    def put_on(self, targets: Sequence[SwapTarget], choices: Sequence[Choice]) -> Array:
        """Pictures `(B, 3, S, S)` in [-1, 1] with the faces of donors.

        Those of which too little would change to hide the person are NaN.
        """
        drawn = []
        for target, choice in zip(targets, choices, strict=True):
            donor = self.donor(choice.donor, len(target.picture))
            drawn.append(put_on(target, donor, self.triangles, choice.move))
        pictures: Array = np.stack(drawn).transpose(0, 3, 1, 2).astype(np.float32) / np.float32(127.5) - 1
        pictures[[not target.hidden for target in targets]] = np.nan
        return pictures

    def put_on_unlike(
        self,
        targets: Sequence[SwapTarget],
        orders: Sequence[Sequence[int]],
        alike: Alike,
        known: NDArray[np.bool_] | None = None,
        read: Read | None = None,
    ) -> tuple[Array, list[Choice]]:
        """Pictures with the first donors who are unlike the persons, and how they were put on.

        Args:
            targets: The faces.
            orders: Numbers of donors for each of them, as of `orders`; one of them at least.
            alike: Gives the cosines `(R,)` between what a recogniser sees in pictures `(R, 3, S, S)` and the persons of
                R rows.
            known: `(B,)`, whose first donor is the one that the person has in other photos too. Such a donor is given
                up only where almost everybody would still see the person.
            read: Finds the points of drawn faces. Each face is then put on once more, its points moved back by most of
                what is read wrong of them. None leaves faces as they are put on first.
        """
        choices = [Choice(order[0]) for order in orders]
        drawn = self.put_on(targets, choices)
        off = steps(alike(drawn, list(range(len(targets)))))
        settled = np.zeros(len(targets), bool) if known is None else known & (off < SEEN)
        for attempt in range(1, TRIES):
            # Compared, since NaN is not 0: of a face on which nothing was put no other donor changes that.
            again = np.flatnonzero((off > 0) & ~settled)
            rows = [row for row in again.tolist() if attempt < len(orders[row])]
            if not rows:
                break
            # The faces that are still too much like their originals get their next donors, in one batch.
            others = [Choice(orders[row][attempt]) for row in rows]
            redrawn = self.put_on([targets[row] for row in rows], others)
            off_now = steps(alike(redrawn, rows))
            for place, row in enumerate(rows):
                # If no donor is unlike the person, the least alike of those that were tried stays.
                if off_now[place] < off[row]:
                    drawn[row] = redrawn[place]
                    off[row] = off_now[place]
                    choices[row] = others[place]
        if read is not None:
            self._move_back(targets, drawn, choices, off, alike, read)
        return drawn, choices

    def _move_back(
        self,
        targets: Sequence[SwapTarget],
        drawn: Array,
        choices: list[Choice],
        off: Array,
        alike: Alike,
        read: Read,
    ) -> None:
        """Put faces on once more, so that mouth and pose are read as those of the old faces.

        A network reads them a little off where skin and lips are another person's, though the points are where they
        should be. So the points are moved back by most of what it reads wrong, or by less, where the face would be more
        like the person then, or not at all.

        Args:
            targets: The faces.
            drawn: Pictures with the faces of donors; those of faces that are put on anew are replaced.
            choices: How they were put on; replaced likewise.
            off: `(B,)`, how many steps they are too much like the persons, see `steps`.
            alike: As in `put_on_unlike`.
            read: As there.
        """
        # NaN where nothing was put on.
        rows = np.flatnonzero(np.isfinite(off)).tolist()
        if not rows:
            return
        wrong = {row: _read_wrong(targets[row], points) for row, points in zip(rows, read(drawn[rows]), strict=True)}
        for share in MOVED_BACK:
            others = [replace(choices[row], move=-share * wrong[row]) for row in rows]
            redrawn = self.put_on([targets[row] for row in rows], others)
            off_now = steps(alike(redrawn, rows))
            left = []
            for place, row in enumerate(rows):
                if off_now[place] <= off[row]:
                    drawn[row] = redrawn[place]
                    choices[row] = others[place]
                else:
                    left.append(row)
            rows = left
            if not rows:
                break


def _read_wrong(target: SwapTarget, points: Array) -> Array:
    """By how much the points of a drawn face are read wrong, `(468, 2)` in sides of the picture; 0 if senseless.

    Args:
        target: The face that was there. Points of its outline count as right, since they must not move.
        points: `(468, 2)` of the drawn face, in sides of the picture.
    """
    side = np.float32(len(target.picture))
    wrong: Array = (points - target.mesh[:, :2] / side) * target.free
    average = float(np.linalg.norm(wrong, axis=1).mean()) * side / eye_distance(target.mesh)
    return wrong if average < MOST_WRONG else np.zeros_like(wrong)


def _mirrored(donor: Donor, points: NDArray[np.intp]) -> Donor:
    """A donor as a mirror shows them.

    Args:
        donor: Who looks into it.
        points: `(468,)`, which point lies where another one does in a mirror.
    """
    width = np.float32(donor.picture.shape[1])
    mesh = donor.points[points]
    mesh[:, 0] = width - mesh[:, 0]
    # The left eye is the right one now.
    looks = donor.pupils[::-1].copy()
    looks[:, 0] = width - looks[:, 0]
    return replace(donor, picture=np.ascontiguousarray(donor.picture[:, ::-1]), points=mesh, pupils=looks)


def steps(alike: Array) -> Array:
    """How many steps cosines `(B,)` lie above what counts as unlike, `(B,)`; 0 for those that do not."""
    above: Array = np.floor((alike - np.float32(UNLIKE)) / np.float32(STEP) + 1).clip(0)
    return above
