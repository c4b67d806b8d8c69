"""blind.py OUT SEED COUNT A B: pairs with random sides, of the stored pictures; no torch."""
import sys, cv2, numpy as np
from pathlib import Path
S = Path('TRAINING/pics')
out, seed, count, A, B = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
def load(n, k): return np.load(S / f'{n}_real_{k}.npz')['p'].transpose(0, 2, 3, 1)
def tile(p): return cv2.resize(p, (256, 256), interpolation=cv2.INTER_CUBIC)
g = np.random.default_rng(seed); pa = {k: load(A, k) for k in (1, 2)}; pb = {k: load(B, k) for k in (1, 2)}
same = [i for i in range(144) if np.abs(pa[1 + i // 72][i % 72].astype(int) - pb[1 + i // 72][i % 72]).mean() < 1.0]
print('equal pictures', len(same), 'of 144'); chosen = [i for i in g.permutation(144) if i not in same][:count]; key = []
for s in range(0, count, 8):
    lines = []
    for n, i in enumerate(chosen[s:s + 8]):
        k, r = 1 + int(i) // 72, int(i) % 72; left = bool(g.integers(2)); x, y = pa[k][r], pb[k][r]
        if not left: x, y = y, x
        key.append((s + n + 1, k, r, 'AB' if left else 'BA')); row = np.hstack([tile(x), np.full((256, 6, 3), 255, np.uint8), tile(y)]); row = np.vstack([np.full((26, row.shape[1], 3), 255, np.uint8), row])
        cv2.putText(row, f'{s + n + 1}  L | R', (4, 20), cv2.FONT_HERSHEY_SIMPLEX, .6, (0, 0, 0), 2); lines.append(row)
    while len(lines) < 8: lines.append(np.full_like(lines[0], 255))
    gap = np.full((lines[0].shape[0], 24, 3), 255, np.uint8)
    cv2.imwrite(out + f'_{s // 8 + 1}.png', np.vstack([np.hstack([lines[j], gap, lines[j + 1]]) for j in range(0, 8, 2)])[..., ::-1])
Path(out + '.key').write_text('\n'.join(map(str, key)) + f'\nA={A} B={B}\n')
