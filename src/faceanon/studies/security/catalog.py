"""All attacks, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from faceanon.errors import UserError
from faceanon.studies.security.base import Finding
from faceanon.studies.security.collisions import Collisions, collisions
from faceanon.studies.security.disturbance import Disturbed, disturbance
from faceanon.studies.security.kdf_cost import KdfCost, kdf_cost
from faceanon.studies.security.known_pairs import KnownPairs, known_pairs
from faceanon.studies.security.leak import Leak, leak
from faceanon.studies.security.linkability import Linkability, linkability
from faceanon.studies.security.membership import Membership, membership
from faceanon.studies.security.parrot import Parrot, parrot
from faceanon.studies.security.password_bit import PasswordBit, password_bit
from faceanon.studies.security.reidentify import Reidentified, reidentify
from faceanon.studies.security.wrong_keys import WrongKeys, wrong_keys


@dataclass(frozen=True)
class Attack:
    """One attack.

    Args:
        name: Of its file of results, and on the command line.
        title: Heading.
        question: What it asks.
        run: Attacks a target; further arguments are `options` of `run_attacks`.
        finding: Class of what it finds.
        version: Raised when its figures change their meaning, so that old results are not taken for new ones.
    """

    name: str
    title: str
    question: str
    run: Callable[..., Finding]
    finding: type[Finding]
    version: int = 1


_ALL = (
    Attack(
        "reidentify",
        "A recogniser that learnt anonymized faces",
        "Somebody fine-tunes a recogniser on anonymized faces: does it find the people behind new ones?",
        reidentify,
        Reidentified,
        version=2,
    ),
    Attack(
        "parrot",
        "Undoing without a key",
        "A network learns from pairs, made with keys of the attacker's own, to bring the original back: does it?",
        parrot,
        Parrot,
    ),
    Attack(
        "linkability",
        "Linking pictures",
        "Do two anonymized pictures betray that they show one person?",
        linkability,
        Linkability,
        version=2,
    ),
    Attack(
        "leak",
        "What the attributes say",
        "Is the person in what the method keeps: attribute codes, feature maps, pixels?",
        leak,
        Leak,
    ),
    Attack(
        "wrong_keys",
        "Wrong keys",
        "What does a wrong key show, and does it show that it is wrong?",
        wrong_keys,
        WrongKeys,
    ),
    Attack(
        "password_bit",
        "One bit of the password",
        "Is a password that is almost right as good as any wrong one?",
        password_bit,
        PasswordBit,
    ),
    Attack(
        "collisions",
        "Collisions of keys",
        "Do two of many keys coincide, or make the same stranger?",
        collisions,
        Collisions,
    ),
    Attack(
        "kdf_cost",
        "Guessing passwords",
        "What does it cost to try all passwords of a kind on one file?",
        kdf_cost,
        KdfCost,
    ),
    Attack(
        "known_pairs",
        "Known pairs",
        "Somebody knows codes before and after one key: how many of them betray it?",
        known_pairs,
        KnownPairs,
    ),
    Attack(
        "disturbance",
        "Files that were changed",
        "Can the owner of the key still open a file that was compressed, resized or touched otherwise?",
        disturbance,
        Disturbed,
    ),
    Attack(
        "membership",
        "Who was in the training set",
        "Somebody has the model and a picture: can he tell whether the model was trained on it?",
        membership,
        Membership,
    ),
)
ATTACKS = {attack.name: attack for attack in _ALL}


def chosen(names: Iterable[str] | None) -> list[Attack]:
    """The attacks of these names in the order of the page; all where None.

    Raises:
        UserError: No such attack, or none at all.
    """
    if names is None:
        return list(ATTACKS.values())
    asked = set()
    for name in names:
        if name.strip():
            asked.add(name.strip())
    if unknown := sorted(asked - set(ATTACKS)):
        raise UserError(f"no attack {unknown[0]!r}: there are {', '.join(ATTACKS)}")
    if not asked:
        raise UserError(f"no attack was named: there are {', '.join(ATTACKS)}")
    attacks = []
    for name, attack in ATTACKS.items():
        if name in asked:
            attacks.append(attack)
    return attacks
