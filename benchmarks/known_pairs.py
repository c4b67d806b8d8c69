"""What a keyed map of codes withstands, and what that costs: python benchmarks/known_pairs.py [KEYS].

Whitened codes are standard normal, so nothing has to be trained or drawn. For the rotation's linear turn and for the
flow with growing swing, mean over KEYS keys (default 3). The default of `swing` is a line of this table.

  grow     by how much a small error of a code grows on its way back
  .1 .2    cosine of recovered with true codes, each entry read with an error of .1 or .2 standard deviations
  r.9 r.6  cosine of the strangers' codes of two photos whose codes agree with correlation .9 or .6
  near     standard deviation of the cosine between a code and its stranger's (unrelated codes of 20 entries: .22)
  wrong    share of codes opened with a wrong key whose cosine with the truth is above .5
  ls, mlp  an attack: cosine of codes predicted from a stranger's with the truth, on codes never seen, after so many
           known pairs under the same key; by least squares, and by a network of two hidden layers
"""

import sys

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.networks.compensation import mlp
from faceanon.networks.keyed import KeyedTurn
from faceanon.networks.keyed_flow import KeyedFlow

LENGTH, TESTED = 20, 1000
SOLVED, TAUGHT = (10, 24, 50, 100, 500, 2000), (100, 500, 2000)
COLUMNS = ["grow", ".1", ".2", "r.9", "r.6", "near", "wrong", *(f"ls{n}" for n in SOLVED), *(f"mlp{n}" for n in TAUGHT)]


class KeyedMap:
    """A map under one key, and under a wrong one."""

    def __init__(self, turn: KeyedTurn | KeyedFlow, size: int) -> None:
        self.turn, self.key, self.wrong = turn, torch.randn(1, size), torch.randn(1, size)

    def __call__(self, code: Tensor, inverse: bool = False, wrong: bool = False) -> Tensor:
        """Turn `(N, K)`, or turn it back."""
        key = self.wrong if wrong else self.key
        turned: Tensor = self.turn(code, key.expand(len(code), -1), inverse)
        return turned


def solved(known: Tensor, truth: Tensor, new: Tensor) -> Tensor:
    """Codes that least squares, with the least ridge that keeps them stable, predicts."""
    system = known.T @ known + torch.eye(LENGTH)
    predicted: Tensor = new @ torch.linalg.solve(system, known.T @ truth)
    return predicted


@torch.enable_grad()
def taught(known: Tensor, truth: Tensor, new: Tensor) -> Tensor:
    """Codes that a network predicts, stopped where a fifth of the pairs, held out, says so."""
    net, held = mlp(LENGTH, 256, 256, LENGTH), len(known) // 5
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.05)
    best, found = -1.0, new
    for _ in range(25):
        for rows in torch.randperm(len(known) - held).repeat(12).split(256)[: 12 * 2000 // 256]:  # type: ignore[no-untyped-call]
            loss = F.mse_loss(net(known[held + rows]), truth[held + rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            score = float(F.cosine_similarity(net(known[:held]), truth[:held]).mean())
            if score > best:
                best, found = score, net(new)
    return found


def row(keyed: KeyedMap) -> list[float]:
    """One line of the table."""
    code, other = torch.randn(2, max(SOLVED) + TESTED, LENGTH)
    stranger = keyed(code)
    error = torch.randn_like(code)

    def near(found: Tensor, truth: Tensor = code) -> Tensor:
        return F.cosine_similarity(found, truth)

    figures = [(keyed(stranger + 1e-3 * error, inverse=True) - code).square().mean().sqrt() * 1e3]
    figures += [near(keyed(stranger + size * error, inverse=True)).mean() for size in (0.1, 0.2)]
    photos = [agreed * code + (1 - agreed**2) ** 0.5 * other for agreed in (0.9, 0.6)]
    figures += [near(keyed(photo), stranger).mean() for photo in photos]
    figures += [near(stranger).std(), (near(keyed(stranger, inverse=True, wrong=True)) > 0.5).float().mean()]
    for attack, counts in ((solved, SOLVED), (taught, TAUGHT)):
        found = [attack(stranger[:n], code[:n], stranger[-TESTED:]) for n in counts]
        figures += [near(codes, code[-TESTED:]).mean() for codes in found]
    return [float(figure) for figure in figures]


@torch.no_grad()
def main() -> None:
    """Print the table."""
    torch.manual_seed(0)
    keys = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    turn = KeyedTurn(LENGTH)
    maps: dict[str, tuple[KeyedTurn | KeyedFlow, int]] = {"linear turn": (turn, 20 * LENGTH)}
    for grades in ((20,), (12, 8)):
        for swing in (0.0, 0.3, 0.4, 0.5, 0.7):
            flow = KeyedFlow(grades, swing=swing)
            maps[f"{'+'.join(map(str, grades))}, swing {swing}"] = flow, flow.key_size
    print(" " * 18, *(f"{name:>7}" for name in COLUMNS))
    for name, (keyed, size) in maps.items():
        figures = torch.tensor([row(KeyedMap(keyed, size)) for _ in range(keys)]).mean(0)
        print(f"{name:<18}", *(f"{value:7.3f}" for value in figures.tolist()), flush=True)


if __name__ == "__main__":
    main()
