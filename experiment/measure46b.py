"""Put-on faces of the 36 real persons, led back by a flow: measure46.py NAME WEIGHTS|ships START STEPS TRIES noise|donor [AWAY]"""
from evaluate import *
from pnoise import pnoise
from faceanon.landmarks.redrawing import own_pixels, noise as shipped_noise
from faceanon.landmarks.cast import Choice
import hashlib, pickle
torch.set_num_threads(1); cv2.setNumThreads(1)
LIMIT = float(os.environ.get('LIMIT', .12))
def noise_number(n, k=0):
    if os.environ.get('KEYED', '1') == '1': return torch.randn(32, 16, 16, generator=torch.Generator().manual_seed(500 + n + 100 * k))
    if n == 0 or os.environ.get('FIX'): return torch.from_numpy(shipped_noise())
    return torch.randn(32, 16, 16, generator=torch.Generator().manual_seed(500 + n))
def prepare(m):
    """Codes, targets, and for each key put-on faces and the orders of donors."""
    p = W / 'real_put.pkl'
    if p.exists(): return pickle.loads(p.read_bytes())
    image, person = real(); out = {'image': image, 'person': person, 'key': {}}
    codes, emb, conf = look(m, image, 'real'); targets = m._targets(image, codes)
    out.update(codes=codes, emb=emb, conf=conf, targets=targets, own=torch.from_numpy(own_pixels(targets)))
    for k in (1, 2, 3):
        key = key_of(m, k).expand(len(image), -1, -1); c0 = time.process_time()
        orders = m._donors(targets, m.edit(codes, key).identity, emb)
        alike = m._alike_in_rows(emb)
        put, choices = m.cast.put_on_unlike(targets, orders, alike, None, m._read_points)
        out['key'][k] = (torch.from_numpy(put), choices, orders); print('put on', k, (time.process_time() - c0) / len(image), flush=True)
    p.write_bytes(pickle.dumps(out)); return out
def network(path):
    net = Avoiding(load_flow()).eval().requires_grad_(False); shun = False
    if path != 'flow':
        s = torch.load(W / path, weights_only=False); net.load_state_dict(s['ema']); shun = not s['opts']['noshun']
    bf16(net); return net, shun
def led(m, net, shun, st, codes, lat, start, steps, nz, away):
    """Latents of put-on faces led back."""
    mask, maps = codes.mask, st.features[16]; att = codes.attributes[:, 0]
    cond, own = torch.cat([st.identity, att], 1), torch.cat([codes.identity, att], 1)
    here = (1 - start) * nz + start * lat; ts = times(start, steps)
    for a, b in zip(ts[:-1], ts[1:]):
        at = here.new_full((len(lat),), a)
        with torch.autocast('cpu', torch.bfloat16):
            v = net(here, at, codes.latents, mask, maps, cond, codes.identity if shun else None).float()
            if away: v = v + away * (v - net(here, at, codes.latents, mask, maps, own, codes.identity if shun else None).float())
        here = here + (b - a) * v
    return codes.latents * (1 - mask) + here * mask
NOISES = [int(x) for x in os.environ.get('NOISES', '').split(',') if x]
def paint(m, d, net, shun, k, rungs):
    """rungs: (start, steps) one after the other; start 1: as it was put on."""
    image, codes, emb = d['image'], d['codes'], d['emb']; put0, choices, orders = d['key'][k]
    put0 = torch.where(put0.isfinite().all(1).all(1).all(1)[:, None, None, None], put0, image)
    best = torch.full((len(image),), 9.); out = image.clone(); left = torch.arange(len(image)); used = []; taken = torch.zeros(len(image))
    read = None
    for t, (start, steps) in enumerate(rungs):
        put = put0[left]; pics = []; used.append(len(left))
        with torch.no_grad():
            for r in torch.arange(len(left)).split(8):
                q = rows_of(codes, left[r])
                if start >= 1: pics.append(put[r]); continue
                if NOISES: nz = torch.stack([(lambda n: torch.from_numpy(shipped_noise()) if n < 0 else pnoise(n))(NOISES[(choices[i].donor + (0 if os.environ.get('FIX') else t)) % len(NOISES)]) for i in left[r].tolist()])
                else: nz = noise_number(t, k)
                lat, st, sure = m._read_put_on(put[r], q)
                pic = m._join(led(m, net, shun, st, q, lat, start, steps, nz, 0.), q)
                ow = d['own'][left[r]][:, None]; pics.append(pic * (1 - ow) + put[r] * ow)
            pics = torch.cat(pics); cos = (m.bundle.recogniser(pics.clamp(-1, 1)).float() * emb[left]).sum(1)
        on = cos < best[left]; out[left[on]] = pics[on]; best[left[on]] = cos[on]; taken[left[on]] = t; left = (best >= LIMIT).nonzero()[:, 0]
        if not len(left): break
    return out, used, taken
if __name__ == '__main__':
    m, _ = load_backbone('persona_photo128'); m.eval()
    d = prepare(m); name, path = sys.argv[1], sys.argv[2]; rungs = [tuple(map(float, x.split(':'))) for x in sys.argv[3].split(',')]; rungs = [(a, int(b)) for a, b in rungs]
    net, shun = network(path); shun = shun and not os.environ.get('NOSHUN')
    for k in (1, 2):
        c0 = time.process_time(); x, used, taken = paint(m, d, net, shun, k, rungs)
        print(name, k, 'looked at', used, 'taken', [int((taken == t).sum()) for t in range(len(rungs))], 'cpu s a face, redrawing', round((time.process_time() - c0) / 72, 3), flush=True); save(name, k, 'real', x)
    table([name], m)
