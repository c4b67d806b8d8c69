"""Put-on faces of the 36 real persons, led back by a flow: measure46.py NAME WEIGHTS|ships START STEPS TRIES noise|donor [AWAY]"""
from evaluate import *
from faceanon.landmarks.redrawing import own_pixels, noise as shipped_noise
from faceanon.landmarks.cast import Choice
import hashlib, pickle
torch.set_num_threads(1); cv2.setNumThreads(1)
LIMIT = float(os.environ.get('LIMIT', .12))
def noise_number(n, k=0):
    if os.environ.get('KEYED', '1') == '1': return torch.randn(32, 16, 16, generator=torch.Generator().manual_seed(500 + n + 100 * k))
    if n == 0: return torch.from_numpy(shipped_noise())
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
def paint(m, d, net, shun, k, start, steps, tries, kind, away=0., keep_put=True):
    image, codes, emb = d['image'], d['codes'], d['emb']; put0, choices, orders = d['key'][k]
    put0 = torch.where(put0.isfinite().all(1).all(1).all(1)[:, None, None, None], put0, image)
    best = torch.full((len(image),), 9.); out = image.clone(); left = torch.arange(len(image)); used = 0
    for t in range(tries):
        put = put0[left]
        if kind == 'donor' and t:
            c = []
            for r in left.tolist():
                o = [x for x in orders[r] if x != choices[r].donor]; c.append(Choice(o[(t - 1) % len(o)]) if o else choices[r])
            p = torch.from_numpy(m.cast.put_on([d['targets'][r] for r in left.tolist()], c)); put = torch.where(p.isfinite(), p, put)
        nz = noise_number(t if kind == 'noise' else 0, k); used += len(left); pics = []
        with torch.no_grad():
            for r in torch.arange(len(left)).split(8):
                q = rows_of(codes, left[r]); lat, st, sure = m._read_put_on(put[r], q)
                pic = m._join(led(m, net, shun, st, q, lat, start, steps, nz, away), q)
                ow = d['own'][left[r]][:, None]; pics.append(pic * (1 - ow) + put[r] * ow)
            pics = torch.cat(pics); cos = (m.bundle.recogniser(pics.clamp(-1, 1)).float() * emb[left]).sum(1)
        on = cos < best[left]; out[left[on]] = pics[on]; best[left[on]] = cos[on]; left = (best >= LIMIT).nonzero()[:, 0]
        if not len(left): break
    return out, used / len(image), len(left)
if __name__ == '__main__':
    m, _ = load_backbone('persona_photo128'); m.eval()
    d = prepare(m); name, path = sys.argv[1], sys.argv[2]
    keys = (1, 2)
    if path == 'ships':
        for k in keys:
            c0 = time.process_time(); save(name, k, 'real', paint_shipped(m, d['image'], k)); print('cpu s a face', (time.process_time() - c0) / 72, flush=True)
    elif path == 'put':
        for k in keys: save(name, k, 'real', d['key'][k][0])
    else:
        start, steps, tries, kind = float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]; away = float(sys.argv[7]) if len(sys.argv) > 7 else 0.
        net, shun = network(path); shun = shun and not os.environ.get('NOSHUN')
        for k in keys:
            c0 = time.process_time(); x, used, left = paint(m, d, net, shun, k, start, steps, tries, kind, away)
            print(name, k, 'tries', round(used, 2), 'left', left, 'cpu s a face, redrawing', round((time.process_time() - c0) / 72, 3), flush=True); save(name, k, 'real', x)
    table([name], m)
