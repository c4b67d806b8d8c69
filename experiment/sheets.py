"""sheets.py pairs OUT ROWS NAME NAME ... | blind OUT SEED COUNT A B"""
from evaluate import *
from faceanon.landmarks.swap import *
image = None
def tile(p, side=256):
    return cv2.resize(p.permute(1, 2, 0).numpy(), (side, side), interpolation=cv2.INTER_CUBIC)
if __name__ == '__main__':
    orig = to_bytes(real()[0])
    if sys.argv[1] == 'pairs':
        out, rows, names = sys.argv[2], sys.argv[3], sys.argv[4:]
        a, b, c = map(int, rows.split(':')); k = int(os.environ.get('KEY', 1)); lines = []
        cols = [orig] + [load(n, k, 'real')[0] for n in names]
        for r in range(a, b, c): lines.append(np.hstack([tile(x[r], int(os.environ.get('SIDE', 192))) for x in cols]))
        half = (len(lines) + 1) // 2
        if len(lines) % 2: lines.append(np.zeros_like(lines[0]) + 255)
        gap = np.full((sum(l.shape[0] for l in lines[:half]), 12, 3), 255, np.uint8)
        cv2.imwrite(out, np.hstack([np.vstack(lines[:half]), gap, np.vstack(lines[half:])])[..., ::-1])
    else:
        out, seed, count, A, B = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], sys.argv[6]
        g = np.random.default_rng(seed); pa = {k: load(A, k, 'real')[0] for k in (1, 2)}; pb = {k: load(B, k, 'real')[0] for k in (1, 2)}
        chosen = g.permutation(144)[:count]; key = []
        for s in range(0, count, 8):
            lines = []
            for n, i in enumerate(chosen[s:s + 8]):
                k, r = 1 + int(i) // 72, int(i) % 72; left = bool(g.integers(2)); x, y = pa[k][r], pb[k][r]
                if not left: x, y = y, x
                key.append((s + n + 1, k, r, 'AB' if left else 'BA'))
                row = np.hstack([tile(x), np.full((256, 6, 3), 255, np.uint8), tile(y)]); row = np.vstack([np.full((26, row.shape[1], 3), 255, np.uint8), row])
                cv2.putText(row, f'{s + n + 1}  L | R', (4, 20), cv2.FONT_HERSHEY_SIMPLEX, .6, (0, 0, 0), 2); lines.append(row)
            while len(lines) < 8: lines.append(np.full_like(lines[0], 255))
            gap = np.full((lines[0].shape[0], 24, 3), 255, np.uint8)
            sheet = np.vstack([np.hstack([lines[j], gap, lines[j + 1]]) for j in range(0, 8, 2)])
            cv2.imwrite(out + f'_{s // 8 + 1}.png', sheet[..., ::-1])
        Path(out + '.key').write_text('\n'.join(map(str, key)) + f'\nA={A} B={B}\n')
