"""pairs.py OUT KEY a:b:c NAME ...: originals and stored pictures, no torch."""
import sys, cv2, numpy as np
from pathlib import Path
out, k, (a, b, c), names = sys.argv[1], sys.argv[2], map(int, sys.argv[3].split(':')), sys.argv[4:]
paths = [p for d in sorted(x for x in Path('SHARED/testbed/identity_rgb256').iterdir() if x.is_dir()) for p in sorted(d.iterdir())[:2]]
cols = [np.load(f'TRAINING/pics/{n}_real_{k}.npz')['p'].transpose(0, 2, 3, 1) for n in names]; rows = []
print(len(paths))
for r in range(a, b, c):
    o = cv2.imread(str(paths[r]))[..., ::-1]; rows.append(np.hstack([cv2.resize(x, (192, 192), interpolation=cv2.INTER_CUBIC) for x in [cv2.resize(o, (128, 128), interpolation=cv2.INTER_AREA)] + [q[r] for q in cols]]))
h = (len(rows) + 1) // 2
if len(rows) % 2: rows.append(np.full_like(rows[0], 255))
cv2.imwrite(out, np.hstack([np.vstack(rows[:h]), np.full((192 * h, 12, 3), 255, np.uint8), np.vstack(rows[h:])])[..., ::-1])
