"""Pictures of invented people, and the same with donors' faces put on: prep.py NAME COUNT SEED ROOT ..."""
from data import *
from faceanon.data.prepared import shipped_test
from faceanon.landmarks.redrawing import own_pixels
torch.set_num_threads(1); cv2.setNumThreads(1)
def to_bytes(x): return ((x.float().clamp(-1, 1) + 1) * 127.5).round().byte()
if __name__ == '__main__':
    name, count, seed, roots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    t = time.time()
    found, _ = ex.split_paths(roots); g = np.random.default_rng(seed); taken = {}; paths = []
    for i in g.permutation(len(found)):
        p, lk = found[i]; taken[lk] = taken.get(lk, 0) + 1
        if taken[lk] <= 3 and len(paths) < count: paths.append(p)
    rows = []
    for n, p in enumerate(paths): rows += ex.draw_versions((n, n, p, (0, 1)))
    cols = [torch.from_numpy(np.stack(c)) for c in zip(*rows)]; v = ex.Versions(cols[0], cols[1], cols[2], cols[3].float(), cols[4], cols[5])
    print('versions', len(v.image), time.time() - t, flush=True)
    m = Persona(cast=True, redraw=True)
    held = shipped_test(m.bundle)
    unit = v.image.float() / 127.5 - 1
    with torch.no_grad(): emb = torch.cat([m.bundle.recogniser(x).float() for x in unit.split(16)])
    same = (emb @ held[0].T > held[1]).any(1); keep = ~torch.isin(v.picture, v.picture[same].unique())
    _, inv, cnt = v.picture.unique(return_inverse=True, return_counts=True); keep &= cnt[inv] == 2
    v = ex.Versions(*(x[keep] for x in (v.image, v.lines, v.mask, v.mesh, v.picture, v.look))); print('kept', len(v.image), flush=True)
    m.train(); d = Data(v, m, name); m.eval(); m.redraws = False
    out = {k: [] for k in ('codes_identity', 'attributes', 'mask', 'maps', 'emb', 'put', 'latents', 'identity', 'lines', 'own', 'ok')}
    with torch.no_grad():
        for r in torch.arange(len(v.image)).split(8):
            x = v.image[r].float() / 127.5 - 1
            codes, e, conf = m._look(x); targets = m._targets(x, codes)
            own = torch.from_numpy(own_pixels(targets))
            two = {k: [] for k in ('put', 'latents', 'identity', 'lines', 'ok')}
            for k in (0, 1):
                key = m.sample_key(len(r), torch.Generator().manual_seed(int(r[0]) * 2 + k + 7777 * seed))
                put, _ = m._with_donors(targets, codes, [e], key); put = torch.from_numpy(put); ok = put.isfinite().all(1).all(1).all(1) & (conf >= .5)
                put = put.nan_to_num()
                lat, st, sure = m._read_put_on(put, codes)
                two['put'].append(to_bytes(put)); two['latents'].append(lat.half()); two['identity'].append(st.identity)
                two['lines'].append((F.pixel_shuffle(st.features[16][:, 1:-3], 4) * 255).round().byte()); two['ok'].append(ok & (sure >= .5))
            for k in two: out[k].append(torch.stack(two[k], 1))
            for k, val in (('codes_identity', codes.identity), ('attributes', codes.attributes), ('mask', codes.mask), ('maps', codes.features[16].half()), ('emb', e.float()), ('own', (own * 255).round().byte())): out[k].append(val)
            if int(r[0]) % 160 == 0: print(int(r[0]), time.time() - t, flush=True)
    out = {k: torch.cat(x) for k, x in out.items()}
    torch.save(out, W / f'{name}_put.pt'); print('done', len(out['ok']), out['ok'].float().mean(), time.time() - t)
